"""Tensor: an Array with a position in the autograd graph.

This class stores data and graph links. `ops/dispatch/bind.py` attaches all methods that compute, such as arithmetic,
reductions and indexing. They are defined in `ops/`: to find `Tensor.softmax`, search for `softmax` there. In-place
methods such as `add_` and `x[i] = v` come from `ops/dispatch/inplace.py`.

A Tensor has three slots:

* `_mt_data`: the Array.
* `_mt_edge`: a Node, an OutputEdge or a Leaf (autograd/node.py); None for a constant.
* `_mt_view`: None, or for a view the tuple (base, edge, steps): the edge of the base at the time of the view, and the ops
  that compute the view.

Rarely used fields are stored in `__dict__`.
"""

import weakref
from collections import OrderedDict

from ..autograd.mode import enable_grad, get_mode, inference_counter
from ..autograd.node import Leaf, shown
from ..autograd.own_node import OwnNode
from . import MetaArray, config, dtypes, hooks, ndarray
from .array import Array, Size, as_raw, new_size, place_for
from .errors import InPlaceError, warn
from .overridable import overridable
from .overriding import NOTHING, PLAIN, in_state, is_constructed, overriding, state
from .printing import format_tensor

_new = object.__new__
_OF_THIS_TENSOR = ("_grad", "_shown_grad", "_gradient_of", "_detached", "_reshaped")  # attributes that copies don't get


def _nothing():
    return None


class Tensor:
    """A multi-dimensional array that can record the operations on it for automatic differentiation.

    Prefer `mytorch.tensor` to create a tensor from data. Unlike `mytorch.tensor`, this constructor shares the memory of
    an array if neither its device nor its dtype changes, and it reads integers as sizes: `Tensor(5)` has five elements.

    Args:
        data: numbers, nested lists, a NumPy or CuPy array, an Array, or a Tensor. Integers or a Size are the sizes of
            an uninitialized tensor: `Tensor(2, 3)`.
        requires_grad: record operations on this tensor, so that `backward()` computes its `.grad` (default: False).
        device: device of the tensor (default: the device of `data`, or the default device for host data).
        dtype: dtype of the elements. By default, numbers, lists and floating point arrays get the default dtype.
            Arrays of integers or bools keep their dtype, unless `requires_grad` is True.
        sizes: further sizes, if `data` is an integer.
        grad_fn: backward function of a custom operation. It receives the gradient of this tensor and adds to the
            `.grad` of the inputs.
        grad_fn_name: name that `repr` shows for `grad_fn`, such as "<CubeBackward>".

    Example:
        >>> x = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        >>> (x**2).sum().backward()
        >>> x.grad.tolist()
        [[2.0, 4.0], [6.0, 8.0]]
        >>> mytorch.Tensor(2, 3).shape
        mytorch.Size([2, 3])
    """

    __slots__ = ("__dict__", "__weakref__", "_mt_data", "_mt_edge", "_mt_view")
    _copies_gradient = True  # `copy.deepcopy` copies the gradient
    __module__ = "mytorch"  # the name that repr and pickle show
    __array_priority__ = 1000
    is_quantized = is_mkldnn = is_nested = False
    is_xpu = is_ipu = is_maia = is_mtia = is_vulkan = is_xla = False
    is_meta = property(lambda self: self.device.type == "meta", doc="True if the tensor is on the `meta` device.")

    def __new__(cls, *args, **kwargs):
        self = _new(cls)
        if cls is not Tensor and not config.is_own(cls):
            hooks.construct_subclass(self, args, kwargs)
        return self

    def __init__(
        self, data=(), requires_grad=False, device=None, dtype=None, *sizes, grad_fn=None, grad_fn_name=None
    ):  # fmt: skip
        if type(self) is not Tensor and is_constructed(self, Tensor.__new__, type(data) is not tuple or data):
            return
        if overriding.on and not state.subclasses_off:
            with in_state(subclasses_off=True):
                return create(
                    self, data, requires_grad, device, dtype, *sizes, grad_fn=grad_fn, grad_fn_name=grad_fn_name
                )
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
            if config.pytorch_mode or category == dtypes.FLOAT or (requires_grad and category < dtypes.FLOAT):
                dtype = dtypes.default_dtype()
        self._mt_data = Array._wrap(as_raw(data, place_for(data, device), dtype))
        self._mt_data._version_counter = get_mode().counter
        self._mt_edge = None
        self._mt_view = None
        if grad_fn is not None:
            self._mt_edge = OwnNode(grad_fn, grad_fn_name, self._mt_data._array)
        elif requires_grad:
            self.requires_grad_()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if config.is_own(cls):
            overriding.add_own(cls)
        elif hooks.define_subclass is not None:
            hooks.define_subclass(cls)

    def _add_parents(self, *tensors):
        """Sets the inputs of a tensor that was created with a `grad_fn`."""
        if type(self._mt_edge) is not OwnNode:
            raise RuntimeError("_add_parents: this tensor was not made with a grad_fn.")
        self._mt_edge.add_parents(tensors)

    @staticmethod
    def _wrap(raw, mode=None):
        """Returns a constant Tensor over a raw array, without checks. Ops create their results here."""
        self = _new(Tensor)
        data = _new(Array)
        data._array = raw
        data._version_counter = (mode or get_mode()).counter
        self._mt_data = data
        self._mt_edge = None
        self._mt_view = None
        return self

    @staticmethod
    def _make(data, device=None, dtype=None):
        """Returns the tensor that the constructor of native mode creates. The library does not use the public constructor."""
        self = _new(Tensor)
        create(self, data, False, device, dtype)
        return self

    @staticmethod
    def _of(array, edge=None, cls=None):
        """Returns a Tensor with an edge over an existing Array, and shares its version counter."""
        self = _new(cls or Tensor)
        self._mt_data = array
        self._mt_edge = edge
        self._mt_view = None
        return self

    # -- data and metadata -----------------------------------------------------------------------

    @property
    def data(self):
        """An Array with the elements, in the same memory. In PyTorch mode (`install_as_torch`) it is a Tensor that shares this memory.

        Autograd does not record operations on it. Assign to `data` to replace the contents of the tensor.

        Raises:
            RuntimeError: the tensor requires gradients, and the assigned value is not floating point.

        Example:
            >>> w = mytorch.ones(2, requires_grad=True)
            >>> w.data -= 0.5
            >>> w.tolist()
            [0.5, 0.5]
        """
        raw = self._mt_data._array
        if not config.pytorch_mode:
            return Array._wrap(raw)
        shown = Tensor._wrap(raw)
        shown._mt_data._version_counter = self._mt_data._version_counter if self.is_inference() else None
        return shown

    @data.setter
    def data(self, value):
        if config.pytorch_mode and not is_tensor(value):
            raise TypeError(f"data: expected a tensor, got {type(value).__name__}. Convert it with torch.tensor first.")
        value = value._mt_data if is_tensor(value) else value
        if (
            self._mt_edge is not None
            and hasattr(value, "dtype")
            and dtypes.as_dtype(value.dtype).category < dtypes.FLOAT
        ):
            raise RuntimeError(
                f"data set to a tensor that requires gradients must be floating point, not {value.dtype}"
            )
        array = value if isinstance(value, Array) else Array(value, device=self.device)
        counter = self._mt_data._version_counter
        self._mt_data = Array._wrap(array._array)
        self._mt_data._version_counter = counter  # as in PyTorch: backward detects later changes of the tensor
        if isinstance(self._mt_edge, Leaf):
            self._mt_edge.shape = self._mt_data._array.shape
            self._mt_edge.dtype = self._mt_data._array.dtype

    @property
    def shape(self):
        """The size of each dimension, a `Size`. `size()` returns the same.

        Example:
            >>> mytorch.zeros(2, 3).shape
            mytorch.Size([2, 3])
        """
        if overriding.modes and (found := overriding.read("shape", self)) is not NOTHING:
            return found
        return new_size(self._mt_data._array.shape)

    @property
    def dtype(self):
        """The dtype of the elements.

        Example:
            >>> tensor([1.0]).dtype
            mytorch.float32
        """
        if overriding.modes and (found := overriding.read("dtype", self)) is not NOTHING:
            return found
        return dtypes._BY_NUMPY[self._mt_data._array.dtype]

    @property
    def device(self):
        """The device that stores the elements.

        Example:
            >>> tensor([1.0]).device
            device(type='cpu')
        """
        if overriding.modes and (found := overriding.read("device", self)) is not NOTHING:
            return found
        return self._mt_data.device

    @property
    def ndim(self):
        """The number of dimensions."""
        if overriding.modes and (found := overriding.read("ndim", self)) is not NOTHING:
            return found
        return self._mt_data._array.ndim

    @property
    def is_cuda(self):
        """True if the tensor is on a GPU."""
        return type(self._mt_data._array) is not ndarray and self.device.type == "cuda"

    @property
    def itemsize(self):
        """The size of one element in bytes."""
        return self._mt_data._array.itemsize

    @property
    def nbytes(self):
        """The size of all elements in bytes, `numel() * itemsize`."""
        return self._mt_data._array.nbytes

    @property
    def _base(self):
        """The base of this tensor if it is a view, otherwise None."""
        return None if self._mt_view is None else self._mt_view[0]

    def _is_view(self):
        return self._mt_view is not None

    @property
    def _version(self):
        if self._mt_data._version_counter is inference_counter:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._mt_data._version

    @overridable
    def __len__(self):
        if self._mt_data._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._mt_data._array.shape[0]

    def __hash__(self):
        return id(self)

    @overridable
    def __repr__(self, *, tensor_contents=None):
        return format_tensor(self)

    # -- autograd ----------------------------------------------------------------------------------

    @property
    def requires_grad(self):
        """True if autograd records operations on this tensor.

        You can set it on leaf tensors, by assignment or with `requires_grad_`. A computed tensor requires gradients if one
        of its inputs does.

        Raises:
            RuntimeError: it is set to True on a tensor of integers or bools, or to False on a computed tensor.

        Example:
            >>> w = mytorch.zeros(2, requires_grad=True)
            >>> (w * 2).requires_grad
            True
        """
        if overriding.modes and (found := overriding.read("requires_grad", self)) is not NOTHING:
            return found
        if self.edge is not None:
            return True
        view = self._mt_view  # a view of no_grad or inference mode: PyTorch looks at its base
        return view is not None and config.pytorch_mode and view[1] is not None and self.dtype.category >= dtypes.FLOAT

    @requires_grad.setter
    def requires_grad(self, value):
        if config.pytorch_mode and type(value) is not bool:
            raise RuntimeError(f"requires_grad: expected a bool, got {type(value).__name__}.")
        self.requires_grad_(value)

    @overridable
    def requires_grad_(self, requires_grad=True):
        """Sets `requires_grad` in place. Use it to start recording operations on a tensor, or to freeze a parameter.

        Args:
            requires_grad: True to record operations on this tensor (default: True).

        Returns:
            This tensor.

        Raises:
            RuntimeError: the dtype is not floating point or complex, or `requires_grad` is False and the tensor is not
                a leaf.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> _ = layer.weight.requires_grad_(False)
            >>> [name for name, p in layer.named_parameters() if p.requires_grad]
            ['bias']
        """
        edge = self.edge
        if requires_grad:
            if edge is None:
                if self._mt_data._array.dtype.kind not in "fcV":
                    raise RuntimeError(
                        f"only Tensors of floating point and complex dtype can require gradients, this one is {self.dtype}."
                    )
                if self._mt_data._version_counter is inference_counter and not get_mode().inference:
                    raise RuntimeError(
                        "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
                    )
                self._mt_edge = Leaf(self._mt_data._array)
                self._mt_edge.owner = weakref.ref(self)
                self._mt_edge.grad = self.__dict__.pop("_grad", None)
                keep_graph_of_gradient(self)
        elif edge is not None:
            if not isinstance(edge, Leaf):
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            lose_edge(self)
        return self

    @property
    def edge(self):
        """The current edge. It changes if an in-place operation on the base of a view changes the graph of the view."""
        view = self._mt_view
        if view is not None and view[0]._mt_edge is not view[1]:
            refresh(self)
        return self._mt_edge

    @property
    def grad_fn(self):
        """The graph node of the operation that computed this tensor; None for a leaf.

        Example:
            >>> x = mytorch.ones(2, requires_grad=True)
            >>> x.grad_fn is None
            True
            >>> (x * 2).grad_fn.name()
            'MulBackward0'
        """
        edge = self.edge
        return None if edge is None or isinstance(edge, Leaf) else shown(getattr(edge, "node", edge))

    @property
    def is_leaf(self):
        """True if no recorded operation computed this tensor.

        Leaf tensors are created by the user, such as inputs and parameters. Tensors that do not require gradients are
        also leaves. `backward()` stores gradients in the `.grad` of leaves that require gradients.

        Example:
            >>> w = mytorch.ones(2, requires_grad=True)
            >>> w.is_leaf, (w * 2).is_leaf
            (True, False)
        """
        edge = self.edge
        return edge is None or isinstance(edge, Leaf)

    @property
    def output_nr(self):
        """The position of this tensor among the outputs of its `grad_fn`."""
        return getattr(self.edge, "index", 0)

    @property
    def grad(self):
        """The accumulated gradient, or None.

        The gradient is an Array. After `backward(create_graph=True)` and in PyTorch mode (`install_as_torch`) it is a
        Tensor. Each call of `backward()` adds to it. Set it to None, or call `optimizer.zero_grad()`, before the next step.

        A tensor that is not a leaf has a gradient only after `retain_grad()`, or after `backward(retain_graph=True)`.

        Raises:
            RuntimeError: an assigned gradient has another shape, dtype or device than the tensor.
            TypeError: the assigned value is not a Tensor, an Array or None.

        Example:
            >>> w = mytorch.ones(2, requires_grad=True)
            >>> (3 * w).sum().backward()
            >>> w.grad.tolist()
            [3.0, 3.0]
            >>> (3 * w).sum().backward()
            >>> w.grad.tolist()
            [6.0, 6.0]
            >>> w.grad = None
        """
        if overriding.modes and (found := overriding.read("grad", self)) is not NOTHING:
            return found
        edge = self._mt_edge
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
        """Returns the gradient as a Tensor, the same object as long as there is a reference to it."""
        if isinstance(grad, Tensor):
            return grad
        shown = self.__dict__.get("_shown_grad", _nothing)()
        if shown is None or shown._mt_data is not grad:
            shown = Tensor._of(grad)
            show_gradient(self, shown)
        return shown

    @grad.setter
    def grad(self, value):
        if value is not None:
            if value is self:
                raise RuntimeError("grad: expected another tensor, got the tensor itself. Assign a clone() of it.")
            if isinstance(value, Tensor):
                if value._mt_edge is None:
                    if config.pytorch_mode:
                        show_gradient(self, value)
                    value = value._mt_data
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
        if self._mt_edge is None:
            self.__dict__["_grad"] = value
        else:
            self._mt_edge.grad = value

    @grad.deleter
    def grad(self):
        self.grad = None

    _grad = grad  # another name in PyTorch; a constant stores its gradient in `__dict__` under this key

    @property
    def retains_grad(self):
        """True if this tensor is not a leaf and `retain_grad()` was called on it."""
        return self._mt_edge is not None and self._mt_edge.keeps_grad and not self.is_leaf

    @staticmethod
    def build_graph_enabled():
        """Returns True if operations are recorded; an alias of `mytorch.is_grad_enabled()`."""
        return get_mode().grad

    def detach(self):
        """Returns a tensor that shares the memory of this tensor and does not require gradients.

        The gradient does not flow through the result. In-place changes of the result also change this tensor; backward
        raises an error if it needs the overwritten values. Use `x.detach().clone()` for a copy.

        Returns:
            A new tensor that is a leaf.

        Example:
            >>> x = tensor([1.0, 2.0], requires_grad=True)
            >>> y = x * x.detach()
            >>> y.sum().backward()
            >>> x.grad.tolist()
            [1.0, 2.0]
        """
        if type(self) not in PLAIN and (found := overriding.ask(Tensor.detach, (self,))) is not NOTHING:
            return found
        raw = self._mt_data._array
        if type(raw) is MetaArray and raw.batch is not None:
            return raw.batch.cut(self)
        return Tensor._of(self._mt_data)

    @overridable
    def detach_(self):
        """Detaches this tensor from its graph in place, so that it becomes a leaf.

        Returns:
            This tensor.

        Raises:
            RuntimeError: the tensor is a view.

        Example:
            >>> y = tensor([1.0], requires_grad=True) * 2
            >>> y.detach_().requires_grad
            False
        """
        if self._mt_view is not None:
            raise RuntimeError("Can't detach views in-place: use detach() instead.")
        if hooks.detach_in_transform is not None and hooks.detach_in_transform(self):
            return self
        if self._mt_edge is not None:
            self.__dict__["_detached"] = id(self._mt_edge), self._version  # views keep their graph: see `refresh`
            lose_edge(self)
        self.__dict__.pop("_tangents", None)
        return self

    # -- protocols of Python and NumPy ------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        self.numpy()  # raises an error for tensors without a NumPy array
        return self._mt_data.__array__(dtype, copy)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return Tensor._wrap(as_raw(array))

    @property
    def __cuda_array_interface__(self):
        return self._mt_data.__cuda_array_interface__

    def __dlpack__(self, stream=None, **kwargs):
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self._mt_data.__dlpack__(stream, **kwargs)

    def __dlpack_device__(self):
        return self._mt_data.__dlpack_device__()

    def __reduce_ex__(self, protocol):
        return _restore, (type(self), self._mt_data, self.is_leaf and self.requires_grad, self._extra_state())

    def _extra_state(self):
        """Returns the attributes that the user set on this tensor."""
        return {k: v for k, v in self.__dict__.items() if k not in _OF_THIS_TENSOR}

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
                "detach() this one first."
            )
        import copy

        memory = memo if type(self) is Tensor else {}  # copies of parameters do not share memory
        copied = _restore(type(self), self._mt_data.__deepcopy__(memory), self.requires_grad, {})
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self._extra_state(), memo))
        if self.grad is not None and self._copies_gradient:
            copied.grad = copy.deepcopy(self.grad, memo)
        return copied


create = Tensor.__init__  # PyTorch mode has another constructor
Tensor.__new__.__wrapped__ = create  # type: ignore[attr-defined]  # inspect.signature follows it
overriding.add_plain(Tensor)


def _restore(cls, array, requires_grad, extra):
    """Returns a pickled or copied tensor without a call of its constructor."""
    tensor = Tensor._of(array, None, cls)
    if requires_grad:
        tensor._mt_edge = Leaf(array._array)
        tensor._mt_edge.owner = weakref.ref(tensor)
    if extra:
        tensor.__dict__.update(extra)
    return tensor


class Parts(tuple):
    """The steps of a view that a function with several results returned (split, unbind), or of a view of such a view.

    A step of such a function is (op, attributes, position of the result). The view can't be changed in place while
    recording, as in PyTorch; forward mode and export read the steps.
    """

    __slots__ = ()


def refresh(tensor):
    """Updates the edge of a view after an in-place operation changed the graph of its base."""
    base, known, steps = tensor._mt_view
    if (
        base._mt_view is not None
    ):  # it has another shape (by transpose_, …), and is a view of a tensor of its former shape
        base = base._mt_view[0]
        tensor._mt_view = base, known, steps
        if base._mt_edge is known:
            return
    if base.__dict__.get("_detached") == (id(known), base._version) or (
        base._mt_edge is None and isinstance(known, Leaf)
    ):
        return  # detach_ and requires_grad_(False): views that were up to date keep their graph
    if base._mt_edge is None:
        raise InPlaceError(
            "a view is used after its base was changed in place and then detached by detach_. The graph of the view does not "
            "describe its values; take the view again."
        )
    if type(steps) is not tuple and not (known is None and isinstance(base._mt_edge, Leaf)):
        raise InPlaceError(
            "a tensor that split, chunk, unbind or a custom Function returned is a view and its base was changed in place; "
            "take the views again."
        )
    fresh = base
    with enable_grad():
        for op, attrs, *position in steps:
            fresh = op(fresh, **attrs)
            for i in position:
                fresh = fresh[i]
    replace_edge(tensor, fresh._mt_edge)
    tensor._mt_view = (base, base._mt_edge, steps)


def replace_edge(tensor, edge):
    """Gives a tensor that was changed in place its new edge, which keeps the gradient if the old edge did."""
    before = tensor._mt_edge
    if before is not None and before.keeps_grad and edge is not None:
        edge.keeps_grad, edge.grad = True, before.grad
        before.keeps_grad, before.grad = False, None
    tensor._mt_edge = edge
    keep_graph_of_gradient(tensor)


def lose_edge(tensor):
    """Makes a tensor a constant. A leaf keeps its gradient."""
    edge, tensor._mt_edge = tensor._mt_edge, None
    if isinstance(edge, Leaf) and edge.grad is not None:
        tensor.__dict__["_grad"] = edge.grad


def show_gradient(tensor, grad):
    """Remembers the Tensor that users see as the gradient, and in it, the tensor to notify when it joins a graph."""
    tensor.__dict__["_shown_grad"] = weakref.ref(grad)
    grad.__dict__["_gradient_of"] = weakref.ref(tensor)


def keep_graph_of_gradient(tensor):
    """Stores a gradient that joined a graph, as in `p.grad.add_(q)`, as a Tensor: its Array alone would lose the graph."""
    owner = tensor.__dict__.get("_gradient_of", _nothing)()
    if owner is not None:
        stored = owner.__dict__.get("_grad") if owner._mt_edge is None else owner._mt_edge.grad
        if stored is tensor._mt_data:
            owner.grad = tensor


def zero_gradient(tensor):
    """Fills the gradient of a tensor with zeros, without the graph that `backward(create_graph=True)` gave it."""
    grad = tensor.grad
    if isinstance(grad, Tensor):
        if grad.is_leaf:
            grad.requires_grad_(False)
        else:
            grad.detach_()
        tensor.grad = grad  # stored as its Array again
    if grad is not None:
        grad.zero_()


def is_tensor(obj):
    """Returns True if `obj` is a Tensor or an Array. `p.data` and `p.grad` are Arrays.

    Args:
        obj: any object.

    Example:
        >>> mytorch.is_tensor(mytorch.ones(2)), mytorch.is_tensor([1.0])
        (True, False)
    """
    return isinstance(obj, (Tensor, Array))


class RemovableHandle:
    """The handle of a registered hook. `remove()` removes the hook; a `with` block removes it at its end.

    Args:
        hooks: dict of the registered hooks.
        hook: the new hook.
        prepend: call this hook before the other hooks (default: False).
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
        """Removes the hook. A second call has no effect."""
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
