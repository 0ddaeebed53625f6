"""Parts of PyTorch that mytorch does not have, for packages that name them without using them.

Quantized and named tensors are examples, and so are the internals of PyTorch's compiler, because `mytorch.compile` has its own. A program can name
such a part in an import, an annotation, an `isinstance` or the bases of a class. A call of it raises AbsentError, which is a NotImplementedError.
"""

import functools
import importlib
import operator
import os
from types import ModuleType

from ..arrays import config

# Feature that mytorch does not support -> PyTorch's modules for it, with all modules below them.
_FEATURES = {
    "internals of PyTorch's C++ core": "_C",
    "internals of PyTorch's compiler": "_dynamo _functorch _higher_order_ops _inductor _logging _ops _prims_common utils._triton",
    "fake tensors": "_subclasses utils._sympy",
    "quantization": "ao quantization",
    "other parts of sharded models and tensors": "distributed._composable.replicate distributed._functional_collectives "
    "distributed._shard distributed.algorithms._checkpoint distributed._tools distributed.utils "
    "distributed.checkpoint.default_planner distributed.checkpoint.filesystem distributed.checkpoint.metadata "
    "distributed.checkpoint.hf_storage distributed.checkpoint.quantized_hf_storage distributed.checkpoint._consolidate_hf_safetensors "
    "distributed.checkpoint.api distributed.checkpoint.utils distributed.checkpoint.optimizer distributed.checkpoint.staging "
    "distributed.checkpoint.planner_helpers distributed.checkpoint.planner distributed.checkpoint.stateful distributed.checkpoint.storage distributed.tensor.debug "
    "distributed.tensor.experimental",
    "overlapped optimizers": "distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks",
    "local SGD": "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook distributed.algorithms.model_averaging",
    "time limits of collectives": "distributed.constants",
    "elastic launching": "distributed.elastic.agent distributed.elastic.metrics distributed.elastic.rendezvous "
    "distributed.elastic.timer distributed.elastic.utils distributed.launcher",
    "pipeline parallelism": "distributed.pipelining",
    "remote procedure calls": "distributed.rpc",
    "models for mobile devices": "utils.mobile_optimizer",
    "Apple GPUs": "mps",
    "packaging (torch.package)": "package",
    "internals of dispatch modes": "utils._mode_utils",
    "scripted classes": "classes",
    "masked tensors": "masked",
    "counters of events (torch.monitor)": "monitor",
    "MTIA devices": "mtia",
    "remote modules": "distributed.nn.api distributed.nn.jit",
    "C++ extensions": "utils.cpp_extension",
    "data pipes": "utils.data.datapipes utils.data.graph_settings",
    "attention for packed sequences (varlen)": "nn.attention.varlen",
    "Intel GPUs": "xpu",
}
# Feature -> advice that follows the error message.
_INSTEAD = {
    "internals of PyTorch's compiler": "Use mytorch.compile to compile, and torch.fx to see the graph of a program.",
    "TorchScript": "Use mytorch.compile for speed, and torch.export to save a program.",
    "fake tensors": 'Use tensors with device="meta" for shapes without data.',
    "pipeline parallelism": "Use distributed.fsdp or distributed.tensor to divide a model.",
    "C++ extensions": "Write the op in Python with mytorch.ops.dispatch.op, and its kernel with Numba or Triton.",
    "quantization": "Use mytorch.models.quantize_, which stores the weights of Linear layers in 8 or 4 bits.",
    "other parts of sharded models and tensors": "Use distributed.fsdp, distributed.tensor and distributed.checkpoint.",
    "elastic launching": "Use `python -m mytorch.distributed.run`.",
    "models for mobile devices": "Save the state dict with torch.save or safetensors.",
    "packaging (torch.package)": "Save the state dict with torch.save.",
    "sparse layouts of blocks (BSR, BSC)": "Use the layout sparse_csr.",
    "remote procedure calls": "Use mytorch.distributed.send, recv and the other collectives, or `concurrent.futures`.",
    "named tensors": "Use the positions of the dimensions, or einops.rearrange with names.",
    "internals of dispatch modes": "Use torch.utils._python_dispatch.TorchDispatchMode or torch.overrides.TorchFunctionMode.",
    "masked tensors": "Use masked_fill and torch.where.",
    "data pipes": "Use IterableDataset and DataLoader.",
    "selective checkpointing": "Use torch.utils.checkpoint.checkpoint.",
}
MODULES = {path: feature for feature, paths in _FEATURES.items() for path in paths.split()}
HERE = ("_C._nn",)  # exceptions: submodules of absent modules that do exist
FOUND = {  # names in them that are not absent
    f"_C.{name}": f"compat.overrides:{name}"
    for name in "DisableTorchFunction DisableTorchFunctionSubclass _disabled_torch_function_impl".split()
}
FOUND |= {
    f"_C.{name}": f"compat.dispatch_keys:{name}"
    for name in "DispatchKey DispatchKeySet _ExcludeDispatchKeyGuard".split()
}
FOUND |= {
    "_C.Size": "_array:Size",
    "_C.device": "backend:device",
    "_C.dtype": "arrays.dtypes:dtype",
    "_C.Generator": "ops.random:Generator",
    "_C.LinAlgError": "arrays.errors:LinAlgError",
    "_prims_common.corresponding_complex_dtype": "arrays.dtypes:dtype.to_complex",
    "_prims_common.corresponding_real_dtype": "arrays.dtypes:dtype.to_real",
    "_dynamo.list_backends": "compiler:list_backends",
    "_dynamo.OptimizedModule": "compiler:OptimizedModule",
    "_dynamo.eval_frame.OptimizedModule": "compiler:OptimizedModule",
    "_dynamo.is_compiling": "compiler:is_compiling",
    "_dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": "compat.dynamo:TransformGetItemToIndex",
}
# PyTorch's dtypes of 1 to 7 bits.
_BITS = " ".join(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8))
# Names in modules of the library that belong to absent features.
NAMES = {
    "": "AnyType Argument Block CallStack ClassType Code CompilationUnit DeviceObjType DictType "
    "DispatchKey DispatchKeySet FloatType FunctionSchema FutureType Gradient Graph "
    "GraphExecutorState InferredType IntType JITException ListType LiteScriptModule Node NoneType NumberType OptionalType "
    "PyTorchFileWriter ScriptClass ScriptDict ScriptList ScriptMethod ScriptObject StringType Tag TensorType ThroughputBenchmark "
    "TupleType Type Use Value sparse_bsc_tensor sparse_bsr_tensor "
    "quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine fake_quantize_per_channel_affine align_tensors",
    "autograd.function": "BackwardCFunction NestedIOFunction InplaceFunction",
    "distributed": "ProcessGroupGloo new_subgroups GradBucket Logger Reducer",
    "distributed.fsdp": "CPUOffload CPUOffloadPolicy DataParallelMeshDims FullOptimStateDictConfig LocalOptimStateDictConfig "
    "LocalStateDictConfig OptimStateDictConfig OptimStateKeyType ShardedOptimStateDictConfig StateDictConfig StateDictSettings",
    "distributed.checkpoint": "BytesStorageMetadata ChunkStorageMetadata DefaultLoadPlanner DefaultSavePlanner FileSystemReader "
    "FileSystemWriter HuggingFaceStorageReader HuggingFaceStorageWriter LoadPlan LoadPlanner Metadata ReadItem SavePlan SavePlanner "
    "StorageReader StorageWriter TensorStorageMetadata WriteItem",
    "sparse": "SparseSemiStructuredTensor SparseSemiStructuredTensorCUTLASS SparseSemiStructuredTensorCUSPARSELT",
    "export": "AdditionalInputs Constraint CustomDecompTable ExportBackwardSignature FlatArgsAdapter ModuleCallEntry "
    "ModuleCallSignature ShapesCollection UnflattenedModule",
    "utils": "ThroughputBenchmark",
    "utils.data": "DataChunk DFIterDataPipe IterDataPipe MapDataPipe functional_datapipe",
    "autograd.profiler": "emit_itt emit_nvtx KinetoStepTracker",
    "jit": "_get_trace_graph Attribute CompilationUnit Error Future strict_fusion trace_module",
}
# Feature -> prefixes of names of `NAMES` that belong to it; the other names belong to the C++ core.
_FEATURES_OF_NAMES = {
    "sparse layouts of blocks (BSR, BSC)": "sparse_bsr sparse_bsc sparse_bsr_tensor sparse_bsc_tensor to_sparse_bsr to_sparse_bsc",
    "quantization": "quantize_ fake_quantize_ qint8 quint8 qint32 quint4x2 quint2x4 per_tensor_ per_channel_ q_ qscheme dequantize int_repr",
    "integers of 1 to 7 bits": _BITS,
    "named tensors": "refine_names rename rename_ align_to align_as align_tensors",
    "process groups other than the default group": "ProcessGroupGloo new_subgroups GradBucket Logger Reducer",
    "data pipes": "DataChunk DFIterDataPipe IterDataPipe MapDataPipe functional_datapipe",
    "selective checkpointing": "CheckpointPolicy SelectiveCheckpointContext create_selective_checkpoint_contexts",
    "profiler annotations": "emit_itt emit_nvtx KinetoStepTracker",
    "internals of graphs in C++": "Graph Node Tag",
    "remote procedure calls": "Future",
    "TorchScript": "ScriptClass ScriptDict ScriptList ScriptMethod ScriptObject CompilationUnit LiteScriptModule "
    "JITException strict_fusion trace_module GraphExecutorState",
}
# Module of `NAMES` -> feature that its names belong to.
_FEATURES_OF_MODULES = {
    "distributed.fsdp": "other parts of sharded models and tensors",
    "distributed.checkpoint": "other parts of sharded models and tensors",
    "sparse": "semi-structured sparse tensors",
    "export": "other parts of torch.export",
}
IN_BOTH_MODES = (
    "sparse layouts of blocks (BSR, BSC)",
    "quantization",
    "named tensors",
)  # whose names raise AbsentError in native mode, too
METHODS = "to_sparse_bsr to_sparse_bsc dequantize int_repr q_scale q_zero_point qscheme refine_names rename rename_ align_to align_as"
# Layouts and dtypes of PyTorch that mytorch does not have.
CONSTANTS = (
    f"{_BITS} "
    "sparse_bsr sparse_bsc qint8 quint8 qint32 quint4x2 quint2x4 "
    "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric"
).split()
# Classes of objects that only describe how a model is sharded. Packages create them on import, so the first use of them raises.
_DESCRIPTIONS = (
    "Replicate Shard Partial Placement ColwiseParallel RowwiseParallel SequenceParallel ParallelStyle PrepareModuleInput "
    "PrepareModuleOutput PrepareModuleInputOutput"
).split()
# Names that leave their argument unchanged, that return False, and that return None.
_UNCHANGED = {
    "wrap",
    "record",
    "disable",
    "allow_in_graph",
    "register_dataclass",
    "compile_ignored",
    "assume_constant_result",
    "_require_initialized",
}
_FALSE = (
    "is_traceable_wrapper_subclass is_available is_fx_tracing is_tracing is_initialized is_compiling has_triton has_triton_package is_rpc_available "
    "_are_functorch_transforms_active is_in_onnx_export"
).split()
_NOTHING = (
    "mark_dynamic maybe_mark_dynamic mark_static mark_static_address reset reset_code_caches register_pytree_node is_exporting "
    "current_device _get_tracing_state _log_api_usage_once get_proxy_mode"
).split()
_ANSWERED = {*_UNCHANGED, *_FALSE, *_NOTHING, "device_count", "functional_datapipe"}


def home_of(path):
    """Returns the absent module that contains a path below `torch`; None if there is none."""
    while path:
        if path in MODULES:
            return path
        path = path.rpartition(".")[0]
    return None


def feature_of(path, name):
    """Returns the feature that a name of `NAMES` in the module `path` belongs to."""
    for feature, prefixes in _FEATURES_OF_NAMES.items():
        for prefix in prefixes.split():
            if name == prefix or (prefix.endswith("_") and name.startswith(prefix)):
                return feature
    return _FEATURES_OF_MODULES.get(path, "internals of PyTorch's C++ core")


def refusal(name, feature):
    """Returns the error for the use of an absent part.

    Args:
        name: its name in PyTorch, such as "torch.sparse.mm".
        feature: the feature that it belongs to.
    """
    return AbsentError(f"{name}: mytorch does not support {feature}. {_INSTEAD.get(feature, '')}".rstrip())


class AbsentError(NotImplementedError, AttributeError):
    """A program used a part of PyTorch that mytorch does not have."""


class _Absence:
    """The base of absent classes. Programs can name and subclass them; to create an instance raises AbsentError."""

    def __new__(cls, *args, **kwargs):
        if "_absent" in cls.__dict__ and cls.__name__ not in _DESCRIPTIONS:
            raise refusal(*cls._absent)
        return super().__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass

    def __class_getitem__(cls, key):
        return cls  # for annotations such as `Future[int]`

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise refusal(*self._absent)

    def __call__(self, *args, **kwargs):
        raise refusal(*self._absent)

    __enter__ = __iter__ = __len__ = __getitem__ = __call__

    def __exit__(self, *error):
        pass

    def __bool__(self):
        return True


class _AbsentFunction:
    """A function or module that can be named, and that raises AbsentError when it is called."""

    def __init__(self, full, feature):
        self._absent = full, feature
        self.__name__ = self.__qualname__ = full.rpartition(".")[2]
        self.__module__ = full.rpartition(".")[0]

    def __call__(self, *args, **kwargs):
        raise refusal(*self._absent)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full, feature = self._absent
        if not _is_readable(full.removeprefix("torch."), name):
            raise refusal(f"{full}.{name}", feature)
        found = self.__dict__[name] = _absence(f"{full}.{name}", name, full, feature)
        return found


class AbsentConstant:
    """A layout or dtype that mytorch does not have. Programs can compare it; to pass it to a function raises AbsentError."""

    itemsize = property(lambda self: self._refuse())

    def __init__(self, name):
        self.name = name

    def _refuse(self, *args, **kwargs):
        raise refusal(f"torch.{self.name}", feature_of("", self.name))

    def __repr__(self):
        return f"torch.{self.name}"


def _answer(value):
    return lambda *args, **kwargs: value


def _unchanged(obj=None, *args, **kwargs):
    return obj if callable(obj) or isinstance(obj, str) else lambda f: f


def absent_method(name):
    """Returns a method of tensors that raises AbsentError, such as `to_sparse`."""

    def method(self, *args, **kwargs):
        raise refusal(f"torch.Tensor.{name}", feature_of("", name))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Raises NotImplementedError: mytorch does not support {feature_of('', name)}."
    return method


globals().update({name: absent_method(name) for name in METHODS.split()})


def attribute(path, name):
    """Returns an absent class, function or constant for a name of `NAMES` or `CONSTANTS`; None for other names."""
    if not (config.pytorch_mode or feature_of(path, name) in IN_BOTH_MODES):
        return None
    if not path and name in CONSTANTS:
        return AbsentConstant(name)
    if name not in NAMES.get(path, "").split():
        return None
    return _absence(
        f"torch.{path}.{name}".replace("..", "."), name, f"torch.{path}".rstrip("."), feature_of(path, name)
    )


def _absence(full, name, module, feature):
    if name in _UNCHANGED:
        return _unchanged
    if name == "functional_datapipe":
        return lambda *args, **kwargs: _unchanged  # a decorator with arguments
    if name in _FALSE:
        return _answer(False)
    if name in _NOTHING:
        return _answer(None)
    if name == "device_count":
        return _answer(0)
    if name.lstrip("_")[:1].isupper():
        bases = (_Absence, Exception) if name.endswith(("Error", "Exception")) else (_Absence,)  # for `except`
        return type(name, bases, {"__module__": module, "_absent": (full, feature)})
    return _AbsentFunction(full, feature)


@functools.cache
def _known():
    """Returns {module: names} of absent_names.txt, which docs/make_absent_names.py writes."""
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "absent_names.txt"), encoding="utf-8") as file:
        for path, *names in map(str.split, file):
            found.setdefault(path, set()).update(names)
    return found


def _is_readable(path, name):
    """Returns True if a program can read a name of an absent module. Otherwise `hasattr` is False, and only an import finds it.

    Functions of the C++ core are not readable, because programs that find one call it.
    """
    if name in _ANSWERED:
        return True
    if path.startswith("_C."):
        return name.lstrip("_")[:1].isupper()
    return name in _known().get(path, (name,))


def imported(path):
    """Returns the object for `import` of a path that is absent: a module, or a class or function of `from … import …`."""
    parent, _, name = path.rpartition(".")
    if parent and (name in _ANSWERED or name.lstrip("_")[:1].isupper()):
        return _absence(f"torch.{path}", name, f"torch.{parent}", MODULES[home_of(path)])
    return Absent(path)


class Absent(ModuleType):
    """A module that mytorch does not have. Every name in it can be imported.

    It can be a function as well: the import system does not say which of them `from … import …` needs.
    """

    def __init__(self, path):
        home = home_of(path)
        super().__init__(f"mytorch.{path}", f"mytorch does not support {MODULES[home]}.")
        self.__path__ = []
        self._where = (path, MODULES[home])

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_where",):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        path, feature = self._where
        full = f"{path}.{name}"
        if full in HERE:
            return importlib.import_module(f"{self.__name__}.{name}")
        if full in FOUND:
            home, _, inner = FOUND[full].partition(":")
            found = operator.attrgetter(inner)(importlib.import_module(f"mytorch.{home}"))
        elif _is_readable(path, name):
            found = _absence(f"torch.{full}", name, f"torch.{path}", feature)
        else:
            raise refusal(f"torch.{full}", feature)
        setattr(self, name, found)
        return found

    def __call__(self, *args, **kwargs):
        path, feature = self._where
        raise refusal(f"torch.{path}", feature)
