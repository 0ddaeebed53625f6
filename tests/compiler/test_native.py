"""Products and reductions in machine code, on random shapes, dtypes and layouts: equal to the eager results to the bit."""

import numpy as np
import pytest

import mytorch
from mytorch.arrays import numpy_ns
from mytorch.compiler import native
from mytorch.compiler.arrays import Tape, trace_ns
from mytorch.compiler.program import Program
from mytorch.compiler.replay import Instance

pytestmark = [pytest.mark.cpu_only, pytest.mark.skipif(not native.available(), reason="needs llvmlite")]


def matrix(draw, rows, columns, dtype):
    """Returns a random matrix: row-major, column-major, with gaps between rows, or with gaps between elements."""
    layouts = {
        "rows": ((rows, columns), lambda x: x),
        "columns": ((columns, rows), lambda x: x.T),
        "part": ((rows, 2 * columns + 1), lambda x: x[:, 1 : columns + 1]),
        "steps": ((2 * rows, 2 * columns), lambda x: x[::2, ::2]),
    }
    shape, view = layouts[str(draw.choice(list(layouts)))]
    return view(mytorch.tensor(draw.standard_normal(shape).astype(dtype)))


def check(function, *args):
    """Compares the runs of a program with NumPy's results, and checks that no step is a call of Python."""
    raws = [x._mt_data._array for x in args]
    expected, tape = np.asarray(function(numpy_ns, *raws)), Tape()
    inputs = [*map(tape.input, raws)]
    with tape:
        result = function(trace_ns, *inputs)
    instance = Instance(Program(tape, [result.index]))
    calls = [call.func.__name__ for call in instance.calls if hasattr(call, "func")]
    assert set(calls) <= {"_run_native", "_drop"}
    for _ in range(2):
        (found,) = instance.run(raws.copy())
        same = found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")
        assert same, [(x.shape, x.strides, x.dtype) for x in raws]


@pytest.mark.parametrize("seed", range(3))
def test_products_are_the_products_of_numpy(seed):
    draw = np.random.default_rng(seed)
    for _ in range(25):
        m, k, n = (int(draw.choice([1, 1, 2, 3, 4, 7, 8, 16, 17, 31])) for _ in range(3))
        a, b = (matrix(draw, *shape, dtype=draw.choice(["f4", "f8"])) for shape in ((m, k), (k, n)))
        b = b.to(a.dtype)
        check(lambda xp, a, b: xp.matmul(a, b) * 2, a, b)
        check(lambda xp, a: xp.matmul(a, a.T) * 2, a)
    a, b = (mytorch.tensor(draw.standard_normal(shape).astype("f4")) for shape in ((40, 64), (64, 80)))
    check(lambda xp, a, b: xp.matmul(a, b) * 2, a, b)


@pytest.mark.parametrize("seed", range(3))
def test_maxima_and_logical_reductions_are_the_eager_ones(seed):
    draw = np.random.default_rng(seed)
    for _ in range(12):
        shape = [int(draw.choice([1, 2, 3, 5, 16, 70, 130])) for _ in range(draw.integers(1, 4))]
        x = draw.standard_normal(shape).astype(draw.choice(["f4", "f8"]))
        contents = {
            "floats": x,
            "integers": (100 * x).astype(draw.choice(["i8", "i4", "u1", "i2"])),
            "nan": np.where(draw.random(shape) < 0.1, np.nan, x).astype(x.dtype),
            "infinity": np.where(draw.random(shape) < 0.1, np.inf, x).astype(x.dtype),
            "bool": x > draw.choice([-1.0, 0.0, 3.0]),
        }
        kind = str(draw.choice(list(contents)))
        y = mytorch.tensor(contents[kind])
        y = y.transpose(0, -1) if draw.random() < 0.4 else y[..., ::2] if draw.random() < 0.4 else y
        dim, keepdim = int(draw.integers(y.ndim)), bool(draw.integers(2))
        if kind == "bool":
            check(lambda xp, y: xp.logical_not(xp.all(y, axis=dim, keepdims=keepdim)), y)
            check(lambda xp, y: xp.logical_not(xp.any(y, axis=dim)), y)
            check(lambda xp, y: xp.logical_not(xp.all(y)), y)
            continue
        check(lambda xp, y: xp.max(y, axis=dim, keepdims=keepdim) * 2, y)
        check(lambda xp, y: xp.min(y, axis=dim) * 2, y)
        check(lambda xp, y: xp.max(y) * 1, y)
        if kind != "integers":
            check(lambda xp, y: xp.logical_not(xp.all(xp.isfinite(y))), y)
