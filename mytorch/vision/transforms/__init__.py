"""Image transforms with torchvision's names. `functional` contains the same operations without random choices."""

from . import functional
from .augment import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    ElasticTransform,
    FiveCrop,
    GaussianBlur,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPerspective,
    RandomPosterize,
    RandomSolarize,
    TenCrop,
    TrivialAugmentWide,
)
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
