"""Batch normalization with the statistics of all processes."""

from __future__ import annotations

from ..arrays import DeviceLike, xp_of
from ..arrays.dtypes import dtype
from ..arrays.tensor import Tensor
from ..autograd.function import Function, once_differentiable
from ..distributed.collectives import all_reduce
from ..distributed.process_group import ProcessGroup, get_world_size, is_initialized
from ..ops.reduction import to_acc_type
from .layer import Docstring
from .module import Module
from .normalization import _BatchNorm


def _sum_over_ranks(raw, group):
    """Returns the sum of a raw array over all processes."""
    total = Tensor._wrap(xp_of(raw).ascontiguousarray(raw))
    all_reduce(total, group=group)
    return total._mt_data._array


class SyncBatchNormFunction(Function):
    """Computes (x - mean) / sqrt(var + eps) * weight + bias for each channel, with mean and var over all processes.

    The gradients of weight and bias are the part of this process, as `DistributedDataParallel` expects. The forward
    pass needs two small all-reduces. It sums the mean first, because a variance computed as a difference of large
    numbers would lose precision. The backward pass needs one all-reduce.
    """

    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, momentum, eps, group):
        x = input._mt_data._array
        xp = xp_of(x)
        x = to_acc_type(x)
        axes = (0, *range(2, x.ndim))  # all except the channels
        shape = (1, -1, *[1] * (x.ndim - 2))  # broadcasts (C,) to the input
        channels = x.shape[1]
        count = x.size // channels
        # One all-reduce for the sums and the number of values, which may differ between processes.
        first = _sum_over_ranks(xp.concatenate([x.sum(axis=axes), xp.full((1,), count, x.dtype)]), group)
        count = float(first[-1])
        if count < 2:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(x.shape)}")
        mean = first[:-1] / x.dtype.type(count)
        centred = x - mean.reshape(shape)
        var = _sum_over_ranks((centred * centred).sum(axis=axes), group) / x.dtype.type(count)
        if running_mean is not None:
            # The running variance is unbiased.
            for running, new in ((running_mean, mean), (running_var, var * (count / (count - 1)))):
                raw = running._mt_data._array
                raw[...] = (1 - momentum) * raw + momentum * new
                running._mt_data._bump()
        inverse = 1 / xp.sqrt(var + x.dtype.type(eps))
        scale = inverse if weight is None else inverse * weight._mt_data._array
        out = centred * scale.reshape(shape).astype(x.dtype)
        if bias is not None:
            out += bias._mt_data._array.reshape(shape)
        ctx.parts = (centred, inverse.reshape(shape), axes, shape, count, group)
        ctx.weight = None if weight is None else weight._mt_data._array
        ctx.has_bias = bias is not None
        return Tensor._wrap(out.astype(input._mt_data._array.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        centred, inverse, axes, shape, count, group = ctx.parts
        g = grad._mt_data._array.astype(centred.dtype)
        xp = xp_of(g)
        normal = centred * inverse
        sum_g, sum_gx = g.sum(axis=axes), (g * normal).sum(axis=axes)
        both = _sum_over_ranks(xp.concatenate([sum_g, sum_gx]), group) / g.dtype.type(count)
        # gx = (g - mean(g) - x̂ mean(g x̂)) / sqrt(var + eps) * weight, where x̂ is the normalized input.
        mean_g, mean_gx = both[: len(sum_g)].reshape(shape), both[len(sum_g) :].reshape(shape)
        scale = inverse if ctx.weight is None else inverse * ctx.weight.reshape(shape)
        gx = (g - mean_g - normal * mean_gx) * scale.astype(g.dtype)
        gw = None if ctx.weight is None else Tensor._wrap(sum_gx)
        gb = Tensor._wrap(sum_g) if ctx.has_bias else None
        return Tensor._wrap(gx), gw, gb, None, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """Normalizes each channel over the batches of all processes.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    In training mode, mean and var are the statistics of the batches of all processes. In evaluation mode, the layer
    uses its running statistics. With one process, the layer computes the same as `nn.BatchNorm2d`.

    Use it when each process has only a few samples, as in object detection; with large batches, plain `BatchNorm2d` is
    faster.

    Args:
        process_group: processes that share their statistics. By default, all processes.

    Shape:
        Input: (N, C, *), with 2 to 5 dimensions.
        Output: the same shape as the input.

    Example:
        >>> model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3)))
        >>> type(model[0]).__name__
        'SyncBatchNorm'

    See also: `nn.BatchNorm1d`, `nn.BatchNorm2d`, `nn.BatchNorm3d`, `nn.functional.batch_norm`.
    """

    dims = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: ProcessGroup | None = None, device: DeviceLike | None = None,
        dtype: dtype | None = None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not is_initialized() or get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        running = self.running_mean, self.running_var, self._next_momentum()
        return SyncBatchNormFunction.apply(input, self.weight, self.bias, *running, self.eps, self.process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: ProcessGroup | None = None) -> Module:
        """Replaces every batch normalization layer of a module by a `SyncBatchNorm` with the same state.

        Args:
            module: the model. If it is itself a batch normalization layer, its replacement is returned.
            process_group: processes that share their statistics. By default, all processes.

        Returns:
            The module.
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            out = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group,
            )  # fmt: skip
            out._parameters, out._buffers, out.training = module._parameters, module._buffers, module.training
            return out
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, process_group))
        return module


SyncBatchNorm.__doc__ = Docstring(SyncBatchNorm.__doc__)  # type: ignore[assignment]
