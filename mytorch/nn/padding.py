"""Padding layers; see `F.pad`."""

from typing import Any

from .._tensor import Tensor
from . import functional as F
from .layer import Layer

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Layer, shown="{padding}", padding=...):
    """`padding`: one width for every side, or (left, right, top, bottom, …), the last axis first."""

    padding: tuple[int, ...]
    dims = 2
    mode = "constant"
    value: float | None = None

    def __post_init__(self) -> None:
        widths: Any = self.padding
        self.padding = (widths,) * (2 * self.dims) if isinstance(widths, int) else tuple(widths)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)


class _ConstantPad(_Pad, shown="padding={padding}, value={value}", padding=..., value=...):
    pass


def _of_each_size(prefix, what, base=_Pad, **constants):
    """The layers of one, two and three axes."""
    for d in (1, 2, 3):
        body = {"__doc__": f"Pads the last {d} axes {what}.", "__module__": __name__, "dims": d, **constants}
        yield type(f"{prefix}Pad{d}d", (base,), body)


ConstantPad1d, ConstantPad2d, ConstantPad3d = _of_each_size("Constant", "with a value", _ConstantPad)
ZeroPad1d, ZeroPad2d, ZeroPad3d = _of_each_size("Zero", "with zeros", value=0.0)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _of_each_size("Reflection", "by reflection", mode="reflect")
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _of_each_size("Replication", "by the edges", mode="replicate")
CircularPad1d, CircularPad2d, CircularPad3d = _of_each_size("Circular", "by the other end", mode="circular")
