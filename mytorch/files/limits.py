"""How much memory reading a file may take beyond the file itself: a few bytes that declare much can't fill the machine."""

FLOOR = 256 << 20  # bytes that any file may take
FACTOR = 16  # a larger file may take so many times its own size
_limit = None


def set_load_limit(nbytes: int | None) -> None:
    """Set how many bytes reading one file may take beyond the file itself: for unpacking entries, plain containers, text.

    By default 256 MiB, or sixteen times the file's size where that is more; None goes back to it. Tensors that lie in
    the file as they are need none of it.
    """
    global _limit
    if nbytes is not None and nbytes < 0:
        raise ValueError(f"set_load_limit: expected a number of bytes or None, got {nbytes}.")
    _limit = nbytes


class Budget:
    """What reading a file of `size` bytes may still take."""

    def __init__(self, name, size):
        self.name = name
        self.left = self.limit = max(FLOOR, FACTOR * size) if _limit is None else _limit

    def take(self, nbytes, what):
        """Count memory that is about to be used.

        Raises:
            RuntimeError: it is more than is left.
        """
        self.left -= nbytes
        if self.left < 0:
            raise RuntimeError(
                f"load: {self.name} is refused: {what} would bring what it takes in memory above {self.limit:,} bytes. "
                "If you trust it, mytorch.serialization.set_load_limit raises the limit."
            )
