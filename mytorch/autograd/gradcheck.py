"""Checking gradients against finite differences, in double precision."""

import numpy as np

from ..tensor import Tensor
from .functions import grad
from .mode import no_grad


class GradcheckError(RuntimeError):
    """A derivative does not agree with finite differences."""


def _differentiable(outputs):
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [o for o in outputs if isinstance(o, Tensor) and o.requires_grad]


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    fast_mode=False,
    **unused,
):
    """Compare the gradients of `func` with central differences, element by element.

    Args:
        inputs: a tensor or a tuple; those that require grad are checked, and should be float64.
        eps: step of the differences. atol, rtol: how far the two may lie apart.
        fast_mode: compare along one random direction for each input, instead of every element.

    Returns:
        True; False on a difference if raise_exception is off.

    Raises:
        GradcheckError: they differ; it names the input, the output, the element and both numbers.
    """
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    rng = np.random.default_rng(0)
    outputs = _differentiable(func(*inputs))
    checked = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient.")
    for number, out in enumerate(outputs):
        weights = rng.standard_normal(tuple(out.shape))
        upstream = Tensor._wrap(weights.astype(out._data._array.dtype))
        grads = grad(out, [inputs[i] for i in checked], upstream, retain_graph=True, allow_unused=True)
        for i, g in zip(checked, grads, strict=True):
            x = inputs[i]._data._array
            analytic = np.zeros(x.shape) if g is None else np.asarray(g.detach())
            numeric = _numeric(func, inputs, i, number, weights, eps, rng if fast_mode else None)
            if fast_mode:
                direction, numeric = numeric
                analytic = np.sum(analytic * direction)
            far = np.abs(analytic - numeric) > atol + rtol * np.abs(numeric)
            if not np.all(np.isfinite(analytic)) or np.any(far):
                if not raise_exception:
                    return False
                where = np.unravel_index(np.argmax(np.abs(np.asarray(analytic) - numeric)), np.shape(numeric))
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {i} at {tuple(int(w) for w in where)}: "
                    f"numerical {np.asarray(numeric)[where]:.8g}, analytical {np.asarray(analytic)[where]:.8g}."
                )
    return True


def _numeric(func, inputs, i, number, weights, eps, rng):
    """The derivative of sum(weights * output) by central differences, for input i."""
    x = inputs[i]._data._array

    def value():
        with no_grad():
            out = func(*inputs)
        out = out if isinstance(out, (tuple, list)) else (out,)
        out = [o for o in out if isinstance(o, Tensor) and o.dtype.is_floating_point][number]
        return float(np.sum(np.asarray(out.detach(), dtype=np.float64) * weights))

    if rng is not None:
        direction = rng.standard_normal(x.shape)
        before = x.copy()
        x[...] = before + eps * direction
        high = value()
        x[...] = before - eps * direction
        low = value()
        x[...] = before
        return direction, (high - low) / (2 * eps)
    out = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        before = x[place].copy()
        x[place] = before + eps
        high = value()
        x[place] = before - eps
        low = value()
        x[place] = before
        out[place] = (high - low) / (2 * eps)
    return out


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, **options):
    """Compare the second derivatives of `func` with differences of its first ones. Arguments as gradcheck.

    Args:
        grad_outputs: upstream gradients of the first derivative; random ones if not given.
    """
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    outputs = _differentiable(func(*inputs))
    if grad_outputs is None:
        rng = np.random.default_rng(1)
        grad_outputs = [Tensor._wrap(rng.standard_normal(tuple(o.shape)).astype(o._data._array.dtype)) for o in outputs]
        for g in grad_outputs:
            g.requires_grad_()
    grad_outputs = list(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
    count = len(inputs)

    def first(*args):
        values, upstream = args[:count], args[count:]
        wanted = [t for t in values if isinstance(t, Tensor) and t.requires_grad]
        outs = _differentiable(func(*values))
        found = grad(outs, wanted, list(upstream), create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    def recorded(*args):
        from .mode import enable_grad

        with enable_grad():
            return first(*args)

    return gradcheck(recorded, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, **options)
