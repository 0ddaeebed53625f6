"""Reading and writing files."""

from .. import _extensions

__getattr__, __dir__ = _extensions.lazy(__name__, "archive limits writing")
