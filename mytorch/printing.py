"""How tensors and arrays print.

The default is this library's own layout: five decimals, blanks between numbers, no dtype, as its texts
show it. `set_printoptions(layout="torch")` switches to PyTorch's, with commas, four decimals and the dtype
where it is not the default one.
"""

import numpy as np

from .backend import CPU, to_device


def format_tensor(tensor):
    """`tensor([[…]], requires_grad=True)`, with grad_fn or device where there are such."""
    suffix = ""
    if tensor.grad_fn is not None:
        suffix = f", grad_fn=<{tensor.grad_fn.name}>"
    elif tensor.requires_grad:
        suffix = ", requires_grad=True"
    if tensor.device is not CPU:
        suffix += f", device={tensor.device}"
    return f"tensor({_numbers(tensor._data._array, 7)}{suffix})"


def format_array(array):
    """`Array([[…]], dtype=float32)`."""
    where = "" if array.device is CPU else f", device='{array.device}'"
    return f"Array({_numbers(array._array, 6)}, dtype={array.dtype.name}{where})"


def _numbers(raw, indent):
    host = to_device(raw, CPU)
    if host.dtype.kind == "V":
        host = host.astype(np.float32)
    text = np.array2string(host, separator=" ", precision=5, floatmode="fixed", max_line_width=80)
    return text.replace("\n", "\n" + " " * indent)
