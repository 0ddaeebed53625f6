"""Calls of ops.

`Op.dispatch` handles every call. It sorts the arguments, and passes the call to the active mode (`Mode.wrap`: autocast, a
profile, vmap, or forward mode). `Op.run` then

1. collects the raw arrays and edges of the inputs and promotes their dtypes (`operands.py`);
2. chooses an implementation: the reference, or the kernel that `kernels/registry.py` selects;
3. runs the implementation and wraps its results (`Op.execute`);
4. attaches a Node to the results, if an input has an edge and recording is enabled (`Op.record`).

The node stores the op, a plan, the edges of the inputs, and the saved values. The plan lists the formulas to run and the
values to save. It is computed once for each set of inputs that require gradients.

`fast_call.py` shortens this for Tensors of one dtype on the CPU. `record.py` documents the definition of an op.
"""

import copy
import traceback
from contextlib import nullcontext
from functools import cached_property, partial

from ...arrays import config, gpu, is_raw, memory_owner, meta_ns, ndarray, numpy_ns
from ...arrays.array import Array, other_device
from ...arrays.errors import PACKAGE
from ...arrays.memory_format import layout, preserve
from ...arrays.tensor import Parts, Tensor
from ...autograd.mode import get_mode
from ...autograd.node import Node, OutputEdge, keep_saved
from ...autograd.saved import pack_node
from ...kernels import parts
from ...kernels.registry import SMALL
from . import layouts
from .checked import as_array
from .composed import composed_by
from .errors import translate_error
from .fast_call import fast_call, saved_versions
from .half import half_of, in_float32, kernel_in_float32, rounded
from .meta import on_meta
from .operands import unpack_inputs
from .out import check_out, write_out
from .record import Record
from .refused import check_arguments, check_dtypes

SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}
wrap_array = Array._wrap
wrap_tensor = Tensor._wrap


class Op(Record):
    """An op that can be called: `op(*inputs, fused=None, out=None, auto=False, **attributes)`.

    Create an op with the decorator `op`. `ops/dispatch/record.py` documents the rules.

    Args:
        forward: the forward function.
    """

    @cached_property
    def fast_call(self):
        """The closure that runs a call; made at the first one, since most programs call few ops."""
        return fast_call(self)

    def named(self, name, torch_name=None, **changed):
        """Returns a copy of this op whose nodes have another name.

        For example, `x.flatten()` is a reshape with the node FlattenBackward.

        Args:
            name: name of the nodes, without "Backward".
            torch_name: PyTorch's name of the nodes (default: the name of this op).
            changed: other attributes of the copy, such as its layout.
        """
        renamed, key = self.__dict__.setdefault("_renamed", {}), (name, torch_name, *changed)
        if key not in renamed:
            op = renamed[key] = copy.copy(self)
            vars(op).update(changed)
            op.grad_name, op.torch_name = name + "Backward", torch_name or self.torch_name
            vars(op).pop("fast_call", None)
        return renamed[key]

    def __call__(self, *inputs, **attrs):
        return self.fast_call(*inputs, **attrs)

    def dispatch(self, *inputs, fused=None, out=None, auto=False, **attrs):
        """Runs the op with any arguments, in any mode.

        Args:
            inputs: the inputs, and attributes by position.
            fused: True to run a kernel, False to run the reference, None to run a kernel if it is expected to be faster.
            out: tensor for the result.
            auto: True to differentiate the reference by autograd; see composed.py.
            attrs: the attributes.
        """
        if auto is not False:
            with composed_by(auto, self.name):
                return self.dispatch(*inputs, fused=fused, out=out, **attrs)
        if out is not None:
            check_out(out, inputs, self.name)
            return write_out(self.dispatch(*inputs, fused=fused, **attrs), out, self.name)
        fits = self.required <= len(inputs) and (self.variadic or len(inputs) <= len(self.inputs))
        if not fits or not attrs.keys() <= self.attr_names:
            inputs, attrs = self._bind(inputs, attrs)
        mode = get_mode()
        if mode.wrap is None:
            return self.run(inputs, fused, attrs, mode)
        device = other_device(inputs) if gpu.several_gpus else None
        with device or nullcontext():
            return mode.wrap(self, inputs, fused, attrs)

    def dispatch_checked(self, *inputs, **options):
        """Runs the op for a call of the public function with any arguments."""
        if config.pytorch_mode and not (inputs and isinstance(inputs[0], Tensor) and isinstance(inputs[-1], Tensor)):
            check_arguments(self, inputs)
        return self.dispatch(*inputs, **options)

    def run(self, inputs, fused, attrs, mode):
        """Runs the op without modes: unpacks the inputs, chooses an implementation and executes it."""
        if gpu.several_gpus:
            device = other_device(inputs)
            if device is not None:
                with device:
                    return self.run(inputs, fused, attrs, mode)
        if self.refused:
            check_dtypes(self.name, [getattr(x, "_mt_data", x) for x in inputs[: self.floats]])
        raws, edges, arrays, mask, as_tensor, xp, half = unpack_inputs(self, inputs)
        if xp is not numpy_ns:
            if xp is meta_ns:
                return on_meta(self, inputs, attrs)
            if isinstance(xp, layout):
                return layouts.run(self, inputs, attrs, xp)
        implementation = self.reference_for(xp, half)
        if xp.kind in self.fused_on or fused is True:
            widen = half is not None and xp.half_in_float32 and raws[0].size >= SMALL
            # `fused=True` gives no warning here if the kernel accepts the inputs in float32.
            module = self.kernels.find(xp.kind, None if widen and fused else fused, raws, attrs)
            if module is not None:
                implementation = self.by_kernel(module)
            elif widen:
                implementation = kernel_in_float32(self, raws, attrs, fused) or implementation
        return self.execute(implementation, (raws, edges, arrays, mask, xp), attrs, mode, inputs, as_tensor, half)

    def reference_for(self, xp, half):
        """Returns the reference, which computes in float32 if `half` is a half-precision dtype and the rule of the op says so."""
        rule = self.half if half is not None else "itself"
        narrow = rule == "itself" or (rule == "cpu" and not xp.half_in_float32)
        return self.reference if narrow else in_float32(self)

    def call_within(self, xp, *inputs, **attrs):
        """Computes the outputs and residuals on raw arrays, for a call within another forward function or formula."""
        return self.reference_for(xp, half_of(inputs)).forward(xp, *inputs, **attrs)

    def execute(self, implementation, operands, attrs, mode, inputs, as_tensor=True, half=None):
        """Runs an implementation on raw arrays, wraps its results and records them."""
        raws, _, _arrays, mask, xp = operands
        forward = implementation.forward
        try:
            if self.elementwise and xp is numpy_ns and not implementation.is_kernel and self.are_large(raws):
                result = self.in_parts(partial(forward, xp, **attrs), *raws)
            else:
                result = forward(xp, *raws, **attrs)
            if result is None and implementation.is_kernel:  # a kernel that does not support these values
                half = half_of(raws)
                reference = self.reference_for(xp, half)
                return self.execute(reference, operands, attrs, mode, inputs, as_tensor, half)
        except Exception as error:
            translate_error(self, raws, attrs, error)
            raise
        if half is not None and not implementation.rounds and self.dtype != "same" and attrs.get("dtype") is None:
            result = rounded(self, result, raws, half, implementation.residuals)
        extra = ()
        if implementation.residuals:
            count = len(implementation.residuals)
            result, extra = result[:-count], result[-count:]
            if self.outputs is None:
                result = result[0]
        results = tuple([r if is_raw(r) else as_array(self, r, xp) for r in (result if self.outputs else (result,))])
        if self.layout is not None:
            results = tuple([self.layout(r, raws, attrs) for r in results])
        outs = tuple([wrap_tensor(r, mode) if as_tensor else wrap_array(r) for r in results])
        if self.view:
            for i, (out, result) in enumerate(zip(outs, results, strict=True)):
                steps = ((self, attrs),) if self.outputs is None else Parts(((self, attrs, i),))
                self.share_memory(out, result, raws[0], inputs[0], steps)
        if mask and as_tensor and mode.grad:
            self.record(outs, results, implementation, extra, operands, attrs, mode)
        return outs if self.outputs else outs[0]

    def are_large(self, raws):
        """Returns True if the result of these operands is computed in parts, see kernels/parts.py."""
        return parts.broadcast_size(*[r.shape for r in raws if type(r) is ndarray]) >= self.divided_from

    def record(self, outs, results, implementation, extra, operands, attrs, mode):
        """Attaches a Node to the result tensors, or OutputEdges of one."""
        raws, edges, arrays, mask, xp = operands
        plan = implementation.plans.get(mask) or implementation.plan(mask)
        if not plan.wanted:
            return
        saved = versions = ()
        if plan.names:
            first = raws[0]
            values = self.by_name(raws)
            if not self.variadic and len(raws) < len(self.inputs):
                values += [None] * (len(self.inputs) - len(raws))
            values += [results] if self.outputs == "list" else results
            values += extra
            for name in self.attrs:
                values.append(attrs[name] if name in attrs else self.defaults[name])
            values += (
                xp,
                first.shape if hasattr(first, "shape") else (),
                tuple([getattr(r, "shape", ()) for r in raws]) if plan.needs_shapes else None,
                tuple([getattr(r, "dtype", None) for r in raws]) if plan.needs_dtypes else None,
                plan.needs,
                self.cast_from_float32(plan, edges, first) if plan.needs_accum else plan.no_accum,
                None,  # owned_sum, which backward sets
            )
            saved = plan.pick(tuple(values))
            versions = saved_versions(plan, arrays, *[out._mt_data for out in outs])
        first = results[0] if results else raws[0]
        parents = tuple(edges[: self.floats])
        count = len(outs) if self.outputs == "list" else self.differentiable
        if self.outputs == "list" or count > 1:
            shapes, numpy_dtypes = tuple(r.shape for r in results), tuple(r.dtype for r in results)
            node = Node(self, plan.with_ports(count), parents, saved, versions, shapes, numpy_dtypes)
        else:
            node = Node(self, plan, parents, saved, versions, first.shape, first.dtype)
        if self.keeps_saved:
            keep_saved(node)
        attach(node, [out if result.dtype.kind in "fcV" else None for out, result in zip(outs, results)][:count])  # noqa: B905
        if not mode.plain:
            annotate(node, mode, [*zip(raws, edges), *((r, out._mt_edge) for r, out in zip(results, outs))])  # noqa: B905

    @staticmethod
    def cast_from_float32(plan, edges, first):
        """Returns True for each edge of a cast from float32 to half precision. `first` is the raw array of the first input."""
        return tuple([_was_float32(e) for e in edges]) if first.itemsize == 2 else plan.no_accum

    @staticmethod
    def share_memory(out, result, raw, tensor, steps):
        """Makes a view share the version counter of its input, and stores its base and the ops between them.

        Args:
            out: the result, a Tensor or Array.
            result: the raw array of the result.
            raw: the raw array of the first input.
            tensor: the first input, a Tensor or Array.
            steps: ((op, attributes),), by which `inplace.py` computes the view again; Parts for one of several results.
        """
        base = result.base
        if result is not raw and base is not raw and (base is None or base is not raw.base):
            if memory_owner(result) is not memory_owner(raw):
                return  # a copy
        array = tensor._mt_data  # the `_mt_data` of an Array is the Array
        counter = array._version_counter
        if counter is None:
            counter = array._version_counter = [0]
        out._mt_data._version_counter = counter
        if array is not tensor:
            set_view(out, tensor, steps)

    def _bind(self, inputs, attrs):
        """Sorts arguments into inputs and attributes, by position, by name, or by an alternative name."""
        if not self.variadic and len(inputs) > len(self.inputs):
            extra = inputs[len(self.inputs) :]
            if len(extra) > len(self.attrs):
                raise TypeError(
                    f"{self.name}() takes {len(self.inputs) + len(self.attrs)} positional argument(s) but {len(inputs)} were given"
                )
            inputs = inputs[: len(self.inputs)]
            for name, value in zip(self.attrs, extra, strict=False):
                if name in attrs:
                    raise TypeError(f"{self.name}() got multiple values for argument '{name}'.")
                attrs[name] = value
        for name in [n for n in attrs if n not in self.defaults]:
            value = attrs.pop(name)
            spelled = SPELLINGS.get(name, name)
            if spelled in self.defaults and spelled not in attrs:
                attrs[spelled] = value
            elif name in self.inputs and not self.variadic and self.inputs.index(name) >= len(inputs):
                gap = self.inputs.index(name) - len(inputs)
                inputs = (*inputs, *[attrs.pop(n, None) for n in self.inputs[len(inputs) :][:gap]], value)
            else:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{name}'.")
        if len(inputs) < self.required:
            missing = ", ".join(f"'{n}'" for n in self.inputs[len(inputs) : self.required])
            raise TypeError(f"{self.name}() missing required argument: {missing}.")
        return inputs, attrs


def set_view(out, tensor, steps):
    """Makes a tensor a view of another tensor, or of its base."""
    view = tensor._mt_view
    if view is None:
        out._mt_view = (tensor, tensor._mt_edge, steps)
    else:
        above, _, before = view
        if before is not None:
            kind = Parts if type(steps) is Parts else type(before)
            steps = kind((*before, *steps))
        out._mt_view = (above, above._mt_edge, before and steps)


def own(out):
    """Makes a view of a tensor that only the calling function knows a tensor of its own, such as for `detach_`. Returns it."""
    if isinstance(out, Tensor) and get_mode().interpreter is None:  # whose tangents follow views
        out._mt_view = None
    return out


def attach(node, outputs):
    """Makes tensors the outputs of a node. None stands for an output without a gradient."""
    for i, output in enumerate(outputs):
        if output is not None:
            output._mt_edge = node.output_edge(i)


def annotate(node, mode, places=()):
    """Adds the data of modes to a new node: the stack for anomaly mode, and packed values for saved tensor hooks."""
    if mode.anomaly:
        own = f'File "{PACKAGE}'
        node.trace = "".join(x for x in traceback.format_stack() if own not in x and 'File "<frozen' not in x)
    if mode.saved_hooks is not None:
        pack_node(node, mode.saved_hooks, places, tensor_at)


def tensor_at(raw, edge, cls=None):
    """Returns a tensor over a raw array, with a place in the graph."""
    return Tensor._of(Array._wrap(raw), edge, cls)


def _was_float32(e):
    """Returns True if an edge is the node of a cast from float32 to half precision."""
    return isinstance(e, Node) and e.plan.passes_float32 and e.dtype.itemsize == 2 and e.parents[0].dtype == "float32"


def name_node(out, name, torch_name=None):
    """Changes the name of the node that computed `out`. Returns `out`."""
    node = getattr(out, "_mt_edge", None)
    node = node.node if type(node) is OutputEdge else node
    if isinstance(node, Node) and node.op is not None:
        node.op = node.op.named(name, torch_name)
    return out


def op(**rules):
    """Decorates a forward function to define an op. Call the result like any function of tensors.

    The op handles broadcasting, type promotion, devices, recording, second derivatives and transforms. Set its gradient
    formulas with `.grad(input=…)`.

    Args:
        rules: rules such as `dtype`, `residuals` or `view`; `ops/dispatch/record.py` documents all rules.

    Returns:
        A decorator that returns an `Op`.

    Example:
        >>> from mytorch.ops.dispatch.op import op
        >>> @op(dtype="float")
        ... def cube(xp, input):
        ...     return input * input * input
        >>> _ = cube.grad(input=lambda g, input: g * 3 * input * input)
        >>> x = tensor(2.0, requires_grad=True)
        >>> cube(x).backward()
        >>> x.grad.item()
        12.0
    """
    return lambda forward: Op(forward, **rules)


@op(dtype="same", name="to_dtype", passes_float32=True, layout=preserve)
def to_dtype(xp, input, *, dtype):
    """Casts the input to another dtype. The gradient has the dtype of the input."""
    return xp.cast(input, dtype.numpy)


to_dtype.grad(input=lambda g: g)  # the engine casts each gradient to the dtype of its tensor
