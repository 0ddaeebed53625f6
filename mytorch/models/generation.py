"""Text generation: sampling, beam search, and speculative decoding with a smaller model.

`model` is any causal language model that converts integers (B, T) to logits. With `cache=` and `last_only=True` it
returns logits (B, 1, V). It has `new_cache`, `config.context_length`, `train` and `eval`. Text input requires its
`tokenizer`.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ..arrays import on, xp_of
from ..arrays.array import on_input_device
from ..arrays.dtypes import int64
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..nn import Module
from ..ops.creation import tensor
from ..ops.random import Generator, multinomial, rand


def distribution(
    logits: Tensor, seen: Any = None, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
    min_p: float | None = None, repetition_penalty: float = 1.0, vocab_size: int | None = None,
) -> Any:  # fmt: skip
    """Return the probabilities of the next token, a raw float32 array (B, V); see `pick` for the arguments."""
    raw = logits._mt_data._array
    xp = xp_of(raw)
    scores = raw[:, :vocab_size].astype("float32")  # a copy; half precision is too coarse for sums
    if repetition_penalty != 1.0 and seen is not None:
        rows = xp.arange(scores.shape[0])[:, None]
        of_seen = scores[rows, seen]
        scores[rows, seen] = xp.where(of_seen > 0, of_seen / repetition_penalty, of_seen * repetition_penalty)
    size = scores.shape[-1]
    if temperature == 0:
        return (xp.arange(size) == scores.argmax(axis=-1)[:, None]).astype("float32")
    if temperature != 1.0:
        scores /= temperature
    if top_k is not None and top_k < size:
        floor = xp.partition(scores, size - top_k, axis=-1)[:, size - top_k, None]
        scores[scores < floor] = -xp.inf
    scores -= scores.max(axis=-1, keepdims=True)
    p = xp.exp(scores, out=scores)
    p /= p.sum(axis=-1, keepdims=True)
    if top_p is not None and top_p < 1.0:
        ordered = xp.sort(p, axis=-1)[:, ::-1]
        before = xp.cumsum(ordered, axis=-1) - ordered  # sum of more likely tokens; 0 for the first, which remains
        kept = xp.where(before < top_p, ordered, xp.inf).min(axis=-1, keepdims=True)
        p[p < kept] = 0
    if min_p is not None:
        p[p < min_p * p.max(axis=-1, keepdims=True)] = 0
    return p


@on_input_device
def pick(
    logits: Tensor, seen=None, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
    repetition_penalty: float = 1.0, generator: Generator | None = None, vocab_size: int | None = None,
    min_p: float | None = None,
) -> Tensor:  # fmt: skip
    """Draws the next token of each row of `logits` (B, V), or the most likely one at temperature 0: int64 (B,).

    Args:
        logits: scores of the next token.
        seen: raw integers (B, T), tokens that `repetition_penalty` affects.
        temperature: divisor of the logits; lower is more deterministic, 0 is greedy.
        top_k: keep the k most likely tokens.
        top_p: keep the most likely tokens whose probabilities add up to top_p.
        min_p: keep tokens with a probability of at least min_p times the maximum.
        repetition_penalty: positive logits of seen tokens are divided by it, negative ones are multiplied.
        generator: source of random numbers (default: the global generator).
        vocab_size: number of valid tokens; later logits are padding.

    Source: top_p: Holtzman et al., 2020; min_p: Nguyen et al., 2024; penalty: Keskar et al., CTRL, 2019.
    """
    p = distribution(logits, seen, temperature, top_k, top_p, min_p, repetition_penalty, vocab_size)
    if temperature == 0:
        return Tensor._wrap(p.argmax(axis=-1).astype("int64"))
    return multinomial(Tensor._wrap(p), 1, generator=generator).reshape(-1)


def _check(
    max_new_tokens, temperature=1.0, top_k=None, top_p=None, repetition_penalty=1.0, min_p=None, vocab_size=None
):
    for name, value, holds, expected in (
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 0, "0 or more"),
        ("temperature", temperature, temperature >= 0, "0 (greedy) or more"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1, or None for all tokens"),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1, "a number above 0 and at most 1"),
        ("min_p", min_p, min_p is None or 0 <= min_p <= 1, "a number from 0 to 1"),
        ("repetition_penalty", repetition_penalty, repetition_penalty > 0, "a positive number"),
    ):
        if not holds:
            raise ValueError(f"generate: expected {name} to be {expected}, got {value}.")


class Stop:
    """The end of a text: stop tokens, and stop strings, which the tokenizer detects."""

    def __init__(self, stop: Any, tokenizer: Any):
        given = [] if stop is None else [stop] if isinstance(stop, (int, str)) else list(stop)
        self.tokens = [s for s in given if not isinstance(s, str)]
        self.strings, self.tokenizer = [s for s in given if isinstance(s, str)], tokenizer
        if self.strings and tokenizer is None:
            raise ValueError(f"generate: stop string {self.strings[0]!r} requires a tokenizer. Set model.tokenizer.")
        self.reach = max((len(s.encode()) for s in self.strings), default=0)  # a token has at least one byte

    def __bool__(self):
        return bool(self.tokens or self.strings)

    def reached(self, xp: Any, made: Any) -> Any:
        """Check if the last of the tokens `made`, raw (B, n), ends each row: raw bool (B,)."""
        ends = xp.isin(made[:, -1], xp.asarray(self.tokens or [-1]))
        if self.strings:
            texts = [self.tokenizer.decode(row) for row in made[:, -self.reach :].tolist()]
            ends = ends | xp.asarray([any(s in text for s in self.strings) for text in texts])
        return ends

    def trim(self, made: list[int]) -> list[int]:
        """Return the tokens before the first stop."""
        return made[: min((made.index(t) for t in self.tokens if t in made), default=len(made))]

    def cut(self, text: str) -> str:
        """Return the text before the first stop string."""
        return text[: min((text.index(s) for s in self.strings if s in text), default=len(text))]


def _prompt(model, input):
    """Convert the input of `generate` to (tokens (B, T), number of padding tokens before each row (B,) or None)."""
    if isinstance(input, Tensor):
        prompt, padding = (input if input.ndim == 2 else input.reshape(1, -1)).to(int64), None
    else:
        rows = [row.tolist() if isinstance(row, Tensor) else list(row) for row in input]
        T = max(map(len, rows), default=0)
        prompt = tensor(
            [[0] * (T - len(row)) + row for row in rows], dtype=int64, device=getattr(model, "device", None)
        )
        padding = [T - len(row) for row in rows]
        if rows and T in padding:
            raise ValueError(
                "generate: expected at least one token, got an empty input. Pass a line break, for example."
            )
        padding = tensor(padding, device=prompt.device) if any(padding) else None
    if prompt.numel() == 0:
        raise ValueError("generate: expected at least one token, got an empty input. Pass a line break, for example.")
    return prompt, padding


def _lasting(model):
    """Return the number of positions that keep valid cached keys."""
    return getattr(model.config, "lasting", model.config.context_length)


class Decoding:
    """The tokens of all rows and the logits of the next token.

    Attributes:
        tokens: raw integers (B, most); the first n are valid.
    """

    def __init__(self, model, prompt, padding, count, use_cache, sliding=True):
        self.model, self.padding = model, padding
        B, self.n = prompt.shape
        self.xp, self.there = on(prompt.device)
        with self.there:
            self.tokens = self.xp.empty((B, self.n + count), "int64")
            self.tokens[:, : self.n] = prompt._mt_data._array
        self.context, self.lasting = model.config.context_length, _lasting(model)
        needs = use_cache or padding is not None
        self.cache = (
            model.new_cache(B, min(self.n + count, self.context), **({} if sliding else {"sliding": False}))
            if needs
            else None
        )
        self.keeps = use_cache

    def logits(self, last_only=True):
        """Return logits (B, 1, V) after the n tokens, or (B, T, V) after each uncached token with last_only=False."""
        dropped, cache = max(0, self.n - self.context), self.cache
        if cache is not None and (dropped or self.n > self.lasting or not self.keeps):
            cache.reset()  # positions have shifted
        first = dropped if cache is None else dropped + cache.length
        if self.padding is not None:
            cache.padding = (self.padding - dropped).clamp(min=0)
        elif dropped:
            cache = None
        given = Tensor._wrap(self.tokens[:, first : self.n])
        return self.model(given, last_only=last_only, **({} if cache is None else {"cache": cache}))

    def add(self, new):
        """Append the next token of each row."""
        self.tokens[:, self.n] = new
        self.n += 1


def _sampled(run, count, generator, sampling, stop):
    """Yield the next token of each row, raw (B,), until all rows have stopped."""
    xp, start, ended = run.xp, run.n, False
    with run.there:
        done = xp.zeros(len(run.tokens), bool)
    for _ in range(count):
        with run.there:
            new = pick(run.logits()[:, -1], run.tokens[:, : run.n], generator=generator, **sampling)._mt_data._array
            if stop:
                new = xp.where(done, run.tokens[:, run.n - 1], new)
            run.add(new)
            if stop:
                done |= stop.reached(xp, run.tokens[:, start : run.n])
                ended = bool(done.all())
        yield new
        if ended:
            return


def _speculated(run, draft, count, ahead, generator, sampling, stop):
    """Like `_sampled`, for one row: `draft` proposes `ahead` tokens, and the model evaluates all in one pass.

    A token that the draft drew with probability q is kept with probability min(1, p / q). The first rejected token is
    drawn again from the normalized max(p - q, 0). Each token therefore has the model's distribution p, for any draft.

    Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023.
    """
    xp, start, end = run.xp, run.n, run.n + count
    while run.n < end:
        with run.there:
            base, proposed = run.n, []
            draft.n = base
            draft.tokens[:, :base] = run.tokens[:, :base]
            for _ in range(min(ahead, end - base - 1)):
                q = distribution(draft.logits()[:, -1], draft.tokens[:, : draft.n], **sampling)
                new = multinomial(Tensor._wrap(q), 1, generator=generator).reshape(-1)._mt_data._array
                draft.add(new)
                proposed.append((new, q))
            run.tokens[:, base : draft.n] = draft.tokens[:, base : draft.n]
            run.n = draft.n
            first = run.cache.length
            logits = run.logits(last_only=False)
            fresh = []
            for i in range(len(proposed) + 1):
                p = distribution(logits[:, base - 1 - first + i], run.tokens[:, : base + i], **sampling)
                if i < len(proposed):
                    token, q = proposed[i]
                    at = int(token[0])
                    if float(rand(1, generator=generator, device=logits.device)) * float(q[0, at]) < float(
                        p[0, at]
                    ) / float(p.sum()) * float(q.sum()):
                        fresh.append(token)
                        continue
                    p = xp.maximum(p / p.sum() - q / q.sum(), 0)
                fresh.append(multinomial(Tensor._wrap(p), 1, generator=generator).reshape(-1)._mt_data._array)
                break
            run.n = base
        for token in fresh:
            with run.there:
                run.add(token)
                ended = bool(stop) and bool(stop.reached(xp, run.tokens[:, start : run.n]).all())
            yield token
            if ended:
                return
        run.cache.rewind(run.n - 1)
        draft.cache.rewind(min(draft.cache.length, run.n - 1))


@no_grad()
def stream(
    model: Module, input: Any, max_new_tokens: int, *, stop: int | str | Iterable[int | str] | None = None,
    seed: int | None = None, use_cache: bool = True, draft: Module | None = None, draft_tokens: int = 4,
    generator: Generator | None = None, **sampling: Any,
) -> Iterator[Any]:  # fmt: skip
    """Yields the next token of each sequence, int64 (B,), as it is generated; for a text, yields pieces of text.

    Beyond the model's context, the oldest tokens are dropped, as in nanoGPT. Positions then shift, so the cache cannot be
    used, and each token takes a full forward pass.

    Args:
        model: language model; see the module's docstring. It is in evaluation mode while the generator is open.
        input: integers (B, T) or (T,) with at least one token, a list of rows of any lengths, or a text.
        max_new_tokens: maximum number of new tokens.
        stop: a token, a string, or several. A stopped sequence repeats its last token until all have stopped. A text ends
            before a stop string.
        seed: seed of a new generator, for repeatable results.
        use_cache: keep keys and values of earlier positions.
        draft: smaller model with the same tokens for speculative decoding. It proposes `draft_tokens` tokens, which the
            model evaluates in one pass. The distribution of the text does not change. Requires one sequence that
            fits both contexts.
        draft_tokens: number of tokens that the draft proposes at a time.
        generator: source of random numbers, instead of `seed`.
        **sampling: temperature, top_k, top_p, min_p, repetition_penalty and vocab_size; see `pick`.

    Raises:
        ValueError: if an option is out of range or the input is empty.
    """
    _check(max_new_tokens, **sampling)
    if isinstance(input, str):
        yield from pieces(model, _tokenizer(model).encode(input), max_new_tokens, stop, seed=seed, use_cache=use_cache, draft=draft,
                           draft_tokens=draft_tokens, generator=generator, **sampling)  # fmt: skip
        return
    prompt, padding = _prompt(model, input)
    if seed is not None and generator is None:
        generator = Generator(prompt.device).manual_seed(seed)
    ends = Stop(stop, getattr(model, "tokenizer", None))
    if draft is not None:
        longest = min(_lasting(m) for m in (model, draft))
        if len(prompt) != 1 or prompt.shape[1] + max_new_tokens > longest:
            raise ValueError(
                f"generate: with a draft, expected one sequence of at most {longest} tokens, got {len(prompt)} of "
                f"{prompt.shape[1]} + {max_new_tokens}."
            )
    models = [m for m in (model, draft) if m is not None]
    were_training = [m.training for m in models]
    runs = [Decoding(m, prompt, padding, max_new_tokens, use_cache or draft is not None, draft is None) for m in models]
    for m in models:
        m.eval()
    try:
        if draft is None:
            steps = _sampled(runs[0], max_new_tokens, generator, sampling, ends)
        else:
            steps = _speculated(runs[0], runs[1], max_new_tokens, draft_tokens, generator, sampling, ends)
        for new in steps:
            yield Tensor._wrap(new)
    finally:
        for m, was in zip(models, were_training, strict=True):
            m.train(was)


def _tokenizer(model):
    if getattr(model, "tokenizer", None) is None:
        raise ValueError("generate: text input requires a tokenizer. Set model.tokenizer, or pass tokens.")
    return model.tokenizer


def pieces(model: Module, tokens: list[int], max_new_tokens: int, stop: Any = None, **options: Any) -> Iterator[str]:
    """Yields pieces of the text that continues tokens: complete characters, and nothing that may begin a stop string.

    Args:
        model: model with a tokenizer.
        tokens: tokens to continue.
        max_new_tokens: maximum number of new tokens.
        stop: see `stream`.
        **options: see `stream`.
    """
    tokenizer, made, shown = _tokenizer(model), [], 0
    ends = Stop(stop, tokenizer)
    held = max((len(s) - 1 for s in ends.strings), default=0)
    for token in stream(model, [tokens], max_new_tokens, stop=stop, **options):
        if int(token) in ends.tokens:
            break
        made.append(int(token))
        whole = tokenizer.decode(made)
        text = ends.cut(whole)
        sure = len(text) - (held if text == whole else 0)
        if text.endswith("\ufffd"):  # an incomplete UTF-8 character
            sure = min(sure, len(text) - 1)
        if sure > shown:
            yield text[shown:sure]
            shown = sure
    if made and len(text := ends.cut(tokenizer.decode(made))) > shown:
        yield text[shown:]


@no_grad()
def beam_search(
    model: Module, input: Tensor, max_new_tokens: int, num_beams: int, length_penalty: float = 1.0, stop: Any = None,
    vocab_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Searches for the most likely continuation of tokens (T,) with `num_beams` candidates: int64 (T + new,).

    Args:
        model: language model; see the module's docstring.
        input: tokens to continue.
        max_new_tokens: maximum number of new tokens.
        num_beams: number of candidates.
        length_penalty: candidates are ranked by the sum of log-probabilities divided by length ** length_penalty.
        stop: tokens or strings that end a continuation.
        vocab_size: see `pick`.
    """
    ends, was_training = Stop(stop, getattr(model, "tokenizer", None)), model.training
    prompt = input.reshape(1, -1).to(int64).expand(num_beams, -1)
    run = Decoding(model.eval(), prompt, None, max_new_tokens, True, sliding=False)
    xp, start, finished = run.xp, run.n, []  # (score, tokens)
    with run.there:
        sums = xp.full(num_beams, -xp.inf, "float32")
        sums[0] = 0.0  # all beams are equal at first
        for made in range(1, max_new_tokens + 1):
            logits = run.logits()[:, -1]._mt_data._array[:, :vocab_size].astype("float32")
            logits -= logits.max(-1, keepdims=True)
            scores = (sums[:, None] + logits - xp.log(xp.exp(logits).sum(-1, keepdims=True))).reshape(-1)
            best = xp.argsort(-scores, kind="stable")[: 2 * num_beams]
            rows, new = best // logits.shape[-1], best % logits.shape[-1]
            whole = xp.concatenate([run.tokens[rows, : run.n], new[:, None]], axis=1)
            over = ends.reached(xp, whole[:, start:]) if ends else xp.zeros(len(best), bool)
            for i in range(min(num_beams, len(best))):
                if over[i] and scores[best[i]] > -math.inf:
                    finished.append((float(scores[best[i]]) / made**length_penalty, whole[i]))
            finished = sorted(finished, key=lambda pair: -pair[0])[:num_beams]
            going = xp.argsort(xp.where(over, xp.inf, -scores[best]), kind="stable")[:num_beams]
            sums = xp.where(over[going], -xp.inf, scores[best[going]])
            if len(finished) == num_beams and finished[-1][0] >= float(sums[0]) / made**length_penalty:
                break
            run.cache.reorder(Tensor._wrap(rows[going]))
            run.tokens[:, : run.n] = run.tokens[rows[going], : run.n]
            run.add(new[going])
        else:
            for total, row in zip(sums.tolist(), run.tokens, strict=True):
                if total > -math.inf:
                    finished.append((total / max(1, max_new_tokens) ** length_penalty, row))
    model.train(was_training)
    _, tokens = max(finished, key=lambda pair: pair[0])
    return Tensor._wrap(xp.ascontiguousarray(tokens))


def generate(
    model: Module, input: Any, max_new_tokens: int, *, num_beams: int = 1, length_penalty: float = 1.0, **options: Any
) -> Any:
    """Generates a continuation of the input and returns both, int64 (B, T + new).

    Args:
        model: language model that converts (B, T) to logits (B, T, V).
        input: int64 (B, T) or (T,), a list of rows of any lengths, a text, or a list of texts. The result has the same form.
            Text requires `model.tokenizer`.
        max_new_tokens: maximum number of new tokens.
        num_beams: above 1, use `beam_search` with this number of candidates and its options.
        length_penalty: see `beam_search`.
        **options: see `stream`.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=8)
        >>> mytorch.models.generate(model, tensor([[1, 2]]), 3, temperature=0).shape
        mytorch.Size([1, 5])
    """
    if isinstance(input, str):
        return generate(model, [input], max_new_tokens, num_beams=num_beams, length_penalty=length_penalty, **options)[
            0
        ]
    if not isinstance(input, Tensor) and len(input) and isinstance(input[0], str):
        tokenizer = _tokenizer(model)
        rows = [tokenizer.encode(text) for text in input]
        made = generate(model, rows, max_new_tokens, num_beams=num_beams, length_penalty=length_penalty, **options)
        ends = Stop(options.get("stop"), tokenizer)
        new = [ends.trim(m[len(r) :].tolist()) for r, m in zip(rows, made, strict=True)]
        return [text + ends.cut(tokenizer.decode(tokens)) for text, tokens in zip(input, new, strict=True)]
    prompt, padding = _prompt(model, input)
    if num_beams > 1:
        empty = [0] * len(prompt) if padding is None else padding.tolist()
        found = [
            beam_search(model, row[n:], max_new_tokens, num_beams, length_penalty, **options)
            for row, n in zip(prompt, empty, strict=True)
        ]
        same = isinstance(input, Tensor) and len({len(row) for row in found}) == 1
        return (
            Tensor._wrap(xp_of(found[0]._mt_data._array).stack([row._mt_data._array for row in found]))
            if same
            else found
        )
    xp, there = on(prompt.device)
    with there:
        columns = [prompt._mt_data._array]
        columns += [new._mt_data._array[:, None] for new in stream(model, input, max_new_tokens, **options)]
        whole = Tensor._wrap(xp.concatenate(columns, axis=1))
    if isinstance(input, Tensor):
        return whole
    return list(whole) if padding is None else [row[n:] for row, n in zip(whole, padding.tolist(), strict=True)]
