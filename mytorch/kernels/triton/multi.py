"""Updates of all parameters in one launch: AdamW, SGD and Lion steps, gradient norm, clipping, unscaling.

A model has hundreds of parameters. At 20 µs per launch, separate updates would take longer than the memory traffic. So a
kernel gets a **table** in device memory. For each chunk of 4096 elements it has the tensor and the first element.
For each tensor it has the addresses of its arrays and its length. A program looks up its chunk, converts the address to a
pointer, and works on it like on an argument.

Values that change from step to step are in device memory too (`state`, float32). A training step captured into a CUDA
graph therefore replays with a new learning rate, step count, gradient scale and clip factor. See `new_state`.

    unscale      g *= inverse_scale, found_inf = 1 if an element is not finite
    norm         norm = sqrt(sum g²) and clip = min(max_norm / (norm + 1e-6), 1)
    count        step += 1, unless found_inf
    step         g' = g * clip, then the rule; nothing at all if found_inf
    update_scale scale and growth_tracker after a step, inverse_scale = 1 / scale, found_inf = 0

Clipping thus needs no separate pass: the step applies its factor. `clip` changes the gradients themselves, like PyTorch's
clip_grad_norm_, and passes over them only if the factor is not 1.

Grid: one program for each chunk. Accumulation: float32; one program adds the sums of the chunks in a fixed order.
Arguments of all kernels:

    table_ptr (tensors, ARRAYS + 1) int64: the addresses of a tensor's arrays and its length
    chunks_ptr (chunks, 2) int64: a chunk's tensor and first element
    state_ptr (8,) float32
"""

from functools import lru_cache

import numpy as np
import triton
import triton.language as tl

from ...arrays import address, device_of
from ...arrays.capturing import constant, is_recording, upload
from ...arrays.memory_format import agree, is_dense
from ..launch import cdiv, launch
from .common import is_float, one_program, strides_of

CHUNK = 4096  # elements of a program
PLACES = 8  # length of the state
LR, STEP, CLIP, FOUND_INF, INVERSE_SCALE, NORM, SCALE, GROWTH = range(PLACES)  # indices into the state
# For the kernels.
_LR, _STEP, _CLIP, _FOUND_INF, _INVERSE_SCALE, _NORM, _SCALE, _GROWTH = map(tl.constexpr, range(PLACES))
TAKES = "arrays without gaps in memory, of one dtype (float32, float16 or bfloat16), on one device"


def accepts(raws):
    """Returns True if one launch supports these arrays, see TAKES."""
    dtype, device = raws[0].dtype, device_of(raws[0])
    return is_float(raws[0]) and all(r.dtype == dtype and device_of(r) is device and _has_no_gaps(r) for r in raws)


def _has_no_gaps(raw):
    return raw.flags.c_contiguous or is_dense(raw.shape, strides_of(raw))


def match(raw, other):
    """Returns True if the elements of two arrays are in the same order in memory, so that a kernel may pair them."""
    if raw.flags.c_contiguous and other.flags.c_contiguous:
        return raw.size == other.size
    return raw.shape == other.shape and agree(raw, strides_of(other))


@triton.jit
def _at(table_ptr, tensor, which, arrays, dtype: tl.constexpr, ALIGNED: tl.constexpr):
    """Returns the pointer to one of a tensor's arrays.

    ALIGNED: addresses and lengths are multiples of 16, so that a thread may load 16 bytes at once.
    """
    pointer = tl.load(table_ptr + tensor * (arrays + 1) + which).to(tl.pointer_type(dtype))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _chunk(table_ptr, chunks_ptr, arrays, ALIGNED: tl.constexpr, CHUNK: tl.constexpr):
    """Returns this program's tensor, the first element of its chunk, and the length of the tensor."""
    tensor = tl.load(chunks_ptr + 2 * tl.program_id(0))
    start = tl.load(chunks_ptr + 2 * tl.program_id(0) + 1)
    length = tl.load(table_ptr + tensor * (arrays + 1) + arrays)
    if ALIGNED:
        length = tl.multiple_of(length, 16)
    return tensor, tl.multiple_of(start, CHUNK), length


@triton.jit
def _gradient(g_ptr, inside, clip, MAXIMIZE: tl.constexpr):
    """Loads a block of gradients, times the clip factor, negated for MAXIMIZE."""
    g = tl.load(g_ptr, mask=inside, other=0.0).to(tl.float32) * clip
    if MAXIMIZE:
        g = -g
    return g


@triton.jit
def _adamw(table_ptr, chunks_ptr, state_ptr, beta1, beta2, rest1, rest2, log_beta1, log_beta2, eps, decay,
           P: tl.constexpr, G: tl.constexpr, DECOUPLED: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr,
           ARRAYS: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """AdamW or Adam step. Columns: p, g, exp_avg, exp_avg_sq[, max_exp_avg_sq]."""
    if tl.load(state_ptr + _FOUND_INF) == 0.0:
        tensor, start, length = _chunk(table_ptr, chunks_ptr, ARRAYS, ALIGNED, CHUNK)
        lr = tl.load(state_ptr + _LR)
        step = tl.load(state_ptr + _STEP).to(tl.float64)
        clip = tl.load(state_ptr + _CLIP)
        # Bias correction, with beta^step = 2^(step log2 beta).
        rest_m = (1.0 - tl.exp2(step * log_beta1)).to(tl.float32)  # in float64: 1 - beta^step cancels digits
        rest_v = (1.0 - tl.exp2(step * log_beta2)).to(tl.float32)
        step_size = lr / rest_m
        root = 1.0 / tl.sqrt(rest_v)
        p_ptr = _at(table_ptr, tensor, 0, ARRAYS, P, ALIGNED)
        g_ptr = _at(table_ptr, tensor, 1, ARRAYS, G, ALIGNED)
        m_ptr = _at(table_ptr, tensor, 2, ARRAYS, tl.float32, ALIGNED)
        v_ptr = _at(table_ptr, tensor, 3, ARRAYS, tl.float32, ALIGNED)
        for begin in range(0, CHUNK, BLOCK):
            index = start + begin + tl.arange(0, BLOCK)
            inside = index < length
            p = tl.load(p_ptr + index, mask=inside, other=0.0).to(tl.float32)
            g = _gradient(g_ptr + index, inside, clip, MAXIMIZE)
            m = tl.load(m_ptr + index, mask=inside, other=0.0)
            v = tl.load(v_ptr + index, mask=inside, other=0.0)
            # AdamW decays the parameter itself, Adam adds decay * p to the gradient.
            if DECOUPLED:
                p *= 1.0 - lr * decay
            else:
                g += decay * p
            m = beta1 * m + rest1 * g
            v = beta2 * v + rest2 * g * g
            tl.store(m_ptr + index, m, mask=inside)
            tl.store(v_ptr + index, v, mask=inside)
            if AMSGRAD:
                top_ptr = _at(table_ptr, tensor, 4, ARRAYS, tl.float32, ALIGNED)
                v = tl.maximum(v, tl.load(top_ptr + index, mask=inside, other=0.0))
                tl.store(top_ptr + index, v, mask=inside)
            p -= step_size * m / (tl.sqrt(v) * root + eps)
            tl.store(p_ptr + index, p.to(P), mask=inside)


@triton.jit
def _sgd(table_ptr, chunks_ptr, state_ptr, momentum, damp, decay, P: tl.constexpr, G: tl.constexpr,
         MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, MAXIMIZE: tl.constexpr,
         ARRAYS: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """SGD step. Columns: p, g[, momentum_buffer]."""
    if tl.load(state_ptr + _FOUND_INF) == 0.0:
        tensor, start, length = _chunk(table_ptr, chunks_ptr, ARRAYS, ALIGNED, CHUNK)
        lr = tl.load(state_ptr + _LR)
        # PyTorch initializes the buffer to the first gradient, without dampening.
        first = tl.load(state_ptr + _STEP) == 1.0
        clip = tl.load(state_ptr + _CLIP)
        p_ptr = _at(table_ptr, tensor, 0, ARRAYS, P, ALIGNED)
        g_ptr = _at(table_ptr, tensor, 1, ARRAYS, G, ALIGNED)
        for begin in range(0, CHUNK, BLOCK):
            index = start + begin + tl.arange(0, BLOCK)
            inside = index < length
            p = tl.load(p_ptr + index, mask=inside, other=0.0).to(tl.float32)
            g = _gradient(g_ptr + index, inside, clip, MAXIMIZE)
            g += decay * p
            if MOMENTUM:
                b_ptr = _at(table_ptr, tensor, 2, ARRAYS, tl.float32, ALIGNED)
                b = tl.load(b_ptr + index, mask=inside, other=0.0)
                b = tl.where(first, g, momentum * b + damp * g)
                tl.store(b_ptr + index, b, mask=inside)
                if NESTEROV:
                    g += momentum * b
                else:
                    g = b
            p -= lr * g
            tl.store(p_ptr + index, p.to(P), mask=inside)


@triton.jit
def _lion(table_ptr, chunks_ptr, state_ptr, beta1, beta2, rest1, rest2, decay, P: tl.constexpr, G: tl.constexpr,
          MAXIMIZE: tl.constexpr, ARRAYS: tl.constexpr, ALIGNED: tl.constexpr,
          CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Lion step. Columns: p, g, exp_avg. Source: Chen et al., 2023."""
    if tl.load(state_ptr + _FOUND_INF) == 0.0:
        tensor, start, length = _chunk(table_ptr, chunks_ptr, ARRAYS, ALIGNED, CHUNK)
        lr = tl.load(state_ptr + _LR)
        clip = tl.load(state_ptr + _CLIP)
        p_ptr = _at(table_ptr, tensor, 0, ARRAYS, P, ALIGNED)
        g_ptr = _at(table_ptr, tensor, 1, ARRAYS, G, ALIGNED)
        m_ptr = _at(table_ptr, tensor, 2, ARRAYS, tl.float32, ALIGNED)
        for begin in range(0, CHUNK, BLOCK):
            index = start + begin + tl.arange(0, BLOCK)
            inside = index < length
            p = tl.load(p_ptr + index, mask=inside, other=0.0).to(tl.float32)
            g = _gradient(g_ptr + index, inside, clip, MAXIMIZE)
            m = tl.load(m_ptr + index, mask=inside, other=0.0)
            # The sign of an interpolation; the momentum itself uses beta2.
            update = beta1 * m + rest1 * g
            sign = tl.where(update > 0.0, 1.0, tl.where(update < 0.0, -1.0, 0.0))
            p = p * (1.0 - lr * decay) - lr * sign
            tl.store(m_ptr + index, beta2 * m + rest2 * g, mask=inside)
            tl.store(p_ptr + index, p.to(P), mask=inside)


@triton.jit
def _squares(table_ptr, chunks_ptr, parts_ptr, G: tl.constexpr, ARRAYS: tl.constexpr, WHICH: tl.constexpr,
             ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Stores the sum of squares of a chunk of column WHICH in parts_ptr (chunks,)."""
    tensor, start, length = _chunk(table_ptr, chunks_ptr, ARRAYS, ALIGNED, CHUNK)
    g_ptr = _at(table_ptr, tensor, WHICH, ARRAYS, G, ALIGNED)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, CHUNK, BLOCK):
        index = start + begin + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + index, mask=index < length, other=0.0).to(tl.float32)
        total += g * g
    tl.store(parts_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _finish_norm(parts_ptr, state_ptr, count, max_norm, CLIPS: tl.constexpr, BLOCK: tl.constexpr):
    """Computes the norm, and with CLIPS the clip factor, in one program."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        total += tl.load(parts_ptr + start + lane, mask=start + lane < count, other=0.0)
    norm = tl.sqrt(tl.sum(total, axis=0))
    tl.store(state_ptr + _NORM, norm)
    if CLIPS:
        factor = max_norm / (norm + 1e-6)  # 1e-6 as in torch.nn.utils.clip_grad_norm_
        # At most 1. A NaN norm gives a NaN factor, so that the error is visible.
        tl.store(state_ptr + _CLIP, tl.where(factor < 1.0, factor, tl.where(norm != norm, norm, 1.0)))


@triton.jit
def _multiply(table_ptr, chunks_ptr, state_ptr, G: tl.constexpr, WHICH: tl.constexpr, BY: tl.constexpr, CHECK: tl.constexpr,
           ARRAYS: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Multiplies gradients by state[BY] in place. CHECK: sets state[FOUND_INF] if an element is infinite or NaN."""
    tensor, start, length = _chunk(table_ptr, chunks_ptr, ARRAYS, ALIGNED, CHUNK)
    g_ptr = _at(table_ptr, tensor, WHICH, ARRAYS, G, ALIGNED)
    factor = tl.load(state_ptr + BY)
    bad = tl.zeros((BLOCK,), tl.int32)
    if CHECK or factor != 1.0:  # most training steps do not clip
        for begin in range(0, CHUNK, BLOCK):
            index = start + begin + tl.arange(0, BLOCK)
            inside = index < length
            g = tl.load(g_ptr + index, mask=inside, other=0.0).to(tl.float32)
            if CHECK:
                bad |= (tl.abs(g) < float("inf")).to(tl.int32) ^ 1  # false for NaN too
            tl.store(g_ptr + index, (g * factor).to(G), mask=inside)
    if CHECK:
        if tl.max(bad, axis=0) > 0:
            tl.store(state_ptr + _FOUND_INF, 1.0)


@triton.jit
def _count(state_ptr):
    """Increments the step count, unless an infinite gradient was found."""
    tl.store(state_ptr + _STEP, tl.load(state_ptr + _STEP) + 1.0 - tl.load(state_ptr + _FOUND_INF))


@triton.jit
def _update_scale(state_ptr, growth_factor, backoff_factor, growth_interval):
    """Computes the next loss scale in one program."""
    scale = tl.load(state_ptr + _SCALE)
    streak = tl.load(state_ptr + _GROWTH) + 1.0  # steps in a row without an overflow
    grown = tl.where(scale * growth_factor < float("inf"), scale * growth_factor, scale)
    bad = tl.load(state_ptr + _FOUND_INF) > 0.0
    due = streak >= growth_interval
    scale = tl.where(bad, scale * backoff_factor, tl.where(due, grown, scale))
    tl.store(state_ptr + _SCALE, scale)
    tl.store(state_ptr + _GROWTH, tl.where(bad, 0.0, tl.where(due, 0.0, streak)))
    tl.store(state_ptr + _INVERSE_SCALE, 1.0 / scale)
    tl.store(state_ptr + _FOUND_INF, 0.0)


_TL = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}


def _chunks(xp, sizes):
    """Returns the tensor and the first element of each chunk of tensors with these sizes, (chunks, 2)."""
    counts = [cdiv(size, CHUNK) for size in sizes]
    starts = np.concatenate([np.arange(count) * CHUNK for count in counts])
    return constant(xp, np.stack([np.repeat(np.arange(len(sizes)), counts), starts], 1).astype(np.int64))


@lru_cache(32)
def _chunks_on(xp, device, sizes):
    """Returns the chunks on a device. They are the same in every step, unlike the addresses of gradients."""
    return _chunks(xp, sizes)


class Table:
    """Table of the arrays of some tensors. It contains addresses only; the caller must keep the arrays alive.

    Args:
        xp: the namespace. columns: lists of arrays without gaps, each list of one kind (parameters, gradients, …) and
            dtype. All lists have one array per tensor, and the arrays of a tensor match: their elements have one order in memory.

    Raises:
        ValueError: arrays with gaps, or that differ in dtype from their list or in size or layout from their tensor.
    """

    def __init__(self, xp, *columns):
        self.xp = xp
        self.dtypes = [column[0].dtype for column in columns]
        for column, dtype in zip(columns, self.dtypes, strict=True):
            for a, first in zip(column, columns[0], strict=True):
                if a.dtype != dtype or not is_float(a) or not _has_no_gaps(a) or not match(a, first):
                    raise ValueError(
                        f"Table: expected {dtype} arrays like {first.shape} with strides {first.strides}, "
                        f"got {a.dtype} {a.shape} with {a.strides}."
                    )
        rows = np.array([[*map(address, arrays), arrays[0].size] for arrays in zip(*columns, strict=True)], np.int64)
        self.arrays = len(columns)
        self.aligned = not (rows % 16).any()
        self.table = constant(xp, rows)
        sizes = tuple(rows[:, -1].tolist())
        # A graph has its own chunks, which live as long as it does.
        self.chunks = _chunks(xp, sizes) if is_recording() else _chunks_on(xp, device_of(columns[0][0]), sizes)
        self.count = len(self.chunks)

    def type(self, which):
        """Returns the Triton dtype of a column."""
        return _TL[self.dtypes[which].name]

    def launch(self, kernel, *arguments, **constants):
        """Launches a kernel with one program per chunk."""
        shared = {"ARRAYS": self.arrays, "ALIGNED": self.aligned, "CHUNK": CHUNK, "BLOCK": 1024, "num_warps": 4}
        launch(kernel, (self.count,), self.table, self.chunks, *arguments, **constants, **shared)

    def update(self, kernel, state, *numbers, **flags):
        """Launches the kernel of a step."""
        self.launch(kernel, state, *map(float, numbers), P=self.type(0), G=self.type(1), **flags)


_tables = {}  # (address, shape, strides and dtype of every array) -> Table, the last few


def table_of(xp, *columns):
    """Returns a Table of the arrays, from the cache if a cached table has the same addresses and layouts."""
    if is_recording():  # the arrays of a graph have their own memory pool, so the graph has its own tables
        return Table(xp, *columns)
    key = tuple((address(a), a.shape, a.strides, a.dtype) for column in columns for a in column) + (len(columns),)
    table = _tables.pop(key, None) or Table(xp, *columns)
    _tables[key] = table  # dicts keep insertion order: the most recent is last
    while len(_tables) > 32:
        del _tables[next(iter(_tables))]
    return table


def new_state(xp, lr=0.0, step=1.0, scale=1.0, growth=0.0):
    """Returns the state of a step in device memory.

    It contains: lr, step number (from 1), clip factor, found_inf, 1 / loss scale, gradient norm, loss scale, and the number of
    steps since the loss scale changed.
    """
    return upload(xp, np.array([lr, step, 1.0, 0.0, 1.0 / scale, 0.0, scale, growth], np.float32))


def one(state, index):
    """Returns one number of a state as a view of one element."""
    return state[index : index + 1]


def count(state):
    """Increments the step count of the state, unless an infinite gradient was found."""
    launch(_count, (1,), state, num_warps=1)


def update_scale(state, growth_factor, backoff_factor, growth_interval):
    """Updates the loss scale: smaller if an infinite gradient was found, larger after `growth_interval` steps without overflow."""
    launch(_update_scale, (1,), state, float(growth_factor), float(backoff_factor), float(growth_interval), num_warps=1)


def adamw(
    table, state, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, decoupled=True, amsgrad=False, maximize=False
):
    """One Adam or AdamW step of a table of p, g, exp_avg, exp_avg_sq[, max_exp_avg_sq].

    Args:
        state: see `new_state`; the kernel reads lr, step, clip and found_inf.
        decoupled: the weight decay of AdamW instead of Adam.
    """
    logs = [np.log2(beta) if beta else -1e4 for beta in betas]
    numbers = (*betas, 1.0 - betas[0], 1.0 - betas[1], *logs, eps, weight_decay)
    table.update(_adamw, state, *numbers, DECOUPLED=decoupled, AMSGRAD=amsgrad, MAXIMIZE=maximize)


def sgd(table, state, momentum=0.0, dampening=0.0, weight_decay=0.0, *, nesterov=False, maximize=False):
    """One SGD step of a table of p, g[, momentum_buffer]; arguments as adamw and optim.SGD."""
    numbers = (momentum, 1.0 - dampening, weight_decay)
    table.update(_sgd, state, *numbers, MOMENTUM=momentum != 0, NESTEROV=nesterov, MAXIMIZE=maximize)


def lion(table, state, betas=(0.9, 0.99), weight_decay=0.0, *, maximize=False):
    """One Lion step of a table of p, g, exp_avg; arguments as adamw."""
    numbers = (*betas, 1.0 - betas[0], 1.0 - betas[1], weight_decay)
    table.update(_lion, state, *numbers, MAXIMIZE=maximize)


def norm(table, state, max_norm=None, which=1):
    """Stores the joint 2-norm of column `which` in the state, and with max_norm also the clip factor."""
    parts = table.xp.empty(max(table.count, 1), "float32")
    table.launch(_squares, parts, G=table.type(which), WHICH=which)
    most, clips = float(max_norm or 0.0), max_norm is not None
    launch(_finish_norm, (1,), parts, state, table.count, most, CLIPS=clips, **one_program(table.count))


def clip(table, state, which=1):
    """Multiplies column `which` by the state's clip factor in place. Steps apply the factor themselves."""
    table.launch(_multiply, state, G=table.type(which), WHICH=which, BY=CLIP, CHECK=False)


def unscale(table, state, which=1):
    """Multiplies column `which` by the state's inverse scale in place, and sets found_inf if an element is not finite."""
    table.launch(_multiply, state, G=table.type(which), WHICH=which, BY=INVERSE_SCALE, CHECK=True)
