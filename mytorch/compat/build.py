"""`torch.__config__`: what this library computes with."""

import ml_dtypes
import numpy as np

from ..kernels.threads import get_num_threads
from ..version import __version__


def show():
    """The versions of the library and of what it stands on, a line each."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    parts = (f"NumPy {np.__version__}", f"BLAS {blas['name']} {blas['version']}", f"ml_dtypes {ml_dtypes.__version__}")
    return "\n".join([f"mytorch {__version__} computes with:", *(f"  - {part}" for part in parts), ""])


def parallel_info():
    """How many threads work on one operation."""
    return f"mytorch.get_num_threads() : {get_num_threads()}\n"
