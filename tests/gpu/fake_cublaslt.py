"""A fake libcublasLt: Python versions of the C functions that `mytorch.kernels.cublas` calls, over host memory.

The functions are C function pointers, so ctypes converts the arguments as for the real library. They use the constants of
cublasLt.h (versions 12 and 13) and compute the column-major products with NumPy. They also check the documented requirements
for attribute sizes, leading dimensions, alignment, dtypes and the workspace.
"""

import copy
import ctypes
import functools
import math

import fake_cupy
import ml_dtypes
import numpy as np

_Words = ctypes.c_uint64 * 8
SUCCESS, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 0, 7, 14, 15
STATUS = {
    0: "SUCCESS",
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
}
DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16)}
COMBINATIONS = {  # (compute type, scale type) -> dtypes of (A and B, C and D)
    (68, 0): {(0, 0), (2, 2), (2, 0), (14, 14), (14, 0)},
    (77, 0): {(0, 0)},
    (70, 1): {(1, 1)},
}
_chars = functools.cache(lambda n: ctypes.c_char * n)  # ctypes' types are garbage in cycles
DESC = {  # number -> (name, ctype, default)
    0: ("compute", ctypes.c_int32, None), 1: ("scale", ctypes.c_int32, None), 2: ("pointer_mode", ctypes.c_int32, 0),
    3: ("transa", ctypes.c_int32, 0), 4: ("transb", ctypes.c_int32, 0), 5: ("transc", ctypes.c_int32, 0),
    7: ("epilogue", ctypes.c_uint32, 1), 8: ("bias", ctypes.c_uint64, 0), 10: ("bias_batch_stride", ctypes.c_int64, 0),
    11: ("aux", ctypes.c_uint64, 0), 12: ("aux_ld", ctypes.c_int64, 0), 13: ("aux_batch_stride", ctypes.c_int64, 0),
}  # fmt: skip
LAYOUT = {
    0: ("type", ctypes.c_uint32, None), 1: ("order", ctypes.c_int32, 0), 2: ("rows", ctypes.c_uint64, None), 3: ("cols", ctypes.c_uint64, None),
    4: ("ld", ctypes.c_int64, None), 5: ("batch", ctypes.c_int32, 1), 6: ("stride", ctypes.c_int64, 0),
}  # fmt: skip
PREFERENCE = {
    0: ("search_mode", ctypes.c_uint32, 0), 1: ("workspace", ctypes.c_uint64, 0), 3: ("reductions", ctypes.c_uint32, 7),
    5: ("align_a", ctypes.c_uint32, 256), 6: ("align_b", ctypes.c_uint32, 256), 7: ("align_c", ctypes.c_uint32, 256),
    8: ("align_d", ctypes.c_uint32, 256),
}  # fmt: skip
DEFAULT, RELU, BIAS, BGRAD, GELU, DGELU, AUX, BGRADB = 1, 2, 4, 16, 32, 64, 128, 512
EPILOGUES = {
    BGRADB, DEFAULT, BIAS, RELU, RELU | BIAS, GELU, GELU | BIAS, GELU | AUX, GELU | AUX | BIAS, DGELU | AUX, DGELU | AUX | BGRAD,
}  # fmt: skip


class Heuristic(ctypes.Structure):
    _fields_ = (
        ("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


class Opaque:
    """A descriptor: attributes by the numbers of its table."""

    def __init__(self, table, **given):
        self.table = table
        for name, _, default in table.values():
            setattr(self, name, given.pop(name, default))
        assert not given


class Refused(Exception):
    """Ends a C function with a status."""

    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def need(condition, why, status=INVALID_VALUE):
    if not condition:
        raise Refused(status, why)


class FakeCublasLt:
    """The library; its attributes are C functions. `calls` lists the multiplications, `why` is the last rejection."""

    def __init__(self, algorithms=3, unsupported=()):
        self.objects, self.next = {}, 0x1000
        self.calls, self.why, self.made, self.destroyed = [], None, 0, 0
        self.algorithms, self.unsupported = algorithms, unsupported
        p, i, z, u, s = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64
        for name, arguments in {
            "cublasLtCreate": (p,), "cublasLtMatmulDescCreate": (p, i, i), "cublasLtMatrixLayoutCreate": (p, i, u, u, s),
            "cublasLtMatmulPreferenceCreate": (p,), "cublasLtMatmulDescDestroy": (p,), "cublasLtMatrixLayoutDestroy": (p,),
            "cublasLtMatmulPreferenceDestroy": (p,), "cublasLtMatmulDescSetAttribute": (p, i, p, z),
            "cublasLtMatrixLayoutSetAttribute": (p, i, p, z), "cublasLtMatmulPreferenceSetAttribute": (p, i, p, z),
            "cublasLtMatmulAlgoGetHeuristic": (p, p, p, p, p, p, p, i, p, p),
            "cublasLtMatmul": (p, p, p, p, p, p, p, p, p, p, p, p, p, p, z, p),
        }.items():  # fmt: skip
            setattr(self, name, ctypes.CFUNCTYPE(i, *arguments)(self._guarded(name)))
        self.cublasLtGetStatusName = ctypes.CFUNCTYPE(ctypes.c_void_p, i)(self._status_name)
        self.cublasLtGetVersion = ctypes.CFUNCTYPE(z)(lambda: 130000)
        self.names = {
            code: ctypes.create_string_buffer(f"CUBLAS_STATUS_{name}".encode()) for code, name in STATUS.items()
        }

    def _guarded(self, name):
        function = getattr(self, "_" + name.removeprefix("cublasLt"))

        def guarded(*arguments):
            try:
                function(*arguments)
            except Refused as refused:
                self.why = f"{name}: {refused}"
                return refused.status
            except Exception as error:  # which ctypes would print and forget
                self.why = f"{name}: {type(error).__name__}: {error}"
                return INTERNAL_ERROR
            return SUCCESS

        return guarded

    def _status_name(self, status):
        return ctypes.addressof(self.names[status])

    # -- objects --------------------------------------------------------------------------------------------------

    def _new(self, at, thing):
        need(at, "no place for the handle")
        self.next += 16
        self.objects[self.next] = thing
        self.made += 1
        ctypes.c_void_p.from_address(at).value = self.next

    def _get(self, handle, kind):
        thing = self.objects.get(handle)
        need(
            thing is not None and (thing is kind or getattr(thing, "table", None) is kind),
            f"{handle} is no live object of that kind",
        )
        return thing

    def _Create(self, at):
        self._new(at, "handle")

    def _MatmulDescCreate(self, at, compute, scale):
        need((compute, scale) in COMBINATIONS, f"compute type {compute} with scale type {scale}")
        self._new(at, Opaque(DESC, compute=compute, scale=scale))

    def _MatrixLayoutCreate(self, at, kind, rows, cols, ld):
        need(kind in DTYPES, f"data type {kind}")
        self._new(at, Opaque(LAYOUT, type=kind, rows=rows, cols=cols, ld=ld))

    def _MatmulPreferenceCreate(self, at):
        self._new(at, Opaque(PREFERENCE))

    def _destroy(self, handle):
        need(self.objects.pop(handle, None) is not None, "destroyed twice")
        self.destroyed += 1

    _MatmulDescDestroy = _MatrixLayoutDestroy = _MatmulPreferenceDestroy = _destroy

    def _set(self, table, handle, attribute, buffer, size):
        thing = self._get(handle, table)
        need(attribute in table, f"attribute {attribute}")
        name, kind, _ = table[attribute]
        need(buffer and size == ctypes.sizeof(kind), f"{name} has {ctypes.sizeof(kind)} bytes, {size} were given")
        setattr(thing, name, kind.from_address(buffer).value)

    def _MatmulDescSetAttribute(self, *arguments):
        self._set(DESC, *arguments)

    def _MatrixLayoutSetAttribute(self, *arguments):
        self._set(LAYOUT, *arguments)

    def _MatmulPreferenceSetAttribute(self, *arguments):
        self._set(PREFERENCE, *arguments)

    # -- products -----------------------------------------------------------------------------------------------------

    def _sizes(self, desc, layouts):
        """Checks the layouts against the documentation; returns m, n, k of the column-major product."""
        a, b, c, d = layouts
        for x in layouts:
            need(
                x.order == 0 and x.rows > 0 and x.cols > 0 and x.ld >= x.rows,
                f"rows {x.rows}, cols {x.cols}, ld {x.ld}",
            )
            need(x.batch == d.batch >= 1 and x.stride >= 0, "batch counts differ")
        need(
            d.batch == 1 or d.stride >= d.ld * (d.cols - 1) + d.rows or 0 < d.stride < d.ld,
            "the results of a batch overlap",
        )
        need((c.type, c.rows, c.cols, c.ld, c.stride) == (d.type, d.rows, d.cols, d.ld, d.stride), "C differs from D")
        need(
            a.type == b.type and (a.type, d.type) in COMBINATIONS[desc.compute, desc.scale], "data types", NOT_SUPPORTED
        )
        need(
            desc.transa in (0, 1) and desc.transb in (0, 1) and desc.transc == 0 and desc.pointer_mode == 0,
            "operations",
        )
        m, k = (a.cols, a.rows) if desc.transa else (a.rows, a.cols)
        inner, n = (b.cols, b.rows) if desc.transb else (b.rows, b.cols)
        need(k == inner and (m, n) == (d.rows, d.cols), f"({m}, {k}) times ({inner}, {n}) is not ({d.rows}, {d.cols})")
        need(desc.epilogue in EPILOGUES, f"epilogue {desc.epilogue}")
        need(desc.epilogue not in self.unsupported, "epilogue", NOT_SUPPORTED)
        need(desc.epilogue == DEFAULT or desc.scale == 0, "epilogues of float64", NOT_SUPPORTED)
        if desc.epilogue & (BIAS | BGRAD | BGRADB):
            need(desc.bias, "no bias pointer")
        need(not desc.epilogue & (BGRAD | BGRADB) or d.batch == 1, "bias gradient of a batch", NOT_SUPPORTED)
        if desc.epilogue & AUX:
            need(desc.aux and desc.aux_ld >= d.rows and desc.aux_ld % 8 == 0, f"aux_ld {desc.aux_ld}")
            need(d.batch == 1, "aux of a batch", NOT_SUPPORTED)
        return m, n, k

    def _MatmulAlgoGetHeuristic(self, handle, desc, a, b, c, d, preference, wanted, results, count):
        self._get(handle, "handle")
        desc, preference = self._get(desc, DESC), self._get(preference, PREFERENCE)
        layouts = [self._get(x, LAYOUT) for x in (a, b, c, d)]
        need(wanted > 0 and results and count, "no room for results")
        self._sizes(desc, layouts)
        aligned = [getattr(preference, f"align_{x}") for x in "abcd"]
        for align, layout in zip(aligned, layouts, strict=True):
            need(align and align & (align - 1) == 0 and align >= DTYPES[layout.type].itemsize, f"alignment {align}")
        found = min(wanted, self.algorithms)
        for i in range(found):
            result = Heuristic.from_address(results + i * ctypes.sizeof(Heuristic))
            result.algo[:] = [0xA190, i, *aligned, min(preference.workspace, 1 << 20), preference.reductions]
            result.workspace, result.state, result.waves = min(preference.workspace, 1 << 20), SUCCESS, 1.0
        ctypes.c_int.from_address(count).value = found

    def _matrices(self, at, layout):
        """Returns a view (batch, rows, cols) of the memory at an address."""
        dtype = DTYPES[layout.type]
        last = (layout.batch - 1) * layout.stride + (layout.cols - 1) * layout.ld + layout.rows
        bits = np.frombuffer(_chars(last * dtype.itemsize).from_address(at), dtype)
        strides = [s * dtype.itemsize for s in (layout.stride, 1, layout.ld)]
        return np.lib.stride_tricks.as_strided(bits, (layout.batch, layout.rows, layout.cols), strides)

    def _Matmul(
        self,
        handle,
        desc,
        alpha,
        a,
        a_layout,
        b,
        b_layout,
        beta,
        c,
        c_layout,
        d,
        d_layout,
        algo,
        workspace,
        size,
        stream,
    ):
        self._get(handle, "handle")
        desc = self._get(desc, DESC)
        layouts = [self._get(x, LAYOUT) for x in (a_layout, b_layout, c_layout, d_layout)]
        m, n, k = self._sizes(desc, layouts)
        mark, rank, *aligned, needed, _ = _Words.from_address(algo)
        need(mark == 0xA190, "this is no algorithm")
        need(workspace and workspace % 16 == 0 and size >= needed, f"workspace of {size} at {workspace}")
        for at, align in zip((a, b, c, d), aligned, strict=True):
            need(at and at % align == 0, f"address {at:#x} is not aligned to {align}, as was claimed")
        for at in [desc.bias] * bool(desc.epilogue & (BIAS | BGRAD | BGRADB)) + [desc.aux] * bool(desc.epilogue & AUX):
            need(at % min(aligned[3], 16) == 0, "bias or aux is not aligned as was claimed")
        need(not desc.epilogue & AUX or desc.aux % 16 == 0, "aux is not aligned to 16 bytes")
        scalar = ctypes.c_double if desc.scale == 1 else ctypes.c_float
        alpha, beta = scalar.from_address(alpha).value, scalar.from_address(beta).value
        desc = copy.copy(desc)  # a graph keeps the addresses of this call
        fake_cupy.run(lambda: self._compute(desc, layouts, (m, n), alpha, beta, a, b, c, d), mutates=True)
        self.calls.append((m, n, k, layouts[3].batch, rank, desc.compute))

    def _compute(self, desc, layouts, size, alpha, beta, a, b, c, d):
        m, n = size
        wide = np.float64 if desc.scale == 1 else np.float32
        left, right = (self._matrices(at, x).astype(wide) for at, x in ((a, layouts[0]), (b, layouts[1])))
        if desc.transa:
            left = left.swapaxes(1, 2)
        if desc.transb:
            right = right.swapaxes(1, 2)
        product = np.matmul(left, right) * wide(alpha)
        if beta:
            product += self._matrices(c, layouts[2]).astype(wide) * wide(beta)
        out = self._matrices(d, layouts[3])
        if desc.epilogue & BIAS:
            bias = np.frombuffer(_chars(m * out.itemsize).from_address(desc.bias), out.dtype)
            product += bias.astype(wide)[:, None]
        if desc.epilogue == BGRADB:
            total = np.frombuffer(_chars(n * out.itemsize).from_address(desc.bias), out.dtype)
            total[:] = right[0].sum(0).astype(out.dtype)
        aux = Opaque(LAYOUT, type=layouts[3].type, rows=m, cols=n, ld=desc.aux_ld)
        if desc.epilogue & DGELU:
            x = self._matrices(desc.aux, aux).astype(wide)
            t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
            slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
            product = product * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)
        elif desc.epilogue & AUX:
            self._matrices(desc.aux, aux)[:] = product.astype(out.dtype)
        if desc.epilogue & BGRAD:
            total = np.frombuffer(_chars(m * out.itemsize).from_address(desc.bias), out.dtype)
            total[:] = product[0].sum(1).astype(out.dtype)
        if desc.epilogue & RELU:
            product = np.maximum(product, 0)
        if desc.epilogue & GELU:
            product = product * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (product + 0.044715 * product**3)))
        out[:] = product.astype(out.dtype)


def install(**options):
    """Makes `mytorch.kernels.cublas` load the fake library, over an installed `fake_cupy`; returns the library."""
    from mytorch.kernels import cublas

    library = FakeCublasLt(**options)
    cublas._find = lambda major: library
    return library
