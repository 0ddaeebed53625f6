"""Compiles every Triton launch for an H200 without having one: replaces `launch` by a recorder.

Triton's compiler and assembler need no GPU. So a kernel that the interpreter runs is also known to compile,
for each dtype and option that the tests use.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mytorch.kernels import launch as home

COMPILED = {}  # compiled variant -> (name of the kernel, CompiledKernel)
TARGET = GPUTarget("cuda", 90, 32)


def launch(kernel, grid, *args, **options):
    """Compiles the kernel that `launch` would start."""
    names = kernel.arg_names
    values = dict(zip(names, [getattr(a, "_a", a) for a in args], strict=False))  # memory of a fake CuPy array
    values.update({name: options[name] for name in names if name in options})
    signature, constants, attributes = {}, {}, {}
    for i, name in enumerate(names):
        value = values[name]
        fixed = name not in kernel.do_not_specialize
        if name in options or value is None or (type(value) is int and value == 1 and fixed):
            signature[name] = "constexpr"
            constants[(i,)] = value
        elif isinstance(value, np.ndarray):
            signature[name] = "*" + home.type_name(value.dtype)
            attributes[(i,)] = [["tt.divisibility", 16]]
        elif type(value) is int:
            signature[name] = "i32" if abs(value) < 2**31 else "i64"
            if value % 16 == 0 and fixed:
                attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32"
    choices = {k: v for k, v in options.items() if k not in names}
    key = (kernel.fn.__qualname__, kernel.fn.__module__, str(signature), str(constants), str(attributes), str(choices))
    if key not in COMPILED:
        source = ASTSource(kernel, signature, constants, attributes)
        COMPILED[key] = (
            kernel.fn.__module__ + "." + kernel.fn.__name__,
            triton.compile(source, target=TARGET, options=choices),
        )


home.launch = launch
home.processors = lambda: 132
home.is_capturing = lambda: False
home.why_not = lambda: None


def resources():
    """(kernel, registers, bytes spilled, bytes of shared memory, warps) of everything compiled, by NVIDIA's own tool."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    rows = []
    for name, compiled in COMPILED.values():
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(compiled.asm["cubin"])
            file.flush()
            text = subprocess.run(
                [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
            ).stdout
        registers, local = (int(re.search(rf"{word}:(\d+)", text)[1]) for word in ("REG", "STACK"))
        rows.append((name, registers, local, compiled.metadata.shared, compiled.metadata.num_warps))
    return rows
