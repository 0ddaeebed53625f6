"""Dropout layers: elements, or whole channels, zeroed at random while training."""

from .._tensor import Tensor
from .._tensor_str import in_torch_layout
from . import functional as F
from .layer import Layer

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Layer, named="dropout_p", shown="p={p}, inplace={inplace}", p=0.5, inplace=False, dropout_p=None):
    """What the dropout layers share.

    Args:
        p: probability of zeroing, also spelled `dropout_p`.
        inplace: write into the input.
    """

    def __post_init__(self) -> None:
        other = self.__dict__.pop("dropout_p")
        self.p: float = self.p if other is None else other
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {self.p}")

    def extra_repr(self) -> str:
        return super().extra_repr() if in_torch_layout() else f"p={self.p}" + (", inplace=True" if self.inplace else "")

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.p, self.training, self.inplace)


class Dropout(_Dropout, function=F.dropout):
    """Each element zeroed with probability p, the others scaled by 1 / (1 - p); nothing in eval mode.

    Args:
        p: probability of zeroing, also spelled `dropout_p`. inplace: write into the input.
        auto: compose it of other ops. fused: use a fused kernel; see `mytorch.fused`.

    Example:
        >>> nn.Dropout(0.5).eval()(tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace, auto=self.auto, fused=self.fused)


class Dropout1d(_Dropout, function=F.dropout1d):
    """Whole channels of (N, C, L) zeroed with probability p. Source: Tompson et al., 2015."""


class Dropout2d(_Dropout, function=F.dropout2d):
    """Whole channels of (N, C, H, W) zeroed with probability p."""


class Dropout3d(_Dropout, function=F.dropout3d):
    """Whole channels of (N, C, D, H, W) zeroed with probability p."""


class AlphaDropout(_Dropout, function=F.alpha_dropout):
    """Dropout that keeps the mean and variance of selu's outputs. Source: Klambauer et al., 2017."""


class FeatureAlphaDropout(_Dropout, function=F.feature_alpha_dropout):
    """AlphaDropout of whole channels."""
