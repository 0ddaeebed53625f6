"""A fake of the Python package `cudnn`, NVIDIA's frontend of cuDNN, for the calls of `mytorch.kernels.cudnn`.

It has the names and arguments of `cudnn.pygraph` (versions 1.14 to 1.32) and requires the documented order of calls. It rejects
the cases that the frontend and cuDNN 9 reject on Hopper, and computes with NumPy on the data at the given addresses.
"""

import ctypes
import enum
import functools
import math
import sys
import types

import fake_cupy
import ml_dtypes
import numpy as np

_chars = functools.cache(lambda n: ctypes.c_char * n)


class data_type(enum.Enum):  # noqa: N801 -- cudnn's names
    NOT_SET, FLOAT, HALF, BFLOAT16 = range(4)


class heur_mode(enum.Enum):  # noqa: N801
    A, B, FALLBACK = range(3)


class numerical_note(enum.Enum):  # noqa: N801
    TENSOR_CORE, DOWN_CONVERT_INPUTS, NONDETERMINISTIC = range(3)


class diagonal_alignment(enum.Enum):  # noqa: N801
    TOP_LEFT, BOTTOM_RIGHT = range(2)


class cudnnGraphNotSupportedError(RuntimeError):  # noqa: N801, N818
    """Raised for cases without a cuDNN kernel."""


NUMPY = {data_type.FLOAT: np.float32, data_type.HALF: np.float16, data_type.BFLOAT16: ml_dtypes.bfloat16}
counts = {"planned": 0, "executed": 0, "backward": 0}
why = {}  # "plan", "plan backward" or "execute" -> the error to raise there
streams = {}  # handle -> stream
version = 91900


def backend_version():
    """9.19."""
    return version


def create_handle():
    """A handle, on the null stream."""
    handle = 1000 + len(streams)
    streams[handle] = 0
    return handle


def set_stream(handle, stream):
    """Sets the stream of a handle."""
    assert type(stream) is int
    assert handle in streams
    streams[handle] = stream


def need(condition, reason):
    if not condition:
        raise cudnnGraphNotSupportedError(reason)


class Tensor:
    """A tensor of a graph; its setters return the tensor."""

    def __init__(self, dim=None, stride=None, data_type=data_type.NOT_SET, uid=-1, name="", given=False):
        self.dim, self.stride, self.data_type, self.uid, self.name, self.given = (
            dim,
            stride,
            data_type,
            uid,
            name,
            given,
        )
        self.output = False
        self.packed = False  # of a convolution

    def set_output(self, value):
        self.output = value
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_data_type(self, kind):
        self.data_type = kind
        return self

    def check(self, shape, kind):
        for numbers in (self.dim, self.stride):
            assert isinstance(numbers, list), self.name
            assert all(type(n) is int and n > 0 for n in numbers), (self.name, numbers)
        assert self.dim == list(shape), (self.name, self.dim, shape)
        assert self.data_type is kind, (self.name, self.data_type)
        assert self.given or self.output, f"{self.name} is virtual, and nobody would see it"
        if self.packed:
            _, channels, height, width = self.dim
            rows = [channels * height * width, height * width, width, 1]
            last = [channels * height * width, 1, width * channels, channels]
            assert self.stride in (rows, last), (self.name, self.stride)
        else:
            need(
                len(self.stride) == 4 and self.stride[3] == 1,
                f"The stride for the last dimension should be 1 for {self.name}",
            )

    def array(self, pointer):
        """The array at an address, through its strides."""
        kind = np.dtype(NUMPY[self.data_type])
        assert type(pointer) is int
        assert pointer % 16 == 0, f"{self.name} lies at {pointer}, no multiple of 16"
        count = sum((n - 1) * step for n, step in zip(self.dim, self.stride, strict=True)) + 1
        flat = np.frombuffer(_chars(count * kind.itemsize).from_address(pointer), kind)
        return np.lib.stride_tricks.as_strided(flat, self.dim, [step * kind.itemsize for step in self.stride])


STEPS = ("made", "validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans")


class pygraph:  # noqa: N801
    """One operation: attention, a convolution, or the gradients of one of them."""

    def __init__(self, *, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        assert handle in streams
        self.io, self.step, self.tensors, self.node = io_data_type, "made", [], None
        self.avoided = []

    def tensor(self, dim, stride, data_type=data_type.NOT_SET, name="", uid=-1):
        made = Tensor(dim, stride, data_type, uid, name, given=True)
        self.tensors.append(made)
        return made

    def sdpa(self, q, k, v, attn_scale=None, diagonal_alignment=diagonal_alignment.TOP_LEFT, diagonal_band_left_bound=None,
             diagonal_band_right_bound=None, name="", generate_stats=None):  # fmt: skip
        assert generate_stats is True
        return self._attend("forward", {"q": q, "k": k, "v": v}, ("o", "stats"), attn_scale, diagonal_alignment,
                            diagonal_band_left_bound, diagonal_band_right_bound)  # fmt: skip

    def sdpa_backward(self, q, k, v, o, dO, stats, attn_scale=None, diagonal_alignment=diagonal_alignment.TOP_LEFT,  # noqa: N803
                      diagonal_band_left_bound=None, diagonal_band_right_bound=None, use_deterministic_algorithm=False, name=""):  # fmt: skip
        given = {"q": q, "k": k, "v": v, "o": o, "g": dO, "stats": stats}
        return self._attend("backward", given, ("gq", "gk", "gv"), attn_scale, diagonal_alignment, diagonal_band_left_bound,
                            diagonal_band_right_bound)  # fmt: skip

    def _attend(self, kind, given, made, scale, alignment, left, right):
        assert self.node is None
        assert all(x in self.tensors for x in given.values())
        assert type(scale) is float
        assert left is None
        assert alignment is diagonal_alignment.TOP_LEFT
        assert right in (None, 0)
        self.node = {**given, **{name: Tensor(name=name) for name in made}}
        self.kind, self.scale, self.causal = kind, scale, right == 0
        return [self.node[name] for name in made]

    def conv_fprop(self, image, weight, padding=(), stride=(), dilation=(), name=""):
        return self._convolve("convolution", {"x": image, "w": weight}, "o", padding, stride, dilation)

    def conv_dgrad(self, loss, filter, padding=(), stride=(), dilation=(), name=""):
        return self._convolve("convolution's input", {"o": loss, "w": filter}, "x", padding, stride, dilation)

    def conv_wgrad(self, image, loss, padding=(), stride=(), dilation=(), name=""):
        return self._convolve("convolution's weight", {"x": image, "o": loss}, "w", padding, stride, dilation)

    def _convolve(self, kind, given, made, *geometry):
        assert self.node is None
        assert all(x in self.tensors for x in given.values())
        for numbers in geometry:
            assert isinstance(numbers, list)
            assert len(numbers) == 2
            assert all(type(n) is int and n >= 0 for n in numbers)
        self.kind, self.geometry = kind, geometry
        self.node = {**given, made: Tensor(name=made)}
        for x in self.node.values():
            x.packed = True
        return self.node[made]

    def deselect_numeric_notes(self, notes):
        assert self.step == "create_execution_plans"
        assert all(isinstance(note, numerical_note) for note in notes)
        self.avoided = notes

    def _next(self, step):
        assert self.step == STEPS[STEPS.index(step) - 1], f"{step} after {self.step}"
        self.step = step

    def validate(self):
        self._next("validate")
        node = self.node
        numbers = [x.uid for x in node.values()]
        assert len(set(numbers)) == len(numbers)
        assert min(numbers) > 0
        if "w" in node:
            self._validate_convolution()
            return
        batch, heads, length, width = node["q"].dim
        _, key_heads, keys, _ = node["k"].dim
        wide = node["v"].dim[3]
        q, k, v, o = [(batch, h, n, w) for h, n, w in (
            (heads, length, width), (key_heads, keys, width), (key_heads, keys, wide), (heads, length, wide))]  # fmt: skip
        shapes = {"q": q, "k": k, "v": v, "o": o, "g": o, "gq": q, "gk": k, "gv": v, "stats": (batch, heads, length, 1)}
        for name, tensor in node.items():
            tensor.check(shapes[name], data_type.FLOAT if name == "stats" else self.io)
        need(
            heads % key_heads == 0, "For group-query attention, number of heads for key must be a factor of the query's"
        )
        need(width % 8 == wide % 8 == 0, "hidden_dim should be multiple of 8")
        need(max(width, wide) <= 256, "hidden_dim should be less than or equal to 256")
        need(self.kind == "forward" or length > 1 or keys > 1, "s_q = s_kv = 1 is not supported.")
        for tensor in node.values():
            steps = [s for n, s in zip(tensor.dim[:3], tensor.stride, strict=False) if n > 1]
            assert tensor.data_type is data_type.FLOAT or not any(s % 8 for s in steps), (tensor.name, tensor.stride)

    def _validate_convolution(self):
        x, w, o = (self.node[name] for name in "xwo")
        samples, channels = x.dim[:2]
        outs, each = w.dim[:2]
        assert channels % each == 0
        assert outs % (channels // each) == 0
        sides = zip(x.dim[2:], w.dim[2:], *self.geometry, strict=True)
        size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, p, s, d in sides]
        for tensor, shape in ((x, x.dim), (w, w.dim), (o, [samples, outs, *size])):
            tensor.check(shape, self.io)

    def build_operation_graph(self):
        self._next("build_operation_graph")

    def create_execution_plans(self, modes):
        self._next("create_execution_plans")
        assert modes == [heur_mode.A, heur_mode.FALLBACK]

    def check_support(self):
        self._next("check_support")
        for case in ("plan", f"plan {self.kind}"):
            if case in why:
                raise cudnnGraphNotSupportedError(why[case])

    def build_plans(self):
        self._next("build_plans")
        assert fake_cupy._tape is None, "a kernel was loaded under capture"
        counts["planned"] += 1

    def get_workspace_size(self):
        assert self.step == "build_plans"
        return 4 * math.prod(self.node["q"].dim) if self.kind == "backward" else 0

    def execute(self, tensor_to_device_buffer, workspace, handle=None):
        assert self.step == "build_plans"
        assert streams[handle] == fake_cupy._current_stream().ptr, "on another stream than the current one"
        if "execute" in why:
            raise RuntimeError(why["execute"])
        assert set(tensor_to_device_buffer) == {x.uid for x in self.node.values()}
        size = self.get_workspace_size()
        assert type(workspace) is int
        assert workspace
        arrays = {name: x.array(tensor_to_device_buffer[x.uid]) for name, x in self.node.items()}
        scratch = np.frombuffer(_chars(max(size, 1)).from_address(workspace), np.uint8)
        counts["executed"] += 1
        counts["backward"] += self.kind == "backward"
        fake_cupy.run(lambda: self._compute(arrays, scratch), mutates=True)

    def _compute(self, arrays, scratch):
        scratch[: self.get_workspace_size()] = 0xAB
        x = {name: a.astype(np.float32) for name, a in arrays.items()}
        if "w" in x:
            self._compute_convolution(arrays, x)
            return
        group = x["q"].shape[1] // x["k"].shape[1]
        k, v = np.repeat(x["k"], group, 1), np.repeat(x["v"], group, 1)
        scores = x["q"] @ k.swapaxes(2, 3) * np.float32(self.scale)
        if self.causal:
            scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
        if self.kind == "forward":
            peak = scores.max(3, keepdims=True)
            arrays["stats"][:] = peak + np.log(np.exp(scores - peak).sum(3, keepdims=True))
            arrays["o"][:] = (np.exp(scores - arrays["stats"]) @ v).astype(arrays["o"].dtype)
            return
        p = np.exp(scores - x["stats"])
        gs = p * (x["g"] @ v.swapaxes(2, 3) - (x["g"] * x["o"]).sum(3, keepdims=True)) * np.float32(self.scale)
        found = {"gq": gs @ k, "gk": gs.swapaxes(2, 3) @ x["q"], "gv": p.swapaxes(2, 3) @ x["g"]}
        for name, gradient in found.items():
            if name != "gq":
                batch, heads, length, width = gradient.shape
                gradient = gradient.reshape(batch, heads // group, group, length, width).sum(2)
            arrays[name][:] = gradient.astype(arrays[name].dtype)

    def _compute_convolution(self, arrays, given):
        """One tap after the other: the elements of x that it meets, its weights, and the outputs."""
        x, w, o = (given[name] for name in "xwo")
        padding, stride, dilation = self.geometry
        samples, channels, *size = x.shape
        outs, each, *kernel = w.shape
        groups = channels // each
        made = next(name for name, tensor in self.node.items() if not tensor.given)
        padded = np.zeros((samples, groups, each, *[n + 2 * p for n, p in zip(size, padding, strict=True)]), np.float32)
        inside = padded[(..., *[slice(p, p + n) for n, p in zip(size, padding, strict=True)])]
        if made != "x":
            inside[...] = x.reshape(inside.shape)
        w = np.zeros_like(w) if made == "w" else w
        w = w.reshape(groups, outs // groups, each, *kernel)
        o = np.zeros_like(o) if made == "o" else o
        o = o.reshape(samples, groups, outs // groups, *o.shape[2:])
        for tap in np.ndindex(*kernel):
            window = [
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, s, n in zip(tap, dilation, stride, o.shape[3:], strict=True)
            ]
            met, weights = padded[(..., *window)], w[(..., *tap)]
            if made == "o":
                o += np.einsum("ngcyx,goc->ngoyx", met, weights)
            elif made == "x":
                met += np.einsum("ngoyx,goc->ngcyx", o, weights)
            else:
                weights += np.einsum("ngoyx,ngcyx->goc", o, met)
        arrays[made][...] = {"x": inside, "w": w, "o": o}[made].reshape(arrays[made].shape).astype(arrays[made].dtype)


def install():
    """Makes `import cudnn` return the fake package, over an installed `fake_cupy`."""
    module = types.ModuleType("cudnn")
    vars(module).update({name: thing for name, thing in globals().items() if not name.startswith("_")})
    sys.modules["cudnn"] = module
    return sys.modules["fake_cudnn"]
