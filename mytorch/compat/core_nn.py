"""`torch._C._nn`: the functions that packages call."""

from ..arrays import as_device, device, dtypes
from ..arrays.tensor import Tensor
from ..nn import functional as F


def _parse_to(*args, **kwargs):
    """Return (device, dtype, non_blocking, memory format) for the arguments of `.to`."""
    where, dtype, rest = kwargs.get("device"), kwargs.get("dtype"), []
    for a in args:
        if isinstance(a, Tensor):
            where, dtype = a.device, a.dtype
        elif isinstance(a, (device, int, str)) and not isinstance(a, bool):
            where = a
        elif isinstance(a, dtypes.dtype):
            dtype = a
        elif a is not None:
            rest.append(a)
    non_blocking = kwargs.get("non_blocking", rest[0] if rest else False)
    return None if where is None else as_device(where), dtype, non_blocking, kwargs.get("memory_format")


_SAME = "gelu silu softplus linear scaled_dot_product_attention elu_ hardtanh leaky_relu avg_pool2d pad one_hot mish hardswish relu6"
globals().update({name: getattr(F, name) for name in _SAME.split()}, log_sigmoid=F.logsigmoid)
