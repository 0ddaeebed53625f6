"""Parameter and Buffer: tensors that a Module registers when they are assigned to an attribute."""

from typing import Any

from ..autograd.node import Leaf
from ..ops.creation import empty
from ..ops.dispatch.bind import METHODS
from . import config, printing
from .tensor import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


def _take_memory(tensor, data):
    if config.pytorch_mode and not hasattr(data, "dtype") and data is not None:
        raise AttributeError(
            f"{type(tensor).__name__}: expected a tensor, got {type(data).__name__}. Convert it with torch.tensor first."
        )
    source = empty(0) if data is None else data if isinstance(data, Tensor) else Tensor._make(data)
    if hasattr(source, "_make_parameter"):  # a DTensor, whose memory is its local tensor
        source._make_parameter(tensor)
        return
    tensor._mt_data, tensor._mt_edge, tensor._mt_view = source._mt_data, None, None


class Parameter(Tensor):
    """Marks a tensor as trainable. A Module registers it when it is assigned to an attribute.

    Args:
        data: a Tensor, Array, NumPy array or numbers. The parameter shares the memory of arrays. By default, an empty
            tensor.
        requires_grad: if True, autograd computes its gradient (default: True).

    Example:
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(mytorch.ones(2))
        >>> [name for name, _ in layer.named_parameters()]
        ['scale']

    See also: `nn.Buffer`, `nn.Module.register_parameter`.
    """

    __slots__ = ()
    _copies_gradient = False  # as in PyTorch

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        _take_memory(self, data)
        if requires_grad:
            self.requires_grad_()

    def __repr__(self):
        return ("Parameter containing:\n" if printing.in_torch_layout() else "") + super().__repr__()


class Buffer(Tensor):
    """Marks a tensor as state that is not trained. A Module registers it when it is assigned to an attribute.

    Args:
        data: a Tensor, Array, NumPy array or numbers. The buffer shares the memory of arrays. By default, an empty
            tensor.
        persistent: if True, the state dict contains the buffer (default: True).

    Example:
        >>> layer = nn.Module()
        >>> layer.mean = nn.Buffer(mytorch.zeros(2))
        >>> list(layer.state_dict()), list(layer.parameters())
        (['mean'], [])

    See also: `nn.Parameter`, `nn.Module.register_buffer`.
    """

    __slots__ = ()

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        _take_memory(self, data)
        if getattr(data, "requires_grad", False):
            self.requires_grad = True
        self.persistent = persistent


# Methods that work before a tensor has a shape.
_ALLOWED = frozenset(
    "bfloat16 bool char copy_ cpu cuda data_ptr detach double element_size float get_device half int is_complex is_contiguous "
    "is_floating_point is_inference is_meta long requires_grad_ short share_memory_ size to type".split()
)


class _Uninitialized(Tensor):
    """The base class of lazy parameters and buffers, which have no shape before `materialize`."""

    __slots__ = ()
    _becomes: Any

    def __getattribute__(self, name):
        if name in METHODS and name not in _ALLOWED:
            raise ValueError(
                f"Attempted to use an uninitialized parameter or buffer in {name}. This error happens when you are using a lazy "
                "module, or explicitly manipulating uninitialized parameters. Call `forward` first."
            )
        return super().__getattribute__(name)

    def _refuse(self, *args):
        raise ValueError("Attempted to use an uninitialized parameter or buffer in an operator. Call `forward` first.")

    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = __neg__ = __getitem__ = __len__ = __radd__ = __rmul__ = (
        _refuse
    )

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
            "calling `module.share_memory()`."
        )

    def materialize(self, shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> None:
        """Allocates memory of the given shape, and changes the class to the regular one.

        Args:
            shape: shape of the tensor.
            device: device of the tensor. By default, the device given before.
            dtype: dtype of the tensor. By default, the dtype given before.
        """
        memory = empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        requires_grad = self.requires_grad
        self._mt_data = memory._mt_data
        self.__class__ = self._becomes
        if requires_grad:
            self._mt_edge = Leaf(self._mt_data._array)

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
    """Reserves a parameter with a shape that is inferred in the first call of its module.

    Args:
        requires_grad: if True, autograd computes its gradient (default: True).
        device: device of the parameter. By default, the default device.
        dtype: dtype of the parameter. By default, the default dtype.

    Example:
        >>> p = nn.UninitializedParameter()
        >>> p.materialize((2, 3))
        >>> type(p).__name__, tuple(p.shape)
        ('Parameter', (2, 3))

    See also: `nn.LazyLinear`.
    """

    __slots__ = ()
    _becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        Parameter.__init__(self, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Buffer):
    """Reserves a buffer with a shape that is inferred in the first call of its module.

    Args:
        requires_grad: accepted for compatibility, without effect (default: False).
        device: device of the buffer. By default, the default device.
        dtype: dtype of the buffer. By default, the default dtype.
        persistent: if True, the state dict contains the buffer (default: True).

    Example:
        >>> b = nn.UninitializedBuffer()
        >>> b.materialize((2,))
        >>> type(b).__name__, tuple(b.shape)
        ('Buffer', (2,))

    See also: `nn.LazyBatchNorm1d`.
    """

    __slots__ = ()
    _becomes = Buffer

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        Buffer.__init__(self, empty(0, device=device, dtype=dtype), persistent=persistent)


def is_lazy(x: object) -> bool:
    """Returns True for a parameter or buffer without a shape."""
    return isinstance(x, _Uninitialized)
