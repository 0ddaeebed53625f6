"""What an op is: one record, which holds everything that anybody has to know of it.

A record is a forward over raw arrays, a gradient formula for each input, and its rules. This is a complete one:

    @op()
    def softplus(xp, input, *, beta=1.0):
        '''log(1 + exp(beta * input)) / beta, elementwise. …'''
        return xp.logaddexp(beta * input, 0.0) / beta

    softplus.grad(input=lambda g, input, beta, xp: g / (1 + xp.exp(-beta * input)))

* `xp` is the array namespace: NumPy's or CuPy's (backend/), or the one over Tensors (transforms/tensor_ns.py).
  Positional parameters are inputs (tensors), keyword-only ones are attributes (plain values).
* A formula's first parameter is the upstream gradient. **The names of its other parameters are what is
  saved for backward**: inputs, `out`, residuals, attributes, and `xp`, `shape` (of the first input),
  `shapes` and `dtypes` (of all), `needs` (which inputs want a gradient), `float32_accum` (which
  of them autocast cast down from float32: their gradient may stay in the float32 that it was summed in), `owned_sum` (the gradient
  that the first input has so far, if no other object holds it: a formula may add to it in place and return None). A name that is none of these is refused at import. An input that
  wants no gradient runs no formula, and what only that formula names is not kept.
* A formula is pure: nothing in place, no branch on values, names of `xp` rather than array methods. So the
  same text runs over raw arrays (fast) and over Tensors (`create_graph=True`). It never hands back a
  saved array itself.
* Broadcasting needs no words: the engine sums each gradient to its input's shape.
* An op that is awkward as a formula per input gives one `.vjp` that returns a gradient for each input.
* `residuals=("mean", "rstd")`: forward returns `(out, mean, rstd)`; the extra results are only for backward.
  Residuals are not differentiable, so such an op (like one that ran by a kernel) is differentiated a
  second time by running its reference forward over Tensors. Its forward may then use only what
  `tensor_ns` has. It wants the inputs for that; `saves_sum=True` says that the first two are only ever seen as their sum, the
  first output, which is kept in their place (forward is then run with the sum and None).
* `outputs=("values", "indices")`: forward returns a tuple; the first is differentiable, or the first
  `differentiable` ones, whose formula then takes a list of gradients. `outputs="list"`: any number.
  `undefined_grads=True`: the gradient of an output that nothing used is None there, not zeros.
* `autocast=`: under autocast on a GPU "half" or "float32" casts the inputs to that, "promote" leaves them alone. An op that
  has an attribute `dtype`, of its result, and wants float32 is given that instead: it reads half precision as it is.
  `autocast_cpu=`: the same on a CPU, where PyTorch leaves most ops in the precision that they are given.
* `dtype=`: "promote" (PyTorch's promotion of all inputs, or of those in `promoted`), "float" (integers also
  become the default float), "same" (inputs are left alone).
* `integers=("index",)`: the last inputs, if they hold positions, classes or masks. They have no gradient, keep their dtype and do not
  decide the dtype or the type of the result. A formula gets them as raw arrays, also over Tensors; naming them saves them and watches
  their versions, as for every input. A variadic last input gives a formula a tuple.
* `view=True`: the result may share the input's memory. `elementwise=True`: each element is computed from those at its place;
  "exact": it is chosen or compared, and nothing is rounded.
* `xp_name=`: NumPy's name of the op, under which formulas that run over Tensors find it (transforms/tensor_ns.py).
* `holomorphic=True`: formulas are those of real numbers; for complex results the engine conjugates what goes in
  and what comes out, which makes dL/dx + i dL/dy of them. Ops that are not complex-differentiable (conj, abs,
  the views as pairs) and those that take the conjugate themselves say False.
* `passes_float32=True`: the gradient of a half-precision result may arrive in float32, as a kernel summed it (a cast).
* `grad_name=`: how its node is printed, without "Backward", where that is not its name in capitals: "ReLU". "{d}" stands for
  the number of the result's spatial axes.
* `.register_kernel(cpu="mytorch.kernels.numba.gelu", cuda=…)`: kernel modules with `accepts`, `forward` and perhaps `vjp` and
  `residuals`, imported on first use; kernels/registry.py says which one runs.

`op.py` runs a record, and `bind.py` binds it to the names that users call.
"""

import inspect
import sys
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from ..kernels.registry import Kernels

PSEUDO = ("xp", "shape", "shapes", "dtypes", "needs", "float32_accum", "owned_sum")
RECORDS = {}  # name -> Record, for tests and documentation


def names_of(function, skip=0):
    """Returns the parameter names of a function after the first `skip`. Reads the code object, since `inspect` slows the import."""
    code = function.__code__
    return code.co_varnames[skip : code.co_argcount + code.co_kwonlyargcount]


class Formula(NamedTuple):
    """A gradient formula and the names of the values that it uses, which are the names of its parameters after `g`."""

    function: Callable
    names: tuple

    def on(self, g, values):
        """Computes the formula, with its arguments taken from a dict of values."""
        return self.function(g, *[values[n] for n in self.names])


def formula_of(function):
    """Returns the Formula of a function; the names of its parameters are read here, once."""
    return Formula(function, names_of(function, 1))


class Record:
    """The declaration of an op; see the module's docstring for the fields."""

    keeps_python_scalars_float32 = (
        False  # whether a number that half precision meets stays float32, instead of being rounded to it
    )

    def __init__(
        self, forward, *, dtype="promote", promoted=None, residuals=(), outputs=None, differentiable=1, undefined_grads=False,
        saves_sum=False, view=False, autocast="promote", autocast_cpu=None, xp_name=None, name=None, holomorphic=True,
        grad_name=None, elementwise=False, passes_float32=False, integers=(),
    ):  # fmt: skip
        self.name = name or forward.__name__
        self.__doc__ = forward.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__ = forward.__module__
        self.forward = forward
        code = forward.__code__
        named = code.co_argcount + code.co_kwonlyargcount
        self.variadic = bool(code.co_flags & inspect.CO_VARARGS)
        rest = code.co_varnames[named : named + 1] if self.variadic else ()
        self.inputs = code.co_varnames[1 : code.co_argcount] + rest
        self.integers = tuple(integers)
        assert self.integers == self.inputs[len(self.inputs) - len(integers) :], (
            f"{self.name}: integer inputs come last"
        )
        self.floats = len(self.inputs) - len(integers) if integers else sys.maxsize  # where the integer inputs begin
        self.required = code.co_argcount - 1 - len(forward.__defaults__ or ())
        given = forward.__kwdefaults__ or {}
        self.defaults = {n: given.get(n, inspect.Parameter.empty) for n in code.co_varnames[code.co_argcount : named]}
        self.attrs = tuple(self.defaults)
        self.attr_names = frozenset(self.attrs)
        self.outputs = outputs
        self.outputs_names = ("out",) if outputs in (None, "list") else tuple(outputs)
        self.differentiable = differentiable
        self.undefined_grads = undefined_grads
        self.saves_sum = saves_sum
        self.replayed = (self.outputs_names[0], *self.inputs[2:]) if saves_sum else self.inputs
        self.residuals = tuple(residuals)
        self.dtype = dtype
        promoted = promoted or (self.inputs[: self.floats] if integers else ())
        self.promoted = tuple(self.inputs.index(n) for n in promoted) or None
        self.autocast = autocast
        self.autocast_cpu = autocast_cpu or "promote"
        self.view = view
        self.elementwise = elementwise
        self.passes_float32 = passes_float32
        self.holomorphic = holomorphic
        self.torch_name = "".join(part.capitalize() for part in self.name.strip("_").split("_")) + "Backward"
        self.grad_name = self.torch_name if grad_name is None else grad_name + "Backward"
        self.reference = Implementation(self, forward, residuals=self.residuals)
        self.kernels = Kernels(self.name)
        self.fused_on = frozenset()  # the kinds of device that there are kernels for
        self.signature_extras = ("out",)  # arguments that the signature shows besides inputs and attributes
        self.implementations = {}  # kernel module -> Implementation
        self.xp_name = xp_name
        RECORDS[self.name] = self

    def grad(self, **formulas):
        """Give the gradient formula of each input; an input without one gets no gradient."""
        for name, _formula in formulas.items():
            if name not in self.inputs:
                raise TypeError(f"{self.name}: {name!r} is not an input; the inputs are {', '.join(self.inputs)}.")
        self.reference.formulas = {name: self.reference.checked(formula_of(f)) for name, f in formulas.items()}
        return self

    def vjp(self, function):
        """Give one function for all gradients: it returns one for each input, None where none is due."""
        self.reference.vjp = self.reference.checked(formula_of(function))
        return self

    def register_kernel(self, **paths):
        """Name the kernel modules: `cpu=` and `cuda=` take a path, "module" or "module:name"."""
        self.kernels.add(**paths)
        self.fused_on = frozenset(self.kernels.of)
        self.signature_extras = ("fused", "out")
        return self

    fuse = register_kernel  # the former name

    def by_kernel(self, module):
        """The implementation that a kernel module is."""
        found = self.implementations.get(module)
        if found is None:
            vjp = getattr(module, "vjp", None)
            residuals = tuple(getattr(module, "residuals", self.residuals))
            found = Implementation(self, module.forward, self.reference.formulas, self.reference.vjp, residuals)
            found.replays = True
            if vjp is not None:
                found.vjp = found.checked(formula_of(vjp))
            self.implementations[module] = found
        return found

    def input_name(self, i):
        """Returns the name of the input at a position; all that follow a variadic input share its name."""
        return self.inputs[min(i, len(self.inputs) - 1)]

    def by_name(self, values):
        """Returns one value for each name of an input: those of a variadic input as a tuple."""
        return [*values[: len(self.inputs) - 1], tuple(values[len(self.inputs) - 1 :])] if self.variadic else [*values]

    @property
    def is_differentiable(self):
        return bool(self.reference.formulas) or self.reference.vjp is not None

    @property
    def __signature__(self):
        """The parameters as users give them, for `help()`: inputs, then attributes."""
        parameter, parameters = inspect.Parameter, []
        own = inspect.signature(self.forward).parameters.values()
        for p in list(own)[1:]:
            positional = p.kind is parameter.KEYWORD_ONLY and not self.variadic
            parameters.append(p.replace(kind=parameter.POSITIONAL_OR_KEYWORD) if positional else p)
        seen_default = False
        for i, p in enumerate(parameters):  # attributes without a default after inputs with one are keyword-only
            seen_default = seen_default or p.default is not p.empty
            if seen_default and p.default is p.empty and p.kind is parameter.POSITIONAL_OR_KEYWORD:
                parameters[i:] = [q.replace(kind=parameter.KEYWORD_ONLY) for q in parameters[i:]]
                break
        further = [
            parameter(n, parameter.KEYWORD_ONLY, default=False if n == "auto" else None) for n in self.signature_extras
        ]
        return inspect.Signature([*parameters, *further])

    def __repr__(self):
        return f"<op {self.name}({', '.join((*self.inputs, *self.attrs))})>"


class Implementation:
    """One way to run an op: a forward with its gradient. The record's own is the reference."""

    def __init__(self, op, forward, formulas=None, vjp=None, residuals=()):
        self.op = op
        self.forward = forward
        self.formulas = formulas or {}
        self.vjp = vjp
        self.residuals = residuals
        self.names = (*op.inputs, *op.outputs_names, *residuals, *op.attrs, *PSEUDO)
        self.plans = {}
        self.replays = bool(residuals)  # whether a second derivative runs the reference again

    def checked(self, formula):
        """Returns a formula.

        Raises:
            TypeError: the formula uses a name that is not a value of this op.
        """
        for name in formula.names:
            if name not in self.names:
                raise TypeError(
                    f"{self.op.name}: a gradient formula names {name!r}, which is none of {', '.join(self.names)}."
                )
        return formula

    def wants(self, mask):
        """Whether any input that wants a gradient has a formula."""
        if self.vjp is not None:
            return True
        return any(mask >> i & 1 and name in self.formulas for i, name in enumerate(self.op.inputs))

    def plan(self, mask):
        """What to save and run when the inputs in `mask` (a bit for each) want gradients."""
        found = self.plans.get(mask)
        if found is None:
            found = self.plans[mask] = SavePlan(self, mask)
        return found


class SavePlan:
    """For one implementation and one set of inputs that want gradients: what is saved, which formulas run.

    Attributes:
        pick: function from the tuple of all values (in the order of `implementation.names`) to what is saved.
        formulas: (input's index, formula, positions of its arguments in `saved`).
        vjp, vjp_arguments, needed: the same for one function for all inputs.
        wanted: whether any input in the mask has a formula at all.
        inputs, out: which inputs, and which outputs, are among the saved.
        light: nothing but attributes, shapes and the like is saved.
        watches: an input or output is among the saved, so its version is noted.
        pick_arrays: as `pick` for a tuple of the inputs, the output and xp, if nothing else is saved; None otherwise.
        ports: number of differentiable outputs if there are several, else 0.
    """

    run = None  # autograd.Function puts its own here

    def __init__(self, implementation, mask):
        op = implementation.op
        count = mask.bit_length() if op.variadic else len(op.inputs)
        self.implementation = implementation
        self.op = op
        self.passes_float32 = op.passes_float32
        self.needs = tuple(bool(mask >> i & 1) for i in range(count))
        self.needed = tuple(i for i in range(count) if self.needs[i])
        self.ports = 0
        vjp = implementation.vjp
        if vjp is not None:
            wanted = dict.fromkeys(self.needed, vjp)
        else:
            own = implementation.formulas
            wanted = {i: own[op.input_name(i)] for i in self.needed if op.input_name(i) in own}
        names = []
        for f in wanted.values():
            names += [n for n in f.names if n not in names]
        if implementation.replays:
            names += [n for n in (*op.replayed, *op.attrs) if n not in names]
        self.names = tuple(names)
        self.wanted = implementation.wants(mask)
        self.needs_shapes, self.needs_dtypes, self.needs_accum = (
            word in names for word in ("shapes", "dtypes", "float32_accum")
        )
        self.no_accum = (False,) * count
        self.pick = _picker([implementation.names.index(n) for n in names])
        self.inputs = tuple(sorted(op.inputs.index(n) for n in names if n in op.inputs))
        self.out = tuple(op.outputs_names.index(n) for n in names if n in op.outputs_names)
        arrays = (*op.inputs, *op.outputs_names, *implementation.residuals)
        self.light = not any(n in arrays for n in names)
        self.watches = bool(self.inputs or self.out)
        arrays = (*op.inputs, "out", "xp")
        self.pick_arrays = self.picker(arrays) if op.outputs is None and set(names) <= set(arrays) else None
        positions = {i: tuple(names.index(n) for n in f.names) for i, f in wanted.items()}
        self.formulas = () if vjp else tuple((i, f.function, positions[i]) for i, f in wanted.items())
        self.vjp = vjp and vjp.function
        self.owned_sum = names.index("owned_sum") if "owned_sum" in names else None
        self.vjp_arguments = tuple(names.index(n) for n in vjp.names) if vjp else ()

    def picker(self, order):
        """Returns a function that takes the saved values out of a tuple in which they have the given order."""
        return _picker([order.index(n) for n in self.names])

    def with_ports(self, count):
        """A copy for a node with `count` differentiable outputs; the formulas then take lists."""
        cache = self.__dict__.setdefault("_by_ports", {})
        if count not in cache:
            copy = object.__new__(SavePlan)
            copy.__dict__.update({k: v for k, v in self.__dict__.items() if k != "_by_ports"})
            copy.ports = count
            cache[count] = copy
        return cache[count]


def _picker(positions):
    """Returns a function that takes the values at some positions out of a tuple, as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return itemgetter(slice(positions[0], positions[0] + 1) if positions else slice(0))
