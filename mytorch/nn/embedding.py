"""Embedding layers, which look up rows of a table, and EmbeddingBag, which also reduces them."""

from ..arrays.tensor import Tensor
from ..ops.creation import empty
from . import functional as F
from . import init
from .common_types import Device, DType
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The base class of the embedding layers: a table of vectors, one of which may be padding.

    Args:
        num_embeddings: number of rows of the table.
        embedding_dim: size of each row.
        padding_idx: row without a gradient, which starts at zero.
        max_norm: largest norm of a row. Rows with a larger norm are scaled down in place when they are looked up.
        norm_type: order of that norm (default: 2.0).
        scale_grad_by_freq: if True, divides the gradient of a row by its frequency in the batch (default: False).
        sparse: if True, the gradient of the weight is a sparse tensor of the selected rows (default: False).
    """

    def _set_up(self, rows, columns, padding_idx, weight, freeze, device, dtype, error):
        """Checks and stores the sizes, and creates the weight. `error` is the type of error for a wrong weight."""
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise AssertionError(f"padding_idx must be within num_embeddings: got {padding_idx} for {rows} rows.")
        if weight is not None and (shape := tuple(weight.shape)) != (rows, columns):
            raise error(f"Shape of weight {shape} does not match num_embeddings and embedding_dim: {rows}, {columns}.")
        self.num_embeddings = rows
        self.embedding_dim = columns
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        if weight is None:
            self.weight = Parameter(empty(rows, columns, device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draws the table from a standard normal distribution, and sets the padding row to zero."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0

    def _repr(self, *names):
        """Returns the sizes, and the options that differ from PyTorch's defaults."""
        defaults = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        options = [f"{n}={v!r}" for n in names if (v := getattr(self, n)) != defaults.get(n)]
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *options])


class Embedding(_Table):
    """Looks up rows of a learnable table by their indices.

        y[...] = weight[input[...]]

    Use it for tokens and other ids. It is a `Linear` of one-hot vectors, without the vectors.

    Shape:
        Input: (*), integers from 0 to num_embeddings - 1.
        Output: (*, embedding_dim).

    Attributes:
        weight: learnable table of shape (num_embeddings, embedding_dim).

    Raises:
        AssertionError: `padding_idx` is not a row of the table.

    Example:
        >>> layer = nn.Embedding(10, 3, padding_idx=0)
        >>> tuple(layer(tensor([[0], [5]])).shape)
        (2, 1, 3)
        >>> layer(tensor([0])).tolist()
        [[0.0, 0.0, 0.0]]

    See also: `nn.functional.embedding`, `nn.EmbeddingBag`.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Device = None, dtype: DType = None, *, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self.auto = auto
        self.fused = fused
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype, ValueError)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> "Embedding":  # fmt: skip
        """Returns an `Embedding` with a given table.

        Args:
            embeddings: table of shape (num_embeddings, embedding_dim).
            freeze: if True, the table is not trained (default: True).
            padding_idx: row without a gradient.
            max_norm: largest norm of a row. Rows with a larger norm are scaled down in place when they are looked up.
            norm_type: order of that norm (default: 2.0).
            scale_grad_by_freq: if True, divides the gradient of a row by its frequency in the batch (default: False).
            sparse: if True, the gradient of the weight is a sparse tensor (default: False).

        Example:
            >>> layer = nn.Embedding.from_pretrained(tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> layer(tensor([1])).tolist()
            [[3.0, 4.0]]
        """
        if embeddings.ndim != 2:
            raise ValueError(f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.ndim}-d.")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse,
            auto=self.auto, fused=self.fused,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return self._repr("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


class EmbeddingBag(_Table):
    """Computes the sum, mean or maximum of bags of rows of a learnable table.

        y[i] = reduce(weight[j] for j in bag i)

    Use it for sets of ids, such as the words of a text without order: it never holds the single rows.

    Args:
        mode: reduction, "sum", "mean" or "max" (default: "mean").
        include_last_offset: if True, the last element of the offsets is the end of the last bag (default: False).
        padding_idx: row that does not count and has no gradient.

    Shape:
        Input: (B, n) integers, one bag for each row; or (n,) integers with offsets of shape (B,).
        Output: (B, embedding_dim).

    Attributes:
        weight: learnable table of shape (num_embeddings, embedding_dim).

    Example:
        >>> layer = nn.EmbeddingBag.from_pretrained(tensor([[1.0], [2.0], [6.0]]), mode="sum")
        >>> layer(tensor([0, 1, 2]), offsets=tensor([0, 2])).tolist()
        [[3.0], [6.0]]

    See also: `nn.functional.embedding_bag`, `nn.Embedding`.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Device = None, dtype: DType = None, *,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.fused = fused
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype, AssertionError)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> "EmbeddingBag":  # fmt: skip
        """Returns an `EmbeddingBag` with a given table.

        Args:
            embeddings: table of shape (num_embeddings, embedding_dim).
            freeze: if True, the table is not trained (default: True).
            max_norm: largest norm of a row. Rows with a larger norm are scaled down in place when they are looked up.
            norm_type: order of that norm (default: 2.0).
            scale_grad_by_freq: if True, divides the gradient of a row by its frequency in the batch (default: False).
            mode: reduction, "sum", "mean" or "max" (default: "mean").
            sparse: if True, the gradient of the weight is a sparse tensor (default: False).
            include_last_offset: if True, the last element of the offsets is the end of the last bag (default: False).
            padding_idx: row that does not count and has no gradient.
        """
        if embeddings.ndim != 2:
            raise AssertionError(f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.ndim}-d.")
        rows, features = embeddings.shape
        bag = cls(
            rows, features, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        bag.weight.requires_grad = not freeze
        return bag

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx, fused=self.fused,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return self._repr("max_norm", "norm_type", "scale_grad_by_freq", "mode", "padding_idx")
