"""Engine: what a process group needs from the library that moves the bytes, and the engine of one process alone.

An engine works on raw contiguous arrays of its own device; everything about Tensors, lists and groups is in
`collectives.py`. MPI's is in `mpi.py`, NCCL's in `nccl.py`; neither contains an algorithm for a collective.
"""

from __future__ import annotations

from enum import Enum

from ..backend import xp_of
from .work import Work


class ReduceOp(Enum):
    """How values of several processes become one. AVG is for floats; the bitwise ones for integers."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

    @classmethod
    def of(cls, op: ReduceOp | str) -> ReduceOp:
        """The ReduceOp that `op`, one or its name, means.

        Raises:
            ValueError: there is no such.
        """
        if isinstance(op, cls):
            return op
        name = str(op).lower()
        name = {"mean": "avg", "prod": "product"}.get(name, name)
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"ReduceOp: {op!r} is none of {', '.join(o.value for o in cls)}.") from None


setattr(ReduceOp, "RedOpType", ReduceOp)  # noqa: B010 (PyTorch's name for the kind)


def reduction_of(dtype, op):
    """The ReduceOp that does `op` on numbers of a dtype: a sum of bools is their maximum, a product their minimum.

    Raises:
        TypeError: AVG of integers, bits of floats, an order of complex numbers.
    """
    kind = "f" if dtype.kind == "V" else dtype.kind  # bfloat16 calls itself void
    if op is ReduceOp.AVG and kind not in "fc":
        raise TypeError(f"ReduceOp.AVG is for floating point tensors, got {dtype}; use SUM and divide.")
    if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and kind not in "iub":
        raise TypeError(f"ReduceOp.{op.name} is for integer tensors, got {dtype}.")
    if kind == "c" and op in (ReduceOp.MIN, ReduceOp.MAX):
        raise TypeError(f"ReduceOp.{op.name} is not defined for complex tensors.")
    return {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op) if kind == "b" else op


class Engine:
    """One process, alone; also the list of what an engine does.

    Attributes:
        name: the backend's name.
        timeout: seconds that a collective may take.
        explain: a function that says, after a timeout, who is missing.
        device_type: where its arrays must lie; None if it takes any.
        averages: whether AVG costs no more than SUM.

    Every method but `split` and `close` starts a collective and returns its Work. `label` is for messages,
    `root` a number within the group. Arrays are contiguous; those that are results are written to.
    """

    name = "alone"
    device_type: str | None = None
    averages = False

    def __init__(self, rank=0, size=1, timeout=None, explain=None):
        self.rank, self.size = rank, size
        self.timeout, self.explain = timeout, explain

    def work(self, label):
        """A Work that has ended already."""
        return Work(label)

    def watch(self, work):
        """See that a work goes on while the program does something else."""

    def barrier(self, label=""):
        return self.work(label)

    def broadcast(self, x, root, label=""):
        return self.work(label)

    def all_reduce(self, x, op, label=""):
        return self.work(label)

    def reduce(self, x, root, op, label=""):
        """x on `root` becomes the result; elsewhere it is left as it was."""
        return self.work(label)

    def all_gather(self, out, x, label=""):
        """out: size × x, joined."""
        xp_of(x).copyto(out.reshape(-1), x.reshape(-1))
        return self.work(label)

    def gather(self, out, x, root, label=""):
        """As all_gather, on `root` alone; elsewhere out is None."""
        return self.all_gather(out, x)

    def scatter(self, out, x, root, label=""):
        """out: this process's part of root's x; elsewhere x is None."""
        xp_of(out).copyto(out.reshape(-1), x.reshape(-1))
        return self.work(label)

    def reduce_scatter(self, out, x, op, label=""):
        """out: this process's part of the reduced x."""
        return self.scatter(out, x, 0)

    def all_to_all(self, out, x, out_counts, in_counts, label=""):
        """Send in_counts[i] elements of the flat x to process i, receive out_counts[i] from it into out."""
        return self.scatter(out, x, 0)

    def send(self, x, to, tag, label=""):
        raise ValueError(f"{label}: one process alone has nobody to send to.")

    def receive(self, x, source, tag, label=""):
        """x: what process `source` (None: any) sends; the Work's `source` tells who it was."""
        raise ValueError(f"{label}: one process alone has nobody to receive from.")

    def split(self, ranks):
        """An engine for the processes `ranks` of this one's, or None where this process is not among them.

        Called by all processes of this engine.
        """
        return Engine() if self.rank in ranks else None

    def close(self):
        """Give up what it holds."""
