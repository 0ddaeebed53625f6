"""Matrix products on a GPU by NVIDIA's cuBLASLt, called through ctypes with CuPy's arrays, stream and memory.

    matmul(a, b)                                    a @ b, as in NumPy, with the last two axes in either order
    matmul(a, b, out=total, accumulate=True)        total += a @ b
    linear(x, weight, bias, activation="relu")      relu(x @ weightᵀ + bias), in one kernel
    gelu_gradients(g, weight, before)               (g @ weight) gelu'(before), and its sum over rows, in one kernel

CuPy's own products raise while a stream is captured into a CUDA graph, need more CPU time, and copy operands that
cuBLAS can read in place. This module avoids these costs:

* **No copies.** cuBLASLt is column-major. A row-major (m, n) matrix is a column-major (n, m) matrix, so y = a b is computed
  as yᵀ = bᵀ aᵀ. An operand whose columns are contiguous is flagged as transposed. Leading axes become one strided batch
  (stride 0 for a broadcast operand), or rows of one larger product. Other layouts are copied. `_Form` makes this decision.
* **Little CPU time.** Descriptors, layouts and the algorithm depend only on dtypes, shapes, strides and alignment. They
  are created once and stored in a `_Plan`. A later call looks up the plan and calls the library once.
* **Precision.** fp16 and bf16 are summed in float32, including the partial sums of a long inner axis. float32 is exact unless
  `mytorch.set_float32_matmul_precision` or `mytorch.backends.cuda.matmul.allow_tf32` allows TF32.

**CUDA graphs.** A call with an existing plan and workspace only enqueues kernels on the current stream and allocates its output
from CuPy's pool. So before a capture, each product must run once on the stream that will be captured. The first run
loads the library, allocates the workspace of the stream (32 MiB on Hopper) and creates the plans. With TRITON_AUTOTUNE_MODE=medium
or max, it also measures the algorithms. A workspace is freed with its stream. Graphs keep the stream on which they were captured alive. They
share its workspace, so they must not be replayed at the same time.

Reference: NVIDIA, "cuBLAS Library", chapter "Using the cuBLASLt API". The numbers below are defined in cublasLt.h.
"""

import ctypes
import ctypes.util
import importlib
import itertools
import math
import os
import threading
import weakref
from functools import lru_cache

import numpy as np

from ..arrays import config, cupy_ns
from ..arrays.dtypes import bfloat16
from ..arrays.errors import DeviceError

_HALVES = (np.dtype(np.float16), bfloat16.numpy)
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_TYPES = {_HALVES[0]: 2, _HALVES[1]: 14, _SINGLE: 0, _DOUBLE: 1}  # cudaDataType

# cublasComputeType_t, cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER, DESC_AUX_POINTER, DESC_AUX_LD = 3, 4, 7, 8, 11, 12
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_OFFSET = 5, 6
PREF_WORKSPACE, PREF_REDUCTIONS, PREF_ALIGNMENTS = 1, 3, (5, 6, 7, 8)
REDUCE_IN_COMPUTE_TYPE = 2
EPILOGUES = {  # (bias, activation, True if the activation's input is stored too) -> cublasLtEpilogue_t
    (False, None, False): 1, (True, None, False): 4, (False, "relu", False): 2, (True, "relu", False): 6,
    (False, "gelu_tanh", False): 32, (True, "gelu_tanh", False): 36, (False, "gelu_tanh", True): 160, (True, "gelu_tanh", True): 164,
}  # fmt: skip
BIAS_GRADIENT = 512  # CUBLASLT_EPILOGUE_BGRADB: stores the second operand's sum over the inner axis at the bias pointer
GELU_GRADIENT, AND_BIAS = 192, 16  # …_DGELU: times gelu' of the aux matrix; …_DGELU_BGRAD: also the sum of the result
NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED

_P, _I, _Z, _U64, _I64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64
_ARGUMENTS = {"P": _P, "I": _I, "Z": _Z, "U": _U64, "L": _I64}
_LETTERS = {  # function name without cublasLt -> its argument types, by the letters above
    "Create": "P", "MatmulDescCreate": "PII", "MatmulDescSetAttribute": "PIPZ", "MatmulDescDestroy": "P",
    "MatrixLayoutCreate": "PIUUL", "MatrixLayoutSetAttribute": "PIPZ", "MatrixLayoutDestroy": "P",
    "MatmulPreferenceCreate": "P", "MatmulPreferenceSetAttribute": "PIPZ", "MatmulPreferenceDestroy": "P",
    "MatmulAlgoGetHeuristic": "PPPPPPPIPP", "Matmul": "PPPPPPPPPPPPPPZP",
}  # fmt: skip
_SIGNATURES = {f"cublasLt{name}": tuple(map(_ARGUMENTS.get, letters)) for name, letters in _LETTERS.items()}


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm and its requirements."""

    _fields_ = (
        ("algorithm", _U64 * 8), ("workspace", _Z), ("state", _I), ("waves", ctypes.c_float), ("reserved", _I * 4),
    )  # fmt: skip


class Unsupported(RuntimeError):
    """cuBLASLt has no algorithm for a product; another library may."""


# -- the library --------------------------------------------------------------------------------------------------------


def _find(major):
    """Returns the shared library for CUDA `major`: an already loaded library, the library that CuPy would load, or the system's library."""
    soname = f"libcublasLt.so.{major}"
    try:
        # RTLD_NOLOAD succeeds only if the library is already in the process: use the same copy as CuPy.
        return ctypes.CDLL(soname, mode=getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_NOW", 0))
    except OSError:
        pass

    def by_pathfinder():
        # CuPy uses the same function since version 14.
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt")

    for preload in (
        by_pathfinder,
        lambda: None,
        lambda: cupy_ns().cuda.get_cublas_handle(),
    ):  # creating a cuBLAS handle loads cuBLASLt
        try:
            preload()
            return ctypes.CDLL(soname)
        except Exception as error:  # not installed, not found, no GPU: the classes differ
            problem = error
    path = ctypes.util.find_library("cublasLt")
    if path is None:
        raise DeviceError(
            f"cuBLASLt can't be loaded ({problem}); {soname} comes with CuPy's wheels and with the CUDA toolkit."
        )
    return ctypes.CDLL(path)


_library = None
_device = _stream = None  # CuPy's functions that return the current device and stream
_handles = {}  # device -> cublasLtHandle_t
_homes = {}  # (device, stream) -> (handle, address of the workspace, its size, its array)


def load():
    """Returns the library with the signatures of its functions. It is loaded once.

    Raises:
        DeviceError: the library is missing, or there is no GPU.
    """
    global _library, _device, _stream
    if _library is None:
        cuda = cupy_ns().cuda
        library = _find(cuda.runtime.runtimeGetVersion() // 1000)
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = _I, arguments
        library.cublasLtGetStatusName.restype, library.cublasLtGetStatusName.argtypes = ctypes.c_char_p, (_I,)
        library.cublasLtGetVersion.restype, library.cublasLtGetVersion.argtypes = _Z, ()
        _device, _stream = cuda.runtime.getDevice, cuda.get_current_stream
        _library = library
    return _library


def _check(status, function, about):
    """Raises an error if a cuBLASLt status is not 0. `about` describes the product."""
    if status:
        error_class = Unsupported if status == NOT_SUPPORTED else RuntimeError
        raise error_class(f"{function} returned {_status_name(status)} for {about}.")


def _status_name(status):
    return _library.cublasLtGetStatusName(status).decode()


def _home(device, stream):
    """Returns handle and workspace for products on a stream of a device, created on first use."""
    library = load()
    if device not in _handles:
        handle = _P()
        _check(library.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate", f"device {device}")
        _handles[device] = handle.value
    xp = cupy_ns()
    size = (32 if int(xp.cuda.Device(device).compute_capability) >= 90 else 4) << 20  # NVIDIA's recommendation
    workspace = xp.empty(size, np.uint8)
    home = _homes[device, stream] = _handles[device], workspace.data.ptr, size, workspace
    # Free the workspace with its stream: its address could belong to another stream later.
    weakref.finalize(_stream(), _homes.pop, (device, stream), None).atexit = False
    return home


# -- layout of the operands ------------------------------------------------------------------------------------------------


def _matrix(shape, strides):
    """Returns (transposed, leading dimension) of a matrix with strides in elements; None if neither rows nor columns are contiguous."""
    (rows, cols), (down, right) = shape, strides
    # The stride of an axis of size 1 is arbitrary.
    if (right == 1 or cols == 1) and (down >= cols or rows == 1):
        return False, down if rows > 1 else cols
    if (down == 1 or rows == 1) and (right >= rows or cols == 1):
        return True, right if cols > 1 else rows
    return None


class _Form:
    """Form of the product of arrays with given shapes and strides as cuBLASLt calls.

    Attributes:
        copies: for a, b and out, None or the kind of copy needed first: "matrix" or the whole "batch". If any copy is needed,
            the other attributes are not set.
        swapped: True if outᵀ = bᵀ aᵀ is computed, since the columns of out are contiguous.
        m, n, k: sizes of the row-major product. left, right, result: (transposed, leading dimension, batch stride).
        batch: number of products of one call.
        offsets: the begin of the operands of each call, in elements.
    """

    MOST_CALLS = 16  # more calls take longer than a copy

    def __init__(self, shapes, strides):
        self.copies = self._scattered(shapes, strides)
        if any(self.copies):
            return
        kinds = [_matrix(shape[-2:], steps[-2:]) for shape, steps in zip(shapes, strides, strict=True)]
        (self.m, self.k), self.n = shapes[0][-2:], shapes[1][-1]
        dims = self._batch_dims(shapes, strides)
        kinds, dims = self._as_rows(kinds, dims)
        if any(size > 1 and dims_step == 0 for size, *_, dims_step in dims):
            raise ValueError("matmul: expected an out tensor without overlapping elements.")
        # One batch dimension fits into a call. The largest becomes the batch, the others separate calls.
        calls = []
        if len(dims) > 1:
            all_dims, inner = dims, max(dims)
            dims = [d for d in dims if d is not inner]
            if math.prod(size for size, *_ in dims) > self.MOST_CALLS:
                self.copies = [None if self._collapses(all_dims, i) else "batch" for i in range(1, 4)]
                return
            calls, dims = dims, [inner]
        self.offsets = [(0, 0, 0)]
        # Offsets of all calls: the sums over all combinations of the outer dimensions.
        for size, *steps in calls:
            outer, inner = self.offsets, [[i * s for s in steps] for i in range(size)]
            self.offsets = [tuple(map(sum, zip(*pair, strict=True))) for pair in itertools.product(outer, inner)]
        self.batch, *steps = dims[0] if dims else (1, 0, 0, 0)
        self.left, self.right, self.result = ((*kind, step) for kind, step in zip(kinds, steps, strict=True))
        # A transposed result: compute outᵀ = bᵀ aᵀ instead, which exchanges the operands and transposes each.
        self.swapped = self.result[0]
        if self.swapped:
            self.m, self.n = self.n, self.m
            self.left, self.right = ((not transposed, ld, step) for transposed, ld, step in (self.right, self.left))

    @staticmethod
    def _scattered(shapes, strides):
        """Returns "matrix" for arrays without contiguous rows or columns, or with negative batch strides, otherwise None."""

        def scattered(shape, steps):
            backwards = any(s < 0 < n - 1 for n, s in zip(shape[:-2], steps, strict=False))
            return backwards or _matrix(shape[-2:], steps[-2:]) is None

        return ["matrix" if scattered(*pair) else None for pair in zip(shapes, strides, strict=True)]

    @staticmethod
    def _batch_dims(shapes, strides):
        """Returns the leading axes as [size, step of a, step of b, step of out], outermost first, merged where all three allow it."""
        batch = shapes[2][:-2]
        dims = []
        for axis, size in enumerate(batch, -len(batch)):
            if size == 1:
                continue
            steps = []
            for shape, all_steps in zip(shapes, strides, strict=True):
                present = -axis <= len(shape) - 2 and shape[axis - 2] != 1
                # A broadcast operand has step 0.
                steps.append(all_steps[axis - 2] if present else 0)
            if dims and all(old == step * size for old, step in zip(dims[-1][1:], steps, strict=True)):
                dims[-1] = [dims[-1][0] * size, *steps]
            else:
                dims.append([size, *steps])
        return dims

    def _as_rows(self, kinds, dims):
        """Merges a batch into one product with more rows, if b is shared and the rows of a and out are evenly spaced."""
        left, right, result = kinds
        if len(dims) == 1 and dims[0][2] == 0:
            size, step, _, out_step = dims[0]
            if left[0] or result[0]:
                return kinds, dims
            if self.m == 1:  # each matrix of the batch is one row
                left, result = (False, step), (False, out_step)
            if step == self.m * left[1] >= self.k and out_step == self.m * result[1] >= self.n:
                self.m *= size
                return [left, right, result], []
        return kinds, dims

    @staticmethod
    def _collapses(dims, which):
        """Returns True if one array's steps over several axes, outermost first, form one stride (or are all 0)."""
        return all(outer[which] == inner[which] * inner[0] for outer, inner in itertools.pairwise(dims))


class _Plan:
    """Descriptor, layouts and algorithm of the products of one key. Freed with the last reference."""

    def __init__(self, form, types, fast, epilogue, aux_step, alignment, home, about):
        self.library = load()
        self.form, self.about, self.owned = form, about, []
        kind, out_kind = types
        itemsize, out_itemsize = kind.itemsize, out_kind.itemsize
        self.swapped = form.swapped
        in_order = [(a, b, o) if form.swapped else (b, a, o) for a, b, o in form.offsets]
        self.calls = [(first * itemsize, second * itemsize, o * out_itemsize) for first, second, o in in_order]
        compute = COMPUTE_64F if kind == _DOUBLE else COMPUTE_32F_FAST_TF32 if fast else COMPUTE_32F
        number = ctypes.c_double if kind == _DOUBLE else ctypes.c_float
        # The library reads these numbers at each call, so the plan keeps them alive.
        self.one, self.zero = (number(1), number(0))
        self.one_at, self.zero_at = ctypes.addressof(self.one), ctypes.addressof(self.zero)
        self.operation = self._make("cublasLtMatmulDesc", compute, _TYPES[_DOUBLE if kind == _DOUBLE else _SINGLE])
        # Column-major: the first operand is the right matrix of the row-major product.
        self._set("cublasLtMatmulDesc", self.operation, DESC_TRANSA, ctypes.c_int32(form.right[0]))
        self._set("cublasLtMatmulDesc", self.operation, DESC_TRANSB, ctypes.c_int32(form.left[0]))
        self._set("cublasLtMatmulDesc", self.operation, DESC_EPILOGUE, ctypes.c_uint32(epilogue))
        for attribute in self.pointers(epilogue):  # placeholder with the smallest alignment of later addresses
            self._set("cublasLtMatmulDesc", self.operation, attribute, _U64((1 << 40) + alignment))
        if aux_step is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_AUX_LD, _I64(aux_step))
        self.first = self._layout(_TYPES[kind], form.n, form.k, form.right)
        self.second = self._layout(_TYPES[kind], form.k, form.m, form.left)
        self.result = self._layout(_TYPES[out_kind], form.n, form.m, (False, *form.result[1:]))
        # The offsets of several calls may lower the alignment.
        for call in self.calls:
            for offset in call:
                alignment = math.gcd(alignment, offset) if offset else alignment
        self.algorithms = self._algorithms(home, alignment, out_kind in _HALVES)
        self.take(0)

    @staticmethod
    def pointers(epilogue):
        """Returns the attributes of an epilogue that are addresses."""
        bias, aux = epilogue & (4 | AND_BIAS | BIAS_GRADIENT), epilogue & 128
        return [DESC_BIAS_POINTER] * bool(bias) + [DESC_AUX_POINTER] * bool(aux)

    def _make(self, what, *arguments):
        """Creates a descriptor, which is destroyed with the plan."""
        handle = _P()
        _check(getattr(self.library, what + "Create")(ctypes.byref(handle), *arguments), what + "Create", self.about)
        self.owned.append((getattr(self.library, what + "Destroy"), handle.value))
        return handle.value

    def _set(self, what, descriptor, attribute, value):
        call = getattr(self.library, what + "SetAttribute")
        status = call(descriptor, attribute, ctypes.byref(value), ctypes.sizeof(value))
        _check(status, f"{what}SetAttribute({attribute})", self.about)

    def _layout(self, dtype, rows, cols, matrix):
        """Creates the layout of a column-major (rows, cols) matrix, (cols, rows) in memory if transposed."""
        transposed, ld, step = matrix
        if transposed:
            rows, cols = cols, rows
        layout = self._make("cublasLtMatrixLayout", dtype, rows, cols, ld)
        if self.form.batch > 1:
            self._set("cublasLtMatrixLayout", layout, LAYOUT_BATCH_COUNT, ctypes.c_int32(self.form.batch))
            self._set("cublasLtMatrixLayout", layout, LAYOUT_BATCH_OFFSET, _I64(step))
        return layout

    def _algorithms(self, home, alignment, half):
        """Returns the algorithms of cuBLASLt's heuristic, best first, up to the number of candidates."""
        handle, _, size, _ = home
        preference = self._make("cublasLtMatmulPreference")
        self._set("cublasLtMatmulPreference", preference, PREF_WORKSPACE, _U64(size))
        # Partial sums of a split inner axis must be added in float32, not in half precision.
        if half:
            self._set("cublasLtMatmulPreference", preference, PREF_REDUCTIONS, ctypes.c_uint32(REDUCE_IN_COMPUTE_TYPE))
        for attribute in PREF_ALIGNMENTS:
            self._set("cublasLtMatmulPreference", preference, attribute, ctypes.c_uint32(alignment))
        limit = _CANDIDATES[_tuning_mode()]
        results, count = (Heuristic * limit)(), _I()
        product = self.operation, self.first, self.second, self.result, self.result
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            handle, *product, preference, limit, results, ctypes.byref(count)
        )
        usable = [r for r in results[: count.value] if r.state == 0]
        if status or not usable:
            why = f"{_status_name(status)}, {count.value} results"
            raise Unsupported(f"cuBLASLt has no algorithm ({why}) for {self.about}.")
        return usable

    def run(self, home, stream, a, b, out, beta):
        """Enqueues the product of the matrices at addresses a and b. It is added to `out` if beta is `one_at` instead of `zero_at`."""
        first, second = (a, b) if self.swapped else (b, a)
        handle, workspace, size, _ = home
        for at_first, at_second, at_out in self.calls:
            result_address = out + at_out
            status = self.library.cublasLtMatmul(
                handle, self.operation, self.one_at, first + at_first, self.first, second + at_second, self.second,
                beta, result_address, self.result, result_address, self.result, self.algorithm, workspace, size, stream,
            )  # fmt: skip
            if status:
                _check(status, "cublasLtMatmul", self.about)

    def take(self, rank):
        """Selects the algorithm of this rank."""
        self.algorithm = ctypes.addressof(self.algorithms[min(rank, len(self.algorithms) - 1)])

    def point_to(self, bias, aux):
        """Sets the addresses of the epilogue."""
        if bias is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_BIAS_POINTER, _U64(bias.data.ptr))
        if aux is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_AUX_POINTER, _U64(aux.data.ptr))

    def __del__(self):
        for destroy, descriptor in self.owned:
            destroy(descriptor)


_CANDIDATES = {"none": 1, "medium": 8, "max": 32}  # mode -> number of algorithms to try
_MOST_PLANS = 4096
_plans = {}  # key -> _Plan, an error message if cuBLASLt has no algorithm, or the copies that a, b and out need
_addresses = threading.Lock()  # held while a descriptor's addresses are set and used


def _tuning_mode():
    """Returns TRITON_AUTOTUNE_MODE; "none" without Triton, since Triton's tuner is used."""
    if not os.environ.get("TRITON_AUTOTUNE_MODE"):
        return "none"
    try:
        return importlib.import_module("mytorch.kernels.launch").mode_for()
    except ModuleNotFoundError:
        return "none"


def _uneven(x):
    """Returns True if strides of x are not multiples of its item size, as in a view of a structured array."""
    return any(s % x.itemsize and n > 1 for n, s in zip(x.shape, x.strides, strict=True))


def _new_plan(key, a, b, out, home, epilogue, aux_step):
    """Creates and stores the value of `_plans` for a key."""
    if len(_plans) >= _MOST_PLANS:
        _plans.pop(next(iter(_plans)), None)
    arrays = (a, b, out)
    about = f"{a.dtype.name} {a.shape} @ {b.shape} to {out.dtype.name}, strides {a.strides}, {b.strides}, {out.strides}"
    plan = tuple("matrix" if _uneven(x) else None for x in arrays)
    if not any(plan):
        form = _Form([x.shape for x in arrays], [[step // x.itemsize for step in x.strides] for x in arrays])
        plan = tuple(form.copies)
    if not any(plan):
        alignment, fast = key[-4:-2]
        try:
            plan = _Plan(form, (a.dtype, out.dtype), fast, epilogue, aux_step, alignment, home, about)
        except Unsupported as error:
            plan = str(error)
    _plans[key] = plan
    return plan


def _run(a, b, out, accumulate=False, epilogue=1, bias=None, aux=None):
    """Computes out = epilogue(a @ b), or out += a @ b, for arrays with at least two axes that are not empty."""
    if _library is None:
        load()
    device = _device()
    stream = _stream().ptr
    home = _homes.get((device, stream)) or _home(device, stream)
    a_at, b_at, out_at = a.data.ptr, b.data.ptr, out.data.ptr
    # Lowest set bit of all addresses = their common alignment, at most 256 bytes. Algorithms depend on it.
    address_bits = a_at | b_at | out_at | 256
    if bias is not None:
        address_bits |= bias.data.ptr
    aux_step = None
    if aux is not None:
        address_bits |= aux.data.ptr
        aux_step = aux.strides[0] // aux.itemsize
    dtype = a.dtype
    fast = config.float32_matmul_precision != "highest" and dtype == _SINGLE
    sizes = a.shape, a.strides, b.shape, b.strides, out.strides
    key = (device, dtype, out.dtype, *sizes, address_bits & -address_bits, fast, epilogue, aux_step)
    plan = _plans.get(key)
    if plan is None:
        plan = _new_plan(key, a, b, out, home, epilogue, aux_step)
        if type(plan) is _Plan and len(plan.algorithms) > 1:
            _tune(plan, key, home, stream, a, b, out, bias, aux)
    if type(plan) is _Plan:
        beta = plan.one_at if accumulate else plan.zero_at
        if epilogue == 1:
            plan.run(home, stream, a_at, b_at, out_at, beta)
        else:
            # The epilogue's addresses are part of the shared descriptor, so no other thread may change them now.
            with _addresses:
                plan.point_to(bias, aux)
                plan.run(home, stream, a_at, b_at, out_at, beta)
        return out
    if type(plan) is str:
        raise Unsupported(plan)
    return _run_on_copies(plan, a, b, out, accumulate, epilogue, bias, aux)


def _run_on_copies(which, a, b, out, *rest):
    """Calls `_run` with copies of a, b and out, as `which` requires."""
    xp, batch = cupy_ns(), out.shape[:-2]

    def copied(x, how):
        x = xp.broadcast_to(x, batch + x.shape[-2:]) if how == "batch" else x
        return xp.ascontiguousarray(x) if how else x

    a, b = copied(a, which[0]), copied(b, which[1])
    if not which[2]:
        return _run(a, b, out, *rest)
    out[...] = _run(a, b, xp.array(out, order="C"), *rest)
    return out


def _tune(plan, key, home, stream, a, b, out, bias, aux):
    """Selects the fastest algorithm of a new plan, from the tuning cache or by measuring."""
    launch = importlib.import_module("mytorch.kernels.launch")
    before = []  # the contents of out, which measuring overwrites

    def attempt(candidate):
        if not before:
            before.append(out.copy())
        plan.take(candidate["rank"])
        plan.run(home, stream, a.data.ptr, b.data.ptr, out.data.ptr, plan.zero_at)

    form, ranks, few = plan.form, [{"rank": i} for i in range(len(plan.algorithms))], _CANDIDATES["medium"]
    sizes = form.m, form.n, form.k, form.batch, form.left, form.right, form.result
    name = load().cublasLtGetVersion(), a.dtype.name, out.dtype.name, *sizes, *key[-4:]
    candidates = {"none": ranks[:1], "medium": ranks[1:few], "max": ranks[few:]}
    with _addresses:
        plan.point_to(bias, aux)
        best = launch.tuned(matmul, name, candidates, attempt)
    plan.take(best["rank"])
    if launch.is_capturing():  # nothing was measured: a later call outside the capture creates the plan again
        _plans.pop(key, None)
    if before:
        out[...] = before[0]


# -- public functions ----------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def _shape(a, b):
    """Returns the shape of the product of arrays with two or more axes."""
    if a[-1] != b[-2]:
        raise ValueError(f"matmul: shapes {a} and {b} can't be multiplied: the inner sizes are {a[-1]} and {b[-2]}.")
    if len(a) == len(b) == 2:
        return a[0], b[1]
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def takes(a, b):
    """Returns True if `matmul` supports the dtypes: both float16, bfloat16, float32 or float64."""
    return a.dtype in _TYPES and a.dtype == b.dtype


def writes(kind, out):
    """Returns True if a product of dtype `kind` can be stored as dtype `out`: the same, or float32 for 16-bit operands."""
    return out == kind or (kind in _HALVES and out == _SINGLE)


def matmul(a, b, out=None, *, dtype=None, accumulate=False):
    """Returns a @ b, summed in float32 (float64 for float64).

    Args:
        a: (…, M, K), or (K,). b: (…, K, N), or (K,). Leading axes broadcast.
        out: array to write to; it must not overlap a or b.
        dtype: dtype of a new output; by default the dtype of a. 16-bit operands also allow float32.
        accumulate: add to the values in `out`.

    Returns:
        (…, M, N), without the axes that a vector lacks.

    Raises:
        ValueError: incompatible shapes. TypeError: other dtypes. Unsupported: cuBLASLt has no algorithm; nothing was written.
    """
    in_dtype = a.dtype
    if in_dtype not in _TYPES or b.dtype != in_dtype:
        dtypes = f"{in_dtype.name} and {b.dtype.name}"
        raise TypeError(f"matmul: expected two arrays of float16, bfloat16, float32 or float64, got {dtypes}.")
    if a.ndim < 2 or b.ndim < 2:
        return _with_vectors(a, b, out, dtype, accumulate)
    shape = _shape(a.shape, b.shape)
    if out is None:
        if accumulate:
            raise ValueError("matmul: accumulate=True adds to `out`, which was not given.")
        out = _empty(shape, in_dtype if dtype is None else np.dtype(dtype))
    elif out.shape != shape or (dtype is not None and out.dtype != dtype):
        expected = np.dtype(dtype or out.dtype).name
        raise ValueError(f"matmul: out is {out.dtype.name} {out.shape}, and the product {expected} {shape}.")
    if not writes(in_dtype, out.dtype):
        raise TypeError(f"matmul: the product of {in_dtype.name} can't be written as {out.dtype.name}.")
    if not out.size or not a.shape[-1]:
        if not accumulate:
            out.fill(0)
        return out
    return _run(a, b, out, accumulate)


def _empty(shape, kind):
    return cupy_ns().empty(shape, kind)


def _with_vectors(a, b, out, dtype, accumulate):
    """Computes `matmul` with vectors, which temporarily become a row or a column."""
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: an operand is a number; it takes vectors and matrices.")
    axes = (-2,) * (a.ndim == 1) + (-1,) * (b.ndim == 1)
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    if out is not None:
        for axis in reversed(axes):
            out = cupy_ns().expand_dims(out, axis)
    return cupy_ns().squeeze(matmul(rows, columns, out, dtype=dtype, accumulate=accumulate), axes)


def linear(x, weight, bias=None, *, activation=None, before=False):
    """Returns activation(x @ weightᵀ + bias). Bias and activation are applied before the product is written.

    Args:
        x: (…, in). weight: (out, in). bias: (out,), of x's dtype.
        activation: None, "relu" or "gelu_tanh".
        before: also return the input of the activation (GELU only; ReLU's derivative follows from its output).

    Returns:
        (…, out); with `before`, both.

    Raises:
        ValueError: incompatible shapes, or an unknown activation. TypeError, Unsupported: as for `matmul`.
    """
    name = (bias is not None, activation, before)
    if name not in EPILOGUES:
        raise ValueError(f"linear: there is no epilogue for activation={activation!r}, before={before}.")
    bad_bias = bias is not None and (bias.dtype != x.dtype or bias.shape != weight.shape[:1])
    if weight.ndim != 2 or not takes(x, weight) or bad_bias:
        shapes = ", ".join(f"{v.dtype.name} {v.shape}" for v in (x, weight, bias) if v is not None)
        error_class = ValueError if takes(x, weight) else TypeError
        raise error_class(f"linear: expected (…, in), (out, in) and (out,) of one float dtype, got {shapes}.")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    shape = _shape(rows.shape, weight.shape[::-1])
    out = _empty(shape, x.dtype)
    # cuBLASLt requires aux rows of 8 elements.
    aux = _empty((shape[0], -(-shape[1] // 8) * 8), x.dtype)[:, : shape[1]] if before else None
    if bias is not None and (bias.data.ptr & 15 or bias.strides[0] != bias.itemsize):
        bias = bias.copy()
    if out.size and x.shape[-1]:
        _run(rows, weight.T, out, False, EPILOGUES[name], bias, aux)
    elif out.size:
        # An empty inner axis: a product of zeros applies bias and activation.
        column, row = (cupy_ns().zeros(s, x.dtype) for s in ((*x.shape[:-1], 1), (shape[1], 1)))
        return linear(column, row, bias, activation=activation, before=before)
    shape = (*x.shape[:-1], weight.shape[0])
    return (out.reshape(shape), aux.reshape(shape)) if before else out.reshape(shape)


def weight_gradients(g, x):
    """Returns the gradients of a linear layer's weight and bias in one kernel: gᵀ @ x and the sum of g over its rows.

    Args:
        g: (rows, out). x: (rows, in), of g's dtype.

    Returns:
        (out, in) and (out,).

    Raises:
        ValueError, TypeError, Unsupported: as for `matmul`.
    """
    if g.ndim != 2 or x.ndim != 2 or g.shape[0] != x.shape[0]:
        raise ValueError(f"weight_gradients: expected (rows, out) and (rows, in), got {g.shape} and {x.shape}.")
    if not takes(g, x):
        dtypes = f"{g.dtype.name} and {x.dtype.name}"
        raise TypeError(f"weight_gradients: expected two arrays of one float dtype, got {dtypes}.")
    out, total = _empty((g.shape[1], x.shape[1]), g.dtype), _empty((g.shape[1],), g.dtype)
    if not g.size or not x.size:
        return matmul(g.T, x), g.sum(0)
    return _run(g.T, x, out, False, BIAS_GRADIENT, total), total


def gelu_gradients(g, weight, before, bias=False):
    """Returns the gradient of `before` in linear(gelu(before, "tanh")), in one kernel: (g @ weight) gelu'(before).

    Args:
        g: (rows, out). weight: (out, in). before: (rows, in), with contiguous rows that begin at multiples of 8 elements
            and 16 bytes, as in the result of `linear(…, before=True)`. All of one dtype.
        bias: also sum the result over its rows: the gradient of the bias that was added in `before`.

    Returns:
        (rows, in), and the sum (in,) or None.

    Raises:
        ValueError, TypeError, Unsupported: as for `matmul`.
    """
    if g.ndim != 2 or before.shape != _shape(g.shape, weight.shape) or not in_eights(before):
        raise ValueError(
            f"gelu_gradients: expected (rows, out), (out, in) and (rows, in) in rows of 16 bytes, got {g.shape}, "
            f"{weight.shape} and {before.shape} of strides {before.strides}."
        )
    if not takes(g, weight) or before.dtype != g.dtype:
        dtypes = ", ".join(v.dtype.name for v in (g, weight, before))
        raise TypeError(f"gelu_gradients: expected three arrays of one float dtype, got {dtypes}.")
    out, total = _empty(before.shape, g.dtype), _empty(before.shape[1:], g.dtype) if bias else None
    if not out.size or not g.shape[1]:
        out.fill(0)
        return out, total if total is None else out.sum(0)
    return _run(g, weight, out, False, GELU_GRADIENT | (AND_BIAS if bias else 0), total, before), total


def in_eights(before):
    """Returns True if an epilogue can read a matrix: contiguous rows that begin at multiples of 8 elements and 16 bytes."""
    down, right = before.strides
    return right == before.itemsize and down % (8 * before.itemsize) == 0 and before.data.ptr % 16 == 0
