"""Wrong calls of PyTorch's databases of operators, modules and optimizers raise PyTorch's errors in PyTorch mode; right calls do not."""

import inspect
import itertools
import warnings
from collections import defaultdict
from types import FunctionType

import numpy as np
import pytest

import mytorch
from mytorch.arrays import config
from mytorch.arrays.arguments import names_of
from mytorch.ops.dispatch import refused
from tests.test_opinfo import convert, op_db, ours, samples

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

# (name, number of the wrong call) -> why the call is accepted, or refused with another class.
ACCEPTED = {
    **{(f"__r{op}__", i): "a method of tensors called on numbers" for op in "add mul and or xor".split() for i in range(2)},
    ("arange", 6): "PyTorch rounds the step to the dtype of `out` first",
    ("float_power", 0): "two numbers",
    **{("nn.functional.max_pool1d", i): "an empty batch of one channel" for i in (5, 17)},
    ("nn.functional.max_pool3d", 4): "an empty input has an empty result",
    ("normal", 0): "refused for other arguments first",
    ("special.xlog1py", 0): "two numbers",
    ("special.zeta", 0): "two numbers",
    ("narrow_copy", 1): "an IndexError, as for narrow",
    ("multinomial", 6): "any number of categories",
    ("HuberLoss", 0): "checked in the call",
    ("SparseAdam", 3): "a RuntimeError",
}  # fmt: skip


class Unsupported(Exception):
    """A tensor that the comparison cannot convert."""


def shared(x, known):
    """Converts arguments to mytorch. Tensors that share memory in PyTorch share a copy of it: some calls are wrong by overlap."""
    if isinstance(x, torch.nn.Parameter):
        if id(x) not in known:
            known[id(x)] = mytorch.nn.Parameter(shared(x.detach(), known), requires_grad=x.requires_grad)
        return known[id(x)]
    if isinstance(x, torch.Tensor):
        if x.layout != torch.strided or x.device.type != "cpu" or x.dtype in (torch.bfloat16, torch.complex32):
            raise Unsupported
        if x.is_conj() or x.is_neg() or not x.numel():
            return convert(x)
        memory = x.untyped_storage()
        if memory.data_ptr() not in known:
            raw = torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
            known[memory.data_ptr()] = mytorch.from_numpy(np.pad(raw, (0, -len(raw) % 16)))
        whole = known[memory.data_ptr()].view(getattr(mytorch, str(x.dtype)[6:]))
        return whole.as_strided(tuple(x.shape), x.stride(), x.storage_offset()).detach().requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)):
        return (type(x) if type(x) in (list, tuple) else tuple)(shared(v, known) for v in x)
    return {k: shared(v, known) for k, v in x.items()} if isinstance(x, dict) else convert(x)


def error_of(call):
    """Returns the names of the classes of the error that a call raises; () if it raises none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return [c.__name__.lstrip("_") for c in type(error).__mro__]
    return ()


def differences(name, calls):
    """Returns the calls (PyTorch's, mytorch's) with another outcome, if PyTorch's raises."""
    found = []
    for i, (theirs, mine) in enumerate(calls):
        want = error_of(theirs)
        got = error_of(mine) if want else ()
        if want and not {want[0], "Unsupported"} & {*got} and (name, i) not in ACCEPTED:
            found.append(f"{name} {i}: {want[0]}, got {got[0] if got else 'a result'}")
    return found


def call_of(function, args, kwargs):
    def call():
        known = {}
        function(*shared(args, known), **shared(kwargs, known))

    return call


FUNCTIONS = {
    op.name: ours(op.name) for op in op_db
}  # found in native mode, because reading a name in PyTorch mode can define it


@pytest.fixture
def pytorch_mode(monkeypatch):
    monkeypatch.setattr(config, "pytorch_mode", True)


def test_wrong_calls_of_operators(pytorch_mode):
    found = []
    for op in op_db:
        function = FUNCTIONS[op.name]
        if op.error_inputs_func is None or function is None:
            continue
        calls = []
        for error in op.error_inputs_func(op, "cpu"):
            sample = error.sample_input
            args = (sample.input, *sample.args)
            calls.append((lambda a=args, k=sample.kwargs, op=op: op(*a, **k), call_of(function, args, sample.kwargs)))
        found += differences(op.name, calls)
    assert not found, "\n".join(found)


def test_wrong_calls_of_modules(pytorch_mode):
    def called(kind, given):
        of = (lambda x: x) if kind.__module__.startswith("torch") else lambda x: shared(x, {})

        def run():
            made = given.constructor_input
            module = kind(*of(made.args), **of(made.kwargs))
            if given.forward_input is not None:
                module(*of(given.forward_input.args), **of(given.forward_input.kwargs))

        return run

    found = []
    for info in module_db:
        kind = getattr(mytorch.nn, info.module_cls.__name__, None)
        if info.module_error_inputs_func is None or kind is None:
            continue
        errors = info.module_error_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
        )
        inputs = [error.module_error_input for error in errors]
        found += differences(kind.__name__, [(called(info.module_cls, x), called(kind, x)) for x in inputs])
    assert not found, "\n".join(found)


def test_wrong_options_of_optimizers(pytorch_mode):
    found = []
    for info in optim_db:
        kind = getattr(mytorch.optim, info.optim_cls.__name__)
        inputs = [error.optimizer_error_input for error in info.optim_error_inputs_func("cpu", torch.float32)]
        found += differences(
            kind.__name__,
            [
                (lambda x=x, info=info: info.optim_cls(x.params, **x.kwargs), call_of(kind, (x.params,), x.kwargs))
                for x in inputs
            ],
        )
    assert not found, "\n".join(found)


@pytest.mark.filterwarnings("ignore")  # of the functions that make the samples
def test_samples_are_accepted(pytorch_mode):
    """The check of arguments, which PyTorch mode has, refuses no sample of the database that PyTorch accepts."""
    found = []
    for op in op_db:
        function = FUNCTIONS[op.name]
        if function is None or op.name in (
            "normal",
            "polygamma",
            "special.polygamma",
            "chalf",
            "svd_lowrank",
            "pca_lowrank",
        ):
            continue  # functions that the database calls in another way
        for sample in itertools.islice(samples(op, torch.float32), 6) if torch.float32 in op.dtypes else ():
            args = (sample.input, *sample.args)
            error = error_of(call_of(function, args, sample.kwargs))
            if "TypeError" in error and not error_of(lambda a=args, k=sample.kwargs, op=op: op(*a, **k)):
                found.append(f"{op.name}: {error[0]}")
    assert not found, "\n".join(found)


def accepted_types(annotation):
    """Returns the built-in types that PyTorch accepts for a type of its schemas."""
    base = (
        annotation.removeprefix("Optional[").rstrip("]?")
        if annotation.startswith("Optional[")
        else annotation.rstrip("?")
    )
    if base.startswith("List["):
        return {list, tuple}
    words = {"int": {int}, "SymInt": {int}, "float": {int, float}, "number": {int, float}, "bool": {bool}, "str": {str}}
    return words.get(base, set())


def test_kinds_of_arguments_accept_what_schemas_accept():
    """No function refuses a type that one of PyTorch's schemas, or the default of PyTorch's function, has at this place."""
    wanted = defaultdict(set)
    for schema in torch._C._jit_get_all_schemas():
        space, name = schema.name.split("::")
        for argument in schema.arguments if space == "aten" else ():
            for prefix in ("linalg_", "fft_", "special_", ""):
                own = name.removeprefix(prefix).rstrip("_")
                wanted[own, argument.name.replace("self", "input")] |= accepted_types(str(argument.type))
    for home in (torch.nn.functional, torch.functional):
        for name, function in inspect.getmembers(home, lambda f: isinstance(f, FunctionType)):
            for p in inspect.signature(inspect.unwrap(function)).parameters.values():
                text = str(p.annotation)
                wanted[name, p.name] |= {type(p.default)} & {bool, int, float, str, tuple}
                wanted[name, p.name] |= {
                    t for t in (bool, float, str) if text in (t.__name__, str(t), f"{t.__name__} | None")
                }
    found = set()
    for home in (mytorch, mytorch.nn.functional, mytorch.linalg, mytorch.fft, mytorch.special):
        for name in sorted(n for n in dir(home) if not n.startswith("_")):
            function = inspect.unwrap(getattr(home, name, None))
            for parameter in names_of(function) if isinstance(function, FunctionType) else ():
                types, _ = refused._refused_types(name, parameter, None)
                # Schemas with a list of tensors in the place of a tensor are for compiled code only.
                wrong = (types & wanted[name, parameter]) - ({list, tuple} if parameter == "input" else set())
                found |= {f"{name}({parameter}: {t.__name__})" for t in wrong}
    assert not found, "\n".join(sorted(found))
