"""Autocast on a CPU: dtypes of results and gradients, compared with PyTorch.

The cases are all functions of PyTorch's operator database, layers, and calls whose precision depends on their arguments.
"""

import itertools

import pytest

import mytorch
from mytorch.arrays import config
from tests.exceptions import ELSEWHERE, OTHER_ARGUMENTS
from tests.loops import loop
from tests.test_opinfo import flat, op_db, ours, samples, torch

pytestmark = [pytest.mark.cpu_only, pytest.mark.filterwarnings("ignore")]

DIFFERENT = {
    "linalg.pinv": "float32; PyTorch rounds a product inside, and its backward raises",
    "linalg.pinv.hermitian": "as linalg.pinv",
    "linalg.pinv.singular": "as linalg.pinv",
    "complex": "no tensor has complex32",
    "chalf": "no tensor has complex32",
    "soft_margin_loss": "targets of another dtype than the input",
    "nn.functional.soft_margin_loss": "targets of another dtype than the input",
    "histogramdd": "unsorted edges, which NumPy refuses",
    "addr": "a factor of 0 gives no gradient",
    "norm": "PyTorch records no gradient for p=0",
    "linalg.norm.subgradients_at_zero": "PyTorch records no gradient for p=0",
}
GIVEN = [("float32",), ("bfloat16",), ("float16",), ("float64",), ("float32", "bfloat16"), ("bfloat16", "float32")]


def name_of(dtype):
    return str(dtype).split(".")[-1]


def each_tensor(x, change):
    """Applies a function to each tensor of PyTorch in nested arguments."""
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, (list, tuple)):
        return [each_tensor(v, change) for v in x]
    return {k: each_tensor(v, change) for k, v in x.items()} if isinstance(x, dict) else x


def to_mytorch(x):
    y = x.detach().contiguous()
    return mytorch.tensor(y.float().numpy()).bfloat16() if y.dtype is torch.bfloat16 else mytorch.tensor(y.numpy())


def translated(x):
    """Converts arguments of PyTorch to mytorch."""
    if isinstance(x, torch.Tensor):
        return to_mytorch(x)
    if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
        return getattr(mytorch, name_of(x))
    if isinstance(x, torch.device):
        return "cpu"
    if isinstance(x, (list, tuple)):
        return [translated(v) for v in x]
    return {k: translated(v) for k, v in x.items()} if isinstance(x, dict) else x


def dtypes_of(L, function, arguments, half, grad):
    """Returns the dtypes of the results and gradients of a call inside autocast; None if it raises an error."""
    args, kwargs = arguments
    leaves = [x for x in flat([args, list(kwargs.values())]) if hasattr(x, "dtype") and "float" in str(x.dtype)]
    if grad:
        for x in leaves:
            x.requires_grad_()
    try:
        with L.autocast("cpu", dtype=getattr(L, half)):
            out = [x for x in flat(function(*args, **kwargs)) if hasattr(x, "dtype")]
        found = [name_of(x.dtype) for x in out]
        out = [x for x in out if grad and x.requires_grad]
        if out:
            grads = L.autograd.grad(out, leaves, [L.rand_like(x) for x in out], allow_unused=True)
            found.append([g if g is None else name_of(g.dtype) for g in grads])
        return found
    except Exception:  # noqa: BLE001 - PyTorch has no kernels for some dtypes
        return None


def cases():
    for op in op_db:
        full = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        skipped = {op.name, full} & {*OTHER_ARGUMENTS, *DIFFERENT}
        if op.name.startswith(ELSEWHERE) or skipped or ours(op.name) is None:
            continue
        if torch.float32 in op.supported_dtypes("cpu"):
            yield pytest.param(op, id=full)


@loop
@pytest.mark.parametrize("op", list(cases()))
def test_dtypes_are_pytorchs(op, monkeypatch):
    function, compared = ours(op.name), 0
    for sample in itertools.islice(samples(op, torch.float32), 12):
        tensors = [x for x in flat([sample.input, sample.args, list(sample.kwargs.values())]) if hasattr(x, "dtype")]
        if not all(x.numel() for x in tensors):
            continue
        compared += 1
        for i, given in enumerate(GIVEN):
            dtypes = itertools.cycle(getattr(torch, d) for d in given)
            theirs = each_tensor(
                ([sample.input, *sample.args], sample.kwargs),
                lambda x, dtypes=dtypes: x.detach().to(next(dtypes)) if x.dtype.is_floating_point else x.detach(),
            )
            mine = translated(theirs)
            half = "float16" if (i + compared) % 3 == 0 else "bfloat16"
            monkeypatch.setattr(config, "pytorch_mode", bool(i % 2))
            grad = op.supports_autograd and compared != 2
            want = dtypes_of(torch, op.op, theirs, half, grad)
            if want is not None:
                assert dtypes_of(mytorch, function, mine, half, grad) == want, f"{given}, {half}"
        if compared == 2:
            break
