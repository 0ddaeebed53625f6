"""`python -m mytorch.distributed.launch`: an older name of the launcher in run.py."""

import sys

from .run import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m mytorch.distributed.launch"))
