"""Conversion of the inputs of an op (Tensors, Arrays, raw arrays and numbers) to raw arrays."""

import numpy as np

from ...arrays import CPU, config, device_of, dtypes, is_raw, looks_like_cupy, ndarray, numpy_ns, to_device, xp_of
from ...arrays.array import Array, as_raw
from ...arrays.errors import DeviceError, kind
from ...arrays.memory_format import kept, layout_of, strided
from ...arrays.others import BY_ARRAY
from ...arrays.tensor import Tensor, refresh
from .half import half_of, is_half, stays_wide

_ONE_DTYPE = frozenset(("matmul", "linear", "convolution", "einsum"))  # where PyTorch does not promote
_CHECKED = frozenset(("where", "clamp"))  # where PyTorch refuses numbers that do not fit the dtype of the result
NUMBERS = (float, int, bool, complex)
asarray = np.asarray


def is_operand(other):
    """Returns True if a value can be an operand of an operator. For other values, operators return NotImplemented."""
    return isinstance(other, (Tensor, Array, *NUMBERS, np.generic)) or is_raw(other) or looks_like_cupy(other)


def unpack_inputs(op, inputs):
    """Returns the raw arrays, edges and Arrays of the inputs of an op, with promoted dtypes and on one device.

    Numbers stay Python numbers, so that NumPy and CuPy promote them as PyTorch does. None stays None.

    Returns:
        A tuple (raws, edges, arrays, mask, as_tensor, xp, half):

        * `raws`, `edges`, `arrays`: lists with an item for each input;
        * `mask`: a bit for each input that has an edge;
        * `as_tensor`: True if results are Tensors;
        * `xp`: the namespace of the arrays, or the layout of an array that is not `strided` (layouts.py);
        * `half`: float16 or bfloat16 if the inputs have this dtype, else None (half.py).
    """
    # One loop collects everything, because it is part of each call of an op. `same` stays True as long as all inputs are NumPy arrays of
    # one dtype, the case in which neither devices nor dtypes need a look.
    raws, edges, arrays = [], [], []
    mask, bit = 0, 1
    first = None
    same = True
    has_tensor = has_array = False
    for t in inputs:
        array = edge = None
        if isinstance(t, Tensor):
            has_tensor = True
            array = t._mt_data
            raw = array._array
            view = t._mt_view
            if view is not None and view[0]._mt_edge is not view[1]:  # its base was changed in place since
                refresh(t)
            edge = t._mt_edge
            if edge is not None:
                mask |= bit
        elif t is None and len(raws) >= op.required:
            raw = None
        elif type(t) in NUMBERS:  # not isinstance: np.float64 is a float, and has a dtype that would promote
            raw = t
            same = False
        elif isinstance(t, Array):
            has_array = True
            array = t
            raw = t._array
        elif isinstance(t, np.generic):
            raw = t.item()
            if isinstance(raw, np.generic):  # of long double, which no tensor has
                raw = complex(raw) if raw.dtype.kind == "c" else float(raw)
            same = False
        elif is_raw(t) or looks_like_cupy(t):
            raw = as_raw(t)
            array = Array._wrap(raw)
        else:
            raise TypeError(f"{op.name}(): argument {op.input_name(len(raws))!r} must be Tensor, not {kind(t)}.")
        bit += bit
        raws.append(raw)
        edges.append(edge)
        arrays.append(array)
        if array is not None:
            if first is None:
                first = raw
            elif raw.dtype is not first.dtype or type(raw) is not ndarray:
                same = False
    if first is None:  # only numbers, as in mytorch.add(1, 2)
        raws = [r if r is None else as_raw(r) for r in raws]
        arrays = [None if r is None else Array._wrap(r) for r in raws]
    if op.integers:  # only the other inputs decide the dtype
        has_tensor, has_array = (any(isinstance(t, cls) for t in inputs[: op.floats]) for cls in (Tensor, Array))
    as_tensor = has_tensor or not has_array
    if same and type(first) is ndarray:
        dtype = first.dtype
        if op.dtype != "float" or dtype.kind in "fVc":
            return raws, edges, arrays, mask, as_tensor, numpy_ns, dtype if is_half(dtype) else None
    else:
        for raw in raws if BY_ARRAY else ():
            if type(raw) in BY_ARRAY and (layout := layout_of(raw)) is not strided:
                return raws, edges, arrays, mask, as_tensor, layout, None
        _same_device(op, raws, arrays, edges)
    xp = namespace(raws)
    if op.dtype != "same":
        _promote(op, inputs, raws, edges, arrays, xp)
    return raws, edges, arrays, mask, as_tensor, xp, half_of(raws)


def namespace(raws):
    """Returns the namespace of the first array in a sequence of values."""
    for raw in raws:
        if type(raw) is ndarray:
            return numpy_ns
        if raw is not None and is_raw(raw):
            return xp_of(raw)
    return numpy_ns


def _same_device(op, raws, arrays, edges):
    """Checks that all arrays are on one device. As in PyTorch, a 0-d CPU tensor or a CPU index is copied to another device."""
    here = {
        device_of(raw)
        for i, raw in enumerate(raws)
        if is_raw(raw) and raw.ndim and (i < op.floats or type(raw) is not ndarray)
    }
    if len(here) > 1:
        first, second = sorted(here, key=str, reverse=True)[:2]
        raise DeviceError(
            f"{op.name}: expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}; move one with .to(device)."
        )
    where = here.pop() if here else next((device_of(r) for r in raws if is_raw(r) and type(r) is not ndarray), CPU)
    if where is CPU:
        return
    for i, raw in enumerate(raws):
        if isinstance(raw, ndarray) and device_of(raw) is not where:
            if edges[i] is not None:
                raise DeviceError(f"{op.name}: a CPU tensor that requires grad joins one on {where}; move it with .to.")
            raws[i] = to_device(raw, where)
            arrays[i] = Array._wrap(raws[i])


def _promote(op, inputs, raws, edges, arrays, xp):
    """Casts the promoted inputs to one dtype, by PyTorch's rules. Casts are recorded."""
    if config.pytorch_mode and op.name in _ONE_DTYPE:
        dtypes.refuse_mixed(op.name, [dtypes.from_numpy(raw.dtype) for raw in raws if is_raw(raw)])
    if (
        config.pytorch_mode
        and op.name == "sub"
        and any(raw.dtype.kind == "b" if is_raw(raw) else type(raw) is bool for raw in raws)
    ):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
            "`~` or `logical_not()` operator instead."
        )
    which = op.promoted if op.promoted is not None else range(len(raws))
    ranks = ([], [], [])
    for i in which:
        raw = raws[i] if i < len(raws) else None
        if raw is None:
            continue
        if is_raw(raw):
            ranks[0 if raw.ndim else 1].append(dtypes.from_numpy(raw.dtype))
        else:
            ranks[2].append(dtypes.of_number(raw))
    result = dtypes.result_type(*ranks)
    if result is None:
        return
    if op.dtype == "float" and result.category < dtypes.FLOAT:
        result = dtypes.default_dtype()
    wanted = result.numpy
    for i in which:
        raw = raws[i] if i < len(raws) else None
        if raw is None:
            continue
        if not is_raw(raw):
            if op.name in _CHECKED or (op.name == "pow" and i):
                if op.name == "pow" and result.category == dtypes.INT and raw < 0:
                    raise RuntimeError("Integers to negative integer powers are not allowed.")
                raws[i] = raw = dtypes.fitting(raw, result, fill=op.name == "where")
            if result.category == dtypes.INT or result.category == dtypes.BOOL:
                raw = asarray(raw).astype(wanted)  # wraps around, as PyTorch does
                raws[i] = (
                    raw[()] if xp.kind.endswith("cuda") else raw
                )  # CuPy takes NumPy's scalars, and refuses its arrays
            elif type(raw) is bool:
                raws[i] = float(raw)
        elif raw.dtype != wanted:
            if op.keeps_python_scalars_float32 and stays_wide(raw, result):
                raws[i] = raw.astype(np.float32) if is_half(raw.dtype) else raw  # of another half precision
                continue
            if edges[i] is not None:
                cast = inputs[i].to(result)
                raws[i], edges[i], arrays[i] = cast._mt_data._array, cast._mt_edge, cast._mt_data
            else:
                raws[i] = kept(raw.astype(wanted), raw)
                arrays[i] = Array._wrap(raws[i])
