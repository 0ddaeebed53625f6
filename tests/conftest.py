"""Configuration of all tests: seeds, comparison with PyTorch, and the device.

* `pytest --device cuda` makes a GPU the default device, so the tests create their tensors on it.
* `--fake-cupy` replaces CuPy by `tests/gpu/fake_cupy.py`, which needs no GPU.
* `--device cuda:1` uses the second GPU while cuda:0 stays the current GPU.
* `--device toy` uses `tests/toy_device.py`, a registered device.
"""

import gc
import json
import math
import os
import re
import sys
from pathlib import Path

# The threads of OpenMP and OpenBLAS spin while they wait for work. Next to the other processes of the tests, that takes more processor
# time than the tests do, so PyTorch, NumPy and every process that a test starts use one. This is read when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from tests import loops

DURATIONS = Path(__file__).with_name("durations.json")


def pytest_addoption(parser, pluginmanager):
    if not pluginmanager.hasplugin("timeout"):  # otherwise the option of pyproject.toml is unknown, which is an error
        parser.addini("timeout", "without effect, because pytest-timeout is not installed")
    parser.addoption(
        "--device", default=os.environ.get("DEVICE", "cpu"), help="default device: cpu (default), cuda, cuda:1, toy"
    )
    parser.addoption("--fake-cupy", action="store_true", help="replace CuPy by a fake over NumPy")
    parser.addoption("--cell", help="run only the cells of tests/loops.py with this text in their names")
    parser.addoption("--cells", type=int, help="run at most this number of cells of each test of tests/loops.py")
    parser.addoption(
        "--each", type=int, metavar="SEED", help="run a sample of the cells that has each value of each parameter"
    )
    parser.addoption(
        "--all-kernels",
        action="store_true",
        default=os.environ.get("MYTORCH_ALL_KERNELS") == "1",
        help="run all cases of Triton's kernels without a GPU, and all layouts of Numba's, not a sample; also MYTORCH_ALL_KERNELS=1",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "cpu_only: what the test looks at exists on the CPU alone")
    for name in loops.SELECTED:
        loops.SELECTED[name] = config.getoption(name)
    if config.getoption("--fake-cupy"):
        sys.path.insert(0, str(Path(__file__).parent / "gpu"))
        import fake_cublaslt
        import fake_cupy

        fake_cupy.install(devices=2 if ":" in config.getoption("--device") else None)
        if (
            os.environ.get("TRITON_INTERPRET") != "1"
        ):  # kernels run in Triton's interpreter on the memory of the fake CuPy
            os.environ["MYTORCH_FUSED"] = "0"
        else:
            import fake_triton

            fake_triton.install()
        fake_cublaslt.install()
    if config.getoption("--device") == "toy":
        from tests import toy_device

        toy_device.register()
    if config.getoption("--device") != "cpu":
        _use(config.getoption("--device"))


def _use(device):
    """Makes `device` the default, and makes `.numpy()` work on results as on a CPU."""
    import mytorch

    try:
        mytorch.set_default_device(device)
        mytorch.backends.cudnn.allow_tf32 = False  # results are compared with float32 or float64
    except RuntimeError as error:
        raise pytest.UsageError(
            f"tests on {device}: {error} Without DEVICE and --device they run on the CPU."
        ) from None
    for cls in (mytorch.Tensor, mytorch.arrays.array.Array):
        cls.numpy, cls.__array__ = _on_cpu(cls.numpy), _on_cpu(cls.__array__)
    from_numpy = mytorch.from_numpy
    mytorch.from_numpy = lambda ndarray: from_numpy(ndarray).to(device)
    generator = mytorch.Generator
    generator.manual_seed = _seeding_a_twin(generator.manual_seed)
    for name in ("uniform", "normal", "integers", "permutation", "bernoulli"):
        setattr(generator, name, _drawn_on_cpu(getattr(generator, name)))


def _on_cpu(method):
    """Returns the method of a copy on the CPU, but the original method for calls from the library, which must not need it."""

    def looked_at(self, *args, **kwargs):
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return method(self if asks.startswith("mytorch.") else self.cpu(), *args, **kwargs)

    return looked_at


def _drawn_on_cpu(draw):
    """Returns the random numbers of the CPU on any device, so the expected values of the tests apply."""

    def drawn(self, *args, **kwargs):
        import mytorch
        from mytorch.arrays import to_device

        if self.device.type == "cpu":
            return draw(self, *args, **kwargs)
        known = any(self is default for default in mytorch.ops.random._gpu_generators.values())
        return to_device(draw(mytorch.default_generator if known else self._twin, *args, **kwargs), self.device)

    return drawn


def _seeding_a_twin(seed):
    """Calls manual_seed; a generator of a GPU then draws from a CPU generator."""

    def seeded(self, number):
        import mytorch

        if self.device.type != "cpu":
            self._twin = mytorch.Generator().manual_seed(number)
        return seed(self, number)

    return seeded


def sampled(items, most):
    """Returns at most `most` cases of each test function, evenly spaced, in their order."""
    functions = {}
    for item in items:
        functions.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    kept = [
        cases[i * len(cases) // min(most, len(cases))]
        for cases in functions.values()
        for i in range(min(most, len(cases)))
    ]
    return sorted(kept, key=items.index)


def slowest_first(items):
    """Sorts the tests that took more than three seconds to the front, so that no process gets one of them at the end.

    Tests of data loaders come before them: they fork hundreds of workers, which takes ten times as long in a process that other tests
    have filled.
    """
    stored = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}

    def seconds(item):
        path, _, name = item.nodeid.partition("::")
        if path.startswith("tests/data/"):
            return math.inf
        found = stored.get(path, {}).get("functions", {}).get(re.split(r"[\[@]", name)[0], 0)
        return found if found > 3 else 0

    items.sort(key=seconds, reverse=True)


def pytest_collection_modifyitems(config, items):
    import mytorch

    # The library's own threads sleep while they wait, so kernels divide large work in the tests as they do elsewhere.
    mytorch.set_num_threads(2)
    if hasattr(config, "workerinput"):
        slowest_first(items)
    # Triton's interpreter and its compiler take minutes for all cases of the kernels. A sample calls every kernel.
    sample = "TRITON_INTERPRET" in os.environ or "MYTORCH_COMPILE_ONLY" in os.environ
    if sample and not config.getoption("--all-kernels"):
        most = 1 if "MYTORCH_COMPILE_ONLY" in os.environ else 2
        items[:] = sampled(items, most)
        loops.SELECTED["cells"] = loops.SELECTED["cells"] or most
    if config.getoption("--fake-cupy") or not mytorch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords and item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    if config.getoption("--device") == "cpu":
        return
    loops.LEFT_OUT |= {"cpu_only", "slow"} if config.getoption("--fake-cupy") else {"cpu_only"}
    skip = pytest.mark.skip(reason="for the CPU alone")
    for item in items:
        if "cpu_only" in item.keywords:
            item.add_marker(skip)
        elif config.getoption("--fake-cupy") and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="takes too long over the fake CuPy"))


def pytest_collection_finish():
    """Excludes what exists before the tests from garbage collection, which takes half a second after the full tier is collected.

    Tests that collect garbage, and the processes that they fork, then look at the objects of tests only.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random state, independent of earlier tests."""
    loops.seed()


@pytest.fixture
def torch():
    """Returns PyTorch, the reference. Tests with this fixture are skipped if PyTorch is not installed."""
    found = pytest.importorskip("torch")
    if not hasattr(found, "manual_seed"):
        pytest.skip("PyTorch is not installed; Triton's interpreter was given one name of it")
    found.manual_seed(0)
    return found


@pytest.fixture
def rng():
    """A NumPy generator for one test, seeded with 0."""
    return np.random.default_rng(0)
