import itertools
from collections import Counter

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, GPT2Config, KVCache, Llama, LlamaConfig
from mytorch.models.generation import beam_search, distribution, pick
from mytorch.models.tokenizer import CharTokenizer


@pytest.fixture
def model():
    made = GPT2(GPT2Config(vocab_size=31, context_length=16, num_layers=2, num_heads=2, embed_dim=12))
    with mytorch.no_grad():
        for p in made.parameters():  # larger logits than with initial weights
            p.mul_(8.0)
    return made


def prompt(rows=2, length=5):
    return mytorch.randint(0, 31, (rows, length))


def test_cached_logits_are_those_of_the_whole_pass(model):
    x = prompt(3, 16)
    with mytorch.no_grad():
        whole = model(x).numpy()
        cache = model.new_cache()
        parts = [model(x[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 7), (7, 12), (12, 16))]
    assert len(cache) == 16
    np.testing.assert_allclose(np.concatenate([p.numpy() for p in parts], 1), whole, rtol=1e-4, atol=1e-4)


def test_cache_memory_is_taken_once_and_reset_keeps_it(model):
    cache = model.new_cache(length=8)
    with mytorch.no_grad():
        first = model(prompt(1, 4), cache=cache).numpy()
        memory = cache.layers[0].k._mt_data._array
        assert memory.shape == (1, 2, 8, 6)
        model(prompt(1, 1), cache=cache)
        assert cache.layers[0].k._mt_data._array is memory
        cache.reset()
    assert len(cache) == 0
    assert first.shape == (1, 4, 31)


def test_cache_refuses_more_than_it_has_room_for_and_another_batch(model):
    with mytorch.no_grad():
        cache = model.new_cache(length=4)
        with pytest.raises(ValueError, match="expected at most 4 positions, got 5"):
            model(prompt(1, 5), cache=cache)
        cache = KVCache(2, 8)
        model(prompt(1, 2), cache=cache)
        with pytest.raises(ValueError, match="expected 1 sequences"):
            model(prompt(2, 1), cache=cache)


@pytest.mark.parametrize("new", [6, 30])  # within the context of 16, and far past it
def test_cache_changes_no_token(model, new):
    x = prompt()
    with_cache = model.generate(x, new, seed=1)
    without = model.generate(x, new, seed=1, use_cache=False)
    assert with_cache.shape == (2, 5 + new)
    assert with_cache.dtype == mytorch.int64
    assert (with_cache == without).all()
    assert (with_cache[:, :5] == x).all()


def test_past_the_context_the_oldest_tokens_are_dropped(model):
    x = prompt(1, 40)
    expected = model.generate(x[:, -16:], 1, temperature=0)[:, -1]
    assert (model.generate(x, 1, temperature=0)[:, -1] == expected).all()


def test_batched_sampling_is_that_of_single_rows_when_greedy(model):
    x = prompt(3, 4)
    together = model.generate(x, 8, temperature=0)
    for i in range(3):
        assert (model.generate(x[i], 8, temperature=0)[0] == together[i]).all()


@pytest.mark.cpu_only
def test_seed_repeats_and_leaves_the_global_generator_alone(model):
    x = prompt()
    before = mytorch.get_rng_state()
    first = model.generate(x, 10, seed=3)
    assert (mytorch.get_rng_state() == before).all()
    assert (model.generate(x, 10, seed=3) == first).all()
    assert (model.generate(x, 10, seed=4) != first).any()
    g = mytorch.Generator().manual_seed(3)
    assert (model.generate(x, 10, generator=g) == first).all()


def test_stream_yields_one_token_a_row_as_they_are_made(model):
    x = prompt()
    tokens = list(model.stream(x, 7, seed=2))
    assert [tuple(t.shape) for t in tokens] == [(2,)] * 7
    assert (mytorch.stack(tokens, 1) == model.generate(x, 7, seed=2)[:, 5:]).all()


def test_stream_is_in_eval_mode_without_grad_and_leaves_both_as_they_were(model):
    model.train()
    tokens = model.stream(prompt(), 5)
    next(tokens)
    assert mytorch.is_grad_enabled()
    assert not model.training
    tokens.close()
    assert model.training
    assert all(m.training for m in model.modules())


def test_stop_token_ends_a_row_and_then_the_whole(model):
    x = prompt(2, 3)
    free = model.generate(x, 10, seed=5)
    stop = int(free[0, 4])
    stopped = model.generate(x, 10, seed=5, stop=stop)
    row = stopped[0].tolist()
    first = row.index(stop, 3)
    assert set(row[first:]) == {stop}
    alone = model.generate(x[:1], 10, seed=5, stop=list(range(31)))
    assert alone.shape == (1, 4)


def test_top_k_one_and_temperature_zero_are_the_likeliest(model):
    x = prompt()
    greedy = model.generate(x, 8, temperature=0)
    assert (model.generate(x, 8, top_k=1) == greedy).all()


def logits_of(probabilities):
    return mytorch.tensor(np.log(np.asarray(probabilities, np.float32)))[None]


def draws(logits, n=400, **options):
    g = mytorch.Generator().manual_seed(0)
    return np.array([int(pick(logits, generator=g, **options)) for _ in range(n)])


@pytest.mark.cpu_only
def test_pick_draws_with_the_probabilities_of_the_logits():
    counts = np.bincount(draws(logits_of([0.5, 0.3, 0.2]), 2000), minlength=3) / 2000
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.2], atol=0.04)


@pytest.mark.cpu_only
def test_top_k_top_p_and_vocab_size_leave_the_unlikely_out():
    logits = logits_of([0.4, 0.3, 0.2, 0.1])
    assert set(draws(logits, top_k=2)) == {0, 1}
    assert set(draws(logits, top_p=0.6)) == {0, 1}
    assert set(draws(logits, top_p=0.75)) == {0, 1, 2}
    assert set(draws(logits, top_p=0.01)) == {0}
    assert set(draws(logits, vocab_size=3)) == {0, 1, 2}
    assert set(draws(logits, top_k=99)) == {0, 1, 2, 3}


@pytest.mark.cpu_only
def test_temperature_sharpens_and_flattens():
    logits = logits_of([0.6, 0.4])
    sharp = (draws(logits, temperature=0.2) == 0).mean()
    flat = (draws(logits, temperature=5.0) == 0).mean()
    assert sharp > 0.8
    assert flat < 0.6


def test_repetition_penalty_discourages_earlier_tokens():
    logits = mytorch.tensor([[2.0, 1.5, -1.0]])
    seen = np.array([[0, 2]])
    assert int(pick(logits, seen, temperature=0)) == 0
    assert int(pick(logits, seen, temperature=0, repetition_penalty=2.0)) == 1


def test_pick_changes_no_logits():
    logits = mytorch.randn(2, 9)
    before = logits.clone()
    pick(logits, np.zeros((2, 1), int), 0.5, 3, 0.5, 1.5)
    assert (logits == before).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -1.0}, "temperature to be .*got -1.0"),
        ({"top_k": 0}, "top_k to be .*got 0"),
        ({"top_p": 0.0}, "top_p to be .*got 0.0"),
        ({"top_p": 1.5}, "top_p to be .*got 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty to be .*got 0.0"),
    ],
)
def test_options_outside_their_range_are_refused(model, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.generate(prompt(), 3, **options)


def test_empty_prompt_and_negative_count_are_refused(model):
    with pytest.raises(ValueError, match="got an empty input"):
        model.generate(prompt()[:, :0], 3)
    with pytest.raises(ValueError, match="max_new_tokens to be 0 or more, got -1"):
        model.generate(prompt(), -1)
    assert (model.generate(prompt(1, 4), 0).shape) == (1, 4)


def lively(made):
    with mytorch.no_grad():
        for p in made.parameters():
            if p.ndim > 1:
                p.mul_(8.0)
    return made.eval()


@pytest.fixture(params=["gpt2", "llama", "mistral"])
def any_model(request):
    shape = {"vocab_size": 31, "context_length": 40, "num_layers": 2, "num_heads": 2, "embed_dim": 12}
    if request.param == "gpt2":
        return lively(GPT2(GPT2Config(**shape)))
    window = {"llama": None, "mistral": 5}[request.param]
    return lively(Llama(LlamaConfig(**shape, num_kv_heads=1, sliding_window=window)))


@pytest.mark.parametrize("use_cache", [True, False])
def test_prompts_of_different_lengths_are_continued_as_each_alone(any_model, use_cache):
    rows = [prompt(1, n)[0] for n in (3, 11, 1)]
    together = any_model.generate(rows, 12, temperature=0, use_cache=use_cache)
    for row, found in zip(rows, together, strict=True):
        assert found.tolist() == any_model.generate(row, 12, temperature=0)[0].tolist()


@pytest.mark.parametrize("new", [12, 50])  # within the context, and past it
def test_the_cache_changes_no_token_of_any_model(any_model, new):
    x = prompt(2, 7)
    options = {"seed": 3, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}
    assert (any_model.generate(x, new, **options) == any_model.generate(x, new, use_cache=False, **options)).all()


@pytest.mark.cpu_only
def test_min_p_excludes_improbable_tokens():
    logits = logits_of([0.4, 0.3, 0.2, 0.1])
    assert set(draws(logits, min_p=0.4)) == {0, 1, 2}
    assert set(draws(logits, min_p=1.0)) == {0}
    with pytest.raises(ValueError, match=r"min_p to be a number from 0 to 1, got 1\.5"):
        list(mytorch.models.stream(None, prompt(), 1, min_p=1.5))


@pytest.fixture
def writer(model):
    model.tokenizer = CharTokenizer("abcdefghijklmnopqrstuvwxyz .,!?")
    return model


def test_text_goes_in_and_comes_out(writer):
    tokens = mytorch.tensor([writer.tokenizer.encode("hello")])
    expected = writer.tokenizer.decode(writer.generate(tokens, 9, seed=1)[0].tolist())
    assert writer.generate("hello", 9, seed=1) == expected
    assert "hello" + "".join(writer.stream("hello", 9, seed=1)) == expected
    alone = [writer.generate(text, 9, temperature=0) for text in ("so", "hello")]
    assert writer.generate(["so", "hello"], 9, temperature=0) == alone
    writer.tokenizer = None
    with pytest.raises(ValueError, match="text input requires a tokenizer"):
        writer.generate("hello", 3)


def test_stop_strings_end_a_text_before_them(writer):
    free = writer.generate("hello", 40, seed=1)[5:]
    stop = free[6:9]
    at = free.index(stop)
    for use_cache in (True, False):
        assert writer.generate("hello", 40, seed=1, stop=stop, use_cache=use_cache) == "hello" + free[:at]
    pieces = list(writer.stream("hello", 40, seed=1, stop=[stop, "never made"]))
    assert "".join(pieces) == free[:at]
    token = writer.tokenizer.encode(free[7])[0]
    assert writer.generate("hello", 40, seed=1, stop=token) == "hello" + free[: free.index(free[7])]
    made = writer.generate(mytorch.tensor([writer.tokenizer.encode("hello")]), 40, seed=1, stop=stop)
    assert made.shape == (1, 5 + at + 3), "tokens end with the string"


class Table:
    """A model whose logits depend on the last token only, and cost nothing."""

    training, tokenizer = False, None

    def __init__(self, logits, context=16):
        self.logits = mytorch.tensor(logits)
        self.config = type("Config", (), {"context_length": context})()

    def new_cache(self, batch_size=None, length=None, sliding=True):
        return KVCache(0, length)

    def train(self, mode=True):
        return self

    eval = train

    def __call__(self, input, cache=None, last_only=False):
        if cache is not None:
            cache.advance(input.shape[1])
        return self.logits[input[:, -1:] if last_only else input]


@pytest.mark.cpu_only
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "top_k": 3}, {"top_p": 0.7, "repetition_penalty": 1.5}])
def test_a_draft_changes_no_distribution(rng, sampling):
    target, draft = (Table(rng.standard_normal((4, 4)).astype("float32") * 1.5) for _ in range(2))
    x, n, g = mytorch.tensor([[0]]), 800, mytorch.Generator().manual_seed(0)
    expected = {}
    for new in itertools.product(range(4), repeat=3):
        seen, expected[new] = [0], n
        for token in new:
            p = distribution(target.logits[seen[-1:]], np.array([seen]), **sampling)[0]
            expected[new] *= p[token] / p.sum()
            seen.append(token)
    options = {"generator": g, "draft": draft, "draft_tokens": 2, **sampling}
    made = [mytorch.models.generate(target, x, 3, **options)[0, 1:].tolist() for _ in range(n)]
    found = Counter(map(tuple, made))
    likely = [new for new in expected if expected[new] > 5]
    chi2 = sum((found[new] - expected[new]) ** 2 / expected[new] for new in likely)
    assert chi2 < len(likely) + 4 * (2 * len(likely)) ** 0.5
    assert all(expected[new] > 0 for new in found)


@pytest.mark.parametrize("ahead", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_draft_changes_no_greedy_text(any_model, ahead):
    draft = lively(GPT2(GPT2Config(vocab_size=31, context_length=40, num_layers=1, num_heads=1, embed_dim=6)))
    x = prompt(1, 7)
    expected = any_model.generate(x, 30, temperature=0)
    for model in (draft, any_model):  # one with wrong proposals and one with correct proposals
        assert (any_model.generate(x, 30, temperature=0, draft=model, draft_tokens=ahead) == expected).all()
    stop = int(expected[0, 15])
    stopped = any_model.generate(x, 30, temperature=0, draft=draft, stop=stop)
    assert (stopped == any_model.generate(x, 30, temperature=0, stop=stop)).all()
    with pytest.raises(ValueError, match=r"expected one sequence of at most 40 tokens, got 2 of 5 \+ 3"):
        any_model.generate(prompt(2), 3, draft=draft)


@pytest.mark.parametrize(("stop", "penalty"), [(None, 1.0), (2, 0.0), (2, 1.0)])
def test_a_beam_as_wide_as_everything_finds_the_likeliest(rng, stop, penalty):
    table = rng.standard_normal((4, 4)).astype("float32")
    logp = table - np.log(np.exp(table).sum(-1, keepdims=True))
    best = {}
    for new in itertools.product(range(4), repeat=3):
        cut = new[: new.index(stop) + 1] if stop in new else new
        best[cut] = sum(logp[a, b] for a, b in zip((0, *cut), cut, strict=False)) / len(cut) ** penalty
    found = beam_search(Table(table), mytorch.tensor([0]), 3, 64, penalty, stop)
    assert tuple(found.tolist()[1:]) == max(best, key=best.get)


@pytest.mark.cpu_only
def test_beams_are_those_of_transformers(torch, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = lively(Llama(vocab_size=31, context_length=40, num_layers=2, num_heads=2, embed_dim=16, num_kv_heads=1))
    model.save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    x = prompt(1, 5)
    start = torch.from_numpy(x.numpy())
    for eos in (None, 7):
        options = {"num_beams": 4, "max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": eos}
        expected = theirs.generate(start, attention_mask=torch.ones_like(start), **options)
        assert model.generate(x, 20, num_beams=4, stop=eos).tolist() == expected.tolist()
