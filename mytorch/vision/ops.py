"""`torchvision.ops`: boxes, regions of interest, and building blocks of networks.

Boxes are tensors (N, 4) of (x1, y1, x2, y2).
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import nn
from .._tensor import Tensor
from ..base import dtypes
from ..dispatch.unwrap import raw_of, to_cpu
from ..engine.mode import no_grad
from ..nn import functional as F
from ..nn.module import Module
from ..ops.creation import as_tensor, tensor, zeros
from ..ops.elementwise import clamp, maximum, minimum
from ..ops.movement import cat, stack

__path__: list[str] = []  # for imports of torchvision's `ops.boxes` and `ops.misc`
_FORMS = ("xyxy", "xywh", "cxcywh")


def box_area(boxes: Tensor) -> Tensor:
    """Computes the areas of boxes, (N,).

    Args:
        boxes: (N, 4).
    """
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlaps(boxes1, boxes2):
    """Return (intersections, unions) of boxes (…, 4), which are broadcast."""
    low, high = maximum(boxes1[..., :2], boxes2[..., :2]), minimum(boxes1[..., 2:], boxes2[..., 2:])
    sides = (high - low).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    return inter, box_area(boxes1) + box_area(boxes2) - inter


def _around(boxes1, boxes2):
    """Return the sides (…, 2) of the boxes around two boxes."""
    low, high = minimum(boxes1[..., :2], boxes2[..., :2]), maximum(boxes1[..., 2:], boxes2[..., 2:])
    return (high - low).clamp(min=0)


def _generalized(boxes1, boxes2, eps=0.0):
    inter, union = _overlaps(boxes1, boxes2)
    sides = _around(boxes1, boxes2)
    around = sides[..., 0] * sides[..., 1]
    return inter / (union + eps) - (around - union) / (around + eps)


def _distance(boxes1, boxes2, iou, eps):
    """Return IoU minus the squared distance of the centers, relative to the squared diagonal of the enclosing box."""
    diagonal = (_around(boxes1, boxes2) ** 2).sum(-1) + eps
    first, second = ((boxes[..., :2] + boxes[..., 2:]) / 2 for boxes in (boxes1, boxes2))
    return iou - ((first - second) ** 2).sum(-1) / diagonal


def _shape_term(boxes1, boxes2, iou, eps):
    """Return the penalty of different aspect ratios."""
    first, second = (((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])).atan() for b in (boxes1, boxes2))
    v = (4 / math.pi**2) * (first - second) ** 2
    with no_grad():
        alpha = v / (1 - iou + v + eps)
    return alpha * v


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Computes the intersection over union of every pair of boxes, (N, M).

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).

    Example:
        >>> boxes = tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
        >>> mytorch.vision.ops.box_iou(boxes, boxes)
        tensor([[1.0000, 0.3333],
                [0.3333, 1.0000]])
    """
    inter, union = _overlaps(boxes1[:, None], boxes2)
    return inter / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Computes the generalized intersection over union of every pair of boxes, (N, M). Source: Rezatofighi et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
    """
    return _generalized(boxes1[:, None], boxes2)


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Computes the distance intersection over union of every pair of boxes, (N, M). Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
        eps: number that is added to the squared diagonal of the enclosing box (default: 1e-7).
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    return _distance(boxes1[:, None], boxes2, box_iou(boxes1, boxes2), eps)


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Computes the complete intersection over union of every pair of boxes, (N, M). Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
        eps: number that is added to the denominators (default: 1e-7).
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    iou, boxes1 = box_iou(boxes1, boxes2), boxes1[:, None]
    return _distance(boxes1, boxes2, iou, eps) - _shape_term(boxes1, boxes2, iou, eps)


def _as_float(boxes):
    return boxes if boxes.is_floating_point() else boxes.float()


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Converts boxes to another format.

    Args:
        boxes: (N, 4).
        in_fmt: format of the input: "xyxy", "xywh" (corner and size) or "cxcywh" (center and size).
        out_fmt: format of the result.

    Raises:
        ValueError: if a format is unknown.
    """
    if in_fmt not in _FORMS or out_fmt not in _FORMS:
        raise ValueError(f"box_convert: expected formats in {', '.join(_FORMS)}, got {in_fmt!r} and {out_fmt!r}.")
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == "cxcywh":
        first = first - second / 2
    low, high = (first, second) if in_fmt == "xyxy" else (first, first + second)
    if out_fmt == "xyxy":
        return cat([low, high], -1)
    return cat([low if out_fmt == "xywh" else (low + high) / 2, high - low], -1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Clips boxes at the borders of an image.

    Args:
        boxes: (…, 4).
        size: (height, width) of the image.
    """
    height, width = size
    x, y = clamp(boxes[..., 0::2], 0, width), clamp(boxes[..., 1::2], 0, height)
    return stack([x, y], -1).reshape(boxes.shape)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Returns the indices of the boxes whose width and height are at least min_size.

    Args:
        boxes: (N, 4).
        min_size: minimum width and height.
    """
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return ((width >= min_size) & (height >= min_size)).nonzero(as_tuple=True)[0]


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression: returns the indices of the remaining boxes in order of decreasing scores.

    Args:
        boxes: (N, 4).
        scores: (N,).
        iou_threshold: a box is removed if its intersection over union with a better box is greater.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should be a 2d tensor of shape (N, 4), got {list(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        raise RuntimeError(
            f"boxes and scores should have the same number of elements, got {list(boxes.shape)} and {list(scores.shape)}"
        )
    order = np.argsort(-to_cpu(raw_of(scores)), kind="stable")
    overlap = to_cpu(raw_of(box_iou(boxes, boxes))) > iou_threshold
    kept, alive = [], np.ones(len(order), bool)
    for i in order:
        if alive[i]:
            kept.append(int(i))
            alive &= ~overlap[i]
    return as_tensor(np.array(kept, np.int64), device=boxes.device)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Applies `nms` within each category.

    Args:
        boxes: (N, 4).
        scores: (N,).
        idxs: category of each box, (N,).
        iou_threshold: see `nms`.
    """
    if boxes.numel() == 0:
        return zeros(0, dtype=idxs.dtype, device=boxes.device)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # separates the boxes of different categories
    return nms(boxes + apart[:, None], scores, iou_threshold)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """Computes the bounding boxes of masks, (N, 4).

    Args:
        masks: (N, H, W).
    """
    raw = to_cpu(raw_of(masks))
    boxes = np.zeros((len(raw), 4), np.float32)
    for box, mask in zip(boxes, raw, strict=True):
        y, x = np.nonzero(mask)
        box[:] = x.min(), y.min(), x.max(), y.max()
    return as_tensor(boxes, device=masks.device)


def roi_align(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Any, spatial_scale: float = 1.0,
    sampling_ratio: int = -1, aligned: bool = False,
) -> Tensor:  # fmt: skip
    """Extracts regions of images by averaging bilinear samples over a grid: (K, C, *output_size). Source: He et al., 2017.

    Args:
        input: images or feature maps (N, C, H, W).
        boxes: (K, 5), with the number of the image first, or a list of boxes (L, 4) for each image.
        output_size: (height, width), or one number for both.
        spatial_scale: size of the input divided by the size of the image, which the boxes refer to.
        sampling_ratio: number of samples per bin and axis; if not positive, the number of pixels in the bin.
        aligned: shift the boxes by half a pixel, for correct alignment.
    """
    if not isinstance(boxes, Tensor):
        numbers = [as_tensor(np.full((len(b), 1), i, np.float32), device=b.device) for i, b in enumerate(boxes)]
        boxes = cat([cat([n.to(b.dtype), b], 1) for n, b in zip(numbers, boxes, strict=True)])
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    rows, shift = to_cpu(raw_of(boxes)).astype(np.float64), 0.5 if aligned else 0.0
    found = [_one_region(input, row, height, width, spatial_scale, sampling_ratio, shift, aligned) for row in rows]
    return stack(found) if found else zeros(0, input.shape[1], height, width, dtype=input.dtype, device=input.device)


def _one_region(input, row, height, width, scale, ratio, shift, aligned):
    x1, y1, x2, y2 = row[1:] * scale - shift
    tall, wide = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
    weights = []
    for start, length, bins, size in ((y1, tall, height, input.shape[2]), (x1, wide, width, input.shape[3])):
        samples = ratio if ratio > 0 else max(int(np.ceil(length / bins)), 1)
        at = start + (np.arange(bins * samples) + 0.5) * (length / bins / samples)
        weights.append(as_tensor(_bilinear(at, size).reshape(bins, samples, size).mean(1)))
    down, across = (w.to(device=input.device, dtype=input.dtype) for w in weights)
    return down @ input[int(row[0])] @ across.T


def _bilinear(at, size):
    """Return weights (len(at), size) of bilinear samples; samples more than one pixel outside have weight 0."""
    weights = np.zeros((len(at), size))
    inside = (at >= -1) & (at <= size)
    clipped = np.clip(at, 0, size - 1)
    low = np.minimum(clipped.astype(int), max(size - 2, 0))
    part = clipped - low
    rows = np.arange(len(at))
    weights[rows, low] += 1 - part
    weights[rows, np.minimum(low + 1, size - 1)] += part
    return weights * inside[:, None]


def deform_conv2d(
    input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = (1, 1), padding: Any = (0, 0),
    dilation: Any = (1, 1), mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
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
    read = F.grid_sample(parts, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    read = read.reshape(count, groups, channels // groups, kh * kw, out_h * out_w)
    if mask is not None:
        read = read * mask.reshape(count, groups, 1, kh * kw, out_h * out_w)
    blocks = channels // per_group
    read = read.reshape(count, blocks, per_group * kh * kw, out_h * out_w)
    out = (weight.reshape(blocks, outside // blocks, per_group * kh * kw) @ read).reshape(count, outside, out_h, out_w)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


class DeformConv2d(Module):
    """Deformable convolution with offsets from another layer. See `deform_conv2d`.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels.
        kernel_size: height and width of the kernel.
        stride: distance between the windows.
        padding: zeros on each side.
        dilation: distance between the elements of the kernel.
        groups: number of groups of channels.
        bias: add a learned bias.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{'in' if in_channels % groups else 'out'}_channels must be divisible by groups")
        pairs = ((v, v) if isinstance(v, int) else tuple(v) for v in (kernel_size, stride, padding, dilation))
        self.kernel_size, self.stride, self.padding, self.dilation = pairs
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.weight = nn.Parameter(zeros(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes the weights as in `nn.Conv2d`."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the result of `deform_conv2d`.

        Args:
            input: (N, in_channels, H, W).
            offset: offsets of the positions.
            mask: factors, or None.
        """
        options = self.stride, self.padding, self.dilation
        return deform_conv2d(input, offset, self.weight, self.bias, *options, mask=mask)


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Binary cross-entropy that reduces the weight of easy examples. Source: Lin et al., 2017.

    Args:
        inputs: logits.
        targets: 0 or 1, of the same shape.
        alpha: weight of positive examples; negative for no weights.
        gamma: focusing exponent; greater values reduce the weight of easy examples more.
        reduction: "none", "mean" or "sum".
    """
    p = inputs.sigmoid()
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * targets + (1 - alpha) * (1 - targets))
    return _reduced(loss, reduction)


def _reduced(loss, reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"Invalid Value for arg 'reduction': '{reduction} \n Supported reduction modes: 'none', 'mean', 'sum'"
        )
    if reduction == "mean" and not loss.numel():
        return loss.sum() * 0.0
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Computes 1 minus the generalized intersection over union of corresponding boxes. Source: Rezatofighi et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (N, 4).
        reduction: "none", "mean" or "sum".
        eps: number that is added to the denominators.

    Example:
        >>> boxes = tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
        >>> mytorch.vision.ops.generalized_box_iou_loss(boxes, boxes.flip(0))
        tensor([0.6667, 0.6667])
    """
    return _reduced(1 - _generalized(_as_float(boxes1), _as_float(boxes2), eps), reduction)


def distance_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Computes 1 minus the distance intersection over union of corresponding boxes. Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (N, 4).
        reduction: "none", "mean" or "sum".
        eps: number that is added to the denominators.
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    inter, union = _overlaps(boxes1, boxes2)
    return _reduced(1 - _distance(boxes1, boxes2, inter / (union + eps), eps), reduction)


def complete_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Computes 1 minus the complete intersection over union of corresponding boxes. Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (N, 4).
        reduction: "none", "mean" or "sum".
        eps: number that is added to the denominators.
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    inter, union = _overlaps(boxes1, boxes2)
    iou = inter / (union + eps)
    return _reduced(1 - _distance(boxes1, boxes2, iou, eps) + _shape_term(boxes1, boxes2, iou, eps), reduction)


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Sets whole residual branches to zero at random. Source: Huang et al., 2016.

    Args:
        input: (N, …).
        p: probability.
        mode: "batch" drops all examples together, "row" drops each example independently.
        training: if False, return the input.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0:
        return input
    shape = (input.shape[0] if mode == "row" else 1,) + (1,) * (input.ndim - 1)
    noise = zeros(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    return input * (noise / (1 - p) if p < 1 else noise)


class StochasticDepth(Module):
    """Applies `stochastic_depth` in training.

    Args:
        p: probability.
        mode: "batch" or "row".
    """

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        """Returns the input, with residual branches dropped in training.

        Args:
            input: (N, …).
        """
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        """Returns p and mode."""
        return f"p={self.p}, mode={self.mode}"


class FrozenBatchNorm2d(Module):
    """Batch normalization with fixed statistics, weight and bias.

    Args:
        num_features: number of channels.
        eps: number to add to the variance.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, zeros(num_features).fill_(value))

    def forward(self, x: Tensor) -> Tensor:
        """Computes (x - running_mean) / sqrt(running_var + eps) * weight + bias.

        Args:
            x: (N, C, H, W).
        """
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)

    def __repr__(self) -> str:
        return f"FrozenBatchNorm2d({self.weight.shape[0]}, eps={self.eps})"


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a norm and an activation.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels.
        kernel_size: size of the kernel.
        stride: step between windows.
        padding: zeros at the borders (default: preserve the size).
        groups: number of groups of channels.
        norm_layer: function of the number of channels that returns a norm, or None.
        activation_layer: class of the activation, or None.
        dilation: step between the elements of a window.
        inplace: let the activation change its input.
        bias: add a bias (default: only without a norm).
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 3, stride: int = 1, padding: int | None = None,
        groups: int = 1, norm_layer: Callable[..., Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., Module] | None = nn.ReLU, dilation: int = 1, inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:  # fmt: skip
        padding = (kernel_size - 1) // 2 * dilation if padding is None else padding
        bias = norm_layer is None if bias is None else bias
        layers: list[Module] = [
            nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer() if inplace is None else activation_layer(inplace=inplace))
        super().__init__(*layers)
        self.out_channels = out_channels


ConvNormActivation = Conv2dNormActivation


class SqueezeExcitation(Module):
    """Scales each channel by a function of the channels' means. Source: Hu et al., 2018.

    Args:
        input_channels: number of channels.
        squeeze_channels: number of inner channels.
        activation: class of the activation between the two convolutions.
        scale_activation: class of the activation after the two convolutions.
    """

    def __init__(
        self, input_channels: int, squeeze_channels: int, activation: Callable[..., Module] = nn.ReLU,
        scale_activation: Callable[..., Module] = nn.Sigmoid,
    ) -> None:  # fmt: skip
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            input: (N, C, H, W).
        """
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class Permute(Module):
    """Permutes the axes.

    Args:
        dims: order of the axes.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        """Returns x with permuted axes.

        Args:
            x: input.
        """
        return x.permute(*self.dims)


class MLP(nn.Sequential):
    """A multilayer perceptron with a norm, an activation and dropout after each layer except the last.

    Args:
        in_channels: size of the input's last axis.
        hidden_channels: size after each layer.
        norm_layer: function of the size that returns a norm, or None.
        activation_layer: class of the activation.
        inplace: let activation and dropout change their input.
        bias: add biases to the linear layers.
        dropout: dropout probability.
    """

    def __init__(
        self, in_channels: int, hidden_channels: Sequence[int], norm_layer: Callable[..., Module] | None = None,
        activation_layer: Callable[..., Module] = nn.ReLU, inplace: bool | None = None, bias: bool = True,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[Module] = []
        for width in hidden_channels[:-1]:
            layers.append(nn.Linear(in_channels, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]
            in_channels = width
        layers += [nn.Linear(in_channels, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **options)]
        super().__init__(*layers)


class FeaturePyramidNetwork(Module):
    """Adds features of coarse levels to features of fine levels. Source: Lin et al., 2016.

    Args:
        in_channels_list: number of channels of each level, from fine to coarse.
        out_channels: number of channels of the results.
        extra_blocks: module that adds levels, such as `LastLevelMaxPool`, or None.
        norm_layer: function of the number of channels that returns a norm, or None.

    Example:
        >>> pyramid = mytorch.vision.ops.FeaturePyramidNetwork([4, 8], 6)
        >>> levels = pyramid({"a": mytorch.zeros(1, 4, 8, 8), "b": mytorch.zeros(1, 8, 4, 4)})
        >>> [tuple(x.shape) for x in levels.values()]
        [(1, 6, 8, 8), (1, 6, 4, 4)]
    """

    def __init__(
        self, in_channels_list: Sequence[int], out_channels: int, extra_blocks: Module | None = None,
        norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: Any = {"norm_layer": norm_layer, "activation_layer": None}
        self.inner_blocks = nn.ModuleList(Conv2dNormActivation(n, out_channels, 1, **options) for n in in_channels_list)
        self.layer_blocks = nn.ModuleList(Conv2dNormActivation(out_channels, out_channels, 3, **options) for _ in in_channels_list)  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.extra_blocks = extra_blocks

    def forward(self, x: dict[str, Tensor]) -> "OrderedDict[str, Tensor]":
        """Returns {name: features (N, out_channels, H, W)}.

        Args:
            x: {name: features}, from fine to coarse.
        """
        names, inputs = list(x), list(x.values())
        last = self.inner_blocks[-1](inputs[-1])
        results = [self.layer_blocks[-1](last)]
        for i in range(len(inputs) - 2, -1, -1):
            lateral = self.inner_blocks[i](inputs[i])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[i](last))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, inputs, names)
        return OrderedDict(zip(names, results, strict=True))


class LastLevelMaxPool(Module):
    """Adds a level of every second position of the coarsest level."""

    def forward(self, x: list[Tensor], y: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        """Returns the levels and names with the new level, "pool".

        Args:
            x: levels of the pyramid.
            y: inputs of the pyramid.
            names: names of the levels.
        """
        return [*x, F.max_pool2d(x[-1], 1, 2, 0)], [*names, "pool"]


class LastLevelP6P7(Module):
    """Adds two levels by convolutions of stride 2, as in RetinaNet.

    Args:
        in_channels: number of channels of the input of the first convolution.
        out_channels: number of channels of the levels.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.p6, self.p7 = (nn.Conv2d(n, out_channels, 3, 2, 1) for n in (in_channels, out_channels))
        for module in (self.p6, self.p7):
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.zeros_(module.bias)
        self.use_P5 = in_channels == out_channels

    def forward(self, p: list[Tensor], c: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        """Returns the levels and names with the new levels, "p6" and "p7".

        Args:
            p: levels of the pyramid.
            c: inputs of the pyramid.
            names: names of the levels.
        """
        six = self.p6(p[-1] if self.use_P5 else c[-1])
        return [*p, six, self.p7(six.relu())], [*names, "p6", "p7"]


class MultiScaleRoIAlign(Module):
    """Applies `roi_align` to the level of a pyramid that fits the size of each box.

    Args:
        featmap_names: names of the levels.
        output_size: (height, width) of the regions, or one number for both.
        sampling_ratio: number of samples per bin and axis; see `roi_align`.
        canonical_scale: size of a box, in pixels, for the level canonical_level.
        canonical_level: number of the level; level k has 2 ** -k of the resolution of the image.
    """

    def __init__(
        self, featmap_names: Sequence[str], output_size: int | Sequence[int], sampling_ratio: int, *,
        canonical_scale: int = 224, canonical_level: int = 4,
    ) -> None:  # fmt: skip
        super().__init__()
        self.featmap_names, self.sampling_ratio = list(featmap_names), sampling_ratio
        self.output_size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """Returns the regions (number of boxes, C, height, width).

        Args:
            x: {name: features}.
            boxes: boxes (L, 4) of each image.
            image_shapes: (height, width) of each image.
        """
        levels = [x[name] for name in self.featmap_names if name in x]
        tall = max(shape[0] for shape in image_shapes)
        scales = [2.0 ** round(math.log2(level.shape[-2] / tall)) for level in levels]
        numbers = [b.new_full((len(b), 1), i) for i, b in enumerate(boxes)]
        rows = cat([cat([n, b], 1) for n, b in zip(numbers, boxes, strict=True)])
        if len(levels) == 1:
            return roi_align(levels[0], rows, self.output_size, scales[0], self.sampling_ratio)
        low, high = (-round(math.log2(scale)) for scale in (scales[0], scales[-1]))
        size = box_area(rows[:, 1:]).sqrt()
        level = (self.canonical_level + (size / self.canonical_scale).log2() + 1e-6).floor().clamp(low, high)
        order, parts = [], []
        for i, (features, scale) in enumerate(zip(levels, scales, strict=True)):
            index = (level == low + i).nonzero()[:, 0]
            order += index.tolist()
            parts.append(roi_align(features, rows[index], self.output_size, scale, self.sampling_ratio))
        inverse = sorted(range(len(order)), key=order.__getitem__)
        return cat(parts)[tensor(inverse, dtype=dtypes.int64, device=rows.device)]
