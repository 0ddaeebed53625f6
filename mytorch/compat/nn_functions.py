"""Functions of `torch` that have the names of functions of `nn.functional`, but other arguments."""

import functools
import inspect

from ..arrays import config
from ..arrays.tensor import Tensor
from ..ops import composites
from ..ops import functional as F
from ..ops.activation import rrelu as _rrelu
from ..ops.dispatch.bind import found_by_pickle, public_function
from ..ops.dispatch.out import takes_out
from ..ops.loss import pdist
from ..ops.normalization import norm_except_dim


def batch_norm_update_stats(input, running_mean, running_var, momentum):
    """Returns (mean, variance) of each channel, and updates running statistics.

    Args:
        input: (N, C, …).
        running_mean: (C,), changed in place, or None.
        running_var: (C,), changed in place with the unbiased variance, or None.
        momentum: weight of the new values.

    Raises:
        RuntimeError: if the input is empty.
    """
    if not input.numel():
        raise RuntimeError(
            f"input tensor must have at least one element, but got input_sizes = {list(input.shape)}, batch_norm_update_stats"
        )
    axes = (0, *range(2, input.ndim))
    var, mean = input.var(axes, correction=0), input.mean(axes)
    count = input.numel() / input.shape[1]
    for running, batch in ((running_mean, mean), (running_var, var * (count / max(count - 1, 1)))):
        if running is not None:
            running.lerp_(batch.to(running.dtype), momentum)
    return mean, var


_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _loss(name, names):
    """Returns a loss of `nn.functional` with the arguments of torch.<name>, where 0, 1 and 2 stand for the reductions."""
    loss = getattr(F, name)
    arguments = names.split()
    defaults = inspect.signature(loss).parameters

    @functools.wraps(loss)
    def numbered(*args, **kwargs):
        if len(args) > len(arguments):
            raise TypeError(f"{name}() takes {len(arguments)} positional arguments but {len(args)} were given")
        given = dict(zip(arguments, args, strict=False))
        for word in given.keys() & kwargs.keys():
            raise TypeError(f"{name}() got multiple values for argument '{word}'")
        given.update(kwargs)
        reduction = given.get("reduction", 1)
        if type(reduction) is int:  # other numbers do not reduce, as in PyTorch
            given["reduction"] = _REDUCTIONS.get(reduction, "none")
        elif config.pytorch_mode:
            position = arguments.index("reduction") + 1
            raise TypeError(
                f"{name}(): argument 'reduction' (position {position}) must be int, not {type(reduction).__name__}"
            )
        return loss(**given)

    numbered.__signature__ = inspect.Signature(
        [
            defaults[word].replace(default=1, annotation=int) if word == "reduction" else defaults[word]
            for word in arguments
        ]
    )
    return numbered


_PAIR, _MARGIN = "input target", "input1 input2 target margin reduction"
_LOSSES = {
    "binary_cross_entropy_with_logits": f"{_PAIR} weight pos_weight reduction",
    "cosine_embedding_loss": _MARGIN,
    "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
    "hinge_embedding_loss": f"{_PAIR} margin reduction",
    "kl_div": f"{_PAIR} reduction",
    "margin_ranking_loss": _MARGIN,
    "poisson_nll_loss": f"{_PAIR} log_input full eps reduction",
    "triplet_margin_loss": "anchor positive negative margin p eps swap reduction",
}


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """Samples like `nn.functional.grid_sample`, with modes as numbers.

    Args:
        input: see `grid_sample`.
        grid: see `grid_sample`.
        interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic.
        padding_mode: 0 zeros, 1 border, 2 reflection.
        align_corners: see `grid_sample`.
    """
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    for mode, known, what in ((interpolation_mode, modes, "interpolation"), (padding_mode, paddings, "padding")):
        if mode not in (0, 1, 2):
            raise ValueError(f"grid_sampler: expected {what}_mode to be 0, 1 or 2 ({known}), got {mode!r}.")
    return F.grid_sample(input, grid, modes[interpolation_mode], paddings[padding_mode], align_corners)


def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    """Normalizes each channel like `nn.functional.batch_norm`, which describes the other arguments, with PyTorch's order of them.

    Args:
        cudnn_enabled: PyTorch's permission to use cuDNN. It does not change the result.
    """
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled):
    """Normalizes each channel of each sample like `nn.functional.instance_norm`, which describes the other arguments.

    Args:
        cudnn_enabled: PyTorch's permission to use cuDNN. It does not change the result.
    """
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True):
    """Normalizes the last dimensions; see `nn.functional.layer_norm`.

    Args:
        cudnn_enable: PyTorch's permission to use cuDNN. It does not change the result.
    """
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True):
    """Normalizes groups of channels; see `nn.functional.group_norm`.

    Args:
        cudnn_enabled: PyTorch's permission to use cuDNN. It does not change the result.
    """
    return F.group_norm(input, num_groups, weight, bias, eps)


def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """Selects rows like `nn.functional.embedding`, with the table first, as in PyTorch.

    Args:
        weight: table of shape (V, C).
        indices: integer tensor.
        padding_idx: row that receives no gradient; none if negative.
    """
    padding = padding_idx if padding_idx >= 0 else None
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, generator=None):
    """Computes a leaky ReLU with a random slope for negative elements; see `nn.functional.rrelu`.

    Args:
        generator: source of the slopes.
    """
    return _rrelu(input, lower, upper, training, generator=generator)


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False, generator=None):
    """In-place variant of `rrelu`."""
    return _rrelu(input, lower, upper, training, inplace=True, generator=generator)


def _dropout(name, function, inplace=False):
    """Returns a dropout function with the arguments of torch.<name>, all of which are required."""

    def dropout(input: Tensor, p: float, train: bool) -> Tensor:
        return function(input, p, train, inplace)

    dropout.__name__ = dropout.__qualname__ = name
    dropout.__doc__ = (
        f"In-place variant of `{name[:-1]}`."
        if inplace
        else f"See `nn.functional.{name}`."
        if hasattr(F, name)
        else "Returns input with whole channels set to zero with probability p."
    )
    return dropout


_DROPOUTS = {
    "dropout": F.dropout, "alpha_dropout": F.alpha_dropout, "feature_alpha_dropout": F.feature_alpha_dropout,
    "feature_dropout": composites.feature_dropout,
}  # fmt: skip

_WITH_OUT = {
    "batch_norm_update_stats": batch_norm_update_stats, "norm_except_dim": norm_except_dim, "pdist": pdist,
    **{name: _loss(name, names) for name, names in _LOSSES.items()},
}  # fmt: skip
_PUBLIC = (
    batch_norm, instance_norm, layer_norm, group_norm, embedding, rrelu, rrelu_,
    *[_dropout(name + "_" * inplace, f, inplace) for name, f in _DROPOUTS.items() for inplace in (False, True)],
)  # fmt: skip
_SAMPLERS = dict.fromkeys(
    ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), found_by_pickle(grid_sampler, "grid_sampler")
)
TORCH_NAMES = {
    "mytorch": {
        **{name: found_by_pickle(takes_out(f), name) for name, f in _WITH_OUT.items()},
        **{f.__name__: found_by_pickle(public_function(f), f.__name__) for f in _PUBLIC},
        **_SAMPLERS,
        "affine_grid_generator": F.affine_grid,
        "adaptive_max_pool1d": F.adaptive_max_pool1d_with_indices,
    }
}
