"""Datasets of images and of points. Downloaded files are verified with their MD5 sums."""

from .base import VisionDataset
from .cifar import CIFAR10, CIFAR100
from .digits import Digits, SyntheticDigits
from .fake import FakeData
from .folder import DatasetFolder, ImageFolder
from .mnist import KMNIST, MNIST, FashionMNIST
from .toy import Toy2D

__all__ = (
    "CIFAR10 CIFAR100 DatasetFolder Digits FakeData FashionMNIST ImageFolder KMNIST MNIST SyntheticDigits Toy2D VisionDataset"
).split()
