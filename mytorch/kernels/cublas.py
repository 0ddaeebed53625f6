"""Matrix products on a GPU by NVIDIA's cuBLASLt, called through ctypes on CuPy's arrays, stream and memory.

    matmul(a, b)                                    a @ b, as NumPy's, with the last two axes in either order
    matmul(a, b, out=total, accumulate=True)        total += a @ b
    linear(x, weight, bias, activation="relu")      relu(x @ weightᵀ + bias), in one kernel
    gelu_gradients(g, weight, before)               (g @ weight) gelu'(before), and its sum over rows, in one kernel

CuPy's own products refuse to run while a stream is captured into a CUDA graph, cost more time on the CPU, and copy
operands that cuBLAS reads as they are. Here

* **No copies.** cuBLASLt counts columns first. A row-major (m, n) is a column-major (n, m), so y = a b is handed over as
  yᵀ = bᵀ aᵀ, and an operand whose rows are contiguous in the other direction is flagged as transposed. Leading axes
  become one strided batch (stride 0 where an operand broadcasts), or rows of one larger product. What has no such
  form is copied: `_Form` decides.
* **Little CPU time.** Descriptors, layouts and the algorithm depend on dtypes, shapes, strides and alignment alone. They
  are made once and kept in a `_Plan`; a later call looks it up and makes one call of the library.
* **Precision.** fp16 and bf16 are summed in float32, partial sums of a long inner axis too. float32 is exact unless
  `mytorch.set_float32_matmul_precision` or `mytorch.backends.cuda.matmul.allow_tf32` says otherwise.

**CUDA graphs.** A call that has its plan and its workspace only enqueues kernels on the current stream and takes its output
from CuPy's pool. So before a capture each product must have run once on the very stream that will be captured: this
loads the library, makes the workspace of that stream (32 MiB on Hopper), the plans, and, with TRITON_AUTOTUNE_MODE=medium
or max, measures the algorithms. A workspace is freed with its stream, which the graphs that were captured on it keep; they
share it, and must not be replayed at the same time.

Reference: NVIDIA, "cuBLAS Library", chapter "Using the cuBLASLt API"; the numbers below are those of cublasLt.h.
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

from ..backend import cupy_ns
from ..base import config
from ..base.dtypes import bfloat16
from ..base.errors import DeviceError

_HALVES = (np.dtype(np.float16), bfloat16.numpy)
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_TYPES = {_HALVES[0]: 2, _HALVES[1]: 14, _SINGLE: 0, _DOUBLE: 1}  # cudaDataType

# cublasComputeType_t, cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER, DESC_AUX_POINTER, DESC_AUX_LD = 3, 4, 7, 8, 11, 12
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_OFFSET = 5, 6
PREF_WORKSPACE, PREF_REDUCTIONS, PREF_ALIGNMENTS = 1, 3, (5, 6, 7, 8)
REDUCE_IN_COMPUTE_TYPE = 2
EPILOGUES = {  # (bias, activation, whether its input is written too) -> cublasLtEpilogue_t
    (False, None, False): 1, (True, None, False): 4, (False, "relu", False): 2, (True, "relu", False): 6,
    (False, "gelu_tanh", False): 32, (True, "gelu_tanh", False): 36, (False, "gelu_tanh", True): 160, (True, "gelu_tanh", True): 164,
}  # fmt: skip
BIAS_GRADIENT = 512  # CUBLASLT_EPILOGUE_BGRADB: the second operand's sum over the inner axis goes where the bias lies
GELU_GRADIENT, AND_BIAS = 192, 16  # …_DGELU: times the slope at what lies at aux; …_DGELU_BGRAD: the result's sum too
NOT_SUPPORTED = 15  # of cublasStatus_t

_P, _I, _Z, _U64, _I64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64
_ARGUMENTS = {"P": _P, "I": _I, "Z": _Z, "U": _U64, "L": _I64}
_LETTERS = {  # function, after cublasLt -> its arguments, by the letters above
    "Create": "P", "MatmulDescCreate": "PII", "MatmulDescSetAttribute": "PIPZ", "MatmulDescDestroy": "P",
    "MatrixLayoutCreate": "PIUUL", "MatrixLayoutSetAttribute": "PIPZ", "MatrixLayoutDestroy": "P",
    "MatmulPreferenceCreate": "P", "MatmulPreferenceSetAttribute": "PIPZ", "MatmulPreferenceDestroy": "P",
    "MatmulAlgoGetHeuristic": "PPPPPPPIPP", "Matmul": "PPPPPPPPPPPPPPZP",
}  # fmt: skip
_SIGNATURES = {f"cublasLt{name}": tuple(map(_ARGUMENTS.get, letters)) for name, letters in _LETTERS.items()}


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm and what it needs."""

    _fields_ = (
        ("algorithm", _U64 * 8), ("workspace", _Z), ("state", _I), ("waves", ctypes.c_float), ("reserved", _I * 4),
    )  # fmt: skip


class Unsupported(RuntimeError):
    """cuBLASLt has no algorithm for a product; another library may."""


# -- the library --------------------------------------------------------------------------------------------------------


def _find(major):
    """The shared library for CUDA `major`: the one that is loaded already, the one that CuPy would load, or the system's."""
    soname = f"libcublasLt.so.{major}"
    try:
        return ctypes.CDLL(soname, mode=getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_NOW", 0))
    except OSError:
        pass

    def by_pathfinder():
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt")  # CuPy's own way since 14

    for preload in (by_pathfinder, lambda: None, lambda: cupy_ns().cuda.get_cublas_handle()):  # the last one needs it
        try:
            preload()
            return ctypes.CDLL(soname)
        except Exception as error:  # not installed, not found, no GPU: each has its own class
            problem = error
    found = ctypes.util.find_library("cublasLt")
    if found is None:
        raise DeviceError(
            f"cuBLASLt can't be loaded ({problem}); {soname} comes with CuPy's wheels and with the CUDA toolkit."
        )
    return ctypes.CDLL(found)


_library = None
_device = _stream = None  # CuPy's functions for what is current
_handles = {}  # device -> cublasLtHandle_t
_homes = {}  # (device, stream) -> (handle, address of the workspace, its size, its array)


def load():
    """The library, with its functions' signatures; loaded once.

    Raises:
        DeviceError: it is not there, or there is no GPU.
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
    """Raise for a status of cuBLASLt's; `about` says of which product."""
    if status:
        kind = Unsupported if status == NOT_SUPPORTED else RuntimeError
        raise kind(f"{function} returned {_status_name(status)} for {about}.")


def _status_name(status):
    return _library.cublasLtGetStatusName(status).decode()


def _home(device, stream):
    """Handle and workspace for products on a stream of a device; made by the first of them."""
    library = load()
    if device not in _handles:
        handle = _P()
        _check(library.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate", f"device {device}")
        _handles[device] = handle.value
    xp = cupy_ns()
    size = (32 if int(xp.cuda.Device(device).compute_capability) >= 90 else 4) << 20  # as NVIDIA recommends
    workspace = xp.empty(size, np.uint8)
    found = _homes[device, stream] = _handles[device], workspace.data.ptr, size, workspace
    weakref.finalize(_stream(), _homes.pop, (device, stream), None).atexit = False
    return found


# -- how operands are handed over ------------------------------------------------------------------------------------------


def _matrix(shape, strides):
    """(turned, ld) of a matrix of given strides in elements: rows, or columns if turned, lie `ld` apart; None if neither are contiguous."""
    (rows, cols), (down, right) = shape, strides
    if (right == 1 or cols == 1) and (down >= cols or rows == 1):
        return False, down if rows > 1 else cols
    if (down == 1 or rows == 1) and (right >= rows or cols == 1):
        return True, right if cols > 1 else rows
    return None


class _Form:
    """How the product of arrays of given shapes and strides is put to cuBLASLt.

    Attributes:
        copies: which of a, b and out must be copied first, "matrix" by matrix or as a whole "batch"; then nothing else counts.
        swapped: whether outᵀ = bᵀ aᵀ is computed, since the columns of out are contiguous.
        m, n, k: sizes of the row-major product. left, right, result: (turned, ld, batch stride) of each matrix.
        batch: how many products one call makes.
        offsets: where the operands of each call begin, in elements.
    """

    MOST_CALLS = 16  # more than that cost more than a copy

    def __init__(self, shapes, strides):
        self.copies = self._scattered(shapes, strides)
        if any(self.copies):
            return
        kinds = [_matrix(shape[-2:], steps[-2:]) for shape, steps in zip(shapes, strides, strict=True)]
        (self.m, self.k), self.n = shapes[0][-2:], shapes[1][-1]
        dims = self._batch_dims(shapes, strides)
        kinds, dims = self._as_rows(kinds, dims)
        if any(size > 1 and dims_step == 0 for size, *_, dims_step in dims):
            raise ValueError("matmul: elements of out lie in one place.")
        calls = []
        if len(dims) > 1:
            all_dims, inner = dims, max(dims)
            dims = [d for d in dims if d is not inner]
            if math.prod(size for size, *_ in dims) > self.MOST_CALLS:
                self.copies = [None if self._collapses(all_dims, i) else "batch" for i in range(1, 4)]
                return
            calls, dims = dims, [inner]
        self.offsets = [(0, 0, 0)]
        for size, *steps in calls:
            outer, inner = self.offsets, [[i * s for s in steps] for i in range(size)]
            self.offsets = [tuple(map(sum, zip(*pair, strict=True))) for pair in itertools.product(outer, inner)]
        self.batch, *steps = dims[0] if dims else (1, 0, 0, 0)
        self.left, self.right, self.result = ((*kind, step) for kind, step in zip(kinds, steps, strict=True))
        self.swapped = self.result[0]
        if self.swapped:
            self.m, self.n = self.n, self.m
            self.left, self.right = ((not turned, ld, step) for turned, ld, step in (self.right, self.left))

    @staticmethod
    def _scattered(shapes, strides):
        """Which arrays' matrices have no contiguous rows or columns, or follow each other backwards."""

        def scattered(shape, steps):
            backwards = any(s < 0 < n - 1 for n, s in zip(shape[:-2], steps, strict=False))
            return backwards or _matrix(shape[-2:], steps[-2:]) is None

        return ["matrix" if scattered(*pair) else None for pair in zip(shapes, strides, strict=True)]

    @staticmethod
    def _batch_dims(shapes, strides):
        """The leading axes as [size, step of a, step of b, step of out], outermost first, joined where all three allow it."""
        batch = shapes[2][:-2]
        dims = []
        for axis, size in enumerate(batch, -len(batch)):
            if size == 1:
                continue
            steps = []
            for shape, all_steps in zip(shapes, strides, strict=True):
                there = -axis <= len(shape) - 2 and shape[axis - 2] != 1
                steps.append(all_steps[axis - 2] if there else 0)
            if dims and all(old == step * size for old, step in zip(dims[-1][1:], steps, strict=True)):
                dims[-1] = [dims[-1][0] * size, *steps]
            else:
                dims.append([size, *steps])
        return dims

    def _as_rows(self, kinds, dims):
        """One product of many rows instead of a batch, where all share b and the rows of a and out follow each other."""
        left, right, result = kinds
        if len(dims) == 1 and dims[0][2] == 0:
            size, step, _, out_step = dims[0]
            if left[0] or result[0]:
                return kinds, dims
            if self.m == 1:  # the rows of a and out are the matrices of the batch
                left, result = (False, step), (False, out_step)
            if step == self.m * left[1] >= self.k and out_step == self.m * result[1] >= self.n:
                self.m *= size
                return [left, right, result], []
        return kinds, dims

    @staticmethod
    def _collapses(dims, which):
        """Whether one array's steps over several axes, outermost first, make one stride (or are all 0)."""
        return all(outer[which] == inner[which] * inner[0] for outer, inner in itertools.pairwise(dims))


class _Plan:
    """What cuBLASLt needs for the products of one key: descriptor, layouts, algorithm. Freed with the last reference."""

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
        self.one, self.zero = number(1), number(0)  # read by the library when it is called
        self.one_at, self.zero_at = ctypes.addressof(self.one), ctypes.addressof(self.zero)
        self.operation = self._make("cublasLtMatmulDesc", compute, _TYPES[_DOUBLE if kind == _DOUBLE else _SINGLE])
        # column-major: the first operand is our right one, and what is turned here is not transposed there
        self._set("cublasLtMatmulDesc", self.operation, DESC_TRANSA, ctypes.c_int32(form.right[0]))
        self._set("cublasLtMatmulDesc", self.operation, DESC_TRANSB, ctypes.c_int32(form.left[0]))
        self._set("cublasLtMatmulDesc", self.operation, DESC_EPILOGUE, ctypes.c_uint32(epilogue))
        for attribute in self.pointers(epilogue):  # until a call sets them: an address as little aligned as any to come
            self._set("cublasLtMatmulDesc", self.operation, attribute, _U64((1 << 40) + alignment))
        if aux_step is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_AUX_LD, _I64(aux_step))
        self.first = self._layout(_TYPES[kind], form.n, form.k, form.right)
        self.second = self._layout(_TYPES[kind], form.k, form.m, form.left)
        self.result = self._layout(_TYPES[out_kind], form.n, form.m, (False, *form.result[1:]))
        for call in self.calls:
            for offset in call:
                alignment = math.gcd(alignment, offset) if offset else alignment
        self.algorithms = self._algorithms(home, alignment, out_kind in _HALVES)
        self.take(0)

    @staticmethod
    def pointers(epilogue):
        """The attributes of an epilogue that are addresses."""
        bias, aux = epilogue & (4 | AND_BIAS | BIAS_GRADIENT), epilogue & 128
        return [DESC_BIAS_POINTER] * bool(bias) + [DESC_AUX_POINTER] * bool(aux)

    def _make(self, what, *arguments):
        """A descriptor, destroyed with the plan."""
        handle = _P()
        _check(getattr(self.library, what + "Create")(ctypes.byref(handle), *arguments), what + "Create", self.about)
        self.owned.append((getattr(self.library, what + "Destroy"), handle.value))
        return handle.value

    def _set(self, what, descriptor, attribute, value):
        call = getattr(self.library, what + "SetAttribute")
        status = call(descriptor, attribute, ctypes.byref(value), ctypes.sizeof(value))
        _check(status, f"{what}SetAttribute({attribute})", self.about)

    def _layout(self, kind, rows, cols, place):
        """A column-major (rows, cols); (cols, rows) in memory if turned."""
        turned, ld, step = place
        if turned:
            rows, cols = cols, rows
        layout = self._make("cublasLtMatrixLayout", kind, rows, cols, ld)
        if self.form.batch > 1:
            self._set("cublasLtMatrixLayout", layout, LAYOUT_BATCH_COUNT, ctypes.c_int32(self.form.batch))
            self._set("cublasLtMatrixLayout", layout, LAYOUT_BATCH_OFFSET, _I64(step))
        return layout

    def _algorithms(self, home, alignment, half):
        """What cuBLASLt thinks quickest, best first: as many as may be tried."""
        handle, _, size, _ = home
        preference = self._make("cublasLtMatmulPreference")
        self._set("cublasLtMatmulPreference", preference, PREF_WORKSPACE, _U64(size))
        if half:
            self._set("cublasLtMatmulPreference", preference, PREF_REDUCTIONS, ctypes.c_uint32(REDUCE_IN_COMPUTE_TYPE))
        for attribute in PREF_ALIGNMENTS:
            self._set("cublasLtMatmulPreference", preference, attribute, ctypes.c_uint32(alignment))
        wanted = _CANDIDATES[_tuning_mode()]
        results, count = (Heuristic * wanted)(), _I()
        product = self.operation, self.first, self.second, self.result, self.result
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            handle, *product, preference, wanted, results, ctypes.byref(count)
        )
        found = [r for r in results[: count.value] if r.state == 0]
        if status or not found:
            why = f"{_status_name(status)}, {count.value} results"
            raise Unsupported(f"cuBLASLt has no algorithm ({why}) for {self.about}.")
        return found

    def run(self, home, stream, a, b, out, beta):
        """Enqueue the product of what lies at the addresses a and b, added to `out` if beta is `one_at` and not `zero_at`."""
        first, second = (a, b) if self.swapped else (b, a)
        handle, workspace, size, _ = home
        for at_first, at_second, at_out in self.calls:
            there = out + at_out
            status = self.library.cublasLtMatmul(
                handle, self.operation, self.one_at, first + at_first, self.first, second + at_second, self.second,
                beta, there, self.result, there, self.result, self.algorithm, workspace, size, stream,
            )  # fmt: skip
            if status:
                _check(status, "cublasLtMatmul", self.about)

    def take(self, rank):
        """Use the algorithm of this rank."""
        self.algorithm = ctypes.addressof(self.algorithms[min(rank, len(self.algorithms) - 1)])

    def point_to(self, bias, aux):
        """Set the epilogue's addresses."""
        if bias is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_BIAS_POINTER, _U64(bias.data.ptr))
        if aux is not None:
            self._set("cublasLtMatmulDesc", self.operation, DESC_AUX_POINTER, _U64(aux.data.ptr))

    def __del__(self):
        for destroy, descriptor in self.owned:
            destroy(descriptor)


_CANDIDATES = {"none": 1, "medium": 8, "max": 32}  # how many algorithms are tried
_MOST_PLANS = 4096
_plans = {}  # key -> _Plan; the message, if cuBLASLt can't; how to copy a, b and out, if their strides won't do
_addresses = threading.Lock()  # held from setting a descriptor's addresses until they have been used


def _tuning_mode():
    """TRITON_AUTOTUNE_MODE; "none" without Triton, whose tuner is used."""
    if not os.environ.get("TRITON_AUTOTUNE_MODE"):
        return "none"
    try:
        return importlib.import_module("mytorch.kernels.launch").mode_for()
    except ModuleNotFoundError:
        return "none"


def _uneven(x):
    """Whether strides of x are no multiples of its elements' size, as in a view of a record."""
    return any(s % x.itemsize and n > 1 for n, s in zip(x.shape, x.strides, strict=True))


def _new_plan(key, a, b, out, home, epilogue, aux_step):
    """Make and keep what `_run` looks up."""
    if len(_plans) >= _MOST_PLANS:
        _plans.pop(next(iter(_plans)), None)
    arrays = (a, b, out)
    about = f"{a.dtype.name} {a.shape} @ {b.shape} to {out.dtype.name}, strides {a.strides}, {b.strides}, {out.strides}"
    found = tuple("matrix" if _uneven(x) else None for x in arrays)
    if not any(found):
        form = _Form([x.shape for x in arrays], [[step // x.itemsize for step in x.strides] for x in arrays])
        found = tuple(form.copies)
    if not any(found):
        alignment, fast = key[-4:-2]
        try:
            found = _Plan(form, (a.dtype, out.dtype), fast, epilogue, aux_step, alignment, home, about)
        except Unsupported as error:
            found = str(error)
    _plans[key] = found
    return found


def _run(a, b, out, accumulate=False, epilogue=1, bias=None, aux=None):
    """out = epilogue(a @ b), or out += a @ b, for arrays of at least two axes of which none is empty."""
    if _library is None:
        load()
    device = _device()
    stream = _stream().ptr
    home = _homes.get((device, stream)) or _home(device, stream)
    a_at, b_at, out_at = a.data.ptr, b.data.ptr, out.data.ptr
    low = a_at | b_at | out_at | 256
    if bias is not None:
        low |= bias.data.ptr
    aux_step = None
    if aux is not None:
        low |= aux.data.ptr
        aux_step = aux.strides[0] // aux.itemsize
    kind = a.dtype
    fast = config.float32_matmul_precision != "highest" and kind == _SINGLE
    sizes = a.shape, a.strides, b.shape, b.strides, out.strides
    key = (device, kind, out.dtype, *sizes, low & -low, fast, epilogue, aux_step)
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
            with _addresses:
                plan.point_to(bias, aux)
                plan.run(home, stream, a_at, b_at, out_at, beta)
        return out
    if type(plan) is str:
        raise Unsupported(plan)
    return _run_on_copies(plan, a, b, out, accumulate, epilogue, bias, aux)


def _run_on_copies(which, a, b, out, *rest):
    """`_run` with those of a, b and out copied that `which` marks."""
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
    """Leave a new plan with the quickest of its algorithms, as kept or measured."""
    launch = importlib.import_module("mytorch.kernels.launch")
    before = []  # what the measuring overwrites

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
    if launch.is_capturing():  # where nothing is measured: the next call outside of it makes the plan again, and does
        _plans.pop(key, None)
    if before:
        out[...] = before[0]


# -- what others call ----------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def _shape(a, b):
    """The shape of the product of arrays of two or more axes."""
    if a[-1] != b[-2]:
        raise ValueError(f"matmul: shapes {a} and {b} can't be multiplied: the inner sizes are {a[-1]} and {b[-2]}.")
    if len(a) == len(b) == 2:
        return a[0], b[1]
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def takes(a, b):
    """Whether `matmul` takes arrays of these dtypes: both float16, bfloat16, float32 or float64."""
    return a.dtype in _TYPES and a.dtype == b.dtype


def writes(kind, out):
    """Whether the product of arrays of a dtype can be written as another: as the same, or 16-bit ones' as float32."""
    return out == kind or (kind in _HALVES and out == _SINGLE)


def matmul(a, b, out=None, *, dtype=None, accumulate=False):
    """a @ b, summed in float32 (float64 for float64).

    Args:
        a: (…, M, K), or (K,). b: (…, K, N), or (K,). Leading axes broadcast.
        out: array to write to; it must not overlap a or b.
        dtype: of a new output: a's if not given, or float32 for 16-bit operands.
        accumulate: add to what is in `out`.

    Returns:
        (…, M, N), without the axes that a vector lacks.

    Raises:
        ValueError: shapes that don't fit. TypeError: dtypes other than those. Unsupported: cuBLASLt can't; nothing was written.
    """
    kind = a.dtype
    if kind not in _TYPES or b.dtype != kind:
        given = f"{kind.name} and {b.dtype.name}"
        raise TypeError(f"matmul: expected two arrays of float16, bfloat16, float32 or float64, got {given}.")
    if a.ndim < 2 or b.ndim < 2:
        return _with_vectors(a, b, out, dtype, accumulate)
    shape = _shape(a.shape, b.shape)
    if out is None:
        if accumulate:
            raise ValueError("matmul: accumulate=True adds to `out`, which was not given.")
        out = _empty(shape, kind if dtype is None else np.dtype(dtype))
    elif out.shape != shape or (dtype is not None and out.dtype != dtype):
        wanted = np.dtype(dtype or out.dtype).name
        raise ValueError(f"matmul: out is {out.dtype.name} {out.shape}, and the product {wanted} {shape}.")
    if not writes(kind, out.dtype):
        raise TypeError(f"matmul: the product of {kind.name} can't be written as {out.dtype.name}.")
    if not out.size or not a.shape[-1]:
        if not accumulate:
            out.fill(0)
        return out
    return _run(a, b, out, accumulate)


def _empty(shape, kind):
    return cupy_ns().empty(shape, kind)


def _with_vectors(a, b, out, dtype, accumulate):
    """`matmul` where an operand is a vector: it becomes a row or a column for the time being."""
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: an operand is a number; it takes vectors and matrices.")
    places = (-2,) * (a.ndim == 1) + (-1,) * (b.ndim == 1)
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    if out is not None:
        for place in reversed(places):
            out = cupy_ns().expand_dims(out, place)
    return cupy_ns().squeeze(matmul(rows, columns, out, dtype=dtype, accumulate=accumulate), places)


def linear(x, weight, bias=None, *, activation=None, before=False):
    """activation(x @ weightᵀ + bias), the bias and activation applied before the product is written.

    Args:
        x: (…, in). weight: (out, in). bias: (out,), of x's dtype.
        activation: None, "relu" or "gelu_tanh".
        before: give what went into the activation too (GELU only; ReLU's slope can be read off its output).

    Returns:
        (…, out); with `before`, both.

    Raises:
        ValueError: shapes that don't fit, or such an activation. TypeError, Unsupported: as `matmul`.
    """
    name = (bias is not None, activation, before)
    if name not in EPILOGUES:
        raise ValueError(f"linear: there is no epilogue for activation={activation!r}, before={before}.")
    unfit = bias is not None and (bias.dtype != x.dtype or bias.shape != weight.shape[:1])
    if weight.ndim != 2 or not takes(x, weight) or unfit:
        given = ", ".join(f"{v.dtype.name} {v.shape}" for v in (x, weight, bias) if v is not None)
        kind = ValueError if takes(x, weight) else TypeError
        raise kind(f"linear: expected (…, in), (out, in) and (out,) of one float dtype, got {given}.")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    shape = _shape(rows.shape, weight.shape[::-1])
    out = _empty(shape, x.dtype)
    aux = _empty((shape[0], -(-shape[1] // 8) * 8), x.dtype)[:, : shape[1]] if before else None  # rows 8 elements apart
    if bias is not None and (bias.data.ptr & 15 or bias.strides[0] != bias.itemsize):
        bias = bias.copy()
    if out.size and x.shape[-1]:
        _run(rows, weight.T, out, False, EPILOGUES[name], bias, aux)
    elif out.size:
        column, row = (cupy_ns().zeros(s, x.dtype) for s in ((*x.shape[:-1], 1), (shape[1], 1)))
        return linear(column, row, bias, activation=activation, before=before)
    shape = (*x.shape[:-1], weight.shape[0])
    return (out.reshape(shape), aux.reshape(shape)) if before else out.reshape(shape)


def weight_gradients(g, x):
    """The gradients of a linear layer's weight and bias in one kernel: gᵀ @ x and the sum of g over its rows.

    Args:
        g: (rows, out). x: (rows, in), of g's dtype.

    Returns:
        (out, in) and (out,).

    Raises:
        ValueError, TypeError, Unsupported: as `matmul`.
    """
    if g.ndim != 2 or x.ndim != 2 or g.shape[0] != x.shape[0]:
        raise ValueError(f"weight_gradients: expected (rows, out) and (rows, in), got {g.shape} and {x.shape}.")
    if not takes(g, x):
        given = f"{g.dtype.name} and {x.dtype.name}"
        raise TypeError(f"weight_gradients: expected two arrays of one float dtype, got {given}.")
    out, total = _empty((g.shape[1], x.shape[1]), g.dtype), _empty((g.shape[1],), g.dtype)
    if not g.size or not x.size:
        return matmul(g.T, x), g.sum(0)
    return _run(g.T, x, out, False, BIAS_GRADIENT, total), total


def gelu_gradients(g, weight, before, bias=False):
    """What backward does behind gelu(before, "tanh") and a linear layer, in one kernel: (g @ weight) gelu'(before).

    Args:
        g: (rows, out). weight: (out, in). before: (rows, in), whose rows are contiguous and begin at multiples of 8 elements
            and 16 bytes, as those of `linear(…, before=True)`. All of one dtype.
        bias: sum the result over its rows, too: the gradient of the bias that was added in `before`.

    Returns:
        (rows, in), and the sum (in,) or None.

    Raises:
        ValueError, TypeError, Unsupported: as `matmul`.
    """
    if g.ndim != 2 or before.shape != _shape(g.shape, weight.shape) or not in_eights(before):
        raise ValueError(
            f"gelu_gradients: expected (rows, out), (out, in) and (rows, in) in rows of 16 bytes, got {g.shape}, "
            f"{weight.shape} and {before.shape} of strides {before.strides}."
        )
    if not takes(g, weight) or before.dtype != g.dtype:
        given = ", ".join(v.dtype.name for v in (g, weight, before))
        raise TypeError(f"gelu_gradients: expected three arrays of one float dtype, got {given}.")
    out, total = _empty(before.shape, g.dtype), _empty(before.shape[1:], g.dtype) if bias else None
    if not out.size or not g.shape[1]:
        out.fill(0)
        return out, total if total is None else out.sum(0)
    return _run(g, weight, out, False, GELU_GRADIENT | (AND_BIAS if bias else 0), total, before), total


def in_eights(before):
    """Whether an epilogue can read a matrix: contiguous rows that begin at multiples of 8 elements and 16 bytes."""
    down, right = before.strides
    return right == before.itemsize and down % (8 * before.itemsize) == 0 and before.data.ptr % 16 == 0
