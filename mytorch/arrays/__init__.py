"""Arrays: dtypes, devices, NumPy and CuPy behind one namespace, and the classes Array, Tensor and Parameter.

* `namespaces.py`: NumPy's namespace. `gpu.py`: CuPy's namespace, the only file that imports CuPy. `meta.py`: the meta device.
* `devices.py`: devices. `others.py`: devices that a program registers. `copies.py`: copies between devices, and pinned memory.
* `special.py`, `philox.py`, `einsum.py` and others have functions and random numbers that neither NumPy nor CuPy has.
* `dtypes.py`: dtypes and promotion. `array.py`: Array. `tensor.py`: Tensor. `parameter.py`: Parameter. `printing.py`: their text.
* `config.py`: settings. `errors.py`: exceptions. `hooks.py`, `overriding.py`: functions of higher layers, and of programs.
"""

from . import config

config.share_cores()  # before NumPy is loaded
import numpy  # here: from a deeper import it takes 20 % longer, since calls there cross two blocks of Python's stack

from .copies import (
    copy_later,
    fill_later,
    is_pinned,
    memory_owner,
    owner_of,
    pinned,
    row_major,
    spanned,
    storage_bytes,
    to_device,
)
from .devices import (
    CPU,
    META,
    DeviceLike,
    as_device,
    assign,
    copied,
    device,
    device_guard,
    device_of,
    get_default_device,
    on,
    register_device,
    restore_device,
    set_default_device,
    set_device_of,
)
from .gpu import (
    address,
    cuda_available,
    cupy_ns,
    device_count,
    explaining,
    is_raw,
    looks_like_cupy,
    out_of_memory,
    xp_of,
)
from .malloc import keep_freed_memory
from .meta import NO_DATA, MetaArray, as_hollow_zeros, emptied, hollow, meta_ns
from .namespaces import ON_NUMPY, Namespace, ndarray, numpy_ns

keep_freed_memory()
