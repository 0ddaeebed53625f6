"""Parameter and Buffer: tensors that a Module registers when they are assigned to it."""

from typing import Any

from . import _tensor_str
from ._tensor import Tensor
from .engine.node import Leaf
from .ops.creation import empty

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


def _take_memory(tensor, data):
    source = empty(0) if data is None else data if isinstance(data, Tensor) else Tensor(data)
    tensor._data, tensor._edge, tensor._view = source._data, None, None


class Parameter(Tensor):
    """A trainable tensor. Assigning one to a Module's attribute registers it there.

    Args:
        data: a Tensor, Array, ndarray or numbers; its memory is shared.
        requires_grad: whether gradients are computed for it.

    Example:
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(mytorch.ones(2))
        >>> [name for name, _ in layer.named_parameters()]
        ['scale']
    """

    __slots__ = ()

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        _take_memory(self, data)
        if requires_grad:
            self.requires_grad_()

    def __repr__(self):
        return ("Parameter containing:\n" if _tensor_str.in_torch_layout() else "") + super().__repr__()


class Buffer(Tensor):
    """A tensor that is state but is not trained. Assigning one to a Module's attribute registers it there.

    Args:
        persistent: whether it belongs to the state dict.
    """

    __slots__ = ()

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        _take_memory(self, data)
        self.persistent = persistent


class _Uninitialized(Tensor):
    """What the lazy parameters share: no shape until `materialize`."""

    __slots__ = ()
    _becomes: Any

    def materialize(self, shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> None:
        """Give it memory of the given shape, and turn it into the ordinary kind."""
        memory = empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        requires_grad = self.requires_grad
        self._data = memory._data
        self.__class__ = self._becomes
        if requires_grad:
            self._edge = Leaf(self._data._array)

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` "
            "when trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the "
            "parameters before accessing their attributes."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is known only at the first forward.

    Args:
        requires_grad: whether the tensor will be trained.
        device: where it will lie.
        dtype: what it will hold.
    """

    __slots__ = ()
    _becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        Parameter.__init__(self, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer whose shape is known only at the first forward.

    Args:
        requires_grad: whether it will have a gradient.
        device: where it will lie.
        dtype: what it will hold.
        persistent: whether the state dict has it.
    """

    __slots__ = ()
    _becomes = Buffer

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        Buffer.__init__(self, empty(0, device=device, dtype=dtype), persistent=persistent)


def is_lazy(x: object) -> bool:
    """Whether x is an uninitialised parameter or buffer."""
    return isinstance(x, _Uninitialized)
