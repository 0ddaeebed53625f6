"""CuPy's dtype rules: which loops its functions have, and so of which dtype their results are.

The table (`loops` in `cupy_names.json`) comes from the ufuncs and reductions of a CuPy release. NumPy's loops differ, above all
for bfloat16: CuPy's `where` and `clip` have no loop for it and return float32.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np

LOOPS = json.loads(Path(__file__).with_name("cupy_names.json").read_text())["loops"]
OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "neg": "negative",
    "pos": "positive", "abs": "absolute", "invert": "invert", "divmod": "divmod",
}  # fmt: skip
CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


def dtype_of(char):
    return np.dtype(ml_dtypes.bfloat16) if char == "E" else np.dtype(char)


TABLE = {
    name: [tuple(tuple(map(dtype_of, side)) for side in loop.split("->")) for loop in loops.split() if "V" not in loop]
    for name, loops in LOOPS.items()
}


def _weak(x):
    return type(x) in (bool, int, float, complex)


def loop_for(name, inputs):
    """Returns (input dtypes, output dtypes) of the first loop that accepts the inputs; Python numbers are weak.

    Raises:
        TypeError: there is none.
    """
    strong = [x.dtype for x in inputs if not _weak(x)]
    common = CATEGORY[max(strong, key=lambda d: CATEGORY[d.kind]).kind]
    for wanted, out in TABLE[name]:
        if len(wanted) == len(inputs) and all(map(lambda x, d: _fits(x, d, strong, common), inputs, wanted)):
            return wanted, out
    raise TypeError(f"Wrong type ({', '.join(map(str, strong))}) of arguments for cupy_{name}")


def _fits(x, wanted, strong, common):
    if not _weak(x):
        return np.can_cast(x.dtype, wanted)
    own = {bool: 0, int: 1, float: 2, complex: 3}[type(x)]
    if own > common:  # it decides the kind
        return np.can_cast(np.result_type(*(d for d in strong if d.kind != "V"), x), wanted)
    return CATEGORY[wanted.kind] >= own


def as_cupy(name, inputs, result):
    """NumPy's result of the function in CuPy's dtype."""
    if name == "where":
        inputs = [np.False_, *inputs[1:]]
    if (
        name not in TABLE
        or not inputs
        or any(x is None or isinstance(x, (list, tuple)) for x in inputs)
        or all(map(_weak, inputs))
    ):
        return result
    out = loop_for(name, inputs)[1]
    if isinstance(result, tuple):
        return tuple(np.asarray(r).astype(d, copy=False) for r, d in zip(result, out, strict=True))
    return result.astype(out[0], copy=False) if hasattr(result, "dtype") else np.asarray(result, out[0])
