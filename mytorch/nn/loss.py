"""Loss layers: each calls the function of its name in `nn.functional`."""

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
