"""PyTorch's additional names and import paths, older file formats, `import torch`, and einops support.

`mytorch/_extensions.py` imports this package when a program first uses a name that is not in the core.
"""

from .. import _extensions

__getattr__, __dir__ = _extensions.lazy(__name__, names={"compat.paths": "install_as_torch"})
