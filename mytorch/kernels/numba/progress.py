"""Shows a line on the terminal while a kernel is compiled, and records the names of the compiled kernels."""

import sys

from numba.core import event

compiled = []  # names of the kernels that this process compiled; kernels from the cache are not included


class _Line(event.Listener):
    """Shows the kernel that is being compiled, and removes the line afterward. Inner functions count as part of the kernel."""

    def __init__(self):
        self.depth = 0

    def on_start(self, event):
        """Called when the compilation of a function begins."""
        function = event.data["dispatcher"].py_func
        if not self.depth and function.__module__.startswith("mytorch."):
            compiled.append(f"{function.__module__.rpartition('.')[2]}.{function.__name__.strip('_')}")
            self.show(f"mytorch compiles a kernel for this CPU, once: {compiled[-1]} ({len(compiled)})")
        self.depth += 1

    def on_end(self, event):
        """Called when the compilation of a function ends."""
        self.depth -= 1
        if not self.depth:
            self.show("")

    @staticmethod
    def show(text):
        """Replaces the current line of the terminal by a text, if stderr is a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()


event.register("numba:compile", _Line())
