"""Image transforms with torchvision's names. `functional` contains the same operations without random choices."""

from . import functional
from .colour import ColorJitter, Grayscale, RandomGrayscale
from .compose import Compose, Lambda, RandomApply, RandomChoice, RandomOrder, Transform
from .conversion import ConvertImageDtype, Normalize, PILToTensor, RandomErasing, Reshape, ToPILImage, ToTensor
from .functional import InterpolationMode
from .geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
