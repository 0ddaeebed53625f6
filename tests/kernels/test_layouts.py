"""Compare every kernel with its reference for all memory layouts of inputs and upstream gradients.

The tests walk through the registry of ops. A new kernel needs sample inputs in `SAMPLES` or, for an array kernel, in
`ARRAY_SAMPLES`; without samples its test fails. Kernels run in float32, references in float64 on contiguous copies.

The tests cover the kernels of the default device. `every_kernel_layouts.py` runs the Triton kernels.
"""

import contextlib
import importlib
import math
import pkgutil

import numpy as np
import pytest

import mytorch
from mytorch import ops
from mytorch.arrays import numpy_ns, xp_of
from mytorch.arrays.blocks import LARGE
from mytorch.kernels import arrays, parts, threads
from mytorch.kernels.registry import SMALL
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop

for _module in pkgutil.iter_modules(ops.__path__):  # each module adds its records to the registry
    importlib.import_module(f"mytorch.ops.{_module.name}")

DEVICE = mytorch.get_default_device().type
if DEVICE == "cpu":
    pytest.importorskip("numba", reason="the CPU kernels need Numba")
RECORDS_WITH_KERNELS = sorted(name for name, record in RECORDS.items() if DEVICE in record.kernels.of)
NOT_COMPARED = {"dropout": "the kernel draws its own random numbers"}
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """Gives every test the same random layouts and gradients, independent of the other tests."""
    monkeypatch.setitem(globals(), "rng", np.random.default_rng(0))


# -- layouts: functions of a namespace and a contiguous array, which return an array of the same shape ----------------


def permuted(order):
    """Returns a layout with the axes stored in the given order, outermost first."""
    return lambda xp, x: xp.ascontiguousarray(x.transpose(order)).transpose([order.index(i) for i in range(x.ndim)])


def sliced(start, step):
    """Returns a layout that is a slice of a larger array along every axis."""

    def layout(xp, x):
        buffer = xp.zeros([start + n * step for n in x.shape], x.dtype)
        view = buffer[tuple(slice(start, start + n * step, step) for n in x.shape)]
        view[...] = x
        return view

    return layout


def every_second(xp, x):
    """Returns x as every second element along the last axis of an array."""
    buffer = xp.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    buffer[..., ::2] = x
    return buffer[..., ::2]


def flipped(*axes):
    """Returns a layout with negative strides along the axes, or along all axes."""

    def layout(xp, x):
        flip = tuple(slice(None, None, -1 if not axes or i - x.ndim in axes else None) for i in range(x.ndim))
        return xp.ascontiguousarray(x[flip])[flip]

    return layout


def expanded(*axes):
    """Returns a layout with stride 0 along the axes, or along all axes: the first element is repeated."""

    def layout(xp, x):
        first = tuple(
            slice(0, 1 if not axes or i % x.ndim in [a % x.ndim for a in axes] else None) for i in range(x.ndim)
        )
        return xp.broadcast_to(xp.ascontiguousarray(x[first]), x.shape)

    return layout


def overlapping(xp, x):
    """Returns windows of a vector, which share elements: every axis has a stride of one element."""
    vector = xp.ascontiguousarray(x).reshape(-1)
    return xp.lib.stride_tricks.as_strided(vector, x.shape, (x.itemsize,) * x.ndim)


def read_only(xp, x):
    """Returns a contiguous copy that NumPy doesn't let a kernel write to."""
    x = x.copy()
    if isinstance(x, np.ndarray):
        x.flags.writeable = False
    return x


def layouts_for(ndim):
    """The layouts of arrays with ndim axes, by name."""
    found = {"contiguous": lambda xp, x: x}
    if ndim:
        found |= {"sliced": sliced(1, 1), "strided": sliced(1, 2), "every second": every_second, "flipped": flipped()}
        found |= {"expanded": expanded(), "overlapping": overlapping}
    if ndim > 1:
        axes = list(range(ndim))
        found |= {"reversed": permuted(axes[::-1]), "last two swapped": permuted([*axes[:-2], axes[-1], axes[-2]])}
        found |= {"last axis first": permuted([axes[-1], *axes[:-1]]), "flipped last": flipped(-1)}
        found |= {"expanded first": expanded(0), "expanded last": expanded(-1)}
    if ndim > 2:
        found |= {"channels last": permuted([0, *axes[2:], 1]), "first two swapped": permuted([1, 0, *axes[2:]])}
        found |= {"first axis next to last": permuted([*axes[1:-1], 0, axes[-1]])}
    return found


def random_layout(ndim):
    """One of the layouts, or any order of the axes."""
    choices = list(layouts_for(ndim).values())
    choices += [permuted(rng.permutation(ndim).tolist()) for _ in range(len(choices) // 2 if ndim > 2 else 0)]
    return choices[rng.integers(len(choices))]


def test_layouts_keep_shapes_and_values():
    changed = {"expanded", "expanded first", "expanded last", "overlapping"}
    for ndim in range(7):
        x = rng.standard_normal((2, 3, 4, 5, 3, 2)[:ndim])
        for name, layout in layouts_for(ndim).items():
            y = layout(numpy_ns, x)
            assert y.shape == x.shape, name
            assert name in changed or np.array_equal(x, y), name


# -- sample inputs ----------------------------------------------------------------------------------------------------


class Sample:
    """Inputs and attributes of an op. Arrays among the attributes take part in the layouts.

    `split`: the sample only exists to be large enough for several threads, which Triton's kernels don't have.
    """

    def __init__(self, *inputs, split=False, near=2e-5, **attrs):
        self.inputs, self.attrs, self.split, self.near = inputs, attrs, split, near


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def uniform(*shape):
    return rng.random(shape).astype(np.float32)


def classes(n, *shape):
    return rng.integers(0, n, shape)


THREADS = (131, 127)  # just above the number of elements that several threads share
EPS = 0.1  # of norms: with a small one, the rounding error of the mean of equal numbers would be multiplied by 1 / sqrt(eps)
SHAPES = [(7,), (5, 6), (3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4), (2, 1, 3, 2, 3, 2)]


def elementwise(inputs=(normal,), **attrs):
    """Samples of one to six dimensions."""
    samples = [Sample(*(make(*shape) for make in inputs), **attrs) for shape in SHAPES]
    return [*samples, Sample(*(make(*THREADS) for make in inputs), split=True, **attrs)]


def along_last():
    shapes = [*SHAPES, (16, 1100)]
    return [Sample(normal(*shape), dim=len(shape) - 1, split=shape is shapes[-1]) for shape in shapes]


def along_any():
    """Softmax along every axis but the last one."""
    return [Sample(normal(*shape), dim=dim) for shape in SHAPES[1:4] for dim in range(len(shape) - 1)]


def attention(q, k, v, **attrs):
    """One sample; q, k and v are shapes."""
    near, split = attrs.pop("near", 2e-5), attrs.pop("split", False)
    return Sample(normal(*q), normal(*k), normal(*v), scale=q[-1] ** -0.5, near=near, split=split, **attrs)


def self_attention(*shape, **attrs):
    return attention(shape, shape, shape, **attrs)


def kept(*shape):
    """A dropout mask."""
    return (rng.random(shape) < 0.75).astype(np.float32) / np.float32(0.75)


def convolutions(transposed):
    samples = []
    for sizes, window, stride, padding, dilation, groups in [
        ((2, 4, 9), (3,), (1,), (1,), (1,), 1),
        ((2, 3, 8, 7), (3, 2), (2, 1), (1, 0), (1, 2), 1),
        ((2, 4, 6, 5), (3, 3), (1, 1), (1, 1), (1, 1), 2),
        ((2, 2, 5, 4, 6), (2, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 1), 1),
        ((9, 8, 16, 16), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ]:
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        attrs["split"] = math.prod(sizes) > LARGE
        outs = 6
        if transposed:  # of sizes (N, outs, …): the gradient of the input of a convolution
            sides = zip(sizes[2:], window, stride, padding, dilation, strict=True)
            shape = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sides)
            weight, bias = normal(sizes[1], outs // groups, *window), normal(outs)
            samples.append(Sample(normal(*sizes), weight, bias, shape=shape, **attrs))
        else:
            samples.append(Sample(normal(*sizes), normal(outs, sizes[1] // groups, *window), normal(outs), **attrs))
    return samples


def pools(mean):
    samples = []
    for sizes, kernel, stride, padding in [
        ((2, 3, 9), (3,), (2,), (1,)),
        ((2, 3, 8, 7), (2, 3), (2, 1), (0, 1)),
        ((2, 3, 4, 5, 6), (2, 2, 3), (1, 2, 2), (0, 1, 1)),
        ((5, 6, 24, 24), (2, 2), (2, 2), (0, 0)),
    ]:
        sides = zip(sizes[2:], kernel, stride, padding, strict=True)
        out = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in sides)
        attrs = {"out_size": out, "kernel": kernel, "stride": stride, "padding": padding}
        attrs |= {"scale": 1 / math.prod(kernel)} if mean else {"dilation": (1,) * len(kernel)}
        samples.append(Sample(normal(*sizes), split=math.prod(sizes) > LARGE, **attrs))
    return samples


def row_norms(count, parameters):
    """Samples of a norm over the last one or two axes, with `count` inputs and `parameters` weights."""
    shapes = [
        ((4, 6), (6,)),
        ((3, 4, 5), (5,)),
        ((2, 3, 4, 5), (4, 5)),
        ((2, 3, 2, 2, 4, 5), (5,)),
        ((40, 420), (420,)),
    ]
    return [
        Sample(
            *(normal(*shape) for _ in range(count)), *(normal(*own) for _ in range(parameters)), width=math.prod(own),
            split=shape == (40, 420), near=1e-4, eps=EPS,
        )
        for shape, own in shapes
    ]  # fmt: skip


def channel_norms(**attrs):
    """Samples of a norm or an affine map of the channels of (N, C, …)."""
    shapes = [(4, 3, 9), (3, 4, 5, 2), (2, 4, 3, 2, 5), (2, 2, 3, 2, 2, 3), (5, 6, 24, 24)]
    return [
        Sample(normal(*shape), normal(shape[1]), normal(shape[1]), near=1e-4, split=shape[0] == 5, **attrs)
        for shape in shapes
    ]


def recurrent(inputs, gates, last, **attrs):
    """Samples of a recurrent layer: x (T, N, gates * H), states (N, H), a weight and perhaps a bias."""
    samples = []
    for (T, N, H), reverse in (((5, 3, 4), False), ((4, 3, 5), True), ((3, 36, 40), False)):
        sizes = [N] * (T - 2) + [N - 1] * 2  # the last two steps leave out a row
        states = [normal(N, H) for _ in range(inputs)]
        bias = [normal(gates * H)] * last
        samples.append(
            Sample(
                normal(T, N, gates * H), *states, normal(gates * H, H) / H, *bias, sizes=sizes, reverse=reverse, **attrs
            )
        )
    return samples


def alignments(T, N, W, **options):
    return Sample(
        np.log(uniform(T, N, W) + 0.1), skip=rng.random((N, W)) < 0.5, steps=rng.integers(1, T + 1, N),
        ends=rng.integers(0, W, N), **options,
    )  # fmt: skip


def sampled(N, C, K, S, P, **options):
    return Sample(normal(N, C, S), normal(N, K, P), index=classes(S + 1, N, K, P), **options)


def quantized(rows, outs, ins, group_size=None, *, offset=False, **options):
    """One weight for each number of outputs."""
    lead, outs = (n if isinstance(n, tuple) else (n,) for n in (rows, outs))
    groups = () if group_size is None else (-(-ins // group_size),)
    if group_size is None:
        weights = [rng.integers(-128, 128, (n, ins)).astype(np.int8) for n in outs]
    else:
        weights = [rng.integers(0, 256, (n, groups[0] * group_size // 2)).astype(np.uint8) for n in outs]
    scales, offsets = [uniform(n, *groups) for n in outs], [normal(n, *groups) if offset else None for n in outs]
    return Sample(
        normal(*lead, ins), weights=weights, scales=scales, offsets=offsets, group_size=group_size, near=1e-4, **options
    )


def around_one(*shape):
    """Numbers with products that neither overflow nor vanish."""
    return 1 + normal(*shape) / 100


TABLES = {"cos": normal(4, 6), "sin": normal(4, 6)}

SAMPLES = {
    "sigmoid": elementwise(),
    "relu": elementwise(),
    "gelu": [*elementwise(approximate="none"), *elementwise(approximate="tanh")],
    "silu": elementwise(),
    "relu_squared": elementwise(),
    "hardswish": elementwise(),
    "leaky_relu": elementwise(slope=0.1),
    "hardsigmoid": elementwise(),
    "hardtanh": elementwise(low=-0.5, high=0.7),
    "hardshrink": elementwise(lambd=0.3),
    "softshrink": elementwise(lambd=0.3),
    "threshold": elementwise(level=0.2, value=5.0),
    "elu": [*elementwise(alpha=1.3, scale=1.0, rate=1.0), *elementwise(alpha=1.7, scale=1.05, rate=0.5)],
    "softplus": elementwise(beta=1.5, limit=20.0),
    "logsigmoid": elementwise(),
    "logaddexp": elementwise((normal, normal)),
    "hypot": elementwise((normal, normal)),
    "rsqrt": elementwise((lambda *shape: uniform(*shape) + 0.1,)),  # gradients that float16 can represent
    "lerp": elementwise((normal, normal), weight=0.3) + elementwise((normal, normal), weight=0.7),
    "lerp_by_tensor": elementwise((normal, normal, uniform)),
    "addcmul": elementwise((normal, normal, normal), value=0.5),
    "addcdiv": elementwise((normal, normal, around_one), value=0.5),
    "_squared_error": elementwise((normal, normal)),
    "_clipped_error": elementwise((normal, normal), delta=0.7, scale=1.3),
    "_logistic_error": elementwise((normal, uniform)),
    "elementwise_loss": [
        *elementwise((normal, normal), kind="mse", reduction="none"),
        *elementwise((normal, normal), kind="mse", reduction="mean"),
    ],
    "softmax": [*along_last(), *along_any()],
    "log_softmax": [*along_last(), *along_any()],
    "logsumexp": [
        Sample(s.inputs[0], dim=(s.attrs["dim"],), keepdim=keepdim, split=s.split)
        for keepdim in (False, True)
        for s in [*along_last(), *along_any()]
    ],
    "masked_softmax": [
        Sample(normal(4, 5), causal=True),
        Sample(normal(2, 3, 4, 5), normal(3, 1, 5)),
        Sample(normal(2, 2, 3, 4, 5), rng.random((2, 2, 3, 4, 5)) < 0.7),
    ],
    "scaled_dot_product_attention": [
        self_attention(5, 6),
        self_attention(3, 20, 6),
        self_attention(2, 3, 16, 8, causal=True),
        attention((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 6)),
        attention((2, 3, 2, 4), (2, 3, 60, 4), (2, 3, 60, 4)),  # a few queries
        self_attention(2, 3, 2, 16, 8),
        self_attention(2, 3, 2, 12, 8, keep=kept(2, 3, 2, 12, 12)),
        self_attention(2, 2, 3, 2, 12, 4, causal=True, window=(5, 0)),
        self_attention(2, 3, 2, 9, 16, 8, split=True),
        self_attention(1, 2, 260, 8, causal=True, split=True),  # several blocks of rows for each head
        self_attention(2, 1, 2, 257, 4, causal=True, window=(30, 0), split=True),
        self_attention(2, 260, 4, keep=kept(2, 260, 260), split=True),
        Sample(*(normal(2, 3, 6, 4) for _ in "qkv"), normal(3, 1, 6), scale=0.5),
        Sample(*(normal(2, 2, 3, 6, 4) for _ in "qkv"), rng.random((2, 1, 3, 6, 6)) < 0.7, scale=0.5),
    ],
    "convolution": convolutions(transposed=False),
    "convolution_input": convolutions(transposed=True),
    "cross_entropy": [
        Sample(normal(7, 5), target=classes(5, 7), reduction="none", ignore_index=2),
        Sample(normal(7, 5), target=classes(5, 7), reduction="mean"),
        Sample(normal(7, 5), target=classes(5, 7), weight=uniform(5), label_smoothing=0.1, reduction="sum"),
        Sample(normal(131, 127), target=classes(127, 131), reduction="none", split=True),
    ],
    "cross_entropy_soft": [
        Sample(normal(7, 5), uniform(7, 5), reduction="none"),
        Sample(normal(7, 5), uniform(7, 5), weight=uniform(5), label_smoothing=0.1, reduction="mean"),
    ],
    "nll": [
        Sample(normal(4, 5, 3), target=classes(5, 4, 3), reduction="none"),
        Sample(normal(4, 5, 3), target=classes(5, 4, 3), weight=uniform(5), reduction="mean"),
    ],
    "linear_cross_entropy": [
        Sample(normal(6, 4), normal(5, 4), normal(5), target=classes(5, 6), weight=uniform(5), reduction="mean"),
        Sample(normal(6, 4), normal(5, 4), target=classes(5, 6), reduction="sum"),
    ],
    "alignments": [alignments(6, 3, 5), alignments(16, 9, 15, split=True)],
    "max_pool": pools(mean=False),
    "avg_pool": pools(mean=True),
    "layer_norm": row_norms(1, 2),
    "rms_norm": row_norms(1, 1),
    "add_layer_norm": row_norms(2, 2),
    "add_rms_norm": row_norms(2, 1),
    "group_norm": [
        Sample(normal(*shape), normal(shape[1]), normal(shape[1]), num_groups=2, near=1e-4, eps=EPS)
        for shape in [(3, 4, 5), (2, 4, 3, 5), (2, 6, 2, 3, 2)]
    ],
    "batch_norm": [
        *channel_norms(eps=EPS),
        Sample(normal(4, 3, 9), normal(3), normal(3), stats=(normal(3), uniform(3) + 0.5)),
    ],
    "channel_affine": channel_norms(),
    "sampled": [sampled(2, 3, 4, 10, 7), sampled(3, 5, 4, 50, 300, split=True)],
    "lstm": recurrent(2, 4, 0),
    "gru": recurrent(1, 3, 1),
    "rnn": [*recurrent(1, 1, 0), *recurrent(1, 1, 0, relu=True)],
    "quantized_linear": [
        quantized(3, 9, 37),
        quantized((2, 3), 8, 64, 32, offset=True),
        quantized((2, 2, 5), 8, 60, 16, offset=True),  # more rows than the loops take
        quantized(20, 9, 64, 32),
        quantized(2, 130, 256, split=True),
        quantized(2, (130, 7, 64), 256, 32, split=True),
        quantized(19, (70, 33), 64, 32, split=True),
        quantized(3, (5, 9), 37, offset=False),
    ],
    "linear": [Sample(normal(6, 4), normal(5, 4), normal(5)), Sample(normal(2, 3, 2, 4), normal(5, 4), normal(5))],
    "linear_activation": [
        Sample(normal(6, 4), normal(5, 4), normal(5), activation="gelu"),
        Sample(normal(2, 3, 2, 4), normal(5, 4), normal(5), activation="silu"),
    ],
    "gelu_mlp": [Sample(normal(2, 3, 8), normal(16, 8), normal(8, 16), normal(16), normal(8))],
    "rotary": [Sample(normal(2, 3, 4, 6), **TABLES)],
    "embedding": [
        Sample(normal(7, 5), classes(7, 3)),
        Sample(normal(7, 5), classes(7, 2, 3, 4), padding_idx=2, scale_grad_by_freq=True),
    ],
    "gated": [
        Sample(normal(3, 6), gate="silu"),
        Sample(normal(3, 5), normal(3, 5), gate="gelu"),
        Sample(normal(2, 3, 4, 6), normal(2, 3, 4, 6), gate="relu"),
    ],
}  # fmt: skip


# -- ops --------------------------------------------------------------------------------------------------------------


def on_device(x):
    """A NumPy array on the device of the kernels, contiguous."""
    return mytorch.tensor(x, device=DEVICE)._mt_data._array


def on_host(raw):
    """A contiguous NumPy copy of a raw array, with float32 numbers as float64."""
    x = np.array(mytorch.Tensor._wrap(raw).cpu()._mt_data._array, order="C")
    return x.astype(np.float64) if x.dtype == np.float32 else x


def each_array(function, values):
    """Applies a function to the arrays among the values of a dictionary, including arrays in tuples."""

    def applied(value):
        if isinstance(value, tuple):
            return tuple(map(applied, value))
        return function(value) if hasattr(value, "strides") else value

    return {name: applied(value) for name, value in values.items()}


def run(record, raws, attrs, needs, gradients=None, *, fused):
    """Outputs of an op and gradients of its inputs as NumPy arrays.

    Args:
        raws: raw arrays of the inputs. needs: which of them require gradients.
        gradients: a function that returns the upstream gradient for a raw output.
    """
    tensors = [mytorch.Tensor._wrap(raw) for raw in raws]
    for tensor, need in zip(tensors, needs, strict=True):
        tensor.requires_grad_(need)
    if fused or record.is_differentiable:
        outs = record.dispatch(*tensors, fused=fused, **attrs)
    else:  # the forward of such a record composes other ops, which have the gradients
        outs = record.forward(None, *tensors, **attrs)
    outs = outs if isinstance(outs, tuple) else (outs,)
    roots = [(i, out) for i, out in enumerate(outs) if out.requires_grad]
    found = [on_host(out._mt_data._array) for out in outs]
    if roots:
        wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
        ups = [mytorch.Tensor._wrap(gradients(i, out._mt_data._array)) for i, out in roots]
        grads = mytorch.autograd.grad([out for _, out in roots], wanted, ups, allow_unused=True)
        found += [None if g is None else on_host(g._mt_data._array) for g in grads]
    return found


def compare(record, sample, raws, attrs, needs, layout_of_gradient, label):
    """Compares a kernel with the reference; returns False if the kernel doesn't accept these arrays."""
    if not record.kernels.of[DEVICE].load().accepts(*raws, **attrs):
        return False
    before = [on_host(raw) for raw in raws]
    ups = {}

    def upstream(i, out):
        # `layout` may change the values, so the reference reads them back
        up = on_device(np.asarray(rng.standard_normal(out.shape), np.float32))
        ups[i] = layout_of_gradient(out.ndim)(xp_of(out), up)
        return ups[i]

    got = run(record, raws, attrs, needs, upstream, fused=True)
    kept = {i: on_host(up) for i, up in ups.items()}
    with mytorch.device("cpu") if DEVICE != "cpu" else contextlib.nullcontext():
        want = run(record, before, each_array(on_host, attrs), needs, lambda i, out: kept[i], fused=False)
    assert len(got) == len(want), label
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a is None) == (b is None), f"{label}: result {i}"
        if b is not None:
            # A sum of n terms has the size sqrt(n) unless the terms cancel, as they do for some expanded gradients.
            scale = max(np.abs(b).max(initial=0.0), math.sqrt(max(want[0].size / max(b.size, 1), 1)))
            np.testing.assert_allclose(a, b, rtol=0, atol=sample.near * scale, err_msg=f"{label}: result {i}")
    for raw, values in zip(raws, before, strict=True):
        np.testing.assert_array_equal(on_host(raw), values, err_msg=f"{label}: the kernel wrote to an input")
    return True


def contiguous(ndim):
    return layouts_for(ndim)["contiguous"]


def arrangements(sample):
    """Yields (label, layout of inputs, of attributes, of the upstream gradient), each a function of the number of axes."""
    ndim = max(x.ndim for x in sample.inputs)
    yield "contiguous", contiguous, contiguous, contiguous
    yield "read only", *[lambda ndim: read_only] * 3  # all at once: Numba compiles a kernel for each combination
    for name in layouts_for(max(ndim, 6)):

        def chosen(ndim, name=name):
            return layouts_for(ndim).get(name, contiguous(ndim))

        if name in layouts_for(ndim):
            yield f"inputs {name}", chosen, contiguous, contiguous
        if any(hasattr(value, "strides") or isinstance(value, tuple) for value in sample.attrs.values()):
            yield f"attributes {name}", contiguous, chosen, contiguous
        yield f"gradient {name}", contiguous, contiguous, chosen
    for i in range(4):
        yield f"mixture {i}", random_layout, random_layout, random_layout


def slices_of_one(raws):
    """Arrays of one shape as slices of one array with its axes in a random order, as `unbind` returns them."""
    xp, ndim = xp_of(raws[0]), raws[0].ndim + 1
    return list(permuted(rng.permutation(ndim).tolist())(xp, xp.stack(raws)))


@loop
@pytest.mark.parametrize("name", RECORDS_WITH_KERNELS)
def test_kernel(name, pytestconfig):
    """Forward and gradients, with all inputs differentiable and with each input separately.

    The first sample of an op is in all layouts. The others, which take the same kernel, are in some of them; in all with
    `--all-kernels`.
    """
    if name in NOT_COMPARED:
        pytest.skip(NOT_COMPARED[name])
    record, accepted = RECORDS[name], 0
    module = record.kernels.of[DEVICE].load()
    assert module is not None, record.kernels.of[DEVICE].problem
    assert SAMPLES.get(name), f"the op {name} has a kernel, and needs samples in SAMPLES"
    for number, sample in enumerate(SAMPLES[name]):
        plain = [on_device(x) for x in sample.inputs]
        attrs = each_array(on_device, sample.attrs)
        if (sample.split and DEVICE != "cpu") or not module.accepts(*plain, **attrs):
            continue  # a sample for another device
        accepted += 1
        every = [raw.dtype == np.float32 for raw in plain]
        plans = list(arrangements(sample))
        most = 20 if DEVICE == "cpu" else 6  # Triton's interpreter is slow
        if DEVICE != "cpu" or (accepted > 1 and not pytestconfig.getoption("--all-kernels")):
            plans = [plans[i] for i in sorted(rng.choice(len(plans), min(len(plans), most), replace=False))]
        for label, of_inputs, of_attrs, of_gradient in plans:
            raws = [of_inputs(raw.ndim)(xp_of(raw), raw) for raw in plain]
            laid_out = each_array(lambda raw, of=of_attrs: of(raw.ndim)(xp_of(raw), raw), attrs)
            compare(record, sample, raws, laid_out, every, of_gradient, f"{name}, sample {number}, {label}")
        if len({x.shape for x in sample.inputs}) == 1 < len(plain):
            for i in range(6 if DEVICE == "cpu" else 3):
                label = f"{name}, sample {number}, slices of one array {i}"
                compare(record, sample, slices_of_one(plain), attrs, every, random_layout, label)
        for i in range(len(plain)):
            alone = [i == j and need for j, need in enumerate(every)]
            raws = [random_layout(raw.ndim)(xp_of(raw), raw) for raw in plain]
            compare(record, sample, raws, attrs, alone, random_layout, f"{name}, sample {number}, input {i} alone")
    assert accepted, f"the kernel of {name} accepts none of its samples"


@loop
@pytest.mark.skipif(DEVICE != "cpu", reason="the GPU kernels compute half precision directly")
@pytest.mark.parametrize("dtype", [mytorch.bfloat16, mytorch.float16], ids=str)
@pytest.mark.parametrize("name", RECORDS_WITH_KERNELS)
def test_kernel_in_half_precision(name, dtype):
    """A CPU kernel computes half precision in float32: results and gradients are rounded once."""
    reason = {**NOT_COMPARED, "alignments": "ctc_loss calls it in float32, since it uses numbers up to 1e30"}.get(name)
    if reason:
        pytest.skip(reason)
    record = RECORDS[name]
    module = record.kernels.of["cpu"].load()
    for number, sample in enumerate(SAMPLES[name]):
        if sample.inputs[0].size < SMALL or not module.accepts(*sample.inputs, **sample.attrs):
            continue
        layout = random_layout(sample.inputs[0].ndim) if sample.inputs[0].ndim > 1 else contiguous(1)
        raws = [x.astype(dtype.numpy) if x.dtype == np.float32 else x for x in sample.inputs]
        raws[0] = layout(numpy_ns, raws[0])
        needs = [x.dtype == dtype.numpy for x in raws]
        ups = {}

        def upstream(i, out, ups=ups):
            ups[i] = np.asarray(rng.standard_normal(out.shape)).astype(out.dtype)
            return ups[i]

        got = run(record, raws, sample.attrs, needs, upstream, fused=True)
        wide = [np.array(x, np.float64) if x.dtype == dtype.numpy else x for x in raws]
        want = run(
            record,
            wide,
            each_array(on_host, sample.attrs),
            needs,
            lambda i, out, ups=ups: ups[i].astype(np.float64),
            fused=False,
        )
        epsilon = float(mytorch.finfo(dtype).eps)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            if b is not None:
                scale = max(np.abs(b).max(initial=0.0), math.sqrt(max(want[0].size / max(b.size, 1), 1)))
                # Saved outputs are rounded, too, so gradients can differ by a few units in the last place.
                bound = max(sample.near, 4 * epsilon) * scale
                np.testing.assert_allclose(
                    a.astype(np.float64), b, rtol=0, atol=bound, err_msg=f"{name}, sample {number}: result {i}"
                )


@loop
@pytest.mark.skipif(DEVICE != "cpu", reason="kernels of a GPU use no threads")
@pytest.mark.parametrize("name", RECORDS_WITH_KERNELS)
def test_measured_times_change_no_result(name, monkeypatch):
    """Whether a call is divided among threads depends on measured times. Its result has the same bits in both cases."""
    if name in NOT_COMPARED:
        pytest.skip(NOT_COMPARED[name])
    record = RECORDS[name]
    module = record.kernels.of["cpu"].load()
    monkeypatch.setattr(threads, "SMALL", 8)
    monkeypatch.setattr(threads, "_count", 3)
    for number, sample in enumerate(SAMPLES[name]):
        if not module.accepts(*sample.inputs, **sample.attrs):
            continue
        needs, ups = [x.dtype == np.float32 for x in sample.inputs], {}

        def upstream(i, out, ups=ups):
            return ups.setdefault(i, np.asarray(rng.standard_normal(out.shape), np.float32))

        found = []
        for divided in (True, False):
            monkeypatch.setattr(threads, "pays", lambda *call, divided=divided: divided)
            found.append(run(record, [x.copy() for x in sample.inputs], sample.attrs, needs, upstream, fused=True))
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b, f"{name}, sample {number}")


def test_attention_of_slices_in_every_order():
    """q, k and v are slices of one tensor with its axes permuted, as in models with windowed attention (hiera)."""
    for order in ((3, 0, 4, 2, 1, 5), (3, 0, 4, 1, 2, 5), (3, 4, 2, 0, 1, 5), (3, 2, 4, 0, 1, 5), (3, 1, 2, 4, 0, 5)):
        x, w, found = normal(*((3, 9, 10, 3, 11, 8) if DEVICE == "cpu" else (2, 2, 3, 3, 2, 8))), None, []
        for fused, dtype in ((True, mytorch.float32), (False, mytorch.float64)):
            qkv = mytorch.tensor(x, dtype=dtype, requires_grad=True)
            q, k, v = qkv.permute(*order).unbind(0)
            out = mytorch.nn.functional.scaled_dot_product_attention(q, k, v, fused=fused).transpose(1, 3)
            w = normal(*out.shape) if w is None else w
            (out * mytorch.tensor(w, dtype=dtype)).sum().backward()
            found.append((out.detach().double().cpu().numpy(), qkv.grad.double().cpu().numpy()))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max(), err_msg=str(order))


# -- kernels of array functions ---------------------------------------------------------------------------------------

BFLOAT16 = mytorch.bfloat16.numpy
# Functions that change their first argument.
WRITES = set("add_along add_rows put_along max_along min_along prod_along".split())
ALONG_AXES = [((93, 101), 1), ((101, 93), 0), ((5, 61, 29), 1), ((3, 7, 20, 23), 2), ((2, 3, 4, 5, 6, 13), 3)]
REDUCED = [
    Sample(np.float32(0.9) + uniform(*shape) / 5, axis=axis)
    for shape, axis in [
        ((93, 101), 1),
        ((93, 101), None),
        ((4, 50, 60), (1, 2)),
        ((5, 60, 29), 1),
        ((3, 4, 5, 3, 70), -1),
    ]
]


def permutations(dim, *shape):
    """Indices along an axis without repetitions."""
    return np.argsort(rng.random(shape), dim)


ARRAY_SAMPLES = {
    "gather": [Sample(normal(*shape), classes(shape[dim], *shape), dim) for shape, dim in ALONG_AXES],
    "put_along": [Sample(normal(*s), permutations(dim, *s), dim, normal(*s)) for s, dim in ALONG_AXES],
    **dict.fromkeys(
        ("add_along", "max_along", "min_along"),
        [Sample(normal(*shape), classes(shape[dim], *shape), dim, normal(*shape)) for shape, dim in ALONG_AXES],
    ),
    "prod_along": [
        Sample(normal(*shape), classes(shape[dim], *shape), dim, around_one(*shape), near=1e-5)
        for shape, dim in ALONG_AXES
    ],
    "add_rows": [Sample(normal(150, width), classes(150, 300), normal(300, width)) for width in (64, 70)]
    + [Sample(normal(9001, 1), classes(9001, 300), normal(300, 1))],
    "large_where": [
        Sample(rng.random(shape) < 0.5, normal(*shape), other)
        for shape in [(93, 101), (5, 61, 29), (3, 7, 20, 23)]
        for other in (normal(*shape), 0.5)
    ],
    **dict.fromkeys(("erf", "erfc"), [Sample(normal(93, 101), near=2e-6), Sample(normal(5, 61, 29), near=2e-6)]),
    "take_last": [Sample(normal(*s), classes(s[-1], 40)) for s in [(93, 101), (5, 61, 29), (3, 7, 20, 23), (1, 9000)]],
    "flipped": [Sample(normal(93, 101), (1,)), Sample(normal(5, 61, 29), (2, 1)), Sample(normal(20000), (0,))],
    "clip": [Sample(normal(93, 101), -0.5, 0.7), Sample(normal(5, 61, 29), -np.inf, np.float32(0.1))],
    **{
        name: [
            Sample(
                *[1 + uniform(*shape) if name == "arccosh" else 0.01 + 0.98 * uniform(*shape) for _ in range(count)],
                near=1e-6,
            )
            for shape in [(93, 101), (5, 61, 29), (3, 7, 20, 23)]
        ]
        for name, count in parts.SCALAR.items()
    },
    "sign": [Sample(normal(93, 101)), Sample(normal(5, 61, 29)), Sample(normal(3, 7, 20, 23))],
    "cast": [
        Sample(normal(*shape), half, near=2**-8)
        for shape in [(93, 101), (3, 7, 20, 23)]
        for half in (BFLOAT16, np.dtype("float16"))
    ]
    + [Sample(normal(93, 101).astype(half), np.dtype("float32")) for half in (BFLOAT16, "float16")],
    "top": [Sample(normal(93, 101), 5, True), Sample(normal(3, 7, 20, 23), 4, False)],
    "half_product": [
        Sample(normal(*a).astype(BFLOAT16), normal(*b).astype(BFLOAT16), near=2**-7)
        for a, b in [((90, 101), (101, 65)), ((3, 50, 64), (64, 50)), ((3, 50, 64), (3, 64, 50))]
    ],
    "prod": [  # products that do not overflow, with the error bound of NumPy's float32 product, n times 2^-24
        Sample(1 + (x.inputs[0] - 1) / 1000, near=x.inputs[0].size * 2**-24, **x.attrs) for x in REDUCED
    ],
    "large_sum": REDUCED + [Sample(classes(1 << 50, *x.inputs[0].shape), **x.attrs) for x in REDUCED],
    "sum_of_squares": REDUCED,
    "sum_of_magnitudes": REDUCED,
    "squared_deviations": REDUCED,
    "cumsum": [Sample(normal(*shape), axis=axis) for shape, axis in ALONG_AXES],
    "cumprod": [Sample(around_one(*shape), axis=axis) for shape, axis in ALONG_AXES],
    "running_best": [Sample(normal(*shape), dim, largest) for shape, dim in ALONG_AXES for largest in (True, False)],
}


def as_reference(value):
    """The argument of the reference: a contiguous copy of an array, floats as float64."""
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value, np.float64 if value.dtype.kind in "fV" else value.dtype, order="C")


def wide(x):
    """Any result as an array, floats as float64."""
    return np.asarray(x, np.float64 if np.asarray(x).dtype.kind in "fV" else None)


def array_arrangements(writes):
    """Yields (label, layout of the first argument, of the others), each a function of the number of axes."""
    kept = {"expanded", "expanded first", "expanded last", "overlapping"} if writes else set()
    choices = {ndim: {k: v for k, v in layouts_for(ndim).items() if k not in kept} for ndim in range(7)}

    def mixed(ndim):
        found = list(choices[ndim].values())
        return found[rng.integers(len(found))]

    for name in layouts_for(6):

        def chosen(ndim, name=name):
            return choices[ndim].get(name, contiguous(ndim))

        yield f"first argument {name}", chosen, contiguous
        yield f"other arguments {name}", contiguous, chosen
    yield "read only", contiguous if writes else lambda ndim: read_only, lambda ndim: read_only
    for i in range(6):
        yield f"mixture {i}", mixed, mixed


@pytest.mark.skipif(DEVICE != "cpu", reason="the array functions have kernels on the CPU only")
@pytest.mark.parametrize("name", sorted(arrays.COMPILED))
def test_array_kernel(name):
    kernel, function, accepted = arrays.COMPILED[name].of["cpu"].load(), getattr(numpy_ns, name), 0
    assert ARRAY_SAMPLES.get(name), f"the array function {name} has a kernel, and needs samples in ARRAY_SAMPLES"
    for number, sample in enumerate(ARRAY_SAMPLES[name]):
        assert sample.inputs[0].size >= LARGE, "the sample is too small for a kernel"
        for arrangement, first, others in array_arrangements(name in WRITES):
            label = f"{name}, sample {number}, {arrangement}"
            layouts = [first, *[others] * (len(sample.inputs) - 1)]
            laid_out = [
                layout(x.ndim)(numpy_ns, x.copy()) if isinstance(x, np.ndarray) else x
                for x, layout in zip(sample.inputs, layouts, strict=True)
            ]
            reference = [as_reference(x) for x in laid_out]
            takes = kernel.accepts(*laid_out, **sample.attrs)
            accepted += takes
            got = kernel.forward(numpy_ns, *laid_out, **sample.attrs) if takes else function(*laid_out, **sample.attrs)
            with mytorch.fused(False):
                want = function(*reference, **sample.attrs)
            for a, b in [(got, want), *zip(laid_out, reference, strict=True)]:  # the arguments too: some are written to
                if b is None or isinstance(b, (int, float, bool, np.dtype)):
                    continue
                a, b = wide(a), wide(b)
                near = sample.near * max(np.abs(b).max(initial=0), 1) if b.dtype.kind == "f" else 0
                assert a.shape == b.shape, label
                np.testing.assert_allclose(a, b, rtol=0, atol=near, err_msg=label)
    if not accepted and hasattr(kernel, "TAKES"):
        pytest.skip(f"{name} takes {kernel.TAKES} only")
    assert accepted, f"the kernel of {name} accepts none of its samples"
