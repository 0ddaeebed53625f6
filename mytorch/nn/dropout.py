"""Dropout layers: elements, or whole channels, zeroed at random while training."""

from . import functional as F
from .module import Module


class _Dropout(Module):
    """What the dropout layers share.

    Args:
        p: probability of zeroing, also spelled `dropout_p`.
        inplace: write into the input.
    """

    def __init__(self, p=0.5, inplace=False, *, dropout_p=None):
        super().__init__()
        p = p if dropout_p is None else dropout_p
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Each element zeroed with probability p, the others scaled by 1 / (1 - p); nothing in eval mode.

    Args:
        p: probability of zeroing, also spelled `dropout_p`. inplace: write into the input.
        fused: use a fused kernel; see `mytorch.fused`.
    """

    def __init__(self, p=0.5, inplace=False, *, dropout_p=None, fused=None):
        super().__init__(p, inplace, dropout_p=dropout_p)
        self.fused = fused

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace, fused=self.fused)


class _ChannelDropout(_Dropout):
    dims = 2

    def forward(self, input):
        return getattr(F, f"dropout{self.dims}d")(input, self.p, self.training, self.inplace)


class Dropout1d(_ChannelDropout):
    """Whole channels of (N, C, L) zeroed with probability p. Source: Tompson et al., 2015."""

    dims = 1


class Dropout2d(_ChannelDropout):
    """Whole channels of (N, C, H, W) zeroed with probability p."""


class Dropout3d(_ChannelDropout):
    """Whole channels of (N, C, D, H, W) zeroed with probability p."""

    dims = 3


class AlphaDropout(_Dropout):
    """Dropout that keeps the mean and variance of selu's outputs. Source: Klambauer et al., 2017."""

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels."""

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)
