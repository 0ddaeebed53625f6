"""The interception of public functions: no extension, class or mode changes the library, and each call path asks."""

import ast
import subprocess
import sys
import textwrap

import pytest

import mytorch
from mytorch.arrays.overriding import PLAIN, asks
from mytorch.compat.overrides import TorchFunctionMode

from . import layers

# (file below mytorch, word) -> why it may use what no other file uses.
EXCEPTIONS = {
    ("fx/proxy.py", "dis"): "unpacks `n, c = x.shape` during a trace, as torch.fx does",
    ("fx/proxy.py", "co_code"): "see `dis`",
    ("fx/proxy.py", "f_lasti"): "see `dis`",
}
WORDS = {"co_code", "f_lasti", "dis", "__build_class__", "setprofile", "settrace"}


def _uses(path):
    """Yields the words that change or read running code in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and (node.attr in WORDS - {"dis"}):
            yield node.attr
        if isinstance(node, ast.Attribute) and node.attr == "__code__" and isinstance(node.ctx, ast.Store):
            yield "__code__ ="
        if isinstance(node, ast.Import) and any(alias.name == "dis" for alias in node.names):
            yield "dis"
        if isinstance(node, ast.ImportFrom) and node.module == "dis":
            yield "dis"


def test_no_file_changes_or_reads_running_code():
    found = {(path.relative_to(layers.PACKAGE).as_posix(), word) for path in layers.FILES for word in _uses(path)}
    assert found == EXCEPTIONS.keys()


# Files that read frames of the program -> PyTorch's equivalent, or the reason.
FRAMES = {
    "arrays/errors.py": "lines of the program: TORCH_WARN, stacks of torch.profiler, errors of torch.export",
    "utils/_traceback.py": "torch.utils._traceback.report_compile_source_on_error",
    "compat/paths.py": "`importlib.util.find_spec` of a package that is absent; PyTorch's package is never absent",
    "fx/proxy.py": "the unpacking of a proxy, as torch.fx",
    "fx/tracer.py": "fx.wrap, as torch.fx",
}


def test_frames_are_read_in_listed_files_only():
    words = {"_getframe", "currentframe", "walk_stack", "tb_frame"}
    found = set()
    for path in layers.FILES:
        nodes = ast.walk(ast.parse(path.read_text()))
        if any(isinstance(node, ast.Attribute) and node.attr in words for node in nodes):
            found.add(path.relative_to(layers.PACKAGE).as_posix())
    assert found == FRAMES.keys()


def test_the_library_does_not_use_the_public_constructor():
    """In PyTorch mode it is PyTorch's legacy constructor."""
    calls = []
    for path in layers.FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Tensor", "mytorch.Tensor"):
                calls.append(f"{path.name}:{node.lineno}")
    assert not calls


EVERY_EXTENSION = """
    import inspect, types, warnings
    import mytorch
    from mytorch import fft, linalg, nn, special
    from mytorch.nn import functional as F
    warnings.simplefilter("ignore")
    if PYTORCH_MODE:
        mytorch.install_as_torch()
    Tensor = mytorch.Tensor

    def snapshot():
        found = {}
        for place in (Tensor, mytorch.nn.Parameter, mytorch, F, linalg, fft, special, nn.utils):
            for name in known[place]:
                value = vars(place)[name]
                found[place.__name__, name] = value
                if isinstance(value, types.FunctionType):
                    found[place.__name__, name, "code"] = value.__code__, value.__defaults__, value.__kwdefaults__
                if isinstance(value, property):
                    found[place.__name__, name, "get"] = value.fget, value.fset, value.fdel
        return found

    for name in dir(Tensor):
        getattr(Tensor, name, None)  # resolves the methods that are imported on first use
    places = (Tensor, mytorch.nn.Parameter, mytorch, F, linalg, fft, special, nn.utils)
    known = {place: [n for n in vars(place) if n not in ("__warningregistry__", "__doc__", "__dict__")] for place in places}
    import builtins
    build, getters = builtins.__build_class__, dict(vars(builtins))
    before = snapshot()

    class Logged(Tensor):
        pass

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    x = mytorch.randn(2, 3)
    assert type(x.as_subclass(Logged) + 1) is Logged and mytorch.exp(Duck()) == "exp"
    from mytorch.compat.overrides import BaseTorchFunctionMode
    from mytorch.utils._python_dispatch import BaseTorchDispatchMode
    with BaseTorchFunctionMode(), BaseTorchDispatchMode():
        assert (x + 1).shape == (2, 3) and mytorch.zeros(2).sum() == 0
    nested = mytorch.nested.nested_tensor([mytorch.randn(2, 3), mytorch.randn(1, 3)])
    (nested * 2).to_padded_tensor(0.0)
    from mytorch.distributed.device_mesh import init_device_mesh
    from mytorch.distributed.tensor import Replicate, distribute_tensor
    from mytorch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (1,))
    sharded = distribute_tensor(x, mesh, [Replicate()])
    assert type(sharded + sharded) is type(sharded)
    layer = nn.Linear(3, 2)
    assert "linear" in str(mytorch.fx.symbolic_trace(lambda x: F.linear(x, layer.weight).relu()).graph)
    mytorch.export.export(layer, (x,)).module()(x)
    compiled = mytorch.compile(lambda x: (x * 2).sin().sum())
    for _ in range(3):
        y = x.clone().requires_grad_()
        compiled(y).backward()
    mytorch.func.vmap(mytorch.sin)(x)
    mytorch.func.jvp(mytorch.sin, (x,), (x,))
    (x.to_sparse() @ x.T).sum()
    with mytorch.profiler.profile() as profile:
        x @ x.T
    profile.key_averages()
    with mytorch.autocast("cpu"):
        layer(x)
    from mytorch.nn.attention.flex_attention import flex_attention
    q = mytorch.randn(1, 1, 4, 8)
    flex_attention(q, q, q)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)

    after = snapshot()
    changed = sorted({str(key) for key in before if before[key] is not after[key] and before[key] != after[key]})
    assert not changed, changed
    assert builtins.__build_class__ is build and vars(builtins) == getters
"""


@pytest.mark.parametrize("pytorch_mode", [False, True], ids=["native", "pytorch"])
def test_no_extension_changes_attributes_or_code(pytorch_mode):
    program = f"PYTORCH_MODE = {pytorch_mode}\n" + textwrap.dedent(EVERY_EXTENSION)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


class _Seen(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        owner = getattr(func, "__self__", None)
        self.names.append(next((n for n, v in vars(mytorch.Tensor).items() if v is owner), func.__name__))
        return func(*args, **(kwargs or {}))


class _Tagged(mytorch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


# Each kind of call path: closures of ops, in-place, `out=`, variadic and keyword calls, composed functions, metadata, properties.
CALLS = """x + y; y + x; 1 - x; x - 1; x @ y; x.exp(); mytorch.exp(x); mytorch.exp(input=x); x.sum(0); x.sum(dim=0); mytorch.sum(x, dim=0)
    x.add_(y); x.mul_(2.0); x.__iadd__(y); mytorch.add(y, x); mytorch.add(input=y, other=x); y.add(x); mytorch.where(y > 0, x, y)
    mytorch.exp(y, out=x); mytorch.cat([y, x]); mytorch.stack((y, x)); mytorch.einsum("ij,jk->ik", y, x); mytorch.clamp(y, max=x)
    x.view(9); x.reshape(-1); x.flatten(); x.clone(); x.detach(); x.to(mytorch.float64); x[0]; x.__setitem__(0, 1.0); x.chunk(3)
    F.relu(x); F.cross_entropy(x, t); F.linear(y, x); F.layer_norm(y, (3,), weight=x[0]); F.gelu(input=x); F.softmax(x, -1); F.tanh(x)
    mytorch.linalg.norm(x); mytorch.fft.fft(x); mytorch.special.erf(x); mytorch.special.i1(x); mytorch.zeros_like(x); y.copy_(x)
    x.dim(); x.size(); x.is_contiguous(); x.numel(); len(x); x.shape; x.dtype; x.T; x.grad; x.requires_grad; repr(x); x.tolist()
    x.requires_grad_(False); x.svd(); x.new_zeros(2); mytorch.lerp(y, y, x); mytorch.addmm(y, y, x); x.index_fill_(0, t[:1], 0.0)"""
# Calls of `y`, an ordinary tensor, whose further arguments are not tensors in a program without subclasses.
SCOPE = {"mytorch": mytorch, "F": mytorch.nn.functional}


def _scope(kind):
    x = mytorch.rand(3, 3).as_subclass(kind)
    return {**SCOPE, "x": x, "y": mytorch.rand(3, 3), "t": mytorch.tensor([0, 1, 2])}


@pytest.mark.parametrize("call", [c.strip() for c in CALLS.replace("\n", ";").split(";")])
def test_each_path_asks_subclasses_and_modes(call):
    scope = _scope(_Tagged)
    _Tagged.calls.clear()
    eval(call, scope)
    assert _Tagged.calls
    scope, mode = _scope(mytorch.Tensor), _Seen()
    with mode:
        eval(call, scope)
    assert mode.names
    assert mytorch.Tensor in PLAIN


def test_classes_that_are_no_tensors_are_asked():
    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    duck, x = Duck(), mytorch.ones(2)
    for result in (mytorch.add(x, duck), x.add(duck), x + duck):
        assert result == "add"
    results = [
        mytorch.exp(duck),
        mytorch.cat([x, duck]),
        x.add_(duck),
        mytorch.flatten(duck),
        mytorch.nn.functional.relu(duck),
    ]
    assert results == ["exp", "cat", "add_", "flatten", "relu"]


def test_functions_that_no_class_overrides_do_not_ask_classes_that_are_no_tensors():
    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    duck = Duck()
    assert mytorch.add(duck, 1) == "add"  # from now on, every public function asks
    assert mytorch.is_tensor(duck) is False
    for function in (mytorch.tensor, mytorch.as_tensor, mytorch.asarray, mytorch.from_numpy):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            function(duck)
    assert (mytorch.zeros(duck), mytorch.full((2,), duck)) == ("zeros", "full")


def test_every_function_of_a_module_of_functions_asks():
    for module in (mytorch.linalg, mytorch.fft):
        functions = {n: vars(module)[n] for n in module.__all__ if callable(vars(module)[n])}
        silent = {n for n, f in functions.items() if not asks(f) and not isinstance(f, type)}
        assert not silent - {"fftfreq", "rfftfreq"}, silent  # which take no tensors


@pytest.mark.parametrize(
    "arguments", [("ij,jk->ik", "x", "y"), ("ij,jk->ik", ["x", "y"]), ("x", [0, 1], "y", [1, 2], [0, 2])]
)
def test_einsum_passes_its_operands_one_by_one(arguments):
    """As in PyTorch, a class that overrides it has to know one spelling only."""
    received = []

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            received.append((func, args, kwargs or {}))

    scope = {"x": Duck(), "y": mytorch.ones(3, 2)}
    arguments = [
        [scope[a] for a in v] if v == ["x", "y"] else scope.get(v, v) if isinstance(v, str) else v for v in arguments
    ]
    mytorch.einsum(*arguments)
    (function, (equation, *operands), keywords), letters = received[0], str.maketrans("ABC", "ijk")
    assert (function, equation.translate(letters), keywords) == (mytorch.einsum, "ij,jk->ik", {})
    assert operands == [scope["x"], scope["y"]]
