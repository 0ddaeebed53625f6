"""Pictures, with torchvision's names: datasets, transforms, models, operators, grids of images."""

from . import datasets, io, models, ops, transforms, utils
