"""A line on the terminal while kernels are compiled, since the first use of each waits for that; and which they were."""

import sys

from numba.core import event

compiled = []  # names of the kernels that this process compiled, those that it found in the cache not among them


class _Line(event.Listener):
    """Shows the kernel that is being compiled, and takes the line away afterwards; what kernels call counts as theirs."""

    def __init__(self):
        self.depth = 0

    def on_start(self, event):
        """A function begins to be compiled."""
        function = event.data["dispatcher"].py_func
        if not self.depth and function.__module__.startswith("mytorch."):
            compiled.append(f"{function.__module__.rpartition('.')[2]}.{function.__name__.strip('_')}")
            self.show(f"mytorch compiles a kernel for this CPU, once: {compiled[-1]} ({len(compiled)})")
        self.depth += 1

    def on_end(self, event):
        """It is compiled."""
        self.depth -= 1
        if not self.depth:
            self.show("")

    @staticmethod
    def show(text):
        """Put a text in place of the terminal's line; nothing where there is no terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()


event.register("numba:compile", _Line())
