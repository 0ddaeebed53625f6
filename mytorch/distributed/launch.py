"""`python -m mytorch.distributed.launch`: the launcher under its older name; see run.py."""

import sys

from .run import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m mytorch.distributed.launch"))
