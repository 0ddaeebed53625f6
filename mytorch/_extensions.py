"""The fence between the core and its extensions, and names that are imported on first use.

The core works without its extensions and never imports them. The tables of this file list the names of extensions that
the core shows. An extension is imported when a program first uses one of its names:

* an attribute of a core package, such as `mytorch.vision` (`lazy`);
* a method of tensors, such as `x.svd()` (`LazyMethod`);
* an import path that has no file, such as `mytorch.nn.modules` (`Finder`).
"""

import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module

# Extension -> purpose. Each is a module or package below `mytorch`.
EXTENSIONS = {
    "accelerate.runs": "interruptions, logs, checkpoints and speed of training scripts",
    "cli.chat": "the command `mytorchrun chat`",
    "cli.local_server": "HTTP servers for web pages on this computer",
    "cli.torchrun": "the command `mytorchrun torchrun`",
    "compat": "PyTorch's other names, import paths and file formats, `import torch`, einops",
    "compiler": "`compile` and `compile_step`: recorded functions and training steps",
    "cuda.amp": "older names of `mytorch.amp`",
    "cuda.comm": "copies of tensors between GPUs",
    "cuda.nvtx": "marks in NVIDIA's profilers",
    "distributed.checkpoint": "checkpoints of which each process writes a part",
    "distributed.comm_hooks": "communication hooks of DistributedDataParallel",
    "distributed.device_mesh": "grids of processes",
    "distributed.elastic": "error files and restarts of launched programs",
    "distributed.fsdp": "models with sharded parameters, gradients and optimizer state",
    "distributed.join": "uneven inputs in distributed training",
    "distributed.model_averaging": "averages of parameters in place of gradients (local SGD)",
    "distributed.nn": "collectives with gradients",
    "distributed.stores": "tables of keys and values that processes share",
    "distributed.tensor": "tensors that several processes store together, tensor parallelism",
    "distributions": "probability distributions",
    "export": "exported programs: graphs of models with dynamic sizes",
    "files.audio": "WAV files",
    "files.legacy": "files of older versions of PyTorch",
    "files.legacy_storage": "storages with a type, as older programs and files name them",
    "files.sparse": "sparse tensors in files",
    "files.storage": "storages, the memory of tensors as objects",
    "files.trusted": "files with any Python objects, `weights_only=False`",
    "functional": "`torch.functional`: stft, older names of decompositions",
    "fx": "graphs of programs: symbolic traces, transformations and generated code",
    "kernels.numba.sparse_products": "compiled products of sparse and dense matrices",
    "kernels.triton.generated": "kernels that the compiler writes",
    "models": "language models, tokenizers, text generation and their file formats",
    "nested": "batches of tensors of different lengths",
    "nn.attention.flex_attention": "attention with functions of the scores, and masks of blocks",
    "onnx": "export of models to ONNX files",
    "ops.library": "`torch.library`: operators that a program defines",
    "playground": "a web page that shows a neural network while it learns",
    "profiler": "the profiler",
    "random.quasirandom": "Sobol sequences",
    "sparse": "sparse tensors: COO and CSR layouts, sparse gradients",
    "tools": "drawings of graphs and memory, model summaries, benchmarks",
    "utils._python_dispatch": "`TorchDispatchMode`",
    "utils.checkpoint_wrapper": "modules whose calls are checkpointed",
    "utils.data.tokens": "token files and random batches of tokens",
    "utils.flop_counter": "the number of floating-point operations of a program",
    "utils.selective_checkpoint": "checkpointing that stores the results of some ops",
    "vision": "image data sets, transforms, ResNet, boxes and regions",
}
# Core package -> {module of an extension: names of it that the package shows}. "name=other" is another name there, and "name=" is
# the module.
NAMES = {
    "mytorch": {
        "compat.build": "__config__=",
        "files.legacy_storage": "_storage_classes",
        "compat.paths": "install_as_torch",
        "compat.tensor_str": "_torch_layout=",
        "compiler": "compile compile_step",
        "nested": "jagged",
        "sparse": "sparse_compressed_tensor sparse_coo sparse_coo_tensor sparse_csc sparse_csc_tensor sparse_csr sparse_csr_tensor",
        "sparse.functions": "dsmm=spmm hsmm=hspmm saddmm=sspaddmm hspmm smm spmm sspaddmm _convert_indices_from_coo_to_csr "
        "_convert_indices_from_csr_to_coo _sparse_broadcast_to _validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args",
        "files.audio": "audio=",
        "files.storage": "TypedStorage UntypedStorage storage=",
        "nn.attention.flex_attention": "flex_attention=",
        "random.quasirandom": "quasirandom=",
    },
    "mytorch.accelerate": {
        "accelerate.runs": "Interrupt Progress RunLog Throughput check_finite exclusive find_checkpoint ignore_interrupts "
        "keep_random_states mean_loss newest_checkpoint peak_flops remove_checkpoints steps_of warn_if_long"
    },
    "mytorch.files.storage": {"files.legacy_storage": "CLASSES CUDA_CLASSES _LegacyStorage _storage_classes"},
    "mytorch.nn": {"nn.backward_hooks": "backward_hooks="},
    "mytorch.cuda": {"nn.graphed": "make_graphed_callables"},
    "mytorch.cuda.graphs": {"nn.graphed": "make_graphed_callables"},
    "mytorch.distributed": {
        "distributed.device_mesh": "DeviceMesh init_device_mesh",
        "distributed.stores": "DistNetworkError DistStoreError FileStore HashStore Store TCPStore",
    },
    "mytorch.utils.data": {"utils.data.tokens": "RandomBlocks read_tokens read_vocab_size write_tokens"},
    "mytorch.utils.checkpoint": {
        "utils.selective_checkpoint": "CheckpointPolicy SelectiveCheckpointContext create_selective_checkpoint_contexts",
        "compat.checkpoint_states": "check_backward_validity detach_variable get_device_states set_device_states",
    },
    "mytorch.utils": {"tools.drawing": "render", "tools.model_summary": "summary"},
}  # fmt: skip
# Module -> methods of tensors that it defines and that are imported on first use.
METHODS = {
    "functional": "geqrf lu lu_solve orgqr ormqr pinverse qr stft istft svd triangular_solve",
    "compat.overrides": "__torch_function__ _make_subclass _make_wrapper_subclass",
    "compat.sharing": "is_shared share_memory_ _share_with",
    "compat.stubs": "to_sparse_bsr to_sparse_bsc dequantize int_repr q_scale q_zero_point qscheme refine_names rename rename_ "
    "align_to align_as",
    "linalg": "matrix_exp matrix_power",
    "ops.functional": "hardshrink prelu",
    "files.legacy_storage": "storage_type",
    "compat.legacy_tensor": "_cdata _fix_weakref new",
    "sparse.methods": "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_dense sparse_mask coalesce is_coalesced _coalesced_ "
    "indices _indices values _values crow_indices col_indices ccol_indices row_indices _nnz sparse_dim dense_dim "
    "sparse_resize_ sparse_resize_and_clear_ smm",
    "files.storage": "_typed_storage storage untyped_storage",
    "tools.drawing": "render",
}

TORCH_ONLY = ("compat.torch_only", "compat.jit")  # modules of names that only PyTorch mode shows
after_load: Callable[[], None] | None = None  # set by compat/paths.py in PyTorch mode


def load(path):
    """Returns the module "home" below `mytorch`, or the attribute of it that "home:name" names.

    Raises:
        ModuleNotFoundError: the module belongs to an extension that is not installed.
    """
    home, _, name = path.partition(":")
    try:
        module = import_module(f"mytorch.{home}")
    except ModuleNotFoundError as error:
        missing = str(error.name).removeprefix("mytorch.")
        if missing not in EXTENSIONS:
            raise
        text = f"mytorch.{missing} is an extension of mytorch that is not installed: {EXTENSIONS[missing]}."
        raise ModuleNotFoundError(text, name=error.name) from None
    if after_load is not None:
        after_load()
    return getattr(module, name) if name else module


def plugin(path, options):
    """Returns an object of the class that `path` names, for options True or a dict; other options are returned."""
    if options is True or isinstance(options, dict):
        return load(path)(**(options if options is not True else {}))
    return options or None


def _compat():
    """Returns the extension with PyTorch's other names, or None if it is not installed."""
    try:
        return load("compat.paths")
    except ModuleNotFoundError:
        return None


def lazy(package, modules="", names=None):
    """Returns `__getattr__` and `__dir__` for a package that imports some of its names on first use.

    `compat` has PyTorch's other names. Those of the package are in a table, so an unknown name imports nothing.

    Args:
        package: `__name__` of the package.
        modules: names of modules in the package.
        names: {module below `mytorch`: names that it defines}.
    """
    inner = package.partition(".")[2]
    homes = {name: f"{inner}.{name}".strip(".") for name in modules.split()}
    homes.update((path.rpartition(".")[2], path) for path in EXTENSIONS if path.rpartition(".")[0] == inner)
    for home, text in {**(names or {}), **NAMES.get(package, {})}.items():
        for word in text.split():
            name, same, other = word.partition("=")
            homes[name] = f"{home}:{other or name}" if other or not same else home

    def __getattr__(name):
        if name in homes:
            value = load(homes[name])
        elif name == "__all__":  # of `from mytorch import *`
            return [name for name in __dir__() if not name.startswith("_") and name not in EXTENSIONS]
        elif name[:2] != "__" and not {name, "*"}.isdisjoint(torch_names().get(package, ())):
            value = torch_value(package, name)
        else:
            raise unknown_name(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__():
        hidden = {
            "compat.paths",
            "compat.stubs",
            *(() if import_module("mytorch.arrays.config").pytorch_mode else TORCH_ONLY),
        }
        others = (name for name, home in torch_names().get(package, {}).items() if home not in hidden)
        return sorted({*vars(sys.modules[package]), *homes, *others})

    return __getattr__, __dir__


@functools.cache
def torch_names():
    """Returns {package: {name: module of `compat`}}. In a package with the name "*", `compat` looks up all names."""
    found, path = {}, os.path.join(os.path.dirname(__file__), "compat", "torch_names.txt")
    if os.path.isfile(path):  # the extension is installed
        with open(path, encoding="utf-8") as file:
            for package, home, *names in map(str.split, file):
                found.setdefault(package, {}).update(dict.fromkeys(names, home))
    return found


def home_of(package, name):
    """Returns the module that defines PyTorch's name of a package, or None if only `compat.paths` can tell."""
    home = torch_names().get(package, {}).get(name)
    if home in TORCH_ONLY and not import_module("mytorch.arrays.config").pytorch_mode:
        return None
    return None if home in ("*", "compat.paths", "compat.stubs") else home


def torch_value(package, name):
    """Returns PyTorch's name of a package. Its own module is all that is imported, if it has one."""
    home = home_of(package, name)
    if home is None:
        return load("compat.paths:attribute")(package, name)
    module = load(home)
    values = getattr(module, "TORCH_NAMES", {}).get(package, {})
    return values[name] if name in values else getattr(module, name)


class UnknownName(AttributeError):
    """A module has no attribute with a name. `compat` adds advice to the message when a program reads it."""

    __module__, __qualname__ = "builtins", "AttributeError"  # what a traceback shows

    def __str__(self):
        compat = _compat()
        return self.args[0] + (compat.advice(*self.args[1:]) if compat else "")

    def __reduce__(self):
        return AttributeError, (str(self),)


def unknown_name(package, name):
    """Returns the error for an unknown attribute of a module."""
    text = f"module {sys.modules[package].__name__!r} has no attribute {name!r}"
    return UnknownName(text, package, name, name=name, obj=sys.modules[package])


class LazyMethod:
    """A method of tensors that is imported when it is first looked up, and then replaces this object in its class."""

    def __init__(self, cls, name, home):
        self.cls, self.name, self.home = cls, name, home

    def __get__(self, tensor, owner=None):
        method = load(f"{self.home}:{self.name}")
        if not self.name.startswith("_"):
            method = import_module("mytorch.ops.dispatch.bind").public_method(method, self.name)
        setattr(self.cls, self.name, method)
        return method.__get__(tensor, owner) if hasattr(method, "__get__") else method  # also for `super().name`


class Finder:
    """Part of Python's import system: an extension finds the modules whose names begin with `prefix`.

    Args:
        prefix: start of the names of modules that it finds.
        home: module with a function `find_spec(name, path)`.
    """

    def __init__(self, prefix, home):
        self.prefix, self.home = prefix, home

    def find_spec(self, name, path=None, target=None):
        """Returns how to import a module, or None."""
        if not name.startswith(self.prefix) or f"mytorch.{self.home}".startswith(name):
            return None
        try:
            home = load(self.home)
        except ModuleNotFoundError:
            return None
        return home.find_spec(name, path)


class _Alias:
    """Part of Python's import system: enables PyTorch mode in a program that runs `sys.modules["torch"] = mytorch`."""

    def find_spec(self, name, path=None, target=None):
        """Returns None. The next import after the assignment enables the mode."""
        if sys.modules.get("torch") is sys.modules.get("mytorch", self):
            sys.meta_path.remove(self)
            if _compat() is not None:
                _compat().install_as_torch()


def _define_subclass(cls):
    """Prepares a subclass of Tensor that a program defined, where `compat` is installed."""
    if _compat() is not None:
        load("compat.overrides").define(cls)
    else:
        import_module("mytorch.arrays.overriding").overriding.add_plain(cls)


def _construct_subclass(tensor, args, kwargs):
    """Creates the data of an instance of a subclass of Tensor that a program defined, where `compat` is installed."""
    if _compat() is not None:
        load("compat.overrides").construct(tensor, args, kwargs)


def _name_node(node):
    """Gives a node the class with PyTorch's name, where `compat` is installed."""
    if _compat() is not None:
        load("compat.node_names").show(node)


def _embed_sparsely(*args):
    """Returns rows of a table, with a sparse gradient of the table; see `sparse/updates.py`."""
    return load("sparse.updates:embedding")(*args)


def install(*tensor_classes):
    """Connects the core with the extensions: methods of the classes, and import paths."""
    for home, names in METHODS.items():
        for name in names.split():
            for cls in tensor_classes:
                setattr(cls, name, LazyMethod(cls, name, home))
    hooks = import_module("mytorch.arrays.hooks")
    hooks.define_subclass, hooks.name_node = _define_subclass, _name_node
    hooks.construct_subclass = _construct_subclass
    import_module("mytorch.arrays.overriding").overriding.load = lambda: _compat() and load("compat.overrides")
    hooks.embed_sparsely = _embed_sparsely
    sys.meta_path[:0] = [_Alias(), Finder("einops._backends", "compat.einops_hook")]
    sys.meta_path += [Finder("mytorch.", "compat.paths"), Finder("miniddp", "compat.paths")]
    if "einops._backends" in sys.modules:
        load("compat.einops_hook").register()
