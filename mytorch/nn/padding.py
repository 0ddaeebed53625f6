"""Padding layers. Each layer calls `nn.functional.pad`."""

from typing import Any

from ..arrays.tensor import Tensor
from . import functional as F
from .layer import Layer

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Layer, shown="{padding}", padding=...):
    """Pads the {dims} with {contents}.

    Args:
        padding: number of elements to add on each side: one number for all sides, or a flat tuple with the numbers
            before and after each dimension. The tuple starts with the last dimension. Negative numbers remove elements.

    Shape:
        Input: (N, C, {sizes}) or (C, {sizes}).
        Output: (N, C, {padded}) or (C, {padded}).

    Example:
        >>> x = tensor([1.0, 2.0, 3.0]).reshape({shape})
        >>> nn.{name}({arguments})(x).flatten().tolist()
        {result}

    See also: `nn.functional.pad`.
    """

    padding: tuple[int, ...]
    dims = 2
    mode = "constant"
    value: float | None = None

    def __post_init__(self) -> None:
        widths: Any = self.padding
        self.padding = (widths,) * (2 * self.dims) if isinstance(widths, int) else tuple(widths)

    def forward(self, input: Tensor) -> Tensor:
        if self.mode == "circular" and input.ndim not in (d := (self.dims + 1, self.dims + 2)):
            raise ValueError(f"expected {d[0]}D or {d[1]}D input (got {input.ndim}D input)")
        return F.pad(input, self.padding, self.mode, self.value)


class _ConstantPad(_Pad, shown="padding={padding}, value={value}", padding=..., value=...):
    """The base class of the layers that pad with a constant.

    Args:
        value: value of the new elements.
    """


# The base classes of the layers of one kind, for `isinstance`.
_ReflectionPad, _ReplicationPad, _CircularPad = (
    type(f"_{kind}Pad", (_Pad,), {"__module__": __name__}) for kind in ("Reflection", "Replication", "Circular")
)


def _of_each_size(prefix, contents, result, mode="constant", base=_Pad, **constants):
    """Yields the layers of one kind for one, two and three dimensions. The docstring of `_Pad` is their template."""
    for d, sizes in enumerate(("L", "H, W", "D, H, W"), 1):
        name, dims = f"{prefix}Pad{d}d", "last dimension" if d == 1 else f"last {d} dimensions"
        arguments = str((2, 1) + (0, 0) * (d - 1)) + (", 9.0" if base is _ConstantPad else "")
        doc = (_Pad.__doc__ or "").format(
            name=name, dims=dims, contents=contents, sizes=sizes, padded=sizes.replace(",", "_out,") + "_out",
            shape="1, " * d + "3", arguments=arguments, result=list(map(float, result)),
        )  # fmt: skip
        yield type(name, (base,), {"__doc__": doc, "__module__": __name__, "dims": d, "mode": mode, **constants})


ConstantPad1d, ConstantPad2d, ConstantPad3d = _of_each_size("Constant", "a constant value", "991239", base=_ConstantPad)
ZeroPad1d, ZeroPad2d, ZeroPad3d = _of_each_size("Zero", "zeros", "001230", value=0.0)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _of_each_size("Reflection", "elements reflected at the edges", "321232", "reflect", _ReflectionPad)  # fmt: skip
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _of_each_size("Replication", "copies of the edge elements", "111233", "replicate", _ReplicationPad)  # fmt: skip
CircularPad1d, CircularPad2d, CircularPad3d = _of_each_size("Circular", "elements from the opposite end", "231231", "circular", _CircularPad)  # fmt: skip
