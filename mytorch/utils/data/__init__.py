"""Datasets, samplers, and the loader that makes batches of a dataset."""

from ... import _extensions
from . import _utils, dataloader, dataset, distributed, sampler
from ._utils.worker import WorkerInfo
from .dataloader import *  # noqa: F403
from .dataloader import _DatasetKind
from .dataset import *  # noqa: F403
from .distributed import DistributedSampler
from .sampler import *  # noqa: F403

__all__ = ["DistributedSampler", "WorkerInfo"]
__all__ += "RandomBlocks read_tokens read_vocab_size write_tokens".split()  # imported on first use
__all__ += dataloader.__all__
__all__ += dataset.__all__
__all__ += sampler.__all__

__getattr__, __dir__ = _extensions.lazy(__name__)
