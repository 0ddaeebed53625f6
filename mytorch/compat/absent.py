"""Parts of PyTorch that are not here, for the packages that only mention them.

What traces, compiles, exports, shards or quantises has no counterpart in an eager library. A program that names such a
part, in an annotation or an `isinstance`, goes on; one that uses it is told so by an AbsentError, which is a NotImplementedError.
"""

from types import ModuleType

# The modules, with what they are for; all that lies below them is absent likewise.
MODULES = {
    "_C": "PyTorch's C++ core",
    "_dynamo": "compiling",
    "_functorch": "compiling",
    "_higher_order_ops": "compiling",
    "_inductor": "compiling",
    "_logging": "compiling",
    "_ops": "compiling",
    "_prims_common": "compiling",
    "_subclasses": "tracing",
    "ao": "quantisation",
    "distributed._composable": "sharding",
    "distributed._functional_collectives": "sharding",
    "distributed._shard": "sharding",
    "distributed._tensor": "sharding",
    "distributed.algorithms._checkpoint": "sharding",
    "distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks": "overlapped optimizers",
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": "local SGD",
    "distributed.algorithms.join": "uneven inputs",
    "distributed.algorithms.model_averaging": "local SGD",
    "distributed.checkpoint": "sharding",
    "distributed.constants": "time limits",
    "distributed.device_mesh": "sharding",
    "distributed.elastic": "elastic launching",
    "distributed.fsdp": "sharding",
    "distributed.pipelining": "pipelines",
    "distributed.rpc": "remote procedure calls",
    "distributed.tensor": "sharding",
    "export": "exporting",
    "futures": "remote procedure calls",
    "fx": "tracing",
    "mps": "Apple's GPUs",
    "nn.attention.flex_attention": "compiled attention",
    "onnx": "exporting",
    "package": "packaging",
    "quantization": "quantisation",
    "sparse": "sparse tensors",
    "utils._python_dispatch": "dispatching",
    "utils._triton": "compiling",
    "utils.mobile_optimizer": "exporting",
    "classes": "scripted classes",
    "masked": "masked tensors",
    "mtia": "other devices",
    "nested": "nested tensors",
    "overrides": "dispatching",
    "distributed.nn": "collectives with gradients",
    "distributed.launcher": "elastic launching",
    "distributed._tools": "sharding",
    "distributed.utils": "sharding",
    "utils.cpp_extension": "C++ extensions",
    "utils.flop_counter": "dispatching",
    "utils._sympy": "tracing",
    "utils._mode_utils": "dispatching",
    "utils.data.datapipes": "data pipes",
    "utils.data.graph_settings": "data pipes",
    "return_types": "C++ results",
    "nn.attention.varlen": "attention of packed rows",
    "vision.io": "reading videos",
    "xpu": "Intel's GPUs",
}
# Names in them that leave their argument as it is, or answer that nothing of the kind is there.
_UNCHANGED = {"wrap", "disable", "allow_in_graph", "register_dataclass", "compile_ignored", "assume_constant_result"}
_FALSE = {
    "is_available",
    "is_fx_tracing",
    "is_tracing",
    "is_initialized",
    "is_compiling",
    "has_triton",
    "has_triton_package",
    "is_rpc_available",
}
_NOTHING = {
    "mark_dynamic",
    "maybe_mark_dynamic",
    "mark_static",
    "mark_static_address",
    "reset",
    "register_pytree_node",
    "is_exporting",
    "current_device",
    "_log_api_usage_once",
}


def home_of(path):
    """The absent module that a path below `torch` is, or lies in; None if it is none."""
    while path:
        if path in MODULES:
            return path
        path = path.rpartition(".")[0]
    return None


def _refusal(name, what):
    return AbsentError(f"torch.{name} is for {what}, which mytorch does not do: it is eager throughout.")


class AbsentError(NotImplementedError, AttributeError):
    """Something that stands for an absent part of PyTorch was used."""


class _Absence:
    """What absent classes are made of: objects that can be passed on, and not be used."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise _refusal(*self._absent)

    def __call__(self, *args, **kwargs):
        raise _refusal(*self._absent)


def _answer(value):
    return lambda *args, **kwargs: value


def _unchanged(obj=None, *args, **kwargs):
    return obj if callable(obj) or isinstance(obj, str) else lambda f: f


class Absent(ModuleType):
    """A module of which every name can be mentioned."""

    def __init__(self, path):
        home = home_of(path)
        super().__init__(f"mytorch.{path}", f"Not here: {MODULES[home]}.")
        self.__path__ = []
        self._where = (path, MODULES[home])

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_where",):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        path, what = self._where
        full = f"{path}.{name}"
        if name in _UNCHANGED:
            found = _unchanged
        elif name in _FALSE:
            found = _answer(False)
        elif name in _NOTHING:
            found = _answer(None)
        elif name.lstrip("_")[:1].isupper():
            found = type(name, (_Absence,), {"__module__": f"torch.{path}", "_absent": (full, what)})
        else:

            def found(*args, **kwargs):
                raise _refusal(full, what)

        setattr(self, name, found)
        return found
