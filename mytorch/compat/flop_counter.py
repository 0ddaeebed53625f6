"""`torch.utils.flop_counter`: how many multiplications and additions matrix products and convolutions take."""

import math
import sys
from collections import defaultdict

from ..dispatch.interpreter import Interpreter
from ..engine.mode import get_mode, reset_mode, set_mode

_COUNTS = {  # of a record's inputs and its result
    "matmul": lambda inputs, out: 2 * out.numel() * inputs[0].shape[-1],
    "linear": lambda inputs, out: 2 * out.numel() * inputs[0].shape[-1],
    "convolution": lambda inputs, out: 2 * out.numel() * math.prod(inputs[1].shape[1:]),
    "convolution_input": lambda inputs, out: 2 * inputs[0].numel() * math.prod(inputs[1].shape[1:]),
    "scaled_dot_product_attention": lambda inputs, out: 4 * math.prod(inputs[0].shape) * inputs[1].shape[-2],
}


class _Counter(Interpreter):
    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            out = record.dispatch(*inputs, fused=fused, **attrs)
        count = _COUNTS.get(record.name.strip("_"))
        if count is not None:
            self.counts[record.name] += count(inputs, out)
        return out


class FlopCounterMode:
    """Count the floating point operations of the products within a block.

    Args:
        mods, depth: accepted; everything is counted together.
        display: print the counts at the end.
        custom_mapping: accepted.
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.display, self.flop_counts = display, defaultdict(int)

    def __enter__(self):
        self.flop_counts.clear()
        self._token = set_mode(get_mode().replace(interpreter=_Counter(self.flop_counts)))
        return self

    def __exit__(self, *exc):
        reset_mode(self._token)
        if self.display:
            sys.stdout.write(self.get_table() + "\n")

    def get_total_flops(self):
        """The sum of all."""
        return sum(self.flop_counts.values())

    def get_flop_counts(self):
        """{"Global": {op: count}}."""
        return {"Global": dict(self.flop_counts)}

    def get_table(self, depth=None):
        """The counts as text."""
        rows = [*self.flop_counts.items(), ("total", self.get_total_flops())]
        return "\n".join(f"{name:<20} {count:>16,}" for name, count in rows)
