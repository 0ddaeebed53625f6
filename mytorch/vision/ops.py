"""Boxes and regions of images, with the names of `torchvision.ops`.

Boxes are tensors (N, 4) of (x1, y1, x2, y2). In PyTorch mode, the package torchvision itself has further operations.
"""

from collections.abc import Sequence
from typing import Any

from .._extensions import lazy
from ..arrays.tensor import Tensor
from ..ops import regions
from ..ops.movement import cat
from ..ops.regions import batched_nms, deform_conv2d, nms

__all__ = ["batched_nms", "deform_conv2d", "nms", "roi_align", "roi_pool"]
__path__: list[str] = []  # for the advice about torchvision's `ops.boxes` and `ops.misc`
__getattr__, __dir__ = lazy(__name__)


def _numbered(boxes):
    """Returns boxes (K, 5) with the number of the image first, from a tensor of this shape or a list of boxes (L, 4)."""
    if isinstance(boxes, Tensor):
        return boxes
    return cat([cat([b.new_full((len(b), 1), i), b], 1) for i, b in enumerate(boxes)])


def _two(size):
    return (size, size) if isinstance(size, int) else tuple(size)


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

    Example:
        >>> image = mytorch.arange(16.0).reshape(1, 1, 4, 4)
        >>> mytorch.vision.ops.roi_align(image, [tensor([[0.0, 0.0, 4.0, 4.0]])], 1, aligned=True).item()
        7.5
    """
    height, width = _two(output_size)
    return regions.roi_align(input, _numbered(boxes), spatial_scale, height, width, sampling_ratio, aligned)


def roi_pool(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Any, spatial_scale: float = 1.0
) -> Tensor:  # fmt: skip
    """Extracts regions of images by the maximum of each bin: (K, C, *output_size). Source: Girshick, 2015.

    Args:
        input: images or feature maps (N, C, H, W).
        boxes: see `roi_align`.
        output_size: see `roi_align`.
        spatial_scale: see `roi_align`.
    """
    return regions.roi_pool(input, _numbered(boxes), spatial_scale, *_two(output_size))[0]
