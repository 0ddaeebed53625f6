"""Images in folders that have the names of the classes."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.errors import needed
from .base import Change, VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def pil_loader(path: str) -> Any:
    """Loads an image file as a PIL image of mode RGB.

    Args:
        path: path of the file.

    Raises:
        ImportError: if Pillow is not installed.
    """
    with needed("PIL.Image", "Reading images requires Pillow. Run `pip install pillow`.").open(path) as image:
        return image.convert("RGB")


default_loader = pil_loader


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """Returns the sorted names of the class folders in a folder, and the number of each class.

    Args:
        directory: the folder.

    Raises:
        FileNotFoundError: if there is no class folder.
    """
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def has_file_allowed_extension(filename: str, extensions: str | Sequence[str]) -> bool:
    """Returns True if a file name ends in one of the extensions, in upper or lower case.

    Args:
        filename: name of the file.
        extensions: an extension or a sequence of extensions, such as ".png".
    """
    return filename.lower().endswith((extensions,) if isinstance(extensions, str) else tuple(extensions))


class DatasetFolder(VisionDataset):
    """Files in class folders: `root/class/…/name.extension`.

    Args:
        root: folder of the class folders, which are searched recursively.
        loader: function that loads an item from a path.
        extensions: extensions of the files to use.
        transform: function of the item.
        target_transform: function of the target.
        is_valid_file: function that returns True for a path to use, instead of `extensions`.
        allow_empty: allow a class without files.

    Attributes:
        classes: names of the classes.
        class_to_idx: number of each class by name.
        samples: list of (path, number of the class); also `imgs`.
        targets: list of the numbers of the classes.

    Raises:
        ValueError: if not exactly one of extensions and is_valid_file is given.
        FileNotFoundError: if there is no class, or a class has no files.
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
        """Returns the names and numbers of the classes; a subclass may override it.

        Args:
            directory: the root folder.
        """
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in class folders: `root/class/…/name.png`. Requires Pillow.

    Args:
        root: folder of the class folders.
        transform: function of the image.
        target_transform: function of the class number.
        loader: function that loads an image from a path.
        is_valid_file: function that returns True for a path to use (default: selection by extension).
        allow_empty: allow a class without images.
    """

    def __init__(
        self, root: str | os.PathLike, transform: Change | None = None, target_transform: Change | None = None,
        loader: Callable[[str], Any] = default_loader, is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):  # fmt: skip
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
