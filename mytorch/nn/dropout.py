"""Dropout layers, which set random elements or whole channels to zero during training."""

from ..arrays.printing import in_torch_layout
from ..arrays.tensor import Tensor
from . import functional as F
from .layer import Layer

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Layer, named="dropout_p", shown="p={p}, inplace={inplace}", p=0.5, inplace=False, dropout_p=None):
    """The base class of the dropout layers.

    Args:
        p: probability that an element or channel becomes zero (default: 0.5).
        dropout_p: another name of `p`.
    """

    def __post_init__(self) -> None:
        other = self.__dict__.pop("dropout_p")
        self.p: float = self.p if other is None else other
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got {self.p}.")

    def extra_repr(self) -> str:
        return super().extra_repr() if in_torch_layout() else f"p={self.p}" + (", inplace=True" if self.inplace else "")

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.p, self.training, self.inplace)


class Dropout(_Dropout, function=F.dropout):
    """Sets random elements to zero during training.

    Each element becomes zero with probability `p`, independently of the others. The layer multiplies the remaining
    elements by 1 / (1 - p), which keeps the expected value. In evaluation mode, it returns the input unchanged.

    Use it against overfitting, after wide linear layers and in transformers. For feature maps, whose neighbors are
    alike, there is `Dropout2d`.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Srivastava et al., 2014.

    Example:
        >>> layer = nn.Dropout(0.5)
        >>> layer.eval()(tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        >>> layer.train()(mytorch.ones(1000)).unique().tolist()
        [0.0, 2.0]

    See also: `nn.functional.dropout`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace, auto=self.auto, fused=self.fused)


class Dropout1d(_Dropout, function=F.dropout1d):
    """Sets random channels to zero during training; see `nn.Dropout2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: the same shape as the input.
    """


class Dropout2d(_Dropout, function=F.dropout2d):
    """Sets random channels to zero during training.

    Each channel of each sample becomes zero with probability `p`. The layer multiplies the remaining channels by
    1 / (1 - p). In evaluation mode, it returns the input unchanged.

    Use it after convolutions: neighbors of a zeroed element would give its value away, so whole channels are set to
    zero.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: the same shape as the input.

    Source: Tompson et al., 2015.

    Example:
        >>> x = nn.Dropout2d(0.5)(mytorch.ones(1, 100, 4, 4))
        >>> bool((x == x[:, :, :1, :1]).all())  # a channel is zero or not as a whole
        True

    See also: `nn.functional.dropout2d`, `nn.Dropout`.
    """


class Dropout3d(_Dropout, function=F.dropout3d):
    """Sets random channels to zero during training; see `nn.Dropout2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: the same shape as the input.
    """


class AlphaDropout(_Dropout, function=F.alpha_dropout):
    """Applies alpha dropout to random elements during training, for networks with `nn.SELU`.

    Each element is replaced with probability `p` by the negative saturation value of SELU. A scale and an
    offset then restore mean and variance. In evaluation mode, the layer returns the input unchanged.

    Use it after `SELU`, because it keeps mean and variance; after other activations use `Dropout`.

    Shape:
        Input: (*), any shape.
        Output: the same shape as the input.

    Source: Klambauer et al., 2017.

    Example:
        >>> tuple(nn.AlphaDropout(0.2)(mytorch.ones(2, 3)).shape)
        (2, 3)

    See also: `nn.functional.alpha_dropout`, `nn.SELU`.
    """


class FeatureAlphaDropout(_Dropout, function=F.feature_alpha_dropout):
    """Applies alpha dropout to random channels during training, for networks with `nn.SELU`.

    Each channel of each sample is replaced with probability `p` by the negative saturation value of SELU. A scale and
    an offset then restore mean and variance. In evaluation mode, the layer returns the input unchanged.

    Shape:
        Input: (N, C, *).
        Output: the same shape as the input.

    Source: Klambauer et al., 2017.

    Example:
        >>> tuple(nn.FeatureAlphaDropout(0.2)(mytorch.ones(2, 3, 4)).shape)
        (2, 3, 4)

    See also: `nn.functional.feature_alpha_dropout`, `nn.SELU`.
    """
