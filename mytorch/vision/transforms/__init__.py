"""Image transforms with torchvision's names. `functional` contains the same operations without random choices.

In PyTorch mode, the package torchvision itself has further transforms.
"""

from ..._extensions import lazy
from . import functional
from .compose import Compose, Lambda, Transform
from .conversion import ConvertImageDtype, Normalize, PILToTensor, Reshape, ToPILImage, ToTensor
from .functional import InterpolationMode
from .geometry import CenterCrop, Pad, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize

__getattr__, __dir__ = lazy(__name__)
