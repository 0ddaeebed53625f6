"""Passes over graphs."""

from ..._extensions import lazy
from . import shape_prop

__all__ = ["shape_prop"]
__getattr__, __dir__ = lazy(__name__)
