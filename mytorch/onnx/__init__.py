"""ONNX files: `export` converts a model for other runtimes, such as ONNX Runtime.

The model is exported to a graph of operations first (`mytorch.export`), and each operation is translated. The package `onnx` is
required: `pip install ".[onnx]"`.
"""

import operator
import os
import tempfile

import numpy as np

from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..compat.onnx_symbolic import TensorProtoDataType, register_custom_op_symbolic
from ..export import Dim, ExportedProgram, program_of
from ..files.writing import atomic_write
from ..fx.node import Node, map_aggregate, map_arg
from ..nn import Module
from ..nn.parameter import Parameter
from ..ops.dispatch.op import Op
from ..ops.dispatch.unwrap import to_cpu
from ..utils import _pytree as pytree
from ..version import __version__
from .translations import TABLE, Call, Size, Unsupported, Value
from .writer import Writer

__all__ = ["ONNXProgram", "OnnxExporterError", "UnsupportedOperatorError", "export", "is_in_onnx_export"]

_MAX_FILE = 2**31 - 1  # a protobuf message has at most 2 GiB
_active = [False]
_IRRELEVANT = ("device", "requires_grad", "pin_memory", "layout", "out", "memory_format")


class OnnxExporterError(RuntimeError):
    """Raised for models that cannot be exported to ONNX."""


class UnsupportedOperatorError(OnnxExporterError):
    """Raised for an operation without a translation. The message has its name and the line of the program."""


def is_in_onnx_export():
    """Returns True while `export` runs the model."""
    return _active[0]


def _package():
    try:
        import onnx
        import onnx.numpy_helper
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'onnx.export: expected the package onnx, got none. Install it: pip install ".[onnx]".', name=error.name
        ) from None
    return onnx


class ONNXProgram:
    """An exported model.

    Attributes:
        model_proto: the `onnx.ModelProto`.
        exported_program: the ExportedProgram.
        input_names: names of the inputs.
        output_names: names of the outputs.
    """

    def __init__(self, model_proto, exported_program, input_names, output_names):
        self.model_proto, self.exported_program = model_proto, exported_program
        self.input_names, self.output_names = input_names, output_names

    def save(self, destination, *, external_data=None):
        """Writes the model to a file.

        Args:
            destination: path or file object.
            external_data: True to store the weights in a second file `destination.data` (default: only for models of more than
                2 GB).
        """
        onnx = _package()
        if hasattr(destination, "write"):
            destination.write(self.model_proto.SerializeToString())
            return
        path = os.fspath(destination)
        if external_data is None:
            external_data = self.model_proto.ByteSize() >= _MAX_FILE
        if not external_data:
            atomic_write(path, self.model_proto.SerializeToString())
            return
        folder, name = os.path.split(os.path.realpath(path))
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model_proto)
        # onnx would append the weights to an existing file.
        with tempfile.TemporaryDirectory(dir=folder) as new:
            onnx.save_model(
                copy, os.path.join(new, name), save_as_external_data=True, location=name + ".data", size_threshold=1024
            )
            for part in (name + ".data", name):
                if os.path.exists(written := os.path.join(new, part)):
                    with open(written, "rb") as file:
                        os.fsync(file.fileno())
                    os.replace(written, os.path.join(folder, part))

    def __call__(self, *args, **kwargs):
        """Runs the model with ONNX Runtime.

        Args:
            args: positional arguments of the model.
            kwargs: keyword arguments of the model.

        Returns:
            The list of output tensors.
        """
        import onnxruntime

        if not hasattr(self, "_session"):
            self._session = onnxruntime.InferenceSession(
                self.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
            )
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        feeds = {name: to_cpu(x) for name, x in zip(self.input_names, tensors, strict=True)}
        used = {i.name for i in self._session.get_inputs()}
        return [Tensor._wrap(r) for r in self._session.run(None, {k: v for k, v in feeds.items() if k in used})]


def export(
    model, args=(), f=None, *, kwargs=None, export_params=True, verbose=None, input_names=None, output_names=None, opset_version=None,
    dynamic_axes=None, dynamic_shapes=None, do_constant_folding=True, keep_initializers_as_inputs=False, external_data=None, dynamo=True,
    verify=False,
):  # fmt: skip
    """Converts a model to the ONNX format.

    The model runs several times with inputs of other sizes and values, so its control flow must not depend on them. Call
    `model.eval()` first.

    Args:
        model: the module, or an ExportedProgram.
        args: tuple of example arguments, or one tensor.
        f: path or file object for the result, or None.
        kwargs: dict of example keyword arguments (default: none).
        export_params: store the parameters; if False, they become inputs (default: True).
        verbose: print the operators (default: False).
        input_names: names of the inputs (default: names of the arguments).
        output_names: names of the outputs (default: "output_0", …).
        opset_version: version of ONNX's operators, at least 18 (default: 18).
        dynamic_axes: {name of an input: {axis: name of the size}} or {name: [axes]}, for the names in `input_names`. Axes of outputs
            are found automatically.
        dynamic_shapes: dynamic sizes as in `mytorch.export.export`, instead of `dynamic_axes`.
        do_constant_folding: compute operations on parameters and constants before the export (default: True).
        keep_initializers_as_inputs: also list the parameters as inputs, with their values as defaults (default: False).
        external_data: store the weights in a second file (default: only for models of more than 2 GB).
        dynamo: must be True or False; both have the same effect.
        verify: compare the results of ONNX Runtime with the results of the model (default: False).

    Returns:
        An ONNXProgram.

    Raises:
        UnsupportedOperatorError: an operation has no translation.
        ValueError: `mytorch.export.export` cannot record the model.
        ModuleNotFoundError: the package `onnx` is not installed.

    See also: `mytorch.export.export`.
    """
    onnx = _package()
    opset = 18 if opset_version is None else opset_version
    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not 18 <= opset <= newest:
        raise ValueError(f"onnx.export: expected an opset_version from 18 to {newest}, got {opset!r}. Omit it for 18.")
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    if dynamic_axes and dynamic_shapes:
        raise ValueError("onnx.export: expected dynamic_axes or dynamic_shapes, got both. Use dynamic_shapes.")
    program = model
    if not isinstance(model, ExportedProgram):
        shapes_of = _shapes_of(dynamic_axes, input_names or ()) if dynamic_axes else None
        _active[0] = True
        try:
            program = program_of(model, args, kwargs, dynamic_shapes, shapes_of)
        finally:
            _active[0] = False
    converter = _Converter(onnx, opset, program, export_params, do_constant_folding, keep_initializers_as_inputs)
    proto = converter.convert(input_names, output_names, type(model).__name__)
    result = ONNXProgram(proto, program, converter.input_names, converter.output_names)
    onnx.checker.check_model(proto) if proto.ByteSize() < _MAX_FILE else None
    if verbose:
        print(onnx.printer.to_text(proto.graph))
    if verify:
        _compare(result, model, args, kwargs or {})
    if f is not None:
        result.save(f, external_data=external_data)
    return result


def _compare(result, model, args, kwargs):
    runner = model.module() if isinstance(model, ExportedProgram) else model
    with no_grad():
        expected = [x for x in pytree.tree_leaves(runner(*args, **kwargs)) if isinstance(x, Tensor)]
    for name, a, b in zip(result.output_names, expected, result(*args, **kwargs), strict=True):
        x, y = to_cpu(a).astype(np.float64), to_cpu(b).astype(np.float64)
        if x.shape != y.shape or not np.allclose(x, y, 1e-3, 1e-4, equal_nan=True):
            difference = (
                f"a largest difference of {np.abs(x - y).max():.2g}"
                if x.shape == y.shape
                else f"shapes {x.shape} and {y.shape}"
            )
            raise OnnxExporterError(
                f"onnx.export: expected equal results of ONNX Runtime for {name}, got {difference}."
            )


def _shapes_of(dynamic_axes, input_names):
    """Returns the function from names of input tensors to their dynamic sizes, for `dynamic_axes`."""
    dims = {}

    def dim(name):
        if name not in dims:
            safe = "".join(ch if ch.isalnum() else "_" for ch in str(name))
            dims[name] = Dim(safe if safe.isidentifier() else f"s_{safe}")
        return dims[name]

    def shapes_of(names):
        names = [*input_names, *names[len(input_names) :]]
        unknown = [n for n in dynamic_axes if n not in names]
        if unknown and not input_names:
            warn(
                f"onnx.export: dynamic_axes has the names {', '.join(unknown)}, which are not inputs. The axes of outputs are found automatically."
            )
        shapes = []
        for name in names:
            axes = dynamic_axes.get(name) or {}
            axes = axes if isinstance(axes, dict) else {axis: f"{name}_dim_{axis}" for axis in axes}
            shapes.append({int(axis): dim(size) for axis, size in axes.items()})
        return shapes

    return shapes_of


class _Converter:
    """Converts one exported program."""

    def __init__(self, onnx, opset, program, export_params, fold, keep_inputs):
        self.onnx, self.program, self.fold = onnx, program, fold
        self.export_params, self.keep_inputs = export_params, keep_inputs
        self.w = Writer(onnx, opset)
        self.values, self.weights = {}, []

    def convert(self, input_names, output_names, title):
        """Returns the ModelProto."""
        helper, graph = self.onnx.helper, self.program._inner.graph
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        outputs = graph.output_node().args[0]
        self.input_names = self._names(input_names, [n.target for n in placeholders], "input_names")
        self.output_names = self._names(output_names, [f"output_{i}" for i in range(len(outputs))], "output_names")
        self.w.used.update([*self.input_names, *self.output_names])
        inputs = []
        for node, name in zip(placeholders, self.input_names, strict=True):
            self.values[node] = self._value(node, name)
            axes = self.program.dynamic.get(node.target, {})
            shape = [str(axes[i]) if i in axes else n for i, n in enumerate(node.meta["shape"])]
            inputs.append(helper.make_tensor_value_info(name, self.w.kind(node.meta["dtype"]), shape))
        self._skipped = self._recurrent_inputs(graph)
        for node in graph.nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif node.op == "call_function":
                self._translate(node)
        results = []
        for node, name in zip(outputs, self.output_names, strict=True):
            value = self.values[node] if isinstance(node, Node) else None
            if value is None:
                raise OnnxExporterError(
                    f"onnx.export: expected tensors as results, got {type(node).__name__}. Return a tensor."
                )
            self.w.op("Identity", value.name, out=[name])
            shape = [n if n is not None else f"{name}_dim_{i}" for i, n in enumerate(value.shape)]
            results.append(helper.make_tensor_value_info(name, self.w.kind(value.dtype), shape))
        self._remove_unused()
        weights = [helper.make_tensor_value_info(n, self.w.kind(v.dtype), list(v.shape)) for n, v in self.weights]
        if not self.export_params:
            for name, _ in self.weights:
                self.w.initializers.pop(name, None)
        extra = weights if self.keep_inputs or not self.export_params else []
        made = helper.make_graph(self.w.nodes, title, [*inputs, *extra], results, list(self.w.initializers.values()))
        version = {18: 8, 19: 9, 20: 9, 21: 10}.get(self.w.opset, 10)
        return helper.make_model(
            made, opset_imports=[helper.make_opsetid("", self.w.opset)], ir_version=version, producer_name="mytorch", producer_version=__version__,
        )  # fmt: skip

    @staticmethod
    def _names(given, defaults, argument):
        given = list(given or [])
        if len(given) > len(defaults):
            raise ValueError(f"onnx.export: expected at most {len(defaults)} {argument}, got {len(given)}: {given}.")
        names = [*given, *defaults[len(given) :]]
        if len(set(names)) < len(names):
            raise ValueError(f"onnx.export: expected different {argument}, got {names}.")
        return names

    def _value(self, node, name, array=None):
        meta = node.meta
        return Value(name, meta["dtype"], meta["shape"], meta["example_shape"], array, node)

    def _attribute(self, node):
        found = self.program._inner
        for part in node.target.split("."):
            found = getattr(found, part)
        array = to_cpu(found)
        name = self.w.name(node.target)
        self.w.add_initializer(name, array)
        self.values[node] = self._value(node, name, array)
        if isinstance(found, Parameter):
            self.weights.append((name, self.values[node]))

    @staticmethod
    def _recurrent_inputs(graph):
        """Returns the linear layers that only recurrent layers use, which contain them in ONNX."""
        names = ("lstm", "gru", "rnn")
        return {
            n
            for n in graph.nodes
            if n.op == "call_function" and getattr(n.target, "name", "") == "linear" and n.users
            and all(getattr(u.target, "__name__", "") in names and u.args[0] is n for u in n.users)
            and len(n.args[0].meta.get("shape", ())) == 3
        }  # fmt: skip

    def _translate(self, node):
        if node.target is operator.getitem:
            parts = self.values[node.args[0]]
            if isinstance(parts, list):
                self.values[node] = parts[node.args[1]] and self._value(node, parts[node.args[1]])
                return
        if node in self._skipped:
            self.values[node] = self._value(node, "")
            return
        if (self.fold or not node.all_input_nodes) and self._folded(node):
            return
        key = node.target.name if isinstance(node.target, Op) else node.target
        rule = TABLE.get(key)
        if rule is None:
            raise self._unsupported(node, "")
        args, kwargs = map_arg((node.args, dict(node.kwargs)), self.values.__getitem__)
        if not isinstance(node.target, Op):  # arguments of functions that create tensors
            kwargs = {k: v for k, v in kwargs.items() if k not in _IRRELEVANT}
        call = Call(self.w, node, self.values.__getitem__)
        self.w.scope = node.name
        try:
            found = rule(call, *args, **kwargs)
        except Unsupported as error:
            raise self._unsupported(node, f" with {error}") from None
        if isinstance(found, Size):
            found.example = node.meta.get("example")
        if isinstance(found, (Size, list)):
            self.values[node] = found
        else:
            self.values[node] = self._value(node, found)

    def _unsupported(self, node, detail):
        name = node.target.name if isinstance(node.target, Op) else node.target.__name__
        where = f" at {node.stack_trace}" if node.stack_trace else ""
        return UnsupportedOperatorError(
            f"onnx.export: expected operations with a translation to ONNX opset {self.w.opset}, got {name}{detail}{where}. Use other operations for this part of the model."
        )

    def _folded(self, node):
        """Computes a node whose inputs are constants. Returns False for other nodes."""
        sources = []
        map_aggregate((node.args, dict(node.kwargs)), lambda v: sources.append(v) if isinstance(v, Node) else None)
        values = [self.values[s] for s in sources]
        if (
            not all(isinstance(v, Value) and v.array is not None for v in values)
            or "shape" not in node.meta
            or None in node.meta["shape"]
        ):
            return False
        if any(name == v.name for v in values for name in self.input_names) or not self.export_params:
            return False
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: Tensor._wrap(self.values[n].array))
        with no_grad():
            result = node.target(*args, **dict(kwargs))
        if not isinstance(result, Tensor):
            return False
        array = to_cpu(result)
        name = self.w.name(node.name)
        self.w.add_initializer(name, array)
        self.values[node] = self._value(node, name, array)
        return True

    def _remove_unused(self):
        """Removes nodes and constants that no output needs."""
        needed, kept = set(self.output_names), []
        for node in reversed(self.w.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                kept.append(node)
        self.w.nodes = kept[::-1]
        self.w.initializers = {n: t for n, t in self.w.initializers.items() if n in needed}
        self.weights = [(n, v) for n, v in self.weights if n in needed]
