"""Products of vectors and matrices."""

from .bind import METHODS, public
from .core import op


def _swap(xp, x):
    return xp.swapaxes(x, -1, -2)


@op(name="matmul", autocast="half")
def _matmul(xp, input, other):
    return xp.matmul(input, other)


_matmul.grad(
    input=lambda g, other, xp: xp.matmul(g, _swap(xp, other)),
    other=lambda g, input, xp: xp.matmul(_swap(xp, input), g),
)


@public(dunder="__matmul__", inplace=False)
def matmul(input, other):
    """The matrix product over the last two axes; leading axes broadcast, 1-d operands are vectors.

    Raises:
        RuntimeError: the inner sizes differ, or an operand is a number.
    """
    n, m = input.ndim, other.ndim
    if n == 0 or m == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    if input.shape[-1] != other.shape[-2 if m > 1 else 0]:
        raise RuntimeError(_mismatch(input, other))
    if n > 1 and m > 1:
        if m == 2 and n > 2:  # one large product instead of many small ones
            out = _matmul.caller(input.reshape(-1, input.shape[-1]), other)
            return out.reshape(*input.shape[:-1], other.shape[-1])
        try:
            return _matmul.caller(input, other)
        except ValueError:
            raise RuntimeError(_mismatch(input, other)) from None
    if n == 1 and m == 1:
        return _matmul.caller(input.reshape(1, -1), other.reshape(-1, 1)).reshape(())
    if n == 1:
        return _matmul.caller(input.reshape(1, -1), other).squeeze(-2)
    return _matmul.caller(input, other.reshape(-1, 1)).squeeze(-1)


def _mismatch(a, b):
    if a.ndim <= 2 and b.ndim <= 2:
        text = [f"{x.shape[0]}x{x.shape[1]}" if x.ndim == 2 else str(x.shape[0]) for x in (a, b)]
        return f"mat1 and mat2 shapes cannot be multiplied ({text[0]} and {text[1]})"
    return f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied: the inner sizes must agree and the leading ones broadcast"


METHODS["__matmul__"] = matmul


def _expect_dims(input, mat2, dims, name):
    if input.ndim != dims or mat2.ndim != dims:
        raise RuntimeError(f"{name}: expected two {dims}-d tensors, got {input.ndim}-d and {mat2.ndim}-d.")


@public(inplace=False)
def mm(input, mat2):
    """The product of two matrices."""
    _expect_dims(input, mat2, 2, "mm")
    return matmul(input, mat2)


@public(inplace=False)
def bmm(input, mat2):
    """The products of two batches of matrices, (B, n, k) and (B, k, m)."""
    _expect_dims(input, mat2, 3, "bmm")
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm: batch sizes differ: {tuple(input.shape)} and {tuple(mat2.shape)}.")
    return matmul(input, mat2)


@public(inplace=False)
def mv(input, vec):
    """The product of a matrix and a vector."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"mv: expected a matrix and a vector, got {input.ndim}-d and {vec.ndim}-d.")
    return matmul(input, vec)


@public(inplace=False)
def dot(input, tensor):
    """The inner product of two vectors."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    return matmul(input, tensor)


@public(inplace=False)
def outer(input, vec2):
    """The outer product of two vectors."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D arguments, but got {input.ndim}-D and {vec2.ndim}-D")
    return input.unsqueeze(1) * vec2


def _blend(input, product, beta, alpha):
    """beta * input + alpha * product; input counts for nothing, NaN included, where beta is 0."""
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


@public()
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2)."""
    return _blend(input, mm(mat1, mat2), beta, alpha)


@public()
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec)."""
    return _blend(input, mv(mat, vec), beta, alpha)


@public()
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * (batch1 @ batch2), batch by batch."""
    return _blend(input, bmm(batch1, batch2), beta, alpha)


# -- the linear layer ------------------------------------------------------------------------------------------


@op(name="linear", autocast="half")
def _linear(xp, input, weight, bias=None):
    x = xp.reshape(input, (-1, input.shape[-1]))  # (N, in)
    out = xp.matmul(x, xp.transpose(weight))
    if bias is not None:
        out += bias
    return out.reshape(*input.shape[:-1], weight.shape[0])


def _rows(xp, x):
    return xp.reshape(x, (-1, x.shape[-1]))


_linear.grad(
    input=lambda g, weight, shape, xp: xp.reshape(xp.matmul(_rows(xp, g), weight), shape),
    weight=lambda g, input, xp: xp.matmul(xp.transpose(_rows(xp, g)), _rows(xp, input)),
    bias=lambda g, xp: xp.sum(_rows(xp, g), axis=0),
)
