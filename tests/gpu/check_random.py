"""Random numbers on a GPU: states, seeds, distributions. `test_checks.py` runs this file over the fake CuPy."""

import struct

import numpy as np
import pytest

import mytorch
from mytorch import cuda
from mytorch.ops.random import generator_for

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="needs a GPU, or the fake")
DRAWS = {
    "rand": lambda **k: mytorch.rand(7, 3, **k),
    "rand64": lambda **k: mytorch.rand(7, dtype=mytorch.float64, **k),
    "half": lambda **k: mytorch.rand(7, dtype=mytorch.float16, **k),
    "bfloat16": lambda **k: mytorch.randn(7, dtype=mytorch.bfloat16, **k),
    "randn": lambda **k: mytorch.randn(5, 5, **k),
    "complex": lambda **k: mytorch.randn(5, dtype=mytorch.complex64, **k),
    "randint": lambda **k: mytorch.randint(-3, 1000, (11,), **k),
    "randperm": lambda **k: mytorch.randperm(20, **k),
    "bernoulli": lambda **k: mytorch.full((30,), 0.5, **_device(k)).bernoulli(**_generator(k)),
    "exponential": lambda **k: mytorch.empty(9, **_device(k)).exponential_(**_generator(k)),
    "random": lambda **k: mytorch.empty(9, dtype=mytorch.int32, **_device(k)).random_(**_generator(k)),
    "normal": lambda **k: mytorch.normal(mytorch.arange(9.0, **_device(k)), 2.0, **_generator(k)),
    "multinomial": lambda **k: mytorch.ones(4, 30, **_device(k)).multinomial(20, **_generator(k)),
    "poisson": lambda **k: mytorch.poisson(mytorch.full((40,), 5.0, **_device(k)), **_generator(k)),
    "binomial": lambda **k: mytorch.binomial(
        mytorch.full((40,), 9.0, **_device(k)), mytorch.full((40,), 0.4, **_device(k)), **_generator(k)
    ),
}


def _device(k):
    return {"device": k["device"]}


def _generator(k):
    return {"generator": k["generator"]} if "generator" in k else {}


def draw(name, generator=None):
    k = {"device": "cuda"} if generator is None else {"device": "cuda", "generator": generator}
    out = DRAWS[name](**k)
    assert out.is_cuda
    return out.float().cpu().numpy() if out.dtype is mytorch.bfloat16 else out.cpu().numpy()


@pytest.mark.parametrize("name", DRAWS)
def test_states_bring_a_draw_back(name):
    own = mytorch.Generator("cuda").manual_seed(5)
    for given in (None, own):
        target = generator_for(mytorch.device("cuda", 0), given)
        draw("rand", given)
        state = target.get_state()
        assert state.device.type == "cpu"
        assert state.dtype is mytorch.uint8
        first, second = draw(name, given), draw(name, given)
        assert (first != second).any()
        twin = target.clone_state()
        target.set_state(state)
        assert (draw(name, given) == first).all()
        assert (draw(name, given) == second).all()
        third = draw(name, given)
        assert (draw(name, twin) == third).all()
        assert (draw(name, twin) == draw(name, given)).all()


@pytest.mark.parametrize("name", DRAWS)
def test_equal_seeds_draw_equal_numbers(name):
    mytorch.manual_seed(11)
    first = draw(name)
    mytorch.manual_seed(12)
    assert (draw(name) != first).any()
    cuda.manual_seed(11)
    assert (draw(name) == first).all()
    cuda.manual_seed_all(11)
    assert (draw(name) == first).all()
    assert (draw(name, mytorch.Generator("cuda").manual_seed(11)) == first).all()


def test_seeds_are_distinct_and_stored():
    generator = mytorch.Generator("cuda")
    assert generator.initial_seed() == 67280421310721
    seen = set()
    for seed in (0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 2, 2**63 - 1):
        generator.manual_seed(seed)
        assert generator.initial_seed() == seed % 2**64
        seen.add(draw("rand64", generator).tobytes())
    assert len(seen) == 8
    cuda.manual_seed(3)
    assert cuda.initial_seed() == 3
    cuda.seed()
    first = cuda.initial_seed()
    cuda.seed_all()
    assert len({3, first, cuda.initial_seed()}) == 3
    with pytest.raises(RuntimeError, match="24 bytes"):
        generator.set_state(mytorch.zeros(5, dtype=mytorch.uint8))
    before = generator.get_state().tolist()
    for offset, draws in ((-1, 0), (0, -1), (0, 1 << 31)):
        with pytest.raises(RuntimeError, match="set_state: expected an offset"):
            generator.set_state(state_of(struct.pack("<Qqq", 3, offset, draws)))
    assert generator.get_state().tolist() == before
    for seed in (3, 2**64 - 1):  # a state of PyTorch
        generator.set_state(state_of(struct.pack("<Qq", seed, 8)))
        assert generator.philox_state == (seed, 8, 0)
        first = draw("randn", generator)
        generator.set_state(state_of(struct.pack("<Qqq", seed, 8, 0)))
        assert (draw("randn", generator) == first).all()


def state_of(raw):
    return mytorch.from_numpy(np.frombuffer(raw, np.uint8).copy())


def test_functions_of_cuda_restore_states():
    mytorch.manual_seed(1)
    draw("rand")
    state, states = cuda.get_rng_state(), cuda.get_rng_state_all()
    assert len(states) == cuda.device_count()
    assert (states[0] == state).all()
    first = draw("randn")
    cuda.set_rng_state(state)
    assert (draw("randn") == first).all()
    cuda.set_rng_state_all(states)
    assert (draw("randn") == first).all()
    cuda.set_rng_state(state, device="cuda:0")
    assert (draw("randn") == first).all()


def test_fork_rng_puts_gpus_back():
    mytorch.manual_seed(1)
    with mytorch.random.fork_rng():
        first, host = draw("randn"), mytorch.rand(3).numpy()
        mytorch.manual_seed(99)
        draw("randn")
    assert (draw("randn") == first).all()
    assert (mytorch.rand(3).numpy() == host).all()
    with mytorch.random.fork_rng(devices=[]):
        kept = draw("randn")
    assert (draw("randn") != kept).any()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("reseed", [True, False])
def test_checkpointing_draws_the_same_again(reentrant, reseed):
    seen = []

    def noisy(x):
        noise = mytorch.randn(6, device="cuda")
        kept = mytorch.rand(6, device="cuda") < 0.5
        seen.append((noise * kept).cpu().numpy())
        return mytorch.nn.functional.dropout(x * noise * kept, 0.5)

    x = mytorch.ones(6, device="cuda", requires_grad=True)
    out = mytorch.utils.checkpoint.checkpoint(noisy, x, use_reentrant=reentrant)
    if reseed:
        mytorch.manual_seed(1234)
    after = generator_for(mytorch.device("cuda", 0)).get_state()
    out.sum().backward()
    assert len(seen) == 2
    assert (seen[0] == seen[1]).all()
    assert np.allclose(x.grad.cpu().numpy(), out.detach().cpu().numpy())
    assert (generator_for(mytorch.device("cuda", 0)).get_state() == after).all()


def test_vmap_with_the_same_randomness():
    out = mytorch.func.vmap(lambda x: x * 0 + mytorch.rand(3, device="cuda"), randomness="same")(
        mytorch.ones(4, 3, device="cuda")
    )
    assert (out == out[0]).all()


def test_the_accelerator_saves_and_restores_the_gpus_generators(tmp_path):
    from mytorch.accelerate import Accelerator

    accelerator = Accelerator()
    model = accelerator.prepare(mytorch.nn.Linear(2, 2))
    draw("randn")
    accelerator.save_state(tmp_path)
    first = draw("randn")
    mytorch.manual_seed(77)
    accelerator.load_state(tmp_path)
    assert (draw("randn") == first).all()
    assert model is not None


def test_advance_gives_fresh_numbers_in_the_same_memory():
    generator = mytorch.Generator("cuda").manual_seed(3)
    bits, call = generator.next_subsequence()
    state = generator.get_state()
    seen = set()
    for _ in range(4):
        generator._subsequence = call  # as in the replay of a captured graph
        seen.add(draw("rand", generator).tobytes())
        generator.advance()
    assert len(seen) == 4
    assert generator.next_subsequence()[0] is bits
    generator.set_state(state)
    assert generator.next_subsequence()[0] is bits
    assert bits.tolist() == [3, 0]
    generator.manual_seed(4)
    assert generator.next_subsequence()[0] is bits
    assert bits.tolist() == [4, 0]


def test_draws_beyond_the_counter_of_a_call_are_new():
    generator = mytorch.Generator("cuda").manual_seed(3)
    first = draw("rand", generator)
    generator._subsequence = 2**31 - 1
    at_the_end = draw("rand", generator)
    assert (draw("rand", generator) != first).any()
    assert (at_the_end != first).any()
    assert generator.philox_state == (3, 2**31, 1)


def test_while_a_graph_is_captured_a_state_must_be_there():
    from mytorch.arrays import capturing

    ready = mytorch.Generator("cuda").manual_seed(3)
    capturing.current = capturing.Capture(recording=True)
    try:
        ready.next_subsequence()
        assert capturing.current.generators == {ready}
        with pytest.raises(RuntimeError, match="draw from it once before"):
            mytorch.Generator("cuda")
        with pytest.raises(RuntimeError, match="the same numbers"):
            ready.library()
    finally:
        capturing.current = None


# -- distributions ----------------------------------------------------------------------------------------------------

N = 40000


def _chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


def test_uniform_numbers_are_spread_evenly():
    for dtype, kinds in ((mytorch.float32, 64), (mytorch.float64, 64), (mytorch.float16, 64), (mytorch.bfloat16, 64)):
        x = mytorch.rand(N, device="cuda", dtype=dtype).cpu().double().numpy()
        assert x.min() >= 0
        assert x.max() < 1
        assert (
            _chi_square(np.bincount((x * kinds).astype(int), minlength=kinds), N / kinds) < 120
        )  # 63 degrees: 1 in 10^5
    x = mytorch.empty(N, device="cuda").uniform_(-2, 3).cpu().numpy()
    assert -2 <= x.min() < x.max() < 3
    assert abs(x.mean() - 0.5) < 0.04


def test_normal_numbers_have_their_moments():
    for dtype in (mytorch.float32, mytorch.float64, mytorch.float16):
        x = mytorch.empty(N, device="cuda", dtype=dtype).normal_(0.5, 2.0).cpu().double().numpy()
        z = (x - 0.5) / 2
        assert abs(z.mean()) < 0.025
        assert abs(z.var() - 1) < 0.04
        assert abs((z**3).mean()) < 0.06
        assert abs((z**4).mean() - 3) < 0.15
        below = np.searchsorted(np.sort(z), [-1.2815516, 0.0, 1.2815516]) / N
        assert np.abs(below - [0.1, 0.5, 0.9]).max() < 0.012
    z = mytorch.randn(N, device="cuda", dtype=mytorch.complex64).cpu().numpy()
    assert abs((np.abs(z) ** 2).mean() - 1) < 0.03


def test_integers_are_equally_likely():
    x = mytorch.randint(-7, 43, (N,), device="cuda").cpu().numpy()
    assert x.dtype == np.int64
    assert _chi_square(np.bincount(x + 7, minlength=50), N / 50) < 100
    assert mytorch.randint(5, 6, (9,), device="cuda").cpu().tolist() == [5] * 9
    assert mytorch.randint(9, (0, 3), device="cuda").shape == (0, 3)
    order = mytorch.randperm(1000, device="cuda").cpu().numpy()
    assert (np.sort(order) == np.arange(1000)).all()
    firsts = [int(mytorch.randperm(4, device="cuda")[0]) for _ in range(200)]
    assert _chi_square(np.bincount(firsts, minlength=4), 50) < 25


def test_other_distributions_have_their_means():
    made = lambda: mytorch.empty(N, device="cuda")  # noqa: E731
    assert abs(float(made().exponential_(2.0).mean()) - 0.5) < 0.02
    assert abs(float(made().bernoulli_(0.3).mean()) - 0.3) < 0.012
    assert abs(float(made().geometric_(0.25).mean()) - 4) < 0.1
    assert abs(float(mytorch.poisson(made().fill_(4.0)).mean()) - 4) < 0.06
    gamma = mytorch.distributions.Gamma(mytorch.full((N,), 3.0, device="cuda"), mytorch.full((N,), 2.0, device="cuda"))
    assert abs(float(gamma.sample().mean()) - 1.5) < 0.03


def test_draws_seeds_and_neighbors_are_independent():
    generator = mytorch.Generator("cuda")
    rows = []
    for seed in range(4):
        generator.manual_seed(seed)
        rows += [draw_64(generator) for _ in range(8)]
    rows = np.stack(rows)
    assert len(np.unique(rows)) == rows.size
    z = (rows - 0.5) * np.sqrt(12)
    n = z.shape[1]
    correlations = z @ z.T / n - np.eye(len(z))
    assert np.abs(correlations).max() < 5 / np.sqrt(n)
    for lag in (1, 2, 3, 4, 8):
        assert abs((z[:, lag:] * z[:, :-lag]).mean()) < 5 / np.sqrt(z.size)


def draw_64(generator):
    return mytorch.rand(2000, device="cuda", dtype=mytorch.float64, generator=generator).cpu().numpy()


def test_kernels_and_plain_functions_draw_the_same():
    for name in DRAWS:
        mytorch.manual_seed(6)
        first = draw(name)
        with mytorch.fused(False):
            mytorch.manual_seed(6)
            assert np.allclose(draw(name), first, rtol=1e-2 if name == "bfloat16" else 1e-5, atol=2e-6), name
