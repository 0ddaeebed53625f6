"""Checks of gradients against finite differences, in double precision."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import CPU, device_guard, to_device
from ..arrays.dtypes import FLOAT
from ..arrays.tensor import Tensor
from ..ops.dispatch.layouts import other_layout
from . import forward_ad
from .backward_call import grad
from .mode import enable_grad, no_grad


class GradcheckError(RuntimeError):
    """Raised if a derivative differs from finite differences."""


def _tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _places(outputs):
    """Returns the positions of the differentiable outputs."""
    return [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]


def _differentiable(outputs):
    outputs = _tuple(outputs)
    return [outputs[i] for i in _places(outputs)]


def _refuse(name, **options):
    for option, given in options.items():
        if given:
            raise NotImplementedError(f"{name}: {option}=True is not supported.")


def _normal(rng, shape, dtype):
    """Returns normally distributed numbers of a NumPy dtype. Both parts of complex numbers are random."""
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def _on_device_of(tensor, raw):
    return Tensor._wrap(to_device(raw, tensor.device))


def _random_like(tensor, rng):
    return _on_device_of(tensor, _normal(rng, tuple(tensor.shape), tensor._mt_data._array.dtype))


def _numpy(tensor):
    """Returns the elements of a tensor as a NumPy array."""
    return to_device(tensor.detach()._mt_data._array, CPU)


def gradcheck(
    func: Callable[..., Any], inputs: Tensor | Sequence[Any], *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Compares the gradients of a function with finite differences, element by element.

        numerical = (func(x + eps) - func(x - eps)) / (2 * eps)

    A gradient passes if its distance from the numerical gradient is at most `atol + rtol * |numerical|`. For complex
    inputs, the gradient is the derivative with respect to the real part plus i times the derivative with respect to the
    imaginary part.

    Args:
        func: function of tensors that returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors. Inputs that require gradients are checked. Use float64 for them.
        eps: step of the finite differences (default: 1e-6).
        atol: absolute tolerance (default: 1e-5).
        rtol: relative tolerance (default: 1e-3).
        raise_exception: raise an error on a difference, instead of returning False (default: True).
        nondet_tol: allowed difference between the gradients of two backward passes (default: 0).
        check_undefined_grad: check that backward works without an upstream gradient for one of several outputs.
        check_grad_dtypes: check that gradients have the dtypes of their inputs.
        check_batched_grad: not supported.
        check_batched_forward_grad: not supported.
        check_forward_ad: also check the tangents of forward mode, along one random direction for each input.
        check_backward_ad: check gradients (default: True).
        fast_mode: compare along one random direction for each input, instead of all elements.
        masked: not supported.

    Returns:
        True if all gradients pass; False on a difference if `raise_exception` is False.

    Raises:
        GradcheckError: a gradient differs. The message contains the input, the output, the element and both values.
        ValueError: no input requires gradients.
        NotImplementedError: an option that is not supported is True.

    Example:
        >>> mytorch.autograd.gradcheck(mytorch.sin, tensor([1.0, 2.0], dtype=mytorch.float64, requires_grad=True))
        True
    """
    batched = {"check_batched_grad": check_batched_grad, "check_batched_forward_grad": check_batched_forward_grad}
    if (dense := other_layout("gradcheck", *_tuple(inputs))) is not None:
        func, inputs = dense(func, _tuple(inputs), masked)
        masked = None
    _refuse("gradcheck", **batched, masked=masked)
    if not (check_backward_ad or check_forward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    inputs = _tuple(inputs)
    checked = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    try:
        if check_forward_ad:
            _check_forward(func, inputs, checked, eps, atol, rtol)
        if check_backward_ad:
            _check(
                func, inputs, checked, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode
            )
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func, inputs, checked, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode):
    rng = np.random.default_rng(0)
    outputs = _tuple(func(*inputs))
    wanted = [inputs[i] for i in checked]
    for number in _places(outputs):
        out = outputs[number]
        weights = _normal(rng, tuple(out.shape), out._mt_data._array.dtype)
        upstream = _on_device_of(out, weights)
        grads = grad(out, wanted, upstream, retain_graph=True, allow_unused=True)
        again = grad(out, wanted, upstream, retain_graph=True, allow_unused=True)
        for i, g, h in zip(checked, grads, again, strict=True):
            x = inputs[i]._mt_data._array
            if check_grad_dtypes and g is not None and g.dtype is not inputs[i].dtype:
                raise GradcheckError(
                    f"gradcheck: the gradient of input {i} has dtype {g.dtype}, the input {inputs[i].dtype}."
                )
            analytic = np.zeros(x.shape, x.dtype) if g is None else _numpy(g)
            if g is not None and np.any(np.abs(analytic - _numpy(h)) > nondet_tol):
                raise GradcheckError(
                    f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                    f"different values (input {i}, output {number}). The tolerance for nondeterminism was {nondet_tol}."
                )
            numeric = _numeric(func, inputs, i, number, weights, eps, rng if fast_mode else None)
            if fast_mode:
                direction, numeric = numeric
                analytic = np.sum((analytic * direction.conj()).real)
            _compare(analytic, numeric, atol, rtol, number, i)
    if check_undefined_grad:
        _check_undefined(outputs, wanted, rng)


def _check_forward(func, inputs, checked, eps, atol, rtol):
    """Compares the tangents of forward mode with the slope of the outputs along the same direction."""
    rng = np.random.default_rng(2)
    for i in checked:
        x = inputs[i].detach()
        tangent = _random_like(x, rng)
        given = [t.detach() if isinstance(t, Tensor) else t for t in inputs]

        def outputs(x, i=i, given=given):
            return _tuple(func(*given[:i], x, *given[i + 1 :]))

        with forward_ad.dual_level():
            found = [
                forward_ad.unpack_dual(o).tangent if isinstance(o, Tensor) else None
                for o in outputs(forward_ad.make_dual(x, tangent))
            ]
        with no_grad():
            above, below = outputs(x + eps * tangent), outputs(x - eps * tangent)
        for number, t in enumerate(found):
            if isinstance(above[number], Tensor) and above[number].dtype.category >= FLOAT:
                numeric = (_numpy(above[number]) - _numpy(below[number])) / (2 * eps)
                analytic = np.zeros(numeric.shape) if t is None else _numpy(t)
                _compare(analytic, numeric, atol, rtol, number, i, "Jacobian computed with forward mode mismatch")


def _check_undefined(outputs, wanted, rng):
    """Checks that backward works from each output alone, without gradients of the other outputs."""
    for number in _places(outputs):
        try:
            grad(outputs[number], wanted, _random_like(outputs[number], rng), retain_graph=True, allow_unused=True)
        except Exception as error:
            raise GradcheckError(f"gradcheck: backward from output {number} alone fails: {error}") from error


def _compare(analytic, numeric, atol, rtol, number, i, what="Jacobian mismatch"):
    far = np.abs(analytic - numeric) > atol + rtol * np.abs(numeric)
    if np.all(np.isfinite(analytic)) and not np.any(far):
        return
    where = np.unravel_index(np.argmax(np.abs(np.asarray(analytic) - numeric)), np.shape(numeric))
    raise GradcheckError(
        f"{what} for output {number} with respect to input {i} at {tuple(int(w) for w in where)}: "
        f"numerical {np.asarray(numeric)[where]:.8g}, analytical {np.asarray(analytic)[where]:.8g}. "
        "The upstream gradient is random."
    )


def _numeric(func, inputs, i, number, weights, eps, rng):
    """Returns the derivative of Re(sum(conj(weights) * output)) with respect to input i, by central differences."""
    x = inputs[i]._mt_data._array

    def value():
        with no_grad():
            out = _tuple(func(*inputs))[number]
        double = np.complex128 if weights.dtype.kind == "c" else np.float64
        return float(np.sum(_numpy(out).astype(double) * weights.conj()).real)

    def value_at(place, step, sign):
        with device_guard(x):
            before = x[place].copy()
            x[place] = before + sign * step
        out = value()
        with device_guard(x):
            x[place] = before
        return out

    def slope(place, step):
        return (value_at(place, step, 1) - value_at(place, step, -1)) / (2 * eps)

    if rng is not None:
        direction = _normal(rng, x.shape, x.dtype)
        return direction, slope(..., to_device(eps * direction, inputs[i].device))
    out = np.zeros(x.shape, x.dtype if x.dtype.kind == "c" else np.float64)
    for place in np.ndindex(*x.shape):
        out[place] = slope(place, eps)
        if x.dtype.kind == "c":
            out[place] += 1j * slope(place, eps * 1j)
    return out


def gradgradcheck(
    func: Callable[..., Any], inputs: Tensor | Sequence[Any], grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """Compares the second derivatives of a function with finite differences of its gradients.

    Args:
        func: function of tensors that returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors. Inputs that require gradients are checked. Use float64 for them.
        grad_outputs: upstream gradients of the first derivative (default: random).
        gen_non_contig_grad_outputs: make the random upstream gradients non-contiguous.
        check_fwd_over_rev: check forward mode over backward.
        check_rev_over_rev: check backward over backward (default: True).
        eps: step of the finite differences (default: 1e-6).
        atol: absolute tolerance (default: 1e-5).
        rtol: relative tolerance (default: 1e-3).
        raise_exception: raise an error on a difference, instead of returning False (default: True).
        nondet_tol: allowed difference between the gradients of two backward passes (default: 0).
        check_undefined_grad: check that backward works without an upstream gradient for one of several outputs.
        check_grad_dtypes: check that gradients have the dtypes of their inputs.
        check_batched_grad: not supported.
        fast_mode: compare along one random direction for each input, instead of all elements.
        masked: not supported.

    Returns:
        True if all second derivatives pass; False on a difference if `raise_exception` is False.

    Raises:
        GradcheckError: a second derivative differs.

    Example:
        >>> x = tensor([1.0, 2.0], dtype=mytorch.float64, requires_grad=True)
        >>> mytorch.autograd.gradgradcheck(lambda x: x**3, x)
        True
    """
    if not (check_rev_over_rev or check_fwd_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    inputs = _tuple(inputs)
    outputs = _differentiable(func(*inputs))
    if grad_outputs is None:
        rng = np.random.default_rng(1)
        grad_outputs = []
        for o in outputs:
            raw = _normal(
                rng, (*o.shape, 2) if gen_non_contig_grad_outputs else tuple(o.shape), o._mt_data._array.dtype
            )
            raw = to_device(raw, o.device)
            grad_outputs.append(Tensor._wrap(raw[..., 0] if gen_non_contig_grad_outputs else raw).requires_grad_())
    grad_outputs = list(_tuple(grad_outputs))
    wants = [isinstance(t, Tensor) and t.requires_grad for t in inputs]

    def first(*args):
        values, upstream = args[: len(inputs)], args[len(inputs) :]
        with enable_grad():
            values = [
                v.requires_grad_() if w and not v.requires_grad else v for v, w in zip(values, wants, strict=True)
            ]
            wanted = [v for v, w in zip(values, wants, strict=True) if w]
            found = grad(_differentiable(func(*values)), wanted, list(upstream), create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    tolerances = {"eps": eps, "atol": atol, "rtol": rtol, "nondet_tol": nondet_tol}
    checks = {"check_undefined_grad": check_undefined_grad, "check_grad_dtypes": check_grad_dtypes}
    checks.update(check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev)
    refused = {"check_batched_grad": check_batched_grad, "masked": masked}
    options = {"raise_exception": raise_exception, "fast_mode": fast_mode, **tolerances, **checks, **refused}
    return gradcheck(first, (*inputs, *grad_outputs), **options)
