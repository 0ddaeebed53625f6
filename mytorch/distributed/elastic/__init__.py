"""Error files and PyTorch mode of launched programs, as in `torch.distributed.elastic`."""

from .multiprocessing.errors import record

__all__ = ["record"]
