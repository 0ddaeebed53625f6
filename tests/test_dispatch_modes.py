"""Dispatch modes, wrapper subclasses, `torch.ops.aten` and custom operators, in a process in PyTorch mode."""

import subprocess
import sys

from .own_process import ROOT

START = """
import numpy as np
import mytorch
mytorch.install_as_torch()
import torch
from torch import nn
import torch.nn.functional as F
"""


def _run(code):
    lines = code.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + "\n".join(line[indent:] for line in lines)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_dispatch_modes_receive_operators_and_keep_gradients():
    _run("""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Log(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.names = []

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                self.names.append(str(func))
                return func(*args, **(kwargs or {}))

        a = torch.randn(2, 2)
        with Log() as log:
            b = a + 1
            b.sin(), b.sum(), a @ b, F.relu(a), a.mean(), a.softmax(0), a * 2, a.exp(), a.clone(), a[0], torch.cat([a, a]), a.view(4)
        assert log.names == [f"aten.{n}" for n in ("add.Tensor sin.default sum.default mm.default relu.default mean.default "
            "_softmax.default mul.Tensor exp.default clone.default select.int cat.default view.default").split()], log.names

        class Double(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                return out * 2 if func is torch.ops.aten.sin.default else out

        x = torch.ones(2)
        with Double():
            assert torch.equal(x.sin(), torch.tensor([2 * np.sin(np.float32(1))] * 2))
            with Double():
                assert torch.allclose(x.sin(), 4 * torch.tensor(np.sin(np.ones(2, np.float32))))
        assert torch.allclose(x.sin(), torch.tensor(np.sin(np.ones(2, np.float32))))

        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 4), nn.GELU())
        images, labels = torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 3])
        found = []
        for mode in (False, True):
            net.zero_grad()
            if mode:
                with Log():
                    F.cross_entropy(net(images), labels).backward()
            else:
                F.cross_entropy(net(images), labels).backward()
            found.append([p.grad.clone() for p in net.parameters()])
        assert all(torch.allclose(g, h, atol=1e-6) for g, h in zip(*found))
    """)


def test_wrapper_subclasses():
    _run("""
        from torch.utils._pytree import tree_map

        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, elem):
                self = torch.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype, device=elem.device)
                self.elem = elem
                return self

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                names.append(func.__name__)
                inner = lambda x: x.elem if isinstance(x, Wrapped) else x
                outer = lambda x: Wrapped(x) if isinstance(x, torch.Tensor) else x
                return tree_map(outer, func(*tree_map(inner, args), **tree_map(inner, kwargs or {})))

        names = []
        plain = torch.arange(6.0).view(2, 3)
        w = Wrapped(plain)
        assert (w.shape, w.dtype, str(w.device), w.dim(), w.numel(), len(w)) == ((2, 3), torch.float32, "cpu", 2, 6, 2)
        assert names == []
        for f in (lambda x: x + x, lambda x: x.sum(1), lambda x: x.t(), lambda x: x[0], lambda x: x[:, 1:], lambda x: x.view(3, 2),
                  lambda x: torch.cat([x, x]), lambda x: torch.mm(x, x.t()), lambda x: F.softmax(x, 1), lambda x: x.to(torch.float64)):
            out = f(w)
            assert type(out) is Wrapped and torch.equal(out.elem, f(plain)) and out.shape == f(plain).shape
        assert names == ("add.Tensor sum.dim_IntList t.default select.int slice.Tensor view.default cat.default t.default mm.default "
            "_softmax.default _to_copy.default").split(), names
        try:
            torch.Tensor._make_wrapper_subclass(torch.Tensor, (2,))
        except TypeError:
            pass
        else:
            raise AssertionError
    """)


def test_operators_of_aten():
    _run("""
        a, A = torch.randn(2, 3), torch.ops.aten
        same = torch.testing.assert_close
        same(A.add.Tensor(a, a), a + a)
        same(A.mm.default(a, a.t()), a @ a.t())
        same(A.sum.dim_IntList(a, [1]), a.sum(1))
        same(A._softmax(a, 1, False), a.softmax(1))
        same(A._log_softmax.default(a, 1, False), a.log_softmax(1))
        same(A.embedding.default(a, torch.tensor([1])), a[1:])
        same(A.slice.Tensor(a, 1, 0, 2), a[:, :2])
        same(A.select.int(a, 0, 1), a[1])
        same(A._to_copy.default(a, dtype=torch.float64), a.double())
        w, x = torch.randn(4, 2, 3, 3), torch.randn(1, 2, 5, 6)
        same(A.convolution.default(x, w, None, [1, 2], [1, 0], [1, 1], False, [0, 0], 1), F.conv2d(x, w, None, (1, 2), (1, 0)))
        t = torch.randn(2, 4, 3, 3)
        same(A.convolution.default(x, t, None, [2], [1], [1], True, [1], 1), F.conv_transpose2d(x, t, None, 2, 1, 1))
        out, mean, rstd = A.native_layer_norm(a, [3], None, None, 1e-5)
        same(out, F.layer_norm(a, (3,)))
        same((a - mean) * rstd, out)
        values, places = A.max_pool2d_with_indices(x, [2, 2])
        same(values, F.max_pool2d(x, 2))
        same(A.index.Tensor(a, [None, torch.tensor([0, 2])]), a[:, [0, 2]])
        assert not hasattr(A, "no_such_operator") and not hasattr(A.add, "no_such_overload")
        assert str(A.add.Tensor) == "aten.add.Tensor" and A.add.Tensor.name() == "aten::add.Tensor" and A.mm.default is A.mm.default
    """)


def test_custom_operators():
    _run("""
        @torch.library.custom_op("test_ns::sine", mutates_args=())
        def sine(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return torch.from_numpy(np.sin(x.detach().numpy()) * scale)

        try:
            torch.library.opcheck(sine, (torch.randn(3),))
        except Exception as error:
            assert "register_fake" in str(error)
        else:
            raise AssertionError

        @sine.register_fake
        def _(x, scale=1.0):
            return torch.empty_like(x)

        sine.register_autograd(lambda ctx, g: (g * ctx.saved_tensors[0].cos(),),
                               setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
        x = torch.randn(3, requires_grad=True)
        torch.ops.test_ns.sine(x).sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos())
        meta = sine(torch.empty(3, 2, device="meta", dtype=torch.float64))
        assert meta.is_meta and meta.shape == (3, 2) and meta.dtype is torch.float64
        assert set(torch.library.opcheck(sine, (torch.randn(3, requires_grad=True),)).values()) == {"SUCCESS"}
        try:
            sine("text")
        except RuntimeError as error:
            assert "Expected a value of type 'Tensor'" in str(error)
        else:
            raise AssertionError

        @torch.library.custom_op("test_ns::hidden_change", mutates_args=())
        def hidden_change(x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x.clone()

        hidden_change.register_fake(lambda x: torch.empty_like(x))
        assert torch.library.opcheck(hidden_change, (torch.ones(2),), raise_exception=False)["test_schema"] != "SUCCESS"
    """)


def test_function_modes_receive_properties():
    _run("""
        from torch.overrides import TorchFunctionMode

        class Log(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                names.append(func.__name__)
                return func(*args, **(kwargs or {}))

        names, x = [], torch.ones(2, 3)
        with Log():
            assert x.shape == (2, 3) and x.dtype is torch.float32 and not x.requires_grad
            x.sum()
        assert names == ["__get__"] * 3 + ["sum"], names
        assert x.shape == (2, 3) and len(names) == 4
    """)


def test_dispatch_modes_receive_the_products_of_layers():
    _run("""
        import copy
        import itertools
        from torch.utils._python_dispatch import TorchDispatchMode

        class Log(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.seen = []

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                assert func._overloadpacket is func.overloadpacket and copy.deepcopy({func: 1}) == {func: 1}
                if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.convolution):
                    self.seen.append((str(func), [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args], kwargs))
                return func(*args, **(kwargs or {}))

        def seen(layer, shape):
            x = torch.randn(shape, requires_grad=True)
            with Log() as log:
                y = layer(x)
            g = torch.randn(y.shape)
            got = torch.autograd.grad(y, [x, *layer.parameters()], g)
            want = torch.autograd.grad(layer(x), [x, *layer.parameters()], g)
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, want)) and torch.allclose(y, layer(x), atol=1e-5)
            return log.seen

        for bias, shape in itertools.product((False, True), ((4, 3), (4, 5, 3), (3,), (0, 3), (2, 0, 3))):
            rows = np.prod(shape[:-1], dtype=int)
            given = ([(2,)] if bias else []) + [(rows, 3), (3, 2)]
            assert seen(nn.Linear(3, 2, bias=bias), shape) == [(f"aten.{'addmm' if bias else 'mm'}.default", given, {})]
        name = "aten.convolution.default"
        assert seen(nn.Conv2d(4, 6, 3, (1, 2), 1, groups=2), (2, 4, 7, 8)) == [
            (name, [(2, 4, 7, 8), (6, 2, 3, 3), (6,), [1, 2], [1, 1], [1, 1], False, [0, 0], 2], {})
        ]
        assert seen(nn.ConvTranspose2d(4, 6, 3, 2, 1, (1, 0), bias=False), (2, 4, 7, 8)) == [
            (name, [(2, 4, 7, 8), (4, 6, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1], {})
        ]
    """)


def test_typed_constructors_of_sparse_tensors():
    _run("""
        import pickle

        x = torch.sparse.DoubleTensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4, 5]).double(), torch.Size([2, 3]))
        assert x.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]] and x.dtype == torch.float64
        assert isinstance(x, torch.sparse.DoubleTensor) and not isinstance(x.to_dense(), torch.sparse.DoubleTensor)
        assert not isinstance(x, torch.sparse.FloatTensor) and torch.sparse.FloatTensor(2, 3).shape == (2, 3)
        assert torch.sparse.FloatTensor(torch.Size([4])).to_dense().tolist() == [0] * 4 and torch.sparse.LongTensor().shape == (0,)
        assert pickle.loads(pickle.dumps(torch.sparse.LongTensor)) is torch.sparse.LongTensor
        assert str(torch.sparse.LongTensor) == "<type 'torch.sparse.LongTensor'>"
        assert torch.equal(torch.dsmm(x, torch.ones(3, 2).double()), x.to_dense() @ torch.ones(3, 2).double())
    """)


def test_arguments_of_init_process_group_replace_variables():
    _run("""
        import os

        os.environ.update(RANK="1", WORLD_SIZE="1")  # of another program
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
        assert torch.distributed.get_rank() == 0 and torch.distributed.get_world_size() == 1
    """)


def test_modes_receive_the_tensors_that_layers_and_programs_create():
    """But not those that a function of the library creates. All lists are PyTorch's."""
    _run("""
        from torch.utils._python_dispatch import TorchDispatchMode
        names = "empty zeros ones arange zeros_like new_ones lift_fresh full".split()
        class Log(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                name = str(func).split(".")[1]
                if name in names: found.append(name)
                return func(*args, **(kwargs or {}))
        class Creating(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                torch.zeros(2)
                return super().__torch_function__(func, types, args, kwargs or {})
        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
            @staticmethod
            def backward(ctx, g): return g * torch.full((4,), 2.0)
        x = torch.randn(3, 4)
        def hooked():
            y = x.clone().requires_grad_()
            y.register_hook(lambda g: g * torch.arange(4))
            (y * 2).sum().backward()
        cases = [
            (lambda: torch.zeros_like(x), "zeros_like"), (lambda: x.new_ones(3), "new_ones"),
            (lambda: torch.tensor([1.0]), "lift_fresh"), (lambda: torch.relu(x.as_subclass(Creating)), "zeros"),
            (lambda: nn.Linear(4, 2)(x), "empty empty"), (lambda: nn.RNN(4, 2)(x[None]), "empty empty empty empty zeros"),
            (lambda: nn.LSTM(4, 2)(x[None]), "empty empty empty empty zeros zeros"),
            (lambda: nn.MultiheadAttention(4, 2)(x, x, x), "empty empty empty empty"),
            (lambda: torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), "arange arange"),
            (lambda: F.cross_entropy(x, torch.tensor([0, 1, 2])), "lift_fresh"),
            (hooked, "arange"), (lambda: Scaled.apply(x.clone().requires_grad_()).sum().backward(), "full"),
        ]
        for function, expected in cases:
            found = []
            with Log(): function()
            assert found == expected.split(), (expected, found)
    """)
