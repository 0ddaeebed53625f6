"""The definition of an op: a **record** with a forward function, gradient formulas, and rules.

The forward function computes with raw arrays. Each input has a gradient formula. This is a complete definition:

    @op()
    def softplus(xp, input, *, beta=1.0):
        '''log(1 + exp(beta * input)) / beta, elementwise. …'''
        return xp.logaddexp(beta * input, 0.0) / beta

    softplus.grad(input=lambda g, input, beta, xp: g / (1 + xp.exp(-beta * input)))

Forward function:

* `xp` is the array namespace: NumPy, CuPy (arrays/), or the namespace over Tensors (autograd/tensor_ns.py).
* Positional parameters are inputs, which are tensors. Keyword-only parameters are attributes, which are plain values.
* An op with several outputs returns a tuple. An op with residuals returns its outputs followed by the residuals.

Gradient formulas:

* The first parameter of a formula is the upstream gradient.
* **The other parameters name the values that the op saves for backward.** They can be inputs, `out`, residuals,
  attributes, and the names below. Other names raise an error at import.
* `xp` is the namespace, `shape` the shape of the first input, `shapes` and `dtypes` the shapes and dtypes of all inputs.
* `needs` contains True for each input that requires a gradient.
* `float32_accum` contains True for each input that autocast cast from float32. Its gradient can stay in float32.
* `owned_sum` is the current gradient of the first input, if there is no other reference to it. The formula can add to it
  in place and return None.
* A formula runs only if its input requires a gradient. Values that no running formula uses are not saved.
* A formula is pure: it has no in-place operations and no branches on values, and it calls functions of `xp` instead of
  array methods. The same code then runs on raw arrays, and on Tensors for `create_graph=True`. It must not return a saved
  array unchanged.
* Formulas need not handle broadcasting, since the engine sums each gradient to the shape of its input.
* Instead of one formula per input, an op can have a single `.vjp` that returns a gradient for each input.

Rules:

* `residuals=("mean", "rstd")`: names of extra results for backward. They are not differentiable. For a second derivative,
  the reference forward runs again over Tensors, so it can use only functions of `tensor_ns`. It needs the inputs for that.
* `saves_sum=True`: the op uses its first two inputs only as their sum, which is its first output. The sum is saved instead
  of both inputs, and the second run of forward receives the sum and None.
* `outputs=("values", "indices")`: names of the outputs. The first `differentiable` ones (default: 1) have gradients; with
  several, formulas receive a list of gradients. `outputs="list"` stands for any number of outputs.
* `differentiable=0`: the op has no gradient, as a sign or an index, and its results are constants for backward. Without this rule, an
  op without formulas raises an error when backward reaches it. Results that are not floating-point or complex are always constants.
* `undefined_grads=True`: the gradient of an unused output is None instead of zeros.
* `autocast=`: precision of the inputs under autocast on a GPU: "half", "float32", or "promote" for no cast. If the op has
  an attribute `dtype` for its result, "float32" sets the attribute instead of casting the inputs. For a CPU, the table
  `ON_CPU` has the precision of each op by its name.
* `dtype=`: "promote" promotes the inputs, or the inputs in `promoted`, by PyTorch's rules. "float" also converts integers
  to the default dtype. "same" does not convert the inputs.
* `integers=("index",)`: names of the last inputs, if they contain indices, classes or masks. They have no gradient and
  keep their dtype, and they do not affect the dtype of the result. Formulas receive them as raw arrays, also over Tensors.
  A variadic input is a tuple in a formula.
* `view=True`: the result can share the memory of the input.
* `elementwise=True`: each element of the result depends on the input elements at the same position. "exact" also means
  that values are selected or compared, without rounding. On a CPU, the library's own ops receive large arrays in parts, on several
  threads at once (kernels/parts.py), so their functions keep no state.
* `half=`: where float16 and bfloat16 are computed in float32 and rounded once (half.py): "cpu", "everywhere" (also on a GPU, if no
  kernel runs), or "forward" (everywhere, but not in gradients, which move values or which PyTorch composes of functions that round).
  "itself" passes half precision to an op that has kernels for it, rounds where PyTorch does, or only moves values. The default is "cpu" for ops that promote their inputs, and "itself" for views and for
  ops with `dtype="same"` or `elementwise="exact"`.
* `layout=`: the rule for the order of the result's axes in memory (arrays/memory_format.py). By default, results of elementwise
  ops follow their operands (`iterator`), and other results are in row-major order (`in_rows`). None leaves a result as it is.
* `xp_name=`: name of the op in NumPy. Formulas over Tensors find it by this name (autograd/tensor_ns.py).
* `holomorphic=True`: the formulas hold for real numbers. For complex results, the engine conjugates gradients before and
  after a formula, so that gradients are dL/dx + i dL/dy. Set it to False for ops that are not complex-differentiable
  (conj, abs, views as pairs of real numbers), and for formulas that conjugate themselves.
* `passes_float32=True`: the gradient of a half-precision result can arrive in float32. Used by casts.
* `grad_name=`: name of the node without "Backward", if it is not the capitalized name of the op, such as "ReLU". "{d}"
  stands for the number of spatial dimensions of the result.

`.register_kernel(cpu="mytorch.kernels.numba.gelu", cuda=…)` registers kernel modules with the functions `accepts` and
`forward`, and optionally `vjp` and `residuals`. They are imported at first use. kernels/registry.py selects the kernel.

`op.py` runs ops, and `bind.py` binds them to public names.
"""

import inspect
import sys
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...arrays import numpy_ns
from ...arrays.arguments import names_of
from ...arrays.memory_format import in_rows, iterator
from ...kernels import parts
from ...kernels.registry import Kernels
from .checked import checked, is_users
from .refused import characters

PSEUDO = ("xp", "shape", "shapes", "dtypes", "needs", "float32_accum", "owned_sum")
# Precision under autocast on a CPU, by the name of the op or function, from PyTorch's lists (ATen/autocast_mode.cpp): "half",
# "float32", or "widest" for the widest dtype of the inputs. An op without an entry keeps the dtypes of its inputs. A
# function without an entry that has the decorator `in_precision` does so, too, and its ops run without autocast; the entry
# "inside" stands for a function that runs its ops with autocast.
ON_CPU = {
    **dict.fromkeys(
        """
        addbmm addmm baddbmm convolution convolution_input einsum linear matmul prelu
        scaled_dot_product_attention vecdot
        """.split(),
        "half",
    ),
    **dict.fromkeys(
        """
        adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky
        cholesky_inverse cosine_embedding_loss cross_entropy ctc_loss eig eigh fft fractional_max_pool2d
        fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices geqrf grid_sample gru
        hinge_embedding_loss householder_product huber_loss inverse kl_div l1_loss linalg_solve linalg_solve_triangular lstm lstsq lu lu_solve
        margin_ranking_loss matrix_rank max_pool3d max_unpool1d max_unpool2d max_unpool3d mse_loss
        multi_margin_loss multilabel_margin_loss nanquantile nll_loss ormqr pinv poisson_nll_loss polar prod qr quantile reflection_pad1d
        reflection_pad2d replication_pad1d replication_pad2d replication_pad3d rnn smooth_l1_loss soft_margin_loss svd trace triangular_solve triplet_margin_loss view_as_complex
        """.split(),
        "float32",
    ),
    "index_copy": "widest",
    **dict.fromkeys("chain_matmul inner tensordot".split(), "inside"),
}
RECORDS = {}  # name -> Record, for tests and documentation


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

    keeps_saved = (
        False  # True: a later change in place of a saved array is allowed, as in PyTorch, which saves other arrays
    )
    # True: Python numbers are not rounded to the half precision of the tensors. "other": the second input is not.
    keeps_python_scalars_float32 = False
    reruns = False  # True: attributes are never freed, so backward can run again, as where PyTorch saves only numbers

    def __init__(
        self, forward, *, dtype="promote", promoted=None, residuals=(), outputs=None, differentiable=1, undefined_grads=False,
        saves_sum=False, view=False, autocast="promote", xp_name=None, name=None, holomorphic=True,
        grad_name=None, elementwise=False, passes_float32=False, integers=(), layout="", half=None,
    ):  # fmt: skip
        self.name = name or forward.__name__
        self.__doc__ = forward.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__ = forward.__module__
        self.forward = checked(self, forward, residuals) if is_users(forward) else forward
        self.array_function = getattr(forward, "array_function", None)
        code = forward.__code__
        if not code.co_argcount:
            raise TypeError(f"{self.name}: expected a forward function with the parameters (xp, input, ...), got none.")
        if code.co_argcount == 1 and code.co_varnames[0] != "xp" and not code.co_flags & inspect.CO_VARARGS:
            raise TypeError(
                f"{self.name}: expected a forward function with the parameters (xp, input, ...), got ({code.co_varnames[0]}). "
                "Put xp first."
            )
        named = code.co_argcount + code.co_kwonlyargcount
        self.variadic = bool(code.co_flags & inspect.CO_VARARGS)
        rest = code.co_varnames[named : named + 1] if self.variadic else ()
        self.inputs = code.co_varnames[1 : code.co_argcount] + rest
        self.integers = tuple(integers)
        assert self.integers == self.inputs[len(self.inputs) - len(integers) :], (
            f"{self.name}: integer inputs come last"
        )
        # Position of the first integer input; without one, a number that no position reaches, so that slices take all inputs.
        self.floats = len(self.inputs) - len(integers) if integers else sys.maxsize
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
        self.refused = characters(self.name)
        promoted = promoted or (self.inputs[: self.floats] if integers else ())
        self.promoted = tuple(self.inputs.index(n) for n in promoted) or None
        self.autocast = autocast
        self.autocast_cpu = ON_CPU.get(self.name, "promote")
        self.view = view
        self.elementwise = elementwise
        # Size of a result from which NumPy's work is divided. A program's own function always gets whole arrays.
        self.divides = bool(elementwise) and not is_users(forward)
        self.divided_from = parts.LEAST if self.divides and self.name not in parts.WHOLE else sys.maxsize
        exempt = view or dtype == "same" or elementwise == "exact"
        self.half = half or ("itself" if exempt else "cpu")
        # The rule for the memory order of results, a function of arrays/memory_format.py; None: as forward returns them.
        self.layout = (None if view else iterator if elementwise else in_rows) if layout == "" else layout
        self.passes_float32 = passes_float32
        self.holomorphic = holomorphic
        self.torch_name = "".join(part.capitalize() for part in self.name.strip("_").split("_")) + "Backward"
        self.grad_name = self.torch_name if grad_name is None else grad_name + "Backward"
        self.reference = Implementation(self, self.forward, residuals=self.residuals)
        self.kernels = Kernels(self.name)
        self.fused_on = frozenset()  # device types with kernels
        self.signature_extras = ("out",)  # arguments in the signature other than inputs and attributes
        self.implementations = {}  # kernel module -> Implementation
        self.xp_name = xp_name
        RECORDS[self.name] = self

    def grad(self, **formulas):
        """Sets the gradient formulas. An input without a formula has no gradient.

        Args:
            formulas: {name of an input: function of the upstream gradient and of saved values}.

        Returns:
            This op.

        Raises:
            TypeError: a name is not an input, or a formula has an unknown parameter.
        """
        self._check_differentiable()
        for name, _formula in formulas.items():
            if name not in self.inputs:
                raise TypeError(f"{self.name}: {name!r} is not an input; the inputs are {', '.join(self.inputs)}.")
        self.reference.formulas = {name: self.reference.checked(formula_of(f)) for name, f in formulas.items()}
        self._forget_plans()
        return self

    def vjp(self, function):
        """Sets one function for all gradients.

        Args:
            function: function of the upstream gradient and of saved values. It returns a gradient, or None, for each input.

        Returns:
            This op.
        """
        self._check_differentiable()
        self.reference.vjp = self.reference.checked(formula_of(function))
        self._forget_plans()
        return self

    def in_parts(self, function, *operands):
        """Returns function(*operands) for large arrays, computed in parts. For floats, the ufunc `xp_name` replaces the function."""
        ufunc = getattr(numpy_ns, self.xp_name, None) if self.xp_name else None
        return parts.elementwise(self.name, function, *operands, ufunc=ufunc if type(ufunc) is np.ufunc else None)

    def _check_differentiable(self):
        if not self.differentiable:
            raise TypeError(f"{self.name}: the op was declared with differentiable=0, so it has no gradient formulas.")

    def _forget_plans(self):
        """Drops what earlier calls derived from the gradient formulas, so that new formulas apply from the next call on."""
        self.implementations.clear()
        self.reference.plans.clear()
        for forget in self.reference.cached_by:
            forget()

    def register_kernel(self, **paths):
        """Registers kernel modules, which are imported at first use.

        Args:
            paths: {type of device: path}, such as `cpu="package.module"` or `cuda="package.module:name"`.

        Returns:
            This op.
        """
        self.kernels.add(**paths)
        self.fused_on = frozenset(self.kernels.of)
        self.signature_extras = ("fused", "out")
        return self

    fuse = register_kernel  # deprecated name

    def by_kernel(self, module):
        """Returns the implementation of a kernel module."""
        found = self.implementations.get(module)
        if found is None:
            vjp, formulas = getattr(module, "vjp", None), getattr(module, "formulas", None)
            residuals = tuple(getattr(module, "residuals", self.residuals))
            forward = module.forward
            if is_users(forward):
                forward = checked(self, forward, residuals, inputs=False)
            found = Implementation(self, forward, self.reference.formulas, self.reference.vjp, residuals)
            found.is_kernel = True
            found.replays = self.reference.replays or self.saves_sum or not self.is_differentiable
            if vjp is not None:
                found.vjp = found.checked(formula_of(vjp))
            elif formulas is not None:
                found.vjp, found.formulas = None, {n: found.checked(formula_of(f)) for n, f in formulas.items()}
            self.implementations[module] = found
        return found

    def input_name(self, i):
        """Returns the name of the input at a position. All values of a variadic input have its name."""
        return self.inputs[min(i, len(self.inputs) - 1)]

    def by_name(self, values):
        """Returns one value for each name of an input. The values of a variadic input are a tuple."""
        return [*values[: len(self.inputs) - 1], tuple(values[len(self.inputs) - 1 :])] if self.variadic else [*values]

    @property
    def __wrapped__(self):
        """The function by which `inspect.getsource` finds the definition: the forward function, or the gradient in a row of a table."""
        formulas = [self.reference.vjp, *self.reference.formulas.values()]
        written = (self.forward, *(formula.function for formula in formulas if formula is not None))
        return next((f for f in written if "<locals>" not in f.__qualname__.partition(".<lambda>")[0]), self.forward)

    @property
    def is_differentiable(self):
        """True if the op has gradient formulas."""
        return bool(self.reference.formulas) or self.reference.vjp is not None

    @property
    def lacks_gradient(self):
        """True if the op has no gradient formulas and is not declared as not differentiable."""
        return not self.is_differentiable and bool(self.differentiable)

    def raise_no_gradient(self, *_):
        """Raises the error of an op that lacks a gradient."""
        raise NotImplementedError(
            f"derivative of '{self.name}' is not implemented. Set it with {self.name}.grad({self.inputs[0]}=...), or declare the op with "
            "@op(differentiable=0)."
        )

    @property
    def __signature__(self):
        """The signature for `help()`: inputs, then attributes."""
        parameter, parameters = inspect.Parameter, []
        own = inspect.signature(self.forward).parameters.values()
        for p in list(own)[1:]:
            positional = p.kind is parameter.KEYWORD_ONLY and not self.variadic
            parameters.append(p.replace(kind=parameter.POSITIONAL_OR_KEYWORD) if positional else p)
        seen_default = False
        for i, p in enumerate(parameters):  # required attributes after optional inputs are keyword-only
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
    """A forward function with its gradient: the reference implementation of an op, or a kernel."""

    def __init__(self, op, forward, formulas=None, vjp=None, residuals=()):
        self.op = op
        self.forward = forward
        self.formulas = formulas or {}
        self.vjp = vjp
        self.residuals = residuals
        self.names = (*op.inputs, *op.outputs_names, *residuals, *op.attrs, *PSEUDO)
        self.plans = {}
        self.cached_by = []  # functions that drop the plans that fast calls keep
        self.is_kernel = False
        self.rounds = False  # True: it rounds its results to the half precision of its inputs
        self.replays = bool(residuals)  # True: a second derivative runs the reference again

    def checked(self, formula):
        """Returns a formula after a check of its parameters.

        Raises:
            TypeError: a parameter is not a value of this op.
        """
        for name in formula.names:
            if name not in self.names:
                raise TypeError(
                    f"{self.op.name}: unknown parameter {name!r} of a gradient formula, expected {', '.join(self.names)}."
                )
        return formula

    def wants(self, mask):
        """Returns True if an input in `mask`, which requires a gradient, has a formula."""
        if self.vjp is not None:
            return True
        return any(mask >> i & 1 and name in self.formulas for i, name in enumerate(self.op.inputs))

    def plan(self, mask):
        """Returns the SavePlan for inputs that require gradients. `mask` has a bit for each input."""
        # A network calls an op with few different masks, so names are matched to positions once and not in each call.
        found = self.plans.get(mask)
        if found is None:
            found = self.plans[mask] = SavePlan(self, mask)
        return found


class SavePlan:
    """The saved values and the formulas to run, for one implementation and one set of inputs that require gradients.

    Attributes:
        pick: function from the tuple of all values, in the order of `implementation.names`, to the saved values.
        formulas: tuples (index of the input, formula, positions of its arguments in `saved`).
        vjp: the function for all gradients, or None.
        vjp_arguments: positions of its arguments in `saved`.
        needed: indices of the inputs that require gradients.
        recorded: (vjp, vjp_arguments, formulas) for a recorded backward pass on Tensors. For a kernel, it is taken from
            the reference.
        wanted: True if an input in the mask has a formula, or the op lacks a gradient, which is an error in backward.
        floats_only: True if only floating-point and complex results get a node, because the op lacks a gradient.
        inputs: positions of the saved inputs.
        out: positions of the saved outputs.
        light: True if only attributes, shapes and other small values are saved.
        watches: True if an input or output is saved, so that its version must be stored.
        pick_arrays: `pick` for a tuple of the inputs, the output and `xp`; None if other values are saved.
        ports: number of differentiable outputs; 0 for a single one.
        divides: True if the formulas of an elementwise op can compute a part of a large gradient.
    """

    run = None  # autograd.Function sets it

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
        self.floats_only = op.lacks_gradient and vjp is None and not implementation.formulas
        if self.floats_only:
            vjp = Formula(op.raise_no_gradient, ())
        if vjp is not None:
            wanted = dict.fromkeys(self.needed, vjp)
        else:
            own = implementation.formulas
            wanted = {i: own[op.input_name(i)] for i in self.needed if op.input_name(i) in own}
        # Only what the running formulas mention is saved: x * w with a constant x needs x for the gradient of w, but never w.
        names = []
        for f in wanted.values():
            names += [n for n in f.names if n not in names]
        # A kernel cannot run on Tensors, so a recorded backward pass uses the formulas of the reference, or its forward again. The values
        # that these need are saved as well.
        second = wanted
        if implementation.replays:
            names += [n for n in (*op.replayed, *op.attrs) if n not in names]
        elif implementation.is_kernel:
            second = op.reference.plan(mask).gradients
            names += [n for f in second.values() for n in f.names if n not in names]
        self.names = tuple(names)
        self.wanted = self.floats_only or implementation.wants(mask)
        self.needs_shapes, self.needs_dtypes, self.needs_accum = (
            word in names for word in ("shapes", "dtypes", "float32_accum")
        )
        self.divides = (
            op.divides
            and not implementation.is_kernel
            and not {"shape", "shapes", "needs", "float32_accum", "owned_sum"}.intersection(names)
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
        self.gradients = wanted
        self.vjp, self.vjp_arguments, self.formulas = _bound(vjp, wanted, names)
        self.recorded = self.vjp, self.vjp_arguments, self.formulas
        if second is not wanted:
            self.recorded = _bound(op.reference.vjp, second, names)
        self.owned_sum = names.index("owned_sum") if "owned_sum" in names else None

    def picker(self, order):
        """Returns a function that selects the saved values from a tuple with the given order."""
        return _picker([order.index(n) for n in self.names])

    def with_ports(self, count):
        """Returns a copy for a node with `count` differentiable outputs. Its formulas receive lists of gradients."""
        # A copy, because all calls share the plan, while `split` has another number of outputs in each of them.
        cache = self.__dict__.setdefault("_by_ports", {})
        if count not in cache:
            copy = object.__new__(SavePlan)
            copy.__dict__.update({k: v for k, v in self.__dict__.items() if k != "_by_ports"})
            copy.ports = count
            cache[count] = copy
        return cache[count]


def _bound(vjp, gradients, names):
    """Returns (vjp, vjp_arguments, formulas), as `SavePlan` stores them."""
    if vjp is not None:
        return vjp.function, tuple(names.index(n) for n in vjp.names), ()
    return None, (), tuple((i, f.function, tuple(names.index(n) for n in f.names)) for i, f in gradients.items())


def _picker(positions):
    """Returns a function that selects the values at some positions from a tuple, as a tuple."""
    # An itemgetter runs in C. With one position it would return the value without a tuple, so a slice replaces it.
    if len(positions) > 1:
        return itemgetter(*positions)
    return itemgetter(slice(positions[0], positions[0] + 1) if positions else slice(0))
