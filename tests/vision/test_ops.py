"""Deformable convolution and boxes: compared with loops over positions, finite differences and torchvision's formulas."""

import math

import numpy as np
import pytest

import mytorch
from mytorch.ops import regions
from mytorch.vision import ops


def bilinear(image, y, x):
    """Read a channel at a position, with zeros outside."""
    total, (height, width) = 0.0, image.shape
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def deformed(x, offset, weight, bias, stride, padding, dilation, mask):
    n, c, h, w = x.shape
    out, per_group, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    shares, blocks = offset.shape[1] // (2 * kh * kw), c // per_group
    result = np.zeros((n, out, oh, ow))
    for b, o, i, j in np.ndindex(result.shape):
        for p, u, v in np.ndindex(per_group, kh, kw):
            channel = (o // (out // blocks)) * per_group + p
            k = (channel // (c // shares)) * kh * kw + u * kw + v
            y = i * stride[0] - padding[0] + u * dilation[0] + offset[b, 2 * k, i, j]
            z = j * stride[1] - padding[1] + v * dilation[1] + offset[b, 2 * k + 1, i, j]
            factor = 1.0 if mask is None else mask[b, k, i, j]
            result[b, o, i, j] += weight[o, p, u, v] * bilinear(x[b, channel], y, z) * factor
        result[b, o, i, j] += bias[o]
    return result


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("shares", "blocks", "kernel", "stride", "padding", "dilation"),
    [
        (1, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
        (2, 2, (2, 3), (2, 1), (0, 2), (1, 2)),
        (4, 1, (1, 2), (1, 2), (1, 0), (2, 1)),
    ],
)
def test_deformable_convolution(rng, shares, blocks, kernel, stride, padding, dilation, masked):
    x = rng.normal(size=(2, 4, 6, 5))
    weight = rng.normal(size=(6, 4 // blocks, *kernel))
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip((6, 5), padding, dilation, kernel, stride, strict=True)
    ]
    offset = rng.normal(size=(2, 2 * shares * kernel[0] * kernel[1], *size)) * 2
    mask = rng.uniform(size=(2, shares * kernel[0] * kernel[1], *size)) if masked else None
    bias = rng.normal(size=6)
    tensors = [mytorch.tensor(a) if a is not None else None for a in (x, offset, weight, bias, mask)]
    ours = ops.deform_conv2d(*tensors[:4], stride, padding, dilation, tensors[4])
    np.testing.assert_allclose(
        ours.numpy(), deformed(x, offset, weight, bias, stride, padding, dilation, mask), atol=1e-10
    )
    for tensor in tensors:
        if tensor is not None:
            tensor.requires_grad_()
    used = [t for t in tensors if t is not None]
    call = lambda x, o, w, b, *m: ops.deform_conv2d(x, o, w, b, stride, padding, dilation, *m)  # noqa: E731
    assert mytorch.autograd.gradcheck(call, used, fast_mode=True)


def test_deformable_convolution_refuses_offsets_of_another_shape():
    with pytest.raises(RuntimeError, match="expected offset of shape"):
        ops.deform_conv2d(mytorch.ones(1, 1, 4, 4), mytorch.zeros(1, 8, 4, 4), mytorch.ones(1, 1, 3, 3))


def test_distance_and_complete_box_iou(rng):
    low, high = rng.uniform(size=(2, 4, 2)), rng.uniform(size=(2, 4, 2)) + 1
    boxes = np.concatenate([low, low + high], -1)
    first, second = (mytorch.tensor(b, requires_grad=True) for b in boxes)
    distance, complete = ops.distance_box_iou(first, second), ops.complete_box_iou(first, second)
    for i, j in np.ndindex(4, 4):
        a, b = boxes[0, i], boxes[1, j]
        sides = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None)
        areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
        iou = sides.prod() / (sum(areas) - sides.prod())
        diagonal = ((np.maximum(a[2:], b[2:]) - np.minimum(a[:2], b[:2])) ** 2).sum()
        apart = (((a[:2] + a[2:]) / 2 - (b[:2] + b[2:]) / 2) ** 2).sum()
        v = 4 / np.pi**2 * (np.arctan((a[2] - a[0]) / (a[3] - a[1])) - np.arctan((b[2] - b[0]) / (b[3] - b[1]))) ** 2
        np.testing.assert_allclose(distance[i, j].item(), iou - apart / diagonal, atol=1e-6)
        np.testing.assert_allclose(
            complete[i, j].item(), iou - apart / diagonal - v * v / (1 - iou + v + 1e-7), atol=1e-6
        )
    assert mytorch.autograd.gradcheck(ops.distance_box_iou, (first, second))


POOLED = {
    "roi_align": lambda x, r: ops.roi_align(x, r, (2, 3), 0.7),
    "roi_align aligned": lambda x, r: ops.roi_align(x, r, (2, 3), 0.7, 2, aligned=True),
    "roi_pool": lambda x, r: ops.roi_pool(x, r, (2, 3), 0.7),
    "ps_roi_align": lambda x, r: regions.ps_roi_align(x, r, 0.7, 2, 3, 1)[0],
    "ps_roi_pool": lambda x, r: regions.ps_roi_pool(x, r, 0.7, 2, 3)[0],
}


@pytest.mark.parametrize("name", POOLED)
def test_pooled_regions(rng, name):
    """Derivatives, half precision, layouts, no regions, and refused arguments. tests/packages compares values with torchvision."""
    pool, x = POOLED[name], rng.normal(size=(2, 12, 7, 9))
    low = rng.uniform(-1, 6, (4, 2))
    rows = np.concatenate([[[0], [1], [1], [0]], low, low + rng.uniform(0.5, 6, (4, 2))], 1)
    images, rois = mytorch.tensor(x, requires_grad=True), mytorch.tensor(rows)
    assert mytorch.autograd.gradcheck(lambda x: pool(x, rois), (images,), fast_mode=True)
    assert mytorch.autograd.gradgradcheck(lambda x: pool(x, rois) ** 2, (images,), fast_mode=True)
    expected = pool(images, rois).detach()
    wide = mytorch.tensor(x.transpose(2, 3, 0, 1).copy()).permute(2, 3, 0, 1)
    np.testing.assert_allclose(pool(wide, rois).numpy(), expected.numpy(), atol=1e-12)
    for dtype in (mytorch.float16, mytorch.bfloat16):
        half, numbers = images.detach().to(dtype), rois.to(dtype)
        exact = pool(half.float(), numbers.float()).to(dtype)
        assert mytorch.equal(pool(half, numbers), exact)
    assert pool(images, rois[:0]).shape == (0, *expected.shape[1:])
    if "ps" not in name:
        lists = pool(images, [rois[rois[:, 0] == i, 1:] for i in range(2)])
        np.testing.assert_allclose(lists.detach().numpy(), expected.numpy()[[0, 3, 1, 2]])
    with pytest.raises(RuntimeError, match="same type"):
        pool(images, rois.float())
    with pytest.raises(RuntimeError, match=r"Tensor\[K, 5\]"):
        pool(images, rois[:, :4])
    with pytest.raises(IndexError, match="numbers of images from 0 to 1"):
        pool(images, rois + mytorch.tensor([2.0, 0, 0, 0, 0], dtype=mytorch.float64))


def test_suppression_of_many_boxes_and_equal_scores(rng):
    """Boxes with NaN are kept, NaN scores are first, and equal scores keep their order."""
    boxes = mytorch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 2, 1.9], [float("nan"), 0, 1, 1], [5, 5, 5, 5]])
    assert ops.nms(boxes, mytorch.tensor([0.5, 0.5, float("nan"), 0.1, 0.1]), 0.5).tolist() == [2, 3, 4]
    low = rng.uniform(0, 2000, (20000, 2))
    many = mytorch.tensor(np.concatenate([low, low + rng.uniform(5, 20, low.shape)], 1))
    kept = ops.nms(many, mytorch.tensor(rng.uniform(size=20000)), 0.3)
    assert 10000 < len(kept) < 20000
    with pytest.raises(RuntimeError, match="same dtype"):
        ops.nms(boxes, mytorch.zeros(5).double(), 0.5)
