"""Optimizers and learning rate schedules."""

from .. import _extensions
from . import adam, adaptive, lr_scheduler
from .adafactor import Adafactor
from .adam import Adam, AdamW
from .adaptive import ASGD, Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from .lbfgs import LBFGS
from .lion import Lion
from .muon import Muon
from .optimizer import Optimizer
from .sgd import SGD
from .sparse_adam import SparseAdam

__getattr__, __dir__ = _extensions.lazy(__name__, "swa_utils")  # which imports the layers
