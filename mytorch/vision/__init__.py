"""Pictures, with torchvision's names: datasets, transforms, models, operators, grids of images."""

from . import datasets, models, ops, transforms, utils
