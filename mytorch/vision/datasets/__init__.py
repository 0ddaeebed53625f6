"""Datasets of images and of points. Downloaded files are verified with their MD5 sums."""

from ..._extensions import lazy
from .base import VisionDataset
from .cifar import CIFAR10, CIFAR100
from .digits import Digits, SyntheticDigits
from .folder import DatasetFolder, ImageFolder
from .mnist import KMNIST, MNIST, FashionMNIST
from .toy import Toy2D

__all__ = (
    "CIFAR10 CIFAR100 DatasetFolder Digits FashionMNIST ImageFolder KMNIST MNIST SyntheticDigits Toy2D VisionDataset"
).split()
__getattr__, __dir__ = lazy(__name__)
