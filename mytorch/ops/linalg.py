"""Products of vectors and matrices."""

import functools
import math
import re

from ..arrays import ON_NUMPY, dtypes, is_raw
from ..arrays.errors import warn_as_pytorch
from ..arrays.tensor import Tensor
from .dispatch.bind import METHODS, public, with_numbers_between
from .dispatch.errors import broadcast, expandable
from .dispatch.half import once_rounded_on_cpu
from .dispatch.inplace import constant
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.refused import refuses, takes_tensors
from .dispatch.unwrap import shape_of
from .movement import _reshape, cat, contiguous, stack
from .reduction import normalize_dim


def _swap(xp, x):
    return xp.swapaxes(x, -1, -2)


@op(name="matmul", xp_name="matmul", autocast="half", half="itself")
def _matmul(xp, input, other):
    return xp.matmul(input, other)


_matmul.grad(
    input=lambda g, other, xp: xp.matmul(g, _swap(xp, other)), other=lambda g, input, xp: xp.matmul(_swap(xp, input), g)
)


_bmm = _matmul.named("Matmul", "BmmBackward0")
_unsafe_view, _dot, _mv, _row = (
    _reshape.named("Reshape", f"{name}Backward{i}")
    for name, i in (("UnsafeView", 0), ("Dot", 0), ("Mv", 0), ("Squeeze", 4))
)


@public(dunder="__matmul__", inplace=False)
def matmul(input, other):
    """Multiplies matrices over the last two axes. Leading axes broadcast, and 1-d tensors are vectors.

    Args:
        input: first matrix or vector.
        other: second matrix or vector.

    Returns:
        A tensor of shape (…, n, m); dimensions of vectors are removed.

    Raises:
        RuntimeError: the inner sizes differ, or an operand is a number.

    Example:
        >>> mytorch.matmul(tensor([[1, 2], [3, 4]]), tensor([1, 10])).tolist()
        [21, 43]
        >>> (mytorch.zeros(5, 2, 3) @ mytorch.zeros(3, 4)).shape
        mytorch.Size([5, 2, 4])
    """
    a, b = shape_of(input), shape_of(other)
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    if a[-1] != b[-2 if m > 1 else 0]:
        raise RuntimeError(_mismatch(input, other))
    if n > 1 and m > 1:
        if m == 2 and n > 2:  # merge the batch: one large product instead of many small ones
            out = _matmul.fast_call(input.reshape(math.prod(a[:-1]), a[-1]), other)
            return own(_unsafe_view.fast_call(out, (*a[:-1], b[-1])))
        return _matmul.fast_call(input, other)
    # A vector is a row on the left and a column on the right. The added axis is removed again.
    if n == 1 and m == 1:
        return own(_dot.fast_call(_matmul.fast_call(input.reshape(1, -1), other.reshape(-1, 1)), ()))
    if n == 1:
        return own(_row.fast_call(_matmul.fast_call(input.reshape(1, -1), other), (*b[:-2], b[-1])))
    return own((_mv if n == 2 else _unsafe_view).fast_call(_matmul.fast_call(input, other.reshape(-1, 1)), a[:-1]))


def _mismatch(a, b):
    if a.ndim <= 2 and b.ndim <= 2:
        text = [f"{x.shape[0]}x{x.shape[1]}" if x.ndim == 2 else str(x.shape[0]) for x in (a, b)]
        return f"mat1 and mat2 shapes cannot be multiplied ({text[0]} and {text[1]})"
    return f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied: the inner sizes must agree and the leading ones broadcast"


def _expect_dims(input, mat2, dims, name):
    if input.ndim != dims or mat2.ndim != dims:
        raise RuntimeError(f"{name}: expected two {dims}-d tensors, got {input.ndim}-d and {mat2.ndim}-d.")


@public(inplace=False)
def mm(input, mat2):
    """Multiplies two matrices.

    Use it when both have two dimensions and anything else should be an error; `matmul` broadcasts.

    Args:
        input: first matrix.
        mat2: second matrix.

    Example:
        >>> mytorch.mm(tensor([[1, 2]]), tensor([[3], [4]])).tolist()
        [[11]]
    """
    _expect_dims(input, mat2, 2, "mm")
    return matmul(input, mat2)


@public(inplace=False)
def bmm(input, mat2):
    """Multiplies two batches of matrices, (B, n, k) and (B, k, m).

    Use it when both have three dimensions and anything else should be an error; `matmul` broadcasts.

    Args:
        input: first batch.
        mat2: second batch.

    Example:
        >>> mytorch.bmm(mytorch.ones(2, 1, 3), mytorch.ones(2, 3, 1)).tolist()
        [[[3.0]], [[3.0]]]
    """
    _expect_dims(input, mat2, 3, "bmm")
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm: batch sizes differ: {tuple(input.shape)} and {tuple(mat2.shape)}.")
    if input.shape[2] != mat2.shape[1]:
        raise RuntimeError(_mismatch(input, mat2))
    return _bmm.fast_call(input, mat2)


@public(inplace=False)
@in_precision("half")
def mv(input, vec):
    """Multiplies a matrix by a vector.

    Args:
        input: the matrix.
        vec: the vector.

    Example:
        >>> mytorch.mv(tensor([[1, 2], [3, 4]]), tensor([1, 10])).tolist()
        [21, 43]
    """
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"mv: expected a matrix and a vector, got {input.ndim}-d and {vec.ndim}-d.")
    return matmul(input, vec)


@public(inplace=False)
@in_precision("widest")
@takes_tensors("tensor")
def dot(input, tensor):
    """Computes the inner product of two vectors.

    Args:
        input: first vector.
        tensor: second vector.

    Example:
        >>> mytorch.dot(tensor([1, 2]), tensor([3, 4])).item()
        11
    """
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    return matmul(input, tensor)


@public(inplace=False, names=("ger",))
def outer(input, vec2):
    """Computes the outer product of two vectors.

    Args:
        input: first vector.
        vec2: second vector.

    Example:
        >>> mytorch.outer(tensor([1, 2]), tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
    """
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D arguments, but got {input.ndim}-D and {vec2.ndim}-D")
    return input.unsqueeze(1) * vec2


def _blend(input, product, beta, alpha):
    """Returns beta * input + alpha * product. If beta is 0, input is ignored, also its NaN and infinities."""
    for word, factor in (("alpha", alpha), ("beta", beta)):
        if type(factor) is bool and product.dtype is not dtypes.bool_:
            raise RuntimeError(f"Boolean {word} only supported for Boolean results.")
    if product.dtype.category < dtypes.FLOAT:
        if not (math.isfinite(alpha) and math.isfinite(beta)):
            raise RuntimeError(f"alpha {alpha} or beta {beta} cannot be converted to {product.dtype}")
        alpha, beta = dtypes.fitting(alpha, product.dtype), dtypes.fitting(beta, product.dtype)
    if alpha != 1:
        product = product * alpha
    expandable(input, product.shape, "beta * input + alpha * product")
    if beta == 0:
        return constant(input.expand(product.shape), product) if input.requires_grad else product  # its gradient is 0
    return (input if beta == 1 else input * beta) + product


def _blends(function, once=True):
    """Decorates functions like addmm: half precision under autocast, and the deprecated argument order f(beta, input, alpha, …).

    With `once`, half precision is computed in float32 and rounded once.
    """
    return with_numbers_between("beta", "alpha")(
        in_precision("half")(once_rounded_on_cpu(function) if once else function)
    )


@public()
@_blends
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * (mat1 @ mat2).

    Args:
        input: tensor that broadcasts to the product.
        mat1: (N, K).
        mat2: (K, M).
        beta: factor of `input` (default: 1).
        alpha: factor of the product (default: 1).

    Example:
        >>> mytorch.addmm(tensor([1.0, 1.0]), tensor([[1.0, 2.0]]), mytorch.eye(2)).tolist()
        [[2.0, 3.0]]
    """
    return contiguous(_blend(input, mm(mat1, mat2), beta, alpha))


@public()
@_blends
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """Computes beta * input + alpha * (mat @ vec).

    Args:
        input: tensor that broadcasts to (M,).
        mat: (M, N).
        vec: (N,).
        beta: factor of `input` (default: 1).
        alpha: factor of the product (default: 1).
    """
    return _blend(input, mv(mat, vec), beta, alpha)


@public()
@_blends
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * (batch1 @ batch2) for each matrix of a batch.

    Args:
        input: tensor that broadcasts to (B, M, N).
        batch1: (B, M, K).
        batch2: (B, K, N).
        beta: factor of `input` (default: 1).
        alpha: factor of the product (default: 1).

    Example:
        >>> x = mytorch.ones(3, 2, 4)
        >>> mytorch.baddbmm(x, mytorch.ones(3, 2, 5), mytorch.ones(3, 5, 4))[0, 0].tolist()
        [6.0, 6.0, 6.0, 6.0]
    """
    if input.dtype is not batch1.dtype:
        raise RuntimeError(f"Input dtypes must be the same, got: input {input.dtype}, batch1: {batch1.dtype}")
    return contiguous(_blend(input, bmm(batch1, batch2), beta, alpha))


# -- the linear layer ------------------------------------------------------------------------------------------


@op(name="linear", autocast="half", half="itself")
def _linear(xp, input, weight, bias=None):
    rows = input if input.ndim == 2 else _rows(xp, input)
    half = bias is not None and rows.dtype.itemsize == 2 and xp in ON_NUMPY
    out = xp.half_product(rows, weight.T, bias) if half else xp.matmul(rows, weight.T)
    if bias is not None and not half:
        out += bias
    return out if input.ndim == 2 else out.reshape(*input.shape[:-1], weight.shape[0])


def _rows(xp, x):
    return x if x.ndim == 2 else xp.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def weight_gradient(xp, columns, rows, float32_accum):
    """Returns columns @ rows. On a GPU with `float32_accum` (the weight was cast from float32), the result stays float32."""
    if float32_accum and is_raw(rows) and xp not in ON_NUMPY:
        return xp.matmul(columns, rows, out=xp.empty((columns.shape[0], rows.shape[1]), "float32"))
    return xp.matmul(columns, rows)


_linear.grad(
    input=lambda g, weight, shape, xp: xp.reshape(xp.matmul(_rows(xp, g), weight), shape),
    weight=lambda g, input, float32_accum, xp: weight_gradient(
        xp, xp.transpose(_rows(xp, g)), _rows(xp, input), float32_accum[1]
    ),
    bias=lambda g, xp: xp.sum(_rows(xp, g), axis=0),
)
_linear.register_kernel(cuda="mytorch.kernels.linear")


# -- sums of products --------------------------------------------------------------------------------------------


@op(name="einsum", autocast="half")
def _einsum(xp, *operands, spec):
    return xp.astype(xp.asarray(xp.einsum(spec, *operands)), operands[0].dtype)


def _einsum_vjp(g, operands, spec, needs, xp):
    inputs, output = spec.split("->")
    terms = inputs.split(",")
    grads = []
    for i, term in enumerate(terms):
        if i >= len(needs) or not needs[i]:
            grads.append(None)
            continue
        # The gradient of operand i is an einsum of g and the other operands, with operand i's letters as output.
        others = [t for j, t in enumerate(terms) if j != i]
        rest = [operands[j] for j in range(len(terms)) if j != i]
        have = set(output).union(*others)
        reachable = "".join(c for c in term if c in have)
        part = xp.call(_einsum, g, *rest, spec=f"{','.join([output, *others])}->{reachable}")
        missing = [k for k, c in enumerate(term) if c not in have]
        for k in missing:  # a letter that occurs only here was summed: its gradient is constant along this axis
            part = xp.expand_dims(part, k)
        grads.append(xp.broadcast_to(part, operands[i].shape) if missing else part)
    return grads


_einsum.vjp(_einsum_vjp)


_SUBSCRIPTS = r"[a-zA-Z ]*(\.{3})?[a-zA-Z ]*"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@functools.lru_cache(1024)
def _letters(equation, ndims):
    """Returns an equation in canonical form: no blanks, an explicit output, and letters instead of `...`."""
    inputs, arrow, output = equation.partition("->")
    for term in (*inputs.split(","), output):
        if not re.fullmatch(_SUBSCRIPTS, term):
            raise RuntimeError(f"einsum(): expected letters and at most one '...' in subscripts, got {term!r}.")
    equation, output = equation.replace(" ", ""), output.replace(" ", "")
    terms = inputs.replace(" ", "").split(",")
    if len(terms) != len(ndims):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(terms)}) does not match the number of operands ({len(ndims)})"
        )
    used = set(equation) - set(".,->")
    free = [c for c in _LETTERS if c not in used]
    dot_axes = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    longest = max((n for n, term in zip(dot_axes, terms, strict=True) if "..." in term), default=0)
    dots = "".join(free[:longest])
    spelled = []
    for term, ndim, n in zip(terms, ndims, dot_axes, strict=True):
        if n < 0 or ("..." not in term and n):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(term)}) does not match the number of dimensions ({ndim}) for an operand"
            )
        # Broadcasting aligns the axes of `...` at the right.
        spelled.append(term.replace("...", dots[longest - n :] if n else ""))
    if arrow:
        output = output.replace("...", dots)
    else:
        joined = "".join(spelled)
        # Without an explicit output: the letters that occur once, in alphabetical order.
        output = dots + "".join(sorted(c for c in set(joined) - set(dots) if joined.count(c) == 1))
    return tuple(spelled), output


@functools.lru_cache(1024)
def _sums_products(spec):
    """Returns True if operands share an axis that is summed."""
    terms, output = spec.split("->")
    return any(terms.count(c) > 1 and c not in output for c in set(terms) - {","})


def _in_letters(equation, *operands):
    """Returns the equation as a string, followed by the operands one by one. Classes that override `einsum` receive them so."""
    if not isinstance(equation, str):  # alternating tensors and lists of axes, optionally followed by the output's axes
        parts = (equation, *operands)
        operands, axes = parts[: len(parts) // 2 * 2 : 2], parts[1::2]
        for i in (i for listed in (*axes, *(parts[-1:] if len(parts) % 2 else ())) for i in listed):
            if i is not Ellipsis and not 0 <= i < len(_LETTERS):
                raise ValueError(f"einsum(): expected subscripts within the valid range [0, 52), got {i}.")
        spelled = ["".join("..." if i is Ellipsis else _LETTERS[i] for i in listed) for listed in axes]
        equation = ",".join(spelled)
        if len(parts) % 2:
            equation += "->" + "".join("..." if i is Ellipsis else _LETTERS[i] for i in parts[-1])
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return equation, *operands


@public(method=False, inplace=False)
def einsum(equation, *operands):
    """Computes sums of products in Einstein notation.

    Use it when a product needs transposes or several sums: the letters say what is multiplied. `matmul` is a little
    faster where it fits.

    Args:
        equation: letters for the axes of each operand and of the output, such as "bij,bjk->bik". `...` stands for further
            axes. Without "->", the output has the letters that occur once, in alphabetical order. Instead of an equation,
            you can pass each operand followed by a list of axis numbers, and then the list for the output.
        operands: the tensors.

    Raises:
        RuntimeError: the equation does not fit the operands.

    Example:
        >>> x, y = tensor([[1, 2], [3, 4]]), tensor([[5, 6], [7, 8]])
        >>> mytorch.einsum("ij,jk->ik", x, y).tolist()  # a matrix product
        [[19, 22], [43, 50]]
        >>> mytorch.einsum("ii->i", x).tolist()  # a diagonal
        [1, 4]
    """
    equation, *operands = _in_letters(equation, *operands)
    if not operands:
        raise ValueError("einsum(): expected an equation and at least one operand.")
    terms, output = _letters(equation, tuple(x.ndim for x in operands))
    terms, ready = list(terms), []
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        while len(set(term)) < len(term):  # a repeated letter is a diagonal
            letter = next(c for c in term if term.count(c) > 1)
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {letter} is repeated for operand {i} but the sizes don't match, {x.shape[second]} != "
                    f"{x.shape[first]}"
                )
            x = x.diagonal(0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
        terms[i] = term
        ready.append(x)
    sizes, shapes = {}, [tuple(x.shape) for x in ready]
    for term, shape in zip(terms, shapes, strict=True):
        for c, n in zip(term, shape, strict=True):
            # Axes of size 1 broadcast. NumPy's einsum requires equal sizes, so they are expanded below.
            if sizes.get(c, 1) == 1:
                sizes[c] = n
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        full = tuple([sizes[c] for c in term])
        if shape == full:
            continue
        if any(n not in (1, size) for n, size in zip(shape, full, strict=True)):
            raise RuntimeError(
                f"einsum(): operands do not broadcast with remapped shapes: {[tuple(t.shape) for t in operands]}"
            )
        ready[i] = ready[i].expand(*full)
    if len(ready) == 1 and sorted(terms[0]) == sorted(output):
        return ready[0].permute([terms[0].index(c) for c in output])  # a view
    spec = f"{','.join(terms)}->{output}"
    return (_einsum if _sums_products(spec) else _product_of_elements)(*ready, spec=spec)


einsum.asked_with = _in_letters


@in_precision(None)
def _product_of_elements(*operands, spec):
    """Computes an einsum without a product of matrices: autocast leaves it alone, and dtypes are promoted."""
    dtype = functools.reduce(dtypes.promote_types, (x.dtype for x in operands))
    return _einsum(*(x.to(dtype) for x in operands), spec=spec)


@public(method=False, inplace=False)
@in_precision("widest")
def tensordot(a, b, dims=2):
    """Sums products over several axes of two tensors.

    Args:
        a: first tensor.
        b: second tensor.
        dims: number n of axes (the last n of `a`, the first n of `b`), or two lists of axes (default: 2).

    Returns:
        A tensor with the remaining axes of `a`, and then the remaining axes of `b`.

    Raises:
        RuntimeError: the axes do not fit.

    Example:
        >>> mytorch.tensordot(mytorch.ones(2, 3, 4), mytorch.ones(3, 4, 5)).shape
        mytorch.Size([2, 5])
    """
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    elif len(dims) != 2:
        raise RuntimeError(f"tensordot: dims must be a number or two lists of axes, got {dims}.")
    else:
        left, right = (
            [normalize_dim(d, t.ndim) for d in (ds if isinstance(ds, (list, tuple)) else [ds])]
            for ds, t in zip(dims, (a, b), strict=True)
        )
    if len(left) != len(right):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, got {dims}")
    keep_a = [d for d in range(a.ndim) if d not in left]
    keep_b = [d for d in range(b.ndim) if d not in right]
    for i, j in zip(left, right, strict=True):  # an axis of length 1 on one side only is summed on the other
        if a.shape[i] == 1 and b.shape[j] != 1:
            b = b.sum(j, keepdim=True)
        elif b.shape[j] == 1 and a.shape[i] != 1:
            a = a.sum(i, keepdim=True)
        elif a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"tensordot: axes {i} and {j} of {list(a.shape)} and {list(b.shape)} are of other lengths"
            )
    n = math.prod(a.shape[d] for d in left)
    # Move the summed axes to the end of a and to the front of b: then it is one matrix product.
    x = a.permute(*keep_a, *left).reshape(math.prod(a.shape[d] for d in keep_a), n)
    y = b.permute(*right, *keep_b).reshape(n, math.prod(b.shape[d] for d in keep_b))
    if len(x) == y.shape[1] == 1:  # one element, which a CPU's autocast does not lower
        return dot(x[0], y[:, 0]).reshape((1,) * (len(keep_a) + len(keep_b)))
    return matmul(x, y).reshape(*(a.shape[d] for d in keep_a), *(b.shape[d] for d in keep_b))


@public(inplace=False)
@in_precision("widest")
def inner(input, other):
    """Computes the inner product over the last axes of both tensors.

    Args:
        other: the second tensor, with the same size of the last axis.

    Example:
        >>> mytorch.inner(tensor([1, 2]), tensor([3, 4])).item()
        11
    """
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@public(inplace=False)
@in_precision("widest")
def vdot(input, other):
    """Computes the inner product of two vectors, with the first conjugated.

    Args:
        other: the second vector, with the same number of elements.

    Example:
        >>> mytorch.vdot(tensor([1, 2, 3]), tensor([1, 10, 100])).item()
        321
    """
    return dot(input.conj(), other)


@public()
@functools.partial(_blends, once=False)
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * outer(vec1, vec2).

    Args:
        input: tensor that broadcasts to (M, N).
        vec1: (M,).
        vec2: (N,).
        beta: factor of `input` (default: 1).
        alpha: factor of the product (default: 1).
    """
    dtype = dtypes.promote_types(vec1.dtype, vec2.dtype)
    for word, factor in (("alpha", alpha), ("beta", beta)):
        if type(factor) is float and dtype.category < dtypes.FLOAT:
            raise RuntimeError(f"For integral input tensors, argument {word} must not be a floating point number.")
    if dtype.itemsize == 2 and dtype.is_floating_point and bool not in (type(alpha), type(beta)):
        vec1, alpha = vec1 * vec1.new_tensor(alpha, dtype=dtype), 1  # PyTorch rounds each step, and the factors
        input, beta = (input * vec1.new_tensor(beta, dtype=dtype), 1) if beta else (input, beta)
    return _blend(input, outer(vec1, vec2), beta, alpha)


@public()
@_blends
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * the sum of batch1 @ batch2 over the batch.

    Args:
        input: tensor that broadcasts to (M, N).
        batch1: (B, M, K).
        batch2: (B, K, N).
        beta: factor of `input` (default: 1).
        alpha: factor of the product (default: 1).
    """
    return contiguous(_blend(input, bmm(batch1, batch2).sum(0), beta, alpha))


@public(inplace=False)
def kron(input, other):
    """Computes the Kronecker product of two tensors.

    Args:
        other: the second tensor.

    Example:
        >>> mytorch.kron(tensor([1, 10]), tensor([1, 2, 3])).tolist()
        [1, 2, 3, 10, 20, 30]
    """
    n = max(input.ndim, other.ndim)
    a = input.reshape((1,) * (n - input.ndim) + tuple(input.shape))
    b = other.reshape((1,) * (n - other.ndim) + tuple(other.shape))
    # Interleave axes of size 1, (a1, 1, a2, 1) * (1, b1, 1, b2), and merge each pair of axes.
    pairs = a.reshape([v for s in a.shape for v in (s, 1)]) * b.reshape([v for s in b.shape for v in (1, s)])
    return own(pairs.reshape([s * t for s, t in zip(a.shape, b.shape, strict=True)]))


@public(inplace=False)
def cross(input, other, dim=None):
    """Computes the cross product of 3-d vectors.

    Args:
        other: second tensor, which broadcasts with `input`.
        dim: dimension of size 3 (default: the first one).

    Returns:
        A tensor of the broadcast shape.

    Raises:
        RuntimeError: dimension `dim` does not have size 3.

    Example:
        >>> mytorch.cross(tensor([1, 0, 0]), tensor([0, 1, 0])).tolist()
        [0, 0, 1]
    """
    shape = broadcast(input.shape, other.shape)
    d = next((i for i, n in enumerate(shape) if n == 3), -1) if dim is None else dim
    d = normalize_dim(d, len(shape))
    if dim is None:
        warn_as_pytorch(
            "Using torch.cross without specifying the dim arg is deprecated. Please either pass the dim explicitly or use "
            "torch.linalg.cross."
        )
    if dim is None and 3 not in shape:
        raise RuntimeError(f"no dimension of size 3 in input: {list(shape)}")
    if not shape or input.ndim != other.ndim or input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got shapes {list(input.shape)} and {list(other.shape)}"
        )
    input, other = input.expand(shape), other.expand(shape)
    (a, b, c), (x, y, z) = input.unbind(d), other.unbind(d)
    return stack([b * z - c * y, c * x - a * z, a * y - b * x], d)


@op(dtype="float", name="euclidean_dist")
def _euclidean_dist(xp, x1, x2):
    # |x - y|² = |x|² - 2 x·y + |y|², so that most of the work is one matrix product.
    norms = (xp.expand_dims(xp.sum(x * x, axis=-1), axis) for x, axis in ((x1, -1), (x2, -2)))
    out = xp.matmul(x1 * -2.0, _swap(xp, x2))
    for norm in norms:
        out += norm
    # Rounding may make small distances negative.
    return xp.sqrt(xp.maximum(out, 0.0, out=out), out=out)


def _away(xp, ratio, x, other):
    """Returns the sum of ratio * (x - other) over the rows of `other`, by a matrix product."""
    return x * xp.sum(ratio, axis=-1, keepdims=True) - xp.matmul(ratio, other)


_euclidean_dist.grad(
    x1=lambda g, x1, x2, out, xp: _away(xp, _per(xp, g, out), x1, x2),
    x2=lambda g, x1, x2, out, xp: _away(xp, _swap(xp, _per(xp, g, out)), x2, x1),
)


def _per(xp, g, distance):
    """Returns g / distance, 0 between equal rows. The inner `where` avoids a division by 0."""
    return xp.where(distance == 0, 0.0, g / xp.where(distance == 0, 1.0, distance))


@public(method=False, inplace=False)
@in_precision("float32")
@refuses("BCI")
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Computes the p-norm distances of all pairs of rows.

    Use it for the distances of all pairs, and `F.pairwise_distance` for the distances of corresponding rows.

    Args:
        x1: (…, N, D).
        x2: (…, M, D). The result is (…, N, M).
        p: order of the norm (default: 2.0).
        compute_mode: selects a matrix multiplication for Euclidean distances, which is faster but less accurate for
            close rows: "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", or the default, from 26 rows on.

    Raises:
        ValueError: an unknown mode.

    Example:
        >>> mytorch.cdist(tensor([[0.0, 0.0]]), tensor([[3.0, 4.0]])).tolist()
        [[5.0]]
    """
    modes = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
    mode = compute_mode or modes[0]
    if mode not in modes:
        raise ValueError(f"{mode} is not a valid value for compute_mode")
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1] or not p >= 0:
        raise RuntimeError(
            f"cdist: expected tensors with at least two axes and equal last sizes, and a p that is not negative, got {list(x1.shape)}, "
            f"{list(x2.shape)} and p={p}"
        )
    many = x1.shape[-2] > 25 or x2.shape[-2] > 25
    if p == 2 and x1.dtype.itemsize > 2 and (mode == modes[1] or (mode == modes[0] and many)):
        return _euclidean_dist(x1, x2)
    rows, row_size = x1.shape[-2], x1.numel() // max(x1.shape[-2], 1) * x2.shape[-2]
    step = rows if x1.is_cuda else max((1 << 19) // max(row_size, 1), 1)
    if rows <= step:
        return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)
    # The differences of a few rows fit into the CPU's cache.
    chunks = [x1[..., i : i + step, :] for i in range(0, rows, step)]
    return cat([(x.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1) for x in chunks], -2)


@public(method=False, inplace=False)
@in_precision("half")
def chain_matmul(*matrices):
    """Multiplies several matrices."""
    warn_as_pytorch("torch.chain_matmul is deprecated. Use torch.linalg.multi_dot instead.")
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    if any(m.ndim != 2 for m in matrices):
        raise RuntimeError(f"Tensor dimension is {next(m.ndim for m in matrices if m.ndim != 2)}, expected 2 instead.")
    out = matrices[0]
    for m in matrices[1:]:
        out = out @ m
    return out.clone() if len(matrices) == 1 else out


METHODS["__matmul__"] = lambda self, other: (
    matmul(self, other) if isinstance(other, Tensor) or hasattr(other, "ndim") else NotImplemented
)
METHODS["__rmatmul__"] = lambda self, other: matmul(other, self) if hasattr(other, "ndim") else NotImplemented
