"""The writer of event files. It wraps tensorboardX, whose methods have PyTorch's names and arguments."""

from typing import Any

from ...arrays.tensor import is_tensor
from ...ops.dispatch.unwrap import to_cpu
from .._pytree import tree_map

try:
    from tensorboardX import SummaryWriter as _Writer
except ImportError as error:
    raise ImportError(
        "utils.tensorboard needs the package tensorboardX, which writes event files without PyTorch "
        "(pip install tensorboardX); TensorBoard itself shows them."
    ) from error


def _numpy(tree):
    """Replaces tensors by NumPy arrays, also in containers."""
    return tree_map(lambda x: to_cpu(x) if is_tensor(x) else x, tree)


def _over(name):
    method = getattr(_Writer, name)

    def call(self, *args, **kwargs):
        return method(self, *map(_numpy, args), **{k: _numpy(v) for k, v in kwargs.items()})

    call.__name__, call.__doc__ = name, method.__doc__
    return call


class SummaryWriter(_Writer):
    """tensorboardX's writer for mytorch tensors, with `add_scalar(tag, value, step)`, `add_histogram` and others."""

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Not supported, because mytorch does not trace models.

        Raises:
            NotImplementedError: always. `utils.graph.draw` draws the graph of a tensor.
        """
        raise NotImplementedError("SummaryWriter.add_graph is not supported; utils.graph.draw(output) draws a graph.")


_METHODS = (
    "scalar scalars histogram image images text pr_curve video audio embedding mesh hparams image_with_boxes"
).split()
for _name in (f"add_{method}" for method in _METHODS):
    if hasattr(_Writer, _name):
        setattr(SummaryWriter, _name, _over(_name))
