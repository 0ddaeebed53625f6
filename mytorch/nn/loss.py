"""Loss layers. Each layer calls the function of the same name in `nn.functional`."""

import math
import warnings
from collections.abc import Callable

from ..arrays.tensor import Tensor
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
    """The base class of the loss layers.

    Args:
        size_average: deprecated, use `reduction`.
        reduce: deprecated, use `reduction`.
        reduction: "mean" for the mean of the losses, "sum" for their sum, "none" for one loss per element
            (default: "mean").
    """

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
    """A loss of an anchor, a positive sample that should be close to it, and a negative sample that should not."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return self._compute(anchor, positive, negative)


class CrossEntropyLoss(
    _WeightedLoss, function=F.cross_entropy, named="softcap", weight=None, size_average=None, ignore_index=-100,
    reduce=None, reduction="mean", label_smoothing=0.0, softcap=None,
):  # fmt: skip
    """Computes the cross-entropy between logits and class targets.

        loss = -log(softmax(input)[target])

    Pass logits to this loss, not the result of a softmax layer. If the shapes below do not match, the loss also accepts
    logits with the classes in the last dimension, (*, C), and targets (*).

    Use it for one of several classes. It receives logits, so the model has no softmax; for yes-or-no labels there is
    `BCEWithLogitsLoss`.

    Shape:
        Input: logits (C,), (N, C) or (N, C, d_1, …, d_k).
        Target: class indices (), (N,) or (N, d_1, …, d_k); or probabilities with the shape of the input.
        Output: (). With `reduction="none"`, the shape of the class indices.

    Example:
        >>> logits = mytorch.zeros(3, 4)
        >>> nn.CrossEntropyLoss()(logits, tensor([0, 1, 2]))
        tensor(1.38629)

    See also: `nn.functional.cross_entropy`, `nn.NLLLoss`.
    """


class NLLLoss(
    _WeightedLoss, function=F.nll_loss, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):
    """Computes the negative log-likelihood of class targets.

        loss = -weight[target] * input[target]

    Use it when the model already returns log-probabilities, as after `LogSoftmax`; for logits, `CrossEntropyLoss` does
    both in one step.

    Shape:
        Input: log-probabilities (C,), (N, C) or (N, C, d_1, …, d_k).
        Target: class indices (), (N,) or (N, d_1, …, d_k).
        Output: (). With `reduction="none"`, the shape of the target.

    Example:
        >>> log_probs = tensor([[-1.0, -2.0], [-3.0, -4.0]])
        >>> nn.NLLLoss()(log_probs, tensor([1, 0])).item()
        2.5

    See also: `nn.functional.nll_loss`, `nn.LogSoftmax`, `nn.CrossEntropyLoss`.
    """


class NLLLoss2d(NLLLoss):
    """Computes the negative log-likelihood of the class of each pixel. Deprecated, use `nn.NLLLoss`.

    Shape:
        Input: log-probabilities (N, C, H, W).
        Target: class indices (N, H, W).
        Output: (). With `reduction="none"`, (N, H, W).

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     layer = nn.NLLLoss2d()
        >>> layer(mytorch.full((1, 2, 1, 1), -3.0), mytorch.zeros(1, 1, 1, dtype=mytorch.int64)).item()
        3.0

    See also: `nn.NLLLoss`, `nn.functional.nll_loss`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        text = "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement."
        warnings.warn(text, FutureWarning, stacklevel=3)


class MSELoss(_TargetLoss, function=F.mse_loss):
    """Computes the mean squared error.

        loss = (input - target)²

    Use it for regression with errors like normal noise. If a few targets are far off, `HuberLoss` or `L1Loss` is less
    disturbed.

    Shape:
        Input: (*), any shape.
        Target: (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> nn.MSELoss()(tensor([1.0, 2.0]), tensor([1.0, 4.0])).item()
        2.0

    See also: `nn.functional.mse_loss`, `nn.L1Loss`, `nn.HuberLoss`.
    """


class L1Loss(_TargetLoss, function=F.l1_loss):
    """Computes the mean absolute error.

        loss = |input - target|

    Use it for regression when outliers should count no more than other errors, or for images, where it blurs less than
    `MSELoss`.

    Shape:
        Input: (*), any shape.
        Target: (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> nn.L1Loss()(tensor([1.0, 2.0]), tensor([1.0, 4.0])).item()
        1.0

    See also: `nn.functional.l1_loss`, `nn.MSELoss`, `nn.SmoothL1Loss`.
    """


class BCELoss(_WeightedLoss, function=F.binary_cross_entropy):
    """Computes the binary cross-entropy between probabilities and targets.

        loss = -weight * (target * log(input) + (1 - target) * log(1 - input))

    Logarithms below -100 are replaced by -100, so that the loss is finite.

    Use it only when the model returns probabilities. `BCEWithLogitsLoss` is accurate for probabilities near 0 and 1,
    too.

    Shape:
        Input: probabilities (*), any shape.
        Target: (*), numbers from 0 to 1.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> loss = nn.BCELoss()(tensor([0.5, 0.5]), tensor([1.0, 0.0]))
        >>> loss
        tensor(0.69315)

    See also: `nn.functional.binary_cross_entropy`, `nn.BCEWithLogitsLoss`.
    """


class BCEWithLogitsLoss(
    _WeightedLoss, function=F.binary_cross_entropy_with_logits, weight=None, size_average=None, reduce=None,
    reduction="mean", pos_weight=None,
):  # fmt: skip
    """Computes the binary cross-entropy between logits and targets.

        loss = -weight * (pos_weight * target * log(sigmoid(input)) + (1 - target) * log(1 - sigmoid(input)))

    This loss is more accurate than `nn.Sigmoid` followed by `nn.BCELoss`, and does not overflow.

    Use it for two classes, or for several labels that may be true together. The model has no sigmoid.

    Shape:
        Input: logits (*), any shape.
        Target: (*), numbers from 0 to 1.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> loss = nn.BCEWithLogitsLoss()(tensor([0.0]), tensor([1.0]))
        >>> loss
        tensor(0.69315)

    See also: `nn.functional.binary_cross_entropy_with_logits`, `nn.BCELoss`.
    """


class SmoothL1Loss(_TargetLoss, function=F.smooth_l1_loss, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Computes a squared error for small differences, and an absolute error for large ones.

        loss = d² / (2 * beta) if d < beta, d - beta / 2 otherwise,  d = |input - target|

    Use it for boxes in object detection, whose recipes ask for it; it is `HuberLoss` divided by `beta`.

    Shape:
        Input: (*), any shape.
        Target: (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> nn.SmoothL1Loss(reduction="none")(tensor([1.5, 4.0]), tensor([1.0, 1.0])).tolist()
        [0.125, 2.5]

    See also: `nn.functional.smooth_l1_loss`, `nn.HuberLoss`.
    """


class HuberLoss(_TargetLoss, function=F.huber_loss, reduction="mean", delta=1.0):
    """Computes the Huber loss: a squared error for small differences, and an absolute error for large ones.

        loss = d² / 2 if d < delta, delta * (d - delta / 2) otherwise,  d = |input - target|

    Use it for regression with outliers, also of values in reinforcement learning: gradients are limited to `delta`.

    Shape:
        Input: (*), any shape.
        Target: (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Source: Huber, 1964.

    Example:
        >>> nn.HuberLoss(reduction="none", delta=2.0)(tensor([2.0, 5.0]), tensor([1.0, 1.0])).tolist()
        [0.5, 6.0]

    See also: `nn.functional.huber_loss`, `nn.SmoothL1Loss`.
    """


class KLDivLoss(_TargetLoss, function=F.kl_div, size_average=None, reduce=None, reduction="mean", log_target=False):
    """Computes the Kullback-Leibler divergence of a target distribution from an input distribution.

        loss = target * (log(target) - input)

    Use it when the target is a distribution, as in distillation. The input has to be log-probabilities; use
    `reduction="batchmean"` for the mathematical value.

    Args:
        reduction: "batchmean", "mean", "sum" or "none". "batchmean" divides the sum by the batch size, which is the
            mathematical definition (default: "mean").

    Shape:
        Input: log-probabilities (*), any shape.
        Target: probabilities (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> p = tensor([[0.5, 0.5]])
        >>> nn.KLDivLoss(reduction="batchmean")(p.log(), p).item()
        0.0

    See also: `nn.functional.kl_div`.
    """


class PoissonNLLLoss(
    _TargetLoss, function=F.poisson_nll_loss, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None,
    reduction="mean",
):  # fmt: skip
    """Computes the negative log-likelihood of counts under Poisson distributions.

        loss = exp(input) - target * input              with log_input=True
        loss = input - target * log(input + eps)        with log_input=False

    Use it for targets that are counts, such as visits per day.

    Shape:
        Input: (*), any shape.
        Target: (*), the same shape as the input.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> nn.PoissonNLLLoss()(tensor([0.0]), tensor([3.0])).item()
        1.0

    See also: `nn.functional.poisson_nll_loss`.
    """

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return self._compute(log_input, target)


class GaussianNLLLoss(
    _Loss, function=F.gaussian_nll_loss, named="full eps reduction", full=False, eps=1e-6, reduction="mean"
):
    """Computes the negative log-likelihood of targets under normal distributions.

        loss = (log(max(var, eps)) + (input - target)² / max(var, eps)) / 2

    Use it when the model predicts its uncertainty, too: a mean and a variance for each target.

    Shape:
        Input: means (N, *) or (*).
        Target: the same shape as the input.
        Var: variances with the shape of the input, or one for each row of the last dimension.
        Output: (). With `reduction="none"`, the shape of the input.

    Example:
        >>> loss = nn.GaussianNLLLoss()
        >>> loss(tensor([1.0]), tensor([3.0]), tensor([1.0])).item()
        2.0

    See also: `nn.functional.gaussian_nll_loss`.
    """

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return self._compute(input, target, var)


class HingeEmbeddingLoss(
    _TargetLoss, function=F.hinge_embedding_loss, margin=1.0, size_average=None, reduce=None, reduction="mean"
):
    """Computes a loss that decreases distances of similar pairs, and increases distances of different pairs.

        loss = input                      if target is 1
        loss = max(0, margin - input)     if target is -1

    Use it when the model computes a distance of pairs itself; `CosineEmbeddingLoss` computes it from two vectors.

    Shape:
        Input: distances (*), any shape.
        Target: (*), 1 or -1.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> nn.HingeEmbeddingLoss()(tensor([0.5, 0.5]), tensor([1.0, -1.0])).item()
        0.5

    See also: `nn.functional.hinge_embedding_loss`.
    """


class SoftMarginLoss(_TargetLoss, function=F.soft_margin_loss):
    """Computes a logistic loss for two classes.

        loss = log(1 + exp(-target * input))

    Shape:
        Input: scores (*), any shape.
        Target: (*), 1 or -1.
        Output: (). With `reduction="none"`, (*).

    Example:
        >>> loss = nn.SoftMarginLoss()(tensor([0.0, 0.0]), tensor([1.0, -1.0]))
        >>> loss
        tensor(0.69315)

    See also: `nn.functional.soft_margin_loss`.
    """


class MarginRankingLoss(
    _PairLoss, function=F.margin_ranking_loss, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """Computes a loss that ranks one input above another.

        loss = max(0, -target * (input1 - input2) + margin)

    Use it to learn scores for a ranking, when you only know which of two items is better.

    Shape:
        Input1: (N,) or ().
        Input2: the same shape as the first input.
        Target: the same shape; 1 if the first input should be larger, -1 if the second.
        Output: (). With `reduction="none"`, the shape of the inputs.

    Example:
        >>> loss = nn.MarginRankingLoss(margin=1.0)
        >>> loss(tensor([3.0]), tensor([2.5]), tensor([1.0])).item()
        0.5

    See also: `nn.functional.margin_ranking_loss`.
    """


class CosineEmbeddingLoss(
    _PairLoss, function=F.cosine_embedding_loss, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """Computes a loss of the cosine similarity of two vectors.

        loss = 1 - cos(input1, input2)                   if target is 1
        loss = max(0, cos(input1, input2) - margin)      if target is -1

    Use it to learn embeddings from pairs that are labeled as similar or not; `TripletMarginLoss` compares two pairs
    instead.

    Shape:
        Input1: (N, D) or (D,).
        Input2: the same shape as the first input.
        Target: (N,) or (), 1 or -1.
        Output: (). With `reduction="none"`, (N,) or ().

    Example:
        >>> x, y = tensor([[1.0, 0.0]]), tensor([[0.0, 1.0]])
        >>> nn.CosineEmbeddingLoss()(x, y, tensor([1.0])).item()
        1.0

    See also: `nn.functional.cosine_embedding_loss`, `nn.CosineSimilarity`.
    """


class TripletMarginLoss(
    _TripletLoss, function=F.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    """Computes a loss that makes the positive sample closer to the anchor than the negative sample.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    Use it to learn embeddings when you know for an anchor which of two samples is more similar.

    Shape:
        Anchor: (N, D) or (D,).
        Positive: the same shape as the anchor.
        Negative: the same shape as the anchor.
        Output: (). With `reduction="none"`, (N,) or ().

    Source: Balntas et al., 2016.

    Example:
        >>> loss = nn.TripletMarginLoss(margin=1.0, eps=0.0)
        >>> loss(tensor([[0.0]]), tensor([[1.0]]), tensor([[1.5]])).item()
        0.5

    See also: `nn.functional.triplet_margin_loss`, `nn.TripletMarginWithDistanceLoss`.
    """


class TripletMarginWithDistanceLoss(
    _TripletLoss, function=F.triplet_margin_with_distance_loss, named="distance_function margin swap reduction",
    distance_function=None, margin=1.0, swap=False, reduction="mean",
):  # fmt: skip
    """Computes the triplet margin loss with a custom distance function.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    Shape:
        Anchor: (N, D) or (D,).
        Positive: the same shape as the anchor.
        Negative: the same shape as the anchor.
        Output: (). With `reduction="none"`, (N,) or ().

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1))
        >>> loss(tensor([[0.0]]), tensor([[1.0]]), tensor([[1.5]])).item()
        0.5

    See also: `nn.functional.triplet_margin_with_distance_loss`, `nn.TripletMarginLoss`.
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
    """Computes a hinge loss over several classes.

        loss = sum over i ≠ target of (weight[target] * max(0, margin - input[target] + input[i])^p) / C

    Use it in place of `CrossEntropyLoss` when only the order of the scores matters, as in a support vector machine.

    Shape:
        Input: scores (N, C) or (C,).
        Target: class indices (N,) or ().
        Output: (). With `reduction="none"`, (N,) or ().

    Example:
        >>> nn.MultiMarginLoss()(tensor([[0.5, 1.0]]), tensor([1])).item()
        0.25

    See also: `nn.functional.multi_margin_loss`.
    """


class MultiLabelSoftMarginLoss(_WeightedLoss, function=F.multilabel_soft_margin_loss):
    """Computes the binary cross-entropy between logits and targets, averaged over the classes.

        loss = -mean over c of weight[c] * (target[c] * log(sigmoid(input[c])) + (1 - target[c]) * log(1 -
        sigmoid(input[c])))

    Use it for several labels that may be true together, with one loss for each sample; `BCEWithLogitsLoss` has one for
    each label.

    Shape:
        Input: logits (N, C).
        Target: (N, C), 0 or 1.
        Output: (). With `reduction="none"`, (N,).

    Example:
        >>> loss = nn.MultiLabelSoftMarginLoss()(mytorch.zeros(1, 2), tensor([[1.0, 0.0]]))
        >>> loss
        tensor(0.69315)

    See also: `nn.functional.multilabel_soft_margin_loss`, `nn.BCEWithLogitsLoss`.
    """


class MultiLabelMarginLoss(_TargetLoss, function=F.multilabel_margin_loss):
    """Computes a hinge loss between the target classes and the other classes of each sample.

        loss = sum over targets t and other classes i of max(0, 1 - (input[t] - input[i])) / C

    Shape:
        Input: scores (N, C) or (C,).
        Target: class indices (N, C) or (C,). Classes after the first -1 do not count.
        Output: (). With `reduction="none"`, (N,) or ().

    Example:
        >>> nn.MultiLabelMarginLoss()(tensor([[1.0, 0.5]]), tensor([[0, -1]])).item()
        0.25

    See also: `nn.functional.multilabel_margin_loss`.
    """


class CTCLoss(_Loss, function=F.ctc_loss, blank=0, reduction="mean", zero_infinity=False):
    """Computes the connectionist temporal classification loss of label sequences.

        loss = -log(sum over alignments of the probability of the alignment)

    Use it for speech and handwriting, where you know the text but not at which time each letter is.

    Args:
        reduction: "mean" (default) first divides each loss by the length of its target, "sum", or "none" for one loss per
            sequence.

    Shape:
        Input: log-probabilities (T, N, C) or (T, C).
        Target: class indices (N, S), or all targets concatenated.
        Input_lengths: (N,) or ().
        Target_lengths: (N,) or ().
        Output: (). With `reduction="none"`, (N,) or ().

    Source: Graves et al., 2006.

    Example:
        >>> log_probs = mytorch.full((1, 1, 2), 0.5).log()
        >>> loss = nn.CTCLoss()(log_probs, tensor([[1]]), tensor([1]), tensor([1]))
        >>> loss
        tensor(0.69315)

    See also: `nn.functional.ctc_loss`.
    """

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return self._compute(log_probs, targets, input_lengths, target_lengths)


class CosineSimilarity(Declared, shown="", dim=1, eps=1e-8):
    """Computes the cosine of the angle between two vectors.

        similarity = (x1 · x2) / (max(|x1|, eps) * max(|x2|, eps))

    Args:
        dim: dimension of the vectors (default: 1).
        eps: smallest norm in the denominator (default: 1e-8).

    Shape:
        Input1: (*, D, *), with D at dimension `dim`.
        Input2: a shape that broadcasts with the first input.
        Output: (*, *), without dimension `dim`.

    Example:
        >>> nn.CosineSimilarity()(tensor([[1.0, 0.0]]), tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [1.0, 0.0]

    See also: `nn.functional.cosine_similarity`, `nn.PairwiseDistance`.
    """

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """Computes the p-norm of the difference of two vectors.

        distance = norm(x1 - x2 + eps, p)

    Args:
        p: order of the norm (default: 2.0).
        eps: number added to the differences (default: 1e-6).
        keepdim: if True, keeps the last dimension with size 1 (default: False).

    Shape:
        Input1: (N, D) or (D,).
        Input2: a shape that broadcasts with the first input.
        Output: (N,) or (). With `keepdim=True`, (N, 1) or (1,).

    Example:
        >>> distance = nn.PairwiseDistance(eps=0.0)
        >>> distance(tensor([[3.0, 4.0]]), tensor([[0.0, 0.0]])).tolist()
        [5.0]

    See also: `nn.functional.pairwise_distance`, `nn.CosineSimilarity`.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class LinearCrossEntropyLoss(_WeightedLoss):
    """Computes the cross-entropy of a linear layer's output.

        loss = cross_entropy(input @ Wᵀ + b, target)

    Args:
        in_features: size of the last dimension of the input.
        num_classes: number of classes.
        out_features: sizes of further dimensions of the output. Each element has its own classes and target
            (default: ()).
        bias: if True, the linear layer has a bias b (default: False).
        weight: factor for each class, shape (num_classes,).
        ignore_index: target class that does not contribute to the loss. By default, -100.
        label_smoothing: part of the target's probability that is distributed evenly over all classes (default: 0.0).
        options: a `LinearCrossEntropyOptions`, to compute the logits of the batch in chunks.

    Shape:
        Input: (N, in_features) or (in_features,).
        Target: class indices (N, *out_features) or (*out_features); or probabilities.
        Output: (). With `reduction="none"`, the shape of the class indices.

    Raises:
        RuntimeError: `weight` has another shape than (num_classes,), or `label_smoothing` is outside [0, 1].

    Example:
        >>> loss = nn.LinearCrossEntropyLoss(in_features=8, num_classes=4)
        >>> loss(mytorch.randn(3, 8), tensor([0, 1, 2])).ndim
        0

    See also: `nn.functional.linear_cross_entropy`, `nn.CrossEntropyLoss`.
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
