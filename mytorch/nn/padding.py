"""Padding layers; see `F.pad`."""

from . import functional as F
from .module import Module


class _Pad(Module):
    mode = "constant"
    dims = 2
    value = None

    def __init__(self, padding):
        super().__init__()
        self.padding = (padding,) * (2 * self.dims) if isinstance(padding, int) else tuple(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self):
        return f"{self.padding}"


def _layer(prefix, mode, d, value=None):
    doc = f"Pads the last {d} axes{' with zeros' if prefix == 'Zero' else ''} (mode {mode!r})."
    return type(
        f"{prefix}Pad{d}d", (_Pad,), {"mode": mode, "dims": d, "value": value, "__doc__": doc, "__module__": __name__}
    )


ZeroPad1d, ZeroPad2d, ZeroPad3d = (_layer("Zero", "constant", d, 0.0) for d in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_layer("Reflection", "reflect", d) for d in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_layer("Replication", "replicate", d) for d in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (_layer("Circular", "circular", d) for d in (1, 2, 3))


class _ConstantPad(_Pad):
    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


ConstantPad1d, ConstantPad2d, ConstantPad3d = (
    type(
        f"ConstantPad{d}d",
        (_ConstantPad,),
        {"dims": d, "__doc__": f"Pads the last {d} axes with a value.", "__module__": __name__},
    )
    for d in (1, 2, 3)
)
