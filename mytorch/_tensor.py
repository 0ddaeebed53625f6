"""Tensor: an Array, and the edge that ties it to the graph.

The class is storage and bookkeeping. Its arithmetic, reductions, indexing and all other methods that
compute are attached by `dispatch/bind.py` from the definitions in `ops/`: to find `Tensor.softmax`, look for
`softmax` there. In-place methods (`add_`, `x[i] = v`) come from `dispatch/inplace.py`.

Slots: `_data`, the Array; `_edge`, a Node, OutputEdge or Leaf (engine/node.py), or None for a constant; `_view`,
for a tensor that lies in another's memory, (base, the base's edge at that time, the ops that lead from
the base to it). Fields that few tensors have live in `__dict__`.
"""

import weakref
from collections import OrderedDict

from ._array import Array, Size, as_raw, place_for
from ._tensor_str import format_tensor
from .backend import ndarray
from .base import config, dtypes
from .base.errors import InPlaceError, warn
from .engine.mode import enable_grad, get_mode
from .engine.node import Leaf, Node

_new = object.__new__


def _nothing():
    return None


class Tensor:
    """A multi-dimensional array that remembers how it was computed.

    Args:
        data: numbers, nested lists, a NumPy or CuPy array, an Array, or a Tensor. Integers (or a Size) given one
            by one, with nothing else, are the sizes of an uninitialised tensor: `Tensor(2, 3)`.
        requires_grad: record what is computed from it, so that `backward()` fills its `.grad`.
        device, dtype: where it lies and what it holds. Numbers, lists and floating point arrays become
            the default dtype; an array of integers or bools keeps its own unless requires_grad is given.
        grad_fn, grad_fn_name: for an operation of one's own: a function that is given the gradient of this tensor and adds to
            the `.grad` of the tensors that `_add_parents` names, and the name that is printed for it, "<CubeBackward>".

    Ints are sizes, as in PyTorch: `Tensor(5)` is a vector of five, here of zeros; the number 5 is `tensor(5.0)`. Unlike `mytorch.tensor`,
    the constructor shares an array's memory where neither device nor dtype has to change.
    """

    __slots__ = ("__dict__", "__weakref__", "_data", "_edge", "_view")
    __module__ = "mytorch"  # the name that repr and pickle show
    __array_priority__ = 1000
    is_sparse = is_quantized = is_mkldnn = is_nested = False
    is_meta = property(lambda self: self.device.type == "meta")

    def __init__(
        self, data=(), requires_grad=False, device=None, dtype=None, *sizes, grad_fn=None, grad_fn_name=None
    ):  # fmt: skip
        if type(data) is Size or (type(data) is int and dtype is None and requires_grad is False):
            data = ndarray(data, dtypes.as_numpy(dtype or dtypes.default_dtype()))
        elif type(data) is int and type(requires_grad) is not bool:
            given = [n for n in (data, requires_grad, device, dtype, *sizes) if n is not None]
            data, requires_grad, device, dtype = ndarray(given, dtypes.default_dtype().numpy), False, None, None
        if dtype is None:
            like = getattr(data, "dtype", None)
            if like is None:
                python = as_raw(data, None, None)
                data, like = python, python.dtype
                dtype = dtypes.default_dtype()
            category = dtypes.as_dtype(like).category
            if category == dtypes.FLOAT or (requires_grad and category < dtypes.FLOAT):
                dtype = dtypes.default_dtype()
        self._data = Array._wrap(as_raw(data, place_for(data, device), dtype))
        self._edge = None
        self._view = None
        if grad_fn is not None:
            self._edge = _OwnNode(grad_fn, grad_fn_name, self._data._array)
        elif requires_grad:
            self.requires_grad_()

    def _add_parents(self, *tensors):
        """Say which tensors this one, made with a `grad_fn`, was computed from."""
        if type(self._edge) is not _OwnNode:
            raise RuntimeError("_add_parents: this tensor was not made with a grad_fn.")
        self._edge.add_parents(tensors)

    @staticmethod
    def _wrap(raw):
        """A constant Tensor over a raw array, without checks; results of ops are made here."""
        self = _new(Tensor)
        data = _new(Array)
        data._array = raw
        data._version_counter = None
        self._data = data
        self._edge = None
        self._view = None
        return self

    @staticmethod
    def _of(array, edge=None, cls=None):
        """A Tensor over an existing Array (so that versions are shared), with an edge."""
        self = _new(cls or Tensor)
        self._data = array
        self._edge = edge
        self._view = None
        return self

    # -- what it is ------------------------------------------------------------------------------

    @property
    def data(self):
        """The Array underneath (under `install_as_torch`, a Tensor over it). Writing to it is not recorded; assigning
        replaces the contents."""
        return Tensor._of(self._data) if config.pytorch_mode else self._data

    @data.setter
    def data(self, value):
        value = value._data if is_tensor(value) else value
        if self._edge is not None and hasattr(value, "dtype") and dtypes.as_dtype(value.dtype).category < dtypes.FLOAT:
            raise RuntimeError(
                f"data set to a tensor that requires gradients must be floating point, not {value.dtype}"
            )
        self._data = value if isinstance(value, Array) else Array(value, device=self.device)
        if isinstance(self._edge, Leaf):
            self._edge.shape = self._data._array.shape
            self._edge.dtype = self._data._array.dtype

    @property
    def shape(self):
        return Size(self._data._array.shape)

    @property
    def dtype(self):
        return dtypes._BY_NUMPY[self._data._array.dtype]

    @property
    def device(self):
        return self._data.device

    @property
    def ndim(self):
        return self._data._array.ndim

    @property
    def is_cuda(self):
        return type(self._data._array) is not ndarray and self.device.type == "cuda"

    @property
    def itemsize(self):
        return self._data._array.itemsize

    @property
    def nbytes(self):
        return self._data._array.nbytes

    @property
    def _base(self):
        """The tensor that this one is a view of; None if it is none."""
        return None if self._view is None else self._view[0]

    def _is_view(self):
        return self._view is not None

    @property
    def _version(self):
        return self._data._version

    def __len__(self):
        if self._data._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._data._array.shape[0]

    def __hash__(self):
        return id(self)

    def __repr__(self, *, tensor_contents=None):
        return format_tensor(self)

    # -- its place in the graph --------------------------------------------------------------------

    @property
    def requires_grad(self):
        """Whether operations on it are recorded. Settable on leaves."""
        return self.edge is not None

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad=True):
        """Set requires_grad; returns self.

        Raises:
            RuntimeError: an integer tensor, or switching it off on a tensor that was computed.
        """
        edge = self.edge
        if requires_grad:
            if edge is None:
                if self._data._array.dtype.kind not in "fcV":
                    raise RuntimeError(
                        f"only Tensors of floating point and complex dtype can require gradients, this one is {self.dtype}."
                    )
                self._edge = Leaf(self._data._array)
                self._edge.owner = weakref.ref(self)
                self._edge.grad = self.__dict__.pop("_grad", None)
        elif edge is not None:
            if not isinstance(edge, Leaf):
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            grad = edge.grad
            self._edge = None
            if grad is not None:
                self.__dict__["_grad"] = grad
        return self

    @property
    def edge(self):
        """The edge, up to date: an in-place operation on the base of a view changes the view's graph."""
        view = self._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(self)
        return self._edge

    @property
    def grad_fn(self):
        """The Node that made it; None for a leaf."""
        edge = self.edge
        return None if edge is None or isinstance(edge, Leaf) else getattr(edge, "node", edge)

    @property
    def is_leaf(self):
        edge = self.edge
        return edge is None or isinstance(edge, Leaf)

    @property
    def output_nr(self):
        return getattr(self.edge, "index", 0)

    @property
    def grad(self):
        """The accumulated gradient, an Array (a Tensor after `backward(create_graph=True)` and under `install_as_torch`),
        or None.

        A tensor that is not a leaf has one only after `retain_grad()`, or when backward was called with
        `retain_graph=True`.
        """
        edge = self._edge
        if edge is None:
            grad = self.__dict__.get("_grad")
        else:
            grad = edge.grad
            if grad is None and type(edge) is not Leaf and not edge.keeps_grad:
                warn(
                    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
                    "Tensor, use .retain_grad() on the non-leaf Tensor."
                )
        return self._as_tensor(grad) if config.pytorch_mode and grad is not None else grad

    def _as_tensor(self, grad):
        """The gradient as a Tensor, the same one as long as somebody holds it."""
        if isinstance(grad, Tensor):
            return grad
        shown = self.__dict__.get("_shown_grad", _nothing)()
        if shown is None or shown._data is not grad:
            shown = Tensor._of(grad)
            self.__dict__["_shown_grad"] = weakref.ref(shown)
        return shown

    @grad.setter
    def grad(self, value):
        if value is not None:
            if isinstance(value, Tensor):
                if value._edge is None:
                    if config.pytorch_mode:
                        self.__dict__["_shown_grad"] = weakref.ref(value)
                    value = value._data
            elif not isinstance(value, Array):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
                )
            if tuple(value.shape) != tuple(self.shape):
                raise RuntimeError(
                    f"assigned grad has data of a different size: {tuple(value.shape)} for a tensor of {tuple(self.shape)}."
                )
            if value.dtype is not self.dtype:
                raise RuntimeError(f"assigned grad has data of a different type: {value.dtype} for {self.dtype}.")
            if value.device is not self.device:
                raise RuntimeError(f"assigned grad has data located on {value.device}; the tensor is on {self.device}.")
        if self._edge is None:
            self.__dict__["_grad"] = value
        else:
            self._edge.grad = value

    @grad.deleter
    def grad(self):
        self.grad = None

    _grad = grad  # PyTorch's other name; the fields of a constant keep its gradient under this key

    @property
    def retains_grad(self):
        return self._edge is not None and self._edge.keeps_grad and not self.is_leaf

    @staticmethod
    def build_graph_enabled():
        """Whether operations are being recorded; the same as `mytorch.is_grad_enabled()`."""
        return get_mode().grad

    def detach(self):
        """The same memory, out of the graph. Versions are shared, so changing it in place is noticed."""
        return Tensor._of(self._data)

    def detach_(self):
        """Cut this tensor out of the graph that made it; returns self."""
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place: use detach() instead.")
        self._edge = None
        self.__dict__.pop("_tangents", None)
        return self

    # -- Python's and NumPy's protocols -----------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        if self.requires_grad and get_mode().grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self._data.__array__(dtype, copy)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return Tensor._wrap(as_raw(array))

    @property
    def __cuda_array_interface__(self):
        return self._data.__cuda_array_interface__

    def __dlpack__(self, stream=None, **kwargs):
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self._data.__dlpack__(stream, **kwargs)

    def __dlpack_device__(self):
        return self._data.__dlpack_device__()

    def __reduce_ex__(self, protocol):
        return _restore, (type(self), self._data, self.is_leaf and self.requires_grad, self._extra_state())

    def _extra_state(self):
        """The attributes that a user set on this tensor."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_grad", "_shown_grad")}

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
                "detach() this one first."
            )
        import copy

        twin = _restore(type(self), self._data.__deepcopy__(memo), self.requires_grad, {})
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self._extra_state(), memo))
        if self.grad is not None:
            twin.grad = copy.deepcopy(self.grad, memo)
        return twin


class _OwnPlan:
    """What the engine looks at: that such a node runs by itself."""

    vjp = None
    names = ()
    ports = 0
    passes_float32 = False

    @staticmethod
    def run(node, g, arithmetic):
        return node.gradients(g, arithmetic)


class _OwnNode(Node):
    """The node of `Tensor(data, grad_fn=…)`: a function that adds to its parents' `.grad`."""

    __slots__ = ("function", "own_label", "tensors")

    def __init__(self, function, name, array):
        super().__init__(None, _OwnPlan, (), (), (), array.shape, array.dtype)
        self.function = function
        self.own_label = (name or getattr(function, "__name__", "grad_fn")).strip("<>")
        self.tensors = ()

    @property
    def label(self):
        return self.own_label

    def name(self):
        """The name that was given."""
        return self.own_label

    def add_parents(self, tensors):
        """Count further tensors among what the result was computed from; constants among them are left out."""
        found = {id(t.edge): t for t in (*self.tensors, *tensors) if t.edge is not None}
        self.tensors = tuple(found.values())
        self.parents = tuple(t.edge for t in self.tensors)

    def gradients(self, g, arithmetic):
        """Let the function write into empty `.grad`s, and put back what was there."""
        before = [edge.grad for edge in self.parents]
        try:
            for edge in self.parents:
                edge.grad = None
            self.function(arithmetic.wrap(g))
            found = [edge.grad for edge in self.parents]
        finally:
            for edge, grad in zip(self.parents, before, strict=True):
                edge.grad = grad
        pairs = zip(self.parents, found, strict=True)
        return [(edge, None if grad is None else arithmetic.unwrap(grad)) for edge, grad in pairs]


def _restore(cls, array, requires_grad, extra):
    """Rebuild a pickled or copied tensor without running its constructor."""
    tensor = Tensor._of(array, None, cls)
    if requires_grad:
        tensor._edge = Leaf(array._array)
        tensor._edge.owner = weakref.ref(tensor)
    if extra:
        tensor.__dict__.update(extra)
    return tensor


RESHAPED = "a view is used after its base was given another shape in place (by transpose_, …); take the view again."


def refresh(tensor):
    """Regenerate a view's edge from its base, whose graph an in-place operation has changed."""
    base, _, steps = tensor._view
    if base._view is not None:
        raise InPlaceError(RESHAPED)
    if base._edge is None:  # detach_, requires_grad_(False): earlier views keep their graph
        return
    if steps is None:
        raise InPlaceError(
            "a tensor that split, chunk or unbind returned is used after its base was changed in place; take the views again."
        )
    fresh = base
    with enable_grad():
        for op, attrs in steps:
            fresh = op(fresh, **attrs)
    tensor._edge = fresh._edge
    tensor._view = (base, base._edge, steps)


def is_tensor(obj):
    """Returns True if obj is a Tensor, or an Array such as `p.data` and `p.grad`.

    Args:
        obj: any object.
    """
    return isinstance(obj, (Tensor, Array))


class RemovableHandle:
    """What registering a hook returns: `remove()` takes it away; also a context manager.

    Args:
        hooks: the dict that the hook joins.
        hook: the function.
        prepend: put it before the others.
    """

    _next = 0

    def __init__(self, hooks, hook=None, prepend=False):
        self.id = RemovableHandle._next
        RemovableHandle._next += 1
        self.hooks_dict_ref = weakref.ref(hooks) if isinstance(hooks, OrderedDict) else lambda: hooks
        if hook is not None:
            hooks[self.id] = hook
            if prepend:
                hooks.move_to_end(self.id, last=False)

    def remove(self):
        """Take the hook away; a second time does nothing."""
        hooks = self.hooks_dict_ref()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id

    def __setstate__(self, state):
        hooks, self.id = state
        hooks = OrderedDict() if hooks is None else hooks
        self.hooks_dict_ref = weakref.ref(hooks) if isinstance(hooks, OrderedDict) else lambda: hooks
        RemovableHandle._next = max(RemovableHandle._next, self.id + 1)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()
