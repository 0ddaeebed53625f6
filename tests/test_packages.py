"""`install_as_torch()` for packages that were written for PyTorch: versions, absent parts, names at the top of `torch`."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mytorch
from mytorch.compat import stubs

from .own_process import ROOT


def run(program):
    program = "import mytorch; mytorch.install_as_torch()\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_versions_and_specs_answer_as_packages_expect():
    out = run("""
        import importlib.metadata, importlib.util, torch
        print(importlib.metadata.version("torch"), torch.__version__, torch.version.hip)
        print(importlib.util.find_spec("torch") is not None, importlib.util.find_spec("torch.nn") is not None)
        print(any(d.metadata["Name"] == "torch" for d in importlib.metadata.distributions()))
        try:
            importlib.metadata.version("no-such-package")
        except importlib.metadata.PackageNotFoundError:
            print("none")
    """)
    assert out == ["2.13.0", "2.13.0", "None", "True", "True", "True", "none"]


def test_parts_that_are_absent_can_be_mentioned_and_not_used():
    out = run("""
        import torch
        from torch.masked import MaskedTensor, as_masked_tensor
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.checkpoint import FileSystemReader
        def f(x: "MaskedTensor | None"): return x
        assert not isinstance(torch.ones(1), PipelineStage)
        class Masked(torch.masked.MaskedTensor): pass
        from torch.distributed import rpc
        assert rpc.api._require_initialized(f)(2) == 2  # packages use the decorator on import
        for use in (lambda: as_masked_tensor(f), lambda: Masked(f).get_data(), PipelineStage, lambda: FileSystemReader("a")):
            try:
                use()
            except NotImplementedError as error:
                assert "mytorch does not support" in str(error), error
            else:
                raise AssertionError(use)
        print("done", hasattr(torch, "no_such_name"))
    """)
    assert out == ["done", "False"]


def test_every_absent_name_can_be_imported_and_hasattr_finds_those_of_pytorch():
    """Functions of the C++ core are an exception, because programs call those that they find."""
    run("""
        import torch
        from torch._C import _jit_made_up, MadeUp
        from torch._inductor.utils import made_up
        from torch._dynamo import made_up, disable
        import torch._C._distributed_c10d, torch._inductor.codecache
        from torch._C._distributed_c10d import Reducer
        class Inner(MadeUp): pass
        for call in (_jit_made_up, made_up, torch._inductor.codecache, lambda: torch._C._jit_pass_lint(1), MadeUp, Reducer):
            try:
                call()
            except NotImplementedError as error:
                assert "mytorch does not support internals" in str(error), error
            else:
                raise AssertionError(call)
        for place, present, absent in (
            (torch._C, "Graph _ScalingType _functorch _distributed_c10d", "_jit_set_profiling_executor _rpc_init _CudaDeviceProperties made_up"),
            (torch._C._cpu, "AnyClass", "_is_vnni_supported"), (torch._dynamo, "config mark_dynamic reset_code_caches", "not_a_name"),
            (torch._inductor, "config", "not_a_name"), (torch.xpu, "is_available XPUGraph", "not_a_name"),
            (torch.ops.aten, "add _int_mm", "not_a_name _scaled_mm_v3"),
        ):
            assert all(hasattr(place, name) for name in present.split()), (place, present)
            assert not any(hasattr(place, name) for name in absent.split()), (place, absent)
        assert torch._C.dtype is torch.dtype and torch._C.Size is torch.Size and torch._C.device is torch.device
        torch._dynamo.config.suppress_errors = torch._inductor.config.triton.cudagraphs = True
        assert getattr(torch._C, "_made_up", 5) == 5 and not torch.xpu.is_available() and torch._dynamo.reset_code_caches() is None
    """)


def test_the_table_of_absent_names_is_that_of_pytorch(torch):
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the table has the names of PyTorch 2.13")
    done = subprocess.run(
        [sys.executable, "docs/make_absent_names.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_absent_parts_are_not_in_native_mode():
    assert stubs.home_of("masked.maskedtensor.core") == "masked"
    assert stubs.home_of("optim") is None
    assert not hasattr(mytorch, "masked")
    with pytest.raises(ModuleNotFoundError):
        __import__("mytorch.masked")


def test_names_of_the_compiler_are_plain_python():
    out = run("""
        import torch
        assert torch.sym_max(2, 3) == 3 and torch.sym_float(2) == 2.0 and not isinstance(3, torch.SymInt)
        torch._check(True)
        for error, check in ((RuntimeError, torch._check), (ValueError, torch._check_value), (TypeError, torch._check_type)):
            try:
                check(False, lambda: "words")
            except error as e:
                assert str(e) == "words"
            else:
                raise AssertionError(check)
        for given in ((1,), (torch.tensor(True),), (False, "words")):  # not a bool, and a message that is no function
            try:
                torch._check(*given)
            except TypeError as error:
                assert "must be a" in str(error)
            else:
                raise AssertionError(given)
        assert torch.get_device_module("cpu").device_count() == 1 and torch.accelerator.device_count() == torch.cuda.device_count()
        hint: torch.LongTensor | None = None
        assert isinstance(torch.ones(2).long(), torch.LongTensor) and torch.FloatTensor(2, 3).shape == (2, 3)
        with torch.device("meta"):
            assert torch.nn.Linear(2, 3).weight.is_meta
        print("done")
    """)
    assert out == ["done"]


def test_operators_of_packages_are_their_functions():
    out = run("""
        import torch
        @torch.library.custom_op("mine::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        @double.register_fake
        def _(x):
            return x
        double.register_autograd(lambda ctx, g: g * 10, setup_context=lambda ctx, inputs, output: None)
        x = torch.ones(2, requires_grad=True)
        double(x).sum().backward()
        print(double(x).tolist()[0], x.grad.tolist()[0])

        @torch.library.custom_op("mine::scaled", mutates_args=())
        def scaled(x: torch.Tensor, by: float = 2.0, *, shift: float = 0.0) -> torch.Tensor:
            return x * by + shift
        def setup(ctx, inputs, keyword_only_inputs, output):
            ctx.by, ctx.shift = inputs[1], keyword_only_inputs["shift"]
        scaled.register_autograd(lambda ctx, g: (g * ctx.by + ctx.shift, None), setup_context=setup)
        x = torch.ones(1, requires_grad=True)
        y = scaled(by=3.0, x=x, shift=1.0) + scaled(x)
        y.backward()
        print(y.item(), x.grad.item())
    """)
    assert out == ["2.0", "10.0", "6.0", "6.0"]


def test_float8_holds_and_casts():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    for name in ("float8_e4m3fn", "float8_e5m2"):
        ours = mytorch.tensor(x).to(getattr(mytorch, name)).float()
        assert ours.tolist() == torch.tensor(x).to(getattr(torch, name)).float().tolist()


def test_views_that_repeat_nothing_may_be_written():
    x = mytorch.arange(3.0)
    x.expand(1, 3).add_(1)
    x.T.reshape(3, 1).expand(-1, 1).mul_(2)
    assert x.tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(RuntimeError, match="single memory location"):
        x.expand(2, 3).add_(1)


def test_groups_of_tensors_by_device_and_dtype():
    from mytorch.utils._foreach_utils import _group_tensors_by_device_and_dtype

    a, b, c = mytorch.ones(1), mytorch.ones(2).double(), mytorch.ones(3)
    groups = _group_tensors_by_device_and_dtype([[a, b, c], [1, 2, 3]])
    (lists, indices) = groups[a.device, mytorch.float32]
    assert indices == [0, 2]
    assert lists[0][1] is c
    assert lists[1] == [1, 3]


def test_names_of_the_core_can_be_mentioned():
    out = run("""
        import torch
        from torch import ScriptModule, Future, Graph
        from torch.profiler import ProfilerAction, tensorboard_trace_handler
        from torch.serialization import MAP_LOCATION
        from torch.distributed import TCPStore
        from torch.utils import model_zoo
        from torch.functional import einsum
        from torch.distributions.multivariate_normal import Distribution
        print(torch.__name__, torch.torch is torch, issubclass(ScriptModule, torch.nn.Module), torch.math.pi > 3)
        print(callable(torch.autograd.profiler.emit_nvtx), isinstance(1, Graph))
        try:
            torch.sparse_bsr_tensor([0], [0], [1.0])
        except NotImplementedError:
            print("refused")
        print(torch._C._nn._parse_to("cpu", torch.float64, non_blocking=True)[1:3])
    """)
    assert out == ["torch", "True", "True", "True", "True", "False", "refused", "(torch.float64,", "True)"]


def test_optimizers_that_call_no_constructor_step():
    class Around(mytorch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            self.inner.step()

    p = mytorch.nn.Parameter(mytorch.ones(2))
    p.sum().backward()
    Around(mytorch.optim.SGD([p], lr=0.5)).step()
    assert p.tolist() == [0.5, 0.5]


def test_products_are_counted():
    from mytorch.utils.flop_counter import FlopCounterMode

    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    found = []
    for L, Mode in ((mytorch, FlopCounterMode), (torch, Theirs)):
        net = L.nn.Sequential(L.nn.Conv2d(3, 4, 3, padding=1), L.nn.Flatten(), L.nn.Linear(100, 7))
        with Mode(display=False) as counter, L.no_grad():
            net(L.ones(2, 3, 5, 5)) @ L.ones(7, 3)
        found.append(counter.get_total_flops())
    assert found[0] == found[1]


def test_a_profilers_schedule_is_pytorchs():
    torch = pytest.importorskip("torch")
    options = {"wait": 2, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 3}
    mine, theirs = mytorch.profiler.schedule(**options), torch.profiler.schedule(**options)
    assert [mine(i).name for i in range(16)] == [theirs(i).name for i in range(16)]


def test_leaves_of_trees_have_a_class():
    from mytorch.utils import _pytree

    _, spec = _pytree.tree_flatten([1, {"a": 2}])
    assert isinstance(spec.children_specs[0], _pytree.LeafSpec)
    assert spec.children_specs[0] == _pytree.LeafSpec()


def test_safetensors_files_load_and_transformers_imports(tmp_path):
    pytest.importorskip("safetensors")
    out = run(f"""
        import importlib.util, torch
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file
        path = {str(tmp_path / "m.safetensors")!r}
        save_file({{"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}}, path)
        loaded = load_file(path)
        assert loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and loaded["b"].dtype is torch.bfloat16
        with safe_open(path, framework="pt") as file:
            assert file.get_slice("a")[:, 1:].tolist() == [[1, 2], [4, 5]]
        import accelerate
        print(accelerate.Accelerator is not None)
    """)
    assert out == ["True"]
    pytest.importorskip("transformers")
    run(f"""
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=16)).eval()
        model.save_pretrained({str(tmp_path / "model")!r})
        again = GPT2LMHeadModel.from_pretrained({str(tmp_path / "model")!r}).eval()
        ids = torch.tensor([[1, 2, 3]])
        assert torch.equal(model(ids).logits, again(ids).logits)
    """)


def test_names_that_packages_import():
    """Each line stopped a package at its import, or its first test."""
    run("""
        import torch
        from torch._dynamo import OptimizedModule, list_backends
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
        from torch._dynamo.eval_frame import OptimizedModule as again
        from torch._tensor_str import PRINT_OPTS, _add_suffixes, _str_intern, _tensor_str
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
        from torch.jit import _get_trace_graph
        from torch.nn.modules.padding import _CircularPadNd, _ReflectionPadNd, _ReplicationPadNd
        from torch.testing._comparison import assert_close
        from torch.utils.data import IterDataPipe, functional_datapipe
        from torch.utils.data._utils.collate import np_str_obj_array_pattern
        assert OptimizedModule is again and list_backends() == ["inductor"] and get_proxy_mode() is None
        assert isinstance(torch.nn.ReflectionPad2d(1), _ReflectionPadNd)
        assert not isinstance(torch.nn.ReflectionPad2d(1), (_ReplicationPadNd, _CircularPadNd))
        assert PRINT_OPTS.threshold == 1000 and _tensor_str(torch.ones(2), 0) == "[1., 1.]"
        assert _add_suffixes("tensor([1]", ["a=1"], 7, force_newline=True) == "tensor([1],\\n       a=1)"
        assert _str_intern(torch.ones(1), tensor_contents="x") == "tensor(x)"
        assert not hasattr(torch.ops.aten, "no_such_operator")
        table = {torch.ops.aten._sparse_addmm.default: 1, torch.ops.aten.add.Tensor: 2}
        assert len(table) == 2 and torch.ops.aten.add.Tensor in table
        @functional_datapipe("made")
        class Pipe(IterDataPipe): pass
        with torch.compiler.set_stance("force_eager"): pass
        with TransformGetItemToIndex():
            assert torch.arange(3)[torch.tensor(1)] == 1
        torch.nn.init._no_grad_uniform_(torch.ones(2), 0.0, 1.0)
        torch._assert(True, "")
        x = torch.ones(2)
        assert x._cdata == x._cdata != torch.ones(2)._cdata
    """)


def test_row_pointers_and_row_indices(rng):
    torch = pytest.importorskip("torch")
    from mytorch.compat import torch_only as names

    for size, count, out_int32 in ((1, 0, False), (5, 0, True), (6, 13, False), (3, 40, True)):
        rows, columns = np.sort(rng.integers(0, size, count)), rng.integers(0, 9, count)
        expected = torch._convert_indices_from_coo_to_csr(torch.tensor(rows), size, out_int32=out_int32)
        pointers = names._convert_indices_from_coo_to_csr(mytorch.tensor(rows), size, out_int32=out_int32)
        assert pointers.tolist() == expected.tolist()
        assert str(pointers.dtype)[-5:] == str(expected.dtype)[-5:]
        for transpose in (False, True):
            other = torch._convert_indices_from_csr_to_coo(
                expected, torch.tensor(columns).to(expected.dtype), transpose=transpose
            )
            own = names._convert_indices_from_csr_to_coo(
                pointers, mytorch.tensor(columns).to(pointers.dtype), transpose=transpose
            )
            assert own.tolist() == other.tolist()


def test_torch_function_of_classes_that_are_not_tensors():
    out = run("""
        import torch
        class Lazy:
            def __init__(self, value): self.value = value
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return "seen " + function.__name__
        one, x = Lazy(1), torch.ones(2, 2)
        calls = [torch.clone(one), torch.abs(one), torch.add(x, one), torch.matmul(x, one), torch.numel(one),
                 torch.linalg.solve(one, x), torch.linalg.cholesky(one), x.matmul(one), torch.cat([x, one])]
        names = "clone abs add matmul numel solve cholesky matmul cat".split()
        assert all(c == f"seen {n}" or c == f"seen linalg_{n}" for c, n in zip(calls, names)), calls
        print(type(x + x).__name__, float((x @ x).sum()))
    """)
    assert out == ["Tensor", "8.0"]


def test_hooks_of_one_tensor_receive_the_same_gradient():
    run("""
        import torch
        x = torch.ones(2, requires_grad=True)
        y = x * 3
        seen = []
        y.register_hook(seen.append)
        y.register_hook(lambda grad: setattr(grad, "note", 1))
        y.register_hook(lambda grad: grad * 2 if seen[0].note == 1 else None)
        y.register_hook(seen.append)
        y.sum().backward()
        assert x.grad.tolist() == [6.0, 6.0]
        assert seen[1].tolist() == [2.0, 2.0] and not hasattr(seen[1], "note")
    """)


def test_futures():
    from mytorch.compat import futures

    one, two = futures.Future(), futures.Future()
    both, doubled = futures.collect_all([one, two]), one.then(lambda f: 2 * f.wait())
    assert not both.done()
    one.set_result(2)
    two.set_result("a")
    assert doubled.wait() == 4
    assert futures.wait_all([one, two]) == [2, "a"]
    assert both.wait() == [one, two]
    failed = futures.Future()
    after = failed.then(lambda f: f.wait())
    failed.set_exception(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        after.wait()
    with pytest.raises(RuntimeError, match="only be marked completed once"):
        failed.set_result(1)
    with pytest.raises(RuntimeError, match="expected a completed future"):
        futures.Future().value()


def test_an_error_of_a_callback_does_not_reach_the_result():
    from mytorch.compat import futures

    def fails(future):
        raise ValueError("of the callback")

    for early in (True, False):
        future, later = futures.Future(), []
        if early:
            future.add_done_callback(fails)
            future.add_done_callback(lambda f: later.append(f.value()))
            with pytest.warns(UserWarning, match="a callback raised ValueError: of the callback"):
                future.set_result(3)
        else:
            future.set_result(3)
            with pytest.warns(UserWarning, match="of the callback"):
                future.add_done_callback(fails)
            future.add_done_callback(lambda f: later.append(f.value()))
        assert (future.wait(), later) == (3, [3])


def test_sdp_kernel_selects_attention():
    from mytorch.compat.backends import cuda

    q = mytorch.randn(1, 2, 5, 4)
    want = mytorch.nn.functional.scaled_dot_product_attention(q, q, q)
    for options in ({}, {"enable_flash": False, "enable_mem_efficient": False, "enable_cudnn": False}):
        with pytest.warns(FutureWarning, match="sdp_kernel"), cuda.sdp_kernel(**options):
            found = mytorch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert mytorch.allclose(found, want, atol=1e-6)


def test_distributions_in_other_class_hierarchies():
    """gpytorch and pyro combine distributions and transforms with modules, and replace attributes by properties."""
    D, nn = mytorch.distributions, mytorch.nn

    class Learned(D.Transform, nn.Module):
        def __init__(self, net):
            super().__init__(cache_size=1)
            self.net = net

    assert Learned(nn.Linear(2, 2)).net.in_features == 2

    class Prior(nn.Module, D.Normal):
        def __init__(self):
            nn.Module.__init__(self)
            D.Normal.__init__(self, mytorch.zeros(3), mytorch.ones(3))
            for name in ("loc", "scale"):
                value = getattr(self, name)
                delattr(self, name)
                self.register_buffer(name, value)

    assert Prior().sample().shape == (3,)

    class Stored(D.MultivariateNormal):
        @property
        def _unbroadcasted_scale_tril(self):
            return self.factor

        @_unbroadcasted_scale_tril.setter
        def _unbroadcasted_scale_tril(self, value):
            self.factor = value

    matrix = mytorch.eye(2) * 4
    assert Stored(mytorch.zeros(2), matrix).factor.tolist() == [[2.0, 0.0], [0.0, 2.0]]


def test_assert_close_compares_tensors_of_half_precision_in_pytorch_mode():
    out = run("""
        import torch
        for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.uint8, torch.float64):
            x = torch.tensor([0.0, 1.0, 2.0, 1.0]).to(dtype)
            torch.testing.assert_close(x, x.clone(), rtol=0.0, atol=0.0)
            try:
                torch.testing.assert_close(x, (x.to(torch.complex64) * 0 + 1).to(dtype))
            except AssertionError:
                print(dtype)
    """)
    assert out == [f"torch.{d}" for d in "bfloat16 float16 float8_e4m3fn complex64 bool uint8 float64".split()]


def test_namespaces_of_operators_may_have_the_names_of_modules():
    """`mytorch.ops` is a package with modules such as `attention`, and a namespace of operators in PyTorch."""
    out = run("""
        import mytorch, pkgutil, torch
        names = [m.name for m in pkgutil.iter_modules(mytorch.ops.__path__)]
        for name in names:
            twice = torch.library.custom_op(f"{name}::twice", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
            assert getattr(torch.ops, name).twice(torch.ones(1)).item() == 2, name
        import mytorch.ops.attention, torch.nn.functional as F
        assert torch.ops.attention.twice(torch.ones(1)).item() == 2
        x = torch.randn(1, 2, 3, 4)
        print(len(names) > 20, F.scaled_dot_product_attention(x, x, x).shape, F.conv1d(x[0], torch.ones(3, 3, 1)).shape)
    """)
    assert " ".join(out) == "True torch.Size([1, 2, 3, 4]) torch.Size([2, 3, 4])"


def test_absent_exceptions_can_be_caught():
    out = run("""
        import torch
        from torch._C import FatalError, JITException
        from torch.distributed.elastic.rendezvous import RendezvousError
        from torch.package import PackagingError
        caught = 0
        for error in (torch.jit.Error, FatalError, JITException, RendezvousError, PackagingError):
            try:
                try:
                    raise KeyError
                except error:
                    pass
            except KeyError:
                caught += 1
        print(caught)
    """)
    assert out == ["5"]


def test_subclasses_of_normal_distributions_may_have_other_shapes():
    """gpytorch's samples have one axis more than the tensors that PyTorch's class knows."""
    D, size = mytorch.distributions, mytorch.Size

    class Matrices(D.MultivariateNormal):
        _extended_shape = lambda self, sample_shape=size(): size((*sample_shape, *self._batch_shape, 3, 2))  # noqa: E731

        def sample(self, sample_shape):
            return sample_shape.numel()

    class Low(D.LowRankMultivariateNormal):
        _extended_shape = Matrices._extended_shape

    matrices = Matrices(mytorch.zeros(2, 6), mytorch.eye(6) * 4)
    assert mytorch.equal(matrices.variance, mytorch.full((2, 6), 4.0))
    low = Low(mytorch.zeros(2, 6), mytorch.ones(6, 1), mytorch.full((6,), 3.0))
    assert mytorch.equal(low.variance, mytorch.full((2, 6), 4.0))
    with pytest.warns(FutureWarning):
        assert matrices.sample_n(5) == 5


def test_sizes_are_trees():
    """pyro calls a function for each leaf, and for each tuple one that maps the first over its items."""
    from mytorch.utils import _pytree

    shape = mytorch.ones(2, 3).shape
    leaves, spec = _pytree.tree_flatten({"a": shape})
    assert (leaves, spec.num_leaves) == ([2, 3], 2)
    assert _pytree.tree_map(lambda n: n + 1, shape) == (3, 4)


def test_traced_assertions_are_nodes():
    out = run("""
        import torch
        def checked(x):
            torch._assert(x.shape[-1] == 3, "wrong size")
            return x * 2
        module = torch.fx.symbolic_trace(checked)
        print(module(torch.ones(2, 3)).sum().item())
        try:
            module(torch.ones(2, 4))
        except AssertionError as error:
            print(error)
    """)
    assert out == ["12.0", "wrong", "size"]
