"""Error files of launched programs."""

from . import errors

__all__ = ["errors"]
