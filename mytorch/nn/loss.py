"""Loss layers: each calls the function of its name in `nn.functional`."""

import inspect
import math
import warnings

from ..kernels.registry import Kernels
from ..ops.loss import _legacy
from . import functional as F
from .linear import Linear
from .module import Module


class _Loss(Module):
    """What losses share: the reduction, which PyTorch's older size_average and reduce may name too."""

    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        self.reduction = _legacy(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """A loss with a weight for each class, which is a buffer."""

    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_WeightedLoss):
    """The negative log-likelihood of class targets under softmax(logits); see `F.cross_entropy`."""

    def __init__(
        self,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
        *,
        softcap=None,
        auto=False,
        fused=None,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.softcap = softcap
        self.auto = auto
        self.fused = fused

    def forward(self, input, target):
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            softcap=self.softcap,
            fused=False if self.auto else self.fused,
        )


def _loss(name, function, order, inputs=("input", "target"), buffers=(), by_name=False):
    """A loss layer from a function.

    Args:
        order: the constructor's arguments in PyTorch's order: names, or (name, default) pairs. `size_average`,
            `reduce` and `reduction` become one setting; what is in `buffers` is kept as a tensor; all others are
            kept and passed on.
        inputs: the names of forward's arguments.
        by_name: whether the constructor's arguments are given by name only.
    """
    usual = {"size_average": None, "reduce": None, "reduction": "mean", "weight": None, "pos_weight": None}
    defaults = dict((item, usual[item]) if isinstance(item, str) else item for item in order)
    kept = [n for n in defaults if n not in ("size_average", "reduce", "reduction")]

    def __init__(self, *args, **kwargs):
        most = 0 if by_name else len(defaults)
        if len(args) > most:
            raise TypeError(f"{name}() takes at most {most} positional arguments, got {len(args)}.")
        given = {**defaults, **dict(zip(defaults, args, strict=False))}
        for n, value in kwargs.items():
            if n not in defaults and n not in ("auto", "fused"):
                raise TypeError(f"{name}() got an unexpected keyword argument '{n}'")
            given[n] = value
        if given.get("fused") is True:
            Kernels(function).warn("there is no kernel for it")
        _Loss.__init__(self, given.get("size_average"), given.get("reduce"), given["reduction"])
        for n in kept:
            self.register_buffer(n, given[n]) if n in buffers else setattr(self, n, given[n])

    def forward(self, *args, **kwargs):
        if len(args) + len(kwargs) != len(inputs) or any(n not in inputs[len(args) :] for n in kwargs):
            raise TypeError(f"{name}: expected {', '.join(inputs)}, got {len(args)} arguments and {sorted(kwargs)}.")
        args = (*args, *(kwargs[n] for n in inputs[len(args) :]))
        return getattr(F, function)(*args, reduction=self.reduction, **{n: getattr(self, n) for n in kept})

    either, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    made = [inspect.Parameter(n, named if by_name else either, default=d) for n, d in defaults.items()]
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, either) for n in ("self", *inputs)])
    body = {
        "__init__": __init__, "forward": forward, "__doc__": f"The loss `F.{function}` as a layer.", "__module__": __name__,
        "__signature__": inspect.Signature(made),
    }  # fmt: skip
    return type(name, (_WeightedLoss if "weight" in buffers else _Loss,), body)


_OLD = ("size_average", "reduce", "reduction")
_MARGIN = ("margin", 1.0)

NLLLoss = _loss(
    "NLLLoss", "nll_loss", ["weight", "size_average", ("ignore_index", -100), "reduce", "reduction"], buffers=["weight"]
)


class NLLLoss2d(NLLLoss):
    """The older name of NLLLoss for images."""

    def __init__(self, *args, **kwargs):
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)


MSELoss = _loss("MSELoss", "mse_loss", _OLD)
L1Loss = _loss("L1Loss", "l1_loss", _OLD)
BCELoss = _loss("BCELoss", "binary_cross_entropy", ["weight", *_OLD], buffers=["weight"])
BCEWithLogitsLoss = _loss(
    "BCEWithLogitsLoss",
    "binary_cross_entropy_with_logits",
    ["weight", *_OLD, "pos_weight"],
    buffers=["weight", "pos_weight"],
)
SmoothL1Loss = _loss("SmoothL1Loss", "smooth_l1_loss", [*_OLD, ("beta", 1.0)])
HuberLoss = _loss("HuberLoss", "huber_loss", ["reduction", ("delta", 1.0)])
KLDivLoss = _loss("KLDivLoss", "kl_div", [*_OLD, ("log_target", False)])
PoissonNLLLoss = _loss(
    "PoissonNLLLoss", "poisson_nll_loss",
    [("log_input", True), ("full", False), "size_average", ("eps", 1e-8), "reduce", "reduction"], ("log_input", "target"),
)  # fmt: skip
GaussianNLLLoss = _loss(
    "GaussianNLLLoss",
    "gaussian_nll_loss",
    [("full", False), ("eps", 1e-6), "reduction"],
    ("input", "target", "var"),
    by_name=True,
)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", "hinge_embedding_loss", [_MARGIN, *_OLD])
SoftMarginLoss = _loss("SoftMarginLoss", "soft_margin_loss", _OLD)
MarginRankingLoss = _loss(
    "MarginRankingLoss", "margin_ranking_loss", [("margin", 0.0), *_OLD], ("input1", "input2", "target")
)
CosineEmbeddingLoss = _loss(
    "CosineEmbeddingLoss", "cosine_embedding_loss", [("margin", 0.0), *_OLD], ("input1", "input2", "target")
)
TripletMarginLoss = _loss(
    "TripletMarginLoss", "triplet_margin_loss", [_MARGIN, ("p", 2.0), ("eps", 1e-6), ("swap", False), *_OLD],
    ("anchor", "positive", "negative"),
)  # fmt: skip
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
    [("distance_function", None), _MARGIN, ("swap", False), "reduction"], ("anchor", "positive", "negative"), by_name=True,
)  # fmt: skip
MultiMarginLoss = _loss(
    "MultiMarginLoss", "multi_margin_loss", [("p", 1), _MARGIN, "weight", *_OLD], buffers=["weight"]
)
MultiLabelSoftMarginLoss = _loss(
    "MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", ["weight", *_OLD], buffers=["weight"]
)
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", "multilabel_margin_loss", _OLD)


class CTCLoss(_Loss):
    """Connectionist temporal classification; see `F.ctc_loss`."""

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class CosineSimilarity(Module):
    """cos of the angle between two tensors along `dim`."""

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of differences along the last axis."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer and the cross-entropy of its output; see `F.linear_cross_entropy`.

    Args:
        in_features, num_classes: the sizes of input and output.
        out_features: further axes of the output, each place of which has its own classes and target.
        bias: whether the layer has one.
        weight, reduction, ignore_index, label_smoothing: as CrossEntropyLoss's.
        options: a LinearCrossEntropyOptions, to go through the batch in pieces.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: (N, in_features) or (in_features,), and targets (N, *out_features) or ().
    """

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        options=None,
        fused=None,
    ):
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(
            in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype
        )
        self.options = options
        self.fused = fused

    def forward(self, input, target):
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(self.num_classes, *self.out_features, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(self.num_classes, *self.out_features),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
            fused=self.fused,
        )

    def extra_repr(self):
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
