"""PyTorch's names of graph nodes: `type(x.grad_fn).__name__`, such as AddBackward0.

A node gets its class with this name when a program first reads it by `grad_fn` or `next_functions`. Recording an op
costs nothing for it. An op without an entry here has its own name: `exp` records ExpBackward0.
"""

import functools

import numpy as np

from ..arrays import is_raw
from ..autograd.node import Node
from ..autograd.saved import Packed, PackedValues

_ARRAY = np.empty(0)
# Name of the op -> PyTorch's name, without "Backward".
_RENAMED = dict(
    entry.split(":")
    for entry in (
        "Cholesky:LinalgCholeskyEx CloneOrdered:Clone ConvolutionInput:Convolution Deg2rad:Deg2Rad "
        "DiagonalBackward:DiagEmbed Dropout:Mul Eig:LinalgEig Eigh:LinalgEigh Entr:SpecialEntr Erfcx:SpecialErfcx "
        "I0e:SpecialI0E I1:SpecialI1 I1e:SpecialI1E IndexWrite:IndexPut Inverse:LinalgInvEx LayerNorm:NativeLayerNorm "
        "BatchNorm:NativeBatchNorm LinalgSolve:LinalgSolveEx LinalgInv:LinalgInvEx Log1p:Log1P LogisticError:BinaryCrossEntropyWithLogits "
        "Logabsdet:LinalgSlogdet Logsigmoid:LogSigmoid Lu:LinalgLu Norm:LinalgVectorNorm "
        "Pad:ConstantPadNd Pinv:LinalgPinv Qr:LinalgQr Rad2deg:Rad2Deg Reshape:View SignOfDet:LinalgSlogdet "
        "SpecialXlog1py:SpecialXlog1Py Square:Pow SquaredError:MseLoss Svd:LinalgSvd ToDtype:ToCopy UnfoldWindows:Im2Col "
        "WriteRegion:CopySlices"
    ).split()
)
# Labels of mytorch's own nodes that are the same op under another name -> PyTorch's name.
_LABELS = {"Flatten": "View", "Unsqueeze": "Unsqueeze", "Transpose": "Transpose", "Chunk": "Split", "MSE": "MseLoss"}
# Op -> the last digit of the name if the second input is (a Python number, a tensor).
_BY_SECOND = {"Fmod": (0, 1), "Lerp": (0, 1), "Pow": (0, 1), "Remainder": (0, 1)}
_BY_DIM = {"Mean", "Prod", "Sum"}  # 1 with an axis, 0 for all elements


def show(node):
    """Gives a node the class with PyTorch's name."""
    node.__class__ = _class(_name(node))


@functools.cache
def _class(name):
    return type(name, (Node,), {"__slots__": (), "__module__": "torch.autograd"})


def _name(node):
    """Returns the name of a node with its number."""
    op = node.op
    if op.torch_name[-1].isdigit():  # `Op.named` set the complete name
        return op.torch_name
    label, own = op.grad_name.removesuffix("Backward"), op.torch_name.removesuffix("Backward")
    values = node.saved or ()
    if type(values) is PackedValues:  # unpacking would call a hook of the program, and the names need no contents
        values = [_ARRAY if type(x) is Packed else x for x in values.values]
    saved = dict(zip(node.plan.names, values))  # noqa: B905
    rule = _RULES.get(own, lambda node, saved: _RENAMED.get(own, own))
    name = _LABELS.get(label) or rule(node, saved)
    if name in ("CopySlices", "CopyBackwards"):
        return name
    name, number = name if type(name) is tuple else (name, 0)
    return f"{name}Backward{number}"


def _by_second(own, node, saved):
    return own, _BY_SECOND[own][is_raw(saved.get("other", saved.get("weight")))]


def _pow(node, saved):
    return ("Pow", 2) if node.op.grad_name == "RPowBackward" else _by_second("Pow", node, saved)


# Op of the errors of all elements -> the loss, which PyTorch computes with its mean or sum in one node.
_LOSSES = {
    "_logistic_error": "BinaryCrossEntropyWithLogits", "binary_cross_entropy": "BinaryCrossEntropy",
}  # fmt: skip


def _by_dim(own, node, saved):
    errors = getattr(node.parents[0], "op", None)
    if own != "Prod" and errors is not None and errors.name in _LOSSES and not node.shape:
        return _LOSSES[errors.name]
    return own, int(saved.get("dim") is not None)


def _clamp(node, saved):
    return "Clamp", int(not (is_raw(saved.get("min")) or is_raw(saved.get("max"))))


def _clamp_bound(bound, node, saved):
    return f"Clamp{bound}", int(is_raw(saved.get(bound.lower())))


def _linear(node, saved):
    bias = node.parents[-1] is not None and len(node.parents) == 3
    if len(node.shape) == 2:
        return "Addmm" if bias else "Mm"
    return "View" if bias else ("Squeeze", 4) if len(node.shape) == 1 else "UnsafeView"


def _matmul(node, saved):
    return {1: "Mv", 2: "Mm"}.get(len(node.shape), "UnsafeView")


def _slice(node, saved):
    """Returns the name of the last view that PyTorch takes for an index without tensors."""
    index = saved.get("index", ())
    index = index if type(index) is tuple else (index,)
    name = "Alias"
    for item in index:
        if item is None:
            name = "Unsqueeze"
        elif isinstance(item, slice):
            if item != slice(None) or len(index) == 1:
                name = "Slice"
        elif item is not Ellipsis:
            name = "Select"
    return name


def _fft(node, saved):
    return "FftC2C" if node.parents[0].dtype.kind == "c" else "FftR2C"


def _attention(node, saved):
    return "ScaledDotProductFlashAttentionForCpu" if len(node.shape) == 4 else "UnsafeView"


def _einsum(node, saved):
    """Returns the name of PyTorch's last step: a batched product, a product without a sum, a sum, or a permutation."""
    if "spec" not in saved:  # backward has freed it
        return "View"
    terms, _, output = saved["spec"].partition("->")
    summed = set(terms) - set(output) - {","}
    if "," in terms:
        return "View" if summed else "Mul"
    return ("Sum", 1) if summed else "Permute"


def _cross_entropy(node, saved):
    return "NllLoss" if getattr(node.parents[0], "shape", ())[2:] == () else "NllLoss2D"


def _pool(text, node, saved):
    shape = node.shape[0] if node.plan.ports else node.shape
    return text.format(d=len(shape) - 2) if len(shape) > 3 else ("Squeeze", 1)


_RULES = {
    "AvgPool": functools.partial(_pool, "AvgPool{d}D"),
    "MaxPool": functools.partial(_pool, "MaxPool{d}DWithIndices"),
    "Clamp": _clamp,
    "ClampMax": functools.partial(_clamp_bound, "Max"),
    "ClampMin": functools.partial(_clamp_bound, "Min"),
    "CrossEntropy": _cross_entropy,
    "DivideFloor": lambda node, saved: ("Div", 2),
    "DivideTrunc": lambda node, saved: ("Div", 2),
    "Einsum": _einsum,
    "Fft": _fft,
    "Linear": _linear,
    "Matmul": _matmul,
    "MaxOfAll": lambda node, saved: ("Max", 1),
    "MinOfAll": lambda node, saved: ("Min", 1),
    "Pow": _pow,
    "ScaledDotProductAttention": _attention,
    "Slice": _slice,
    "Triangle": lambda node, saved: "Tril" if saved.get("lower") else "Triu",
    **{own: functools.partial(_by_second, own) for own in _BY_SECOND if own != "Pow"},
    **{own: functools.partial(_by_dim, own) for own in _BY_DIM},
}
