"""Convolutions in one, two and three dimensions, transposed ones, and their gradients: direct, without columns; float32.

A few images are copied, with zeros around them, into a buffer in which row follows row, so that a position is one number,
and so is a step to a neighbour. Then a convolution is a sum of shifted copies of that buffer, each times one weight:

    out[o, i] = sum over k of  w[o, k] * x[i + offset[k]]                k = (channel, tap)

    3 × 4 picture, 3 × 3 window, padding 1        the flat buffer; 0 is what the padding left

        . . . . . .                               0 0 0 0 0 | a b c d 0 | e f g h 0 | i j k l 0 | 0 …
        . a b c d .                                                 ^
        . e f g h .       positions i             0 1 2 3 4   5 6 7 8 9   10 …
        . i j k l .       of the output
        . . . . . .                               its tap (1, 1) is 1 * 5 + 1 further on, for every i

* A row's right padding is the next row's left one, so little is computed that nobody wants (i = 4, 9, …: not stored). Rows
  follow on planes, and these on images, in the same way: small pictures fill the vectors too.
* A stride of s takes the buffer apart into s planes, of every s-th element each; then every tap is one offset again.
* The gradient for x is the same sum with the roles of channels exchanged: out[c, i] = sum of w[o, t] * g[o, i - …]. With a
  stride, every s-th position sees the same taps: s phases, each a convolution of its own (`Phase`).
* The gradient for w is a dot product for each weight: gw[o, k] = sum over i of g[o, i] * x[i + offset[k]], where g lies in
  rows as long as the buffer's, with zeros between them.

`tiles.py` has the innermost loops. The threads take images, or output channels where there are too few of them.
"""

import math
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ..kernel import Kernel
from ..threads import chunks_for, split
from .common import inlined, is_float32, kernel
from .tiles import LANES, REGISTERS, copy, shifted_dots, shifted_sums

# rows by vectors of a tile
WIDE, MIDDLE, NARROW = ((8, 3), (4, 6), (1, 8)) if REGISTERS == 32 else ((4, 3), (2, 4), (1, 8))
JOINED = 640  # positions that images are joined to reach
IMAGE_CACHE, _DOTS_CACHE = 96 << 10, 1 << 10  # floats of the buffer, and positions, that are worked on at a time
LARGE = 1 << 17  # weights of which each thread does not get an array of its own to add up in

_wide_sums, _middle_sums, _narrow_sums = shifted_sums(*WIDE), shifted_sums(*MIDDLE), shifted_sums(*NARROW)
_wide_dots, _middle_dots, _narrow_dots = shifted_dots(*WIDE), shifted_dots(*MIDDLE), shifted_dots(*NARROW)
_WIDE, _MIDDLE = WIDE[0], MIDDLE[0]


def _tile(outs):
    """(rows, vectors) of the tile for so many output channels."""
    return NARROW if outs == 1 else MIDDLE if outs <= MIDDLE[0] else WIDE


# -- where things lie ----------------------------------------------------------------------------------------------------


class Phase(NamedTuple):
    """Every s-th position of an axis of the output, which all see the same taps.

    Attributes:
        first, positions: of them, where and how many. taps: (index in the window, place from the padded input's begin) of each.
    """

    first: int
    positions: int
    taps: tuple


class Axis(NamedTuple):
    """An axis of a sum of shifted inputs: sizes of input and window, the zeros before it, the strides over input and output."""

    size: int
    window: int
    lead: int
    stride: int
    step: int
    phases: tuple

    def pitch(self):
        """How many positions of the buffer it takes: room for the zeros behind it, which lie before the next one."""
        ends = [place + (p.positions - 1) * self.stride + 1 for p in self.phases for _, place in p.taps]
        behind = max([self.lead, *(end - self.lead - self.size for end in ends)])
        return max(-(-(self.size + behind) // self.stride), *[p.positions for p in self.phases])


def forward_axis(n, out, k, stride, padding, dilation):
    """An axis of a convolution."""
    return Axis(n, k, padding, stride, 1, (Phase(0, out, tuple((i, i * dilation) for i in range(k))),))


def backward_axis(n, out, k, stride, padding, dilation):
    """An axis of the gradient for the input, of size n, from one of size `out`."""
    phases = []
    for first in range(min(stride, n)):
        taps = [(i, first + padding - i * dilation) for i in range(k)]
        taps = [(i, place // stride) for i, place in taps if place % stride == 0]
        phases.append((first, -(-(n - first) // stride), taps))
    lead = max([0, *(-place for *_, taps in phases for _, place in taps)])
    moved = [Phase(first, count, tuple((i, place + lead) for i, place in taps)) for first, count, taps in phases]
    return Axis(out, k, lead, 1, stride, tuple(moved))


class Layout:
    """The buffer for some images, and what the taps are in it.

    Attributes:
        images: how many at a time. image, plane, room: positions of an image, floats of a channel and of the buffer.
        reads: for each row of a channel of an image, where it begins in the buffer: a place for each phase of the stride.
        writes: for each row of the output, phase by phase, its first position and its place in a channel.
        phases: rows of (first and end of its writes, first term, terms, positions of a row).
        offsets: of every term. taps: for each phase the taps' indices in the window.
    """

    def __init__(self, axes, samples, channels):
        size, lead, stride = zip(*[(a.size, a.lead, a.stride) for a in axes], strict=True)
        pitch = tuple(a.pitch() for a in axes)
        out = [sum(p.positions for p in a.phases) for a in axes]
        self.image, self.step = math.prod(pitch), axes[-1].step
        self.images = max(1, min(-(-JOINED // self.image), samples))
        phases, writes, shifts, self.taps = [], [], [], []
        for phase in product(*(a.phases for a in axes)):
            seen = np.array(list(product(*(p.taps for p in phase))), np.int64).reshape(-1, 3, 2)
            self.taps.append(_flat_index(seen[:, :, 0].T, [a.window for a in axes]))
            shifts.append(seen[:, :, 1].T)
            rows = np.indices([p.positions for p in phase[:2]] + [1]).reshape(3, -1)
            places = [p.first + row * a.step for p, row, a in zip(phase, rows, axes, strict=True)]
            ends = len(writes), len(writes) + rows.shape[1]
            writes += zip(_flat_index(rows, pitch), _flat_index(places, out), strict=True)
            phases.append((*ends, sum(map(len, self.taps[:-1])) * channels, len(seen) * channels, phase[2].positions))
        self.phases, self.writes = np.array(phases, np.int64), np.array(writes, np.int64)
        last = (self.images - 1) * self.image + max(
            int(self.writes[end - 1, 0]) + count for _, end, *_, count in phases
        )
        steps = [_flat_index([q // s for q, s in zip(qs, stride, strict=True)], pitch) for qs in shifts]
        flat = max(self.images * self.image, last + max(int(q.max(initial=0)) for q in steps))
        self.plane = math.prod(stride) * flat
        self.room = channels * self.plane + 2 * LANES * max(WIDE[1], MIDDLE[1], NARROW[1])

        def inside(positions):
            apart = [np.divmod(p, s) for p, s in zip(positions, stride, strict=True)]
            return _flat_index([a[1] for a in apart], stride) * flat + _flat_index([a[0] for a in apart], pitch)

        begin = np.indices((*size[:2], min(stride[2], size[2]))).reshape(3, -1) + np.array(lead)[:, None]
        self.reads = inside(begin).reshape(size[0] * size[1], -1)
        channel = np.arange(channels)[:, None] * self.plane
        self.offsets = np.concatenate([(channel + inside(qs)).reshape(-1) for qs in shifts])

    def places(self, channel_step):
        """For every term (channel, tap), where its weight lies from its output channel's first."""
        channels = np.arange(self.offsets.size // max(sum(map(len, self.taps)), 1))[:, None] * channel_step
        return np.concatenate([(channels + taps).reshape(-1) for taps in self.taps])


def _flat_index(position, sizes):
    return (position[0] * sizes[1] + position[1]) * sizes[2] + position[2]


@lru_cache(512)
def _layout(axis, shapes, geometry, samples, channels, channel_step):
    """(layout, places of weights) for axes (n, out, k) made by `axis`, one for each dimension, filled up to three."""
    sides = zip(*shapes, *geometry, strict=True)
    axes = [forward_axis(1, 1, 1, 1, 0, 1)] * (3 - len(geometry[0])) + [axis(*side) for side in sides]
    layout = Layout(axes, samples, channels)
    return layout, layout.places(channel_step)


# -- compiled ------------------------------------------------------------------------------------------------------------


@inlined
def _fill(buffer, plane, image, reads, x, start, image_step, images, channels, width):
    """Some channels of some images of x into their places in the buffer; the zeros between them stay."""
    rows, parts = reads.shape
    for i in range(images):
        for c in range(channels):
            for row in range(rows):
                source = start + i * image_step + (c * rows + row) * width
                for part in range(parts):
                    to = c * plane + i * image + reads[row, part]
                    if parts == 1:
                        copy(buffer, to, x, source, width)
                    else:
                        for j in range((width - part + parts - 1) // parts):
                            buffer[to + j] = x[source + part + j * parts]


@inlined
def _store(
    y, start, image_step, images, channel_step, channels, writes, phase, image, step, scratch, spread, begin, end
):
    """Positions begin to end of some channels, in scratch, to their places in y; those between rows are left out."""
    for i in range(images):
        for row in range(phase[0], phase[1]):
            position = i * image + writes[row, 0]
            skipped = max(begin - position, 0)
            count = min(end - position, phase[4]) - skipped
            for c in range(channels if count > 0 else 0):
                to = start + i * image_step + c * channel_step + writes[row, 1] + skipped * step
                source = c * spread + position + skipped - begin
                if step == 1:
                    copy(y, to, scratch, source, count)
                else:
                    for j in range(count):
                        y[to + j * step] = scratch[source + j]


@kernel
def _sums(jobs, buffers, scratches, x, y, w, bias, offsets, places, phases, reads, writes, sizes, tile, steps):
    """The sums of shifted inputs for jobs of (image, images, group, first channel, end)."""
    ins, outs, groups, width, in_size, out_size = sizes
    plane, image, step, span, out_step = steps
    rows, wide = tile
    buffer, scratch = buffers[0], scratches[0]
    for job in range(len(jobs)):
        first, images, group = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        image_step = groups * ins * in_size
        _fill(
            buffer, plane, image, reads, x, first * image_step + group * ins * in_size, image_step, images, ins, width
        )
        image_step = groups * outs * out_size
        for f in range(len(phases)):
            phase = phases[f]
            k, terms = phase[2], phase[3]
            length = (images - 1) * image + writes[phase[1] - 1, 0] + phase[4]
            for begin in range(0, length, span):
                end = min(length, begin + span)
                for o in range(jobs[job, 3], jobs[job, 4], rows):
                    exist = min(rows, outs - o)
                    channel = group * outs + o
                    at = group * (len(w) // groups) + o * out_step
                    for i in range(0, end - begin, wide):
                        if rows == _WIDE:
                            _wide_sums(buffer, begin + i, w, at, out_step, exist, offsets, places, k, terms, bias, channel,
                                       scratch, i, span)  # fmt: skip
                        elif rows == _MIDDLE:
                            _middle_sums(buffer, begin + i, w, at, out_step, exist, offsets, places, k, terms, bias, channel,
                                         scratch, i, span)  # fmt: skip
                        else:
                            _narrow_sums(buffer, begin + i, w, at, out_step, exist, offsets, places, k, terms, bias, channel,
                                         scratch, i, span)  # fmt: skip
                    _store(y, first * image_step + channel * out_size, image_step, images, out_size, exist, writes, phase, image, step,
                           scratch, span, begin, end)  # fmt: skip


@kernel
def _dots(jobs, buffers, lines, numbers, totals, x, g, offsets, reads, writes, sizes, tile, steps):
    """The dot products of g with shifted inputs for jobs of (image, images, group, first channel, end), added to a row of totals."""
    ins, outs, groups, width, in_size, out_size = sizes
    plane, image, out_width, row, terms = steps
    rows, shifts = tile
    buffer, line, total, most = buffers[0], lines[0], totals[numbers[0]], 0
    for job in range(len(jobs)):
        first, images, group = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        image_step = groups * ins * in_size
        _fill(
            buffer, plane, image, reads, x, first * image_step + group * ins * in_size, image_step, images, ins, width
        )
        if images < most:
            for i in range(len(line)):
                line[i] = np.float32(0.0)
        most = max(most, images)
        image_step = groups * outs * out_size
        _fill(
            line, row, image, writes, g, first * image_step + group * outs * out_size, image_step, images, outs,
            out_width,
        )  # fmt: skip
        length = (images - 1) * image + writes[len(writes) - 1, 0] + out_width
        for begin in range(0, length, _DOTS_CACHE):
            vectors = (min(length - begin, _DOTS_CACHE) + LANES - 1) // LANES
            for o in range(jobs[job, 3], jobs[job, 4], rows):
                for k in range(0, terms, shifts):
                    to = (group * (len(line) // row) + o) * terms + k
                    if rows == _WIDE:
                        _wide_dots(line, o * row + begin, row, buffer, begin, offsets, k, vectors, total, to, terms)
                    elif rows == _MIDDLE:
                        _middle_dots(line, o * row + begin, row, buffer, begin, offsets, k, vectors, total, to, terms)
                    else:
                        _narrow_dots(line, o * row + begin, row, buffer, begin, offsets, k, vectors, total, to, terms)


# -- the three sums over arrays ------------------------------------------------------------------------------------------


def _flat(x):
    """x on one contiguous axis, and writable, since a kernel is compiled for that."""
    x = np.ascontiguousarray(x).reshape(-1)
    return x if x.flags.writeable else x.copy()


def _jobs(samples, images, groups, outs, rows, parts):
    """(image, images, group, first channel, end) for each job; the channels of a group are cut into parts, which come in turn."""
    blocks = -(-outs // rows)
    part, first, group = np.indices((parts, -(-samples // images), groups)).reshape(3, -1)
    first *= images
    begin, end = (np.minimum(blocks * p // parts * rows, outs) for p in (part, part + 1))
    return np.stack([first, np.minimum(samples - first, images), group, begin, end], axis=1)


def _sum_shifted(layout, places, x, w, bias, shape, groups, out_step):
    """An array of this shape, the sum over channels and taps of weights times the shifted x.

    Args:
        places, out_step: where a term's weight lies, from that of its output channel, and from there to the next one's.
    """
    y = np.empty(shape, np.float32)
    if not y.size:
        return y
    ins, outs = x.shape[1] // groups, shape[1] // groups
    rows, vectors = _tile(outs)
    wide = vectors * LANES
    span = max(IMAGE_CACHE * layout.images * layout.image // layout.room // wide, 1) * wide
    span = min(span, -(-layout.images * layout.image // wide) * wide)
    work = y.size * len(places) // 8
    units = -(-shape[0] // layout.images) * groups
    jobs = _jobs(shape[0], layout.images, groups, outs, rows, min(-(-outs // rows), -(-chunks_for(work) // units)))
    chunks = min(chunks_for(work), len(jobs))
    split(
        _sums, work, (jobs, np.zeros((chunks, layout.room), np.float32), np.empty((chunks, rows * span), np.float32)),
        _flat(x), y.reshape(-1), _flat(w), np.zeros(shape[1], np.float32) if bias is None else _flat(bias),
        layout.offsets, places, layout.phases, layout.reads, layout.writes,
        (ins, outs, groups, x.shape[-1], math.prod(x.shape[2:]), math.prod(shape[2:])), (rows, wide),
        (layout.plane, layout.image, layout.step, span, out_step),
    )  # fmt: skip
    return y


def _sides(n, out, kernel, stride, padding, dilation):
    return (tuple(n), tuple(out), tuple(kernel)), (tuple(stride), tuple(padding), tuple(dilation))


def convolve(x, w, bias, out, stride, padding, dilation, groups):
    """The convolution of x (N, C, *spatial) with w, at the first `out` positions of each axis."""
    sides, window = _sides(x.shape[2:], out, w.shape[2:], stride, padding, dilation), math.prod(w.shape[2:])
    layout, places = _layout(forward_axis, *sides, len(x), w.shape[1], window)
    return _sum_shifted(layout, places, x, w, bias, (len(x), len(w), *out), groups, w.shape[1] * window)


def convolve_input(g, w, bias, shape, stride, padding, dilation, groups):
    """The gradient of a convolution's input of the spatial `shape`; with a bias added, a transposed convolution."""
    sides, window = _sides(shape, g.shape[2:], w.shape[2:], stride, padding, dilation), math.prod(w.shape[2:])
    layout, places = _layout(backward_axis, *sides, len(g), len(w) // groups, w.shape[1] * window)
    return _sum_shifted(layout, places, g, w, bias, (len(g), w.shape[1] * groups, *shape), groups, window)


def convolve_weight(g, x, window, stride, padding, dilation, groups):
    """The gradient of a convolution's weight, whose window has these sizes."""
    ins, outs = x.shape[1] // groups, g.shape[1] // groups
    shape = (g.shape[1], ins, *window)
    if not (g.size and x.size):
        return np.zeros(shape, np.float32)
    sides = _sides(x.shape[2:], g.shape[2:], window, stride, padding, dilation)
    layout, places = _layout(forward_axis, *sides, len(x), ins, math.prod(window))
    rows, shifts = _tile(outs)
    terms, lines = -(-len(places) // shifts) * shifts, -(-outs // rows) * rows
    offsets = np.concatenate([layout.offsets, np.zeros(terms - len(places), np.int64)])
    work, row = g.size * len(places) // 8, layout.image * layout.images + LANES
    chunks, units, blocks = chunks_for(work), -(-len(x) // layout.images), lines // rows
    together = groups == 1 and (units == 1 or (blocks >= chunks and (units < chunks or outs * terms > LARGE)))
    jobs = _jobs(len(x), layout.images, groups, outs, rows, min(blocks, chunks) if together else 1)
    chunks = min(chunks, len(jobs))
    numbers = np.arange(chunks) * (not together)  # threads of different channels write into one array
    totals = np.zeros((1 if together else chunks, groups * lines * terms), np.float32)
    split(
        _dots, work, (jobs, np.zeros((chunks, layout.room), np.float32), np.zeros((chunks, lines * row), np.float32), numbers),
        totals, _flat(x), _flat(g), offsets, layout.reads, layout.writes[:, :1].copy(),
        (ins, outs, groups, x.shape[-1], math.prod(x.shape[2:]), math.prod(g.shape[2:])), (rows, shifts),
        (layout.plane, layout.image, g.shape[-1], row, terms),
    )  # fmt: skip
    total = totals[0] if len(totals) == 1 else totals.sum(0)
    return np.ascontiguousarray(total.reshape(groups, lines, terms)[:, :outs, : len(places)]).reshape(shape)


# -- as kernels of the ops -----------------------------------------------------------------------------------------------


def _accepts(input, weight, bias=None, **options):
    """float32 with something in it, in one to three dimensions."""
    return is_float32(input, weight, bias) and input.ndim <= 5 and weight.size > 0


def _out(input, weight, stride, padding, dilation):
    """How often a window goes into the input, along each axis."""
    sides = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides]


def _is_product(weight, out, padding, groups):
    """Whether columns and products of matrices are quicker, for so many positions along each axis: for 1 × 1 windows; and where
    so few are in a row that what is computed between rows costs more than columns, each of whose elements meets `outs` weights.
    """
    plain = max(weight.shape[2:]) == 1 and not any(padding)
    return groups == 1 and (plain or sum(1 / max(n, 1) for n in out) > 40 / len(weight) or math.prod(out) == 1)


def _pays(input, weight, bias=None, *, stride, padding, dilation, groups):
    """Except where columns are better."""
    return not _is_product(weight, _out(input, weight, stride, padding, dilation), padding, groups)


def _transposed_pays(g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """Except where columns are better."""
    return not _is_product(weight, g.shape[2:], padding, groups)


def _over_positions(g):
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(-1).sum(0)


def _convolution(xp, input, weight, bias=None, *, stride, padding, dilation, groups):
    out = _out(input, weight, stride, padding, dilation)
    return convolve(input, weight, bias, out, stride, padding, dilation, groups)


def _convolution_vjp(g, input, weight, shapes, stride, padding, dilation, groups, needs):
    geometry = (stride, padding, dilation, groups)
    return (
        convolve_input(g, weight, None, shapes[0][2:], *geometry) if needs[0] else None,
        convolve_weight(g, input, shapes[1][2:], *geometry) if needs[1] else None,
        _over_positions(g) if needs[2] else None,
    )


def _transposed(xp, g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    return convolve_input(g, weight, bias, shape, stride, padding, dilation, groups)


def _transposed_vjp(up, g, weight, shapes, stride, padding, dilation, groups, needs):
    geometry = (stride, padding, dilation, groups)
    return (
        convolve(up, weight, None, shapes[0][2:], *geometry) if needs[0] else None,
        convolve_weight(g, up, shapes[1][2:], *geometry) if needs[1] else None,
        _over_positions(up) if needs[2] else None,
    )


convolution = Kernel(accepts=_accepts, pays=_pays, forward=_convolution, vjp=_convolution_vjp)
conv_transpose = Kernel(accepts=_accepts, pays=_transposed_pays, forward=_transposed, vjp=_transposed_vjp)
