"""Loss layers: each calls the function of its name in `nn.functional`."""

from ..ops.loss import _legacy
from . import functional as F
from .module import Module


class CrossEntropyLoss(Module):
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
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
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


def _loss(name, function, arguments=(), buffers=(), old=True):
    """A loss layer from a function: `arguments` are (name, default) pairs, kept and passed on; buffers are tensors.

    Args:
        old: whether the layer takes PyTorch's older size_average and reduce too.
    """
    order = [*buffers[:1], *(["size_average"] if old else []), *[n for n, _ in arguments], *(["reduce"] if old else []), "reduction", *buffers[1:]]
    defaults = {**dict.fromkeys(buffers), "size_average": None, "reduce": None, **dict(arguments), "reduction": "mean"}

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        if len(args) > len(order):
            raise TypeError(f"{name}() takes at most {len(order)} arguments, got {len(args)}.")
        for n in kwargs:
            if n not in order and n not in ("auto", "fused"):
                raise TypeError(f"{name}() got an unexpected keyword argument '{n}'")
        given = {**defaults, **dict(zip(order, args, strict=False)), **kwargs}
        for b in buffers:
            self.register_buffer(b, given[b])
        for n, _ in arguments:
            setattr(self, n, given[n])
        self.reduction = _legacy(given["reduction"], given["size_average"], given["reduce"])

    def forward(self, *inputs):
        options = {n: getattr(self, n) for n in (*buffers, *[n for n, _ in arguments])}
        return getattr(F, function)(*inputs, reduction=self.reduction, **options)

    body = {"__init__": __init__, "forward": forward, "__doc__": f"The loss `F.{function}` as a layer.", "__module__": __name__}
    return type(name, (Module,), body)


NLLLoss = _loss("NLLLoss", "nll_loss", [("ignore_index", -100)], ["weight"])
MSELoss = _loss("MSELoss", "mse_loss")
L1Loss = _loss("L1Loss", "l1_loss")
BCELoss = _loss("BCELoss", "binary_cross_entropy", buffers=["weight"])
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", buffers=["weight", "pos_weight"])
SmoothL1Loss = _loss("SmoothL1Loss", "smooth_l1_loss", [("beta", 1.0)])
HuberLoss = _loss("HuberLoss", "huber_loss", [("delta", 1.0)], old=False)
KLDivLoss = _loss("KLDivLoss", "kl_div", [("log_target", False)])
PoissonNLLLoss = _loss("PoissonNLLLoss", "poisson_nll_loss", [("log_input", True), ("full", False), ("eps", 1e-8)])
GaussianNLLLoss = _loss("GaussianNLLLoss", "gaussian_nll_loss", [("full", False), ("eps", 1e-6)], old=False)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", "hinge_embedding_loss", [("margin", 1.0)])
SoftMarginLoss = _loss("SoftMarginLoss", "soft_margin_loss")
MarginRankingLoss = _loss("MarginRankingLoss", "margin_ranking_loss", [("margin", 0.0)])
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", "cosine_embedding_loss", [("margin", 0.0)])
TripletMarginLoss = _loss("TripletMarginLoss", "triplet_margin_loss", [("margin", 1.0), ("p", 2.0), ("eps", 1e-6), ("swap", False)])
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
    [("distance_function", None), ("margin", 1.0), ("swap", False)], old=False,
)  # fmt: skip
MultiMarginLoss = _loss("MultiMarginLoss", "multi_margin_loss", [("p", 1), ("margin", 1.0), ("weight", None)])
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", buffers=["weight"])
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", "multilabel_margin_loss")


class CTCLoss(Module):
    """Connectionist temporal classification; see `F.ctc_loss`."""

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


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
