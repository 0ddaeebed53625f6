"""`torch.utils.flop_counter`: number of floating-point operations in matrix multiplications and convolutions."""

import sys
from collections import defaultdict

from ..autograd.mode import get_mode, reset_mode, set_mode
from ..ops.dispatch.interpreter import Interpreter
from ..profiler.flops import count_flops


class _Counter(Interpreter):
    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            out = record.dispatch(*inputs, fused=fused, **attrs)
        count = count_flops(record, inputs, out, attrs)
        if count:
            self.counts[record.name] += count
        return out


class FlopCounterMode:
    """Counts the floating-point operations of matrix products, convolutions and attention within a block, forward and backward.

    A product and a sum are two operations. All modules are counted together.

    Args:
        mods: deprecated, as in PyTorch.
        depth: for compatibility with PyTorch, which lists modules up to this depth.
        display: print the counts at the end (default: True).
        custom_mapping: must be None or empty.

    Attributes:
        flop_counts: {"Global": {name of an op: count}}.

    Raises:
        NotImplementedError: `custom_mapping` has formulas.

    Example:
        >>> with mytorch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        ...     _ = mytorch.ones(2, 3) @ mytorch.ones(3, 4)
        >>> counter.get_total_flops()
        48
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if custom_mapping:
            raise NotImplementedError(
                "FlopCounterMode: custom_mapping is not supported; formulas are in profiler/flops.py."
            )
        self.display, self.flop_counts = display, {"Global": defaultdict(int)}

    def __enter__(self):
        self.flop_counts["Global"].clear()
        self._token = set_mode(get_mode().replace(interpreter=_Counter(self.flop_counts["Global"])))
        return self

    def __exit__(self, *exc):
        reset_mode(self._token)
        if self.display:
            sys.stdout.write(self.get_table() + "\n")

    def get_total_flops(self):
        """Returns the total number of operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """Returns {"Global": {op: count}}."""
        return {"Global": dict(self.flop_counts["Global"])}

    def get_table(self, depth=None):
        """Returns the counts as text."""
        rows = [*self.flop_counts["Global"].items(), ("total", self.get_total_flops())]
        return "\n".join(f"{name:<20} {count:>16,}" for name, count in rows)
