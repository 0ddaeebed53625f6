"""Nested tensors, as in `torch.nested`: batches of tensors of different lengths, without padding.

A nested tensor stores its tensors one after the other in one dense tensor (`values()`), with the position at which each
one begins (`offsets()`). Linear layers, norms and elementwise functions run once on the values. Attention runs on each
sequence. `to_padded_tensor` returns the padded dense tensor.
"""

import itertools

import numpy as np

from .arrays.array import Array, Size
from .arrays.memory_format import layout as layout_class
from .arrays.memory_format import strided
from .arrays.tensor import Tensor
from .compat import overrides
from .ops.attention import scaled_dot_product_attention
from .ops.creation import tensor
from .ops.dispatch.unwrap import to_cpu
from .ops.movement import cat, stack

__all__ = ["as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


class _Jagged(layout_class):
    """The layout of nested tensors."""

    __slots__ = ()

    def __reduce__(self):
        return "jagged"


jagged = _Jagged("jagged")
_numbers = itertools.count(1)


class _Ragged(int):
    """The size of a dimension whose length depends on the item. It counts as the largest length."""

    def __new__(cls, longest, number):
        self = super().__new__(cls, longest)
        self.number = number
        return self

    def __repr__(self):
        return f"j{self.number}"

    __str__ = __repr__


class _Offsets:
    """The positions at which the items begin in the values. Nested tensors that share them have equal lengths."""

    def __init__(self, offsets):
        host = to_cpu(offsets).astype(np.int64)
        if host.ndim != 1 or not len(host) or host[0] != 0 or (np.diff(host) < 0).any():
            raise RuntimeError(
                f"nested tensor: expected offsets that rise from 0, got {host[:8].tolist()}. Pass cumulative lengths."
            )
        self.tensor = offsets
        self.lengths = np.diff(host).tolist()
        self.total = int(host[-1])
        self.number = next(_numbers)

    def __eq__(self, other):
        return self is other or self.lengths == other.lengths

    __hash__ = None  # type: ignore[assignment]


class NestedTensor(Tensor):
    """A batch of tensors of different lengths. Create it with `nested_tensor` or `nested_tensor_from_jagged`.

    Example:
        >>> x = mytorch.nested.nested_tensor([mytorch.ones(2, 3), mytorch.ones(1, 3)], layout=mytorch.jagged)
        >>> [tuple(item.shape) for item in (x * 2).unbind()]
        [(2, 3), (1, 3)]
    """

    __slots__ = ()
    is_nested = True

    @classmethod
    def _over(cls, values, offsets, ragged=1, layout=jagged):
        """Returns the nested tensor of packed values.

        Args:
            values: dense tensor; its dimension `ragged` - 1 contains all items.
            ragged: the dimension of the nested tensor with different lengths.
            layout: the layout that it shows.
        """
        self = Tensor._of(values._mt_data, values._mt_edge, cls)
        self._mt_view = values._mt_view
        self.__dict__.update(_offsets=offsets, _ragged=ragged, _shown_layout=layout)
        return self

    @property
    def _packed(self):
        values = Tensor._of(self._mt_data, self._mt_edge)
        values._mt_view = self._mt_view
        return values

    def _like(self, values, ragged=None):
        return NestedTensor._over(values, self._offsets, self._ragged if ragged is None else ragged, self._shown_layout)

    layout = property(
        lambda self: self._shown_layout, doc="`mytorch.jagged`, or `mytorch.strided` if it was requested."
    )

    @property
    def shape(self):
        """The sizes, with a size such as `j1` for the dimension of different lengths."""
        sizes, offsets = list(self._mt_data._array.shape), self._offsets
        sizes[self._ragged - 1] = _Ragged(max(offsets.lengths, default=0), offsets.number)
        return Size((len(offsets.lengths), *sizes))

    ndim = property(lambda self: self._mt_data._array.ndim + 1, doc="The number of dimensions, with the batch.")

    def size(self, dim=None):
        """Returns the sizes, or the size of a dimension.

        Args:
            dim: the dimension (default: all).
        """
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        """Returns the number of dimensions, with the batch."""
        return self.ndim

    def __len__(self):
        return len(self._offsets.lengths)

    @property
    def grad(self):
        """The accumulated gradient as a nested tensor, or None."""
        grad = Tensor.grad.__get__(self._packed if self._mt_edge is None else self)
        return None if grad is None else self._like(grad if isinstance(grad, Tensor) else Tensor._of(grad))

    @grad.setter
    def grad(self, value):
        Tensor.grad.__set__(self, value._packed if isinstance(value, NestedTensor) else value)

    def values(self):
        """Returns the items one after the other, as a dense tensor."""
        return self._packed

    def offsets(self):
        """Returns the position of each item in the values, and the number of all elements, int64 (B + 1)."""
        return self._offsets.tensor

    def lengths(self):
        """Returns None: the items follow each other without gaps."""

    def unbind(self, dim=0):
        """Returns the items as a tuple of dense tensors.

        Args:
            dim: must be 0 (default: 0).
        """
        if dim != 0:
            raise RuntimeError(f"unbind(): only supported for NestedTensor on dim=0, got {dim}.")
        if not self._offsets.lengths:
            return ()
        return tuple(self._packed.split(self._offsets.lengths, self._ragged - 1))

    def __iter__(self):
        return iter(self.unbind())

    def to_padded_tensor(self, padding, output_size=None):
        """Returns a dense tensor of the largest length, in which shorter items end with `padding`.

        Args:
            padding: number for the missing elements.
            output_size: sizes of the result (default: the largest length).
        """
        return to_padded_tensor(self, padding, output_size)

    def requires_grad_(self, requires_grad=True):
        """Sets `requires_grad` of the values in place. Returns this tensor."""
        return Tensor.requires_grad_(self, requires_grad)

    def __repr__(self):
        if self._shown_layout is not jagged:
            items = ",\n".join("  " + repr(item.detach()).replace("\n", "\n  ") for item in self.unbind())
            return f"nested_tensor([\n{items}\n])"
        grad = (
            f", grad_fn=<{self._mt_edge.label}>"
            if self.grad_fn is not None
            else ", requires_grad=True" * self.requires_grad
        )
        offsets = ", ".join(map(str, np.cumsum([0, *self._offsets.lengths]).tolist()))
        contiguous = self._mt_data._array.flags.c_contiguous
        return f"NestedTensor(size={tuple(self.shape)}, offsets=tensor([{offsets}]){grad}, contiguous={contiguous})"

    def __reduce_ex__(self, protocol):
        state = (
            self._mt_data,
            self.is_leaf and self.requires_grad,
            self._offsets.tensor,
            self._ragged,
            self._shown_layout,
        )
        return _restored, state

    def __deepcopy__(self, memo):
        leaf = self.is_leaf and self.requires_grad
        memo[id(self)] = copied = self._like(self._packed.detach().clone()).requires_grad_(leaf)
        return copied

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Runs a function on the values, or raises NotImplementedError."""
        kwargs = kwargs or {}
        name = func.__name__.rstrip("_") if func.__name__ in ("requires_grad_",) else func.__name__
        with overrides.DisableTorchFunctionSubclass():
            if name in _HANDLERS:
                return _HANDLERS[name](func, *args, **kwargs)
            if name in _ELEMENTWISE:
                return _elementwise(func, args, kwargs)
        raise NotImplementedError(
            f"{name}: expected dense tensors, got a nested tensor. Call to_padded_tensor(), or use values() or unbind()."
        )


overrides.override(NestedTensor)


def _restored(array, requires_grad, offsets, ragged, layout):
    return NestedTensor._over(Tensor._of(array), _Offsets(offsets), ragged, layout).requires_grad_(requires_grad)


# -- creation ----------------------------------------------------------------------------------------------------------


def _check_layout(name, layout):
    if layout is not None and layout not in (strided, jagged):
        raise RuntimeError(f"{name}: expected layout strided or jagged, got {layout!r}.")
    return strided if layout is None else layout


def _ragged_dim(name, items):
    """Returns the dimension of the nested tensor in which the items have different lengths."""
    if not all(item.ndim == items[0].ndim for item in items) or items[0].ndim == 0:
        raise RuntimeError(
            f"{name}: expected items with an equal number of dimensions, at least 1, got {[item.ndim for item in items]}."
        )
    differing = [d for d in range(items[0].ndim) if len({item.shape[d] for item in items}) > 1]
    if len(differing) > 1:
        raise RuntimeError(
            f"{name}: expected items that differ in one dimension, got {[tuple(item.shape) for item in items]}. Pad the others."
        )
    return (differing[0] if differing else 0) + 1


def as_nested_tensor(ts, dtype=None, device=None, layout=None):
    """Creates a nested tensor from tensors. Gradients flow to the tensors.

    Args:
        ts: list or tuple of tensors that differ in at most one dimension, or a tensor of equal items.
        dtype: dtype of the result (default: the dtype of the first tensor).
        device: device of the result (default: the device of the first tensor).
        layout: `mytorch.strided` (default) or `mytorch.jagged`. Both have the same methods here.

    Returns:
        A NestedTensor.

    Raises:
        RuntimeError: the items differ in more than one dimension.
        TypeError: `ts` is not a list, tuple or tensor.

    Example:
        >>> x = mytorch.nested.as_nested_tensor([mytorch.ones(2, 3), mytorch.ones(1, 3)])
        >>> x.to_padded_tensor(0.0).shape
        mytorch.Size([2, 2, 3])
    """
    name = "as_nested_tensor"
    layout = _check_layout(name, layout)
    if isinstance(ts, NestedTensor):
        return ts
    if not isinstance(ts, (list, tuple, Tensor)):
        raise TypeError(
            f"{name}: expected a list, tuple or tensor, got {type(ts).__name__}. Put the tensors into a list."
        )
    items = list(ts.unbind() if isinstance(ts, Tensor) else ts)
    if not items:
        raise RuntimeError(f"{name}: expected at least one tensor, got an empty list.")
    items = [item if isinstance(item, Tensor) else tensor(item) for item in items]
    items = [item.to(device or items[0].device, dtype or items[0].dtype) for item in items]
    ragged = _ragged_dim(name, items)
    lengths = [item.shape[ragged - 1] for item in items]
    offsets = tensor(np.cumsum([0, *lengths]), device=items[0].device)
    return NestedTensor._over(cat(items, ragged - 1), _Offsets(offsets), ragged, layout)


def nested_tensor(tensor_list, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Creates a nested tensor as a new leaf of the graph, from copies of tensors.

    Args:
        tensor_list: list of tensors or nested lists of numbers, which differ in at most one dimension.
        dtype: dtype of the result (default: the dtype of the first tensor).
        layout: `mytorch.strided` (default) or `mytorch.jagged`. Both have the same methods here.
        device: device of the result (default: the device of the first tensor).
        requires_grad: if True, autograd computes the gradient (default: False).
        pin_memory: must be False (default: False).

    Returns:
        A NestedTensor.

    Raises:
        RuntimeError: the items differ in more than one dimension.

    Example:
        >>> x = mytorch.nested.nested_tensor([mytorch.ones(2, 3), mytorch.ones(1, 3)], layout=mytorch.jagged)
        >>> x.offsets().tolist()
        [0, 2, 3]
    """
    if pin_memory:
        raise NotImplementedError("nested_tensor: expected pin_memory=False, got True. Pin the tensors instead.")
    items = [item.detach() if isinstance(item, Tensor) else tensor(item) for item in tensor_list]
    return as_nested_tensor(items, dtype, device, layout).requires_grad_(requires_grad)


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """Creates a nested tensor over the packed values of its items. Gradients flow to the values.

    Args:
        values: dense tensor; its dimension `jagged_dim` - 1 contains the items one after the other.
        offsets: position of each item, and the number of all elements (B + 1).
        lengths: length of each item, instead of `offsets` (default: None).
        jagged_dim: dimension of the nested tensor with different lengths (default: 1).
        min_seqlen, max_seqlen: accepted for compatibility; the lengths are read from the offsets (default: None).

    Returns:
        A NestedTensor of layout `mytorch.jagged`.

    Raises:
        RuntimeError: `offsets` and `lengths` are both missing, or do not fit.

    Example:
        >>> x = mytorch.nested.nested_tensor_from_jagged(mytorch.ones(3, 2), mytorch.tensor([0, 2, 3]))
        >>> len(x), x[1].shape
        (2, mytorch.Size([1, 2]))
    """
    name = "nested_tensor_from_jagged"
    ragged = 1 if jagged_dim is None else jagged_dim
    if not 1 <= ragged <= values.ndim:
        raise RuntimeError(f"{name}: expected jagged_dim between 1 and {values.ndim}, got {ragged}.")
    if offsets is None:
        if lengths is None:
            raise RuntimeError(f"{name}: At least one of offsets or lengths is required.")
        offsets = cat([lengths.new_zeros(1), lengths.cumsum(0)], 0)
    elif lengths is not None and to_cpu(lengths).tolist() != np.diff(to_cpu(offsets)).tolist():
        raise NotImplementedError(
            f"{name}: expected items without gaps, got lengths that differ from the offsets. Omit lengths."
        )
    shared = _Offsets(offsets)
    if shared.total != values.shape[ragged - 1]:
        raise RuntimeError(
            f"{name}: expected offsets that end at {values.shape[ragged - 1]}, the size of the values, got {shared.total}."
        )
    return NestedTensor._over(values, shared, ragged)


def to_padded_tensor(input, padding, output_size=None):
    """Returns a dense tensor of the largest length, in which shorter items end with `padding`.

    Args:
        input: nested tensor.
        padding: number for the missing elements.
        output_size: sizes of the result, at least the largest sizes (default: None).

    Returns:
        A dense tensor (B, longest, …).

    Raises:
        RuntimeError: `input` is dense, or `output_size` is too small.

    Example:
        >>> x = mytorch.nested.nested_tensor([tensor([1.0, 2.0]), tensor([3.0])])
        >>> mytorch.nested.to_padded_tensor(x, 0.0).tolist()
        [[1.0, 2.0], [3.0, 0.0]]
    """
    if not isinstance(input, NestedTensor):
        raise RuntimeError("to_padded_tensor: expected a nested tensor, got a dense tensor. Use nn.functional.pad.")
    packed, offsets, axis = input._packed, input._offsets, input._ragged - 1
    sizes = list(packed.shape)
    sizes[axis] = max(offsets.lengths, default=0)
    wanted = sizes if output_size is None else list(output_size)[1:]
    if len(wanted) != len(sizes) or any(w < n for w, n in zip(wanted, sizes, strict=True)):
        raise RuntimeError(
            f"to_padded_tensor: expected sizes of at least {[len(input), *sizes]}, got {list(output_size)}. Pass larger sizes."
        )
    front = packed.movedim(axis, 0)
    lengths = np.asarray(offsets.lengths, np.int64)
    filled = np.arange(wanted[axis])[None, :] < lengths[:, None]
    # Row `total` of the extended values is the padding.
    where = np.full(filled.shape, offsets.total, np.int64)
    where[filled] = np.arange(offsets.total)
    extended = cat([front, front.new_full((1, *front.shape[1:]), padding)], 0)
    out = extended[tensor(where, device=packed.device)].movedim(1, axis + 1)
    if list(out.shape[1:]) != wanted:
        from .ops.padding import pad

        margins = [m for w, n in zip(wanted[::-1], list(out.shape[1:])[::-1], strict=True) for m in (0, w - n)]
        out = pad(out, margins, value=padding)
    return out


# -- functions of nested tensors ---------------------------------------------------------------------------------------

_ELEMENTWISE = frozenset(
    "abs neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square reciprocal sin cos tan tanh sigmoid relu relu6 gelu silu elu "
    "selu celu leaky_relu softplus mish hardswish hardsigmoid hardtanh softsign tanhshrink logsigmoid erf floor ceil round trunc "
    "sign isnan isinf isfinite nan_to_num positive add sub mul div pow remainder floor_divide fmod maximum minimum clamp where "
    "eq ne lt le gt ge logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not "
    "dropout alpha_dropout clone detach to float double half bfloat16 long int bool cpu cuda contiguous type masked_fill "
    "true_divide multiply subtract divide rsub zeros_like ones_like empty_like rand_like randn_like full_like "
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __neg__ __abs__ __invert__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __floordiv__ __mod__".split()
)


def _dense_operand(x, like):
    """Returns a dense operand in the shape of the packed values of a nested tensor."""
    ragged, ndim = like._ragged, like.ndim
    if x.ndim > ndim or (x.ndim == ndim and x.shape[0] not in (1, len(like))):
        raise RuntimeError(
            f"nested tensor: expected an operand that broadcasts to {tuple(like.shape)}, got {tuple(x.shape)}."
        )
    place = ragged - (ndim - x.ndim)
    if place >= 0 and x.ndim and x.shape[place] != 1:
        raise RuntimeError(
            f"nested tensor: expected size 1 in the dimension of different lengths, got {tuple(x.shape)}. Use a nested tensor."
        )
    if x.ndim < ndim:
        return x
    if x.shape[0] == 1:
        return x.squeeze(0)
    rows = np.repeat(np.arange(len(like)), like._offsets.lengths)
    chosen = x.squeeze(ragged).index_select(0, tensor(rows, device=x.device))
    return chosen.movedim(0, ragged - 1)


def _elementwise(func, args, kwargs):
    like = next(x for x in (*args, *kwargs.values()) if isinstance(x, NestedTensor))

    def plain(x):
        if isinstance(x, NestedTensor):
            if x._offsets != like._offsets or x._ragged != like._ragged:
                raise RuntimeError(
                    f"{func.__name__}: expected nested tensors of equal lengths, got {like._offsets.lengths} and "
                    f"{x._offsets.lengths}. Call to_padded_tensor()."
                )
            return x._packed
        return _dense_operand(x, like) if isinstance(x, (Tensor, Array)) and x.ndim else x

    result = func(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
    return like._like(result) if isinstance(result, Tensor) else result


def _axis(x, dim, name):
    """Returns the axis of the packed values for a dimension that is neither the batch nor the ragged one."""
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but got {dim})"
        )
    dim %= x.ndim
    if dim in (0, x._ragged):
        raise RuntimeError(
            f"{name}: expected a dimension other than 0 and {x._ragged} for a nested tensor, got {dim}. Use unbind()."
        )
    return dim - 1


def _linear(func, input, weight, bias=None):
    if not isinstance(input, NestedTensor) or input._ragged == input.ndim - 1:
        raise NotImplementedError("linear: expected a nested input with equal sizes of the last dimension.")
    return input._like(func(input._packed, weight, bias))


def _norm(func, input, normalized_shape, *args, **kwargs):
    if len(normalized_shape) >= input.ndim - input._ragged:
        raise RuntimeError(
            "layer_norm: expected only dimensions behind the dimension of different lengths. Use unbind()."
        )
    return input._like(func(input._packed, normalized_shape, *args, **kwargs))


def _along(func, input, dim=-1, *args, **kwargs):
    return input._like(func(input._packed, _axis(input, dim, func.__name__), *args, **kwargs))


def _softmax(func, input, dim=None, *args, **kwargs):
    if dim is None:
        raise RuntimeError(f"{func.__name__}: expected dim for a nested tensor, got None.")
    return _along(func, input, dim, *args, **kwargs)


def _matmul(func, a, b, *args):
    if not isinstance(a, NestedTensor):
        raise NotImplementedError(
            f"matmul: expected a nested tensor as first operand, got a {type(a).__name__} of shape {tuple(a.shape)}."
        )
    if isinstance(b, NestedTensor):
        parts = [func(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True)]
        return (
            as_nested_tensor(parts, layout=a._shown_layout)
            if len({tuple(p.shape) for p in parts}) > 1
            else stack(parts)
        )
    if b.ndim != 2 or a._ragged == a.ndim - 1:
        raise NotImplementedError(
            f"matmul: expected a matrix as second operand, got {b.ndim} dimensions. Use unbind()."
        )
    return a._like(func(a._packed, b))


def _transpose(func, input, dim0, dim1):
    if not all(-input.ndim <= d < input.ndim for d in (dim0, dim1)):
        raise IndexError(f"transpose: expected dimensions in [{-input.ndim}, {input.ndim - 1}], got {dim0} and {dim1}.")
    dim0, dim1 = dim0 % input.ndim, dim1 % input.ndim
    if 0 in (dim0, dim1):
        raise RuntimeError("transpose: expected dimensions other than 0 for a nested tensor.")
    ragged = {dim0: dim1, dim1: dim0}.get(input._ragged, input._ragged)
    return input._like(input._packed.transpose(dim0 - 1, dim1 - 1), ragged)


def _unflatten(func, input, dim, sizes):
    axis = _axis(input, dim, "unflatten")
    ragged = input._ragged + (len(sizes) - 1 if axis + 1 < input._ragged else 0)
    return input._like(input._packed.unflatten(axis, sizes), ragged)


def _flatten(func, input, start_dim=0, end_dim=-1):
    first, last = _axis(input, start_dim, "flatten"), _axis(input, end_dim, "flatten")
    if first < input._ragged - 1 < last:
        raise RuntimeError("flatten: expected dimensions on one side of the dimension of different lengths.")
    ragged = input._ragged - (last - first if last + 1 < input._ragged else 0)
    return input._like(input._packed.flatten(first, last), ragged)


def _view(func, input, *shape):
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    ragged = input._ragged
    kept = len(shape) > ragged and all(
        (i == 0 and n in (-1, len(input))) or (i == ragged and (n == -1 or isinstance(n, _Ragged))) or 0 < i < ragged
        for i, n in enumerate(shape[: ragged + 1])
    )
    if not kept or any(n != m for n, m in zip(shape[1:ragged], input.shape[1:ragged], strict=True)):
        raise RuntimeError(
            f"view: expected the batch and the dimension of different lengths to stay, got {shape} for {tuple(input.shape)}."
        )
    sizes = list(input._packed.shape)
    return input._like(input._packed.reshape(*sizes[:ragged], *shape[ragged + 1 :]))


def _chunk(func, input, count, dim=0):
    axis = _axis(input, dim, func.__name__)
    return tuple(input._like(part) for part in func(input._packed, count, axis))


def _cat(func, tensors, dim=0):
    first = tensors[0]
    if not all(isinstance(x, NestedTensor) and x._offsets == first._offsets for x in tensors):
        raise RuntimeError("cat: expected nested tensors of equal lengths only. Call to_padded_tensor().")
    return first._like(cat([x._packed for x in tensors], _axis(first, dim, "cat")))


def _reduce(func, input, dim=None, keepdim=False, **kwargs):
    if dim is None:
        return func(input._packed, **kwargs)
    dims = [d % input.ndim for d in ((dim,) if isinstance(dim, int) else dim)]
    if dims == [input._ragged]:
        items = [func(item, input._ragged - 1, keepdim=keepdim, **kwargs) for item in input.unbind()]
        return stack(items)
    axes = tuple(_axis(input, d, func.__name__) for d in dims)
    if any(a + 1 < input._ragged for a in axes) and not keepdim:
        raise NotImplementedError(f"{func.__name__}: expected dimensions behind the dimension of different lengths.")
    return input._like(func(input._packed, axes if len(axes) > 1 else axes[0], keepdim=keepdim, **kwargs))


def _getitem(func, input, index):
    if isinstance(index, (int, np.integer)):
        n = len(input)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {n}")
        axis = input._ragged - 1
        start = sum(input._offsets.lengths[: index % n])
        return input._packed.narrow(axis, start, input._offsets.lengths[index])
    raise NotImplementedError("indexing: expected an integer for a nested tensor. Use unbind().")


def _attention(
    func, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **kwargs
):
    """Attention of each item. The tensors have the sizes (B, H, j, E)."""
    nested = (query, key, value)
    if not all(isinstance(x, NestedTensor) and x.ndim == 4 and x._ragged == 2 for x in nested):
        raise RuntimeError(
            "scaled_dot_product_attention: expected nested tensors of sizes (B, H, j, E). Use unflatten(-1, [H, E]).transpose(1, 2)."
        )
    if key._offsets != value._offsets or len(query) != len(key):
        raise RuntimeError("scaled_dot_product_attention: expected keys and values of equal lengths.")
    if attn_mask is not None:
        raise NotImplementedError(
            "scaled_dot_product_attention: expected attn_mask=None for nested tensors. Use is_causal or unbind()."
        )
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    parts = [
        scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), **options).squeeze(0)
        for q, k, v in zip(*(x.unbind() for x in nested), strict=True)
    ]
    return query._like(cat(parts, 1))


def _embedding(func, input, weight, *args, **kwargs):
    return input._like(func(input._packed, weight, *args, **kwargs))


def _backward(func, self, gradient=None, *args, **kwargs):
    gradient = gradient._packed if isinstance(gradient, NestedTensor) else gradient
    return func(self._packed, gradient, *args, **kwargs)


def _method(name):
    return lambda func, self, *args, **kwargs: getattr(NestedTensor, name)(self, *args, **kwargs)


_HANDLERS = {
    "linear": _linear, "layer_norm": _norm, "rms_norm": _norm, "softmax": _softmax, "log_softmax": _softmax, "matmul": _matmul,
    "__matmul__": _matmul, "transpose": _transpose, "unflatten": _unflatten, "flatten": _flatten, "view": _view, "reshape": _view,
    "chunk": _chunk, "split": _chunk, "cat": _cat, "sum": _reduce, "mean": _reduce, "amax": _reduce, "amin": _reduce,
    "__getitem__": _getitem, "scaled_dot_product_attention": _attention, "embedding": _embedding, "backward": _backward,
    **{name: _method(name) for name in ("unbind", "size", "dim", "to_padded_tensor", "values", "offsets", "requires_grad_", "lengths")},
    "requires_grad": _method("requires_grad_"),
    "numel": lambda func, self: func(self._packed), "is_floating_point": lambda func, self: func(self._packed),
    "is_complex": lambda func, self: func(self._packed), "is_contiguous": lambda func, self, *a, **k: func(self._packed),
    "select": lambda func, self, dim, index: _getitem(func, self, index) if dim == 0 else _along(func, self, dim, index),
    "register_hook": lambda func, self, hook: func(self._packed, hook), "retain_grad": lambda func, self: func(self._packed),
}  # fmt: skip
