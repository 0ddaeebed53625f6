"""Communication hooks for DistributedDataParallel."""

from . import default_hooks
