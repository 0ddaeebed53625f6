"""Computer vision with torchvision's API: datasets, transforms, models, operators and image grids."""

from . import datasets, io, models, ops, transforms, utils
