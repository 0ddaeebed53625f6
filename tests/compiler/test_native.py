"""Products and reductions in machine code, on random shapes, dtypes and layouts: equal to the eager results to the bit."""

import numpy as np
import pytest

import mytorch
from mytorch.compiler import native

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
    """Compares the replays of a function with its eager result, and checks that no step is a call of Python."""
    compiled, expected = mytorch.compile(function), function(*args).numpy()
    for _ in range(3):
        result = compiled(*args).numpy()
    assert compiled.entries, compiled.eager
    instance = next(iter(compiled.entries.values()))[0].free[0]
    assert len(instance.forward) == 1
    same = result.dtype == expected.dtype and np.array_equal(result, expected, equal_nan=result.dtype.kind == "f")
    assert same, [(x.shape, x.stride(), x.dtype) for x in args]


@pytest.mark.parametrize("seed", range(3))
def test_products_are_the_products_of_numpy(seed):
    draw = np.random.default_rng(seed)
    for _ in range(25):
        m, k, n = (int(draw.choice([1, 1, 2, 3, 4, 7, 8, 16, 17, 31])) for _ in range(3))
        a, b = (matrix(draw, *shape, dtype=draw.choice(["f4", "f8"])) for shape in ((m, k), (k, n)))
        b = b.to(a.dtype)
        check(lambda a, b: (a @ b) * 2, a, b)
        check(lambda a: (a @ a.mT) * 2, a)
    a, b = (mytorch.tensor(draw.standard_normal(shape).astype("f4")) for shape in ((40, 64), (64, 80)))
    check(lambda a, b: (a @ b) * 2, a, b)


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
            check(lambda y: y.all(dim, keepdim=keepdim).logical_not(), y)
            check(lambda y: y.any(dim).logical_not(), y)
            check(lambda y: y.all().logical_not(), y)
            continue
        check(lambda y: y.amax(dim, keepdim=keepdim) * 2, y)
        check(lambda y: y.amin(dim) * 2, y)
        check(lambda y: y.amax() * 1, y)
        if kind != "integers":
            check(lambda y: mytorch.isfinite(y).all().logical_not(), y)
