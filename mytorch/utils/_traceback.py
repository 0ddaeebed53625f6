"""`torch.utils._traceback`: stacks that are captured and formatted later."""

import contextlib
import linecache
import traceback

from ..arrays.errors import stack


def format_traceback_short(tb):
    """Returns the source position of an exception: "file.py:3 in function"."""
    frame = traceback.extract_tb(tb)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


@contextlib.contextmanager
def report_compile_source_on_error():
    """In the block, tracebacks show source code run by `exec` if its text is in `__compile_source__`."""
    try:
        yield
    except Exception as error:
        tb = error.__traceback__
        while tb is not None:
            source = tb.tb_frame.f_globals.get("__compile_source__")
            if source is not None and tb.tb_frame.f_code.co_filename == "<string>":
                linecache.cache["<string>"] = len(source), None, source.splitlines(True), "<string>"
            tb = tb.tb_next
        raise


class CapturedTraceback:
    """The stack at the time of `extract()`. Its source lines are read when it is formatted.

    Example:
        >>> from mytorch.utils._traceback import CapturedTraceback
        >>> "File" in CapturedTraceback.extract().format()[0]
        True
    """

    __slots__ = ("frames",)

    def __init__(self, frames):
        self.frames = frames

    @staticmethod
    def extract(*, script=False, cpp=False, skip=0):
        """Captures the stack of the caller without `skip` frames; `script` and `cpp` are ignored."""
        return CapturedTraceback([caller[:3] for caller in list(stack())[1 + skip :]][::-1])

    def summary(self):
        """Returns a `traceback.StackSummary`."""
        return traceback.StackSummary.from_list([traceback.FrameSummary(*frame) for frame in self.frames])

    def format(self):
        """Returns the lines of a traceback, outermost first."""
        return self.summary().format()

    @staticmethod
    def format_all(tbs):
        """Returns `format()` of each traceback."""
        return [tb.format() for tb in tbs]
