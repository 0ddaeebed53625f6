"""Loss layers: each calls the function of its name in `nn.functional`."""

import math
import warnings
from collections.abc import Callable

from .._tensor import Tensor
from ..kernels.registry import Kernels
from ..ops.loss import _legacy
from . import functional as F
from .common_types import Device, DType
from .layer import Declared
from .linear import Linear
from .linear_cross_entropy import LinearCrossEntropyOptions
from .module import Module

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss",
    "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "NLLLoss2d", "PairwiseDistance", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Declared, shown="", size_average=None, reduce=None, reduction="mean"):
    """What losses share: the reduction, which PyTorch's older size_average and reduce may name too."""

    _tensors = ("weight", "pos_weight")
    _unused = ("size_average", "reduce")
    _ignored = ("auto", "fused")

    def __init_subclass__(cls, function=None, shown="", **options):
        super().__init_subclass__(function, shown=shown, **options)

    def __post_init__(self) -> None:
        older = (self.__dict__.pop(name, None) for name in ("size_average", "reduce"))
        self.reduction: str = _legacy(self.reduction, *older)
        if "fused" not in self._options and self.__dict__.pop("fused", None) is True:
            Kernels(self._function.__name__).warn("there is no kernel for it")


class _TargetLoss(_Loss):
    """A loss of an input and a target."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._compute(input, target)


class _WeightedLoss(_TargetLoss, weight=None, size_average=None, reduce=None, reduction="mean"):
    """A loss with a weight for each class, which is a buffer."""


class _PairLoss(_Loss):
    """A loss of two inputs and a target."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return self._compute(input1, input2, target)


class _TripletLoss(_Loss):
    """A loss of an anchor, one that should be near to it, and one that should be far."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return self._compute(anchor, positive, negative)


class CrossEntropyLoss(
    _WeightedLoss, function=F.cross_entropy, named="softcap", weight=None, size_average=None, ignore_index=-100,
    reduce=None, reduction="mean", label_smoothing=0.0, softcap=None,
):  # fmt: skip
    """The negative log-likelihood of class targets under softmax(logits); see `F.cross_entropy`.

    Args:
        weight: (C,), of each class. ignore_index: a target that does not count.
        reduction: "mean", "sum" or "none". label_smoothing: how much of the target is spread over all classes.
        softcap: squash the logits to ±softcap by tanh first. fused: use a fused kernel; see `mytorch.fused`.
        auto: compose it of other ops, for autograd to differentiate.

    Shape: logits (N, C, …) and targets (N, …) of class indices, or (N, C, …) of probabilities.

    Example:
        >>> round(nn.CrossEntropyLoss()(mytorch.zeros(3, 4), tensor([0, 1, 2])).item(), 4)
        1.3863
    """


class NLLLoss(
    _WeightedLoss, function=F.nll_loss, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):
    """The mean of -input[target]: the negative log-likelihood of log-probabilities (N, C, …).

    Args:
        weight: a factor for each class (C,). ignore_index: the target that does not count.
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class NLLLoss2d(NLLLoss):
    """The older name of NLLLoss for images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement."
        warnings.warn(text, FutureWarning, stacklevel=3)


class MSELoss(_TargetLoss, function=F.mse_loss):
    """The mean of (input - target)².

    Args:
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.

    Example:
        >>> nn.MSELoss()(tensor([1.0, 2.0]), tensor([1.0, 4.0])).item()
        2.0
    """


class L1Loss(_TargetLoss, function=F.l1_loss):
    """The mean of |input - target|.

    Args:
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class BCELoss(_WeightedLoss, function=F.binary_cross_entropy):
    """The mean of -(t log p + (1 - t) log(1 - p)) for probabilities p and targets t.

    Args:
        weight: a factor for each element.
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class BCEWithLogitsLoss(
    _WeightedLoss, function=F.binary_cross_entropy_with_logits, weight=None, size_average=None, reduce=None,
    reduction="mean", pos_weight=None,
):  # fmt: skip
    """BCELoss of sigmoid(input), computed without overflow; `pos_weight` weighs the positive targets.

    Args:
        weight: a factor for each element. pos_weight: a factor for the positive targets of each class.
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.

    Example:
        >>> round(nn.BCEWithLogitsLoss()(tensor([0.0]), tensor([1.0])).item(), 4)
        0.6931
    """


class SmoothL1Loss(_TargetLoss, function=F.smooth_l1_loss, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """The mean of d² / (2 beta) where d = |input - target| is below beta, of d - beta / 2 elsewhere.

    Args:
        beta: where the square ends and the line begins.
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class HuberLoss(_TargetLoss, function=F.huber_loss, reduction="mean", delta=1.0):
    """The mean of d² / 2 where d = |input - target| is below delta, of delta (d - delta / 2) elsewhere."""


class KLDivLoss(_TargetLoss, function=F.kl_div, size_average=None, reduce=None, reduction="mean", log_target=False):
    """The mean of target (log(target) - input), for log-probabilities input.

    Args:
        log_target: target is given as logarithms. reduction: also "batchmean", the sum over the first axis' size.
        size_average, reduce: PyTorch's older spelling of reduction.
    """


class PoissonNLLLoss(
    _TargetLoss, function=F.poisson_nll_loss, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None,
    reduction="mean",
):  # fmt: skip
    """The negative log-likelihood of counts under Poisson distributions of (log) rates `log_input`."""

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return self._compute(log_input, target)


class GaussianNLLLoss(
    _Loss, function=F.gaussian_nll_loss, named="full eps reduction", full=False, eps=1e-6, reduction="mean"
):
    """The negative log-likelihood of targets under normal distributions of mean `input` and variance `var`."""

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return self._compute(input, target, var)


class HingeEmbeddingLoss(
    _TargetLoss, function=F.hinge_embedding_loss, margin=1.0, size_average=None, reduce=None, reduction="mean"
):
    """The mean of input where target is 1, of max(margin - input, 0) where it is -1."""


class SoftMarginLoss(_TargetLoss, function=F.soft_margin_loss):
    """The mean of log(1 + exp(-target * input))."""


class MarginRankingLoss(
    _PairLoss, function=F.margin_ranking_loss, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """The mean of max(margin - target (input1 - input2), 0).

    Args:
        margin: by how much input1 is to exceed input2 where target is 1 (the reverse where it is -1).
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class CosineEmbeddingLoss(
    _PairLoss, function=F.cosine_embedding_loss, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """The mean of 1 - cos(input1, input2) where target is 1, of max(cos - margin, 0) where it is -1."""


class TripletMarginLoss(
    _TripletLoss, function=F.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    """The mean of max(|anchor - positive| - |anchor - negative| + margin, 0).

    Args:
        margin: by how much the negative is to be farther. p: the order of the norm. eps: added to differences.
        swap: take the negative's distance to the positive, if that is less.
        reduction: "mean", "sum" or "none". size_average, reduce: PyTorch's older spelling of it.
    """


class TripletMarginWithDistanceLoss(
    _TripletLoss, function=F.triplet_margin_with_distance_loss, named="distance_function margin swap reduction",
    distance_function=None, margin=1.0, swap=False, reduction="mean",
):  # fmt: skip
    """TripletMarginLoss with a custom distance function.

    Args:
        distance_function: a function of two tensors, or a module; `PairwiseDistance()` by default.
        margin: minimum difference between the distances to the negative and to the positive for a loss of 0.
        swap: use the distance from positive to negative if it is smaller than the distance from anchor to negative.
        reduction: "mean", "sum" or "none".
    """

    distance_function: Callable[[Tensor, Tensor], Tensor] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.margin > 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {self.margin} instead"
            )
        if self.distance_function is None:
            self.distance_function = PairwiseDistance()


class MultiMarginLoss(
    _WeightedLoss, function=F.multi_margin_loss, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    """The mean of sum over other classes of max(margin - input[target] + input[i], 0)ᵖ / C."""


class MultiLabelSoftMarginLoss(_WeightedLoss, function=F.multilabel_soft_margin_loss):
    """BCEWithLogitsLoss, averaged over the classes of each sample."""


class MultiLabelMarginLoss(_TargetLoss, function=F.multilabel_margin_loss):
    """The mean over pairs of a target class and another of max(1 - (input[target] - input[other]), 0)."""


class CTCLoss(_Loss, function=F.ctc_loss, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification; see `F.ctc_loss`. Source: Graves et al., 2006."""

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return self._compute(log_probs, targets, input_lengths, target_lengths)


class CosineSimilarity(Declared, shown="", dim=1, eps=1e-8):
    """The cosine of the angle between two tensors along `dim`."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of differences along the last axis.

    Args:
        p: the order of the norm.
        eps: added to the differences.
        keepdim: keep the reduced axes with size 1.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer and the cross-entropy of its output; see `F.linear_cross_entropy`.

    Args:
        in_features, num_classes: the sizes of input and output.
        out_features: further axes of the output, each place of which has its own classes and target.
        bias: whether the layer has one.
        weight, reduction, ignore_index, label_smoothing: as CrossEntropyLoss's.
        options: a LinearCrossEntropyOptions, to go through the batch in chunks.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: (N, in_features) or (in_features,), and targets (N, *out_features) or ().
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Device = None, dtype: DType = None, reduction: str = "mean", weight: Tensor | None = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        outs = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, outs, bias=bias, device=device, dtype=dtype)
        self.options = options
        self.fused = fused

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, self.linear.in_features), target,
            linear_bias=None if bias is None else bias.reshape(*shape), weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options, fused=self.fused,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
