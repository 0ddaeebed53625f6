"""Embedding: a table whose rows are looked up by index; EmbeddingBag: sums, means and maxima of them."""

from .._tensor import Tensor
from ..ops.creation import empty
from . import functional as F
from . import init
from .common_types import Device, DType
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What Embedding and EmbeddingBag share: rows of numbers, one of which may be padding."""

    def _set_up(self, rows, columns, padding_idx, weight, freeze, device, dtype):
        """Take the sizes and make the weight; whether `padding_idx` and a given weight fit was checked before."""
        self.num_embeddings = rows
        self.embedding_dim = columns
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        if weight is None:
            self.weight = Parameter(empty(rows, columns, device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Normal with variance 1; the padding row zero."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0

    def _repr(self, *names):
        """The sizes, and those of the options that are not PyTorch's defaults."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        options = [f"{n}={v!r}" for n in names if (v := getattr(self, n)) != usual.get(n)]
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *options])


class Embedding(_Table):
    """Rows of a (num_embeddings, embedding_dim) table, looked up by integer index.

    Args:
        padding_idx: a row that starts at zero and gets no gradient.
        max_norm, norm_type: rows looked up are scaled down to this norm, in place.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up in the batch.
        sparse: accepted; gradients are dense, which is said once.
        auto: compose it of other ops. fused: use a fused kernel; see `mytorch.fused`.

    Shape: (…) of integers to (…, embedding_dim).

    Example:
        >>> nn.Embedding(10, 3, padding_idx=0)(tensor([0])).tolist()
        [[0.0, 0.0, 0.0]]
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Device = None, dtype: DType = None, *, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError(f"Padding_idx must be within num_embeddings: {padding_idx} for {num_embeddings} rows.")
        if _weight is not None and tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise ValueError(f"Shape of weight {tuple(_weight.shape)} does not match num_embeddings and embedding_dim.")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self.auto = auto
        self.fused = fused
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> "Embedding":  # fmt: skip
        """An Embedding over a given 2-d table; `freeze` keeps it from being trained.

        Args:
            embeddings: (rows, features).
            freeze: no gradient.
            padding_idx: row that gets no gradient.
            max_norm: rows longer than this are scaled down when used.
            norm_type: order of that norm.
            scale_grad_by_freq: divide a row's gradient by its uses in the batch.
            sparse: sparse gradients.
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
    """Sums, means or maxima of bags of rows of a (num_embeddings, embedding_dim) table.

    Args:
        max_norm, norm_type: rows looked up are scaled down to this norm, in place.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up in the batch.
        mode: "sum", "mean" or "max".
        sparse: accepted; gradients are dense, which is said once.
        include_last_offset: offsets also say where the last bag ends.
        padding_idx: a row that is not counted and gets no gradient.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: (bags, n) integers, or (n,) with offsets (bags,), to (bags, embedding_dim).
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Device = None, dtype: DType = None, *,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("padding_idx must be within num_embeddings")
        if _weight is not None and tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.fused = fused
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> "EmbeddingBag":  # fmt: skip
        """An EmbeddingBag over a given 2-d table; `freeze` keeps it from being trained.

        Args:
            embeddings: (rows, features).
            freeze: no gradient.
            max_norm: rows longer than this are scaled down when used.
            norm_type: order of that norm.
            scale_grad_by_freq: divide a row's gradient by its uses in the batch.
            mode: "sum", "mean" or "max".
            sparse: sparse gradients.
            include_last_offset: the last offset is the end of the last bag.
            padding_idx: row that does not count.
        """
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
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
