"""ExportedProgram: the graph of a model with its parameters, and files of programs."""

import enum
import json
import operator
from dataclasses import dataclass, field

from ..arrays import device as Device
from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..files.serialization import load as load_archive
from ..files.serialization import save as save_archive
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import map_aggregate
from ..nn import Module, Parameter
from ..ops import everything  # noqa: F401 - files name all operations
from ..ops.dispatch.op import Op
from ..ops.dispatch.record import RECORDS
from ..utils import _pytree as pytree
from . import building, recording


class InputKind(enum.Enum):
    """Kinds of inputs of an exported graph."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4


class OutputKind(enum.Enum):
    """Kinds of outputs of an exported graph."""

    USER_OUTPUT = 1


@dataclass(frozen=True)
class TensorArgument:
    """Name of a node with a tensor.

    Attributes:
        name: the name.
    """

    name: str


@dataclass(frozen=True)
class InputSpec:
    """One input of an exported graph.

    Attributes:
        kind: the InputKind.
        arg: name of the placeholder.
        target: name of the parameter, buffer or constant; None for inputs of the user.
        persistent: True if the state dict contains the buffer; None for other inputs.
    """

    kind: InputKind
    arg: TensorArgument
    target: str | None
    persistent: bool | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One output of an exported graph.

    Attributes:
        kind: the OutputKind.
        arg: name of the node.
        target: None.
    """

    kind: OutputKind
    arg: TensorArgument
    target: str | None = None


@dataclass
class ExportGraphSignature:
    """Inputs and outputs of an exported graph.

    Attributes:
        input_specs: the inputs, in the order of the placeholders.
        output_specs: the outputs.
    """

    input_specs: list = field(default_factory=list)
    output_specs: list = field(default_factory=list)

    def _targets(self, kind):
        return tuple(s.target for s in self.input_specs if s.kind is kind)

    @property
    def parameters(self):
        """Names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self):
        """Names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def user_inputs(self):
        """Names of the placeholders of the user's inputs."""
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self):
        """Names of the output nodes."""
        return tuple(s.arg.name for s in self.output_specs)

    @property
    def inputs_to_parameters(self):
        """{placeholder: name of the parameter}."""
        return {s.arg.name: s.target for s in self.input_specs if s.kind is InputKind.PARAMETER}

    @property
    def inputs_to_buffers(self):
        """{placeholder: name of the buffer}."""
        return {s.arg.name: s.target for s in self.input_specs if s.kind is InputKind.BUFFER}


@dataclass
class Structure:
    """Structure of the arguments and the result of a model.

    Attributes:
        names: names of the tensors in the arguments.
        template: (args, kwargs) with the index of a tensor as `Slot`; other values are constants.
        result: template of the result.
    """

    names: list
    template: object
    result: object


@dataclass(frozen=True)
class Slot:
    """Position of a tensor in a list of tensors."""

    index: int


def template_of(tree, tensors):
    """Returns a nested value with a Slot for each tensor, and appends the tensors to a list."""

    def replace(x):
        if not isinstance(x, Tensor):
            return x
        tensors.append(x)
        return Slot(len(tensors) - 1)

    return pytree.tree_map(replace, tree)


def filled(template, values):
    """Returns a template with values for its Slots."""
    return pytree.tree_map(lambda x: values[x.index] if isinstance(x, Slot) else x, template)


class ExportedModule(Module):
    """A module with the inputs and results of the exported model. `ExportedProgram.module` creates it.

    Args:
        graph_module: module that runs the graph on a list of tensors.
        structure: structure of the arguments and the result.
        dynamic: {name of an input: {axis: Dim}}.
    """

    def __init__(self, graph_module, structure, dynamic):
        super().__init__()
        object.__setattr__(self, "_runs", graph_module)
        for name, child in graph_module.named_children():
            self.add_module(name, child)
        for name, p in graph_module.named_parameters(recurse=False):
            self.register_parameter(name, p)
        for name, b in graph_module.named_buffers(recurse=False):
            self.register_buffer(name, b)
        self._structure, self._dynamic = structure, dynamic

    @property
    def graph(self):
        """The graph."""
        return self._runs.graph

    @property
    def code(self):
        """The Python code of the graph."""
        return self._runs.code

    def forward(self, *args, **kwargs):
        """Runs the program.

        Args:
            args: positional arguments, with the structure of the example.
            kwargs: keyword arguments, with the structure of the example.

        Raises:
            ValueError: the structure, a dtype or a size differs from the example.
        """
        tensors = []
        template = template_of((tuple(args), dict(kwargs)), tensors)
        if template != self._structure.template:
            raise ValueError(
                f"ExportedModule: expected arguments with the structure of the example, {self._structure.template}, got {template}. "
                "Pass the same arguments as to export."
            )
        sizes = {}
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        for node, tensor in zip(placeholders, tensors, strict=True):
            self._check(node, tensor, sizes)
        return filled(self._structure.result, self._runs(*tensors))

    def _check(self, node, tensor, sizes):
        shape = node.meta["shape"]
        if tensor.ndim != len(shape) or dtypes.as_dtype(tensor.dtype).name != node.meta["dtype"]:
            raise ValueError(
                f"ExportedModule: expected {node.meta['dtype']} with {len(shape)} dimensions for input {node.target}, got {tensor.dtype} with {tensor.ndim}."
            )
        axes = self._dynamic.get(node.target, {})
        for axis, (size, expected) in enumerate(zip(tensor.shape, shape, strict=True)):
            dim = axes.get(axis)
            if dim is None:
                if size != expected:
                    raise ValueError(
                        f"ExportedModule: expected size {expected} in dimension {axis} of input {node.target}, got {size}. Declare it in dynamic_shapes to change it."
                    )
                continue
            root, rest = divmod(size - dim.offset, dim.factor)
            name = dim.root.__name__
            if (
                rest
                or sizes.setdefault(name, root) != root
                or root < dim.root.min
                or (dim.root.max is not None and root > dim.root.max)
            ):
                raise ValueError(
                    f"ExportedModule: expected size {dim} in dimension {axis} of input {node.target}, got {size}"
                    + (f" with {name}={sizes[name]}" if name in sizes and sizes[name] != root else "")
                    + "."
                )


class ExportedProgram:
    """A model as a graph of operations with its parameters. `export` creates it.

    Attributes:
        graph_module: GraphModule in which parameters, buffers and constants are inputs.
        graph_signature: the ExportGraphSignature.
        state_dict: {name: parameter or buffer}.
        constants: {name: tensor} of constants.
        dynamic: {name of an input: {axis: Dim}}.

    Args:
        inner: GraphModule that contains the parameters.
        structure: structure of the arguments and the result.
        dynamic: see above.
        parameters: {name: parameter}.
        buffers: {name: buffer}.
        constants: see above.
        example_inputs: (args, kwargs) of the example, or None.
    """

    def __init__(self, inner, structure, dynamic, parameters, buffers, constants, example_inputs=None):
        self._inner, self._structure, self.dynamic = inner, structure, dynamic
        self._parameters, self._buffers, self.constants = parameters, buffers, constants
        self.example_inputs = example_inputs
        self.graph_module, self.graph_signature = self._lifted()

    @property
    def graph(self):
        """The graph in which parameters, buffers and constants are inputs."""
        return self.graph_module.graph

    @property
    def state_dict(self):
        """{name: parameter or buffer}."""
        return {**self._parameters, **self._buffers}

    @property
    def range_constraints(self):
        """{name of a size: (smallest, largest value)} of the dynamic sizes."""
        return {d.root.__name__: (d.root.min, d.root.max) for axes in self.dynamic.values() for d in axes.values()}

    def named_parameters(self):
        """Yields (name, parameter)."""
        yield from self._parameters.items()

    def named_buffers(self):
        """Yields (name, buffer)."""
        yield from self._buffers.items()

    def parameters(self):
        """Yields the parameters."""
        yield from self._parameters.values()

    def buffers(self):
        """Yields the buffers."""
        yield from self._buffers.values()

    def module(self):
        """Returns a module with the inputs and results of the exported model. It shares the parameters."""
        return ExportedModule(self._inner, self._structure, self.dynamic)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self):
        code = self.graph_module.print_readable(print_output=False)
        inputs = "\n".join(
            f"    {s.arg.name}: {s.kind.name}" + (f" target={s.target!r}" if s.target else "")
            for s in self.graph_signature.input_specs
        )
        return f"ExportedProgram:\n{code}\nGraph signature:\n{inputs}\nRange constraints: {self.range_constraints}\n"

    def _lifted(self):
        """Returns the module and signature with parameters as inputs."""
        inner, graph, values = self._inner.graph, Graph(), {}
        specs, user = [], []
        targets = list(dict.fromkeys(n.target for n in inner.nodes if n.op == "get_attr"))
        kinds = [
            (InputKind.PARAMETER, "p_", self._parameters), (InputKind.BUFFER, "b_", self._buffers),
            (InputKind.CONSTANT_TENSOR, "c_", self.constants),
        ]  # fmt: skip
        nodes = {}
        for kind, prefix, named in kinds:
            for target in targets:
                if target in named:
                    nodes[target] = graph.placeholder(prefix + target.strip("_").replace(".", "_"))
                    persistent = True if kind is InputKind.BUFFER else None
                    specs.append(InputSpec(kind, TensorArgument(nodes[target].name), target, persistent))
        for node in inner.nodes:
            if node.op == "placeholder":
                values[node] = graph.node_copy(node)
                user.append(InputSpec(InputKind.USER_INPUT, TensorArgument(values[node].name), None))
            elif node.op == "get_attr":
                values[node] = nodes[node.target]
                values[node].meta = dict(node.meta)
        outputs = []
        for node in inner.nodes:
            if node.op == "output":
                result = map_aggregate(
                    node.args[0], lambda v: values.get(v, v) if not isinstance(v, (list, dict)) else v
                )
                graph.output(result)
                outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(str(r))) for r in result]
            elif node not in values:
                values[node] = graph.node_copy(node, lambda n: values[n])
        return GraphModule(Module(), graph), ExportGraphSignature(specs + user, outputs)


def assemble(graph, tensors):
    """Returns a GraphModule for a graph and {name: tensor}."""
    root = Module()
    for name, tensor in tensors.items():
        *prefix, last = name.split(".")
        owner = root
        for part in prefix:
            if part not in owner._modules:
                owner.add_module(part, Module())
            owner = owner._modules[part]
        if isinstance(tensor, Parameter):
            owner.register_parameter(last, tensor)
        else:
            owner.register_buffer(last, tensor)
    used = {n.target for n in graph.nodes if n.op == "get_attr"}
    made = GraphModule(root, graph)
    assert used <= tensors.keys()
    return made


# -- files -------------------------------------------------------------------------------------------------------------

_FUNCTIONS = {
    f"operator.{name}": getattr(operator, name) for name in "add sub mul floordiv getitem".split()
} | {
    f"export.{f.__name__}": f
    for f in (building.sym_size, building._reciprocal, recording.write_region, recording.set_item, recording.constant, recording.lstm, recording.gru, recording.rnn, float)
}  # fmt: skip
_NAMES = {f: name for name, f in _FUNCTIONS.items()}


def _functions():
    return {**_FUNCTIONS, **{f"atom.{f.__module__.rpartition('.')[2]}.{f.__name__}": f for f in recording.atoms()}}


def _encode(value, names):
    """Returns a value as JSON: containers with a tag."""
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, list):
        return {"list": [_encode(v, names) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [_encode(v, names) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(k, names), _encode(v, names)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"slice": [_encode(v, names) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, dtypes.dtype):
        return {"dtype": value.name}
    if isinstance(value, Device):
        return {"device": str(value)}
    if value is Ellipsis:
        return {"ellipsis": 0}
    if isinstance(value, Slot):
        return {"slot": value.index}
    if isinstance(value, Op):
        return {"op": value.name}
    if value in names:
        return {"function": names[value]}
    raise TypeError(
        f"export.save: expected numbers, strings, dtypes and operations in the graph, got {type(value).__name__}."
    )


def _decode(value, functions, nodes):
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()

    def each(items):
        return [_decode(v, functions, nodes) for v in items]

    if tag == "dict":
        return {_decode(k, functions, nodes): _decode(v, functions, nodes) for k, v in inner}
    convert = {
        "float": float, "list": each, "tuple": lambda v: tuple(each(v)), "slice": lambda v: slice(*each(v)),
        "dtype": lambda v: dtypes.as_dtype(v), "device": Device, "ellipsis": lambda v: Ellipsis, "slot": Slot,
        "op": RECORDS.__getitem__, "function": functions.__getitem__, "node": nodes.__getitem__,
    }  # fmt: skip
    return convert[tag](inner)


def save(ep, f):
    """Saves an exported program. The file contains no code.

    Args:
        ep: the ExportedProgram.
        f: path or file object.

    Example:
        >>> import io
        >>> ep = mytorch.export.export(nn.Linear(2, 1), (mytorch.ones(1, 2),))
        >>> file = io.BytesIO()
        >>> mytorch.export.save(ep, file)
        >>> _ = file.seek(0)
        >>> mytorch.export.load(file).module()(mytorch.ones(1, 2)).shape
        mytorch.Size([1, 1])
    """
    names = {function: name for name, function in _functions().items()}

    class _Node(dict):
        pass

    nodes = []
    for n in ep._inner.graph.nodes:
        args, kwargs = map_aggregate((n.args, n.kwargs), lambda v: v)

        def encode(value):
            if hasattr(value, "op") and hasattr(value, "users"):
                return {"node": value.name}
            if isinstance(value, tuple):
                return {"tuple": [encode(v) for v in value]}
            if isinstance(value, list):
                return {"list": [encode(v) for v in value]}
            if isinstance(value, dict):
                return {"dict": [[k, encode(v)] for k, v in value.items()]}
            if isinstance(value, slice):
                return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
            return _encode(value, names)

        target = n.target if isinstance(n.target, str) else _encode(n.target, names)
        meta = {
            key: _encode(n.meta[key], names)
            for key in ("shape", "dtype", "example_shape", "example", "stack_trace")
            if key in n.meta
        }
        nodes.append([n.op, n.name, target, encode(args), encode(dict(kwargs)), meta])
    dynamic = {
        name: {str(axis): [d.root.__name__, d.factor, d.offset, d.root.min, d.root.max] for axis, d in axes.items()}
        for name, axes in ep.dynamic.items()
    }
    structure = [ep._structure.names, _encode(ep._structure.template, names), _encode(ep._structure.result, names)]
    text = json.dumps({"version": 1, "nodes": nodes, "dynamic": dynamic, "structure": structure})
    tensors = {
        "parameters": {k: v.detach() for k, v in ep._parameters.items()}, "buffers": dict(ep._buffers), "constants": dict(ep.constants),
    }  # fmt: skip
    save_archive({"exported_program": text, **tensors}, f)


def load(f):
    """Loads an exported program that `save` wrote. No code of the file runs.

    Args:
        f: path or file object.

    Raises:
        ValueError: the file does not contain an exported program.
    """
    from .sizes import Dim

    found = load_archive(f)
    if not isinstance(found, dict) or "exported_program" not in found:
        raise ValueError(
            "export.load: expected a file of export.save, got another file. Use mytorch.load for state dicts."
        )
    content = json.loads(found["exported_program"])
    functions, graph, nodes = _functions(), Graph(), {}
    for op, name, target, args, kwargs, meta in content["nodes"]:
        target = _decode(target, functions, nodes)
        node = graph.create_node(op, target, _decode(args, functions, nodes), _decode(kwargs, functions, nodes), name)
        node.name = name
        node.meta = {key: _decode(value, functions, nodes) for key, value in meta.items()}
        nodes[name] = node
    roots, dynamic = {}, {}
    for name, axes in content["dynamic"].items():
        for axis, (root, factor, offset, low, high) in axes.items():
            base = roots.setdefault(root, Dim(root, min=low, max=high))
            derived = base if (factor, offset) == (1, 0) else factor * base + offset
            dynamic.setdefault(name, {})[int(axis)] = derived
    names, template, result = content["structure"]
    structure = Structure(names, _decode(template, functions, nodes), _decode(result, functions, nodes))
    parameters = {k: Parameter(v, requires_grad=v.dtype.is_floating_point) for k, v in found["parameters"].items()}
    inner = assemble(graph, {**parameters, **found["buffers"], **found["constants"]})
    return ExportedProgram(inner, structure, dynamic, parameters, found["buffers"], found["constants"])
