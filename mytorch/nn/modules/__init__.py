"""PyTorch's import paths of layers: `nn.modules.conv._ConvNd`, `nn.modules.batchnorm._BatchNorm`, and so on.

A path that has the contents of one module here is that module; the others are made of the classes that belong there.
"""

import sys
import types
from importlib import import_module

from ..module import Module
from . import utils
from .utils import consume_prefix_in_state_dict_if_present

_PACKAGE = __name__.rpartition(".")[0]

# PyTorch's module -> our module, or names as "our_module: name, their_name=our_name …"
_SAME = {
    "adaptive": "adaptive",
    "container": "containers",
    "lazy": "lazy",
    "linear_cross_entropy": "linear_cross_entropy",
    "linear_cross_entropy_options": "linear_cross_entropy",
    "module": "module",
    "rnn": "rnn",
    "sparse": "embedding",
    "transformer": "transformer",
}
_EACH = tuple("123")
_NORMS = [f"{kind}{d}d" for kind in ("BatchNorm", "LazyBatchNorm") for d in _EACH]
_INSTANCE = [f"{kind}{d}d" for kind in ("InstanceNorm", "LazyInstanceNorm") for d in _EACH]
_PARTS = {
    "activation": (["activation"], {"MultiheadAttention": "transformer.MultiheadAttention"}),
    "batchnorm": (
        [],
        {
            **{n: f"{'lazy' if 'Lazy' in n else 'normalization'}.{n}" for n in _NORMS},
            "SyncBatchNorm": "normalization.SyncBatchNorm",
            "_BatchNorm": "normalization._BatchNorm",
            "_NormBase": "normalization._NormBase",
            "_LazyNormBase": "lazy._LazyNorm",
        },
    ),
    "channelshuffle": ([], {"ChannelShuffle": "vision.ChannelShuffle"}),
    "conv": (
        ["conv"],
        {
            "_ConvNd": "conv._Conv",
            "_ConvTransposeNd": "conv._ConvTranspose",
            "_LazyConvXdMixin": "lazy._LazyConv",
            **{n: f"lazy.{n}" for d in _EACH for n in (f"LazyConv{d}d", f"LazyConvTranspose{d}d")},
        },
    ),
    "distance": ([], {n: f"loss.{n}" for n in ("CosineSimilarity", "PairwiseDistance")}),
    "dropout": (["dropout"], {"_DropoutNd": "dropout._Dropout"}),
    "flatten": ([], {n: f"linear.{n}" for n in ("Flatten", "Unflatten")}),
    "fold": ([], {n: f"vision.{n}" for n in ("Fold", "Unfold")}),
    "instancenorm": (
        [],
        {
            **{n: f"{'lazy' if 'Lazy' in n else 'normalization'}.{n}" for n in _INSTANCE},
            "_InstanceNorm": "normalization._InstanceNorm",
        },
    ),
    "linear": (["linear"], {"LazyLinear": "lazy.LazyLinear"}),
    "loss": (["loss"], {}),
    "normalization": (
        [],
        {n: f"normalization.{n}" for n in ("LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm")},
    ),
    "padding": (["padding"], {"_ConstantPadNd": "padding._ConstantPad"}),
    "pixelshuffle": ([], {n: f"vision.{n}" for n in ("PixelShuffle", "PixelUnshuffle")}),
    "pooling": (
        ["pool"],
        {"_MaxPoolNd": "pool._MaxPool", "_AvgPoolNd": "pool._AvgPool", "_LPPoolNd": "pool._LPPool", "_AdaptiveMaxPoolNd": "pool._AdaptiveMax", "_MaxUnpoolNd": "pool._MaxUnpool"},
    ),
    "upsampling": ([], {n: f"vision.{n}" for n in ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d")}),
}  # fmt: skip


def _ours(path):
    home, _, name = path.partition(".")
    module = import_module(f"{_PACKAGE}.{home}")
    return getattr(module, name) if name else module


def _install():
    for name, home in _SAME.items():
        globals()[name] = sys.modules[f"{__name__}.{name}"] = _ours(home)
    for name, (homes, classes) in _PARTS.items():
        made = types.ModuleType(f"{__name__}.{name}", f"What PyTorch has in `nn.modules.{name}`.")
        for home in homes:
            contents = vars(_ours(home)).items()
            made.__dict__.update({k: v for k, v in contents if isinstance(v, type) and issubclass(v, Module)})
        made.__dict__.update({k: _ours(path) for k, path in classes.items()})
        globals()[name] = sys.modules[made.__name__] = made
    layers = vars(import_module(_PACKAGE)).items()
    globals().update({k: v for k, v in layers if isinstance(v, type) and issubclass(v, Module)})


_install()
