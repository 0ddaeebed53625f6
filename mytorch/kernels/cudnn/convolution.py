"""Convolutions in one and two dimensions and their gradients by cuDNN, in float16, bfloat16 and float32.

triton/conv.py asks for each of the three products of a convolution. If the channels of an input are last in memory, cuDNN reads and
writes them so, without copies.

Which kernels cuDNN may choose follows PyTorch (`aten/src/ATen/native/cudnn/Conv_v8.cpp`): none that round float32 inputs, except to TF32
unless `backends.cudnn.allow_tf32` is False, and in deterministic mode none with an unspecified order of summation.
"""

import numpy as np

from ...arrays import address, config, cupy_ns
from ...arrays.memory_format import axes_strides, in_order, suggests_channels_last
from .. import cudnn

why_not = cudnn.why_not
convolutions = cudnn.Operations("convolution")
FIRST, SECOND, OUT = 1, 2, 3  # numbers of a graph's arrays
LAST = 0, 2, 3, 1  # axes of images with their channels last, outermost in memory first


def product(kind, xp, shape, first, second, geo):
    """Returns one of the products of a convolution, or None if cuDNN does not compute it.

    Args:
        kind: "forward" for inputs and weights, "input" for gradients and weights, "weight" for inputs and gradients.
        shape: shape of the result.
        geo: a _Geometry of triton/conv.py.
    """
    if convolutions.errors or not config.cudnn_enabled or not geo.is_whole or not first.size or not second.size:
        return None
    last = first.ndim == 4 and (suggests_channels_last(first) or suggests_channels_last(second))
    avoided = _avoided(first.dtype)
    key = kind, cupy_ns().cuda.runtime.getDevice(), first.dtype, last, avoided, *geo.sizes, *geo.kernel, *geo.steps
    plan = convolutions.plan(key, lambda: _plan(kind, first.dtype, last, avoided, geo))
    if plan is None:
        return None
    first, second = _dense(xp, first, last), _dense(xp, second, last)
    if (address(first) | address(second)) % 16:
        return None
    out = in_order(_empty, LAST if last else None)(xp, shape, first.dtype)
    return out if convolutions.run(xp, plan, {FIRST: first, SECOND: second, OUT: out}) else None


def _avoided(dtype):
    """Returns the names of the numerical notes of kernels that must not be chosen."""
    names = []
    if dtype == np.float32:
        names += ["DOWN_CONVERT_INPUTS"] if config.convolution_tf32 else ["DOWN_CONVERT_INPUTS", "TENSOR_CORE"]
    if config.deterministic or config.cudnn_deterministic:
        names.append("NONDETERMINISTIC")
    return tuple(names)


def _plan(kind, dtype, last, avoided, geo):
    """Returns the plan of a product."""
    images = geo.samples, geo.groups * geo.ins, *geo.spatial
    weights = geo.groups * geo.outs, geo.ins, *geo.kernel
    outputs = geo.samples, geo.groups * geo.outs, *geo.out
    shapes = {
        "forward": (images, weights, outputs),
        "input": (outputs, weights, images),
        "weight": (images, outputs, weights),
    }
    axes = LAST if last else (0, 1, 2, 3)
    first, second, out = [(shape, axes_strides(shape, axes)) for shape in shapes[kind]]
    graph = cudnn.new_graph(dtype)
    a, b = cudnn.add_input(graph, FIRST, first, dtype), cudnn.add_input(graph, SECOND, second, dtype)
    options = {"padding": geo.padding, "stride": geo.stride, "dilation": geo.dilation}
    options = {"name": kind, **{name: list(values) for name, values in options.items()}}
    if kind == "forward":
        result = graph.conv_fprop(image=a, weight=b, **options)
    elif kind == "input":
        result = graph.conv_dgrad(loss=a, filter=b, **options)
    else:
        result = graph.conv_wgrad(image=a, loss=b, **options)
    cudnn.add_output(result, OUT, out, dtype)
    notes = cudnn.library().numerical_note
    return cudnn.Plan(graph, [getattr(notes, name) for name in avoided])


def _dense(xp, x, last):
    """Returns an array without gaps, in row-major order or with its channels last."""
    if last:
        return xp.moveaxis(xp.ascontiguousarray(xp.moveaxis(x, 1, -1)), -1, 1)
    return x if x.flags.c_contiguous else xp.ascontiguousarray(x)


def _empty(xp, shape, dtype):
    return xp.empty(shape, dtype)
