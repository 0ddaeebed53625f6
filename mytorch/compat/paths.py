"""PyTorch's import paths that have no file in mytorch, and `import torch` as an import of mytorch.

`PATHS` lists the module or the names of each path. `mytorch/_extensions.py` calls `find_spec` for an import path below
`mytorch` without a file. It calls `attribute` for a name that a package of the core does not define.
"""

import importlib
import importlib.machinery
import sys
import warnings

from .. import _extensions
from ..arrays import config, hooks
from ..arrays.printing import set_printoptions
from ..arrays.tensor import Tensor
from . import class_names, older_paths, removed, return_types, stubs, torch_version

_NORMALIZATION = "nn.sync_batch_norm: SyncBatchNorm; nn.normalization: _BatchNorm _NormBase"
_BATCH = " ".join(f"BatchNorm{d}d" for d in (1, 2, 3))
_INSTANCE = " ".join(f"InstanceNorm{d}d" for d in (1, 2, 3))
_LAZY_CONV = " ".join(f"LazyConv{d}d LazyConvTranspose{d}d" for d in (1, 2, 3))


_COMPAT = "accelerator backends cpu futures hub jit multiprocessing return_types testing types".split()


def _lazy(names):
    return " ".join(f"Lazy{name}" for name in names.split())


# PyTorch's path -> mytorch's module, if they are the same; otherwise "module: names; other module: its_name=our_name *",
# where * represents all of its layers. ** represents all names. All modules are below `mytorch`.
PATHS = {
    **older_paths.PATHS,
    "library": "ops.library",
    **{name: f"compat.{name}" for name in _COMPAT},
    **{f"nn.modules.{name}": f"nn.{name}" for name in ("adaptive", "lazy", "module", "rnn", "transformer")},
    "_C._nn": "compat.core_nn",
    "_VF": "compat.vf",
    "_custom_ops": "ops.library: custom_op get_ctx impl_abstract",
    "__config__": "compat.build",
    "autograd.anomaly_mode": "autograd.anomaly: detect_anomaly set_detect_anomaly",
    "autograd.grad_mode": "autograd.mode: enable_grad inference_mode no_grad set_grad_enabled",
    "autograd.variable": "compat.variable",
    "cpu.amp": "compat.cpu: GradScaler autocast",
    "distributed._composable": "distributed.fsdp: fully_shard",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed.algorithms": "distributed:",
    "distributed.algorithms._checkpoint": "distributed:",
    "distributed.algorithms._checkpoint.checkpoint_wrapper": "utils.checkpoint_wrapper",
    "distributed.algorithms.join": "distributed.join",
    "distributed.algorithms.model_averaging": "distributed:",
    "distributed.algorithms.model_averaging.averagers": "distributed.model_averaging",
    "distributed.algorithms.ddp_comm_hooks": "distributed:",
    "distributed.algorithms.ddp_comm_hooks.default_hooks": "distributed.comm_hooks",
    "distributed.distributed_c10d": "distributed",
    "distributed.fsdp.api": "distributed.fsdp",
    "distributed.fsdp.fully_sharded_data_parallel": "distributed.fsdp",
    "distributed.fsdp.sharded_grad_scaler": "distributed.fsdp.grad_scaler",
    "distributed.optim": "optim.zero: ZeroRedundancyOptimizer",
    "fx._symbolic_trace": "fx.tracer",
    "fx.experimental.proxy_tensor": "compat.dynamo: get_proxy_mode",
    "jit.annotations": "compat.jit",
    "lr_scheduler": "optim.lr_scheduler",
    "nn.functional.grad": "nn.grad",
    "nn.modules": "nn: * SyncBatchNorm",
    "nn.modules.activation": "nn.activation: *; nn.transformer: MultiheadAttention",
    "nn.modules.batchnorm": f"{_NORMALIZATION} {_BATCH}; nn.lazy: {_lazy(_BATCH)} _LazyNormBase=_LazyNorm",
    "nn.modules.channelshuffle": "nn.vision: ChannelShuffle",
    "nn.modules.container": "nn.containers",
    "nn.modules.conv": f"nn.conv: * _ConvNd=_Conv _ConvTransposeNd=_ConvTranspose; nn.lazy: _LazyConvXdMixin=_LazyConv {_LAZY_CONV}",
    "nn.modules.distance": "nn.loss: CosineSimilarity PairwiseDistance",
    "nn.modules.dropout": "nn.dropout: * _DropoutNd=_Dropout",
    "nn.modules.flatten": "nn.linear: Flatten Unflatten",
    "nn.modules.fold": "nn.vision: Fold Unfold",
    "nn.modules.instancenorm": f"nn.normalization: _InstanceNorm {_INSTANCE}; nn.lazy: {_lazy(_INSTANCE)}",
    "nn.modules.linear": "nn.linear: *; nn.lazy: LazyLinear",
    "nn.modules.linear_cross_entropy": "nn.linear_cross_entropy",
    "nn.modules.linear_cross_entropy_options": "nn.linear_cross_entropy",
    "nn.modules.loss": "nn.loss: *",
    "nn.modules.normalization": "nn.normalization: LocalResponseNorm CrossMapLRN2d LayerNorm GroupNorm RMSNorm",
    "nn.modules.padding": "nn.padding: * _ConstantPadNd=_ConstantPad _ReflectionPadNd=_ReflectionPad "
    "_ReplicationPadNd=_ReplicationPad _CircularPadNd=_CircularPad",
    "nn.modules.pixelshuffle": "nn.vision: PixelShuffle PixelUnshuffle",
    "nn.modules.pooling": "nn.pool: * _MaxPoolNd=_MaxPool _AvgPoolNd=_AvgPool _LPPoolNd=_LPPool _AdaptiveMaxPoolNd=_AdaptiveMax "
    "_MaxUnpoolNd=_MaxUnpool",
    "nn.modules.sparse": "nn.embedding",
    "nn.modules.upsampling": "nn.vision: Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "nn.modules.utils": "nn.tuples",
    **{f"optim.{rule}": "optim.adaptive" for rule in "adadelta adagrad adamax asgd nadam radam rmsprop rprop".split()},
    "nn.utils.clip_grad": "nn.utils.clip",
    "nn.utils.convert_parameters": "nn.utils.vectors",
    "optim.adamw": "optim.adam",
    "overrides": "compat.overrides",
    "__future__": "compat.future",
    "multiprocessing.spawn": "compat.multiprocessing",
    "testing._comparison": "compat.testing",
    "testing._internal": "compat.testing_internal",
    "testing._internal.common_utils": "compat.testing_internal",
    "_tensor_str": "arrays.printing: **; compat.tensor_str: PRINT_OPTS _tensor_str _str_intern _add_suffixes",
    "_utils": "compat.torch_only: _element_size",
    "accelerate.checkpoint": "accelerate.training_state",
    "autograd.checkpoint": "autograd.recompute",
    "autograd.profiler": "profiler.autograd_profiler",
    "autograd.profiler_util": "profiler.events",
    "ops.core": "ops.dispatch.op",
    "amp.autocast_mode": "amp: autocast custom_fwd custom_bwd",
    "amp.grad_scaler": "amp: GradScaler",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.amp.grad_scaler": "cuda.amp",
    "distributed.optim.zero_redundancy_optimizer": "optim.zero: ZeroRedundancyOptimizer",
    "export.dynamic_shapes": "export.sizes",
    "export.exported_program": "export.program",
    "export.graph_signature": "export.program",
    "profiler.profiler": "profiler",
    "utils.benchmark.utils": "tools.benchmark:",
    "utils.benchmark.utils.common": "tools.benchmark",
    "utils.benchmark.utils.timer": "tools.benchmark",
    "_library": "ops.library:",
    "_library.custom_ops": "ops.library",
    "cuda.random": "cuda: manual_seed manual_seed_all get_rng_state set_rng_state",
    "signal": "ops.windows:",
    "signal.windows": "ops.windows",
    "torch_version": "compat.torch_version",
    **{f"utils.{name}": f"tools.{name}" for name in ("benchmark", "layout", "model_summary", "views")},
    "utils.graph": "tools.drawing",
    "utils.tokenizer": "models.tokenizer",
    "files.gguf": "models.gguf_format",
    "utils.einops": "compat.einops_backend",
    "utils.einops_hook": "compat.einops_hook",
    "utils.tensorboard.summary": "compat.tensorboard_summary",
    "utils.dlpack": "compat.names: from_dlpack to_dlpack",
    "onnx.symbolic_helper": "compat.onnx_symbolic: parse_args",
    "onnx.symbolic_opset9": "compat.onnx_symbolic: _prepare_onnx_paddings=prepare_onnx_paddings",
    "onnx.symbolic_opset11": "compat.onnx_symbolic:",
    "utils.hipify": "compat.hipify:",
    "utils.hipify.hipify_python": "compat.hipify",
    "utils.model_zoo": "compat.hub: load_url=load_state_dict_from_url tqdm",
    "utils.hooks": "_tensor: RemovableHandle",
}
# Names that PyTorch has in a module which is a file here.
_ADDITIONS = {
    "mytorch.distributed": "compat.distributed_names: _get_default_group _get_global_rank _rank_not_in_group",
    "mytorch.utils.data._utils.collate": "compat.data_names: np_str_obj_array_pattern",
}
# Priyam Mazumdar's MyTorch first had its Accelerator in `miniddp.accelerate.Accelerator`.
_OLDER = {"miniddp": "accelerate:", "miniddp.accelerate": "accelerate"}
VERSIONS = {"torch": "2.13.0"}  # reported versions under install_as_torch
ALIASES = (("torch", "mytorch"),)
_OPTIONAL = (("accelerate", "mytorch.accelerate"),)  # used if the package itself is not installed
# Packages of PyTorch -> advice, if the package itself is not installed.
_ABSENT = {
    "torchtext": "Use mytorch.models for tokenizers and language models, and mytorch.utils.data for data sets.",
    **{
        name: f"The package itself runs on mytorch. Install it without PyTorch: {line}"
        for name, line in removed.INSTALL.items()
    },
}
# Names that `importlib.util.find_spec` does not find, so that programs do not use parts that are not here.
_HIDDEN = ("accelerate",)


def _contents(spec):
    """Return the names of a path that combines several modules."""
    found = {}
    for part in spec.split(";"):
        home, _, names = part.partition(":")
        module = importlib.import_module(f"mytorch.{home.strip()}")
        for name in names.split():
            theirs, _, ours = name.partition("=")
            if name == "**":
                found.update((k, v) for k, v in vars(module).items() if k[:2] != "__")
                continue
            if name == "*":
                layer = importlib.import_module("mytorch.nn").Module
                layers = {k: v for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, layer)}
                found.update(layers)
            else:
                found[theirs] = getattr(module, ours or theirs)
    return found


def _home(name):
    """Return the entry of a path, or None."""
    return PATHS.get(name[8:]) if name.startswith("mytorch.") else _OLDER.get(name)


def _absent_spec(name, loader):
    """Return the spec of a part of PyTorch that mytorch lacks, in PyTorch mode; otherwise None."""
    if not (config.pytorch_mode and name.startswith("mytorch.") and stubs.home_of(name[8:])):
        return None
    found = stubs.imported(name[8:])
    return importlib.machinery.ModuleSpec(name, loader, is_package=isinstance(found, stubs.Absent), loader_state=found)


class _Paths:
    """Import finder of the paths in `PATHS` and `_OLDER`."""

    def find_spec(self, name, path=None, target=None):
        if _home(name) is None:
            if text := removed.advice(name.removeprefix("mytorch.")):
                # Without a name, so that `from mytorch.vision import …` raises this error.
                raise ModuleNotFoundError(f"No module named {name!r}. {text}")
            return _absent_spec(name, self)
        is_package = name in _OLDER or any(p.startswith(name[8:] + ".") for p in PATHS)
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)

    def create_module(self, spec):
        if spec.loader_state is not None:
            return spec.loader_state
        home = _home(spec.name)
        if ":" in home:
            return None  # an empty module that `exec_module` fills
        module = importlib.import_module(f"mytorch.{home}")
        self._own = module.__spec__
        return module

    def exec_module(self, module):
        name = module.__spec__.name
        home = _home(name)
        if home is None:
            return
        if ":" in home:
            module.__doc__ = f"The names of PyTorch's module `{name.removeprefix('mytorch.')}`."
            module.__dict__.update(_contents(home))
        else:
            module.__spec__ = self._own  # restores the spec that the import system has replaced
        if ":" in home or name[8:] in stubs.NAMES:
            _find_attributes(module, name)


_paths = _Paths()


def find_spec(name, path=None):
    """Returns the import system's description of a path of `PATHS`; None for other paths."""
    return _paths.find_spec(name)


# Package of the core -> modules with more names of PyTorch for it, in a dict `TORCH_NAMES[package]` or as "module: names".
MORE_NAMES = {
    "mytorch": "compat.torch_only; compat.jit: ScriptModule ScriptFunction; compat.names; compat.legacy_tensor; compat.nn_functions; compat.recurrent; functional; "
    "files.legacy_storage; files.storage; utils.deterministic; ops.foreach; ops.embedding; autograd.anomaly",
    "mytorch.autograd": "compat.future: set_multithreading_enabled is_multithreading_enabled _profiler_enabled _is_checkpoint_valid; compat.variable: Variable",
    "mytorch.cuda": "files.legacy_storage",
    "mytorch.sparse": "compat.legacy_tensor",
    "mytorch.nn.utils": "nn.utils.memory_format: convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format",
    **_ADDITIONS,
}


def more_names(package):
    """Returns {name: module of `compat`} of the names in `MORE_NAMES`. docs/make_stubs.py stores them for `_extensions.lazy`."""
    found = {}
    for part in filter(None, MORE_NAMES.get(package, "").split("; ")):
        home, _, names = part.partition(": ")
        known = names.split() or importlib.import_module(f"mytorch.{home}").TORCH_NAMES[package]
        found.update(dict.fromkeys(known, home))
    return found


def advice(package, name):
    """Returns the end of the message for an unknown name of a package: how to get it, or a similar name."""
    if found := removed.advice(f"{package}.{name}".removeprefix("mytorch.")):
        return f". {found}"
    if package != "mytorch":  # Python suggests names for modules with at most 750 names
        return ""
    import difflib  # only for this message

    close = difflib.get_close_matches(name, dir(sys.modules[package]), 1)
    return f". Did you mean: {close[0]!r}?" if close else ""


def attribute(package, name):
    """Returns the attribute that PyTorch has in a module, for a name that the module does not define.

    Args:
        package: name of the module, such as "mytorch.nn".
        name: name of the attribute, such as "modules".

    Raises:
        AttributeError: PyTorch has no such attribute, or mytorch does not support it.
    """
    path = f"{package}.{name}".removeprefix("mytorch.")
    if path in PATHS or (config.pytorch_mode and path in stubs.MODULES):
        if not hasattr(sys.modules[package], "__path__"):
            sys.modules[package].__path__ = []
        return importlib.import_module(f"mytorch.{path}")
    if package == "mytorch.ops":
        if name in ("load_library", "loaded_libraries"):
            return getattr(importlib.import_module("mytorch.compat.native_libraries"), name)
        if importlib.machinery.PathFinder.find_spec(name, sys.modules[package].__path__):
            return importlib.import_module(f"{package}.{name}")
        if config.pytorch_mode or "mytorch.ops.library" in sys.modules:
            from ..ops import library  # rarely used

            if config.pytorch_mode or library.has_namespace(name):
                return library.OpNamespace(name)
    if _extensions.home_of(package, name) is not None:
        return _extensions.torch_value(package, name)
    found = stubs.attribute(package.partition(".")[2], name)
    if found is None:
        raise _extensions.unknown_name(package, name)
    return found


def _find_attributes(module, package):
    """Let a module resolve missing attributes with `attribute`. Packages of the core already do (`_extensions.lazy`).

    Args:
        package: its name below `mytorch` in PyTorch's path, such as "mytorch.autograd.profiler".
    """
    before = vars(module).get("__getattr__")
    if getattr(before, "__module__", None) in (__name__, "mytorch._extensions"):
        return

    def find(name):
        if before is not None:
            try:
                return before(name)
            except AttributeError:
                pass
        value = attribute(package, name)
        setattr(module, name, value)
        return value

    module.__getattr__ = find


def _has_modules(path):
    """Returns True if PyTorch's module `path`, such as "amp", has modules that `PATHS` lists."""
    return any(p.startswith(path + ".") for p in PATHS)


class _Torch:
    """Import finder that imports `torch.x` as `mytorch.x`: the same modules."""

    def __init__(self, aliases):
        self._aliases = aliases

    def find_spec(self, name, path=None, target=None):
        if name in _HIDDEN and sys._getframe(2).f_globals.get("__name__") == "importlib.util":
            return None  # `importlib.util.find_spec` asks if the package itself is installed
        if name in _ABSENT and sys._getframe(2).f_globals.get("__name__") != "importlib.util":
            if importlib.machinery.PathFinder.find_spec(name) is None:
                raise ModuleNotFoundError(f"import {name}: {name} is not installed. {_ABSENT[name]}", name=name)
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None and not parent.__name__.startswith(("mytorch", "torch", "accelerate")):
            return None  # the program has replaced the package
        for alias, home in self._aliases:
            if name == alias or name.startswith(alias + "."):
                try:
                    module = importlib.import_module(home + name[len(alias) :])
                except ModuleNotFoundError as error:
                    if error.name is None or not error.name.startswith("mytorch"):
                        raise
                    return None
                class_names.show()
                package = home + name[len(alias) :]
                if not hasattr(module, "__path__") and _has_modules(package[8:]):
                    module.__path__ = []
                is_package = hasattr(module, "__path__")
                if is_package or package in _ADDITIONS or package.partition(".")[2] in stubs.NAMES:
                    _find_attributes(module, package)
                return importlib.machinery.ModuleSpec(name, self, is_package=is_package, loader_state=module)
        return None

    def create_module(self, spec):
        self._own = spec.loader_state.__spec__
        return spec.loader_state

    def exec_module(self, module):
        module.__spec__ = self._own  # restores the spec that the import system has replaced


class _Distributions:
    """Finder of the distributions in `VERSIONS`. It is in the list of import finders, but finds no modules."""

    def find_spec(self, name, path=None, target=None):
        return None

    def find_distributions(self, context=None):
        make = importlib.import_module("mytorch.compat.distribution").Distribution
        return [make(name, VERSIONS[name]) for name in VERSIONS if context is None or context.name in (None, name)]


def _use_legacy_constructor():
    """Makes `torch.Tensor(x)` PyTorch's legacy constructor."""
    from . import legacy_tensor

    Tensor.__init__ = legacy_tensor.initialize


def install_as_torch():
    """Makes `import torch` and its submodules import mytorch in this process, for unchanged PyTorch programs.

    `import accelerate` imports `mytorch.accelerate` if the package itself is not installed. It also enables PyTorch mode: tensors print as in PyTorch, `.grad` and `.data` are Tensors, and inputs of mixed dtypes raise an
    error where PyTorch raises one.

    Raises:
        RuntimeError: if PyTorch was already imported.
    """
    mine = sys.modules["mytorch"]
    if sys.modules.get("torch", mine) is not mine:
        raise RuntimeError(
            "install_as_torch: torch is already imported. Call install_as_torch() before the first import."
        )
    if not any(isinstance(finder, _Torch) for finder in sys.meta_path):
        missing = [pair for pair in _OPTIONAL if importlib.machinery.PathFinder.find_spec(pair[0]) is None]
        sys.meta_path[:0] = [_Torch((*ALIASES, *missing)), _Distributions()]
        mine.torch, mine.__name__ = mine, "torch"
        torch_version.__version__ = mine.__version__ = torch_version.TorchVersion(VERSIONS["torch"])
        mine.version.__version__ = VERSIONS["torch"]
    sys.modules["torch"] = mine
    config.pytorch_mode = True
    if "torch" not in config.packages:
        config.packages.append("torch")
    # NumPy's warnings of infinite and undefined results, which PyTorch does not have.
    warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning, "mytorch")
    _extensions.after_load = class_names.show
    class_names.show()
    hooks.shown = Tensor._of
    return_types.install()
    _use_legacy_constructor()
    set_printoptions(layout="torch")
