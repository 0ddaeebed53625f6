"""Optimizers over several processes, by PyTorch's module path."""

from ..optim.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
