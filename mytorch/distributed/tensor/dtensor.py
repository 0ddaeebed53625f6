"""DTensor: a tensor that several processes store together, each one a local part.

A DTensor holds the local tensor with its position in the graph, so autograd works on local tensors. Public functions
find their rule in the table `RULES`, which `rules.py` fills. A function without a rule accepts replicated DTensors only and otherwise raises an
error. The attribute `_mt_data`, from which the library reads the elements of a tensor, raises an error as well. So no
function can compute with a local part as if it were the whole tensor.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from ...arrays.array import Size
from ...arrays.parameter import Parameter
from ...arrays.tensor import Tensor
from ...autograd.backward_call import backward as autograd_backward
from ...autograd.mode import no_grad
from ...compat import overrides
from ...nn.module import Module
from ...ops import creation, random
from ...ops.dispatch.out import write_out
from .. import collectives
from ..device_mesh import DeviceMesh
from .placement_types import Partial, Placement, Replicate, Shard
from .redistribution import copy_to, local_shape, order_of, redistributed, slice_rows, uncopy, whole

ON_FIRST: list[Callable] = []  # a function of rules.py that runs when the first DTensor is created
RULES: dict[str, Callable] = {}  # name of a public function -> its rule, from rules.py
_access = [0]  # number of open `local_access` blocks


@contextlib.contextmanager
def local_access() -> Iterator[None]:
    """Lets element-wise code of the library, such as an optimizer, work on the local parts of DTensors in a block."""
    _access[0] += 1
    try:
        yield
    finally:
        _access[0] -= 1


def _refuse(what):
    raise RuntimeError(
        f"DTensor: expected a plain tensor, got a DTensor with placements {what._placements}. Call to_local() or "
        "full_tensor() first."
    )


class DTensor(Tensor):
    """A tensor that several processes store together. Create it with `distribute_tensor` or `DTensor.from_local`.

    `shape`, `numel()` and other sizes describe the whole tensor. `to_local()` returns the part of this process.

    Attributes:
        device_mesh: the processes.
        placements: the placement for each dimension of the mesh.

    Example:
        >>> from mytorch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> x = distribute_tensor(mytorch.ones(4, 2), mesh, [Shard(0)])
        >>> (x * 2).sum().full_tensor().item(), x.placements
        (16.0, (Shard(dim=0),))
        >>> mytorch.distributed.destroy_process_group()
    """

    __slots__ = ()
    _local_tensor: Tensor
    _mesh: Any
    _placements: tuple[Any, ...]
    _global_shape: tuple[int, ...]
    _varying: frozenset[int]  # see redistribution.py
    _gathered = False  # True for a view whose elements were gathered: a change would not reach the tensor

    def __init__(self, *args: Any, **kwargs: Any):
        raise TypeError("DTensor: expected a call of distribute_tensor or DTensor.from_local, got a call of the class.")

    @staticmethod
    def _make(local, mesh, placements, shape, cls=None, varying=frozenset()):
        """Returns a DTensor around a local tensor, without checks."""
        if ON_FIRST:
            ON_FIRST.pop()()
        self = object.__new__(cls or DTensor)
        state = self.__dict__
        state["_local_tensor"], state["_mesh"], state["_placements"] = local, mesh, tuple(placements)
        state["_global_shape"], state["_varying"] = tuple(shape), varying
        return self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if not args and "input" in kwargs:  # rules expect the tensor at the first position
            args = (kwargs.pop("input"),)
        out = kwargs.pop("out", None)
        result = RULES.get(func.__name__, RULES["default"])(func, args, kwargs)
        return result if out is None else _written(result, out, func.__name__)

    # -- conversion --------------------------------------------------------------------------------

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> DTensor:
        """Returns a DTensor of local parts. Gradients flow to the local tensor.

        Args:
            local_tensor: the part of this process.
            device_mesh: the processes.
            placements: the placement for each dimension of the mesh (default: replicated).
            run_check: compare the shapes over the mesh (default: False).
            shape: shape of the whole tensor (default: computed for parts of equal size).
            stride: accepted for compatibility, without effect. DTensors have no strides.

        Raises:
            ValueError: the placements do not fit the mesh, or the shape of the local tensor is not the expected one.
        """
        mesh = _mesh(device_mesh, "DTensor.from_local")
        placements = checked_placements(placements, mesh, local_tensor.ndim, "DTensor.from_local")
        if run_check:
            _compare(local_tensor, mesh, placements)
        if shape is None:
            shape = list(local_tensor.shape)
            for i, p in enumerate(placements):
                if p.is_shard():
                    shape[cast(Shard, p).dim] *= mesh.size(i)
        expected = local_shape(shape, mesh, placements)
        if tuple(local_tensor.shape) != expected:
            raise ValueError(
                f"DTensor.from_local: expected a local tensor of shape {expected} for a tensor of shape {tuple(shape)}, "
                f"got {tuple(local_tensor.shape)}. Pass shape=."
            )
        return DTensor._make(local_tensor, mesh, placements, shape)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns the part of this process. Gradients flow back to the DTensor.

        Args:
            grad_placements: placements of the gradient of the result. By default, the gradient of a shard is a shard,
                and all other gradients are replicated. `Partial` is accepted for a replicated dimension.
        """
        copies: tuple[int, ...] = ()
        if grad_placements is not None:
            copies = tuple(
                i for i, p in enumerate(grad_placements) if p.is_partial() and self._placements[i].is_replicate()
            )
        return local_of(self, self._placements, copies)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns the whole tensor on every process.

        Args:
            grad_placements: placements of the gradient of the result (default: replicated).
        """
        every = [Replicate()] * self._mesh.ndim
        return self.redistribute(placements=every).to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
    ) -> DTensor:
        """Returns a DTensor with the same elements and other placements.

        Args:
            device_mesh: the mesh of this DTensor, or None.
            placements: the new placements.
            async_op: accepted for compatibility. The result is always complete.

        Raises:
            ValueError: the mesh is a different one, or the placements do not fit.
        """
        if device_mesh is not None and device_mesh != self._mesh:
            raise ValueError(f"DTensor.redistribute: expected the mesh {self._mesh}, got {device_mesh}.")
        target = checked_placements(placements, self._mesh, self.ndim, "DTensor.redistribute")
        return DTensor._make(local_of(self, target), self._mesh, target, self._global_shape)

    # -- metadata ----------------------------------------------------------------------------------

    device_mesh = property(lambda self: self._mesh, doc="The processes.")
    placements = property(lambda self: self._placements, doc="The placement for each dimension of the mesh.")
    shape = property(lambda self: Size(self._global_shape), doc="The size of each dimension of the whole tensor.")
    ndim = property(lambda self: len(self._global_shape), doc="The number of dimensions.")
    dtype = property(lambda self: self._local_tensor.dtype, doc="The dtype of the elements.")
    device = property(lambda self: self._local_tensor.device, doc="The device of the local part.")
    is_cuda = property(lambda self: self._local_tensor.is_cuda, doc="True if the local part is on a GPU.")
    itemsize = property(lambda self: self._local_tensor.itemsize, doc="The size of one element in bytes.")
    nbytes = property(lambda self: self.numel() * self.itemsize, doc="The size of the whole tensor in bytes.")

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape of the whole tensor, or the size of one dimension.

        Args:
            dim: the dimension (default: all).
        """
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Returns the number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Returns the number of elements of the whole tensor."""
        return self.shape.numel()

    nelement = numel

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        """Returns True if the local part is contiguous."""
        return self._local_tensor.is_contiguous()

    def __len__(self):
        if not self._global_shape:
            raise TypeError("len() of a 0-d tensor")
        return self._global_shape[0]

    def __hash__(self):
        return id(self)

    def __repr__(self, *, tensor_contents=None):
        return f"{type(self).__name__}(local_tensor={self._local_tensor!r}, device_mesh={self._mesh}, placements={self._placements})"

    def __iter__(self):
        if not self._global_shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    # -- elements ----------------------------------------------------------------------------------

    @property
    def _mt_data(self):
        if not _access[0]:
            _refuse(self)
        return self._local_tensor._mt_data

    @property
    def data(self):
        """A DTensor with the same elements that is not connected to the graph. Assign to it to replace the elements."""
        return self.detach()

    @data.setter
    def data(self, value):
        if isinstance(value, DTensor):
            if value._placements != self._placements or value._mesh != self._mesh:
                value = value.redistribute(self._mesh, self._placements)
            self.__dict__["_global_shape"] = value._global_shape
            self._local_tensor.data = value._local_tensor
        else:
            self._local_tensor.data = _distributed(value, self._mesh, self._placements, None)

    def item(self) -> Any:
        """Returns the value of a DTensor with one element."""
        return self._whole().item()

    def tolist(self) -> Any:
        """Returns the whole tensor as nested lists."""
        return self._whole().tolist()

    def _whole(self):
        return whole(self._local_tensor, self._mesh, self._global_shape, self._placements)

    def __bool__(self):
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __array__(self, *args, **kwargs):
        _refuse(self)

    @property
    def T(self):
        """The tensor with its dimensions in reverse order."""
        return self.permute(tuple(reversed(range(self.ndim))))

    @property
    def mT(self):
        """The tensor with its last two dimensions exchanged."""
        return self.transpose(-2, -1) if self.ndim else self

    def numpy(self, *, force: bool = False) -> Any:
        """Raises an error: call `full_tensor().numpy()` or `to_local().numpy()`."""
        _refuse(self)

    def __reduce_ex__(self, protocol):
        _refuse(self)

    def __deepcopy__(self, memo):
        local = self._local_tensor.detach().clone().requires_grad_(self.requires_grad)
        return DTensor._make(local, self._mesh, self._placements, self._global_shape, type(self))

    # -- autograd ------------------------------------------------------------------------------------

    @property
    def _mt_edge(self):
        return self._local_tensor._mt_edge

    @property
    def _mt_view(self):
        return self._local_tensor._mt_view

    @property
    def edge(self):
        """The position of the local tensor in the graph."""
        return self._local_tensor.edge

    def _grad_placements(self):
        """Returns the placements of the gradient: the terms of a sum have the gradient of the sum."""
        return tuple(Replicate() if p.is_partial() and p.is_linear() else p for p in self._placements)

    @property
    def grad(self):
        """The gradient, a DTensor with the placements of this one, or None. The gradient of a partial sum is replicated."""
        grad = self._local_tensor.grad
        if grad is None or _access[0]:
            return grad
        grad = grad if isinstance(grad, Tensor) else Tensor._of(grad)
        return DTensor._make(grad, self._mesh, self._grad_placements(), self.shape)

    @grad.setter
    def grad(self, value):
        if isinstance(value, DTensor):
            placements = self._grad_placements()
            value = (
                value if value._placements == placements else value.redistribute(self._mesh, placements)
            )._local_tensor
        elif value is not None and not _access[0]:
            raise TypeError(f"DTensor.grad: expected a DTensor or None, got {type(value).__name__}.")
        self._local_tensor.grad = value

    @grad.deleter
    def grad(self):
        self._local_tensor.grad = None

    _grad = grad

    def requires_grad_(self, requires_grad: bool = True) -> DTensor:
        """Sets `requires_grad` in place.

        Args:
            requires_grad: True to record operations on this tensor (default: True).
        """
        self._local_tensor.requires_grad_(requires_grad)
        return self

    def detach(self) -> DTensor:
        """Returns a DTensor that shares the local memory and is not connected to the graph."""
        out = DTensor._make(self._local_tensor.detach(), self._mesh, self._placements, self._global_shape)
        out.__dict__["_gathered"] = self._gathered
        return out

    def _make_parameter(self, parameter):
        """Makes a new Parameter a parameter that shares the memory of this DTensor."""
        if type(parameter) is not Parameter:
            raise TypeError(f"{type(parameter).__name__}: expected a plain tensor, got a DTensor. Use nn.Parameter.")
        parameter.__class__ = DTensorParameter
        parameter.__dict__.update(self.detach().__dict__)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients of the leaves. Every process of the mesh calls it.

        Args:
            gradient: gradient of this tensor, a DTensor (default: 1, for a tensor with one element).
            args: arguments of `Tensor.backward`.
            kwargs: arguments of `Tensor.backward`.
        """
        autograd_backward(self, gradient, *args, **kwargs)

    def register_hook(self, hook: Callable[[DTensor], Any]) -> Any:
        """Registers a function that backward calls with the gradient of this tensor.

        Args:
            hook: function of the gradient, a DTensor. A result replaces the gradient.

        Returns:
            A handle with a method `remove()`.
        """
        mesh, shape = self._mesh, self._global_shape
        placements = self._grad_placements()

        def local_hook(g):
            g = g if isinstance(g, Tensor) else Tensor._of(g)
            changed = hook(DTensor._make(g, mesh, placements, shape))
            return changed._local_tensor if isinstance(changed, DTensor) else changed

        return self._local_tensor.register_hook(local_hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[DTensor], Any]) -> Any:
        """Registers a function that backward calls when the gradient of this leaf is complete.

        Args:
            hook: function of this tensor.

        Returns:
            A handle with a method `remove()`.
        """
        return self._local_tensor.register_post_accumulate_grad_hook(lambda _: hook(self))


def _written(result, out, name):
    """Copies the results of a function to the argument `out`, which has other placements."""
    if isinstance(out, (tuple, list)) and isinstance(result, (tuple, list)) and len(out) == len(result):
        written = [_written(r, o, name) for r, o in zip(result, out, strict=True)]
        return type(result)(*written) if hasattr(result, "_fields") else type(result)(written)
    if not isinstance(out, DTensor) or not isinstance(result, DTensor):
        raise RuntimeError(
            f"{name}: got mixed mytorch.Tensor and DTensor in out and the inputs. Use distribute_tensor for all of them."
        )
    changeable(out, name)
    if out._global_shape != result._global_shape:
        raise RuntimeError(
            f"{name}: expected a DTensor of shape {result._global_shape} as out, got {out._global_shape}. DTensors are not "
            "resized."
        )
    write_out(local_of(result, out._placements), out._local_tensor, name)
    return out


def changeable(d: DTensor, name: str) -> None:
    """Raises an error if a change in place would be lost, or would not be the change of the whole tensor."""
    if any(p.is_partial() for p in d._placements):
        raise NotImplementedError(
            f"{name}: expected a complete DTensor to change, got {d._placements}. Redistribute it."
        )
    if d._gathered:
        raise RuntimeError(
            f"{name}: expected a DTensor or a view of its local parts to change in place, got a view of gathered elements, "
            "whose changes would be lost. Assign to the tensor, as in x[i] = value, or call clone() for a separate tensor."
        )


def local_of(d: DTensor, placements, copies=()) -> Tensor:
    """Returns the local tensor of a DTensor with other placements.

    Args:
        d: the DTensor.
        copies: mesh dimensions in which the consumer computes a partial sum of the gradient.
    """
    mesh, local = d._mesh, d._local_tensor
    for i in d._varying:
        if not placements[i].is_replicate():  # the gradient of the result is complete, not a partial sum
            local = uncopy(local, mesh, i)
    local = redistributed(local, mesh, d._global_shape, d._placements, placements, frozenset(copies))
    for i, p in enumerate(placements):
        if not p.is_replicate():
            continue
        before = d._placements[i]
        varies = i in d._varying if before.is_replicate() else i in copies
        if i in copies and not varies:
            local = copy_to(local, mesh, i)
        elif varies and i not in copies:
            local = uncopy(local, mesh, i)
    return local


class DTensorParameter(DTensor, Parameter):
    """A DTensor that is a parameter of a module."""

    __slots__ = ()


overrides.override(DTensor, DTensorParameter)


# -- creation ----------------------------------------------------------------------------------------


def _mesh(mesh, who):
    if not isinstance(mesh, DeviceMesh):
        raise ValueError(f"{who}: expected a DeviceMesh, got {type(mesh).__name__}. Call init_device_mesh first.")
    return mesh


def checked_placements(placements, mesh, ndim: int, who: str) -> tuple:
    """Returns the placements with non-negative dimensions; None is replicated.

    Raises:
        ValueError: the number of placements or a dimension does not fit.
    """
    if placements is None:
        return (Replicate(),) * mesh.ndim
    placements = tuple(placements) if isinstance(placements, (list, tuple)) else (placements,)
    if len(placements) != mesh.ndim or not all(isinstance(p, Placement) for p in placements):
        raise ValueError(
            f"{who}: expected {mesh.ndim} placements, one for each dimension of the mesh, got {list(placements)}."
        )
    out = []
    for p in placements:
        if isinstance(p, Shard) and not -ndim <= p.dim < ndim:
            raise ValueError(f"{who}: expected a sharded dimension from {-ndim} to {ndim - 1}, got {p}.")
        out.append(p.at(p.dim % ndim) if isinstance(p, Shard) and p.dim < 0 else p)
    return tuple(out)


def _compare(local, mesh, placements):
    """Raises an error on all processes if dimensions that must be equal differ."""
    sharded = {p.dim for p in placements if p.is_shard()}
    mine = [None if i in sharded else n for i, n in enumerate(local.shape)]
    for i in range(mesh.ndim):
        every: list[Any] = [None] * mesh.size(i)
        collectives.all_gather_object(every, [mine, local.dtype.name], mesh.get_group(i))
        if any(e != every[0] for e in every):
            raise ValueError(f"DTensor.from_local: expected equal shapes and dtypes on all ranks, got {every}.")


def _distributed(tensor, mesh, placements, source):
    """Returns this process's part of a whole tensor. `source` is the rank in each mesh dimension with the values."""

    local = tensor.detach()
    if source is not None:
        local = local.clone().contiguous()
        for i in range(mesh.ndim):
            if mesh.size(i) > 1:
                collectives.broadcast(local, group=mesh.get_group(i), group_src=source)
    where = mesh.get_coordinate()
    for dim in range(tensor.ndim):
        for i in order_of(placements, dim):
            local = slice_rows(local, placements[i], mesh.size(i), where[i])
    for i, p in enumerate(placements):
        if p.is_partial() and p.reduce_op == "sum" and where[i] != 0:
            local = creation.zeros_like(local)
    return local.clone() if local is tensor or local._mt_data is tensor._mt_data else local


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Divides a tensor over a mesh.

    Args:
        tensor: the whole tensor, a leaf. It must have the same shape on all processes.
        device_mesh: the processes.
        placements: the placement for each dimension of the mesh (default: replicated).
        src_data_rank: position in each mesh dimension of the process that sends its values to the others (default: 0).
            None uses the values of each process and sends nothing.

    Returns:
        A DTensor. It is a parameter if `tensor` is one.

    Raises:
        ValueError: the placements do not fit the mesh or the tensor, or a DTensor has other placements.
        RuntimeError: the tensor is not a leaf.

    Example:
        >>> from mytorch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> distribute_tensor(tensor([1.0, 2.0]), mesh, [Replicate()]).to_local().tolist()
        [1.0, 2.0]
        >>> mytorch.distributed.destroy_process_group()
    """
    mesh = _mesh(device_mesh, "distribute_tensor")
    placements = checked_placements(placements, mesh, tensor.ndim, "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor._placements != placements or tensor._mesh != mesh:
            raise ValueError(
                f"distribute_tensor: expected a plain tensor, or a DTensor with placements {placements}, got one with "
                f"{tensor._placements}. Use redistribute."
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("distribute_tensor: expected a leaf tensor, got a computed one. Use DTensor.from_local.")
    with no_grad():
        local = _distributed(tensor, mesh, placements, src_data_rank)
    cls = DTensorParameter if isinstance(tensor, Parameter) else DTensor
    return DTensor._make(local.requires_grad_(tensor.requires_grad), mesh, placements, tensor.shape, cls)


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Module:
    """Converts the parameters and buffers of a module to DTensors, in place.

    Args:
        device_mesh: the processes.
        partition_fn: function of (name, submodule, mesh) that replaces parameters by DTensors. Other parameters are
            replicated.
        input_fn: function of (module, inputs, mesh) that converts the inputs of `module`.
        output_fn: function of (module, outputs, mesh) that converts its outputs.

    Returns:
        The module.
    """
    mesh = _mesh(device_mesh, "distribute_module")
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, p in list(part._parameters.items()):
            if p is not None and not isinstance(p, DTensor):
                set_parameter(part, key, shared_parameter(p, mesh, [Replicate()] * mesh.ndim))
    if input_fn is not None:
        module.register_forward_pre_hook(lambda module, args: input_fn(module, args, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda module, args, out: output_fn(module, out, mesh))
    return module


_shared: dict[int, tuple] = {}  # id of a parameter -> weak references to it and to its DTensor: tied weights stay tied


def refuse_hooks(tensor, name, who):
    """Raises an error if a parameter that will be replaced has hooks, which nothing would call."""
    edge = tensor._mt_edge
    if edge is not None and (edge.hooks or edge.post_hooks):
        raise ValueError(
            f"{who}: expected parameters without gradient hooks, got hooks of {name}. Register them after {who}."
        )


def shared_parameter(parameter, mesh, placements):
    """Returns the DTensor of a parameter, the same one for each module that contains the parameter."""
    if isinstance(parameter, DTensor):
        return distribute_tensor(parameter, mesh, placements)
    refuse_hooks(parameter, f"a parameter of shape {tuple(parameter.shape)}", "parallelize_module")
    before, result = (reference() for reference in _shared.get(id(parameter), (lambda: None, lambda: None)))
    result = distribute_tensor(result if before is parameter and result is not None else parameter, mesh, placements)
    _shared[id(parameter)] = weakref.ref(parameter), weakref.ref(result)
    return result


def set_parameter(module, name, parameter):
    """Replaces a parameter of a module without the checks of an assignment."""
    module._parameters[name] = parameter


def _created(tensor, mesh, placements):
    mesh = _mesh(mesh, "distributed.tensor")
    placements = checked_placements(placements, mesh, tensor.ndim, "distributed.tensor")
    return DTensor._make(_distributed(tensor, mesh, placements, None), mesh, placements, tensor.shape)


def _factory(make, doc):
    def create(
        *size: Any,
        dtype: Any = None,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        shape = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
        return _created(make(tuple(shape), dtype=dtype), device_mesh, placements).requires_grad_(requires_grad)

    create.__doc__ = f"""Returns a DTensor {doc}.

    Args:
        size: shape of the whole tensor.
        dtype: dtype of the elements.
        requires_grad: if True, records operations on the result (default: False).
        device_mesh: the processes.
        placements: the placement for each dimension of the mesh (default: replicated).
    """
    create.__name__ = create.__qualname__ = make.__name__
    return create


zeros = _factory(creation.zeros, "of zeros")
ones = _factory(creation.ones, "of ones")
empty = _factory(creation.empty, "with arbitrary elements")
rand = _factory(random.rand, "of uniform random numbers. All processes need the same random state")
randn = _factory(random.randn, "of normal random numbers. All processes need the same random state")


def full(
    size: Sequence[int],
    fill_value: float,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns a DTensor filled with a number.

    Args:
        size: shape of the whole tensor.
        fill_value: the number.
        dtype: dtype of the elements.
        requires_grad: if True, records operations on the result (default: False).
        device_mesh: the processes.
        placements: the placement for each dimension of the mesh (default: replicated).
    """
    out = _created(creation.full(tuple(size), fill_value, dtype=dtype), device_mesh, placements)
    return out.requires_grad_(requires_grad)


__all__ = [
    "DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "local_access", "ones", "rand", "randn", "redistributed", "zeros",
]  # fmt: skip
