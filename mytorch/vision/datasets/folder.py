"""Pictures in folders that are named after their classes."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import needed
from .base import Change, VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def pil_loader(path: str) -> Any:
    """The picture in a file, as a PIL image of mode RGB.

    Raises:
        ImportError: Pillow is not installed.
    """
    with needed("PIL.Image", "Reading pictures needs Pillow: pip install pillow.").open(path) as image:
        return image.convert("RGB")


default_loader = pil_loader


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """The names of a folder's folders, sorted, and the number of each.

    Raises:
        FileNotFoundError: there are none.
    """
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def has_file_allowed_extension(filename: str, extensions: str | Sequence[str]) -> bool:
    """Whether a file's name ends in one of the extensions, in upper or lower case."""
    return filename.lower().endswith((extensions,) if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    """Whether a file's name says that it holds a picture."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


class DatasetFolder(VisionDataset):
    """Files in folders: `root/class/…/name.extension`.

    Args:
        root: the folder of the classes' folders, which are searched to any depth.
        loader: makes an item of a path.
        extensions: which files are taken; or
        is_valid_file: a function of a path that says so.
        transform, target_transform: functions of each item and of each target.
        allow_empty: take a class without a file.

    Attributes:
        classes, class_to_idx: the classes' names, and their numbers.
        samples: the list of (path, number of the class); also `imgs`.
        targets: the numbers alone.

    Raises:
        ValueError: not exactly one of extensions and is_valid_file.
        FileNotFoundError: no class, or a class without a file.
    """

    root: str | os.PathLike[str]

    def __init__(
        self, root: str | os.PathLike, loader: Callable[[str], Any], extensions: Sequence[str] | None = None,
        transform: Change | None = None, target_transform: Change | None = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ):  # fmt: skip
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
        self.loader = loader
        self.extensions = extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        valid = is_valid_file or (lambda path: has_file_allowed_extension(path, extensions or ()))
        self.samples = []
        for name, number in self.class_to_idx.items():
            found = [
                (os.path.join(folder, file), number)
                for folder, _, files in sorted(os.walk(os.path.join(self.root, name), followlinks=True))
                for file in sorted(files)
                if valid(os.path.join(folder, file))
            ]
            if not found and not allow_empty:
                raise FileNotFoundError(f"Found no valid file for the class {name} in {self.root}.")
            self.samples += found
        self.targets = [number for _, number in self.samples]

    def find_classes(self, directory: str | os.PathLike) -> tuple[list[str], dict[str, int]]:
        """The classes' names and numbers; a subclass may find them otherwise."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Pictures in folders: `root/class/…/name.png`; as `DatasetFolder`. Reading them needs Pillow.

    Args:
        root: the folder.
        transform: applied to a picture.
        target_transform: applied to a class's number.
        loader: reads a picture from a path.
        is_valid_file: which files count; by suffix if None.
        allow_empty: a class may have no picture.
    """

    def __init__(
        self, root: str | os.PathLike, transform: Change | None = None, target_transform: Change | None = None,
        loader: Callable[[str], Any] = default_loader, is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):  # fmt: skip
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
