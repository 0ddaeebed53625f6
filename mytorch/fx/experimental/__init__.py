"""Experimental parts of `fx`."""

from . import optimization

__all__ = ["optimization"]
