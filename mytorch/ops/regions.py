"""Regions of images: non-maximum suppression of boxes, pooling of regions, and deformable convolution.

Most regions are pooled by sums with weights, and the weights of a bin are products of weights of its rows and its columns. A region is
therefore a pair of small matrices, which are computed on the CPU in the dtype of the boxes.
"""

import numpy as np

from ..arrays import dtypes
from ..arrays.overridable import overridable
from .creation import as_tensor, zeros
from .dispatch.op import op
from .dispatch.unwrap import raw_of, to_cpu
from .elementwise import where
from .movement import stack
from .reduction import to_acc_type
from .resample import grid_sample


@overridable
def nms(boxes, scores, iou_threshold):
    """Non-maximum suppression: returns the indices of the remaining boxes in order of decreasing scores.

    Args:
        boxes: (N, 4), with the corners x1, y1, x2, y2.
        scores: (N,).
        iou_threshold: a box is removed if its intersection over union with a better box is greater.

    Raises:
        RuntimeError: the shapes or dtypes do not fit.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should be a 2d tensor of shape (N, 4), got {list(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        raise RuntimeError(
            f"boxes and scores should have the same number of elements, got {list(boxes.shape)} and {list(scores.shape)}"
        )
    if boxes.dtype is not scores.dtype:
        raise RuntimeError(f"nms: expected boxes and scores of the same dtype, got {boxes.dtype} and {scores.dtype}.")
    order = to_cpu(raw_of(scores.detach().sort(stable=True, descending=True)[1]))
    x1, y1, x2, y2 = _numbers(boxes)[order].T
    area, alive, kept = (x2 - x1) * (y2 - y1), np.ones(len(order), bool), []
    for i in range(len(order)):
        if alive[i]:
            kept.append(order[i])
            j = i + 1 + np.flatnonzero(alive[i + 1 :])
            wide = np.maximum(np.minimum(x2[i], x2[j]) - np.maximum(x1[i], x1[j]), 0)
            tall = np.maximum(np.minimum(y2[i], y2[j]) - np.maximum(y1[i], y1[j]), 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                overlap = wide * tall / (area[i] + area[j] - wide * tall)
            alive[j[overlap > iou_threshold]] = False
    return as_tensor(np.array(kept, np.int64), device=boxes.device)


@overridable
def batched_nms(boxes, scores, idxs, iou_threshold):
    """Applies `nms` within each category.

    Args:
        boxes: (N, 4).
        scores: (N,).
        idxs: category of each box, (N,).
        iou_threshold: see `nms`.
    """
    if boxes.numel() == 0:
        return zeros(0, dtype=dtypes.int64, device=boxes.device)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # separates the boxes of different categories
    return nms(boxes + apart[:, None], scores, iou_threshold)


def _numbers(rois):
    """Returns boxes as a NumPy array of float32 or float64."""
    raw = to_cpu(raw_of(rois.detach()))
    return raw if raw.dtype.kind == "f" and raw.itemsize > 2 else raw.astype(np.float32)


def _checked(input, rois, name, size=(1, 1)):
    """Returns the boxes (K, 5) of a call as numbers. The channels must be a multiple of the number of bins."""
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(
            f"{name}: rois must have shape as Tensor[K, 5], got {list(rois.shape)}. Put the number of the image before each box."
        )
    if input.ndim != 4:
        raise RuntimeError(f"{name}: expected input of shape (N, C, H, W), got {list(input.shape)}.")
    if input.dtype is not rois.dtype:
        raise RuntimeError(
            f"{name}: Expected tensor for input to have the same type as tensor for rois; but type {input.dtype} does not equal {rois.dtype}"
        )
    rows = _numbers(rois)
    if len(rows) and not (0 <= rows[:, 0].min() and rows[:, 0].max() < len(input)):
        raise IndexError(
            f"{name}: expected numbers of images from 0 to {len(input) - 1} in the first column of rois, got {rows[:, 0].min():g} to {rows[:, 0].max():g}."
        )
    if input.shape[1] % (size[0] * size[1]):
        raise RuntimeError(
            f"{name}: input channels must be a multiple of pooling height * pooling width, got {input.shape[1]} channels and {size[0]} x {size[1]}"
        )
    return rows


def _cropped(weights):
    """Returns (first, weights): the first pixel with a weight, and the weights (bins, pixels) without zeros at both ends."""
    used = np.flatnonzero(weights.any(0))
    first, last = (used[0], used[-1] + 1) if len(used) else (0, 0)
    return int(first), weights[:, first:last]


def _samples(start, length, bins, ratio, size):
    """Returns the weights (bins, size) of the mean of bilinear samples in each bin of an interval."""
    step = length / bins
    count = ratio if ratio > 0 else int(np.ceil(step))
    weights = np.zeros((bins, size))
    if count <= 0:
        return weights
    kind = type(length)
    at = (start + np.arange(bins, dtype=kind) * step)[:, None] + (
        np.arange(count, dtype=kind) + kind(0.5)
    ) * step / kind(count)
    inside = ((at >= -1) & (at <= size)).reshape(-1)  # a sample more than one pixel outside counts as 0
    clipped = np.clip(at, 0, size - 1)
    low = np.minimum(clipped.astype(np.int64), max(size - 2, 0))
    part = (clipped - low).reshape(-1)
    rows, low = np.repeat(np.arange(bins), count), low.reshape(-1)
    np.add.at(weights, (rows, low), (1 - part) * inside)
    np.add.at(weights, (rows, np.minimum(low + 1, size - 1)), part * inside)
    return weights / count


@op(dtype="same", name="pooled_regions", half="everywhere")
def _pooled(xp, input, *, regions, size, by_position):
    """Returns a weighted sum of pixels for each bin of each region, (K, C, *size).

    Args:
        input: (N, C, H, W).
        regions: for each region, the number of the image, and for each axis the first pixel and the weights (bins, pixels).
        size: (rows, columns) of bins.
        by_position: each bin has separate channels; the input has C * rows * columns channels.
    """
    height, width = size
    channels = input.shape[1] // (height * width if by_position else 1)
    out = xp.zeros((len(regions), channels, height, width), input.dtype)
    for k, (image, top, down, left, across) in enumerate(regions):
        h, w = down.shape[1], across.shape[1]
        down, across = xp.asarray(down.astype(input.dtype)), xp.asarray(across.astype(input.dtype))
        part = input[image, :, top : top + h, left : left + w]
        if by_position:
            part = part.reshape(channels, height, width, h, w) * down[:, None, :, None]
            out[k] = (part * across[:, None, :]).sum((-2, -1))
        else:
            lines = (part.reshape(channels * h, w) @ across.T).reshape(channels, h, width)
            bins = down @ lines.transpose(1, 0, 2).reshape(h, channels * width)
            out[k] = bins.reshape(height, channels, width).transpose(1, 0, 2)
    return out


@op(dtype="same", name="spread_regions", half="everywhere")
def _spread(xp, g, *, regions, shape, by_position):
    """Returns the gradient of `_pooled` for its input, which has a shape."""
    channels, height, width = g.shape[1:]
    out = xp.zeros(shape, g.dtype)
    for k, (image, top, down, left, across) in enumerate(regions):
        h, w = down.shape[1], across.shape[1]
        down, across = xp.asarray(down.astype(g.dtype)), xp.asarray(across.astype(g.dtype))
        if by_position:
            part = g[k][..., None, None] * down[:, None, :, None] * across[:, None, :]
            part = part.reshape(shape[1], h, w)
        else:
            lines = down.T @ g[k].transpose(1, 0, 2).reshape(height, channels * width)
            part = lines.reshape(h, channels, width).transpose(1, 0, 2).reshape(channels * h, width) @ across
            part = part.reshape(channels, h, w)
        out[image, :, top : top + h, left : left + w] += part
    return out


_pooled.grad(
    input=lambda g, shape, regions, by_position, xp: xp.call(
        _spread, g, regions=regions, shape=tuple(shape), by_position=by_position
    )
)
_spread.grad(
    g=lambda up, shapes, regions, by_position, xp: xp.call(
        _pooled, up, regions=regions, size=tuple(shapes[0][2:]), by_position=by_position
    )
)


def _sampled(rows, shape, spatial_scale, size, sampling_ratio, aligned):
    """Returns the regions of `_pooled` for means of samples."""
    kind = rows.dtype.type
    found = []
    for image, *corners in rows:
        x1, y1, x2, y2 = (kind(c) * kind(spatial_scale) - kind(0.5 if aligned else 0) for c in corners)
        item = [int(image)]
        for low, high, bins, pixels in ((y1, y2, size[0], shape[2]), (x1, x2, size[1], shape[3])):
            length = high - low if aligned else max(high - low, kind(1))
            item += _cropped(_samples(low, length, bins, sampling_ratio, pixels))
        found.append(tuple(item))
    return tuple(found)


@overridable
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Averages bilinear samples in each bin of each region: (K, C, pooled_height, pooled_width). Source: He et al., 2017.

    Args:
        input: images or feature maps (N, C, H, W).
        rois: (K, 5): the number of the image, x1, y1, x2, y2.
        spatial_scale: size of the input divided by the size of the image, which the boxes refer to.
        pooled_height: number of rows of bins.
        pooled_width: number of columns of bins.
        sampling_ratio: number of samples per bin and axis; if not positive, the number of pixels in the bin.
        aligned: shift the boxes by half a pixel, for correct alignment.
    """
    size = pooled_height, pooled_width
    rows = _checked(input, rois, "roi_align")
    regions = _sampled(rows, input.shape, spatial_scale, size, sampling_ratio, aligned)
    return _pooled(input, regions=regions, size=size, by_position=False)


def roi_align_backward(grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width,
                       sampling_ratio, aligned):  # fmt: skip
    """Computes the gradient of `roi_align` for an input (batch_size, channels, height, width)."""
    shape, size = (batch_size, channels, height, width), (pooled_height, pooled_width)
    regions = _sampled(_numbers(rois), shape, spatial_scale, size, sampling_ratio, aligned)
    return _spread(grad, regions=regions, shape=shape, by_position=False)


def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """As `roi_align`, with separate channels for each bin. Source: Dai et al., 2016; He et al., 2017.

    Args:
        input: (N, C * pooled_height * pooled_width, H, W).
        rois: (K, 5).
        spatial_scale: as in `roi_align`.
        pooled_height: number of rows of bins.
        pooled_width: number of columns of bins.
        sampling_ratio: as in `roi_align`.

    Returns:
        (result (K, C, pooled_height, pooled_width), input channel of each of its elements)
    """
    size = pooled_height, pooled_width
    rows = _checked(input, rois, "ps_roi_align", size)
    regions = _sampled(rows, input.shape, spatial_scale, size, sampling_ratio, True)
    return _position_sensitive(input, rois, regions, size)


def _position_sensitive(input, rois, regions, size):
    """Returns the results of bins that have separate channels, and the input channel of each, (K, C, *size)."""
    mapping = np.arange(input.shape[1], dtype=np.int32).reshape(-1, *size)
    mapping = as_tensor(np.broadcast_to(mapping, (len(rois), *mapping.shape)).copy(), device=rois.device)
    return _pooled_by_position(input, regions, size), mapping


def _pooled_by_position(input, regions, size):
    return _pooled(input, regions=regions, size=size, by_position=True)


def ps_roi_align_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, sampling_ratio,
                          batch_size, channels, height, width):  # fmt: skip
    """Computes the gradient of `ps_roi_align` for an input (batch_size, channels, height, width)."""
    shape, size = (batch_size, channels, height, width), (pooled_height, pooled_width)
    regions = _sampled(_numbers(rois), shape, spatial_scale, size, sampling_ratio, True)
    return _spread(grad, regions=regions, shape=shape, by_position=True)


def _rounded(x):
    """Rounds halves away from zero, as C does."""
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x)).astype(np.int64)


def _ranges(start, length, bins, low, high):
    """Returns the first pixel of each bin, and the pixel after its last, limited to an interval."""
    step, i = length / type(length)(bins), np.arange(bins, dtype=type(length))
    first, last = np.floor(i * step).astype(np.int64), np.ceil((i + 1) * step).astype(np.int64)
    return np.clip(first + start, low, high), np.clip(last + start, low, high)


def _bins(rows, shape, spatial_scale, size, extra, margin):
    """Returns for each box the number of the image, and for each axis the pixel ranges of its bins."""
    found, kind = [], rows.dtype.type
    for row in rows:
        x1, y1, x2, y2 = _rounded(row[1:] * kind(spatial_scale))
        item = [int(row[0])]
        for low, high, bins, pixels in ((y1, y2, size[0], shape[2]), (x1, x2, size[1], shape[3])):
            item.append(_ranges(low, kind(max(high - low + extra, 1)), bins, 0, pixels - margin))
        found.append(item)
    return found


def _means(rois, shape, spatial_scale, size, margin):
    """Returns the regions of `_pooled` for the means of whole pixels."""
    found = []
    for image, *axes in _bins(rois, shape, spatial_scale, size, 0, margin):
        item = [image]
        for (first, last), pixels in zip(axes, shape[2:], strict=True):
            index = np.arange(pixels)
            inside = (index >= first[:, None]) & (index < last[:, None])
            item += _cropped(inside / np.maximum(last - first, 1)[:, None])
        found.append(tuple(item))
    return tuple(found)


def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Averages the pixels in each bin of each region, with separate channels for each bin. Source: Dai et al., 2016.

    Args:
        input: (N, C * pooled_height * pooled_width, H, W).
        rois: (K, 5).
        spatial_scale: as in `roi_align`.
        pooled_height: number of rows of bins.
        pooled_width: number of columns of bins.

    Returns:
        (result (K, C, pooled_height, pooled_width), input channel of each of its elements)
    """
    size = pooled_height, pooled_width
    rows = _checked(input, rois, "ps_roi_pool", size)
    regions = _means(rows, input.shape, spatial_scale, size, 1)  # as torchvision, without the last row and column
    return _position_sensitive(input, rois, regions, size)


def ps_roi_pool_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, batch_size, channels,
                         height, width):  # fmt: skip
    """Computes torchvision's gradient of `ps_roi_pool` for an input (batch_size, channels, height, width).

    It includes the last row and column of the image, unlike the result. `ps_roi_pool` itself has the exact gradient.
    """
    shape, size = (batch_size, channels, height, width), (pooled_height, pooled_width)
    regions = _means(_numbers(rois), shape, spatial_scale, size, 0)
    return _spread(grad, regions=regions, shape=shape, by_position=True)


def _flat_index(rois, argmax, shape):
    """Returns the positions of the maxima in the flat input, (K, C, h, w), and True for bins that are not empty."""
    plane = shape[2] * shape[3]
    images = rois[:, :1].to(dtypes.int64) * shape[1]
    channels = images + as_tensor(np.arange(shape[1]), device=rois.device)
    return channels[:, :, None, None] * plane + argmax.clamp(min=0).to(dtypes.int64), argmax >= 0


def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Computes the maximum of the pixels in each bin of each region. Source: Girshick, 2015.

    Args:
        input: (N, C, H, W).
        rois: (K, 5).
        spatial_scale: as in `roi_align`.
        pooled_height: number of rows of bins.
        pooled_width: number of columns of bins.

    Returns:
        (result (K, C, pooled_height, pooled_width), positions of the maxima in the image, -1 for bins without pixels)
    """
    rows, size = _checked(input, rois, "roi_pool"), (pooled_height, pooled_width)
    images, width = to_cpu(raw_of(input.detach())), input.shape[3]
    images = to_acc_type(images)
    argmax = np.full((len(rows), input.shape[1], *size), -1, np.int32)
    for k, (image, down, across) in enumerate(_bins(rows, input.shape, spatial_scale, size, 1, 0)):
        for i, (top, bottom) in enumerate(zip(*down, strict=True)):
            for j, (left, right) in enumerate(zip(*across, strict=True)):
                part = images[image, :, top:bottom, left:right]
                if part.size:
                    at = np.where(np.isnan(part), -np.inf, part).reshape(len(part), -1).argmax(1)
                    argmax[k, :, i, j] = (top + at // (right - left)) * width + left + at % (right - left)
    chosen = as_tensor(argmax, device=input.device)
    index, full = _flat_index(rois, chosen, input.shape)
    return where(full, input.reshape(-1)[index] if input.numel() else index.to(input.dtype), 0.0), chosen


def roi_pool_backward(
    grad, rois, argmax, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width
):
    """Computes the gradient of `roi_pool` for an input (batch_size, channels, height, width)."""
    shape = batch_size, channels, height, width
    index, full = _flat_index(rois, argmax, shape)
    out = zeros(batch_size * channels * height * width, dtype=grad.dtype, device=grad.device)
    return out.index_add(0, index.reshape(-1), where(full, grad, 0.0).reshape(-1)).reshape(shape)


def deform_conv2d(
    input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None
):  # fmt: skip
    """Computes a deformable convolution. Source: Dai et al., 2017; with a mask: Zhu et al., 2018.

    Each element of the kernel reads the input at its regular position plus an offset, with bilinear interpolation. Positions
    outside of the input are zero.

    Args:
        input: (N, C_in, H, W).
        offset: (N, 2 * groups * kh * kw, H_out, W_out): for each group and element of the kernel, the offsets in y and x.
        weight: (C_out, C_in / weight_groups, kh, kw).
        bias: (C_out,), or None.
        stride: distance between the windows, one number or (y, x).
        padding: zeros on each side, one number or (y, x).
        dilation: distance between the elements of the kernel, one number or (y, x).
        mask: factors (N, groups * kh * kw, H_out, W_out), or None.

    Returns:
        Tensor: (N, C_out, H_out, W_out).

    Example:
        >>> x, weight = mytorch.ones(1, 1, 3, 3), mytorch.ones(1, 1, 2, 2)
        >>> mytorch.vision.ops.deform_conv2d(x, mytorch.zeros(1, 8, 2, 2), weight)
        tensor([[[[4., 4.],
                  [4., 4.]]]])
    """
    (sy, sx), (py, px), (dy, dx) = ((v, v) if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation))
    count, channels, height, width = input.shape
    outside, per_group, kh, kw = weight.shape
    out_h = (height + 2 * py - dy * (kh - 1) - 1) // sy + 1
    out_w = (width + 2 * px - dx * (kw - 1) - 1) // sx + 1
    groups = offset.shape[1] // (2 * kh * kw)
    if groups == 0 or offset.shape[1] != 2 * groups * kh * kw or tuple(offset.shape[2:]) != (out_h, out_w):
        raise RuntimeError(
            f"deform_conv2d: expected offset of shape (N, 2 * groups * {kh} * {kw}, {out_h}, {out_w}), got {tuple(offset.shape)}. "
            "Compute the offsets with a convolution of the same stride, padding and dilation."
        )
    # Regular positions (kh * kw, out_h, out_w), plus the offsets of each image and group.
    ky, kx = np.divmod(np.arange(kh * kw), kw)
    rows = ky[:, None, None] * dy - py + (np.arange(out_h) * sy)[:, None] + np.zeros(out_w)
    columns = kx[:, None, None] * dx - px + np.zeros((out_h, 1)) + np.arange(out_w) * sx
    shifts = offset.reshape(count * groups, kh * kw, 2, out_h, out_w)
    like = {"dtype": input.dtype, "device": input.device}
    y = shifts[:, :, 0] + as_tensor(rows, **like)
    x = shifts[:, :, 1] + as_tensor(columns, **like)
    # `grid_sample` expects positions in pixels mapped to (-1, 1) with pixel borders at the ends.
    grid = stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1).reshape(
        count * groups, kh * kw * out_h, out_w, 2
    )
    parts = input.reshape(count * groups, channels // groups, height, width)
    read = grid_sample(parts, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    read = read.reshape(count, groups, channels // groups, kh * kw, out_h * out_w)
    if mask is not None:
        read = read * mask.reshape(count, groups, 1, kh * kw, out_h * out_w)
    blocks = channels // per_group
    read = read.reshape(count, blocks, per_group * kh * kw, out_h * out_w)
    out = (weight.reshape(blocks, outside // blocks, per_group * kh * kw) @ read).reshape(count, outside, out_h, out_w)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)
