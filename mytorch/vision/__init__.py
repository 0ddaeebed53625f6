"""Computer vision with torchvision's API: datasets, transforms, models, operators and image grids."""

from . import datasets, io, models, ops, transforms, utils


def get_image_backend() -> str:
    """Returns the name of the package that reads images, "PIL"."""
    return "PIL"


def set_image_backend(backend: str) -> None:
    """Accepts "PIL", the package that reads images.

    Args:
        backend: "PIL".

    Raises:
        ValueError: another name.
    """
    if backend != "PIL":
        raise ValueError(f"set_image_backend: expected 'PIL', got {backend!r}. Images are always read by Pillow.")
