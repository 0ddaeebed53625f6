"""Random numbers on the CPU and the final state of the generator equal PyTorch. Without a seed, each process differs."""

import struct
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch.kernels import threads
from mytorch.ops.random import standard_gamma
from tests.loops import loop

pytestmark = pytest.mark.cpu_only
NORMAL = slice(5024, 5032)  # position of the unused normal number in a state
SIZES = (1, 7, 16, 17, 100, 1001, 20011)
FLOATS = ("float32", "float64", "float16", "bfloat16")


def as_numpy(x):
    return (x.detach().double() if x.is_floating_point() else x.detach()).numpy()


def compare(torch, draw, rtol=1e-6, atol=1e-7):
    """Compares draw(library) in both libraries with equal seeds, twice, and the states of the generators."""
    for seed in (0, 3):
        found = []
        for lib in (torch, mytorch):
            lib.manual_seed(seed)
            found.append((as_numpy(draw(lib)), lib.get_rng_state().numpy()))
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=rtol, atol=atol)
        compare_states(found[1][1], found[0][1])


def compare_states(state, expected):
    """Compares two states byte by byte, but the unused normal number, a logarithm times a sine, up to its last bits."""
    np.testing.assert_allclose(state[NORMAL].view(np.float64), expected[NORMAL].view(np.float64), rtol=1e-14)
    np.testing.assert_array_equal(np.delete(state, NORMAL), np.delete(expected, NORMAL))


def spaced(lib, low, high, n, dtype="float32"):
    return lib.tensor(np.linspace(low, high, n).tolist(), dtype=getattr(lib, dtype))


IN_PLACE = {
    "uniform_": (-0.3, 2.1), "normal_": (1.5, 0.3), "bernoulli_": (0.3,), "exponential_": (1.7,), "geometric_": (0.2,),
    "cauchy_": (0.5, 2.0), "log_normal_": (0.5, 1.2), "random_": (),
}  # fmt: skip


@loop
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_fills_are_pytorchs(torch, name, dtype):
    rtol = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    for n in SIZES:
        compare(torch, lambda lib: getattr(lib.empty(n, dtype=getattr(lib, dtype)), name)(*IN_PLACE[name]), rtol)


@loop
@pytest.mark.parametrize("name", IN_PLACE)
def test_fills_of_transposed_and_sliced_tensors_go_by_memory(torch, name):
    compare(torch, lambda lib: getattr(lib.zeros(30, 7).t(), name)(*IN_PLACE[name]), 2e-6)
    compare(torch, lambda lib: getattr(lib.zeros(30, 7)[::3, 1:4], name)(*IN_PLACE[name]), 2e-6)


@loop
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64"])
def test_fills_of_whole_numbers_are_pytorchs(torch, dtype):
    for n in SIZES:
        compare(torch, lambda lib: lib.empty(n, dtype=getattr(lib, dtype)).random_(), 0, 0)
        compare(torch, lambda lib: lib.empty(n, dtype=getattr(lib, dtype)).bernoulli_(0.4), 0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_factories_are_pytorchs(torch, dtype):
    rtol = {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
    for n in SIZES:
        compare(torch, lambda lib: lib.rand(n, dtype=getattr(lib, dtype)), 0, 0)
        compare(torch, lambda lib: lib.randn(n, dtype=getattr(lib, dtype)), rtol)
        compare(torch, lambda lib: lib.randint(-3, 2**40, (n,)), 0, 0)
        compare(torch, lambda lib: lib.randperm(n), 0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_is_pytorchs(torch, dtype):
    for n in SIZES:
        compare(torch, lambda lib: lib.bernoulli(spaced(lib, 0, 1, n, dtype)), 0, 0)
        compare(torch, lambda lib: lib.bernoulli(lib.zeros(n, dtype=getattr(lib, dtype)), 0.7), 0, 0)
        compare(torch, lambda lib: lib.empty(n).bernoulli_(spaced(lib, 0, 1, n, dtype)), 0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_is_pytorchs(torch, dtype):
    for n in SIZES:
        for inplace in (False, True):
            compare(
                torch, lambda lib: lib.nn.functional.dropout(spaced(lib, -1, 1, n, dtype), 0.1, True, inplace), 0, 0
            )
    x = np.arange(360.0).reshape(4, 6, 5, 3).tolist()
    for change in (lambda x: x.transpose(1, 2), lambda x: x[:, ::2], lambda x: x[:, :1].expand(4, 6, 5, 3)):
        compare(torch, lambda lib: lib.nn.functional.dropout(change(lib.tensor(x)), 0.3), 0, 0)


@loop
@pytest.mark.parametrize(
    ("name", "shape"),
    [("dropout1d", (4, 6, 15)), ("dropout1d", (12, 30)), ("dropout2d", (4, 6, 15)), ("dropout2d", (4, 6, 5, 3)),
     ("dropout3d", (2, 6, 5, 3, 2)), ("dropout3d", (6, 5, 3, 2)), ("alpha_dropout", (12, 30)),
     ("feature_alpha_dropout", (4, 6, 5, 3))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:dropout2d")
def test_other_dropouts_are_pytorchs(torch, name, shape):
    n = int(np.prod(shape))
    compare(torch, lambda lib: getattr(lib.nn.functional, name)(spaced(lib, -1, 1, n).reshape(shape), 0.4, True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rrelu_and_gumbel_softmax_are_pytorchs(torch, dtype):
    for n in SIZES:
        compare(torch, lambda lib: lib.nn.functional.rrelu(spaced(lib, -1, 1, n, dtype), training=True))
        compare(torch, lambda lib: lib.nn.functional.gumbel_softmax(spaced(lib, -1, 1, n, dtype)), 2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multinomial_is_pytorchs(torch, dtype):
    for n in SIZES[1:-1]:  # sums of thousands of float32 weights are rounded in another order
        for count, replacement in ((1, False), (1, True), (n // 2 + 1, False), (50, True)):
            compare(
                torch, lambda lib: lib.multinomial(spaced(lib, 0.1, 1, n, dtype).expand(3, n), count, replacement), 0, 0
            )


@loop
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(37, 61), (5, 1024), (1026, 3), (2500, 1), (1, 2049), (3, 5)])
def test_multinomial_of_many_rows_and_draws_is_pytorchs(torch, dtype, shape):
    for layout in (
        "reshape(a, b)",
        "reshape(b, a).T",
        "reshape(1, -1)[:, :b].expand(a, b)",
        "repeat(2).reshape(a, -1)[:, ::2]",
    ):
        names = dict(zip("ab", shape, strict=True))

        def draw(lib, count, layout=layout, names=names):
            weights = spaced(lib, 0, 1, shape[0] * shape[1], dtype) + 0.1
            return lib.multinomial(eval(f"weights.{layout}", names, {"weights": weights}), count, True)

        compare(torch, lambda lib, draw=draw: draw(lib, 40), 0, 0)
        with mytorch.fused(False):
            compare(torch, lambda lib, draw=draw: draw(lib, 40), 0, 0)
        with threads.everything():
            compare(torch, lambda lib, draw=draw: draw(lib, 2), 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_poisson_gamma_and_binomial_are_pytorchs(torch, dtype):
    def gamma(lib, alpha):
        return mytorch.Tensor._wrap(standard_gamma(alpha)) if lib is mytorch else torch._standard_gamma(alpha)

    for n in SIZES:
        for low, high in ((0.05, 1), (0.1, 5), (8, 40), (900, 1e5)):
            compare(torch, lambda lib: lib.poisson(spaced(lib, low, high, n, dtype)), 0, 0)
            compare(torch, lambda lib: gamma(lib, spaced(lib, low, high, n, dtype)))
        for count in (1.0, 30.0, 500.0):
            compare(
                torch,
                lambda lib: lib.binomial(
                    lib.full((n,), count, dtype=getattr(lib, dtype)), spaced(lib, 0, 1, n, dtype)
                ),
                0, 0,
            )  # fmt: skip


def test_compiled_loops_draw_the_same(torch):
    pytest.importorskip("numba")
    n = 1 << 15
    compare(torch, lambda lib: lib.poisson(spaced(lib, 0.1, 30, n)), 0, 0)
    compare(torch, lambda lib: lib.binomial(lib.full((n,), 40.0), spaced(lib, 0.01, 0.99, n)), 0, 0)


@pytest.mark.parametrize("name", ["xavier_uniform_", "kaiming_normal_", "trunc_normal_", "orthogonal_"])
def test_initial_weights_are_pytorchs(torch, name):
    compare(torch, lambda lib: getattr(lib.nn.init, name)(lib.empty(30, 20)), 1e-4, 1e-5)


FAMILIES = {
    "Gamma": ([0.5, 2.0, 3.0], [1.0, 3.0, 2.0]), "Dirichlet": ([0.5, 2.0, 3.0],), "Poisson": ([0.5, 20.0, 3.0],),
    "Beta": ([0.5, 2.0, 3.0], [1.0, 3.0, 2.0]), "Bernoulli": ([0.5, 0.2, 0.3],), "Categorical": ([0.5, 0.2, 0.3],),
    "Binomial": ([10.0, 40.0, 90.0], [0.5, 0.2, 0.9]), "Exponential": ([0.5, 2.0, 3.0],), "Chi2": ([0.5, 2.0, 3.0],),
    "StudentT": ([0.5, 2.0, 3.0],), "NegativeBinomial": ([5.0, 2.0, 3.0], [0.5, 0.2, 0.3]),
}  # fmt: skip


@loop
@pytest.mark.parametrize("name", FAMILIES)
def test_distributions_draw_pytorchs_numbers(torch, name):
    def draw(lib):
        return getattr(lib.distributions, name)(*map(lib.tensor, FAMILIES[name])).sample((5,))

    compare(torch, draw, 1e-5, 1e-6)


def test_training_with_dropout_gives_pytorchs_losses(torch):
    """Weights, batches and dropout are drawn from one seed; nothing is copied."""

    def losses(lib):
        nn, F = lib.nn, lib.nn.functional
        lib.manual_seed(0)
        model = nn.Sequential(
            nn.Embedding(11, 16), nn.Dropout(0.1),
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True),
            nn.Linear(16, 11),
        )  # fmt: skip
        optimizer = lib.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for _ in range(20):
            tokens = lib.randint(0, 11, (8, 7))
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses(mytorch), losses(torch), rtol=2e-4)


# -- seeds --------------------------------------------------------------------------------------------------------


def test_without_a_seed_every_process_draws_other_numbers():
    program = (
        "import mytorch; print(mytorch.initial_seed(), mytorch.randn(3).tolist(), mytorch.Generator().initial_seed())"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout for _ in "ab"
    )
    assert first != second
    assert (
        first.split()[-1] == second.split()[-1] == "67280421310721"
    )  # a new Generator has the same seed as in PyTorch


def test_seed_resets_and_returns_the_initial_seed():
    first = mytorch.seed()
    x = mytorch.rand(4)
    assert first == mytorch.initial_seed()
    assert mytorch.seed() != first
    mytorch.manual_seed(first)
    assert mytorch.equal(mytorch.rand(4), x)


PARAMETERS = {
    "uniform_": (1.5, 2.0), "normal_": (1.5, 2.0), "exponential_": (2.0,), "cauchy_": (2.0, 0.5), "log_normal_": (1.0, 0.5),
    "geometric_": (0.3,), "bernoulli_": (0.4,), "random_": (2, 9),
}  # fmt: skip


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_may_be_tensors_with_one_number(name, dtype):
    torch = pytest.importorskip("torch")
    results = []
    for library in (torch, mytorch):
        library.manual_seed(5)
        x = library.zeros(3, 5, dtype=getattr(library, dtype))
        parameters = [library.tensor(p) for p in PARAMETERS[name]]
        results.append(getattr(x, name)(*parameters).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


def mixed(lib, rng, n):
    """Makes one of many draws of about n numbers. Odd counts leave a normal number or half a word pair unused."""
    draws = [
        lambda: lib.rand(n),
        lambda: lib.rand(n, dtype=lib.float64),
        lambda: lib.randn(n),
        lambda: lib.randn(n, dtype=lib.float64),
        lambda: lib.randn(n, dtype=lib.bfloat16),
        lambda: lib.randint(10, (n,)),
        lambda: lib.randperm(n),
        lambda: lib.empty(n).normal_(),
        lambda: lib.empty(n).exponential_(),
        lambda: lib.empty(n).geometric_(0.3),
        lambda: lib.normal(lib.zeros(n), lib.ones(n)),
        lambda: lib.nn.functional.dropout(lib.ones(n)),
        lambda: lib.bernoulli(lib.full((n,), 0.4)),
        lambda: lib.poisson(lib.full((n,), 3.0)),
        lambda: lib.multinomial(lib.ones(n), 3, replacement=True),
        lambda: lib.nn.init.trunc_normal_(lib.empty(n)),
        lambda: lib.nn.init.kaiming_uniform_(lib.empty(n, 2)),
        lambda: lib.distributions.Gamma(lib.ones(n), lib.ones(n)).sample(),
        lambda: lib.distributions.Binomial(20, lib.full((n,), 0.3)).sample(),
        lambda: lib.empty(n, dtype=lib.complex64).normal_(),
    ]
    return draws[rng.randint(len(draws))]()


@pytest.mark.parametrize("seed", range(4))
def test_states_equal_pytorchs_after_any_mix_of_draws(torch, seed):
    rng = np.random.RandomState(seed)
    number = [0, 2**40 + 7, -1, 5489][seed]
    torch.manual_seed(number)
    mytorch.manual_seed(number)
    for _ in range(150):
        n, choice = [1, 2, 3, 15, 16, 17, 101, 623, 624, 625][rng.randint(10)], rng.randint(1 << 30)
        compare_states(mytorch.get_rng_state().numpy(), torch.get_rng_state().numpy())
        for lib in (torch, mytorch):
            mixed(lib, np.random.RandomState(choice), n)


@pytest.mark.parametrize("used", [0, 1, 2, 623, 624, 625, 1247, 1248])
def test_states_are_exchanged_with_pytorch_at_every_position(torch, used):
    for normals in (0, 1, 2, 3):
        torch.manual_seed(7)
        torch.rand(used)
        torch.randn(normals)
        state = torch.get_rng_state()
        mytorch.set_rng_state(mytorch.from_numpy(state.numpy()))
        assert mytorch.get_rng_state().tolist() == state.tolist()
        assert mytorch.initial_seed() == 7
        np.testing.assert_allclose(mytorch.randn(3).numpy(), torch.randn(3).numpy(), rtol=1e-6)
        other = torch.Generator()
        other.set_state(torch.from_numpy(mytorch.get_rng_state().numpy()))
        np.testing.assert_array_equal(mytorch.rand(700).numpy(), torch.rand(700, generator=other).numpy())


def test_states_of_earlier_versions_are_accepted():
    generator = mytorch.Generator().manual_seed(5)
    x = mytorch.randn(701, generator=generator)
    _, key, position, _, _ = generator._source.get_state()
    for spare in (float("nan"), 0.25):
        old = np.frombuffer(struct.pack("<Qqd", 5, position, spare) + key.astype("<u4").tobytes(), np.uint8)
        other = mytorch.Generator().set_state(mytorch.from_numpy(old.copy()))
        assert other.initial_seed() == 5
        assert spare != spare or mytorch.randn(1, generator=other).item() == 0.25
        assert mytorch.equal(mytorch.rand(9, generator=other), mytorch.rand(9, generator=generator.clone_state()))
    assert x.shape == (701,)


def test_states_that_no_generator_has_are_errors(torch):
    def changed(name, value):
        state = mytorch.get_rng_state().numpy().copy()
        state.view(mytorch.ops.random._CPU_STATE)[name] = value
        return mytorch.from_numpy(state)

    mytorch.manual_seed(1)
    mytorch.rand(10)
    before = mytorch.get_rng_state()
    hostile = [
        ("left", 0),
        ("left", -5),
        ("left", 626),
        ("next", 625),
        ("next", 2**63),
        ("next", 3),
        ("seeded", 0),
        ("words", 2**32),
    ]
    for state in (*[changed(*change) for change in hostile], mytorch.zeros(5056, dtype=mytorch.uint8)):
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            mytorch.set_rng_state(state)
    for position, spare in ((0, 0.0), (625, 0.0), (-1, 0.0), (5, float("inf"))):
        old = np.frombuffer(struct.pack("<Qqd", 5, position, spare) + bytes(2496), np.uint8)
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            mytorch.set_rng_state(mytorch.from_numpy(old.copy()))
    mytorch.randn(1)
    for value in (float("nan"), float("inf")):
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            mytorch.set_rng_state(changed("normal_y", value))
    mytorch.set_rng_state(before)
    for build in (lambda lib: lib.zeros(5056), lambda lib: lib.zeros(10, dtype=lib.uint8), lambda lib: lib.zeros(5055, dtype=lib.uint8),
                  lambda lib: [1, 2], lambda lib: None):  # fmt: skip
        texts = []
        for lib in (torch, mytorch):
            with pytest.raises((TypeError, RuntimeError)) as caught:
                lib.set_rng_state(build(lib))
            texts.append((caught.type, str(caught.value)))
        assert texts[0] == texts[1]
    assert mytorch.get_rng_state().tolist() == before.tolist()


@pytest.mark.parametrize("fused", [None, False])
def test_words_are_those_of_numpy_for_any_number_of_draws(fused):
    # Large draws are made by a compiled loop, which changes NumPy's state in memory, and small ones by NumPy.
    generator, source = mytorch.Generator().manual_seed(7), np.random.RandomState(7)
    with mytorch.fused(fused):
        for n in (3, 9000, 1, 8191, 624 * 20, 623, 20001, 625, 1 << 16, 300):
            np.testing.assert_array_equal(generator.words(n), source.randint(0, 1 << 32, size=n, dtype=np.uint32))
            _, key, position, *_ = generator._source.get_state()
            np.testing.assert_array_equal(key, source.get_state()[1])
            assert position == source.get_state()[2]


@pytest.mark.parametrize("size", [0, 3, 7])
def test_randperm_resizes_its_output_without_a_warning(size, torch):
    for lib in (torch, mytorch):
        out = lib.empty(size, dtype=lib.int64)
        assert lib.randperm(5, out=out) is out
        assert sorted(out.tolist()) == [0, 1, 2, 3, 4]
