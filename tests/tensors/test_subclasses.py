"""Subclasses of Tensor: their class, `__torch_function__`, and modes. Each program runs on PyTorch and on mytorch."""

import inspect
import subprocess
import sys
import textwrap

import pytest

import mytorch

torch = pytest.importorskip("torch")

LOGGING = """
    import copy, pickle, torch
    import torch.nn.functional as F
    log = []
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((func.__name__, len(args), [t.__name__ for t in types]))
            return super().__torch_function__(func, types, args, kwargs)
    x, p = torch.ones(2, 3).as_subclass(Logged), torch.ones(2, 3)
    for text in '''x + 1; 1 + x; p + x; x - 1; 1 - x; x * 2; x / 2; x @ p.T; x ** 2; -x; abs(x); x == 1; x != 1; x >= p; x // 2; x % 2
            (x > 0) & (x > 0); x[0]; x[x > 0]; x.__setitem__(0, 5.0); x.add_(1); x.clone(); x.shape; x.dtype; x.grad; x.T; x.data
            x.size(); x.dim(); x.sum(); x.max(0); x.sort(0); x.view(-1); x.reshape(3, 2); x.float(); x.detach(); x.tolist()
            torch.add(x, 1); torch.stack([x, x]); torch.cat([p, x]); torch.exp(x); torch.where(x > 0, x, p); torch.einsum("ij->i", x)
            x.chunk(2); torch.unbind(x); torch.zeros_like(x); torch.nn.Linear(3, 2)(x); len(x); float(x.sum()); x.copy_(p)
            x.masked_fill(x > 0, 1); torch.meshgrid(x[0], x[1], indexing="ij"); copy.copy(x); pickle.loads(pickle.dumps(x))
            torch.topk(x, 1); torch.is_tensor(x); hash(x) and 1'''.replace("\\n", ";").split(";"):
        log.clear()
        result = eval(text.strip())
        parts = result if isinstance(result, (tuple, list)) else [result]
        print(text.strip(), [type(part).__name__ for part in parts], log)
    for text in "F.relu(x); F.mse_loss(x, p); F.softmax(x, 0); F.layer_norm(x, (3,)); F.dropout(x, 0.5); repr(x)".split("; "):
        log.clear()
        print(text, type(eval(text)).__name__, log[0][0], len(log))
"""
UNITS = """
    import copy, pickle, torch
    import torch.nn.functional as F
    from torch import Tensor, nn, stack
    handled = {torch.mean: lambda x: ("mean", x.unit)}
    class Quantity(Tensor):
        @staticmethod
        def __new__(cls, data, unit):
            return super().__new__(cls, data)
        def __init__(self, data, unit):
            super().__init__()
            self.unit = unit
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in handled:
                return handled[func](*args)
            units = sorted({a.unit for a in args if hasattr(a, "unit")})
            if func in (torch.add, Tensor.add) and len(units) > 1:
                raise ValueError(f"units {units}")
            result = super().__torch_function__(func, types, args, kwargs)
            if isinstance(result, Quantity) and units:
                result.unit = "*".join(units)
            return result
    a, b = Quantity([1.0, 2.0, 3.0], "m"), Quantity([4.0, 5.0, 6.0], "s")
    print(a, (a + 1).unit, (a * b).unit, a[0].unit, a[1:].unit, F.relu(a).unit, torch.mean(a), type(stack([a, a])).__name__)
    try:
        a + b
    except ValueError as error:
        print(error)
    a += 1
    a[0] = 9
    print(a.mul_(2), a.unit, pickle.loads(pickle.dumps(a)).unit)
    class S(Tensor): pass
    class T(S): pass
    class Other(Tensor): pass
    class Plain(Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl
    class Weight(nn.Parameter): pass
    leaf = torch.ones(2, requires_grad=True)
    s = leaf.as_subclass(S)
    (s * 3).sum().backward()
    print(s.is_leaf, leaf.grad, type(leaf.grad) is Tensor)
    w = Tensor._make_subclass(S, torch.ones(2), True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    (w * 2).sum().backward()
    optimizer.step()
    print(w, type(w.grad) is Tensor)
    s = S([1.0, 2.0])
    with torch._C.DisableTorchFunctionSubclass():
        print(type(s + 1) is Tensor)
    print([type(r).__name__ for r in (s + torch.ones(2), torch.ones(2) + s, s + T([1.0]), T([1.0]) + s, nn.Linear(2, 1)(s), *s)])
    try:
        torch.add(s, Other([1.0]))
    except TypeError as error:
        print(str(error)[:40])
    print(type(torch.ones(2).as_subclass(Plain) + 1) is Tensor, type(Weight(torch.ones(2)) + 1) is Tensor)
    seen = []
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))
    with Mode():
        F.relu(torch.zeros(2) + 1)
    print(seen, torch.overrides.has_torch_function((s,)), torch.overrides.resolve_name(torch.add))
"""


def _run(program, *options):
    path = [sys.executable, *options, "-c", textwrap.dedent(program)]
    done = subprocess.run(path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("program", [LOGGING, UNITS], ids=["logging", "units"])
def test_programs_with_subclasses_print_the_same_as_on_pytorch(program):
    install = "import mytorch; mytorch.install_as_torch()\n"
    theirs, ours = _run(program), _run(install + textwrap.dedent(program))
    assert ours == theirs


def test_classes_and_modes_change_no_code_of_the_library():
    _run("""
        import mytorch
        from mytorch.arrays.overriding import PLAIN
        from mytorch.compat.overrides import BaseTorchFunctionMode
        before = {name: f.__code__ for name, f in vars(mytorch).items() if hasattr(f, "__code__")}
        class S(mytorch.Tensor): pass
        class Plain(mytorch.nn.Parameter): pass
        assert type(mytorch.ones(2) + 1) is mytorch.Tensor
        assert type(mytorch.ones(2).as_subclass(S) + 1) is S
        plain = set(PLAIN)
        assert mytorch.Tensor in plain and mytorch.nn.Parameter in plain and S not in plain
        with BaseTorchFunctionMode():
            assert not PLAIN and type(mytorch.add(mytorch.ones(2), 1)) is mytorch.Tensor
        assert plain == PLAIN
        assert all(vars(mytorch)[name].__code__ is code for name, code in before.items())
    """)


def test_absent_parts_raise_when_they_are_created():
    _run("""
        import mytorch
        mytorch.install_as_torch()
        import torch
        from torch.distributed.elastic.multiprocessing.errors import record
        x = torch.eye(2)
        for make, word in (
            (lambda: torch.masked.MaskedTensor(x, x), "masked"),
            (lambda: torch.utils.data.IterDataPipe(), "data pipes"), (lambda: torch.package.PackageExporter("x"), "package"),
            (lambda: x.to_sparse_bsr((1, 1)), "sparse"),
            (lambda: torch.quantize_per_tensor(x, 1, 0, torch.qint8), "quant"),
            (lambda: torch.ops.aten.no_such(x), "aten.no_such"),
            (lambda: torch.ao.quantization.get_default_qconfig("x86"), "quantization"),
        ):
            try:
                make()
            except NotImplementedError as error:
                assert word in str(error), error
            else:
                raise AssertionError(word)
        assert record(len)([1, 2]) == 2 and x.layout != torch.sparse_coo
        @torch.library.custom_op("myns::f", mutates_args=())
        def f(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        assert torch.equal(torch.ops.myns.f(x), x * 2) and torch.equal(torch.ops.myns.f.default(x), x * 2)
        library = torch.library.Library("mylib", "DEF")
        library.define("g(Tensor x) -> Tensor")
        library.impl("g", lambda x: x + 1, "CPU")
        assert torch.equal(torch.ops.mylib.g(x), x + 1)
    """)


def test_sparse_names_raise_in_native_mode():
    with pytest.raises(NotImplementedError, match="sparse layouts of blocks"):
        mytorch.sparse_bsr_tensor([0, 1], [0], [[[1.0]]])
    assert not hasattr(mytorch, "Graph")


def test_arrays_and_tracebacks_after_the_first_subclass():
    class Logged(mytorch.Tensor):
        pass

    mytorch.ones(2).as_subclass(Logged) + 1
    x = mytorch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert type(x.data + 1) is type(x.data)
    assert mytorch.add(x.grad, 1).tolist() == [4, 4]
    assert type(x + 1) is mytorch.Tensor
    with pytest.raises(RuntimeError) as caught:
        mytorch.nn.functional.linear(mytorch.ones(2, 3), mytorch.ones(2, 2))
    frame = caught.tb
    while frame is not None:  # debuggers read the variables of each frame
        assert isinstance(dict(frame.tb_frame.f_locals), dict)
        frame = frame.tb_next


def test_functions_keep_their_signature_and_source_after_the_first_subclass():
    class Logged(mytorch.Tensor):
        pass

    mytorch.ones(2).as_subclass(Logged) + 1
    assert "def apply_(self, callable" in inspect.getsource(mytorch.Tensor.apply_)
    assert list(inspect.signature(mytorch.Tensor.apply_).parameters) == ["self", "callable"]
    assert list(inspect.signature(mytorch.nn.functional.gelu).parameters)[:2] == ["input", "approximate"]


def test_subclasses_may_use_the_names_of_internal_slots():
    _run("""
        import copy, io, pickle
        import mytorch
        mytorch.install_as_torch()
        import torch

        class Annotated(torch.Tensor):
            _data: torch.Tensor
            _edge: object = "none"

            def __new__(cls, data):
                self = torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype)
                self._data = data
                return self

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return func(*[x._data if isinstance(x, cls) else x for x in args], **(kwargs or {}))

        class Plain(torch.Tensor):
            _view = None
            _data: str

            def label(self, text):
                self._edge = text

        class Slots(torch.Tensor):
            __slots__ = ["_data", "_edge"]

        x = torch.arange(6.0).reshape(2, 3)
        wrapped = Annotated(x)
        assert wrapped._data is x and wrapped._edge == "none" and wrapped.shape == (2, 3) and wrapped.numel() == 6
        assert torch.equal(wrapped + 1, x + 1)
        wrapped._edge = "mine"
        assert wrapped._edge == "mine"
        for cls in (Plain, Slots):
            y = x.clone().as_subclass(cls).requires_grad_()
            try:
                y._data
            except AttributeError:
                pass
            else:
                raise AssertionError("a value was never assigned")
            y._data, y._edge = "label", [1]
            result = (y[0] * 2).sum() + y.sum()
            result.backward()
            assert torch.equal(y.grad.as_subclass(torch.Tensor), torch.tensor([[3.0] * 3, [1.0] * 3]))
            assert y._data == "label" and float(result) == 21 and (cls is Slots or y._view is None)
            if cls is Slots:
                assert y._edge == [1]
            del y._data
            assert not hasattr(y, "_data") and y.shape == (2, 3)
    """)
