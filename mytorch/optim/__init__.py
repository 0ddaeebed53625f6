"""Optimizers and learning rate schedules."""

import sys

from . import adam, adaptive, foreach, lr_scheduler, swa_utils
from .adafactor import Adafactor
from .adam import Adam, AdamW
from .adaptive import ASGD, Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from .lbfgs import LBFGS
from .lion import Lion
from .muon import Muon
from .optimizer import Optimizer
from .sgd import SGD
from .sparse_adam import SparseAdam

# PyTorch has a module for each rule; here some share one.
for _name in ("adadelta", "adagrad", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = adaptive
sys.modules[f"{__name__}.adamw"] = globals()["adamw"] = adam
