"""Run a PyTorch program, unchanged, with this library as `torch`.

    python -m mytorch script.py arguments
    python -m mytorch -m module arguments
    python -m mytorch -c "import torch; print(torch.ones(2))"

It calls `install_as_torch` and then runs the program. `sys.argv`, `sys.path` and exit codes are the same as with
`python`. A process that the program forks also uses this library as `torch`. A program that it starts, with subprocess or
with the start methods "spawn" and "forkserver" of multiprocessing, does not.
"""

import os
import runpy
import sys
import traceback
from types import ModuleType

from . import install_as_torch


def _show(kind, error, trace):
    """Prints a traceback that starts in the program, without the frames of this file and of runpy."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    inner = trace
    for frame in traceback.extract_tb(trace):
        if frame.filename not in ours:
            break
        inner = inner.tb_next
    if inner is None and not issubclass(kind, SyntaxError):  # a SyntaxError of the program has no frame of the program
        inner = trace
    sys.__excepthook__(kind, error.with_traceback(inner), inner)


def _run_code(code):
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(code, "<string>", "exec"), vars(module))


def main(argv):
    """Runs the program that the arguments name."""
    flag, *rest = argv or ["--help"]
    if flag in ("-h", "--help") or (flag in ("-m", "-c") and not rest):
        wanted = bool(argv) and flag in ("-h", "--help")
        (sys.stdout if wanted else sys.stderr).write(__doc__)
        sys.exit(0 if wanted else 2)
    install_as_torch()
    sys.excepthook = _show
    if flag == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        _run_code(rest[0])
    elif flag == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif not os.path.exists(flag):
        sys.stderr.write(f"{sys.executable}: can't open file {os.path.abspath(flag)!r}: No such file or directory\n")
        sys.exit(2)
    else:
        sys.argv = argv
        if os.path.isfile(flag):
            sys.path[0] = os.path.dirname(os.path.realpath(flag))
        runpy.run_path(flag, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
