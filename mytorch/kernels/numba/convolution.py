"""Direct float32 convolution in one, two and three dimensions, transposed convolution, and their gradients.

No column matrix (im2col) is made. A few images at a time are copied, with zero padding, into a flat buffer. In this buffer each
position is one number, and each step to a neighbor is one constant offset. A convolution is then a sum of shifted copies of the
buffer, each multiplied by one weight:

    out[o, i] = sum over k of  w[o, k] * x[i + offset[k]]                k = (channel, tap)

    3 × 4 image, 3 × 3 window, padding 1          the flat buffer; each 0 is padding

        . . . . . .                               0 0 0 0 0 | a b c d 0 | e f g h 0 | i j k l 0 | 0 …
        . a b c d .                                                 ^
        . e f g h .       positions i             0 1 2 3 4   5 6 7 8 9   10 …
        . i j k l .       of the output
        . . . . . .                               tap (1, 1) reads 1 * 5 + 1 elements further, for every i

* The right padding of a row is also the left padding of the next row. Few positions are therefore computed and discarded
  (i = 4, 9, …). Planes and images share their padding in the same way, so small images fill the vector lanes too.
* A stride of s splits the buffer into s planes. Each plane has every s-th element, so each tap is one offset again.
* The gradient of x is the same sum with exchanged channels: out[c, i] = sum of w[o, t] * g[o, i - …]. With a stride of s, every
  s-th position uses the same taps. The gradient is therefore s separate convolutions (`Phase`).
* The gradient of w is one dot product per weight: gw[o, k] = sum over i of g[o, i] * x[i + offset[k]]. For this, g is stored
  in rows of the buffer's row length, with zeros between the rows.

`tiles.py` defines the innermost loops. The threads divide the images, or the output channels if there are few images.
"""

import math
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ..kernel import Kernel
from ..threads import chunks_for, in_chunks, split
from .common import inlined, is_float32, kernel
from .tiles import LANES, REGISTERS, copy, shifted_dots, shifted_sums

# (rows, vectors) of a tile of sums: output channels by SIMD vectors of positions. The accumulators of a tile, the loaded vectors of
# x and one weight must fit into the processor's vector registers: 8 * 3 + 3 + 1 of 32, or 4 * 3 + 3 + 1 of 16.
WIDE, MIDDLE, NARROW = ((8, 3), (4, 6), (1, 8)) if REGISTERS == 32 else ((4, 3), (2, 4), (1, 8))
JOINED = 640  # small images are joined in one buffer until it has this many positions
# Cache blocking: floats of the buffer that one pass of `_sums` reads, and positions that one pass of `_dots` reads.
IMAGE_CACHE, _DOTS_CACHE = 96 << 10, 1 << 10
LARGE = 1 << 17  # weights above which threads share one gradient array, instead of one private copy each

_wide_sums, _middle_sums, _narrow_sums = shifted_sums(*WIDE), shifted_sums(*MIDDLE), shifted_sums(*NARROW)
_wide_dots, _middle_dots, _narrow_dots = shifted_dots(*WIDE), shifted_dots(*MIDDLE), shifted_dots(*NARROW)
_WIDE, _MIDDLE = WIDE[0], MIDDLE[0]


def _tile(outs):
    """Returns the tile (rows, vectors) for a number of output channels."""
    return NARROW if outs == 1 else MIDDLE if outs <= MIDDLE[0] else WIDE


# -- memory layout -------------------------------------------------------------------------------------------------------


class Phase(NamedTuple):
    """Every s-th position of an output axis. All of these positions use the same taps.

    Attributes:
        first, positions: the first position and the number of positions.
        taps: (index in the window, offset from the begin of the padded input) of each tap.
    """

    first: int
    positions: int
    taps: tuple


class Axis(NamedTuple):
    """One axis of a sum of shifted inputs."""

    size: int  # of the input
    window: int  # size of the window
    padding: int  # zeros before the input
    stride: int  # over the input
    step: int  # stride over the output
    phases: tuple

    def row_stride(self):
        """Returns the positions in the buffer from one row along this axis to the next: the input and one shared padding."""
        # End of the range that each tap reads, over all output positions of its phase.
        ends = [offset + (p.positions - 1) * self.stride + 1 for p in self.phases for _, offset in p.taps]
        # These zeros are the right padding of one row and the left padding of the next: both must fit.
        padding = max([self.padding, *(end - self.padding - self.size for end in ends)])
        # A stride splits the row into `stride` planes of ceil(n / stride) elements each.
        return max(-(-(self.size + padding) // self.stride), *[p.positions for p in self.phases])


def forward_axis(n, out, k, stride, padding, dilation):
    """Returns the axis of a convolution: one phase, in which tap i reads i * dilation elements further."""
    return Axis(n, k, padding, stride, 1, (Phase(0, out, tuple((i, i * dilation) for i in range(k))),))


def backward_axis(n, out, k, stride, padding, dilation):
    """Returns the axis of the input gradient, of size n, computed from a gradient of size `out`."""
    phases = []
    for first in range(min(stride, n)):
        # Output o reads input i = o * stride + tap * dilation - padding. Solved for o, tap t contributes to input position i
        # only if (i + padding - t * dilation) is a multiple of the stride.
        taps = [(i, first + padding - i * dilation) for i in range(k)]
        taps = [(i, offset // stride) for i, offset in taps if offset % stride == 0]
        phases.append((first, -(-(n - first) // stride), taps))
    # Offsets may be negative. Pad the gradient by the most negative one, so that all offsets count from 0.
    pad = max([0, *(-offset for *_, taps in phases for _, offset in taps)])
    moved = [Phase(first, count, tuple((i, offset + pad) for i, offset in taps)) for first, count, taps in phases]
    return Axis(out, k, pad, 1, stride, tuple(moved))


class Layout:
    """Layout of the flat buffer for a few images, and the offsets of the taps in it.

    Attributes:
        images: number of images in the buffer at a time.
        image: positions of one image.
        plane, capacity: floats of one channel, and floats of the whole buffer.
        reads: for each row of a channel of an image, its begin in the buffer: one column for each phase of the stride.
        writes: for each row of the output, phase by phase, its first position and its index in a channel.
        phases: rows of (first and end of its writes, first term, number of terms, positions of a row).
        offsets: the offset of every term. taps: for each phase, the flat indices of its taps in the window.
    """

    def __init__(self, axes, samples, channels):
        size, padding, stride = zip(*[(a.size, a.padding, a.stride) for a in axes], strict=True)
        row_stride = tuple(a.row_stride() for a in axes)
        out = [sum(p.positions for p in a.phases) for a in axes]
        self.image, self.step = math.prod(row_stride), axes[-1].step
        # Join small images in one buffer, so that one call of a tile has enough positions to be worth its setup.
        self.images = max(1, min(-(-JOINED // self.image), samples))
        phases, writes, shifts, self.taps = [], [], [], []
        # A phase of the array is one phase of each axis. Only a gradient with a stride has more than one.
        for phase in product(*(a.phases for a in axes)):
            # All combinations of the axes' taps: (taps, 3 axes, (index in the window, offset)).
            combined = np.array(list(product(*(p.taps for p in phase))), np.int64).reshape(-1, 3, 2)
            self.taps.append(_flat_index(combined[:, :, 0].T, [a.window for a in axes]))
            shifts.append(combined[:, :, 1].T)
            # The rows of the output along the last axis: their begin in the buffer's positions, and in the output array.
            rows = np.indices([p.positions for p in phase[:2]] + [1]).reshape(3, -1)
            targets = [p.first + row * a.step for p, row, a in zip(phase, rows, axes, strict=True)]
            ends = len(writes), len(writes) + rows.shape[1]
            writes += zip(_flat_index(rows, row_stride), _flat_index(targets, out), strict=True)
            first_term = sum(map(len, self.taps[:-1])) * channels
            phases.append((*ends, first_term, len(combined) * channels, phase[2].positions))
        self.phases, self.writes = np.array(phases, np.int64), np.array(writes, np.int64)
        # End of the last output position of the last image. The largest offset from there bounds all reads.
        last = (self.images - 1) * self.image + max(
            int(self.writes[end - 1, 0]) + count for _, end, *_, count in phases
        )
        steps = [_flat_index([q // s for q, s in zip(qs, stride, strict=True)], row_stride) for qs in shifts]
        flat = max(self.images * self.image, last + max(int(q.max(initial=0)) for q in steps))
        self.plane = math.prod(stride) * flat
        # Tiles work on whole vectors and may read past the end. The slack keeps these reads inside the buffer.
        self.capacity = channels * self.plane + 2 * LANES * max(WIDE[1], MIDDLE[1], NARROW[1])

        def buffer_index(positions):
            """Returns the index in the buffer: the plane is the position modulo the stride, the index in it the quotient."""
            parts = [np.divmod(p, s) for p, s in zip(positions, stride, strict=True)]
            return _flat_index([a[1] for a in parts], stride) * flat + _flat_index([a[0] for a in parts], row_stride)

        begin = np.indices((*size[:2], min(stride[2], size[2]))).reshape(3, -1) + np.array(padding)[:, None]
        self.reads = buffer_index(begin).reshape(size[0] * size[1], -1)
        # A term is a pair (channel, tap); its offset is the begin of the channel plus the offset of the tap.
        channel = np.arange(channels)[:, None] * self.plane
        self.offsets = np.concatenate([(channel + buffer_index(qs)).reshape(-1) for qs in shifts])

    def weight_index(self, channel_step):
        """Returns the index of each term's weight, relative to the first weight of its output channel."""
        channels = np.arange(self.offsets.size // max(sum(map(len, self.taps)), 1))[:, None] * channel_step
        return np.concatenate([(channels + taps).reshape(-1) for taps in self.taps])


def _flat_index(position, sizes):
    return (position[0] * sizes[1] + position[1]) * sizes[2] + position[2]


@lru_cache(512)
def _layout(axis, shapes, geometry, samples, channels, channel_step):
    """Returns (layout, weight indices) for axes (n, out, k) made by `axis`."""
    sides = zip(*shapes, *geometry, strict=True)
    # One- and two-dimensional convolutions become three-dimensional, with leading axes of size 1.
    axes = [forward_axis(1, 1, 1, 1, 0, 1)] * (3 - len(geometry[0])) + [axis(*side) for side in sides]
    layout = Layout(axes, samples, channels)
    return layout, layout.weight_index(channel_step)


# -- compiled ------------------------------------------------------------------------------------------------------------


@inlined
def _fill(buffer, plane, image, reads, x, start, image_step, images, channels, width):
    """Copies channels of images of x into the buffer. The zeros between the rows are not overwritten."""
    rows, parts = reads.shape
    for i in range(images):
        for c in range(channels):
            for row in range(rows):
                source = start + i * image_step + (c * rows + row) * width
                # `part` is the phase of the stride along the last axis: without a stride, the row is one memcpy.
                for part in range(parts):
                    to = c * plane + i * image + reads[row, part]
                    if parts == 1:
                        copy(buffer, to, x, source, width)
                    else:
                        for j in range((width - part + parts - 1) // parts):
                            buffer[to + j] = x[source + part + j * parts]


@inlined
def _store(
    y, start, image_step, images, channel_step, channels, writes, phase, image, step, scratch, stride, begin, end
):
    """Copies the positions from begin to end of some channels from scratch to y. Positions between rows are skipped."""
    for i in range(images):
        for row in range(phase[0], phase[1]):
            # The part of this row that is within [begin, end): `skipped` positions of it come before `begin`.
            position = i * image + writes[row, 0]
            skipped = max(begin - position, 0)
            count = min(end - position, phase[4]) - skipped
            for c in range(channels if count > 0 else 0):
                to = start + i * image_step + c * channel_step + writes[row, 1] + skipped * step
                source = c * stride + position + skipped - begin
                if step == 1:
                    copy(y, to, scratch, source, count)
                else:
                    for j in range(count):
                        y[to + j * step] = scratch[source + j]


@kernel
def _pack(tiles, packed, w, weight_index, outs, out_step):
    """Copies weights into the order in which a tile reads them: packed[tile, term, row]. Surplus rows are 0."""
    rows = packed.shape[2]
    per_group = -(-outs // rows)
    for n in range(len(tiles)):
        group, first = tiles[n] // per_group, tiles[n] % per_group * rows
        for k in range(packed.shape[1]):
            for r in range(rows):
                exists = first + r < outs
                packed[n, k, r] = w[group, (first + r) * out_step + weight_index[k]] if exists else np.float32(0)


@kernel
def _sums(jobs, buffers, scratches, x, y, w, bias, offsets, phases, reads, writes, sizes, tile, steps):
    """Computes the sums of shifted inputs for jobs of (image, images, group, first channel, end), with the weights of `_pack`."""
    ins, outs, groups, width, in_size, out_size = sizes  # channels of a group, groups, input row, floats of a channel
    plane, image, step, block = steps
    rows, tile_width = tile
    buffer, scratch = buffers[0], scratches[0]
    for job in range(len(jobs)):
        first, images, group = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        image_step = groups * ins * in_size
        _fill(
            buffer, plane, image, reads, x, first * image_step + group * ins * in_size, image_step, images, ins, width
        )
        image_step = groups * outs * out_size
        for f in range(len(phases)):
            # Positions of all joined images, up to the end of the last row.
            phase = phases[f]
            k, terms = phase[2], phase[3]
            length = (images - 1) * image + writes[phase[1] - 1, 0] + phase[4]
            # Work on one cache-sized block of positions with all output channels, while its inputs stay in the cache.
            for begin in range(0, length, block):
                end = min(length, begin + block)
                for o in range(jobs[job, 3], jobs[job, 4], rows):
                    # The last tile may have fewer channels than rows.
                    valid = min(rows, outs - o)
                    channel = group * outs + o
                    number = group * -(-outs // rows) + o // rows
                    w_start, b_start = (number * len(offsets) + k) * rows, number * rows
                    # Each tile size is a separate intrinsic, since LLVM allocates registers for a constant size.
                    for i in range(0, end - begin, tile_width):
                        if rows == _WIDE:
                            _wide_sums(
                                buffer, begin + i, w, w_start, offsets, k, terms, bias, b_start, scratch, i, block
                            )
                        elif rows == _MIDDLE:
                            _middle_sums(
                                buffer, begin + i, w, w_start, offsets, k, terms, bias, b_start, scratch, i, block
                            )
                        else:
                            _narrow_sums(
                                buffer, begin + i, w, w_start, offsets, k, terms, bias, b_start, scratch, i, block
                            )
                    # Drop the positions between rows, and undo the phase's stride over the output.
                    _store(y, first * image_step + channel * out_size, image_step, images, out_size, valid, writes, phase, image, step,
                           scratch, block, begin, end)  # fmt: skip


@kernel
def _dots(jobs, buffers, g_buffers, numbers, totals, x, g, offsets, reads, writes, sizes, tile, steps):
    """Adds the dot products of g with shifted inputs to a row of totals, for jobs as in `_sums`."""
    ins, outs, groups, width, in_size, out_size = sizes
    plane, image, out_width, row_stride, terms = steps
    rows, shifts = tile
    buffer, g_buffer, total, filled = buffers[0], g_buffers[0], totals[numbers[0]], 0
    for job in range(len(jobs)):
        first, images, group = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        image_step = groups * ins * in_size
        _fill(
            buffer, plane, image, reads, x, first * image_step + group * ins * in_size, image_step, images, ins, width
        )
        # A smaller last group of images would leave gradients of the group before in the buffer.
        if images < filled:
            for i in range(len(g_buffer)):
                g_buffer[i] = np.float32(0.0)
        filled = max(filled, images)
        # Copy g into rows of the buffer's row length. The zeros between its rows cancel the products with padding.
        image_step = groups * outs * out_size
        _fill(
            g_buffer, row_stride, image, writes, g, first * image_step + group * outs * out_size, image_step, images, outs,
            out_width,
        )  # fmt: skip
        length = (images - 1) * image + writes[len(writes) - 1, 0] + out_width
        # Blocks of positions whose rows of g and x stay in the cache, for all pairs (channel, term).
        for begin in range(0, length, _DOTS_CACHE):
            vectors = (min(length - begin, _DOTS_CACHE) + LANES - 1) // LANES
            for o in range(jobs[job, 3], jobs[job, 4], rows):
                for k in range(0, terms, shifts):
                    to = (group * (len(g_buffer) // row_stride) + o) * terms + k
                    if rows == _WIDE:
                        _wide_dots(g_buffer, o * row_stride + begin, row_stride, buffer, begin, offsets, k, vectors, total,
                                   to, terms)  # fmt: skip
                    elif rows == _MIDDLE:
                        _middle_dots(g_buffer, o * row_stride + begin, row_stride, buffer, begin, offsets, k, vectors, total,
                                     to, terms)  # fmt: skip
                    else:
                        _narrow_dots(g_buffer, o * row_stride + begin, row_stride, buffer, begin, offsets, k, vectors, total,
                                     to, terms)  # fmt: skip


# -- the three sums over whole arrays ------------------------------------------------------------------------------------


def _flat(x):
    """Returns x as one contiguous, writable axis. Numba would compile the kernel again for a read-only array."""
    x = np.ascontiguousarray(x).reshape(-1)
    return x if x.flags.writeable else x.copy()


def _jobs(samples, images, groups, outs, rows, parts):
    """Returns (image, images, group, first channel, end) for each job, with the channels of a group cut into parts."""
    blocks = -(-outs // rows)
    part, first, group = np.indices((parts, -(-samples // images), groups)).reshape(3, -1)
    first *= images
    # Parts begin at a multiple of the tile's rows, so that only the last tile of a group is incomplete.
    begin, end = (np.minimum(blocks * p // parts * rows, outs) for p in (part, part + 1))
    return np.stack([first, np.minimum(samples - first, images), group, begin, end], axis=1)


def _sum_shifted(layout, weight_index, x, w, bias, shape, groups, out_step):
    """Returns the sum over channels and taps of weights times the shifted x, an array of the given shape.

    Args:
        weight_index: the index of a term's weight, relative to the first weight of its output channel.
        out_step: the distance between the weights of two output channels.
    """
    y = np.empty(shape, np.float32)
    if not y.size:
        return y
    ins, outs = x.shape[1] // groups, shape[1] // groups
    rows, vectors = _tile(outs)
    tile_width = vectors * LANES
    # Positions per block: the share of IMAGE_CACHE floats of the buffer, in whole tiles, and no more than there are.
    block = max(IMAGE_CACHE * layout.images * layout.image // layout.capacity // tile_width, 1) * tile_width
    block = min(block, -(-layout.images * layout.image // tile_width) * tile_width)
    # Multiply-adds over 8: one takes about an eighth of the elementwise work that `chunks_for` counts.
    work = y.size * len(weight_index) // 8
    # With fewer groups of images than threads, the output channels are divided as well.
    units = -(-shape[0] // layout.images) * groups
    jobs = _jobs(shape[0], layout.images, groups, outs, rows, min(-(-outs // rows), -(-chunks_for(work) // units)))
    chunks = min(chunks_for(work), len(jobs))
    tiles = -(-outs // rows)
    packed, first = (
        np.empty((groups * tiles, len(weight_index), rows), np.float32),
        np.zeros((groups, tiles * rows), np.float32),
    )
    split(
        _pack, packed.size, (np.arange(len(packed)), packed), _flat(w).reshape(groups, -1), weight_index, outs, out_step
    )
    if bias is not None:
        first[:, :outs] = bias.reshape(groups, outs)
    split(
        _sums, work, (jobs, np.zeros((chunks, layout.capacity), np.float32), np.empty((chunks, rows * block), np.float32)),
        _flat(x), y.reshape(-1), packed.reshape(-1), first.reshape(-1),
        layout.offsets, layout.phases, layout.reads, layout.writes,
        (ins, outs, groups, x.shape[-1], math.prod(x.shape[2:]), math.prod(shape[2:])), (rows, tile_width),
        (layout.plane, layout.image, layout.step, block),
    )  # fmt: skip
    return y


def _sides(n, out, kernel, stride, padding, dilation):
    return (tuple(n), tuple(out), tuple(kernel)), (tuple(stride), tuple(padding), tuple(dilation))


def convolve(x, w, bias, out, stride, padding, dilation, groups):
    """Returns the convolution of x (N, C, *spatial) with w, at the first `out` positions of each axis."""
    sides, window = _sides(x.shape[2:], out, w.shape[2:], stride, padding, dilation), math.prod(w.shape[2:])
    layout, weight_index = _layout(forward_axis, *sides, len(x), w.shape[1], window)
    return _sum_shifted(layout, weight_index, x, w, bias, (len(x), len(w), *out), groups, w.shape[1] * window)


def convolve_input(g, w, bias, shape, stride, padding, dilation, groups):
    """Returns the gradient of a convolution's input, of the spatial `shape`. With a bias, it is a transposed convolution."""
    sides, window = _sides(shape, g.shape[2:], w.shape[2:], stride, padding, dilation), math.prod(w.shape[2:])
    layout, weight_index = _layout(backward_axis, *sides, len(g), len(w) // groups, w.shape[1] * window)
    return _sum_shifted(layout, weight_index, g, w, bias, (len(g), w.shape[1] * groups, *shape), groups, window)


def convolve_weight(g, x, window, stride, padding, dilation, groups):
    """Returns the gradient of a convolution's weight with the given window sizes."""
    ins, outs = x.shape[1] // groups, g.shape[1] // groups
    shape = (g.shape[1], ins, *window)
    if not (g.size and x.size):
        return np.zeros(shape, np.float32)
    sides = _sides(x.shape[2:], g.shape[2:], window, stride, padding, dilation)
    layout, weight_index = _layout(forward_axis, *sides, len(x), ins, math.prod(window))
    rows, shifts = _tile(outs)
    # Terms and channels are rounded up to whole tiles. The extra terms have offset 0; their sums are dropped at the end.
    terms, padded_outs = -(-len(weight_index) // shifts) * shifts, -(-outs // rows) * rows
    offsets = np.concatenate([layout.offsets, np.zeros(terms - len(weight_index), np.int64)])
    work, row_stride = g.size * len(weight_index) // 8, layout.image * layout.images + LANES
    chunks, units, blocks = chunks_for(work), -(-len(x) // layout.images), padded_outs // rows
    # One shared array of sums if each job writes its own channels: with one group of images, or where private copies cost too
    # much. Otherwise each thread adds into a private copy, and the copies are summed at the end.
    shared = groups == 1 and (units == 1 or (blocks >= chunks and (units < chunks or outs * terms > LARGE)))
    jobs = _jobs(len(x), layout.images, groups, outs, rows, min(blocks, chunks) if shared else 1)
    chunks = min(chunks, len(jobs))
    numbers = np.arange(chunks) * (not shared)  # row of `totals` that each thread adds to
    totals = np.zeros((1 if shared else chunks, groups * padded_outs * terms), np.float32)
    in_chunks(
        _dots, chunks, (jobs, np.zeros((chunks, layout.capacity), np.float32), np.zeros((chunks, padded_outs * row_stride), np.float32), numbers),
        totals, _flat(x), _flat(g), offsets, layout.reads, layout.writes[:, :1].copy(),
        (ins, outs, groups, x.shape[-1], math.prod(x.shape[2:]), math.prod(g.shape[2:])), (rows, shifts),
        (layout.plane, layout.image, g.shape[-1], row_stride, terms),
    )  # fmt: skip
    total = totals[0] if len(totals) == 1 else totals.sum(0)
    return np.ascontiguousarray(total.reshape(groups, padded_outs, terms)[:, :outs, : len(weight_index)]).reshape(shape)


# -- kernels of the ops --------------------------------------------------------------------------------------------------


def _accepts(input, weight, bias=None, **options):
    """Accepts float32 arrays with one to three spatial dimensions and a weight that is not empty."""
    return is_float32(input, weight, bias) and input.ndim <= 5 and weight.size > 0


def _out(input, weight, stride, padding, dilation):
    """Returns the output size of each axis: floor((n + 2 p - d (k - 1) - 1) / s) + 1."""
    sides = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides]


def _is_product(weight, out, padding, groups):
    """Returns True if im2col and a matrix product are faster: for 1 × 1 windows, and for short rows.

    The direct loop also computes the positions between rows, a share of about 1 / n for each axis of n positions. im2col copies each
    element once for `len(weight)` multiplications.
    """
    plain = max(weight.shape[2:]) == 1 and not any(padding)
    return groups == 1 and (plain or sum(1 / max(n, 1) for n in out) > 40 / len(weight) or math.prod(out) == 1)


def _pays(input, weight, bias=None, *, stride, padding, dilation, groups):
    """Returns False if im2col and a matrix product are faster."""
    return not _is_product(weight, _out(input, weight, stride, padding, dilation), padding, groups)


def _transposed_pays(g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """Returns False if im2col and a matrix product are faster."""
    return not _is_product(weight, g.shape[2:], padding, groups)


def _over_positions(g):
    """Returns the gradient of the bias: the sum of g over images and positions."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(-1).sum(0)


def _convolution(xp, input, weight, bias=None, *, stride, padding, dilation, groups):
    out = _out(input, weight, stride, padding, dilation)
    return convolve(input, weight, bias, out, stride, padding, dilation, groups)


_CONVOLUTION = {
    "input": lambda g, weight, shapes, stride, padding, dilation, groups: convolve_input(
        g, weight, None, shapes[0][2:], stride, padding, dilation, groups
    ),
    "weight": lambda g, input, shapes, stride, padding, dilation, groups: convolve_weight(
        g, input, shapes[1][2:], stride, padding, dilation, groups
    ),
    "bias": _over_positions,
}


def _transposed(xp, g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    return convolve_input(g, weight, bias, shape, stride, padding, dilation, groups)


_TRANSPOSED = {
    "g": lambda up, weight, shapes, stride, padding, dilation, groups: convolve(
        up, weight, None, shapes[0][2:], stride, padding, dilation, groups
    ),
    "weight": lambda up, g, shapes, stride, padding, dilation, groups: convolve_weight(
        g, up, shapes[1][2:], stride, padding, dilation, groups
    ),
    "bias": _over_positions,
}
convolution = Kernel(accepts=_accepts, is_faster=_pays, forward=_convolution, formulas=_CONVOLUTION)
conv_transpose = Kernel(accepts=_accepts, is_faster=_transposed_pays, forward=_transposed, formulas=_TRANSPOSED)
