"""Parts of PyTorch that are not here, for the packages that only mention them.

What traces, compiles, exports, shards or quantises has no counterpart in an eager library. A program that names such a
part, in an annotation or an `isinstance`, goes on; one that uses it is told so by an AbsentError, which is a NotImplementedError.
"""

import importlib
from types import ModuleType

# What the modules are for, and which they are; all that lies below them is absent likewise.
_PURPOSES = {
    "PyTorch's C++ core": "_C",
    "compiling": "_dynamo _functorch _higher_order_ops _inductor _logging _ops _prims_common utils._triton",
    "tracing": "_subclasses fx utils._sympy",
    "quantisation": "ao quantization",
    "sharding": "distributed._composable distributed._functional_collectives distributed._shard distributed._tensor "
    "distributed.algorithms._checkpoint distributed.checkpoint distributed.device_mesh distributed.fsdp "
    "distributed.tensor distributed._tools distributed.utils",
    "overlapped optimizers": "distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks",
    "local SGD": "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook distributed.algorithms.model_averaging",
    "uneven inputs": "distributed.algorithms.join",
    "time limits": "distributed.constants",
    "elastic launching": "distributed.elastic distributed.launcher",
    "pipelines": "distributed.pipelining",
    "remote procedure calls": "distributed.rpc futures",
    "exporting": "export onnx utils.mobile_optimizer",
    "Apple's GPUs": "mps",
    "compiled attention": "nn.attention.flex_attention",
    "packaging": "package",
    "sparse tensors": "sparse",
    "dispatching": "utils._python_dispatch overrides utils._mode_utils",
    "scripted classes": "classes",
    "masked tensors": "masked",
    "other devices": "mtia",
    "nested tensors": "nested",
    "collectives with gradients": "distributed.nn",
    "C++ extensions": "utils.cpp_extension",
    "data pipes": "utils.data.datapipes utils.data.graph_settings",
    "C++ results": "return_types",
    "attention of packed rows": "nn.attention.varlen",
    "Intel's GPUs": "xpu",
}
MODULES = {path: purpose for purpose, paths in _PURPOSES.items() for path in paths.split()}
HERE = ("_C._nn",)  # paths below them that are not absent
# Names of the core's classes at the top of `torch`, and of parts of modules that are here otherwise.
NAMES = {
    "": "AnyType Argument Block CallStack ClassType Code CompilationUnit DeviceObjType DictType DisableTorchFunction "
    "DisableTorchFunctionSubclass DispatchKey DispatchKeySet FloatType FunctionSchema Future FutureType Gradient Graph "
    "GraphExecutorState InferredType IntType JITException ListType LiteScriptModule Node NoneType NumberType OptionalType "
    "PyTorchFileWriter ScriptClass ScriptDict ScriptList ScriptMethod ScriptObject StringType Tag TensorType ThroughputBenchmark "
    "TupleType Type Use Value sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor "
    "sparse_csr_tensor quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine fake_quantize_per_channel_affine",
    "autograd.function": "BackwardCFunction NestedIOFunction InplaceFunction",
    "distributed": "_get_global_rank DeviceMesh FileStore HashStore PrefixStore ProcessGroupGloo Store TCPStore init_device_mesh new_subgroups "
    "GradBucket Logger Reducer",
    "utils": "ThroughputBenchmark",
    "utils.data": "DataChunk DFIterDataPipe IterDataPipe MapDataPipe functional_datapipe",
    "utils.checkpoint": "CheckpointPolicy SelectiveCheckpointContext create_selective_checkpoint_contexts",
    "autograd.profiler": "emit_itt emit_nvtx KinetoStepTracker",
    "jit": "Attribute CompilationUnit Error Future strict_fusion trace_module",
}
# Names in them that leave their argument as it is, or answer that nothing of the kind is there.
_UNCHANGED = {"wrap", "disable", "allow_in_graph", "register_dataclass", "compile_ignored", "assume_constant_result"}
_FALSE = (
    "is_available is_fx_tracing is_tracing is_initialized is_compiling has_triton has_triton_package is_rpc_available "
    "_are_functorch_transforms_active"
).split()
_NOTHING = (
    "mark_dynamic maybe_mark_dynamic mark_static mark_static_address reset register_pytree_node is_exporting "
    "current_device _get_tracing_state _log_api_usage_once"
).split()


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


def attribute(path, name):
    """What stands for a name of `NAMES` in a module that is here; None if it is none of them."""
    if name not in NAMES.get(path, "").split():
        return None
    return _standing_for(f"{path}.{name}".strip("."), name, path, "what PyTorch's C++ core or compiler does")


def _standing_for(full, name, path, what):
    if name in _UNCHANGED:
        return _unchanged
    if name in _FALSE:
        return _answer(False)
    if name in _NOTHING:
        return _answer(None)
    if name.lstrip("_")[:1].isupper():
        return type(name, (_Absence,), {"__module__": f"torch.{path}", "_absent": (full, what)})

    def refuse(*args, **kwargs):
        raise _refusal(full, what)

    return refuse


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
        if f"{path}.{name}" in HERE:
            return importlib.import_module(f"{self.__name__}.{name}")
        found = _standing_for(f"{path}.{name}", name, path, what)
        setattr(self, name, found)
        return found
