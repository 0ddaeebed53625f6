"""Computer vision with torchvision's names: datasets, transforms, ResNet, boxes and regions, and image grids.

In PyTorch mode, the package torchvision itself has more of each.
"""

from .._extensions import lazy
from . import datasets, io, models, ops, transforms, utils

__getattr__, __dir__ = lazy(__name__)
