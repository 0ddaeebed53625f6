"""Cross-entropy of a linear layer's output, optionally in chunks that never hold all logits at once."""

import dataclasses
import warnings

from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..autograd.recompute import checkpoint
from ..ops.composites import linear
from ..ops.linear_loss import by_kernel
from ..ops.loss import cross_entropy
from ..ops.movement import cat, stack

__all__ = ["LinearCrossEntropyOptions"]

_POLICIES = ("auto", "accurate", "balanced", "compact")


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Options of `nn.functional.linear_cross_entropy` for computing the batch in chunks.

    Args:
        allow_retain_graph: accepted for compatibility. A second backward with `retain_graph` is always possible
            (default: False).
        batch_chunk_size: number of rows of a chunk. By default, `chunking_method` determines it.
        chunking_method: "aspect_ratio" selects chunks with about as many logits as the input has elements, and
            "aspect_ratio:N" 1/N of that. "auto" is "aspect_ratio" for 16-bit inputs, and "aspect_ratio:2" otherwise.
            `None` computes all rows at once (default: "auto").
        acc_policy: "auto", "accurate", "balanced" or "compact". All of them accumulate as "accurate" does
            (default: "auto").
        acc_dtype: dtype of logits and sums. By default, float32 for 16-bit inputs, and the dtype of the input
            otherwise.

    Raises:
        ValueError: a value is unknown or not positive.

    Example:
        >>> options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
        >>> x, w = mytorch.randn(6, 8), mytorch.randn(4, 8)
        >>> target = tensor([0, 1, 2, 3, 0, 1])
        >>> loss = F.linear_cross_entropy(x, w, target, options=options)
        >>> bool((loss - F.linear_cross_entropy(x, w, target)).abs() < 1e-4)
        True
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None

    def __post_init__(self):
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}, expected one of {_POLICIES}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) >= 1)):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}, expected aspect_ratio or auto")
        if self.batch_chunk_size is not None and self.batch_chunk_size < 1:
            raise ValueError(f"batch_chunk_size must be positive, got {self.batch_chunk_size}")

    def rows(self, batch: int, in_features: int, classes: int, half: bool) -> int:
        """Returns the number of rows of a chunk.

        Args:
            batch: number of rows of the input.
            in_features: number of columns of the input.
            classes: number of classes.
            half: True for 16-bit inputs.

        Raises:
            ValueError: `batch_chunk_size` contradicts `chunking_method`.
        """
        method = self.chunking_method
        if self.batch_chunk_size is not None:
            sizes = (batch, in_features, classes)
            if method not in (None, "auto") and self._by_ratio(method, *sizes) != self.batch_chunk_size:
                raise ValueError(
                    f"batch_chunk_size={self.batch_chunk_size} and chunking_method={method!r} disagree. Pass only one of them."
                )
            return self.batch_chunk_size
        if method is None:
            return max(batch, 1)
        if method == "auto":
            method = "aspect_ratio" if half else "aspect_ratio:2"
        return self._by_ratio(method, batch, in_features, classes)

    @staticmethod
    def _by_ratio(method, batch, in_features, classes):
        factor = int(method.partition(":")[2] or 1)
        rows = -(-batch // -(-classes // max(in_features, 1)))  # rows * classes is about batch * in_features
        power = 1 << max(rows - 1, 0).bit_length()  # rounded up to a power of two
        return max(power // factor, 1)


def _check(input, linear_weight, linear_bias):
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != tuple(linear_weight.shape[:-1]):
        raise RuntimeError(
            f"expected linear_bias shape {tuple(linear_weight.shape[:-1])}, got {tuple(linear_bias.shape)}"
        )
    if linear_weight.ndim > 2 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None, fused: bool | None = None,
) -> Tensor:  # fmt: skip
    """Computes the cross-entropy of a linear layer's output.

        loss = cross_entropy(input @ linear_weightᵀ + linear_bias, target)

    Use it for the last layer of a language model, whose logits for all tokens are often its largest array. The GPU
    kernel, or `options` on any device, holds only a part of them at a time.

    Args:
        input: (N, in_features) or (in_features,).
        linear_weight: (C, in_features), or (C, d_1, …, d_k, in_features) for several losses per row.
        target: class indices (N, d_1, …, d_k), or probabilities (N, C, d_1, …, d_k).
        linear_bias: (C, d_1, …, d_k).
        weight: factor for each class, (C,).
        reduction: "mean", "sum" or "none" (default: "mean").
        ignore_index: target class that does not contribute to the loss. By default, -100.
        label_smoothing: part of the target's probability that is distributed evenly over all classes (default: 0.0).
        options: a `LinearCrossEntropyOptions`. The logits of each chunk are computed, released, and computed again in
            backward.
        fused: True runs a GPU kernel that never holds all logits, False the reference, None the faster one.

    Raises:
        RuntimeError: the shapes do not match, or `ignore_index` is given with probabilities.

    Example:
        >>> x, w = mytorch.zeros(3, 8), mytorch.randn(4, 8)
        >>> F.linear_cross_entropy(x, w, tensor([0, 1, 2]))
        tensor(1.38629)
    """
    _check(input, linear_weight, linear_bias)
    classes, *outs = linear_weight.shape[:-1]
    logits_shape = (*input.shape[:-1], classes, *outs)
    if tuple(target.shape) == logits_shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        standard = reduction in ("mean", "sum", "none")
        if not outs and standard and label_smoothing == 0.0 and target.dtype is dtypes.int64:
            return _in_chunks(input, linear_weight, target, linear_bias, weight, reduction, ignored, options)
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            "label_smoothing == 0, target.dtype == int64, out_features == (). Got "
            f"reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
            f"out_features={tuple(outs)}.",
            stacklevel=2,
        )
    elif not outs:
        loss = by_kernel(input, linear_weight, target, linear_bias, weight, reduction, ignored, label_smoothing, fused)
        if loss is not None:
            return loss
    flat_bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), flat_bias).reshape(*logits_shape)
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing, fused=fused
    )


def _in_chunks(input, linear_weight, target, linear_bias, weight, reduction, ignored, options):
    single = input.ndim == 1
    if single:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    half = input.dtype.itemsize == 2
    dtype = options.acc_dtype or (dtypes.float32 if half else input.dtype)
    size = options.rows(input.shape[0], input.shape[1], linear_weight.shape[0], half)

    def losses(x, w, b, t):
        logits = linear(x.to(dtype), w.to(dtype), None if b is None else b.to(dtype))
        factors = None if weight is None else weight.to(dtype)
        return cross_entropy(
            logits, t, factors, ignore_index=ignored, reduction="none" if reduction == "none" else "sum"
        )

    # Each chunk stores only its inputs. Backward computes its logits again.
    parts = [
        checkpoint(losses, input[i : i + size], linear_weight, linear_bias, target[i : i + size], use_reentrant=False)
        for i in range(0, max(input.shape[0], 1), size)
    ]
    if reduction == "none":
        out = cat(parts)
        return (out.squeeze(0) if single else out).to(input.dtype)
    out = stack(parts).sum()
    if reduction == "mean":  # over the weights of the targets that are not ignored
        used = target != ignored
        counted = used.sum() if weight is None else (weight.to(dtype)[target.masked_fill(~used, 0)] * used).sum()
        out = out / counted
    return out.to(input.dtype)
