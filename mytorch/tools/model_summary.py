"""Summary of a model as a table: outputs and number of parameters of each module."""

from math import prod
from typing import Any

from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..ops.random import randn


class Summary:
    """The summary of a model; `print` displays it as a table.

    Attributes:
        rows: (depth, name, class name, shapes of the outputs, number of own parameters), in the order of the calls.
        parameters: number of parameters; shared parameters count once.
        trainable: number of trainable parameters.
        parameter_bytes: size of the parameters in bytes.
        output_bytes: size of the outputs of modules without children, in bytes.
    """

    def __init__(self, rows, model, output_bytes):
        own = list(model.parameters())
        self.rows, self.output_bytes = rows, output_bytes
        self.parameters = sum(p.numel() for p in own)
        self.trainable = sum(p.numel() for p in own if p.requires_grad)
        self.parameter_bytes = sum(p.numel() * p.element_size() for p in own)

    def __str__(self):
        cells = [("Layer", "Output", "Parameters")]
        for depth, name, kind, shapes, count in self.rows:
            layer = "  " * depth + (f"{name}: {kind}" if name else kind)
            cells.append((layer, ", ".join(map(str, shapes)), f"{count:,}" if count else "-"))
        first, second, third = (max(len(row[i]) for row in cells) for i in range(3))
        lines = [f"{a:<{first}}  {b:<{second}}  {c:>{third}}" for a, b, c in cells]
        rule = "-" * len(lines[0])
        parameters = f"{self.parameters:,} parameters, {self.trainable:,} of them trainable"
        sizes = f"{parameters}: {self.parameter_bytes / 2**20:.2f} MiB\noutputs of one forward: {self.output_bytes / 2**20:.2f} MiB"
        return "\n".join([lines[0], rule, *lines[1:], rule, sizes])

    __repr__ = __str__


def summary(model: Any, input_size: Any = None, *, input_data: Any = None) -> Summary:
    """Summarizes the modules of a model in the order of their calls, with outputs and parameters.

    Args:
        model: a Module. Its mode and parameters do not change.
        input_size: shape of the input with the batch axis, or a list of shapes. The input is random.
        input_data: the input, or a tuple of inputs, instead of input_size.

    Raises:
        ValueError: unless exactly one of input_size and input_data is given.

    Example:
        >>> s = mytorch.utils.summary(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (2, 4))
        >>> s.parameters, s.rows[1]
        (15, (1, '0', 'Linear', [(2, 3)], 15))
    """
    if (input_size is None) == (input_data is None):
        raise ValueError("summary: expected either input_size (shape of the input with its batch axis) or input_data.")
    if input_data is None:
        like = next(model.parameters(), None)
        where: dict[str, Any] = {"device": like.device} if like is not None else {}
        sizes = [input_size] if all(isinstance(n, int) for n in input_size) else input_size
        input_data = tuple(randn(*size, **where) for size in sizes)
    inputs = input_data if isinstance(input_data, tuple) else (input_data,)
    names = {module: name for name, module in model.named_modules()}
    rows, outputs, depth, handles = [], [0], [0], []

    def enter(module, given):
        name = names[module]
        own = sum(p.numel() for p in module.parameters(recurse=False))
        rows.append((depth[0], name.rpartition(".")[2], type(module).__name__, [], own))
        open_rows.append(rows[-1])
        depth[0] += 1

    def leave(module, given, result):
        depth[0] -= 1
        tensors = _tensors(result)
        open_rows.pop()[3].extend(tuple(t.shape) for t in tensors)
        if not any(True for _ in module.children()):
            outputs[0] += sum(prod(t.shape) * t.element_size() for t in tensors)

    open_rows: list[Any] = []
    modes = {module: module.training for module in names}
    try:
        for module in names:
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        model.eval()  # do not change running statistics
        with no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes.items():
            module.training = training
    return Summary(rows, model, outputs[0])


def _tensors(value):
    """Yield the tensors in a module's output, through containers."""
    if isinstance(value, Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for v in values for t in _tensors(v)]


__all__ = ["Summary", "summary"]
