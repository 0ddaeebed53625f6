"""Every op against PyTorch, from the rows of tests/samples: values, dtypes, first and second derivatives,
surfaces, odd inputs."""

import functools

import numpy as np
import pytest

import mytorch
from mytorch.arrays.tensor import Tensor
from mytorch.ops import METHODS, PUBLIC
from tests.exceptions import TIES
from tests.loops import loop
from tests.samples import ROWS

TOLERANCE = {  # relative and absolute; a few units in the last place, multiplied by the size of reductions
    "float64": 1e-10,
    "float32": 3e-5,
    "float16": 4e-3,
    "bfloat16": 4e-2,
}


CONSTANT = {"layer_norm", "add_layer_norm"}  # PyTorch's gradient of the bias requires gradients, which are 0


def _cases():
    for row in ROWS:
        for shapes in row.shape_lists():
            for attrs in row.settings():
                label = f"{row.name}-{shapes}-{attrs}".replace(" ", "")
                yield pytest.param(row, shapes, attrs, id=label)


CASES = list(_cases())
FIRST = [next(c for c in CASES if c.values[0] is row) for row in ROWS]


def _resolve(root, dotted):
    for part in dotted.split("."):
        root = getattr(root, part)
    return root


def _function(row, lib):
    dotted = row.torch if lib.__name__ == "torch" else row.ours
    if callable(dotted):
        return functools.partial(dotted, lib)
    return _resolve(lib, dotted or row.name) if dotted or hasattr(lib, row.name) else getattr(lib.Tensor, row.name)


def _values(row, shapes, rng, dtype="float64"):
    """NumPy inputs of a row."""
    out = []
    for i, shape in enumerate(shapes):
        if i in row.integer:
            out.append(rng.integers(0, row.integer[i], shape))
        elif i in row.bools:
            out.append(rng.random(shape) < 0.5)
        else:
            low, high = row.domain
            out.append((rng.random(shape) * (high - low) + low).astype(dtype))
    return out


def _inputs(values, lib, dtype="float64", grad=False, transposed=False):
    """Tensors of NumPy inputs; floats cast to dtype."""
    tensors = []
    for v in values:
        t = lib.tensor(np.ascontiguousarray(v.T) if transposed else v)
        if v.dtype.kind == "f":
            t = t.to(getattr(lib, dtype))
            if transposed:
                t = t.permute(*range(t.ndim)[::-1]).detach()
            if grad:
                t.requires_grad_()
        elif transposed:
            t = t.permute(*range(t.ndim)[::-1])
        tensors.append(t)
    return tensors


def _call(row, lib, tensors, attrs):
    function = _function(row, lib)
    attrs = {k: tuple(v) if isinstance(v, tuple) else v for k, v in attrs.items()}
    if row.listed:
        return function(tensors, **attrs)
    if row.name == "gather":
        return function(tensors[0], attrs["dim"], tensors[1])
    if row.name in ("permute", "tile", "flip") and lib.__name__ == "mytorch":
        return function(tensors[0], *attrs.values())
    if row.name == "unflatten":
        return tensors[0].unflatten(attrs["dim"], attrs["sizes"])
    if "normalized_shape" in attrs:
        attrs = dict(attrs)
        return function(tensors[0], attrs.pop("normalized_shape"), *tensors[1:], **attrs)
    return function(*tensors, **attrs)


def _outputs(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _numpy(t):
    t = t.detach()
    return t.float().numpy() if str(t.dtype).endswith("bfloat16") else t.numpy(force=True)  # torch has lazy zeros


def _compare(ours, theirs, dtype, what):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not hasattr(b, "dtype"):
            assert a == b
            continue
        assert a.dtype.name == str(b.dtype).split(".")[-1], f"{what}: dtype {a.dtype} for {b.dtype}"
        assert tuple(a.shape) == tuple(b.shape), f"{what}: shape"
        tol = TOLERANCE[dtype]
        np.testing.assert_allclose(_numpy(a), _numpy(b), rtol=tol, atol=tol, err_msg=what, equal_nan=True)


@loop
@pytest.mark.parametrize(("row", "shapes", "attrs"), CASES)
def test_forward_and_gradients(row, shapes, attrs, torch, rng):
    """Values, dtypes, gradients and second derivatives in float64, under random upstream gradients."""
    values = _values(row, shapes, rng)
    kept = [v.copy() for v in values]
    a, b = _inputs(values, mytorch, grad=row.grad), _inputs(values, torch, grad=row.grad)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the one with second derivatives
        ours, theirs = _outputs(_call(row, mytorch, a, attrs)), _outputs(_call(row, torch, b, attrs))
    _compare(ours, theirs, "float64", "forward")
    for tensor, value in zip(a, kept, strict=True):
        np.testing.assert_array_equal(tensor.detach().numpy(), value, err_msg="an input was modified")
    if not row.grad:
        assert not any(o.requires_grad for o in ours if isinstance(o, Tensor))
        return
    pairs = [(o, t) for o, t in zip(ours, theirs, strict=True) if t.requires_grad]
    assert all(o.requires_grad for o, _ in pairs)
    if not pairs:
        return
    ups = [rng.standard_normal(tuple(t.shape)) for _, t in pairs]
    wa, wb = [t for t in a if t.requires_grad], [t for t in b if t.requires_grad]
    ga, gb = (
        lib.autograd.grad(outs, inputs, [lib.tensor(u) for u in ups], create_graph=True, allow_unused=True)
        for lib, outs, inputs in zip((mytorch, torch), zip(*pairs, strict=True), (wa, wb), strict=True)
    )
    assert [g is None for g in ga] == [g is None for g in gb]
    ga, gb = [g for g in ga if g is not None], [g for g in gb if g is not None]
    _compare(ga, gb, "float64", "gradient")
    _second(row, ga, gb, wa, wb, torch, rng)


def _second(row, ga, gb, wa, wb, torch, rng):
    if row.name not in CONSTANT:
        assert [x.requires_grad for x in ga] == [y.requires_grad for y in gb], "gradients that depend on the inputs"
    both = [(x, y) for x, y in zip(ga, gb, strict=True) if x.requires_grad and y.requires_grad]
    if not both:
        return
    ups = [rng.standard_normal(tuple(y.shape)) for _, y in both]
    ha = mytorch.autograd.grad(
        [x for x, _ in both], wa, [mytorch.tensor(u) for u in ups], allow_unused=True, materialize_grads=True
    )
    hb = torch.autograd.grad(
        [y for _, y in both], wb, [torch.tensor(u) for u in ups], allow_unused=True, materialize_grads=True
    )
    _compare(ha, hb, "float64", "second derivative")


@loop
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("row", "shapes", "attrs"), FIRST)
def test_dtypes(row, shapes, attrs, dtype, torch, rng):
    """Values and dtypes in the other floating point dtypes."""
    if dtype != "float32" and not row.half:
        pytest.skip("the row says that 16 bits are not compared")
    values = _values(row, shapes, rng, "float32")
    if dtype != "float32":  # the same rounded numbers on both sides
        values = [
            v if v.dtype.kind != "f" else torch.tensor(v).to(getattr(torch, dtype)).float().numpy() for v in values
        ]
    ours = _outputs(_call(row, mytorch, _inputs(values, mytorch, dtype), attrs))
    theirs = _outputs(_call(row, torch, _inputs(values, torch, dtype), attrs))
    if row.name in TIES and dtype != "float32":
        ours, theirs = ours[:1], theirs[:1]
        if row.name.startswith("arg"):
            return
    _compare(ours, theirs, dtype, "forward")


INTEGERS = ("add", "sub", "mul", "div", "maximum", "minimum", "neg", "exp", "sqrt", "sum", "cumsum", "abs", "square", "max", "sort",
            "eq", "lt", "sin", "reciprocal", "floor", "sign", "clamp", "all", "any", "amax", "reshape", "cat", "remainder", "tril")  # fmt: skip


@loop
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize(
    ("row", "shapes", "attrs"), [c for c in FIRST if c.values[0].name in INTEGERS and "alpha" not in c.values[2]]
)
def test_integers(row, shapes, attrs, dtype, torch, rng):
    """Integer inputs: PyTorch's result dtypes and values."""
    values = [rng.integers(1, 5, shape).astype(dtype) for shape in shapes]
    ours = _outputs(_call(row, mytorch, [mytorch.tensor(v) for v in values], attrs))
    theirs = _outputs(_call(row, torch, [torch.tensor(v) for v in values], attrs))
    _compare(ours, theirs, "float32", "integers")


# Ops with a fraction as an option, which the dtype of the result rounds, as in PyTorch.
ROUNDED = {"addcmul": "value", "addmm": "beta", "masked_fill": "value"}


@loop(parts=2)
@pytest.mark.parametrize(
    ("row", "shapes", "attrs"), [c for c in CASES if type(c.values[2].get(ROUNDED.get(c.values[0].name))) is not float]
)
def test_integer_results_are_exact(row, shapes, attrs, rng):
    """A function of integers that returns integers computes what it computes in float64, or it refuses integers."""
    values = _values(row, shapes, rng)
    floats = [np.round(v * 3) if v.dtype.kind == "f" else v for v in values]
    integers = [v.astype(np.int64) if v.dtype.kind == "f" else v for v in floats]
    try:
        ours = _outputs(_call(row, mytorch, [mytorch.tensor(v) for v in integers], attrs))
        exact = _outputs(_call(row, mytorch, [mytorch.tensor(v) for v in floats], attrs))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return
    for a, b in zip(ours, exact, strict=True):
        if isinstance(a, Tensor) and a.dtype.is_floating_point is False and a.dtype is not mytorch.bool:
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@loop
@pytest.mark.parametrize(("row", "shapes", "attrs"), FIRST)
def test_strided_inputs(row, shapes, attrs, torch, rng):
    """Transposed and contiguous inputs have the same results and gradients."""
    values = _values(row, shapes, rng)
    plain, strided = _inputs(values, mytorch, grad=row.grad), _inputs(values, mytorch, grad=row.grad, transposed=True)
    outs = [_outputs(_call(row, mytorch, tensors, attrs)) for tensors in (plain, strided)]
    for x, y in zip(*outs, strict=True):
        np.testing.assert_allclose(_numpy(x), _numpy(y), rtol=1e-12, atol=1e-12)
    if row.grad and outs[0][0].requires_grad:
        up = mytorch.tensor(rng.standard_normal(tuple(outs[0][0].shape)))
        for out in outs:
            out[0].backward(up)
        for x, y in zip(plain, strided, strict=True):
            if x.grad is not None:
                np.testing.assert_allclose(np.asarray(x.grad), np.asarray(y.grad), rtol=1e-10, atol=1e-10)


@loop
@pytest.mark.parametrize(("row", "shapes", "attrs"), FIRST)
def test_surfaces(row, shapes, attrs, rng):
    """Methods and functions return the same result. Arrays return Arrays. Nothing is recorded under no_grad. The in-place
    variant writes the same numbers."""
    values = _values(row, shapes, rng)
    tensors = _inputs(values, mytorch, grad=row.grad)
    expected = _outputs(_call(row, mytorch, tensors, attrs))
    with mytorch.no_grad():
        results = _outputs(_call(row, mytorch, tensors, attrs))
        assert not any(o.requires_grad for o in results if isinstance(o, Tensor) and o is not tensors[0])
    if row.listed or row.name not in METHODS or row.name in ("where", "gather", "permute", "tile", "flip", "unflatten"):
        return
    method = getattr(tensors[0], row.name)
    for x, y in zip(_outputs(method(*tensors[1:], **attrs)), expected, strict=True):
        np.testing.assert_array_equal(_numpy(x), _numpy(y))
    arrays = _outputs(getattr(tensors[0].data, row.name)(*[t.data for t in tensors[1:]], **attrs))
    for x, y in zip(arrays, expected, strict=True):
        assert isinstance(x, mytorch.Array)
        np.testing.assert_array_equal(np.asarray(x), _numpy(y))
    twin = row.name + "_"
    if (
        twin in METHODS
        and tuple(expected[0].shape) == tuple(tensors[0].shape)
        and expected[0].dtype is tensors[0].dtype
    ):
        fresh = tensors[0].detach().clone()
        same = getattr(fresh, twin)(*[t.detach() for t in tensors[1:]], **attrs)
        assert same is fresh
        assert fresh._version > 0
        np.testing.assert_array_equal(_numpy(fresh), _numpy(expected[0]))


def test_every_public_function_is_documented():
    undocumented = [
        name for name, f in {**PUBLIC, **METHODS}.items() if not name.startswith("__") and not (f.__doc__ or "").strip()
    ]
    assert not undocumented
