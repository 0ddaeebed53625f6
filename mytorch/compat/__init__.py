"""The rest of PyTorch's surface: settings, aliases and older spellings, import paths, `import torch`."""

from .names import install
from .paths import install_as_torch, install_paths
