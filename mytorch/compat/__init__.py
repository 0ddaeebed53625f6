"""PyTorch's other names and import paths, older file formats, `import torch`, and einops for tensors of mytorch.

`mytorch/_extensions.py` imports this package when a program first uses a name that the core does not have.
"""

from .paths import install_as_torch
