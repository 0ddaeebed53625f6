"""Nodes, constants and names of an ONNX graph, and conversions that many translations need."""

import numpy as np

from ..arrays import dtypes


class Writer:
    """An ONNX graph that grows.

    Args:
        onnx: the package `onnx`.
        opset: version of the operator set.
    """

    def __init__(self, onnx, opset):
        self.onnx, self.opset = onnx, opset
        self.nodes, self.initializers = [], {}
        self.used, self.numbers = set(), {}
        self.constants = {}
        self.scope = ""

    def name(self, hint):
        """Returns an unused name."""
        name = hint
        while name in self.used:
            self.numbers[hint] = self.numbers.get(hint, 0) + 1
            name = f"{hint}_{self.numbers[hint]}"
        self.used.add(name)
        return name

    def op(self, kind, *inputs, n=1, out=None, **attrs):
        """Adds a node, and returns the name of its result, or a list of n names.

        Args:
            kind: operator, such as "Add".
            inputs: names of the inputs; "" or None for an omitted input.
            n: number of outputs.
            out: names of the outputs (default: new names).
            attrs: attributes; None is omitted.
        """
        outs = out or [self.name(f"{self.scope}/{kind}" if self.scope else kind) for _ in range(n)]
        outs = [outs] if isinstance(outs, str) else outs
        attrs = {k: v for k, v in attrs.items() if v is not None}
        inputs = ["" if i is None else i for i in inputs]
        while inputs and not inputs[-1]:
            inputs.pop()  # ONNX Runtime requires omitted inputs at the end to be absent
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, outs, name=self.name(f"node_{outs[0]}"), **attrs))
        return outs[0] if n == 1 else outs

    def constant(self, value, dtype=None):
        """Returns the name of a constant."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            name = self.name("constant")
            self.constants[key] = name
            self.add_initializer(name, array)
        return self.constants[key]

    def add_initializer(self, name, array):
        """Adds a named array."""
        self.initializers[name] = self.onnx.numpy_helper.from_array(
            np.ascontiguousarray(array).reshape(array.shape), name
        )

    def ints(self, *values):
        """Returns the name of a vector of integers."""
        return self.constant(np.array(values, np.int64).reshape(-1))

    def kind(self, dtype):
        """Returns ONNX's number of a dtype.

        Raises:
            NotImplementedError: ONNX has no such dtype.
        """
        dtype = dtypes.as_dtype(dtype)
        found = getattr(self.onnx.TensorProto, _KINDS.get(dtype.name, ""), None)
        if found is None:
            raise NotImplementedError(
                f"onnx.export: expected a dtype of ONNX, got {dtype}. Convert the tensor to float32."
            )
        return found

    def cast(self, name, dtype):
        """Returns the name of a tensor converted to a dtype."""
        return self.op("Cast", name, to=self.kind(dtype))

    def reshape(self, name, *shape):
        """Returns the name of a tensor in a constant shape."""
        return self.op("Reshape", name, self.ints(*shape))

    def shape(self, name):
        """Returns the name of the shape of a tensor."""
        return self.op("Shape", name)

    def concat_ints(self, parts):
        """Returns the name of a vector of integers, from Python integers and names of vectors."""
        if all(isinstance(p, int) for p in parts):
            return self.ints(*parts)
        names, run = [], []
        for part in [*parts, None]:
            if isinstance(part, int):
                run.append(part)
                continue
            if run:
                names.append(self.ints(*run))
                run = []
            if part is not None:
                names.append(part)
        return names[0] if len(names) == 1 else self.op("Concat", *names, axis=0)


_KINDS = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int64": "INT64", "int32": "INT32",
    "int16": "INT16", "int8": "INT8", "uint8": "UINT8", "bool": "BOOL", "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}  # fmt: skip
