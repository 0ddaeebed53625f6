"""What an op is, and the one place where every op runs.

An op is one record: a forward over raw arrays, a gradient formula for each input, and its rules. This is a
complete one:

    @op()
    def softplus(xp, input, *, beta=1.0):
        '''log(1 + exp(beta * input)) / beta, elementwise. …'''
        return xp.logaddexp(beta * input, 0.0) / beta

    softplus.grad(input=lambda g, input, beta, xp: g / (1 + xp.exp(-beta * input)))

* `xp` is the array namespace: NumPy's or CuPy's (backend.py), or the one over Tensors (tensor_ns.py).
  Positional parameters are inputs (tensors), keyword-only ones are attributes (plain values).
* A formula's first parameter is the upstream gradient. **The names of its other parameters are what is
  saved for backward**: inputs, `out`, residuals, attributes, and `xp`, `shape` (of the first input),
  `shapes` and `dtypes` (of all), `needs` (which inputs want a gradient), `wide` (which of them autocast made of float32,
  so that a float32 gradient is welcome). A name that is none of these is refused at
  import. An input that wants no gradient runs no formula, and what only that formula names is not kept.
* A formula is pure: nothing in place, no branch on values, names of `xp` rather than array methods. So the
  same text runs over raw arrays (fast) and over Tensors (`create_graph=True`). It never hands back a
  saved array itself.
* Broadcasting needs no words: the engine sums each gradient to its input's shape.
* An op that is awkward as a formula per input gives one `.vjp` that returns a gradient for each input.
* `residuals=("mean", "rstd")`: forward returns `(out, mean, rstd)`; the extra results are only for backward.
  Residuals are not differentiable, so such an op (like one that ran by a kernel) is differentiated a
  second time by running its reference forward over Tensors. Its forward may then use only what
  `tensor_ns` has. It wants the inputs for that; `summed=True` says that the first two are only ever seen as their sum, the
  first output, which is kept in their place (forward is then run with the sum and None).
* `outputs=("values", "indices")`: forward returns a tuple; the first is differentiable, or the first
  `differentiable` ones, whose formula then takes a list of gradients. `outputs="list"`: any number.
  `missing=True`: the gradient of an output that nothing used is None there, not zeros.
* `autocast=`: under a GPU's autocast "half" or "float32" casts the inputs to that, "promote" leaves them alone. An op that
  has an attribute `dtype`, of its result, and wants float32 is given that instead: it reads half precision as it is.
* `dtype=`: "promote" (PyTorch's promotion of all inputs, or of those in `promoted`), "float" (integers also
  become the default float), "same" (inputs are left alone).
* `view=True`: the result may share the input's memory.
* `holomorphic=True`: formulas are those of real numbers; for complex results the engine conjugates what goes in
  and what comes out, which makes dL/dx + i dL/dy of them. Ops that are not complex-differentiable (conj, abs,
  the views as pairs) and those that take the conjugate themselves say False.
* `.fuse(cpu="mytorch.kernels.numba.gelu", cuda=…)`: modules with `accepts`, `forward` and perhaps `vjp` and
  `residuals`, imported on first use. `choose` decides, once for the whole library.

Every call goes through the same steps: find raw arrays and edges; bring dtypes together where they
differ; choose the implementation; run it; wrap the result; record a Node if grad is wanted. Ops of one or
two inputs without attributes get callers in which all of that is written out (`_unary`, `_binary`): this
is where the library's overhead per op is decided, and why it is about a microsecond.
"""

import inspect
import traceback
from operator import itemgetter

import numpy as np

from .._array import Array, as_raw, other_device
from ..backend import CPU, device_of, gpu, is_raw, looks_like_cupy, ndarray, numpy_ns, out_of_memory, to_device, xp_of
from ..base import dtypes
from ..base.errors import DeviceError, kind
from ..graph.mode import get_mode
from ..graph.node import Node, Port
from ..graph.saved import pack_node
from ..kernels.registry import Kernels
from ..tensor import Tensor, refresh
from .out import write_out

PSEUDO = ("xp", "shape", "shapes", "dtypes", "needs", "wide")
SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}
RECORDS = {}  # name -> Op, for tests and documentation
asarray = np.asarray
wrap_array = Array._wrap
wrap_tensor = Tensor._wrap


def names_of(function, skip=0):
    """The parameter names of a function after the first `skip` (read off its code: `inspect` would slow the import)."""
    code = function.__code__
    return code.co_varnames[skip : code.co_argcount + code.co_kwonlyargcount]


class Implementation:
    """One way to run an op: a forward with its gradient. The record's own is the reference."""

    def __init__(self, op, forward, formulas=None, vjp=None, residuals=()):
        self.op = op
        self.forward = forward
        self.formulas = formulas or {}
        self.vjp = vjp
        self.residuals = residuals
        self.names = (*op.inputs, *(op.outputs_names), *residuals, *op.attrs, *PSEUDO)
        self.plans = {}
        self.replays = bool(residuals) or self is not getattr(op, "reference", self)

    def check_names(self, function):
        for name in names_of(function, 1):
            if name not in self.names:
                raise TypeError(
                    f"{self.op.name}: a gradient formula names {name!r}, which is none of {', '.join(self.names)}."
                )

    def plan(self, mask):
        """What to save and run when the inputs in `mask` (a bit for each) want gradients."""
        found = self.plans.get(mask)
        if found is None:
            found = self.plans[mask] = SavePlan(self, mask)
        return found


class SavePlan:
    """For one rule and one set of inputs that want gradients: what is saved, which formulas run.

    Attributes:
        pick: function from the tuple of all values (in the order of `rule.names`) to what is saved.
        formulas: (input's index, formula, positions of its arguments in `saved`).
        vjp, vjp_arguments, needed: the same for a rule with one function for all inputs.
        wanted: whether any input in the mask has a formula at all.
        inputs, out: which inputs, and whether the output, are among the saved.
        ports: number of differentiable outputs if there are several, else 0.
    """

    run = None  # autograd.Function puts its own here

    def __init__(self, implementation, mask):
        op = implementation.op
        count = mask.bit_length() if op.variadic else len(op.inputs)
        self.implementation = implementation
        self.op = op
        self.needs = tuple(bool(mask >> i & 1) for i in range(count))
        self.needed = tuple(i for i in range(count) if self.needs[i])
        self.ports = 0
        self.vjp = implementation.vjp
        if implementation.vjp is not None:
            wanted = dict.fromkeys(self.needed, implementation.vjp)
        else:
            wanted = {
                i: implementation.formulas[op.inputs[i]] for i in self.needed if op.inputs[i] in implementation.formulas
            }
        names = []
        for f in wanted.values():
            names += [n for n in names_of(f, 1) if n not in names]
        if implementation.replays:
            names += [n for n in (*op.replayed, *op.attrs) if n not in names]
        self.names = tuple(names)
        self.wanted = op._wants(implementation, mask)
        self.needs_shapes = "shapes" in names
        self.needs_wide = "wide" in names
        self.needs_dtypes = "dtypes" in names
        places = [implementation.names.index(n) for n in names]
        self.pick = _picker(places)
        self.inputs = tuple(op.inputs.index(n) for n in names if n in op.inputs)
        self.out = tuple(op.outputs_names.index(n) for n in names if n in op.outputs_names)
        self.formulas = tuple(
            (i, f, tuple(names.index(n) for n in names_of(f, 1)))
            for i, f in wanted.items()
            if implementation.vjp is None
        )
        self.vjp_arguments = (
            tuple(names.index(n) for n in names_of(implementation.vjp, 1)) if implementation.vjp else ()
        )


def _picker(places):
    """A function that takes the values at `places` out of a tuple, as a tuple."""
    if not places:
        return lambda values: ()
    if len(places) == 1:
        place = places[0]
        return lambda values: (values[place],)
    return itemgetter(*places)


class Op:
    """The record of an op. Calling it runs it; see the module's docstring for the fields."""

    def __init__(
        self, forward, *, dtype, promoted, residuals, outputs, differentiable, missing, summed, view, autocast, name, holomorphic
    ):  # fmt: skip
        self.name = name or forward.__name__
        self.forward = forward
        self.__doc__ = forward.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__ = forward.__module__
        code = forward.__code__
        named = code.co_argcount + code.co_kwonlyargcount
        self.variadic = bool(code.co_flags & inspect.CO_VARARGS)
        self.inputs = code.co_varnames[1 : code.co_argcount] + (
            code.co_varnames[named : named + 1] if self.variadic else ()
        )
        self.required = code.co_argcount - 1 - len(forward.__defaults__ or ())
        given = forward.__kwdefaults__ or {}
        self.defaults = {
            name: given.get(name, inspect.Parameter.empty) for name in code.co_varnames[code.co_argcount : named]
        }
        self.attrs = tuple(self.defaults)
        self.outputs = outputs
        self.outputs_names = ("out",) if outputs in (None, "list") else tuple(outputs)
        self.differentiable = differentiable
        self.missing = missing
        self.summed = summed
        self.replayed = (self.outputs_names[0], *self.inputs[2:]) if summed else self.inputs
        self.residuals = tuple(residuals)
        self.dtype = dtype
        self.promoted = tuple(self.inputs.index(n) for n in promoted) if promoted else None
        self.autocast = autocast
        self.view = view
        self.holomorphic = holomorphic
        self.grad_name = "".join(part.capitalize() for part in self.name.strip("_").split("_")) + "Backward"
        self.reference = Implementation(self, forward, residuals=self.residuals)
        self.kernels = Kernels(self.name)
        self.implementations = {}  # kernel module -> Rule
        self.fused_here = False  # whether there is a kernel for the CPU, where the fast callers work
        self.attr_names = frozenset(self.attrs)
        self.single = not self.variadic and outputs is None and not residuals and self.required <= 1
        self.caller = self
        if not (self.variadic or self.attrs or residuals or outputs or view) and len(self.inputs) in (1, 2):
            self.caller = (_unary if len(self.inputs) == 1 else _binary)(self)
        RECORDS[self.name] = self

    def grad(self, **formulas):
        """Give the gradient formula of each input; an input without one gets no gradient."""
        for name, formula in formulas.items():
            if name not in self.inputs:
                raise TypeError(f"{self.name}: {name!r} is not an input; the inputs are {', '.join(self.inputs)}.")
            self.reference.check_names(formula)
        self.reference.formulas = formulas
        return self

    def vjp(self, function):
        """Give one function for all gradients: it returns one for each input, None where none is due."""
        self.reference.check_names(function)
        self.reference.vjp = function
        return self

    def fuse(self, **homes):
        """Name the kernel modules: `cpu=` and `cuda=` take a module path."""
        self.kernels.add(**homes)
        self.fused_here = "cpu" in self.kernels.of
        return self

    def by_kernel(self, module):
        """The implementation that a kernel module is."""
        found = self.implementations.get(module)
        if found is None:
            vjp = getattr(module, "vjp", None)
            residuals = tuple(getattr(module, "residuals", self.residuals))
            found = Implementation(self, module.forward, self.reference.formulas, vjp or self.reference.vjp, residuals)
            found.replays = True
            if vjp is not None:
                found.check_names(vjp)
            self.implementations[module] = found
        return found

    @property
    def is_differentiable(self):
        return bool(self.reference.formulas) or self.reference.vjp is not None

    def __repr__(self):
        return f"<op {self.name}({', '.join((*self.inputs, *self.attrs))})>"

    def __call__(self, *inputs, fused=None, out=None, **attrs):
        if (
            self.single
            and len(inputs) == 1
            and out is None
            and attrs.keys() <= self.attr_names
            and not self.fused_here
            and fused is not True
        ):
            result = self._run_single(inputs[0], attrs)
            if result is not None:
                return result
        if gpu.several_gpus:
            where = other_device(inputs)
            if where is not None:
                with where:
                    return self(*inputs, fused=fused, out=out, **attrs)
        if out is not None:
            return write_out(self(*inputs, fused=fused, **attrs), out, self.name)
        if attrs or (len(inputs) > len(self.inputs) and not self.variadic) or len(inputs) < self.required:
            inputs, attrs = self._bind(inputs, attrs)
        mode = get_mode()
        if mode.profile is not None:
            return mode.profile.run(self, inputs, fused, attrs)
        if mode.autocast is not None:
            inputs, attrs = mode.autocast.cast(self, inputs, attrs)
        raws, edges, arrays, as_tensor = prepare(self, inputs)
        xp = _namespace(raws)
        implementation = (
            self.reference if not self.kernels.of and fused is not True else choose(self, xp, raws, attrs, fused)
        )
        try:
            result = implementation.forward(xp, *raws, **attrs)
        except (TypeError, ValueError, MemoryError) as error:
            raise _explained(self, raws, error) from None
        if self.dtype != "same" and any_bfloat16(raws) and attrs.get("dtype") is None:
            result = back_to_bfloat16(result)
        wrapped = self._wrap_result(implementation, result, xp, raws, edges, arrays, attrs, as_tensor, mode)
        if self.view and as_tensor and isinstance(inputs[0], Tensor):
            self._note_views(inputs[0], wrapped, attrs)
        return wrapped

    def _run_single(self, input, attrs):
        """What the rest of `__call__` does, written out for one float tensor on the CPU; None for anything else."""
        mode = get_mode()
        if not isinstance(input, Tensor) or not mode.plain:
            return None
        array = input._data
        x = array._array
        if type(x) is not ndarray or (self.dtype != "same" and x.dtype.kind != "f"):
            return None
        view = input._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(input)
        try:
            raw = self.forward(numpy_ns, x, **attrs)
        except (TypeError, ValueError) as error:
            raise _explained(self, (x,), error) from None
        if type(raw) is not ndarray and not is_raw(raw):
            raw = asarray(raw)
        out = wrap_tensor(raw)
        edge = input._edge
        if edge is not None and mode.grad and raw.dtype.kind in "fcV":
            plan = self.reference.plan(1)
            if plan.wanted:
                cells = []
                if plan.inputs:
                    cell = array._shared_cell()
                    cells.append((cell, cell[0]))
                if plan.out:
                    cells.append((out._data._shared_cell(), 0))
                saved = ()
                if plan.names:
                    nothing = (None,) * (len(self.inputs) - 1)
                    values = [attrs.get(name, default) for name, default in self.defaults.items()]
                    shape = x.shape
                    saved = plan.pick((x, *nothing, raw, *values, numpy_ns, shape, (shape,), (x.dtype,), plan.needs))
                out._edge = Node(self, plan, (edge,), saved, cells, raw.shape, raw.dtype)
        if self.view and (raw is x or (raw.base is not None and _owner(raw) is _owner(x))):
            cell = array._shared_cell()
            out._data._cell = cell
            above = input._view
            if above is None:
                out._view = (input, edge, ((self, attrs),))
            else:
                base, _, steps = above
                out._view = (base, base._edge, steps and (*steps, (self, attrs)))
        return out

    def _note_views(self, tensor, results, attrs):
        """Let each result that is a view remember its base and the way from there (see inplace.py)."""
        steps = ((self, attrs),) if self.outputs is None else None
        cell = tensor._data._cell
        for result in (results,) if steps else results:
            if result._data._cell is None or result._data._cell is not cell:
                continue  # a copy
            above = tensor._view
            if above is None:
                result._view = (tensor, tensor._edge, steps)
            else:
                result._view = (above[0], above[0]._edge, steps and above[2] and (*above[2], *steps))

    def _bind(self, inputs, attrs):
        """Sort arguments into inputs and attributes, by position, name, or another spelling of a name."""
        if not self.variadic and len(inputs) > len(self.inputs):
            extra = inputs[len(self.inputs) :]
            if len(extra) > len(self.attrs):
                raise TypeError(
                    f"{self.name}() takes {len(self.inputs) + len(self.attrs)} arguments, got {len(inputs)}."
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

    def _wrap_result(self, implementation, result, xp, raws, edges, arrays, attrs, as_tensor, mode):
        extra = ()
        if implementation.residuals:
            result, extra = result[: -len(implementation.residuals)], result[-len(implementation.residuals) :]
            if self.outputs is None:
                result = result[0]
        if self.outputs is not None:
            return self._wrap_many(implementation, result, extra, xp, raws, edges, arrays, attrs, as_tensor, mode)
        if type(result) is not ndarray and not is_raw(result):
            result = xp.asarray(result)
        if not as_tensor:
            out = wrap_array(result)
            if self.view and _shares(result, raws[0]):
                out._cell = arrays[0]._shared_cell()
            return out
        out = wrap_tensor(result)
        if self.view and _shares(result, raws[0]):
            out._data._cell = arrays[0]._shared_cell()
        if mode.grad and any(edge is not None for edge in edges):
            self.record((out,), implementation, extra, xp, raws, edges, arrays, attrs, mode)
        return out

    def _wrap_many(self, implementation, results, extra, xp, raws, edges, arrays, attrs, as_tensor, mode):
        make = wrap_tensor if as_tensor else wrap_array
        outs = tuple(make(r if is_raw(r) else xp.asarray(r)) for r in results)
        if self.view:
            for out in outs:
                data = out._data if as_tensor else out
                if _shares(data._array, raws[0]):
                    data._cell = arrays[0]._shared_cell()
        if as_tensor and mode.grad and any(edge is not None for edge in edges):
            self.record(outs, implementation, extra, xp, raws, edges, arrays, attrs, mode)
        return outs

    def record(self, outs, implementation, extra, xp, raws, edges, arrays, attrs, mode):
        """Give the result tensors their edges: a Node, or Ports of one."""
        mask = 0
        for i, edge in enumerate(edges):
            if edge is not None:
                mask |= 1 << i
        plan = implementation.plan(mask)
        if not plan.wanted:
            return
        outputs = [out._data._array for out in outs]
        saved = ()
        if plan.names:
            saved = plan.pick(
                (
                    *([tuple(raws)] if self.variadic else raws + [None] * (len(self.inputs) - len(raws))),
                    *([tuple(outputs)] if self.outputs == "list" else outputs),
                    *extra,
                    *[attrs.get(name, default) for name, default in self.defaults.items()],
                    xp,
                    raws[0].shape if hasattr(raws[0], "shape") else (),
                    tuple([r.shape if hasattr(r, "shape") else () for r in raws]) if plan.needs_shapes else None,
                    tuple([r.dtype if hasattr(r, "dtype") else None for r in raws]) if plan.needs_dtypes else None,
                    plan.needs,
                    tuple([_was_float32(edge) for edge in edges]) if plan.needs_wide else None,
                )
            )
        cells = []
        for i in range(len(arrays)) if self.variadic and plan.inputs else plan.inputs:
            array = arrays[i] if i < len(arrays) else None
            if array is not None:
                cell = array._shared_cell()
                cells.append((cell, cell[0]))
        for i in plan.out:
            cell = outs[i]._data._shared_cell()
            cells.append((cell, cell[0]))
        several = self.outputs == "list" or self.differentiable > 1
        first = outputs[0] if outputs else raws[0]
        if several:  # a node with several gradients to wait for knows the shape of each
            shape, dtype = tuple(o.shape for o in outputs), tuple(o.dtype for o in outputs)
        else:
            shape, dtype = first.shape, first.dtype
        node = Node(self, plan, tuple(edges), saved, cells, shape, dtype)
        if mode.anomaly:
            node.trace = "".join(traceback.format_stack()[:-2])
        if mode.saved_hooks is not None:
            pack_node(node, mode.saved_hooks, wrap_tensor)
        if not several:
            if _can_have_grad(first):
                outs[0]._edge = node
            return
        count = len(outs) if self.outputs == "list" else self.differentiable
        node.plan = plan if plan.ports == count else _with_ports(plan, count)
        for i, out in enumerate(outs[:count]):
            if _can_have_grad(outputs[i]):
                out._edge = Port(node, i, outputs[i].shape, outputs[i].dtype)

    def _wants(self, implementation, mask):
        """Whether any input that has an edge has a formula."""
        if implementation.vjp is not None:
            return True
        return any(mask >> i & 1 and name in implementation.formulas for i, name in enumerate(self.inputs))


def _explained(op, raws, error):
    """The error to raise where NumPy can't bring these shapes together or has no function for these dtypes.

    Any other error is returned as it is.
    """
    text = str(error)
    if isinstance(error, MemoryError):
        return error if _namespace(raws) is numpy_ns else out_of_memory(error)
    if type(error) is ValueError and ("broadcast" in text or "core dimension" in text):
        return RuntimeError(_sizes_differ([r.shape for r in raws if is_raw(r)]) or f"{op.name}: {text}")
    if text.startswith("numpy boolean subtract"):
        return RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        )
    if not text.startswith("ufunc "):
        return error
    names = dict.fromkeys(dtypes.from_numpy(r.dtype).name if is_raw(r) else kind(r) for r in raws if r is not None)
    return NotImplementedError(f'"{op.name}" is not implemented for {" and ".join(names)}.')


def _sizes_differ(shapes):
    """PyTorch's sentence on the first axis at which shapes don't broadcast; None if they do."""
    ndim = max(map(len, shapes), default=0)
    for d in reversed(range(ndim)):
        size = 1
        for shape in shapes:
            n = shape[d - ndim] if ndim - d <= len(shape) else 1
            if size != n and size != 1 and n != 1:
                return (
                    f"The size of tensor a ({size}) must match the size of tensor b ({n}) at non-singleton dimension {d} "
                    f"(the shapes are {', '.join(str(tuple(shape)) for shape in shapes)})"
                )
            size = n if size == 1 else size
    return None


def any_bfloat16(raws):
    """Whether the first array is bfloat16, whose products with Python numbers ml_dtypes makes float32."""
    return any(is_raw(r) and r.dtype.kind == "V" for r in raws[:3])


def back_to_bfloat16(result):
    """Float results as bfloat16, rounded once from the float32 that they were computed in, as PyTorch's are."""
    first = result[0] if isinstance(result, tuple) else result
    if getattr(first, "dtype", None) is None or first.dtype.kind != "f":
        return result
    first = first.astype(dtypes.bfloat16.numpy)
    return (first, *result[1:]) if isinstance(result, tuple) else first


def _with_ports(plan, count):
    """A copy of a plan for a node with `count` differentiable outputs; the formulas then take lists."""
    cache = plan.__dict__.setdefault("_by_ports", {})
    if count not in cache:
        copy = object.__new__(SavePlan)
        copy.__dict__.update({k: v for k, v in plan.__dict__.items() if k != "_by_ports"})
        copy.ports = count
        cache[count] = copy
    return cache[count]


def _was_float32(edge):
    """Whether an edge is that of a cast to half precision from float32."""
    return (
        type(edge) is Node and edge.op is to_dtype and edge.dtype.itemsize == 2 and edge.parents[0].dtype == np.float32
    )


def _can_have_grad(raw):
    return raw.dtype.kind in "fcV"


def _owner(raw):
    """What holds the memory that a view looks into, the same object for all its views: an array, or CuPy's piece of memory,
    since what its as_strided makes does not know whose memory it is."""
    if type(raw) is not ndarray and hasattr(raw, "data") and hasattr(raw.data, "mem"):
        return raw.data.mem
    while getattr(raw, "base", None) is not None:
        raw = raw.base
    return raw


def _shares(result, raw):
    """Whether a result lies in its input's memory: both have the same owner."""
    return is_raw(raw) and _owner(result) is _owner(raw)


def _namespace(raws):
    for raw in raws:
        if type(raw) is ndarray:
            return numpy_ns
        if raw is not None and is_raw(raw):
            return xp_of(raw)
    return numpy_ns


# -- finding the arrays: Tensors, Arrays, raw arrays and numbers in one place -------------------------


def prepare(op, inputs):
    """The raw arrays, edges and Arrays of an op's inputs, with dtypes and devices brought together.

    Numbers stay Python numbers, so NumPy and CuPy treat them as PyTorch does; None stays None.

    Returns:
        raws, edges, arrays: lists with an entry for each input; as_tensor: whether results are Tensors.
    """
    raws, edges, arrays = [], [], []
    as_tensor = tensors = False
    first = None
    same = True
    for t in inputs:
        if isinstance(t, Tensor):
            array = t._data
            raw = array._array
            view = t._view
            if view is not None and view[0]._edge is not view[1]:
                refresh(t)
            edges.append(t._edge)
            arrays.append(array)
            as_tensor = True
        elif t is None or type(t) in (float, int, bool, complex):
            raws.append(t)
            edges.append(None)
            arrays.append(None)
            if t is not None:
                same = False
            continue
        elif isinstance(t, Array):
            raw = t._array
            edges.append(None)
            arrays.append(t)
        elif isinstance(t, np.generic):
            raws.append(t.item())
            edges.append(None)
            arrays.append(None)
            same = False
            continue
        elif is_raw(t) or looks_like_cupy(t):
            raw = as_raw(t)
            edges.append(None)
            arrays.append(Array._wrap(raw))
        else:
            raise TypeError(
                f"{op.name}(): argument {op.inputs[min(len(raws), len(op.inputs) - 1)]!r} must be Tensor, not {kind(t)}."
            )
        raws.append(raw)
        tensors = True
        if first is None:
            first = raw
        elif raw.dtype is not first.dtype or type(raw) is not ndarray:
            same = False
    if not tensors:
        raws = [r if r is None else as_raw(r) for r in raws]
        arrays = [None if r is None else Array._wrap(r) for r in raws]
        as_tensor = True
    elif not any(isinstance(t, Array) for t in inputs):
        as_tensor = True
    if type(first) is not ndarray:
        same = False
    implementation = op.dtype
    if same and implementation != "same" and (implementation != "float" or first.dtype.kind in "fVc"):
        return raws, edges, arrays, as_tensor
    if not same:
        _same_device(op, raws, arrays, edges)
    if implementation != "same":
        _promote(op, inputs, raws, edges, arrays, implementation)
    return raws, edges, arrays, as_tensor


def _same_device(op, raws, arrays, edges):
    """Check that all arrays lie on one device; a 0-d CPU tensor may join any, as in PyTorch."""
    here = {device_of(raw) for raw in raws if is_raw(raw) and raw.ndim}
    if len(here) > 1:
        first, second = sorted(here, key=str, reverse=True)[:2]
        raise DeviceError(
            f"{op.name}: expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}; move one with .to(device)."
        )
    where = here.pop() if here else next((device_of(r) for r in raws if is_raw(r) and not isinstance(r, ndarray)), CPU)
    if where is CPU:
        return
    for i, raw in enumerate(raws):
        if isinstance(raw, ndarray):
            if edges[i] is not None:
                raise DeviceError(f"{op.name}: a CPU tensor that requires grad joins one on {where}; move it with .to.")
            raws[i] = to_device(raw, where)
            arrays[i] = Array._wrap(raws[i])


def _promote(op, inputs, raws, edges, arrays, implementation):
    """Bring the participating inputs to one dtype, by PyTorch's rules; casts are recorded."""
    which = op.promoted if op.promoted is not None else range(len(raws))
    ranks = ([], [], [])
    for i in which:
        raw = raws[i] if i < len(raws) else None
        if raw is None:
            continue
        if is_raw(raw):
            ranks[0 if raw.ndim else 1].append(dtypes.from_numpy(raw.dtype))
        else:
            ranks[2].append(dtypes.of_number(raw))
    result = dtypes.result_type(*ranks)
    if result is None:
        return
    if implementation == "float" and result.category < dtypes.FLOAT:
        result = dtypes.default_dtype()
    wanted = result.numpy
    for i in which:
        raw = raws[i] if i < len(raws) else None
        if raw is None:
            continue
        if not is_raw(raw):
            if result.category == dtypes.INT or result.category == dtypes.BOOL:
                raws[i] = asarray(raw).astype(wanted)  # wraps around, as PyTorch does
            elif type(raw) is bool:
                raws[i] = float(raw)
        elif raw.dtype != wanted:
            if edges[i] is not None:
                cast = to_dtype(inputs[i], dtype=result)
                raws[i], edges[i], arrays[i] = cast._data._array, cast._edge, cast._data
            else:
                raws[i] = raw.astype(wanted)
                arrays[i] = Array._wrap(raws[i])


# -- which implementation ---------------------------------------------------------------------------


def choose(op, xp, raws, attrs, fused):
    """The implementation to run: what `op.kernels` finds for these arrays, else the reference."""
    module = op.kernels.find("cpu" if xp is numpy_ns else "cuda", fused, raws, attrs)
    return op.reference if module is None else op.by_kernel(module)


# -- the fast callers ---------------------------------------------------------------------------------
# Each does what Op.__call__ does, for float tensors of one dtype on the CPU; anything else goes there.


def _unary(op):
    forward = op.forward
    implementation = op.reference
    plan = None
    general = op.__call__
    accepts_ints = op.dtype != "float"

    def caller(input, *args, **kwargs):
        nonlocal plan
        if args or kwargs or not isinstance(input, Tensor):
            return general(input, *args, **kwargs)
        array = input._data
        x = array._array
        mode = get_mode()
        if type(x) is not ndarray or not mode.plain or op.fused_here or not (accepts_ints or x.dtype.kind == "f"):
            return general(input)
        try:
            out = forward(numpy_ns, x)
        except (TypeError, ValueError) as error:
            raise _explained(op, (x,), error) from None
        if type(out) is not ndarray:
            out = asarray(out)
        result = wrap_tensor(out)
        view = input._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(input)
        edge = input._edge
        if edge is not None and mode.grad:
            if plan is None:
                plan = implementation.plan(1)
            if not plan.wanted:
                return result
            cells = []
            if plan.inputs:
                cell = array._cell
                if cell is None:
                    cell = array._cell = [0]
                cells.append((cell, cell[0]))
            if plan.out:
                cells.append((result._data._shared_cell(), 0))
            saved = plan.pick((x, out, numpy_ns, x.shape, None, None, None))
            result._edge = Node(op, plan, (edge,), saved, cells, out.shape, out.dtype)
        return result

    return _named(caller, op)


def is_operand(other):
    """Whether an operator takes it; to anything else it answers NotImplemented, and Python asks the other side."""
    return (
        isinstance(other, (Tensor, Array, int, float, complex, np.generic)) or is_raw(other) or looks_like_cupy(other)
    )


def binary_operator(op):
    """The method behind an operator such as `+`."""

    def general(input, other):
        return op(input, other) if is_operand(other) else NotImplemented

    return _binary(op, general)


def _binary(op, general=None):
    forward = op.forward
    implementation = op.reference
    plans = [None, None, None, None]
    general = general or op.__call__
    accepts_ints = op.dtype == "promote"

    def caller(input, other, *args, **kwargs):
        mode = get_mode()
        if args or kwargs or not mode.plain or not isinstance(input, Tensor) or op.fused_here:
            return general(input, other, *args, **kwargs)
        a = input._data
        x = a._array
        if type(x) is not ndarray:
            return general(input, other)
        if isinstance(other, Tensor):
            b = other._data
            y = b._array
            dtype = x.dtype
            if y.dtype is not dtype or type(y) is not ndarray or not (accepts_ints or dtype.kind == "f"):
                return general(input, other)
            view = other._view
            if view is not None and view[0]._edge is not view[1]:
                refresh(other)
            other_edge = other._edge
        elif (type(other) is float or type(other) is int) and x.dtype.kind == "f":
            b = other_edge = None
            y = other
        else:
            return general(input, other)
        try:
            out = forward(numpy_ns, x, y)
        except (TypeError, ValueError) as error:
            raise _explained(op, (x, y), error) from None
        if type(out) is not ndarray:
            out = asarray(out)
        result = wrap_tensor(out)
        view = input._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(input)
        edge = input._edge
        if (edge is not None or other_edge is not None) and mode.grad:
            mask = (edge is not None) + 2 * (other_edge is not None)
            plan = plans[mask]
            if plan is None:
                plan = plans[mask] = implementation.plan(mask)
            if not plan.wanted:
                return result
            if plan.names:
                cells = []
                for i in plan.inputs:
                    array = b if i else a
                    if array is not None:
                        cell = array._cell
                        if cell is None:
                            cell = array._cell = [0]
                        cells.append((cell, cell[0]))
                if plan.out:
                    cells.append((result._data._shared_cell(), 0))
                saved = plan.pick((x, y, out, numpy_ns, x.shape, None, None, plan.needs))
                result._edge = Node(op, plan, (edge, other_edge), saved, cells, out.shape, out.dtype)
            else:
                result._edge = Node(op, plan, (edge, other_edge), (), (), out.shape, out.dtype)
        return result

    return _named(caller, op)


def _named(caller, op):
    caller.__name__ = caller.__qualname__ = op.name
    caller.__doc__ = op.__doc__
    caller.op = op
    return caller


def op(
    *,
    dtype="promote",
    promoted=None,
    residuals=(),
    outputs=None,
    differentiable=1,
    missing=False,
    summed=False,
    view=False,
    autocast="promote",
    name=None,
    holomorphic=True,
):
    """Make a record of a forward function; see the module's docstring."""

    def make(forward):
        return Op(
            forward,
            dtype=dtype,
            promoted=promoted,
            residuals=residuals,
            outputs=outputs,
            differentiable=differentiable,
            missing=missing,
            summed=summed,
            view=view,
            autocast=autocast,
            name=name,
            holomorphic=holomorphic,
        )

    return make


@op(dtype="same", name="to_dtype")
def to_dtype(xp, input, *, dtype):
    """input as another dtype, as Tensor.to(dtype); the gradient comes back in input's own."""
    return input.astype(dtype.numpy)


to_dtype.grad(input=lambda g: g)  # the engine casts every gradient to its tensor's dtype
