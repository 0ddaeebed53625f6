"""`python -m mytorch.cli`: the same as `mytorchrun`."""

import sys

from . import main

sys.exit(main())
