"""The version of this library, with `torch.version`'s names."""

__version__ = "0.1.0"
cuda = None
