"""Pictures, with torchvision's names: datasets, transforms, grids of images."""

from . import datasets, transforms, utils
