"""Memory limit for reading files, so that a small file that declares large contents cannot exhaust the memory."""

import os

FLOOR = 256 << 20  # limit in bytes for small files
FACTOR = 16  # limit of larger files, as a multiple of their size
_limit = None


def check_regular(path, who="load"):
    """Raise an error for a pipe, a socket or a device, from which reading can wait indefinitely.

    Raises:
        ValueError: if the path exists and is neither a file nor a directory.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(
            f"{who}: expected a regular file, got {os.fspath(path)}, which is a pipe, a socket or a device. Copy its contents to a file first."
        )


def set_load_limit(nbytes: int | None) -> None:
    """Sets the limit of memory that reading a file may use for unpacked entries, containers and text.

    Tensors that are stored uncompressed do not count.

    Args:
        nbytes: limit in bytes, or None for the default: 256 MiB, or 16 times the size of the file if that is more.
    """
    global _limit
    if nbytes is not None and nbytes < 0:
        raise ValueError(f"set_load_limit: expected a number of bytes or None, got {nbytes}.")
    _limit = nbytes


class Budget:
    """The remaining memory for reading a file of `size` bytes."""

    def __init__(self, name, size):
        self.name = name
        self.declaring = False  # True while a pickle runs only to find its storages, whose elements are not read yet
        self.left = self.limit = max(FLOOR, FACTOR * size) if _limit is None else _limit

    def take(self, nbytes, what):
        """Count memory that will be used.

        Raises:
            RuntimeError: if it exceeds the limit.
        """
        self.left -= nbytes
        if self.left < 0:
            raise RuntimeError(
                f"load: {self.name} is refused: {what} would exceed the memory limit of {self.limit:,} bytes. If you trust the "
                "file, increase the limit with mytorch.serialization.set_load_limit."
            )
