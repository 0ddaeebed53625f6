"""How an op runs.

`Op.dispatch` takes every call: it sorts the arguments, and passes the call to what is switched on (`Mode.wrap`: autocast, a profile,
vmap, forward mode). `Op.run` then

1. finds the raw arrays and edges of the inputs and brings their dtypes together (`operands.py`);
2. chooses an implementation: the reference, or the kernel that `kernels/registry.py` finds;
3. runs the implementation and wraps its results (`Op.execute`);
4. attaches a Node to the results, if an input has an edge and recording is on (`Op.record`): the op, a plan (which formulas to run
   and what to save, computed once for each set of inputs that want gradients), the edges of the inputs, and the saved values.

`fast_call.py` shortens this for Tensors of one dtype on the CPU. `record.py` says what a record is.
"""

import copy
import traceback
from contextlib import nullcontext

from .._array import Array, other_device
from .._tensor import Tensor
from ..backend import gpu, is_raw, memory_owner, meta_ns
from ..engine.mode import get_mode
from ..engine.node import Node, OutputEdge
from ..engine.saved import pack_node
from .composed import composed_by
from .errors import translate_error
from .fast_call import fast_call, saved_versions
from .half import back_to_bfloat16, in_float32
from .meta import on_meta
from .operands import unpack_inputs
from .out import check_out, write_out
from .record import Record

SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}
wrap_array = Array._wrap
wrap_tensor = Tensor._wrap


class Op(Record):
    """A record that can be called: `op(*inputs, fused=None, out=None, auto=False, **attributes)`; auto: see composed.py."""

    def __init__(self, forward, **rules):
        super().__init__(forward, **rules)
        self.fast_call = fast_call(self)

    def named(self, name):
        """Returns this op with nodes that print under another name, as `x.flatten()`, a reshape, has the node FlattenBackward."""
        renamed = self.__dict__.setdefault("_renamed", {})
        if name not in renamed:
            op = renamed[name] = copy.copy(self)
            op.grad_name = name + "Backward"
            op.fast_call = fast_call(op)
        return renamed[name]

    def __call__(self, *inputs, **attrs):
        return self.fast_call(*inputs, **attrs)

    def dispatch(self, *inputs, fused=None, out=None, auto=False, **attrs):
        """Runs a call with any arguments, in any mode."""
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

    def run(self, inputs, fused, attrs, mode):
        """Runs the op on its inputs as they are: unpacks them, chooses an implementation and executes it."""
        if gpu.several_gpus:
            device = other_device(inputs)
            if device is not None:
                with device:
                    return self.run(inputs, fused, attrs, mode)
        raws, edges, arrays, mask, as_tensor, xp, half = unpack_inputs(self, inputs)
        if xp is meta_ns:
            return on_meta(self, inputs, attrs)
        implementation = self.reference
        if half and xp.kind == "cpu" and self.elementwise is True:
            implementation = in_float32(self)
        if xp.kind in self.fused_on or fused is True:
            module = self.kernels.find(xp.kind, fused, raws, attrs)
            if module is not None:
                implementation = self.by_kernel(module)
        return self.execute(
            implementation, (raws, edges, arrays, mask, xp), attrs, mode, inputs, as_tensor, half == "V"
        )

    def execute(self, implementation, operands, attrs, mode, inputs, as_tensor=True, bfloat16=False):
        """Runs an implementation on raw arrays, wraps its results and records them."""
        raws, _, _arrays, mask, xp = operands
        try:
            result = implementation.forward(xp, *raws, **attrs)
            if result is None:  # the kernel does not support these values
                return self.execute(self.reference, operands, attrs, mode, inputs, as_tensor, bfloat16)
        except Exception as error:
            raise translate_error(self, raws, attrs, error) from None
        if bfloat16 and self.dtype != "same" and attrs.get("dtype") is None:
            result = back_to_bfloat16(result)
        extra = ()
        if implementation.residuals:
            count = len(implementation.residuals)
            result, extra = result[:-count], result[-count:]
            if self.outputs is None:
                result = result[0]
        wrap = wrap_tensor if as_tensor else wrap_array
        results = tuple([r if is_raw(r) else xp.asarray(r) for r in (result if self.outputs else (result,))])
        outs = tuple([wrap(r) for r in results])
        if self.view:
            steps = ((self, attrs),) if self.outputs is None else None
            for out, result in zip(outs, results, strict=True):
                self.share_memory(out, result, raws[0], inputs[0], steps)
        if mask and as_tensor and mode.grad:
            self.record(outs, results, implementation, extra, operands, attrs, mode)
        return outs if self.outputs else outs[0]

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
                self.cast_from_float32(edges) if plan.needs_accum and first.itemsize == 2 else plan.no_accum,
                None,  # owned_sum, which is known in backward
            )
            saved = plan.pick(tuple(values))
            versions = saved_versions(plan, arrays, *[out._data for out in outs])
        first = results[0] if results else raws[0]
        parents = tuple(edges[: self.floats])
        count = len(outs) if self.outputs == "list" else self.differentiable
        if self.outputs == "list" or count > 1:
            shapes, numpy_dtypes = tuple(r.shape for r in results), tuple(r.dtype for r in results)
            node = Node(self, plan.with_ports(count), parents, saved, versions, shapes, numpy_dtypes)
        else:
            node = Node(self, plan, parents, saved, versions, first.shape, first.dtype)
        if not mode.plain:
            _annotate(node, mode)
        attach(node, [out if result.dtype.kind in "fcV" else None for out, result in zip(outs, results)][:count])  # noqa: B905

    @staticmethod
    def cast_from_float32(edges):
        """Which edges are those of casts to half precision from float32."""
        return tuple([_was_float32(e) for e in edges])

    @staticmethod
    def share_memory(out, result, raw, tensor, steps):
        """Makes a result in the input's memory share the input's version counter and remember its base and the ops from there.

        Args:
            out, result: the result as a Tensor or Array, and its raw array. raw, tensor: the first input, likewise.
            steps: ((op, attributes),), from which `inplace.py` makes the view again; None if that is not possible.
        """
        base = result.base
        if result is not raw and base is not raw and (base is None or base is not raw.base):
            if memory_owner(result) is not memory_owner(raw):
                return  # a copy
        array = tensor._data  # an Array's `_data` is the Array
        counter = array._version_counter
        if counter is None:
            counter = array._version_counter = [0]
        out._data._version_counter = counter
        if array is tensor:
            return
        view = tensor._view
        if view is None:
            out._view = (tensor, tensor._edge, steps)
        else:
            above, _, before = view
            out._view = (above, above._edge, steps and before and (*before, *steps))

    def _bind(self, inputs, attrs):
        """Sort arguments into inputs and attributes, by position, name, or another spelling of a name."""
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


def attach(node, outputs):
    """Makes tensors the outputs of a node; None stands for an output without a gradient. `autograd.Function` calls it, too."""
    for i, output in enumerate(outputs):
        if output is not None:
            output._edge = node.output_edge(i)


def _annotate(node, mode):
    """What the surroundings ask of a new node: its stack for anomaly mode, hooks on what it saved."""
    if mode.anomaly:
        node.trace = "".join(traceback.format_stack()[:-3])
    if mode.saved_hooks is not None:
        pack_node(node, mode.saved_hooks, wrap_tensor)


def _was_float32(e):
    """Whether an edge is that of a cast to half precision from float32."""
    return type(e) is Node and e.plan.passes_float32 and e.dtype.itemsize == 2 and e.parents[0].dtype == "float32"


def name_node(out, name):
    """Let the node that made `out`, perhaps one of several results, print under another name; returns out."""
    node = getattr(out, "_edge", None)
    node = node.node if type(node) is OutputEdge else node
    if type(node) is Node:
        node.op = node.op.named(name)
    return out


def op(**rules):
    """Make a record of a forward function; record.py says what the rules are."""
    return lambda forward: Op(forward, **rules)


@op(dtype="same", name="to_dtype", passes_float32=True)
def to_dtype(xp, input, *, dtype):
    """input as another dtype, as Tensor.to(dtype); the gradient comes back in input's own."""
    return xp.cast(input, dtype.numpy)


to_dtype.grad(input=lambda g: g)  # the engine casts every gradient to its tensor's dtype
