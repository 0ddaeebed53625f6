"""Exported programs: the graph of a model for inference, with dynamic sizes and without Python code.

`export` runs a model several times, with other sizes and values, and combines the recorded operations in one graph. The control
flow of the model must not depend on sizes or values. Names follow `torch.export`.
"""

import inspect

import numpy as np

from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..nn import Module
from ..ops.dispatch.unwrap import raw_of, to_cpu
from ..utils import _pytree as pytree
from .building import Builder, sym_size
from .program import (
    ExportedProgram,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Slot,
    Structure,
    TensorArgument,
    assemble,
    filled,
    load,
    save,
    template_of,
)
from .recording import record
from .sizes import Dim, check_sizes, dims, plan_sizes

__all__ = [
    "Dim", "ExportGraphSignature", "ExportedProgram", "InputKind", "InputSpec", "OutputKind", "OutputSpec", "TensorArgument", "dims", "export",
    "load", "save", "sym_size",
]  # fmt: skip


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=()):
    """Records a model as a graph of operations.

    The model runs several times without gradients, for the example and for inputs of other sizes and values. Sizes that differ
    between the runs become expressions of the sizes of the inputs. A final run compares the graph with the model.

    Args:
        mod: the module, usually in evaluation mode.
        args: tuple of example arguments.
        kwargs: dict of example keyword arguments (default: none).
        dynamic_shapes: for each argument by name, or as a tuple in their order: None, {axis: Dim}, or a list with a Dim or
            None for each axis. Lists and dicts of tensors have nested entries (default: all sizes are constant).
        strict: must be False.
        preserve_module_call_signature: must be empty.

    Returns:
        An ExportedProgram.

    Raises:
        ValueError: the control flow or an array depends on sizes or values in a way that cannot be recorded, or the final run
            gives other results. The message has the line of the program.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).eval()
        >>> batch = mytorch.export.Dim("batch")
        >>> ep = mytorch.export.export(model, (mytorch.randn(4, 2),), dynamic_shapes=({0: batch},))
        >>> x = mytorch.randn(7, 2)
        >>> bool((ep.module()(x) == model(x)).all())
        True
    """
    if strict or preserve_module_call_signature:
        raise NotImplementedError(
            "export: expected strict=False and an empty preserve_module_call_signature, got other values. Omit them."
        )
    return program_of(mod, args, kwargs, dynamic_shapes)


def program_of(mod, args, kwargs=None, dynamic_shapes=None, shapes_of=None):
    """Returns the ExportedProgram of a model. The arguments are those of `export`, except:

    Args:
        shapes_of: function from the names of the input tensors to the list of their dynamic sizes, instead of `dynamic_shapes`.
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}. Wrap a function in a Module."
        )
    _require_evaluation(mod)
    if not isinstance(args, tuple):
        raise TypeError(
            f"export: expected a tuple of example arguments, got {type(args).__name__}. Write `(x,)` for one argument."
        )
    kwargs = dict(kwargs or {})
    tensors = []
    template = template_of((tuple(args), kwargs), tensors)
    bound = inspect.signature(mod.forward).bind(*template[0], **template[1]).arguments
    shapes = _by_name(bound, dynamic_shapes)
    leaves = [leaf for name, value in bound.items() for leaf in _leaves(name, value, shapes.get(name))]
    leaves.sort(key=lambda leaf: leaf[0])
    names, counter = _unique(name for _, name, _ in leaves), [0]
    specs = [spec for _, _, spec in leaves] if shapes_of is None else shapes_of(names)
    inputs = {n: _axes(n, spec, tensor, counter) for n, spec, tensor in zip(names, specs, tensors, strict=True)}
    examples = {}
    for tensor, axes in zip(tensors, inputs.values(), strict=True):
        for axis, dim in axes.items():
            size = tensor.shape[axis]
            if (size - dim.offset) % dim.factor:
                raise ValueError(f"export: expected a size of the form {dim} in dimension {axis}, got {size}.")
            examples.setdefault(dim.root, (size - dim.offset) // dim.factor)
            if examples[dim.root] * dim.factor + dim.offset != size:
                raise ValueError(
                    f"export: expected equal sizes for {dim.root}, got {examples[dim.root]} and {size}. Use two Dims."
                )
    runs = plan_sizes(examples)
    parameters, buffers = (
        dict(mod.named_parameters(remove_duplicate=False)),
        dict(mod.named_buffers(remove_duplicate=False)),
    )
    named = {**parameters, **buffers}
    recordings, results = [], []
    rng = np.random.default_rng(0)
    for number, run in enumerate(runs):
        values = [
            _resized(t, axes, run, rng if number else None) for t, axes in zip(tensors, inputs.values(), strict=True)
        ]
        run_args, run_kwargs = filled(template, values)
        recording, encoded, leaves, spec = record(
            mod, named, dict(zip(names, values, strict=True)), run_args, run_kwargs
        )
        recordings.append(recording)
        results.append(encoded)
    outputs = []
    result = template_of(pytree.tree_unflatten(leaves, spec), outputs)
    tensor_results = [
        [e for e, leaf in zip(encoded, leaves, strict=True) if isinstance(leaf, Tensor)] for encoded in results
    ]
    arrays = {name: raw_of(t) for name, t in named.items()}
    graph, constants = Builder(recordings, tensor_results, runs, inputs, arrays).build()
    for node, tensor in zip([n for n in graph.nodes if n.op == "placeholder"], tensors, strict=True):
        axes = inputs[node.target]
        node.meta["shape"] = tuple(None if i in axes else n for i, n in enumerate(tensor.shape))
        node.meta["dtype"], node.meta["example_shape"] = tensor.dtype.name, tuple(tensor.shape)
    constants = {name: Tensor._wrap(array) for name, array in constants.items()}
    inner = assemble(graph, {**named, **constants})
    program = ExportedProgram(
        inner, Structure(names, template, result), inputs, parameters, buffers, constants, (args, kwargs)
    )
    for sizes in check_sizes(runs):
        _verify(program, mod, template, tensors, inputs, sizes, rng)
    return program


def _require_evaluation(model):
    """Raises an error for a model with random or changing layers."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        random = "Dropout" in kind and getattr(module, "p", 1)
        if module.training and (random or getattr(module, "running_mean", None) is not None or "BatchNorm" in kind):
            raise ValueError(
                f"export: expected a model in evaluation mode, got {kind} {name!r} in training mode. Call model.eval() first."
            )


def _verify(program, mod, template, tensors, inputs, sizes, rng):
    """Compares the graph with the model for sizes and values that no run had."""
    values = [_resized(t, axes, sizes, rng) for t, axes in zip(tensors, inputs.values(), strict=True)]
    args, kwargs = filled(template, [x.clone() for x in values])  # the model may change its inputs in place
    with no_grad():
        try:
            expected = [x for x in pytree.tree_leaves(mod(*args, **kwargs)) if isinstance(x, Tensor)]
        except Exception:
            return  # the model does not support these sizes
        try:
            found = program._inner(*values)
            equal = all(_close(to_cpu(a), to_cpu(b)) for a, b in zip(expected, found, strict=True))
        except Exception:
            equal = False
    if equal:
        return
    if not sizes:
        raise ValueError(
            "export: expected the graph and the model to give equal results, got other values. The model may use random numbers "
            "or state that it changes. Call eval() first."
        )
    listed = ", ".join(f"{root.__name__}={n}" for root, n in sizes.items())
    raise ValueError(
        f"export: expected the graph and the model to give equal results for all sizes, got other values for {listed}. A "
        "condition in the model depends on a size. Declare a range that excludes these sizes with Dim(name, min=…, max=…)."
    )


def _close(a, b):
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    return a.shape == b.shape and np.allclose(a.astype(kind), b.astype(kind), 1e-3, 1e-4, equal_nan=True)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _by_name(bound, dynamic_shapes):
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, dict):
        wrong = [n for n in dynamic_shapes if n not in bound]
        if wrong:
            raise ValueError(
                f"export: expected names of arguments in dynamic_shapes, got {', '.join(map(repr, wrong))}. The arguments are {', '.join(bound)}."
            )
        return dynamic_shapes
    if len(dynamic_shapes) > len(bound):
        raise ValueError(f"export: expected at most {len(bound)} items in dynamic_shapes, got {len(dynamic_shapes)}.")
    return dict(zip(bound, dynamic_shapes, strict=False))


def _leaves(name, value, spec):
    """Yields (index, name, dynamic sizes) of the tensors in one argument."""
    if isinstance(value, Slot):
        yield value.index, name, spec
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            inner = spec[i] if isinstance(spec, (tuple, list)) and i < len(spec) else None
            yield from _leaves(f"{name}_{i}", item, inner)
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = spec.get(key) if isinstance(spec, dict) else None
            yield from _leaves(f"{name}_{key}" if name != "kwargs" else str(key), item, inner)


def _unique(names):
    seen, found = set(), []
    for name in names:
        candidate, i = name, 0
        while candidate in seen:
            i += 1
            candidate = f"{name}_{i}"
        seen.add(candidate)
        found.append(candidate)
    return found


def _axes(name, spec, tensor, counter):
    """Returns {axis: Dim} of an input."""
    if spec is None:
        return {}
    items = spec.items() if isinstance(spec, dict) else enumerate(spec)
    axes = {}
    for axis, dim in items:
        if dim is None or dim == Dim.STATIC or isinstance(dim, int):
            continue
        if not isinstance(axis, int) or not -tensor.ndim <= axis < tensor.ndim:
            raise ValueError(
                f"export: expected dimensions of input {name} with shape {list(tensor.shape)} in dynamic_shapes, got {axis!r}."
            )
        if dim in (Dim.DYNAMIC, Dim.AUTO):
            dim = Dim(f"s{counter[0]}")
            counter[0] += 1
        if not isinstance(dim, Dim):
            raise TypeError(
                f"export: expected a Dim, None or an int for dimension {axis} of input {name}, got {dim!r}."
            )
        axes[axis % tensor.ndim] = dim
    return axes


def _resized(tensor, axes, sizes, rng):
    """Returns a copy of an example with other sizes and, given a generator, other values of the same kind."""
    array = np.array(to_cpu(tensor))
    for axis, dim in axes.items():
        size = dim.value(sizes)
        order = np.arange(size) % array.shape[axis] if array.shape[axis] else np.zeros(size, int)
        if not array.shape[axis]:
            array = np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
        else:
            array = np.take(array, order, axis)
    if rng is not None and array.size:
        if array.dtype.kind in "fc" and array.ndim:
            array = (array * rng.uniform(0.9, 1.1, array.shape)).astype(array.dtype)
        elif array.ndim:
            array = rng.permutation(array.reshape(-1)).reshape(array.shape)
    made = Tensor._wrap(array)
    return made.to(tensor.device) if tensor.device.type != "cpu" else made
