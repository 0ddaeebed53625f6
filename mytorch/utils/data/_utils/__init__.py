"""The parts of the DataLoader, with PyTorch's names: collating, fetching, workers, resuming."""

from . import collate, fetch, pin_memory, resume, transport, worker
from .worker import MP_STATUS_CHECK_INTERVAL, ExceptionWrapper

__all__ = [
    "MP_STATUS_CHECK_INTERVAL", "ExceptionWrapper", "collate", "fetch", "pin_memory", "resume", "transport",
    "worker",
]  # fmt: skip
