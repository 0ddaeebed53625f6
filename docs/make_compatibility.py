"""Write the table of names in docs/compatibility.md: the public names of PyTorch, and those that mytorch also has.

    python docs/make_compatibility.py

Requires PyTorch. The rest of the page is written by hand. The pattern LEFT_OUT excludes names of quantized and named tensors, of
other devices, and of PyTorch's internals from the count.
"""

import importlib
import inspect
import re
from pathlib import Path

import torch

import mytorch

LEFT_OUT = re.compile(
    r"quant|^q_|^q[iu]?int|qscheme|mkldnn|cudnn|miopen|fbgemm|vulkan|xla|ipu|xpu|mtia|maia|hpu|^mps|named|names|align_|refine|rename|"
    r"_copy$|Storage|storage|Type$|^Script|^Jit|JIT|Graph|Dispatch|^Sym|"
    r"int_repr|dequant|Future|Await|Logger|parse_|import_ir|onnx|lobpcg|volatile|reinforce|grad_dtype|const_data_ptr|sparse_bs[rc]|to_sparse_bs[rc]|SparseSemi|"
    r"unsafe_|native_|fake_|batch_norm_|autocast_|_autocast|is_distributed|nonzero_static|hash_tensor|to_padded|slice_inverse|"
    r"ormqr|orgqr|geqrf|dim_order|resize_as_sparse|^_|"
    r"^sym_|^bits?\d|^bit$|^u?int[1-7]$|^float[48]_|complex32|chalf|^(AVG|SUM|AliasDb|Argument|ArgumentSpec|Benchmark.*|Block|BufferDict|"
    r"CallStack|Capsule|Code|CompilationUnit|CompleteArgumentSpec|ConcreteModule.*|DeepCopyMemoTable|DisableTorch.*|ErrorReport|"
    r"ExecutionPlan|FatalError|FileCheck|FunctionSchema|Gradient|IODescriptor|LiteScriptModule|ModuleDict|Node|OperatorInfo|"
    r"ParameterDict|PyTorchFile.*|StaticModule|Tag|TracingState|Use|Value|AcceleratorError|classproperty|fork|wait|"
    r"get_file_path|init_num_threads|merge_type_from_type_comment|prepare_multiprocessing_environment|profiler_.*|"
    r"thread_safe_generator|unify_type_list|compiled_with_cxx11_abi|choose_qparams.*|get_device_module|"
    r".*DataPipe.*|.*datapipe.*|DataChunk|argument_validation|non_deterministic|runtime_validation.*|values|indices|"
    r"eig|lstsq|solve|symeig|matrix_rank|saddmm|index|resize|resize_as|"  # removed from PyTorch, or raises an error there
    r"assert_int_or_pair|scaled_mm|scaled_grouped_mm|grouped_mm|Tensor)$"
)

SURFACES = [
    ("torch", torch, mytorch),
    ("torch.Tensor", torch.Tensor, mytorch.Tensor),
    ("torch.nn", torch.nn, mytorch.nn),
    ("torch.nn.functional", torch.nn.functional, mytorch.nn.functional),
    ("torch.nn.init", torch.nn.init, mytorch.nn.init),
    ("torch.linalg", torch.linalg, mytorch.linalg),
    ("torch.fft", torch.fft, mytorch.fft),
    ("torch.optim", torch.optim, mytorch.optim),
    ("torch.optim.lr_scheduler", torch.optim.lr_scheduler, mytorch.optim.lr_scheduler),
    ("torch.utils.data", torch.utils.data, mytorch.utils.data),
    ("torch.distributions", importlib.import_module("torch.distributions"), mytorch.distributions),
]


def names_of(label, module, everything=False):
    """Returns the public names of a module that are included in the count; with `everything`, also the others."""
    names = []
    for name in dir(module):
        if name[0] == "_" or (LEFT_OUT.search(name) and not everything):
            continue
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        if label == "torch.Tensor" or name in getattr(module, "__all__", ()):
            names.append(name)
        elif callable(value) and str(getattr(value, "__module__", "torch")).startswith("torch") and "." not in name:
            home = str(getattr(value, "__module__", ""))
            if label in ("torch.nn", "torch.optim", "torch.optim.lr_scheduler") and (
                not name[0].isupper() or not home.startswith(label)
            ):
                continue
            if label == "torch" and (name[0].isupper() or "._C" in home or "jit" in home):
                continue
            if label == "torch.nn.functional" and (
                home not in ("torch.nn.functional", "torch._C._nn", "torch") or "handle" in name or "has_torch" in name
            ):
                continue
            names.append(name)
    return names


def table():
    """Returns the table of names, and the names that are missing."""
    lines = ["| module | names in PyTorch | names in mytorch | left out |", "|---|---|---|---|"]
    missing = []
    for label, torch_module, module in SURFACES:
        names, public = names_of(label, torch_module), names_of(label, torch_module, everything=True)
        absent = [n for n in names if not hasattr(module, n)]
        present = len(names) - len(absent)
        percent = f"{100 * present // len(names)}\u00a0%"
        lines.append(f"| `{label}` | {len(names)} | {present} ({percent}) | {len(public) - len(names)} |")
        if absent:
            missing.append(f"* `{label}`: {', '.join(f'`{n}`' for n in absent)}")
    return "\n".join([*lines, "", "These names are missing and raise `AttributeError`:", "", *missing])


def page(text):
    """Returns the text of the page with a new table between the marks."""
    before, begin, rest = text.partition("<!-- names -->\n")
    _, end, after = rest.partition("\n<!-- end of names -->")
    return f"{before}{begin}{table()}{end}{after}"


if __name__ == "__main__":
    path = Path(__file__).with_name("compatibility.md")
    path.write_text(page(path.read_text()))
