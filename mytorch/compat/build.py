"""`torch.__config__`: versions of the underlying libraries."""

import ml_dtypes
import numpy as np

from ..kernels.threads import get_num_threads
from ..version import __version__


def show():
    """Returns the versions of the library and its dependencies, one per line."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    parts = (f"NumPy {np.__version__}", f"BLAS {blas['name']} {blas['version']}", f"ml_dtypes {ml_dtypes.__version__}")
    return "\n".join([f"mytorch {__version__} computes with:", *(f"  - {part}" for part in parts), ""])


def parallel_info():
    """Returns the number of threads per operation."""
    return f"mytorch.get_num_threads() : {get_num_threads()}\n"
