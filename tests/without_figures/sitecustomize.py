"""On PYTHONPATH, hides matplotlib from a script: its figure at the end of a run takes longer than the steps of a short run."""

import sys

sys.modules["matplotlib"] = None
