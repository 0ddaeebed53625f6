"""The full names that PyTorch has for the library's classes, such as `torch.nn.modules.linear.Linear` for `nn.Linear`.

Files contain these names, so each library reads the classes of the other one. In PyTorch mode, the classes also have
them as `__module__`: programs print them, compare them and store them in pickles.
"""

import re
import sys
from typing import Any

from ..arrays import config

# A module below `mytorch` -> the module below `torch` of its classes. A list "module: names; module" has one module for
# the names and another for all other classes. Classes of modules that are not in this table keep their names.
_SAME = (
    "autograd.forward_ad autograd.function autograd.graph cuda.graphs distributed.device_mesh "
    "distributed.tensor.placement_types distributions.constraints distributions.kl "
    "distributions.transforms fx.graph fx.graph_module fx.interpreter fx.node fx.proxy nn.attention "
    "nn.parallel.data_parallel nn.parallel.distributed nn.utils.parametrize nn.utils.prune nn.utils.rnn onnx "
    "optim.lbfgs optim.lr_scheduler optim.optimizer optim.sgd optim.sparse_adam optim.swa_utils "
    "utils.data.dataloader utils.data.dataset utils.data.distributed utils.data.sampler"
)
_BY_NAME = "distributions.compound distributions.continuous distributions.discrete distributions.matrix distributions.transformed"
_HOMES = {
    **{name: name for name in _SAME.split()},
    "arrays.array": "",
    "arrays.parameter": "nn.parameter",
    "arrays.tensor": "utils.hooks: RemovableHandle; ",
    "amp": "amp.grad_scaler: GradScaler; amp.autocast_mode",
    "autograd.anomaly": "autograd.anomaly_mode",
    "autograd.recompute": "utils.checkpoint",
    "arrays.devices": "",
    "arrays.memory_format": "",
    "arrays.dtypes": "",
    "arrays.errors": "_C: LinAlgError; ",
    "utils._pytree": "utils._pytree",
    "compat.cpu": "cpu",
    "utils.flop_counter": "utils.flop_counter",
    "compat.futures": "futures",
    "ops.library": "_library.custom_ops: CustomOpDef; library",
    "compat.multiprocessing": "multiprocessing.spawn",
    "compat.overrides": "overrides",
    "compat.torch_only": "",
    "compat.variable": "autograd.variable",
    "cuda.amp": "cuda.amp.grad_scaler: GradScaler; cuda.amp.autocast_mode",
    "cuda.streams": "cuda.streams",
    "distributed.collectives": "distributed.distributed_c10d",
    "distributed.engine": "distributed.distributed_c10d",
    "distributed.fsdp.parameters": "distributed.fsdp",
    "distributed.fsdp.sharding": "distributed.fsdp",
    "distributed.fsdp.wrapper": "distributed.fsdp.fully_sharded_data_parallel: FullyShardedDataParallel; distributed.fsdp.api",
    "distributed.process_group": "distributed.distributed_c10d",
    "distributed.stores": "distributed: DistNetworkError DistStoreError; distributed.distributed_c10d",
    "distributed.tensor.dtensor": "distributed.tensor",
    "distributed.work": "distributed.distributed_c10d: Work; distributed",
    "distributions.distribution": "distributions.exp_family: ExponentialFamily; distributions.distribution",
    "autograd.mode": "autograd.grad_mode",
    "autograd.node": "autograd.graph",
    "export.program": "export.graph_signature: ExportGraphSignature; export.exported_program",
    "export.sizes": "export.dynamic_shapes",
    "fx.tracer": "fx._symbolic_trace",
    "nn.activation": "nn.modules.activation",
    "nn.adaptive": "nn.modules.adaptive",
    "nn.containers": "nn.modules.container",
    "nn.conv": "nn.modules.conv",
    "nn.dropout": "nn.modules.dropout",
    "nn.embedding": "nn.modules.sparse",
    "nn.lazy": "nn.modules.linear: LazyLinear; nn.modules.batchnorm: LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d; "
    "nn.modules.instancenorm: LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d; nn.modules.lazy: LazyModuleMixin; nn.modules.conv",
    "nn.linear": "nn.modules.flatten: Flatten Unflatten; nn.modules.linear",
    "nn.linear_cross_entropy": "nn.modules.linear_cross_entropy_options",
    "nn.loss": "nn.modules.distance: CosineSimilarity PairwiseDistance; nn.modules.loss",
    "nn.module": "nn.modules.module",
    "nn.normalization": "nn.modules.batchnorm: BatchNorm1d BatchNorm2d BatchNorm3d; nn.modules.instancenorm: InstanceNorm1d "
    "InstanceNorm2d InstanceNorm3d; nn.modules.normalization",
    "nn.padding": "nn.modules.padding",
    "nn.pool": "nn.modules.pooling",
    "nn.rnn": "nn.modules.rnn",
    "nn.sync_batch_norm": "nn.modules.batchnorm",
    "nn.transformer": "nn.modules.activation: MultiheadAttention; nn.modules.transformer",
    "nn.vision": "nn.modules.channelshuffle: ChannelShuffle; nn.modules.fold: Fold Unfold; nn.modules.pixelshuffle: PixelShuffle "
    "PixelUnshuffle; nn.modules.upsampling",
    "ops.random": "_C",
    "optim.adafactor": "optim",
    "optim.adam": "optim.adamw: AdamW; optim.adam",
    "optim.muon": "optim",
    "optim.zero": "distributed.optim.zero_redundancy_optimizer",
    "files.serialization": "serialization",
    "files.storage": "storage",
    "profiler": "profiler.profiler",
    "random.quasirandom": "quasirandom",
    "profiler.autograd_profiler": "autograd.profiler",
    "profiler.events": "autograd.profiler_util",
    "sparse.creation": "sparse",
    "tools.benchmark": "utils.benchmark.utils.timer: Timer; utils.benchmark.utils.common",
    "utils.selective_checkpoint": "utils.checkpoint",
}
_NAMED_AFTER_CLASS = {"optim.adaptive": "optim", **dict.fromkeys(_BY_NAME.split(), "distributions")}
_FILES = {
    "Chi2": "chi2",
    "ExpRelaxedCategorical": "relaxed_categorical",
    "FisherSnedecor": "fishersnedecor",
    "LKJCholesky": "lkj_cholesky",
    "LowRankMultivariateNormal": "lowrank_multivariate_normal",
    "LogitRelaxedBernoulli": "relaxed_bernoulli",
    "OneHotCategoricalStraightThrough": "one_hot_categorical",
    "RelaxedOneHotCategorical": "relaxed_categorical",
    "StudentT": "studentT",
}
# Classes of these modules that PyTorch does not have.
_OWN = set(
    "CaptureError DTensorParameter DeviceError Edge Engine GraphFreedError InPlaceError InstanceNorm Mode ModeSwitch NoGPUError "
    "NonMember OfCategories ParameterGroup Policy ShardedParameter SyncBatchNormFunction set_anomaly".split()
)
_waiting = {*_HOMES, *_NAMED_AFTER_CLASS}  # modules that were not imported when `show` last ran
_seen: list[Any] = [0]


def _path(home, name):
    """Returns the module below `torch` of a public class; None if PyTorch has no such class there."""
    if home in _NAMED_AFTER_CLASS:
        words = _FILES.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        folder = _NAMED_AFTER_CLASS[home]
        return f"{folder}.{words if folder == 'distributions' else words.replace('_', '')}"
    for part in _HOMES[home].split(";") if home in _HOMES else ():
        path, _, names = part.partition(":")
        if not names or name in names.split():
            return path.strip()
    return None


def home_of(kind):
    """Returns the module that PyTorch has for a class, such as "torch.nn.modules.linear"; None for other classes."""
    package, _, home = kind.__module__.partition(".")
    if package == "torch" and config.pytorch_mode:
        return kind.__module__
    name = kind.__qualname__
    if package != "mytorch" or name in _OWN or (name.startswith("_") and _HOMES.get(home) != home):
        return None
    path = _path(home, name) if home else ""
    return None if path is None else f"torch.{path}".rstrip(".")


def show():
    """Gives the classes of the modules that are imported PyTorch's names. It runs after each import in PyTorch mode."""
    if _seen[0] == len(sys.modules):
        return
    _seen[0] = len(sys.modules)
    for home in list(_waiting):
        module = sys.modules.get(f"mytorch.{home}")
        if module is None:
            continue
        if getattr(module.__spec__, "_initializing", False):
            _seen[0] = 0
            continue
        _waiting.discard(home)
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ in (module.__name__, "mytorch"):
                kind.__module__ = home_of(kind) or kind.__module__
