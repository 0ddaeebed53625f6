"""`python -m mytorch.distributed.elastic.torch_mode script.py …`: runs a PyTorch program with mytorch.

With `-m`, the program is given as a module name. `mytorchrun torchrun` starts its ranks in this way.
"""

import runpy
import sys
from pathlib import Path


def main():
    """Run the program of the command line in PyTorch mode."""
    from ...compat.paths import install_as_torch

    install_as_torch()
    sys.argv = sys.argv[1:]
    if sys.argv[:1] == ["-m"]:
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
