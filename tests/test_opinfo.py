"""All ops of mytorch in PyTorch's operator database, on the sample inputs of the database.

Results (values, shape, dtype), gradients under a random upstream gradient and second derivatives are compared in
float64 and complex128; only results for integers and bool. tests/exceptions.py lists the samples that do not apply to mytorch.
"""

import random
import warnings

import numpy as np
import pytest

import mytorch
from mytorch.ops import PUBLIC
from tests.exceptions import COPIED, DIFFERENT, DIFFERENT_COMPLEX, ELSEWHERE, OTHER_ARGUMENTS, RANDOM, UP_TO_SIGNS
from tests.loops import loop
from tests.samples import ROWS

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 12
SEED = 1234  # of the database
CONVERSIONS = {"bool", "double", "float", "half", "int", "long", "short", "byte", "char", "cdouble", "cfloat"}


def samples(op, dtype, requires_grad=False):
    """The samples of an op in the database, with the random numbers of `op.sample_inputs`.

    `op.sample_inputs` looks for the running test in the source files of all callers, which takes longer than most samples do.
    """
    found = iter(op.sample_inputs_func(op, "cpu", dtype, requires_grad))
    while True:
        torch.default_generator.manual_seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        try:
            yield next(found)
        except StopIteration:
            return


def ours(name):
    """Our function of a name in the database, or None."""
    if name == "bfloat16":  # NumPy, which the comparison uses, lacks the dtype
        return None
    if name in CONVERSIONS:
        return getattr(mytorch.Tensor, name)
    special = {
        "einsum": lambda operands, equation: mytorch.einsum(equation, *operands),
        "polygamma": lambda x, n: mytorch.polygamma(n, x),
        "where": lambda x, condition, y: mytorch.where(condition, x, y),
        **{attribute: (lambda x, a=attribute: getattr(x, a)) for attribute in ("T", "H", "mT", "mH")},
    }
    if name in special:
        return special[name]
    found = mytorch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found or getattr(mytorch.Tensor, name, None)


def convert(x):
    """Converts PyTorch's arguments to mytorch; tensors keep the order of their strides."""
    if isinstance(x, torch.Tensor):
        y = x.detach().resolve_conj().resolve_neg()
        out = mytorch.tensor(y.numpy())
        if not y.is_contiguous() and y.ndim > 1 and 0 not in y.stride():
            order = sorted(range(y.ndim), key=lambda i: -y.stride(i))
            out = out.permute(order).contiguous().permute([order.index(i) for i in range(y.ndim)])
        return out.requires_grad_() if x.requires_grad else out
    if isinstance(x, torch.dtype):
        return getattr(mytorch, str(x).split(".")[1])
    if isinstance(x, torch.device):
        return "cpu"
    if isinstance(x, (torch.layout, torch.memory_format)):
        return getattr(mytorch, str(x).split(".")[1])
    if isinstance(x, torch.nn.Module):
        return getattr(mytorch.nn, type(x).__name__)()
    if isinstance(x, (list, tuple)):
        return type(x)(convert(v) for v in x) if type(x) in (list, tuple) else tuple(convert(v) for v in x)
    return {k: convert(v) for k, v in x.items()} if isinstance(x, dict) else x


def flat(x):
    if isinstance(x, (list, tuple)):
        return [leaf for item in x for leaf in flat(item)]
    return [x] if isinstance(x, (torch.Tensor, mytorch.Tensor, int, float, bool, complex)) else []


def values(x):
    if isinstance(x, torch.Tensor):
        return x.detach().resolve_conj().resolve_neg().numpy(force=True)
    return x.detach().numpy() if isinstance(x, mytorch.Tensor) else np.asarray(x)


def compare(theirs, mine, what):
    a, b = values(theirs), values(mine)
    assert a.shape == b.shape, f"{what}: shape {b.shape}, PyTorch's {a.shape}"
    if what == "result" and isinstance(theirs, torch.Tensor) and isinstance(mine, mytorch.Tensor):
        assert str(theirs.dtype).split(".")[1] == mine.dtype.name, f"{what}: {mine.dtype}, PyTorch's {theirs.dtype}"
    tolerance = 1e-6 if a.dtype in (np.float64, np.complex128) or a.dtype.kind in "iub" else 2e-5
    np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what)


def random_like(x, rng):
    u = rng.standard_normal(tuple(x.shape))
    return (
        torch.tensor(u + 1j * rng.standard_normal(tuple(x.shape)) if x.dtype.is_complex else u)
        .to(x.dtype)
        .requires_grad_()
    )


def compare_gradients(sample, want, got, arguments, twice):
    """First and, if asked for, second derivatives for all tensors among the arguments."""
    theirs_in = [
        x for x in flat([sample.input, sample.args, list(sample.kwargs.values())]) if getattr(x, "requires_grad", False)
    ]
    mine_in = [x for x in flat(arguments) if getattr(x, "requires_grad", False)]
    if sample.output_process_fn_grad is not None:
        want, got = sample.output_process_fn_grad(want), sample.output_process_fn_grad(got)
    pairs = [(a, b) for a, b in zip(flat(want), flat(got), strict=False) if getattr(a, "requires_grad", False)]
    if not pairs or not theirs_in:
        return
    assert all(b.requires_grad for _, b in pairs), "a result does not require grad"
    rng = np.random.default_rng(0)
    ups = [random_like(a, rng) for a, _ in pairs]
    ours_up = [convert(u) for u in ups]
    try:
        first = torch.autograd.grad([a for a, _ in pairs], theirs_in, ups, allow_unused=True, create_graph=twice)
    except RuntimeError:
        return
    mine = mytorch.autograd.grad([b for _, b in pairs], mine_in, ours_up, allow_unused=True, create_graph=twice)
    _compare_all(first, mine, "gradient")
    if not twice:
        return
    pairs = [(a, b) for a, b in zip(first, mine, strict=True) if a is not None and b is not None and a.requires_grad]
    if not pairs:
        return
    seconds = [random_like(a, rng).detach() for a, _ in pairs]
    try:
        second = torch.autograd.grad([a for a, _ in pairs], theirs_in + ups, seconds, allow_unused=True)
    except RuntimeError:
        return
    mine = mytorch.autograd.grad(
        [b for _, b in pairs], mine_in + ours_up, [convert(s) for s in seconds], allow_unused=True
    )
    _compare_all(second, mine, "second derivative")


def _compare_all(theirs, mine, what):
    for a, b in zip(theirs, mine, strict=True):
        if a is None or b is None:
            other = a if a is not None else b
            assert other is None or not np.abs(np.nan_to_num(values(other))).max(initial=0) > 1e-9, (
                f"{what}: None on one side"
            )
        else:
            compare(a, b, what)


def shared(results, inputs, shares):
    """Returns, for each result and each input, whether they share memory."""
    return [[bool(shares(y, x)) for x in inputs if x.numel()] for y in results if y.numel()]


def compare_memory(sample, want, got, arguments):
    """A change in place of a result changes the same inputs as in PyTorch."""
    theirs_in, mine_in = (
        [x for x in flat(list(given)) if isinstance(x, (torch.Tensor, mytorch.Tensor))]
        for given in ([sample.input, sample.args, list(sample.kwargs.values())], arguments)
    )
    theirs, mine = ([y for y in flat(r) if isinstance(y, (torch.Tensor, mytorch.Tensor))] for r in (want, got))
    if len(theirs_in) != len(mine_in) or any(x.layout is not torch.strided for x in (*theirs, *theirs_in)):
        return
    if any(x.is_conj() or x.is_neg() for x in theirs):  # PyTorch marks the conjugate; NumPy computes it
        return
    address = lambda x: x.untyped_storage().data_ptr()  # noqa: E731
    wanted = shared(theirs, theirs_in, lambda y, x: address(y) == address(x))
    memory = lambda x: x.detach().numpy()  # noqa: E731
    assert wanted == shared(mine, mine_in, lambda y, x: np.may_share_memory(memory(y), memory(x))), "memory"


def cases():
    for op in op_db:
        full = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if (
            op.name.startswith(ELSEWHERE)
            or {op.name, full} & (OTHER_ARGUMENTS | set(DIFFERENT))
            or ours(op.name) is None
        ):
            continue
        for dtype in (torch.float64, torch.complex128, torch.int64, torch.bool):
            if dtype in op.supported_dtypes("cpu") and not (dtype.is_complex and op.name in DIFFERENT_COMPLEX):
                yield pytest.param(op, dtype, id=f"{full}-{str(dtype).split('.')[1]}")


@loop(parts=4)
@pytest.mark.parametrize(("op", "dtype"), list(cases()))
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(op, dtype):
    function = ours(op.name)
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for count, sample in enumerate(samples(op, dtype, differentiable)):
        if count == SAMPLES:
            break
        arguments = convert([sample.input, list(sample.args), list(sample.kwargs.values())])
        kwargs = dict(zip(sample.kwargs, arguments[2], strict=True))
        try:
            want = op.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            continue
        got = function(arguments[0], *arguments[1], **kwargs)
        theirs, mine = flat(want), flat(got)
        assert len(theirs) == len(mine), f"{len(mine)} results, PyTorch {len(theirs)}"
        if op.name not in COPIED:
            compare_memory(sample, want, got, arguments)
        if op.name in RANDOM:
            assert [tuple(getattr(x, "shape", ())) for x in theirs] == [tuple(getattr(x, "shape", ())) for x in mine]
            continue
        if op.name not in UP_TO_SIGNS:
            for a, b in zip(theirs, mine, strict=True):
                compare(a, b, "result")
        if differentiable:
            compare_gradients(sample, want, got, arguments, op.supports_gradgrad)


def twins():
    """Returns the ops with a method or an in-place variant in PyTorch and a tensor as the first argument."""
    seen = set()
    for op in op_db:
        name = op.name
        if (
            name in seen
            or "." in name
            or name.startswith(ELSEWHERE)
            or name in RANDOM | OTHER_ARGUMENTS | CONVERSIONS
            or ours(name) is None
        ):
            continue
        seen.add(name)
        if (
            hasattr(torch.Tensor, name)
            and hasattr(mytorch.Tensor, name)
            and callable(getattr(torch.Tensor, name))
            and torch.float64 in op.supported_dtypes("cpu")
        ):
            yield pytest.param(op, id=name)


@loop
@pytest.mark.parametrize("op", list(twins()))
@pytest.mark.filterwarnings("ignore")
def test_method_function_and_in_place_agree(op):
    """x.op(…) is op(x, …), and x.op_(…) writes the same values into x, for all ops that have these forms in PyTorch."""
    function, method = ours(op.name), getattr(mytorch.Tensor, op.name)
    in_place = getattr(torch.Tensor, op.name + "_", None)
    for count, sample in enumerate(samples(op, torch.float64)):
        if count == 6:
            break
        if not isinstance(sample.input, torch.Tensor):
            continue
        try:
            getattr(sample.input, op.name)(*sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError):
            continue
        x, args, values_ = convert([sample.input, list(sample.args), list(sample.kwargs.values())])
        kwargs = dict(zip(sample.kwargs, values_, strict=True))
        if op.name not in ("where", "polygamma", "empty_like"):  # whose functions take the tensor elsewhere
            for a, b in zip(flat(function(x, *args, **kwargs)), flat(method(x, *args, **kwargs)), strict=True):
                np.testing.assert_array_equal(values(a), values(b))
        if in_place is None or op.name == "addbmm":  # which PyTorch resizes in place
            continue
        target = sample.input.detach().clone()
        try:
            in_place(target, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError):
            continue
        copy = convert(sample.input.detach())
        assert getattr(copy, op.name + "_")(*args, **kwargs) is copy
        compare(target, copy, "result")


def test_every_public_record_is_compared():
    """A record that users call has a row in tests/samples, or is in PyTorch's database, under one of its names."""
    compared = {row.name for row in ROWS} | {
        name for info in op_db for name in (info.name, *(a.name for a in info.aliases))
    }
    names = {}
    for name, function in PUBLIC.items():
        if hasattr(function, "op"):
            names.setdefault(function.op.name, set()).add(name)
    assert len(names) > 60
    assert not {record: own for record, own in names.items() if not own & compared}
