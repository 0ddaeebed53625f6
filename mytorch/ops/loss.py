"""Loss functions.

Cross-entropy and the losses of differences and logits are ops with kernels. The other losses are composed of ops.
"""

import math
from itertools import pairwise

import numpy as np

from ..arrays import CPU, config, device_of, dtypes, ndarray, xp_of
from ..arrays.arguments import described
from ..arrays.array import Array, on_input_device
from ..arrays.errors import warn, warn_as_pytorch
from ..arrays.memory_format import iterator
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from .activation import _sigmoid, _softmax, log_softmax, logsigmoid
from .dispatch.bind import spelled
from .dispatch.errors import broadcast
from .dispatch.half import once_rounded
from .dispatch.op import name_node, op
from .dispatch.precision import in_precision
from .dispatch.refused import check_dtypes, refuse_grad, refuses
from .dispatch.unwrap import on_device_of, outside, raw_of, shape_of, to_cpu, watched
from .elementwise import cast, minimum, where
from .movement import broadcast_tensors
from .special import xlogy


@op(name="cross_entropy", dtype="same", autocast="float32", integers=("target",), half="everywhere")
def _cross_entropy(
    xp, input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None
):
    """Computes the cross-entropy of rows of logits (N, C) with class indices (N,)."""
    n, classes = input.shape
    kept = target != ignore_index
    weights, smooth_weights = _class_weights(xp, input, target, weight, kept)
    shifted = input - xp.max(input, axis=-1, keepdims=True)
    lse = xp.log(xp.sum(xp.exp(shifted), axis=-1))  # (N,)
    picked = xp.reshape(xp.take_along_axis(shifted, (target * kept)[:, None], axis=-1), (n,))
    losses = (lse - picked) * weights
    if label_smoothing:
        if weight is None:
            smooth = (lse * classes - xp.sum(shifted, axis=-1)) * weights
        else:
            smooth = xp.sum((lse[:, None] - shifted) * smooth_weights, axis=-1)
        losses = losses * (1 - label_smoothing) + smooth * (label_smoothing / classes)
    losses = xp.where(kept, losses, 0.0)  # also where a logit is infinite
    out = losses
    if reduction != "none":
        out = xp.sum(losses) / (xp.sum(weights) if reduction == "mean" else 1)
    return xp.astype(out, input.dtype if dtype is None else dtype.numpy)


def _class_weights(xp, logits, target, weight, counts):
    """Returns the weight (N,) of each row's target class, and the class weights (N, C) or (N, 1); 0 for ignored rows.

    Args:
        counts: True for rows that are not ignored.
    """
    kept = xp.astype(xp.asarray(counts), logits.dtype)
    if weight is None:
        return kept, kept[:, None]
    weight = xp.astype(xp.asarray(weight), logits.dtype)
    return weight[xp.asarray(target * counts)] * kept, weight * kept[:, None]


def _cross_entropy_grad(g, input, target, weight, ignore_index, label_smoothing, reduction, xp):
    n, classes = input.shape
    kept = target != ignore_index
    weights, smooth_weights = _class_weights(xp, input, target, weight, kept)
    p = xp.call(_softmax, input, dim=-1)
    one_hot = xp.astype(xp.arange(classes) == xp.asarray(target * kept)[:, None], input.dtype)
    grad = (p - one_hot) * (weights * (1 - label_smoothing))[:, None]
    if label_smoothing:
        mass = xp.sum(smooth_weights, axis=-1, keepdims=True) * (classes if weight is None else 1)
        grad = grad + (p * mass - smooth_weights) * (label_smoothing / classes)
    scale = xp.reshape(g, (n, 1)) if reduction == "none" else g / xp.sum(weights) if reduction == "mean" else g
    return grad * xp.where(kept[:, None], scale, 0.0)  # 0 for ignored rows, even if all are ignored


_cross_entropy.grad(input=_cross_entropy_grad)
_cross_entropy.keeps_saved = (
    True  # the logits; PyTorch saves the logarithms of the probabilities, which take more memory
)
_cross_entropy.register_kernel(cpu="mytorch.kernels.numba.cross_entropy", cuda="mytorch.kernels.triton.cross_entropy")


def check_reduction(reduction):
    """Raises ValueError unless `reduction` is "mean", "sum" or "none"."""
    if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction; expected 'mean', 'sum' or 'none'.")


def class_indices(target, name):
    """Returns class targets as a raw integer array. Floats without a fraction are accepted: mytorch makes floats of lists of ints.

    Raises:
        ValueError: a float target has a fraction.
        RuntimeError: in PyTorch mode, the dtype is neither int64 nor uint8.
    """
    raw = raw_of(target)
    if config.pytorch_mode and isinstance(target, Tensor) and target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {dtypes.word_of(target.dtype)}")
    if raw.dtype.kind in "fV":
        whole = raw.astype(np.int64)
        if device_of(raw) is CPU and (whole != raw).any():
            raise ValueError(f"{name}: expected class indices, got {raw.dtype} targets with a fraction.")
        return whole
    if raw.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: expected class indices of an integer dtype, got {raw.dtype}.")
    return raw


def check_classes(raw, classes, ignore_index, name):
    """Raises IndexError for class indices outside [0, classes), on devices where indices are checked."""
    if outside(raw, classes):
        bad = (raw != ignore_index) & ((raw < 0) | (raw >= classes))
        if bad.any():
            raise IndexError(f"{name}: Target {int(raw[bad][0])} is out of bounds for {classes} classes.")


def _check_weight(weight, classes, name, input):
    if config.pytorch_mode and weight is not None and weight.dtype is not input.dtype and get_mode().autocast is None:
        raise RuntimeError(f"{name}: expected weight of dtype {input.dtype}, got {weight.dtype}.")
    if weight is not None and shape_of(weight) != (classes,):
        raise RuntimeError(
            f"{name}: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor "
            f"of shape: {list(shape_of(weight))}"
        )


def _classes_last(shape, want):
    """Returns True if the shapes fit only with the classes on the last axis: logits (…, V) and targets (…)."""
    pytorch = len(shape) == len(want) + 1 and (shape[0], *shape[2:]) == want if len(shape) > 1 else want == ()
    return not pytorch and len(shape) >= 2 and shape[:-1] == want


@spelled(logits="input", targets="target")
@on_input_device
def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0, *,
    softcap=None, fused=None, auto=False,
):  # fmt: skip
    """Computes the cross-entropy loss between logits and targets.

        loss[n] = -weight[target[n]] * log(softmax(input[n])[target[n]])

    With reduction "mean", the sum of the losses is divided by the sum of the weights of the targets.

    Use it for one of several classes. It receives logits, so the model needs no softmax; `nll_loss` is for a model that
    ends in `log_softmax`.

    Args:
        input: logits. Do not apply softmax first.
        target: class indices of any integer dtype, or class probabilities of the same shape as `input`.
        weight: factor for each class, of shape (C,) (default: None, all 1). "mean" divides by the sum of the used factors.
        size_average: deprecated; use `reduction`.
        ignore_index: target value that does not contribute to the loss (default: -100).
        reduce: deprecated; use `reduction`.
        reduction: "mean" (default), "sum", or "none" for one loss per target.
        label_smoothing: probability mass that is distributed evenly over all classes, in [0, 1] (default: 0.0).
        softcap: if given, replaces the logits by softcap * tanh(input / softcap) first (default: None).

    Shape:
        input: (C,), (N, C) or (N, C, d1, …).
        target: (), (N,) or (N, d1, …) for class indices.
        Logits (…, C) with targets (…) are also accepted if the shapes do not fit otherwise.

    Raises:
        ValueError: the shapes do not fit, or `reduction` is unknown.
        IndexError: a class index is out of range.
        RuntimeError: `label_smoothing` is not between 0 and 1, or `weight` has a wrong shape.

    Example:
        >>> logits = tensor([[0.0, 0.0], [9.0, 9.0]])
        >>> F.cross_entropy(logits, mytorch.tensor([0, 1]))
        tensor(0.69315)

    See also: `nn.CrossEntropyLoss`, `nn.functional.nll_loss`.
    """
    reduction = _legacy(reduction, size_average, reduce)
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if softcap is not None:
        input = (input / softcap).tanh() * softcap
    shape, want = shape_of(input), shape_of(target)
    if shape == want and shape and target.dtype.is_floating_point:
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        policy = get_mode().autocast
        in_float32 = policy is not None and policy.device_type == input.device.type  # reads each dtype, writes float32
        if input.dtype is not target.dtype and not in_float32:
            common = dtypes.promote_types(input.dtype, target.dtype)
            input, target = input.to(common), target.to(common)
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing, fused, auto)
    if _classes_last(shape, want):
        classes, rows, out_shape = shape[-1], input.reshape(-1, shape[-1]), shape[:-1]
    elif len(shape) == 1 and want == ():
        classes, rows, out_shape = shape[0], input.reshape(1, -1), ()
    else:
        if len(shape) < 2 or (shape[0], *shape[2:]) != want:
            if shape == want and shape:
                raise RuntimeError(
                    f"Expected floating point type for target with class probabilities, got {target.dtype.name}"
                )
            error = RuntimeError if want[:1] == shape[:1] != () else ValueError
            raise error(
                f"cross_entropy: expected target of shape {(*shape[:1], *shape[2:])} for logits of shape {shape}, got {want}."
            )
        classes, out_shape = shape[1], (shape[0], *shape[2:])
        rows = input if len(shape) == 2 or not classes else input.movedim(1, -1).reshape(-1, classes)
    _check_weight(weight, classes, "cross_entropy", input)
    if input.dtype.category != dtypes.FLOAT:
        check_dtypes("cross_entropy", (input._mt_data,))
    if not classes and 0 in out_shape:  # no targets either
        losses = input.sum(1 if len(shape) > 1 else 0)
        return losses if reduction == "none" else losses.sum() / (0.0 if reduction == "mean" else 1.0)
    refuse_grad("cross_entropy", True, weight=weight)
    index = class_indices(target, "cross_entropy").reshape(-1)
    check_classes(index, classes, ignore_index, "cross_entropy")
    out = _cross_entropy(
        rows, watched(index, target), weight=raw_of(weight), ignore_index=ignore_index, label_smoothing=float(label_smoothing),
        reduction=reduction, fused=fused, auto=auto,
    )  # fmt: skip
    return out.reshape(out_shape) if reduction == "none" else out


@op(name="cross_entropy_soft", dtype="same", autocast="float32", half="everywhere")
def _cross_entropy_soft(xp, input, target, *, weight=None, label_smoothing=0.0, reduction="mean", dtype=None):
    """Computes the cross-entropy of rows of logits (N, C) with class probabilities (N, C)."""
    n, classes = input.shape
    shifted = input - xp.max(input, axis=-1, keepdims=True)
    surprise = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True)) - shifted
    losses = xp.sum(surprise * _smoothed(xp, target, weight, label_smoothing, classes, input.dtype), axis=-1)
    out = losses if reduction == "none" else xp.sum(losses) / (n if reduction == "mean" else 1)
    return xp.astype(out, input.dtype if dtype is None else dtype.numpy)


def _smoothed(xp, target, weight, label_smoothing, classes, dtype):
    """Returns the factor of each class's negative log-probability: the smoothed target times the class weight."""
    wanted = xp.astype(target, dtype) * (1 - label_smoothing) + label_smoothing / max(classes, 1)
    return wanted if weight is None else wanted * xp.asarray(weight.astype(getattr(dtype, "numpy", dtype)))


def _cross_entropy_soft_vjp(g, input, target, weight, label_smoothing, reduction, needs, xp):
    n, classes = input.shape
    shifted = input - xp.max(input, axis=-1, keepdims=True)
    log_p = shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    scale = xp.reshape(g, (n, 1)) if reduction == "none" else g / n if reduction == "mean" else g
    gx = gt = None
    if needs[0]:
        u = _smoothed(xp, target, weight, label_smoothing, classes, input.dtype)
        gx = (xp.exp(log_p) * xp.sum(u, axis=-1, keepdims=True) - u) * scale
    if needs[1]:
        gt = log_p * (label_smoothing - 1.0) * scale
        gt = gt if weight is None else gt * xp.asarray(weight.astype(getattr(input.dtype, "numpy", input.dtype)))
    return gx, gt


_cross_entropy_soft.vjp(_cross_entropy_soft_vjp)
_cross_entropy_soft.keeps_saved = True
_cross_entropy_soft.register_kernel(cuda="mytorch.kernels.triton.cross_entropy_soft")


@in_precision(name="cross_entropy")
def _soft_cross_entropy(input, target, weight, reduction, label_smoothing, fused, auto):
    """Computes the cross-entropy with class probabilities as targets."""
    if input.device.type != "cpu" and not getattr(weight, "requires_grad", False):
        rows = [
            (x if x.ndim < 3 else x.movedim(1, -1)).reshape(-1, x.shape[1 if x.ndim > 1 else 0])
            for x in (input, target)
        ]
        out = _cross_entropy_soft(
            *rows, weight=raw_of(weight), label_smoothing=float(label_smoothing), reduction=reduction, fused=fused,
            auto=auto,
        )  # fmt: skip
        return out.reshape(input.shape[:1] + input.shape[2:] if input.ndim > 1 else ()) if reduction == "none" else out
    axis = 1 if input.ndim > 1 else 0
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    terms = log_softmax(input, axis, fused=fused, auto=auto) * cast(target, input.dtype)
    if weight is not None:
        terms = terms * weight.reshape([-1 if i == axis else 1 for i in range(input.ndim)])
    losses = -terms.sum(axis)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / (math.prod(input.shape) / max(classes, 1)) if reduction == "mean" else total


# -- the other losses -----------------------------------------------------------------------------------------

TINY = float(np.float32(1e-12))  # PyTorch rounds this constant to float32 for every dtype

_BY_OP = {  # loss -> the op that it is for each element, with its kernel for a CPU; beta: of smooth_l1 and huber
    "mse": lambda x, t, beta, fused: _squared_error(x, t, fused=fused),
    "smooth_l1": lambda x, t, beta, fused: _clipped_error(x, t, delta=beta, scale=1 / beta, fused=fused),
    "huber": lambda x, t, beta, fused: _clipped_error(x, t, delta=beta, scale=1.0, fused=fused),
    "bce_logits": lambda x, t, beta, fused: _logistic_error(x, t, fused=fused),
}
_TERMS = {  # those composed of ops, too
    **_BY_OP,
    "l1": lambda x, t, beta, fused: (x - t).abs(),
    "bce": lambda x, t, beta, fused: _likelihood_error(x, t),
    "kl": lambda x, t, beta, fused: xlogy(t, t) - t * x,
    "kl_log": lambda x, t, beta, fused: t.exp() * (t - x),
}


@op(name="elementwise_loss", dtype="same")
def _elementwise_loss(xp, input, target, *, kind, reduction="mean", beta=1.0):
    """Computes a loss of `_TERMS` by a kernel. Only the kernel runs on arrays; second derivatives run this forward over Tensors."""
    return _reduce(_TERMS[kind](input, target, beta, None), reduction)


_elementwise_loss.register_kernel(cuda="mytorch.kernels.triton.losses")


@op(name="nll", dtype="same", integers=("target",), half="everywhere")
def _nll(xp, input, target, *, weight=None, ignore_index=-100, reduction="mean"):
    """Computes `nll_loss` of (N, C, …) with class indices (N, …)."""
    kept, weights = _target_weights(xp, input, target, weight, ignore_index)
    picked = xp.gather(input, (target * kept)[:, None], 1)[:, 0]
    losses = xp.where(kept, -picked * weights, 0.0)  # also where a logarithm is infinite
    if reduction == "none":
        return losses
    return xp.sum(losses) / xp.sum(weights) if reduction == "mean" else xp.sum(losses)


def _target_weights(xp, input, target, weight, ignore_index):
    """Returns True for targets that are not ignored, and the weight of each target, 0 for ignored ones."""
    kept = target != ignore_index
    weights = xp.astype(xp.asarray(kept), input.dtype)
    if weight is not None:
        weights = weights * xp.astype(xp.asarray(weight), input.dtype)[xp.asarray(target * kept)]
    return kept, weights


def _nll_grad(g, input, target, weight, ignore_index, reduction, xp):
    kept, weights = _target_weights(xp, input, target, weight, ignore_index)
    if reduction == "mean":
        weights = weights / xp.sum(weights)
    classes = xp.reshape(xp.arange(input.shape[1]), (-1, *(1,) * (input.ndim - 2)))
    chosen = (classes == xp.asarray(target * kept)[:, None]) & kept[:, None]
    return xp.where(chosen, -(g * weights)[:, None], 0.0)


_nll.grad(input=_nll_grad)
_nll.register_kernel(cuda="mytorch.kernels.triton.losses:nll")


def _runs(record, fused, inputs, options):
    """Returns True if a kernel runs an op on these Tensors. There is none on a CPU, nor under an interpreter."""
    raw = raw_of(inputs[0])
    if isinstance(raw, ndarray) or get_mode().interpreter is not None:
        return fused is True and record.kernels.allowed("cpu", fused) is not None  # `allowed` warns
    return record.kernels.find(device_of(raw).type, fused, [raw_of(x) for x in inputs], options) is not None


def _of_elements(kind, input, target, reduction, weight=None, fused=None, beta=1.0):
    """Computes a loss of `_TERMS`, times `weight`, and reduces it."""
    if not isinstance(raw_of(input), ndarray) or (fused is True and kind not in _BY_OP):
        check_reduction(reduction)
        options = {"kind": kind, "reduction": reduction, "beta": beta}
        if weight is None and _runs(_elementwise_loss, fused, (input, target), options):
            return _elementwise_loss.dispatch(input, target, fused=fused, **options)
    return _reduce(_TERMS[kind](input, target, beta, fused), reduction, weight=weight)


def _in_dtype_of(x, loss):
    """Returns a loss in the dtype of one of its arguments: some of PyTorch's losses do not promote."""
    return cast(loss, x.dtype) if x.dtype.is_floating_point else loss


def _legacy(reduction, size_average, reduce_):
    """Returns the reduction that PyTorch's older arguments `size_average` and `reduce` select."""
    if size_average is None and reduce_ is None:
        return reduction
    found = "mean" if size_average is None or size_average else "sum"
    if reduce_ is not None and not reduce_:
        found = "none"
    warn_as_pytorch(f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.")
    return found


def _reduce(losses, reduction, size_average=None, reduce=None, weight=None):
    """Multiplies losses by `weight` if it is given, and reduces them."""
    losses = losses if weight is None else losses * weight
    if size_average is not None or reduce is not None:
        reduction = _legacy(reduction, size_average, reduce)
    check_reduction(reduction)
    return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses


_SHARED = {
    "reduction": '"mean" (default), "sum", or "none" for one loss per element.',
    "size_average": "deprecated; use `reduction`.",
    "reduce": "deprecated; use `reduction`.",
}


def _loss(function):
    """Makes autocast run a loss in float32, and describes the arguments that losses share in its docstring."""
    return described(in_precision("float32", composes=True)(function), **_SHARED)


def _of_differences(kind, input, target, reduction, weight, fused, beta=1.0, by_weight=True):
    """Computes a loss of input - target. The shapes may differ if they broadcast.

    Args:
        by_weight: with a weight and reduction "mean", divide by the sum of the weights instead of the number of elements.
    """
    if tuple(input.shape) != tuple(target.shape):
        warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will "
            "likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )
        if input.dtype is not target.dtype:  # an expanded 0-d tensor counts for the dtype of the loss
            input, target = broadcast_tensors(input, target)
    if weight is not None:
        if tuple(weight.shape) != tuple(input.shape):
            raise ValueError(
                f"{kind}_loss: expected weight to have the shape of input, {tuple(input.shape)}, got {tuple(weight.shape)}. "
                "Expand weight first."
            )
        if by_weight and reduction == "mean":
            return _of_elements(kind, input, target, "sum", weight, fused, beta) / weight.sum()
    return _of_elements(kind, input, target, reduction, weight, fused, beta)


@in_precision("float32", composes=True)
@on_input_device
def nll_loss(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", *, fused=None
):
    """Computes the negative log-likelihood loss.

        loss[n] = -weight[target[n]] * input[n, target[n]]

    With reduction "mean", the sum of the losses is divided by the sum of the weights of the targets.

    Args:
        input: log-probabilities.
        target: class indices.
        weight: factor for each class, of shape (C,) (default: None, all 1). "mean" divides by the sum of the used factors.
        size_average: deprecated; use `reduction`.
        ignore_index: target value that does not contribute to the loss (default: -100).
        reduce: deprecated; use `reduction`.
        reduction: "mean" (default), "sum", or "none" for one loss per target.

    Shape:
        input: (C,), (N, C) or (N, C, d1, …).
        target: (), (N,) or (N, d1, …).

    Raises:
        ValueError: the shapes do not fit.
        IndexError: a class index is out of range.

    Example:
        >>> F.nll_loss(tensor([[-1.0, -2.0], [-3.0, -4.0]]), tensor([1, 0])).item()
        2.5

    See also: `nn.NLLLoss`, `nn.functional.log_softmax`.
    """
    reduction = _legacy(reduction, size_average, reduce)
    check_reduction(reduction)
    shape = shape_of(input)
    if not shape:
        raise ValueError("nll_loss: Expected 1 or more dimensions (got 0).")
    single = len(shape) == 1
    rows = input.unsqueeze(0) if single else input
    n, classes, *rest = shape_of(rows)
    _check_weight(weight, classes, "nll_loss", input)
    refuse_grad("nll_loss", True, weight=weight)
    index = class_indices(target, "nll_loss")
    index = index.reshape(1) if single and index.size == 1 else index
    if (n, *rest) != index.shape:
        raise ValueError(
            f"nll_loss: expected target of shape {(n, *rest)} for input of shape {shape}, got {shape_of(target)}."
        )
    check_classes(index, classes, ignore_index, "nll_loss")
    flat = len(rest) != 1 and not isinstance(raw_of(input), ndarray)  # the kernel's form is (N, C, L)
    if flat:
        rows, index = rows.reshape(n, classes, math.prod(rest)), index.reshape(n, math.prod(rest))
    losses = _nll.fast_call(
        rows, watched(index, target), weight=raw_of(weight), ignore_index=ignore_index, reduction=reduction, fused=fused
    )
    losses = losses.reshape(n, *rest) if flat and reduction == "none" else losses
    return losses.squeeze(0) if reduction == "none" and single else losses


@op(layout=iterator, half="itself")
def _squared_error(xp, input, target):
    return xp.square(input - target)


_squared_error.grad(
    input=lambda g, input, target: g * 2 * (input - target), target=lambda g, input, target: g * 2 * (target - input)
)
_squared_error.register_kernel(cpu="mytorch.kernels.numba.losses:squared_error")


@_loss
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None, *, fused=None):
    """Computes the squared error, averaged over the elements by default.

        loss = (input - target)^2

    Use it for regression. A single outlier can dominate it, and then `l1_loss` or `huber_loss` is more robust.

    Args:
        input: predictions.
        target: target values, of the same shape as `input`.
        weight: factor for each element, of the shape of `input` (default: None, all 1). "mean" then divides by the sum of the weights.

    Example:
        >>> F.mse_loss(tensor([1.0, 2.0]), tensor([3.0, 2.0])).item()
        2.0

    See also: `nn.MSELoss`.
    """
    reduction = _legacy(reduction, size_average, reduce)
    return name_node(_of_differences("mse", input, target, reduction, weight, fused), "MSE")


@_loss
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None, *, fused=None):
    """Computes the absolute error, averaged over the elements by default.

        loss = |input - target|

    Args:
        input: predictions.
        target: target values, of the same shape as `input`.
        weight: factor for each element, of the shape of `input` (default: None, all 1). "mean" then divides by the sum of the weights.

    Example:
        >>> F.l1_loss(tensor([1.0, 2.0]), tensor([3.0, 1.0]), reduction="sum").item()
        3.0

    See also: `nn.L1Loss`.
    """
    return _of_differences("l1", input, target, _legacy(reduction, size_average, reduce), weight, fused)


def _clipped(xp, input, target, delta):
    difference = input - target
    far = xp.where(difference >= delta, delta, xp.where(difference <= -delta, -delta, difference * 0.0))
    return difference, xp.where(xp.abs(difference) < delta, difference, far)  # at NaN: NaN, with the derivative 0


@op(dtype="float", layout=iterator, half="itself")
def _clipped_error(xp, input, target, *, delta, scale):
    """Computes scale * d^2 / 2 for a difference |d| < delta, and scale * delta * (|d| - delta / 2) for larger differences."""
    difference, near = _clipped(xp, input, target, delta)
    return near * (difference - near * 0.5) * scale


_clipped_error.grad(
    input=lambda g, input, target, delta, scale, xp: g * scale * _clipped(xp, input, target, delta)[1],
    target=lambda g, input, target, delta, scale, xp: g * -scale * _clipped(xp, input, target, delta)[1],
)
_clipped_error.register_kernel(cpu="mytorch.kernels.numba.losses:clipped_error")


@_loss
@refuses("bci")
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0, *, fused=None):
    """Computes a loss that is quadratic for small errors and linear for large errors.

        d = |input - target|
        loss = d^2 / (2 * beta)  if d < beta,  d - beta / 2  otherwise

    Args:
        input: predictions.
        target: target values, of the same shape as `input`.
        beta: error at which the loss changes from quadratic to linear (default: 1.0). With 0 the loss is `l1_loss`.

    Raises:
        RuntimeError: `beta` is negative.

    Source: Girshick, Fast R-CNN, 2015.

    Example:
        >>> F.smooth_l1_loss(tensor([0.5, 3.0]), tensor([0.0, 0.0]), reduction="none").tolist()
        [0.125, 2.5]

    See also: `nn.SmoothL1Loss`, `nn.functional.huber_loss`.
    """
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}.")
    if beta == 0:
        return l1_loss(input, target, size_average, reduce, reduction, fused=fused)
    reduction = _legacy(reduction, size_average, reduce)
    return _of_differences("smooth_l1", input, target, reduction, None, fused, beta)


@_loss
@refuses("bci")
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None, *, fused=None):
    """Computes the Huber loss, which is quadratic for small errors and linear for large errors.

        d = |input - target|
        loss = d^2 / 2  if d <= delta,  delta * (d - delta / 2)  otherwise

    Args:
        input: predictions.
        target: target values, of the same shape as `input`.
        delta: error at which the loss changes from quadratic to linear (default: 1.0).
        weight: factor for each element, of the shape of `input` (default: None, all 1). "mean" still divides by the element count.

    Raises:
        RuntimeError: `delta` is not positive.

    Source: Huber, 1964.

    Example:
        >>> F.huber_loss(tensor([1.0, 4.0]), tensor([0.0, 0.0]), reduction="none", delta=2.0).tolist()
        [0.5, 6.0]

    See also: `nn.HuberLoss`, `nn.functional.smooth_l1_loss`.
    """
    if isinstance(delta, complex):
        raise TypeError(f"delta must be a float or int, got: {type(delta)}")
    if not delta > 0:  # NaN is refused, too
        raise RuntimeError(f"huber_loss does not support non-positive values for delta, got {delta}.")
    return _in_dtype_of(
        input, _of_differences("huber", input, target, reduction, weight, fused, delta, by_weight=False)
    )


@op(name="binary_cross_entropy", dtype="float", layout=iterator, half="itself")
def _likelihood_error(xp, input, target):
    """Computes -(target * log(input) + (1 - target) * log(1 - input)), with logarithms clamped to -100."""
    low = input.dtype.type(-100)
    return (target - 1) * xp.maximum(xp.log1p(-input), low) - target * xp.maximum(xp.log(input), low)


@op(name="binary_cross_entropy_backward", half="itself")
def _likelihood_slope(xp, slope, input, target):
    """Computes the gradient of `binary_cross_entropy` for input, with the upstream gradient `slope`; finite at 0 and 1."""
    return slope * (input - target) / xp.maximum(input * (1 - input), input.dtype.type(TINY))


# The second derivatives regularize the denominator as PyTorch does: (input + eps)(1 - input + eps) for slope and input.
_likelihood_slope.grad(
    slope=lambda g, input, target: g * (input - target) / ((input + 1e-12) * (1 - input + 1e-12)),
    input=lambda g, slope, input, target: (
        g * slope * (input * input - 2 * input * target + target)
        / ((input + 1e-12) * (1 - input + 1e-12)) / ((input + 1e-12) * (1 - input + 1e-12))
    ),
    target=lambda g, slope, input, xp: -g * slope / xp.maximum(input * (1 - input), input.dtype.type(1e-12)),
)  # fmt: skip
_likelihood_error.grad(
    input=lambda g, input, target, xp: xp.call(_likelihood_slope, g, input, target),
    target=lambda g, input, xp: g * (xp.log1p(-input) - xp.log(input)),
)


@in_precision()
@on_input_device
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean", *, fused=None):
    """Computes the binary cross-entropy between probabilities and targets.

        loss = -weight * (target * log(input) + (1 - target) * log(1 - input))

    Logarithms are clamped to -100. The gradient for `input` is
    (input - target) / max(input * (1 - input), 1e-12), which is finite for every input.

    Args:
        input: probabilities, in [0, 1].
        target: target values, in [0, 1], of the same shape as `input`.
        weight: factor for each element; its shape must broadcast to `input`; all 1 if None (default: None).
        size_average: deprecated; use `reduction`.
        reduce: deprecated; use `reduction`.
        reduction: "mean" (default), "sum", or "none" for one loss per element.

    Raises:
        ValueError: input and target have different shapes.
        RuntimeError: an element of input or target is outside [0, 1].

    Example:
        >>> F.binary_cross_entropy(tensor([0.5, 0.5]), tensor([1.0, 0.0]))
        tensor(0.69315)

    See also: `nn.BCELoss`, `nn.functional.binary_cross_entropy_with_logits`.
    """
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(
            f"Using a target size ({tuple(target.shape)}) that is different to the input size ({tuple(input.shape)}) is deprecated. Please ensure they have the same size."
        )
    if config.pytorch_mode and target.dtype is not input.dtype:
        words = [dtypes.word_of(t.dtype) for t in (target, input)]
        raise RuntimeError(f"Found dtype {words[0]} but expected {words[1]}")
    refuse_grad("binary_cross_entropy", weight=weight)
    raw = raw_of(input)
    if device_of(raw) is CPU:
        for word, values in (("input", raw), ("target", raw_of(target))):
            if not ((values >= 0) & (values <= 1)).all():
                raise RuntimeError(f"all elements of {word} should be between 0 and 1")
    return _of_elements("bce", input, target, _legacy(reduction, size_average, reduce), weight, fused)


@op(dtype="float", layout=iterator, half="itself")
def _logistic_error(xp, input, target):
    """Computes -(target * log(p) + (1 - target) * log(1 - p)) with p = sigmoid(input)."""
    return (1 - target) * input - xp.minimum(input, input.dtype.type(0)) + xp.log1p(xp.exp(-xp.absolute(input)))


_logistic_error.grad(
    input=lambda g, input, target, xp: g * (xp.call(_sigmoid, input) - target), target=lambda g, input: -g * input
)
_logistic_error.register_kernel(cpu="mytorch.kernels.numba.losses:logistic_error")


@_loss
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None, *, fused=None
):
    """Computes the binary cross-entropy between logits and targets.

        p = sigmoid(input)
        loss = -weight * (pos_weight * target * log(p) + (1 - target) * log(1 - p))

    Sigmoid and logarithm are computed together, so large logits do not overflow.

    Args:
        input: logits. Do not apply sigmoid first.
        target: target probabilities, of the same shape as `input`.
        weight: factor for each element; its shape must broadcast to `input`; all 1 if None (default: None).
        pos_weight: factor for the term of positive targets, usually one for each class (default: None, all 1). Broadcasts to `input`.

    Raises:
        ValueError: input and target have different shapes.

    Example:
        >>> F.binary_cross_entropy_with_logits(tensor([0.0, 0.0]), tensor([1.0, 0.0]))
        tensor(0.69315)

    See also: `nn.BCEWithLogitsLoss`.
    """
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"Target size ({tuple(target.shape)}) must be the same as input size ({tuple(input.shape)})")
    if config.pytorch_mode and target.dtype.category < input.dtype.category:
        words = [dtypes.word_of(t.dtype) for t in (input, target)]
        raise RuntimeError(f"result type {words[0]} can't be cast to the desired output type {words[1]}")
    refuse_grad("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    if pos_weight is None:
        loss = _of_elements("bce_logits", input, target, _legacy(reduction, size_average, reduce), weight, fused)
        return _in_dtype_of(target, loss)
    losses = (1 - target) * input - ((pos_weight - 1) * target + 1) * logsigmoid(input)
    return _in_dtype_of(target, _reduce(losses, reduction, size_average, reduce, weight))


@_loss
@refuses("CI")
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False, *, fused=None):
    """Computes the Kullback-Leibler divergence between a target distribution and `input`.

        loss = target * (log(target) - input)

    Args:
        input: log-probabilities.
        target: probabilities, or log-probabilities if `log_target` is True.
        reduction: "mean" (default), "sum", "none", or "batchmean", which divides the sum by the batch size, as in the
            mathematical definition.
        log_target: if True, `target` contains log-probabilities (default: False).

    Example:
        >>> p = tensor([[0.5, 0.5]])
        >>> F.kl_div(p.log(), p, reduction="batchmean").item()
        0.0

    See also: `nn.KLDivLoss`.
    """
    kind, reduction = "kl_log" if log_target else "kl", _legacy(reduction, size_average, reduce)
    if reduction == "mean":
        warn_as_pytorch(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides only by "
            "the batch size, and aligns with the KL div math definition."
        )
    if reduction == "batchmean":
        return _of_elements(kind, input, target, "sum", None, fused) / (input.shape[0] if input.ndim else 1)
    return _of_elements(kind, input, target, reduction, None, fused)


@_loss
def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    """Computes the negative log-likelihood of counts under Poisson distributions.

        loss = exp(input) - target * input           if log_input
        loss = input - target * log(input + eps)     otherwise

    Args:
        input: logarithms of the rates, or the rates if `log_input` is False.
        target: counts.
        log_input: if False, `input` contains rates instead of their logarithms (default: True).
        full: if True, adds Stirling's approximation of log(target!) (default: False).
        eps: added to a rate before its logarithm (default: 1e-8).

    Example:
        >>> F.poisson_nll_loss(tensor([0.0, 0.0]), tensor([1.0, 3.0])).item()
        1.0

    See also: `nn.PoissonNLLLoss`.
    """
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = losses + where(target > 1, stirling, 0.0)
    return _reduce(losses, reduction, size_average, reduce)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """Computes the negative log-likelihood of targets under normal distributions.

        loss = (log(var) + (input - target)^2 / var) / 2

    Args:
        input: means of the distributions.
        target: observed values.
        var: variances: a number, or a tensor of the shape of `input` or with one variance per row. Clamped to at least `eps`.
        full: if True, adds the constant log(2 * pi) / 2 (default: False).
        eps: smallest variance (default: 1e-6).
        reduction: "mean" (default), "sum", or "none" for one loss per element.

    Raises:
        ValueError: `var` has a wrong shape or a negative element.

    Example:
        >>> F.gaussian_nll_loss(tensor([0.0, 0.0]), tensor([2.0, 4.0]), tensor([1.0, 1.0])).item()
        5.0

    See also: `nn.GaussianNLLLoss`.
    """
    if not isinstance(var, (Tensor, Array)):
        var = input * 0 + var
    elif tuple(var.shape) != tuple(input.shape):
        if tuple(var.shape) == tuple(input.shape)[:-1]:
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or [n for n, m in zip(var.shape, input.shape, strict=True) if n != m] != [1]:
            raise ValueError(f"var is of incorrect size: {list(var.shape)} for an input of {list(input.shape)}")
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    var = var + (eps - var.detach()).clamp(min=0)
    losses = (var.log() + (input - target).square() / var) * 0.5
    return _reduce(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


@_loss
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """Computes a loss of distances between similar (1) and dissimilar (-1) pairs.

        loss = input                     if target == 1
        loss = max(0, margin - input)    if target == -1

    Args:
        input: distances.
        target: 1 or -1 for each distance.
        margin: distance above which a dissimilar pair has a loss of 0 (default: 1.0).

    Example:
        >>> F.hinge_embedding_loss(tensor([0.5, 0.25]), tensor([1, -1]), reduction="none").tolist()
        [0.5, 0.75]

    See also: `nn.HingeEmbeddingLoss`.
    """
    losses = where(target != -1, input, 0.0) + where(target != 1, (margin - input).clamp(min=0), 0.0)
    return _reduce(losses, reduction, size_average, reduce)


@_loss
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Computes the logistic loss of scores with targets 1 and -1, without overflow.

        loss = log(1 + exp(-target * input))

    Args:
        input: scores.
        target: 1 or -1 for each score.

    Example:
        >>> F.soft_margin_loss(tensor([0.0, 0.0]), tensor([1.0, -1.0]))
        tensor(0.69315)

    See also: `nn.SoftMarginLoss`.
    """
    return _in_dtype_of(input, _reduce(-logsigmoid(target * input), reduction, size_average, reduce))


@_loss
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """Computes a loss that is 0 if two scores have the order that the target requires, with a margin.

        loss = max(0, -target * (input1 - input2) + margin)

    Args:
        input1: first scores.
        input2: second scores.
        target: 1 where `input1` should be larger, -1 where `input2` should be larger.
        margin: difference of the scores at which the loss becomes 0 (default: 0).

    Raises:
        RuntimeError: the inputs have different numbers of axes.

    Example:
        >>> F.margin_ranking_loss(tensor([3.0, 1.0]), tensor([1.0, 2.0]), tensor([1.0, 1.0]), reduction="none").tolist()
        [0.0, 1.0]

    See also: `nn.MarginRankingLoss`.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss: All input tensors should have same dimension but got sizes: "
            f"{list(input1.shape)}, {list(input2.shape)} and target {list(target.shape)}"
        )
    return _reduce((-target * (input1 - input2) + margin).clamp(min=0), reduction, size_average, reduce)


@in_precision("float32")
@refuses("BCI")
@once_rounded
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """Computes the cosine of the angle between vectors along a dimension.

        result = sum(x1 * x2) / (max(norm(x1), eps) * max(norm(x2), eps))

    Use it when only directions matter, as with embeddings of texts; for all pairs, multiply normalized matrices.

    Args:
        x1: first vectors.
        x2: second vectors, of a shape that broadcasts with `x1`.
        dim: dimension that holds the elements of a vector (default: 1).
        eps: smallest norm in the denominator (default: 1e-8).

    Raises:
        RuntimeError: the shapes do not broadcast, or `eps` is negative.

    Example:
        >>> F.cosine_similarity(tensor([[1.0, 0.0]]), tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [1.0, 0.0]

    See also: `nn.CosineSimilarity`.
    """
    shape = broadcast(x1.shape, x2.shape)
    x1, x2 = x1.expand(*shape), x2.expand(*shape)
    if not eps >= 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps}")
    dtype = dtypes.promote_types(x1.dtype, x2.dtype)
    x1, x2 = x1.to(dtype), x2.to(dtype)
    a = x1 / x1.norm(2, dim, keepdim=True).clamp_min(eps)
    b = x2 / x2.norm(2, dim, keepdim=True).clamp_min(eps)
    return (a * b).sum(dim)


@_loss
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """Computes a loss of the cosine similarity of similar (1) and dissimilar (-1) pairs.

        loss = 1 - cos(input1, input2)                if target == 1
        loss = max(0, cos(input1, input2) - margin)   if target == -1

    Args:
        input1: first vectors, of shape (N, D) or (D,).
        input2: second vectors, of the same shape.
        target: 1 or -1 for each pair, of shape (N,) or ().
        margin: similarity below which a dissimilar pair has a loss of 0 (default: 0).

    Raises:
        RuntimeError: the shapes do not fit.

    Example:
        >>> x = tensor([[3.0, 4.0]])
        >>> F.cosine_embedding_loss(x, 2 * x, tensor([1]))
        tensor(0.00000)

    See also: `nn.CosineEmbeddingLoss`.
    """
    if target.ndim + 1 != input1.ndim or input1.ndim != input2.ndim:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dim = input1.ndim - 1
    dots = (input1 * input2).sum(dim)
    cos = dots / ((input1.square().sum(dim) + TINY) * (input2.square().sum(dim) + TINY)).sqrt()
    losses = where(target == 1, 1 - cos, 0.0) + where(target == -1, (cos - margin).clamp(min=0), 0.0)
    return _reduce(losses, reduction, size_average, reduce)


@in_precision("float32")
@on_input_device
@refuses("BCI")
def pdist(input, p=2.0):
    """Computes the p-norm distance between every pair of rows.

    Args:
        input: rows, of shape (N, C).
        p: order of the norm (default: 2.0).

    Returns:
        A vector of N * (N - 1) / 2 distances, of the pairs (0, 1), (0, 2), …, (N - 2, N - 1).

    Raises:
        RuntimeError: `input` is not 2-d, or `p` is negative.

    Example:
        >>> F.pdist(tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()[:2]
        [5.0, 1.0]

    See also: `mytorch.cdist`, `nn.functional.pairwise_distance`.
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not p >= 0:
        raise RuntimeError("pdist only supports non-negative p values")
    xp = xp_of(raw_of(input))
    rows, columns = (Tensor._wrap(xp.asarray(i)) for i in np.triu_indices(input.shape[0], 1))
    return (input[rows] - input[columns]).norm(p, -1)


@once_rounded
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """Computes the distance between corresponding vectors along the last axis.

        result = norm(x1 - x2 + eps, p)

    Args:
        x1: first vectors, of shape (…, D).
        x2: second vectors, of shape (…, D).
        p: order of the norm (default: 2.0).
        eps: added to the differences (default: 1e-6).
        keepdim: if True, keeps the last axis with size 1 (default: False).

    Example:
        >>> F.pairwise_distance(tensor([[3.0, 4.0]]), tensor([[0.0, 0.0]]), eps=0.0).tolist()
        [5.0]

    See also: `nn.PairwiseDistance`.
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)


@_loss
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """Computes a loss that is 0 if an anchor is closer to a positive than to a negative example, by a margin.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    The distance d is `pairwise_distance`.

    Args:
        anchor: reference vectors, of shape (N, D) or (D,).
        positive: vectors that should be close to the anchor, of the same shape.
        negative: vectors that should be far from the anchor, of the same shape.
        margin: difference of the distances at which the loss becomes 0 (default: 1.0).
        p: order of the norm of the distance (default: 2).
        eps: added to the differences of the vectors (default: 1e-6).
        swap: if True, uses the distance of positive and negative where it is smaller (default: False).

    Raises:
        RuntimeError: the inputs have different numbers of axes.
        ValueError: `margin` is not positive.

    Source: Balntas et al., 2016.

    Example:
        >>> F.triplet_margin_loss(tensor([[0.0]]), tensor([[1.0]]), tensor([[1.5]]), eps=0.0).item()
        0.5

    See also: `nn.TripletMarginLoss`.
    """

    def distance(a, b):
        return pairwise_distance(a, b, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap,
        reduction=_legacy(reduction, size_average, reduce),
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """Computes `triplet_margin_loss` with a custom distance function.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    Args:
        anchor: reference vectors, of shape (N, D) or (D,).
        positive: vectors that should be close to the anchor, of the same shape.
        negative: vectors that should be far from the anchor, of the same shape.
        distance_function: function of two tensors that returns their distances; `pairwise_distance` if None (default: None).
        margin: difference of the distances at which the loss becomes 0 (default: 1.0).
        swap: if True, uses the distance of positive and negative where it is smaller (default: False).
        reduction: "mean" (default), "sum", or "none" for one loss per triplet.

    Raises:
        RuntimeError: the inputs have different numbers of axes.
        ValueError: `margin` is not positive.

    Example:
        >>> def distance(a, b):
        ...     return (a - b).abs().sum(-1)
        >>> x, y, z = tensor([[0.0]]), tensor([[1.0]]), tensor([[1.5]])
        >>> F.triplet_margin_with_distance_loss(x, y, z, distance_function=distance).item()
        0.5

    See also: `nn.TripletMarginWithDistanceLoss`.
    """
    if not margin > 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor "
            f"{anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum.fast_call(far, distance(positive, negative))
    return _reduce((near - far + margin).clamp(min=0), reduction)


@_loss
@on_input_device
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Computes the multi-class hinge loss of scores.

        loss[n] = sum over c != target[n] of max(0, margin - input[n, target[n]] + input[n, c])^p / C

    Args:
        input: scores, of shape (N, C) or (C,).
        target: class indices, of shape (N,) or ().
        p: exponent, 1 or 2 (default: 1).
        margin: difference of the scores at which a term becomes 0 (default: 1.0).
        weight: factor for the terms of each target class, of shape (C,); all 1 if None (default: None).

    Raises:
        RuntimeError: the shapes do not fit.
        ValueError: `p` is neither 1 nor 2.

    Example:
        >>> F.multi_margin_loss(tensor([[0.0, 0.5, 0.0, 0.0]]), tensor([1])).item()
        0.375

    See also: `nn.MultiMarginLoss`.
    """
    refuse_grad("multi_margin_loss", weight=weight)
    check_reduction(_legacy(reduction, size_average, reduce))
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    rows = _scores(input, target)
    index = Tensor._of(watched(class_indices(target, "multi_margin_loss"), target)).reshape(rows.shape[0], 1)
    margins = _positive(margin - rows.gather(1, index.long()) + rows)
    margins = margins if p == 1 else margins.square()
    if weight is not None:
        margins = margins * weight[index]
    others = Tensor._wrap(xp_of(raw_of(rows)).arange(rows.shape[1])) != index
    losses = where(others, margins, 0.0).sum(1) / rows.shape[1]
    losses = losses.squeeze(0) if input.ndim < 2 else losses
    return _reduce(losses, reduction, size_average, reduce)


def _positive(x):
    """Returns x where it is positive and 0 elsewhere, also for NaN. The gradient at 0 is 0."""
    return where(x > 0, x, 0.0)


def _scores(input, target):
    """Returns the scores of a batch (N, C), or of one sample (C,), as (N, C)."""
    if input.ndim > 2 or 0 in input.shape[-1:] or (input.ndim == 2 and len(target) != len(input)):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, and as many targets, but got: "
            f"{list(input.shape)} and {list(target.shape)}"
        )
    return input.reshape(1, input.numel()) if input.ndim < 2 else input


@_loss
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Computes the binary cross-entropy with logits, averaged over the classes of each sample.

        loss[n] = -mean over c of weight[c] * (y log(p) + (1 - y) log(1 - p)),  p = sigmoid(input[n, c]), y = target[n, c]

    Args:
        input: logits, of shape (N, C) or (C,).
        target: 0 or 1 for each logit, of the same shape.
        weight: factor for each class, of shape (C,); all 1 if None (default: None).

    Example:
        >>> F.multilabel_soft_margin_loss(tensor([[0.0, 0.0]]), tensor([[1.0, 0.0]]))
        tensor(0.69315)

    See also: `nn.MultiLabelSoftMarginLoss`.
    """
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    losses = (losses if weight is None else losses * weight).sum(input.ndim - 1) / input.shape[-1]
    return _reduce(losses, reduction, size_average, reduce)


@_loss
@on_input_device
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Computes a hinge loss for samples that belong to several classes.

        loss[n] = sum over targets t and other classes c of max(0, 1 - input[n, t] + input[n, c]) / C

    Args:
        input: scores, of shape (N, C) or (C,).
        target: class indices of each sample, of the same shape as `input`, filled with -1 after the last class.

    Raises:
        RuntimeError: the shapes do not fit, or a class index is out of range.

    Example:
        >>> F.multilabel_margin_loss(tensor([[0.1, 0.2, 0.4, 0.8]]), tensor([[3, 0, -1, 1]]))
        tensor(0.85000)

    See also: `nn.MultiLabelMarginLoss`.
    """
    check_reduction(_legacy(reduction, size_average, reduce))
    if target.numel() != input.numel():
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    rows = _scores(input, target)
    index = class_indices(target, "multilabel_margin_loss").reshape(rows.shape)
    xp = xp_of(index)
    if index.size and int(index.max()) >= index.shape[1]:
        raise RuntimeError(
            f"multilabel_margin_loss: target is out of range: {int(index.max())} of {index.shape[1]} classes"
        )
    listed = xp.cumprod(index >= 0, axis=1).astype(bool)
    is_target = xp.zeros(index.shape, bool)
    where_rows, where_columns = xp.nonzero(listed)
    is_target[where_rows, index[where_rows, where_columns]] = True
    safe = Tensor._of(watched(xp.where(listed, index, 0), target))
    picked = rows.gather(1, safe.long())  # (N, C): the logits of the listed targets
    margins = _positive(1 - (picked.unsqueeze(2) - rows.unsqueeze(1)))
    counted = Tensor._wrap(listed[:, :, None] & ~is_target[:, None, :])
    losses = where(counted, margins, 0.0).sum((1, 2)) / rows.shape[1]
    losses = losses.squeeze(0) if input.ndim < 2 else losses
    return _reduce(losses, reduction, size_average, reduce)


LOW = -1e30  # stands for log(0), so that no gradient is NaN


def _arrivals(xp, alpha, skip):
    """Returns (3, N, W): log-probabilities of staying in a state, coming from the previous state, and skipping a blank."""
    low = xp.zeros_like(alpha[:, :1]) + LOW
    shifted = xp.concatenate([low, alpha[:, :-1]], 1)
    return xp.stack([alpha, shifted, xp.where(skip, xp.concatenate([low, shifted[:, :-1]], 1), LOW)])


def _log_sum(xp, ways):
    peak = xp.max(ways, axis=0)
    return xp.log(xp.sum(xp.exp(ways - peak), axis=0)) + peak


@op(name="alignments", dtype="same", residuals=("history",))
def _alignments(xp, emissions, *, skip, steps, ends):
    """Computes minus the log of the summed probability of all alignments, of shape (N,).

    An alignment starts in one of the first two states and ends in one of the last two states.

    Args:
        emissions: log-probabilities (T, N, W) of the symbol of each state.
        skip: bool (N, W); True for states that can be reached by skipping a blank.
        steps: number of steps of each sequence, (N,).
        ends: last state of each sequence, (N,).
    """
    state, row = xp.arange(emissions.shape[2]), xp.arange(emissions.shape[1])
    history = [xp.where(state < 2, emissions[0], LOW)]
    for t in range(1, emissions.shape[0]):
        alpha = _log_sum(xp, _arrivals(xp, history[-1], skip)) + emissions[t]
        # NaN stays NaN, except in the padding after the last step.
        history.append(xp.where((alpha < LOW) | (t >= steps)[:, None], LOW, alpha))
    history = xp.stack(history)
    # A sequence of no steps is in the first state with probability 1.
    unread = xp.astype(xp.where(state == 0, 0.0, LOW), emissions.dtype)
    last = xp.where((steps > 0)[:, None], history[xp.maximum(steps - 1, 0), row], unread)
    ways = xp.stack([last[row, ends], xp.where(ends > 0, last[row, xp.maximum(ends - 1, 0)], LOW)])
    return -_log_sum(xp, ways), history


def _alignments_grad(g, skip, steps, ends, history, out, xp):
    """Walks backward in time and distributes each state's gradient over its predecessors, by their shares."""
    state, grads = xp.arange(history.shape[2]), xp.zeros(history.shape, history.dtype)
    final = (state == ends[:, None]) | (state == ends[:, None] - 1)
    up = grads[0]
    for t in reversed(range(len(history))):
        begins = (steps == t + 1)[:, None] & final
        up = up + xp.where(begins, -g[:, None] * xp.exp(history[t] + out[:, None]), 0.0)
        grads[t] = up
        if t:
            ways = _arrivals(xp, history[t - 1], skip)
            shares = xp.exp(ways - xp.max(ways, axis=0))
            up, one, two = shares * (up / xp.sum(shares, axis=0))
            up[:, :-1] += one[:, 1:]
            up[:, :-2] += two[:, 2:]
    return (grads,)


_alignments.vjp(_alignments_grad)
_alignments.register_kernel(cpu="mytorch.kernels.numba.ctc:alignments")


@op(dtype="same")
def _ctc_normalizer(xp, log_probs, *, counted):
    """Returns zeros (N,) for log_probs (T, N, C), with the gradient exp(log_probs) * counted.

    The result is the sum of all probabilities minus its constant value for normalized log-probabilities. PyTorch includes
    this gradient in the gradient of `ctc_loss`. The total gradient is then softmax(logits) minus the posterior of each class.
    """
    return xp.zeros(log_probs.shape[1], log_probs.dtype)


_ctc_normalizer.grad(
    log_probs=lambda g, log_probs, counted, xp: (
        xp.where(counted != 0, xp.exp(log_probs) * xp.asarray(counted), 0.0) * g[:, None]
    )
)


@in_precision()
@on_input_device
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """Computes the connectionist temporal classification (CTC) loss.

        loss = -log(sum of the probabilities of all alignments of targets with log_probs)

    With reduction "mean", each loss is divided by its target length before averaging.

    Args:
        log_probs: log-probabilities of the classes at each step.
        targets: class indices. They may not contain the blank.
        input_lengths: number of steps of each sequence.
        target_lengths: number of classes of each target.
        blank: class index of the blank (default: 0).
        reduction: "mean" (default), which first divides each loss by the length of its target, "sum", or "none" for one loss
            per sequence.
        zero_infinity: if True, replaces infinite losses of impossible alignments by 0 (default: False).

    Shape:
        log_probs: (T, N, C) or (T, C).
        targets: (N, S), or all targets concatenated in one axis.
        input_lengths: (N,) or ().
        target_lengths: (N,) or ().

    Raises:
        RuntimeError: the shapes or lengths do not fit.

    Source: Graves et al., 2006.

    Example:
        >>> log_probs = tensor([[0.5, 0.5], [0.5, 0.5]]).log()  # 2 steps, blank and one label
        >>> F.ctc_loss(log_probs, tensor([1]), tensor(2), tensor(1)).exp()
        tensor(1.33333)

    See also: `nn.CTCLoss`.
    """
    single = log_probs.ndim == 2
    logits = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, _ = logits.shape
    if 0 in logits.shape:
        raise RuntimeError(
            f"ctc_loss: expected log_probs with elements, got shape {shape_of(log_probs)}. Skip empty batches."
        )
    lengths_in = [int(v) for v in np.atleast_1d(to_cpu(input_lengths))]
    lengths_out = [int(v) for v in np.atleast_1d(to_cpu(target_lengths))]
    for lengths, name in ((lengths_in, "input_lengths"), (lengths_out, "target_lengths")):
        if len(lengths) != batch:
            raise RuntimeError(f"ctc_loss: {name} must be of size batch_size, {batch}, but there are {len(lengths)}")
    labels = to_cpu(targets)
    if labels.ndim == 1 and not single and len(labels) != sum(lengths_out):
        raise RuntimeError(
            f"Expected tensor to have size {sum(lengths_out)} at dimension 0, but got size {len(labels)} for argument 'targets'"
        )
    for name, given, most in (("input_lengths", lengths_in, steps), ("target_lengths", lengths_out, labels.shape[-1])):
        if min(given, default=0) < 0 or max(given, default=0) > most:
            raise RuntimeError(f"ctc_loss: Expected {name} to have values from 0 to {most}, got {given}")
    if labels.ndim not in (1, 2) or (labels.ndim == 2 and len(labels) != batch):
        raise RuntimeError(f"ctc_loss: Expected targets of 1 or 2 dimensions, ({batch}, S), but got {labels.shape}")
    if labels.ndim == 1 and not single:
        starts = np.cumsum([0, *lengths_out])
        rows = [labels[a:b] for a, b in pairwise(starts)]
    else:
        rows = [row[:n] for row, n in zip(np.atleast_2d(labels), lengths_out, strict=True)]
    width = 2 * max(lengths_out, default=0) + 1
    extended = np.full((batch, width), blank, np.int64)
    for i, row in enumerate(rows):
        extended[i, 1 : 2 * len(row) : 2] = row
    may_skip = np.zeros((batch, width), bool)
    may_skip[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    emissions = logits.gather(2, on_device_of(np.broadcast_to(extended, (steps, batch, width)).copy(), logits))
    skip, steps, ends = (
        raw_of(on_device_of(a, logits)) for a in (may_skip, np.array(lengths_in), 2 * np.array(lengths_out))
    )
    loss = _alignments(emissions, skip=skip, steps=steps, ends=ends)
    impossible = loss > 1e29
    loss = where(impossible, 0.0 if zero_infinity else math.inf, loss)
    # The steps (T, N, 1) that have a gradient. It is NaN for an infinite loss, and 0 if zero_infinity replaces the loss.
    xp = xp_of(skip)
    factor = xp.where(raw_of(impossible), 0.0 if zero_infinity else math.nan, 1.0)
    counted = xp.where(xp.arange(len(emissions))[:, None] < steps, factor, 0.0).astype(raw_of(loss).dtype)
    loss = loss + _ctc_normalizer(logits, counted=counted[:, :, None])
    if reduction == "mean":
        return (loss / on_device_of(np.maximum(np.asarray(lengths_out), 1).astype(raw_of(loss).dtype), loss)).mean()
    loss = loss.squeeze(0) if single and reduction == "none" else loss
    return _reduce(loss, reduction)
