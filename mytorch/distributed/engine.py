"""Engine: the interface between a process group and a communication library, and the engine of a single process.

An engine works on contiguous raw arrays of one kind of device. Tensors, lists and groups are handled in
`collectives.py`. The engines are in `mpi.py` (MPI) and `nccl.py` (NCCL); both call the library's own algorithms.
"""

from __future__ import annotations

from enum import Enum

from ..arrays import xp_of
from .work import Work


class ReduceOp(Enum):
    """Reduction over processes. AVG requires floating-point numbers; the bitwise operations require integers."""

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
        """Return the ReduceOp for a ReduceOp or its name.

        Raises:
            ValueError: if the name is unknown.
        """
        if isinstance(op, cls):
            return op
        name = str(op).lower()
        name = {"mean": "avg", "prod": "product"}.get(name, name)
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"ReduceOp: expected one of {', '.join(o.value for o in cls)}, got {op!r}.") from None


setattr(ReduceOp, "RedOpType", ReduceOp)  # noqa: B010 (PyTorch's alias)


def reduction_of(dtype, op):
    """Return the ReduceOp to use for a dtype: MAX replaces SUM of bools, and MIN replaces PRODUCT of bools.

    Raises:
        TypeError: for AVG of integers, bitwise operations on floats, and MIN or MAX of complex numbers.
    """
    kind = "f" if dtype.kind == "V" else dtype.kind  # NumPy reports bfloat16 as void
    if op is ReduceOp.AVG and kind not in "fc":
        raise TypeError(f"ReduceOp.AVG: expected a floating-point tensor, got {dtype}. Use SUM and divide.")
    if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and kind not in "iub":
        raise TypeError(f"ReduceOp.{op.name}: expected an integer tensor, got {dtype}.")
    if kind == "c" and op in (ReduceOp.MIN, ReduceOp.MAX):
        raise TypeError(f"ReduceOp.{op.name}: expected a real tensor, got a complex one.")
    return {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op) if kind == "b" else op


class Engine:
    """The engine of a single process, and the interface of all engines.

    Attributes:
        name: name of the backend.
        timeout: time limit of a collective in seconds.
        explain: function that returns a sentence about the missing ranks after a timeout.
        device_type: required device type of the arrays, or None for any device.
        averages: True if AVG is as fast as SUM.

    Every method except `split` and `close` starts a collective and returns its Work. `label` describes it in messages,
    and `root` is a rank within the group. Arrays are contiguous. Output arrays are overwritten.
    """

    name = "alone"
    device_type: str | None = None
    averages = False

    def __init__(self, rank=0, size=1, timeout=None, explain=None):
        self.rank, self.size = rank, size
        self.timeout, self.explain = timeout, explain

    def work(self, label):
        """Return a finished Work."""
        return Work(label)

    def watch(self, work):
        """Make a work progress while the program computes."""

    def barrier(self, label=""):
        return self.work(label)

    def broadcast(self, x, root, label=""):
        return self.work(label)

    def all_reduce(self, x, op, label=""):
        return self.work(label)

    def reduce(self, x, root, op, label=""):
        """Reduce x into `root`'s x; x of other processes does not change."""
        return self.work(label)

    def all_gather(self, out, x, label=""):
        """Concatenate x of all processes in out."""
        xp_of(x).copyto(out.reshape(-1), x.reshape(-1))
        return self.work(label)

    def gather(self, out, x, root, label=""):
        """Like all_gather, on `root` only; out is None on other processes."""
        return self.all_gather(out, x)

    def scatter(self, out, x, root, label=""):
        """Write this process's part of root's x to out; x is None on other processes."""
        xp_of(out).copyto(out.reshape(-1), x.reshape(-1))
        return self.work(label)

    def reduce_scatter(self, out, x, op, label=""):
        """Write this process's part of the reduced x to out."""
        return self.scatter(out, x, 0)

    def all_to_all(self, out, x, out_counts, in_counts, label=""):
        """Send in_counts[i] elements of the flat x to process i, and receive out_counts[i] elements from it in out."""
        return self.scatter(out, x, 0)

    def send(self, x, to, tag, label=""):
        raise ValueError(f"{label}: expected at least 2 processes, got 1.")

    def receive(self, x, source, tag, label=""):
        """Receive x from process `source` (None: any); the Work's `source` is the sender."""
        raise ValueError(f"{label}: expected at least 2 processes, got 1.")

    def split(self, ranks):
        """Return an engine for the processes `ranks`, or None in other processes.

        All processes of this engine must call it.
        """
        return Engine() if self.rank in ranks else None

    def close(self):
        """Release all resources."""
