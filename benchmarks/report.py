"""Generate docs/benchmarks.md and benchmarks/README.md from the JSON files in benchmarks/results.

python benchmarks/report.py

The page of the documentation has what a user asks: how fast and how large are the steps of a training program. The file next to this
one has every other measurement, for contributors.
"""

import json
import math
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

HEAD = """# Benchmarks

This page tells you what to expect of mytorch when you come from PyTorch: how long a step takes, how much memory it needs, and
what compiling it brings. Each **ratio** is mytorch's value divided by PyTorch's, so less is better, and below 1 mytorch is faster. The two
libraries took turns on the same machine, because a machine is not equally fast all day.

`python benchmarks/report.py` generates the page from the results in `benchmarks/results`, together with
[benchmarks/README.md](../benchmarks/README.md), which has the single ops, the optimizers, the cost of a call, and kernels on a GPU.
"""

DETAILS = """# Benchmarks in detail

These are the measurements behind [the benchmarks page](../docs/benchmarks.md), for contributors who look for the op or the call that makes a
program slow. Each **ratio** is mytorch's value divided by PyTorch's. Both libraries take turns on the same machine, on one thread unless a
table says otherwise. `python benchmarks/report.py` generates this file and that page from the results in `benchmarks/results`.

The last two sections are estimates and compiler output for a GPU. `bash benchmarks/gpu_day.sh LOGS first` checks and times the most
important parts on a GPU in at most 7 minutes.
"""

TITLES = {  # section of cpu.json -> (heading, description)
    "steps": (
        "Training and inference steps",
        "Time of one step, which for training means forward, loss, backward and the optimizer.",
    ),
    "optimizers": (
        "Optimizers",
        "Time of one `step()` on 20 parameters of 256 × 256, or on 200 parameters of 16 × 16.",
    ),
    "loader": ("Data loading", "Time of one epoch of a `DataLoader` with batches of 64 items."),
    "convolutions": (
        "Convolutions, pooling and batch norm",
        "Time of forward and backward, except for `relu`, which runs forward only.",
    ),
}
WORKLOADS = {  # name in cpu.json -> text in the table
    "gpt_0p8m": "GPT, 0.8M parameters, batch 12, context 64",
    "gpt_10p8m": "GPT, 10.8M parameters, batch 8, context 256",
    "gpt_124m": "GPT, 124M parameters, batch 4, context 256",
    "gpt_generate_64tok": "GPT, 0.8M parameters, generate 64 tokens",
    "attention_T1024": "causal attention, 8 heads, 1,024 tokens",
    "manual_attention": "attention from matmul and softmax, 128 tokens",
    "encoder_layers": "transformer encoder, 2 layers, width 256",
    "vit_tiny": "vision transformer, 4 layers, batch 16",
    "lstm_char": "LSTM, batch 32, 50 characters",
    "gru_char": "GRU, batch 32, 50 characters",
    "rnn_char": "RNN, batch 32, 50 characters",
    "text_cnn": "text CNN, batch 32, 100 tokens",
    "seq2seq": "GRU encoder and decoder with attention, batch 32",
    "mlp_tiny": "MLP 4-16-1, batch 8",
    "mlp_mnist": "MLP 784-512-256-10, batch 32",
    "vae_mlp": "variational autoencoder, batch 128",
    "cnn_mnist": "CNN, 28 × 28 images, batch 64",
    "resnet_cifar": "ResNet of 3 blocks, 32 × 32 images, batch 32",
    "unet_small": "U-Net, 64 × 64 images, batch 4",
    "convnext_block": "ConvNeXt block, 64 channels, batch 8",
    "dcgan": "DCGAN, 32 × 32 images, batch 32",
    "graph_conv": "graph convolution, 2,000 nodes, 20,000 edges",
    "recommender": "matrix factorization, batch 1,024",
    "policy_act": "20 actions of a categorical policy",
    "policy_log_prob": "20 log-probabilities and entropies of a policy",
    "normal_act": "20 samples of a normal distribution",
    "loader_epoch": "`DataLoader`, 4,096 images of 28 × 28, no workers",
    "resnet18_224": "ResNet-18, 224 × 224 images, batch 4",
    "loader_2_workers": "`DataLoader`, 4,096 images of 28 × 28, 2 workers",
    "loader_large": "`DataLoader`, 512 images of 3 × 128 × 128, no workers",
    "loader_large_2": "`DataLoader`, 512 images of 3 × 128 × 128, 2 workers",
    "conv3x3_fb": "Conv2d 64 → 64, window 3",
    "conv3x3_narrow_fb": "Conv2d 16 → 16, window 3",
    "conv3x3_stride2_fb": "Conv2d 64 → 128, window 3, stride 2",
    "conv3x3_dilated_fb": "Conv2d 64 → 64, window 3, dilation 2",
    "conv7x7_first_fb": "Conv2d 3 → 64, window 7, stride 2",
    "conv1x1_fb": "Conv2d 64 → 256, window 1",
    "conv1d_fb": "Conv1d 64 → 64, window 3",
    "conv3d_fb": "Conv3d 16 → 32, window 3",
    "grouped_fb": "Conv2d 128 → 128, window 3, 8 groups",
    "depthwise_fb": "Conv2d, depthwise, 64 channels, window 7",
    "depthwise3x3_fb": "Conv2d, depthwise, 96 channels, window 3",
    "conv_transpose_fb": "ConvTranspose2d 64 → 32, window 4, stride 2",
    "max_pool_fb": "MaxPool2d, window 2",
    "max_pool3_fb": "MaxPool2d, window 3, stride 2",
    "avg_pool_fb": "AvgPool2d, window 2",
    "batch_norm_fb": "BatchNorm2d, training",
    "batch_norm_eval_fb": "BatchNorm2d, evaluation",
    "relu": "`relu`, 1024 × 1024",
    "relu_fb": "`relu`, 1024 × 1024, forward and backward",
}
CLOCKS = {"CPU time": "CPU time", "time": "elapsed time"}  # clock in cpu.json -> text


def _machine(result):
    m = result["machine"]
    return f"{m['processor']}, {m['cores']} cores, Python {m['python']}"


def _read(name):
    return json.loads((RESULTS / name).read_text())


def _mean(ratios):
    """Returns the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def _table(columns, rows):
    """Returns the lines of a table."""
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _workload(row):
    """Returns the text for a row of cpu.json."""
    if row["section"] == "optimizers":
        rule, _, count = row["name"].rpartition("_")
        size = {"20": "256 × 256", "200": "16 × 16"}[count]
        return f"{rule.replace('_', ', ')}, {count} of {size}"
    return WORKLOADS.get(row["name"], f"`{row['name']}`")


def summary():
    """Returns the table of geometric means."""
    rows = []
    cpu = _read("cpu.json")["rows"]
    for section in dict.fromkeys(row["section"] for row in cpu):
        ratios = [row["ratio"] for row in cpu if row["section"] == section]
        title = TITLES[section][0] if section in TITLES else "Single ops"
        rows.append([title, str(len(ratios)), f"{_mean(ratios):.2f}"])
    single = [row["ratio"] for row in _read("overhead.json")["rows"] if row["kind"] == "elementwise"]
    rows.append(["Overhead per call, elementwise functions", str(len(single)), f"{_mean(single):.2f}"])
    return "\n".join(
        [
            "## Summary",
            "",
            "Geometric means of the ratios, with Numba installed. Programs whose time is in large products and convolutions run about as fast as with "
            "PyTorch. Programs of many small calls, or of long chains of elementwise functions, differ more, because there the cost of a call and the "
            "number of passes over memory decide.",
            "",
            *_table(["benchmark", "measurements", "ratio"], rows),
            "",
        ]
    )


def gpt2():
    """Returns the table of training steps of GPT-2."""
    rows = []
    for path in sorted(RESULTS.glob("gpt2-*.json")):
        r = json.loads(path.read_text())
        s, ms = r["settings"], r["milliseconds_per_step"]
        kernels = "with Numba" if "numba" in path.stem else "NumPy only"
        rows.append([kernels, f"{ms['mytorch']:.1f}", f"{ms['torch']:.1f}", f"{r['mytorch_over_torch']:.2f}"])
    return "\n".join(
        [
            "## GPT-2 training",
            "",
            f"Elapsed time of one step (forward, backward, clipping, AdamW) of the GPT-2 with 0.8M parameters that `train_gpt2.sh "
            f"{s['model_size']}` trains: batch {s['batch_size']}, context {s['context_length']}, with the default number of threads. Machine: {_machine(r)}, PyTorch "
            f"{r['versions']['torch']} in eager mode. Program: `benchmarks/gpt2.py`.",
            "",
            *_table(["kernels", "mytorch, ms", "PyTorch, ms", "ratio"], rows),
            "",
        ]
    )


def _rows(section):
    """Returns the rows of a section of cpu.json."""
    return [row for row in _read("cpu.json")["rows"] if row["section"] == section]


def _introduction(rows, description):
    """Returns what a table of cpu.json shows."""
    clock, threads = CLOCKS[rows[0]["clock"]], rows[0]["threads"]
    mean = _mean([row["ratio"] for row in rows])
    return f"{description} Clock: {clock}, {threads} thread{'s' * (threads > 1)}. Geometric mean of {len(rows)} ratios: {mean:.2f}."


def steps():
    """Returns the table of training steps, with their memory."""
    rows = _rows("steps")

    def added(row, library):
        return f"{row[f'{library}_MB']:.0f}" if f"{library}_MB" in row else ""

    return "\n".join(
        [
            f"## {TITLES['steps'][0]}",
            "",
            f"{_introduction(rows, TITLES['steps'][1])} Machine: {_machine(_read('cpu.json'))}. Program: `python -m benchmarks.cpu`, with Numba installed. "
            "*Memory* is what three steps add to the peak memory of the process after the import of the library. For mytorch that includes "
            "Numba, about 130 MB; PyTorch's import takes more memory than mytorch's.",
            "",
            *_table(
                ["workload", "mytorch, ms", "PyTorch, ms", "ratio", "memory, MB", "PyTorch, MB"],
                [
                    [_workload(row), _ms(row["mytorch"]), _ms(row["torch"]), f"{row['ratio']:.2f}"]
                    + [added(row, "mytorch"), added(row, "torch")]
                    for row in rows
                ],
            ),
            "",
        ]
    )


def generation():
    """Returns the table of text generation compared with llama.cpp."""
    r = _read("llama_cpp.json")
    names = {"token": "one token", "prompt": "a prompt of 512 tokens"}
    return "\n".join(
        [
            "## Text generation",
            "",
            "If you know llama.cpp, this tells you what generating with `mytorch.models` costs in comparison. Both programs load a Llama with 1.1 "
            "billion random 4-bit weights (Q4_0) from the same GGUF file. *Speed* is llama.cpp's time divided by mytorch's, so above 1 mytorch is "
            "faster. Clock: CPU time of all threads together, the least of all turns. Machine: "
            f"{_machine(r)}. Program: `benchmarks/llama_cpp.py`.",
            "",
            *_table(
                ["work", "threads", "mytorch, ms", "llama.cpp, ms", "speed"],
                [
                    [names[row["name"]], str(row["threads"])]
                    + [_ms(row["mytorch_processor_ms"]), _ms(row["llama_cpp_processor_ms"]), f"{row['speed']:.2f}"]
                    for row in r["rows"]
                ],
            ),
            "",
        ]
    )


def cpu():
    """Returns the tables of the other workloads on a CPU."""
    r = _read("cpu.json")
    lines = [
        "## Common workloads",
        "",
        f"Machine: {_machine(r)}. Program: `python -m benchmarks.cpu`, with Numba installed.",
    ]
    for section, threads in dict.fromkeys((row["section"], row["threads"]) for row in r["rows"]):
        rows = [row for row in r["rows"] if (row["section"], row["threads"]) == (section, threads)]
        if section == "ops":
            lines += ops(rows)
        elif section != "steps":
            title, description = TITLES[section]
            lines += [
                "",
                f"### {title}",
                "",
                _introduction(rows, description),
                "",
                *_table(
                    ["workload", "mytorch, ms", "PyTorch, ms", "ratio"],
                    [[_workload(row), _ms(row["mytorch"]), _ms(row["torch"]), f"{row['ratio']:.2f}"] for row in rows],
                ),
            ]
    return "\n".join(lines) + "\n"


def _ms(value):
    """Returns milliseconds with three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ops(rows):
    """Returns the lines on single ops: ratios of forward, and of forward and backward."""
    by_size = {}
    for row in rows:
        name, _, size = row["name"].partition(" ")
        backward = name.endswith("_fb")
        by_size.setdefault(size or "large", {}).setdefault(name.removesuffix("_fb"), {})[backward] = row["ratio"]
    ratios = [row["ratio"] for row in rows]
    sizes = {"large": "1024 × 1024", "medium": "128 × 128", "small": "8 × 8", "odd": "257 × 1023"}
    lines = [
        "",
        "### Single ops",
        "",
        f"Ratios of {CLOCKS[rows[0]['clock']]}, {rows[0]['threads']} thread, for the inputs of `benchmarks/cpu/ops.py`. Geometric mean of {len(ratios)} "
        f"ratios: {_mean(ratios):.2f}. {sum(r <= 1 for r in ratios)} ratios are at most 1, and {sum(r > 2.5 for r in ratios)} are above 2.5.",
    ]
    for size, found in by_size.items():
        cells = [
            [f"`{name}`", *(f"{both[kind]:.2f}" if kind in both else "" for kind in (False, True))]
            for name, both in found.items()
        ]
        lines += [
            "",
            f"Inputs of {sizes[size]}:",
            "",
            *_table(["op", "ratio, forward", "ratio, forward and backward"], cells),
        ]
    return lines


COMPILED = {  # compiler in compile.json -> column
    "torch": "PyTorch, ms",
    "torch.compile": "torch.compile, ms",
    "jax.jit": "jax.jit, ms",
    "mytorch": "mytorch, ms",
    "mytorch compiled": "compiled, ms",
    "mytorch compiled, NumPy": "compiled, NumPy alone, ms",
}


def _compiled_table(rows, columns):
    """Returns the mean of the ratios, and the table of compiled steps: the columns that were measured."""
    measured = {compiler for row in rows for compiler in row["measured"]}
    columns = [c for c in columns if c in measured]
    ratios = {
        row["name"]: row["measured"]["mytorch compiled"]["min"] / row["measured"]["torch"]["min"]
        for row in rows
        if {"torch", "mytorch compiled"} <= set(row["measured"])
    }
    table = _table(
        ["step", *(COMPILED[c] for c in columns), "ratio"],
        [
            [_workload({"section": "steps", **row}), *(_cell(row, c, "min", _ms) for c in columns)]
            + [f"{ratios[row['name']]:.2f}" if row["name"] in ratios else ""]
            for row in rows
        ],
    )
    clock = CLOCKS[rows[0]["clock"]]
    text = f"Clock: {clock}. The ratio divides compiled mytorch by eager PyTorch. Geometric mean of {len(ratios)} ratios: {_mean(ratios.values()):.2f}."
    return text, table


def compiled_steps():
    """Returns the table of compiled steps on one thread."""
    r = _read("compile.json")
    text, table = _compiled_table(
        [row for row in r["rows"] if row["threads"] == 1],
        [c for c in COMPILED if c not in ("mytorch", "mytorch compiled, NumPy")],
    )
    measured = {compiler for row in r["rows"] for compiler in row["measured"]}
    others = [f"`{name}`" for name in ("torch.compile", "jax.jit") if name in measured]
    notes = []
    if r["other_load"]:
        notes.append(
            "The machine had other load, so each time is that of the fastest step, and varies more than usual."
        )
    return "\n".join(
        [
            "## Compiled training steps",
            "",
            f"Steps of the table above with {', '.join(['`mytorch.compile_step`', *others])}, on one thread. {text} "
            f"Machine: {_machine(r)}, PyTorch {r['versions']['torch']}. Program: `benchmarks/compile.py`. [Compilation](compile.md) says when "
            f"compiling pays. {' '.join(notes)}".rstrip(),
            "",
            *table,
            "",
        ]
    )


def compiled_in_detail():
    """Returns the tables of compiled steps: all columns, the time to the first step, and memory."""
    r = _read("compile.json")
    measured = {compiler for row in r["rows"] for compiler in row["measured"]}
    lines = [
        "## Compiled training steps",
        "",
        f"Steps of [the benchmarks page](../docs/benchmarks.md#training-and-inference-steps). Machine: {_machine(r)}, PyTorch {r['versions']['torch']}. "
        "Program: `benchmarks/compile.py`. [How a step is compiled](../docs/compile_inside.md) explains the columns of mytorch.",
        "",
        "* *NumPy alone* disables the machine code and Numba's kernels.",
        "* Forward passes run as in eager mode. Steps without a backward pass gain nothing.",
        "* `policy_act` is measured without `.item()`, which no compiler records.",
    ]
    missing = [f"`{row['name']}`" for row in _rows("steps") if row["name"] not in {row["name"] for row in r["rows"]}]
    if missing:
        lines.append(f"* Not measured: {', '.join(missing)}.")
    if r["other_load"]:
        lines.append(
            "* The machine had other load. Each time is the time of the fastest step, and varies more than usual."
        )
    for threads in dict.fromkeys(row["threads"] for row in r["rows"]):
        rows = [row for row in r["rows"] if row["threads"] == threads]
        text, table = _compiled_table(rows, COMPILED)
        lines += ["", f"### Time per compiled step, {threads} thread{'s' * (threads > 1)}", "", text, "", *table]
        eager = [row for row in rows if "eager" in row["measured"].get("mytorch compiled", {})]
        lines += [""] * bool(eager)
        lines += [
            f"{_workload({'section': 'steps', **row})} runs eagerly: {row['measured']['mytorch compiled']['eager']}."
            for row in eager
        ]
    rows = [row for row in r["rows"] if row["threads"] == 1]
    compilers = [c for c in COMPILED if c in measured and c not in ("torch", "mytorch")]
    for key, title, text, show in (
        (
            "first_s",
            "Time of the first calls",
            "CPU time of the first nine calls in seconds, in which programs are recorded and compared with eager execution. The import is not included.",
            "{:.1f}".format,
        ),
        (
            "added_MB",
            "Memory of compiled steps",
            "Peak memory of the process after the import of the library, in MB.",
            "{:.0f}".format,
        ),
    ):
        lines += [
            "",
            f"### {title}",
            "",
            text,
            "",
            *_table(
                ["step", *compilers],
                [
                    [_workload({"section": "steps", **row}), *(_cell(row, c, key, show) for c in compilers)]
                    for row in rows
                ],
            ),
        ]
    return "\n".join(lines) + "\n"


def _cell(row, compiler, key, show):
    """Returns a measurement of compile.json as text."""
    return show(row["measured"][compiler][key]) if compiler in row["measured"] else ""


def overhead():
    """Returns the tables of host time per op."""
    r = _read("overhead.json")
    rows = [row for row in r["rows"] if row["kind"] != "elementwise"]
    single = [row["ratio"] for row in r["rows"] if row["kind"] == "elementwise"]
    lines = [
        "## Overhead per call",
        "",
        "CPU time of one call on tensors with a few elements, one thread. The time is nearly all overhead of the library. "
        f"Machine: {_machine(r)}. Program: `benchmarks/overhead.py`.",
        "",
        f"The geometric mean of {len(single)} ratios of elementwise functions is {_mean(single):.2f}, and the largest ratio is {max(single):.2f}. "
        "The tables contain all other calls.",
    ]
    for grad, title in ((False, "Calls without gradients"), (True, "Calls that record gradients, and backward")):
        lines += [
            "",
            f"### {title}",
            "",
            *_table(
                ["expression", "mytorch, µs", "PyTorch, µs", "ratio"],
                [
                    [
                        f"`{row['what'].replace('|', chr(92) + '|')}`",
                        *(f"{row[k]:.2f}" for k in ("mytorch", "torch", "ratio")),
                    ]
                    for row in rows
                    if row["requires_grad"] is grad
                ],
            ),
        ]
    return "\n".join(lines) + "\n"


def processes():
    """Returns the table of data-parallel steps."""
    r = _read("ddp.json")
    rows = [
        [
            f"{row['library']}, {row['link']}",
            *(f"{row[key]:.0f}" if key in row else "" for key in ("none", "after", "overlapped")),
        ]
        for row in r["rows"]
    ]
    return "\n".join(
        [
            "## Data-parallel training",
            "",
            f"Elapsed time of one training step on {r['processes']} processes, in ms. {r['gradients_MB']:.0f} MB of gradients are averaged in buckets of "
            f"{r['bucket_MB']:.0f} MB: not at all, after backward, or during backward. Machine: {_machine(r)}. Program: `benchmarks/ddp.py`. The link of "
            "4 Gbit/s is emulated, and PyTorch uses gloo.",
            "",
            *_table(["library and link", "no exchange", "exchange after backward", "exchange during backward"], rows),
            "",
        ]
    )


def gpu_steps():
    """Returns the table of training steps that were measured on a GPU."""
    results = _read("gpu.json")
    of = {(row["section"], row["name"]): row for row in results["steps"]}
    versions, rows = results["versions"], []
    for ours, theirs in (("train", "torch-train"), ("train-captured", "torch-train"), ("small", "torch-small")):
        for (section, name), mine in of.items():
            if section != ours:
                continue
            kind = " captured" if name.endswith(" captured") else ""
            other = of.get((theirs, name.replace(" captured", " compiled"))) or of[theirs, name.removesuffix(kind)]
            rows.append(
                [
                    name.replace("xT", ", context ")
                    .replace(" bf16 B", ", batch ")
                    .replace(" captured", ", `compile_step`"),
                    _ms(mine["ms"]),
                    _ms(other["ms"]) + (", compiled" if other["name"].endswith("compiled") else ""),
                    f"{mine['ms'] / other['ms']:.2f}",
                    f"{mine['GiB']:.3g}",
                    f"{other['GiB']:.3g}",
                ]
            )
    return "\n".join(
        [
            "## GPT-2 on a GPU",
            "",
            "Elapsed time of one training step (forward, loss, backward, clipping, AdamW) with bfloat16 autocast, eager or as a CUDA graph with "
            f"`mytorch.compile_step`. `benchmarks/gpu_day.sh` measured it on an {versions['card'].split(',')[0]}, with CuPy {versions['cupy']}, "
            f"Triton {versions['triton']} and PyTorch {versions['torch']}.",
            "",
            *_table(["model", "mytorch, ms", "PyTorch, ms", "ratio", "memory, GiB", "PyTorch, GiB"], rows),
            "",
            "The eager step of the small model takes as long as Python needs to start its kernels. A CUDA graph starts them all at once.",
            "",
        ]
    )


def gpu_kernels():
    """Returns the table of kernels that were measured on a GPU."""
    results = _read("gpu.json")
    versions = results["versions"]
    rows = [
        [row["name"], f"{row['ms']:.3f}", f"{row['floor']:.3f}", f"{row['ms'] / row['floor']:.2f}"]
        for row in results["kernels"]
        if row["floor"]
    ]
    return "\n".join(
        [
            "## GPU kernels",
            "",
            f"GPU: {versions['card'].split(',')[0]}, with {versions['TB/s']:.2f} TB/s and {versions['bf16 TFLOP/s']:.0f} TFLOP/s in bfloat16, both "
            "measured. The lower bound is the time for a kernel's bytes or operations at these rates. Rows without a shape have 32,768 rows of "
            "768, losses 16,384 rows of 50,304. Program: `benchmarks/gpu_day.sh`.",
            "",
            *_table(["kernel", "ms", "lower bound, ms", "ratio"], rows),
            "",
        ]
    )


def gpu():
    """Returns the estimates for a GPU: launches, bytes and memory of a training step."""
    budget = _read("gpu-budget.json")

    def model(r):
        return f"GPT-2 {r['parameters'] / 1e6:.3g}M{''.join(r['model'].partition(',')[1:])}"

    lines = [
        "## GPU estimates",
        "",
        "These figures are **computed, not measured**. `benchmarks/step_budget.py` runs one training step of GPT-2 (bfloat16 autocast, loss, "
        "backward, clipping, AdamW) with the real sizes on arrays without contents. It counts launches, bytes, operations and memory. There is "
        "no comparison with PyTorch.",
        "",
        "* **Lower bound**: each launch takes the larger of its bytes at 4.3 TB/s and its operations at 790 TFLOP/s. Both rates were "
        "measured on an H200 before.",
        "* **Estimate**: matrix multiplications at 85 % of that rate, attention at the rates of cuDNN, memory at 90 %.",
        "* **GPT-2 124M** is the size `--model_size base` with GPT-2's tokens and context 1024. **GPT-2 10.7M** is `--model_size small` "
        "with 65 characters and context 256. The batch size is 32. [Language models](../docs/models.md) lists all sizes.",
        "",
        *_table(
            ["model", "launches", "matrix multiplications, TFLOP", "other memory traffic, GB", "peak memory, GiB"],
            [
                [
                    model(r),
                    str(r["all"]["launches"]),
                    f"{r['all']['TFLOP']:.2f}",
                    f"{r['all']['GB_without_products']:.1f}",
                    f"{r['peak_GiB']:.1f}",
                ]
                for r in budget
            ],
        ),
        "",
        "Time of one step, in ms:",
        "",
        *_table(
            ["model", "lower bound", "lower bound, matrix multiplications only", "estimate"],
            [[model(r), *(f"{r['all'][key]:.1f}" for key in ("bound_ms", "products_ms", "likely_ms"))] for r in budget],
        ),
        "",
        f"The longest launches of {model(budget[0])}, without matrix multiplications:",
        "",
        *_table(
            ["launch", "phase", "launches", "memory traffic, GB", "lower bound, ms"],
            [
                [f"`{k['what']}`", k["phase"], str(k["count"]), f"{k['bytes'] / 1e9:.1f}", f"{k['ms']:.2f}"]
                for k in budget[0]["passes"]
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def compiled():
    """Returns the table of compiled GPU kernels."""
    kernels = _read("gpu-kernels.json")
    rows = []
    for r in kernels["rows"]:
        widest = max(map(int, [*r["loads"], *r["copies"]]), default=0)
        rows.append(
            [
                f"`{r['kernel']}`",
                r["at"],
                str(r["programs"]),
                str(r["held"]),
                str(r["warps"]),
                f"{r['waves']:.1f}",
                str(r["registers"]),
                str(r["stack"]),
                f"{r['shared'] / 1024:.0f}",
                str(widest),
                f"{r['KB']:.0f}",
                str(r["wgmma"]),
                str(sum(r["copies"].values())),
            ]
        )
    columns = {
        "kernel": "file and function in `mytorch/kernels/triton/`",
        "input": "shape and dtype",
        "programs": "programs per launch",
        "resident": "programs that fit on a multiprocessor at a time",
        "warps": "warps per program",
        "waves": "programs divided by the number that 132 multiprocessors hold",
        "registers": "registers per thread",
        "spilled, bytes": "registers spilled to memory per thread",
        "shared, KB": "shared memory per program",
        "load, bits": "widest load",
        "in flight, KB": "bytes in flight per multiprocessor if each thread waits for its loads; about 40 KB keep the memory busy",
        "wgmma": "number of Hopper tensor core instructions",
        "prefetches": "number of loads issued one loop iteration ahead",
    }
    lines = [
        "## GPU compiler output",
        "",
        f"For contributors. Triton {kernels['triton']} compiled each kernel with its default block sizes for compute capability 9.0. The kernels did not "
        "run on a GPU. Program: `benchmarks/kernel_quality.py`.",
        "",
        *_table(["column", "meaning"], [[name, meaning] for name, meaning in columns.items()]),
        "",
        *_table(list(columns), rows),
        "",
        GPU_NOTES,
    ]
    return "\n".join(lines)


GPU_NOTES = """Conclusions:

* Every kernel that is limited by memory bandwidth reads its data once, with loads of 128 bits. Dropout uses 64 bits, for four numbers per
  thread.
* Cross-entropy with its gradient (`_both`) reads each row twice. Two or three rows per multiprocessor fit into the L2 cache, so memory is
  read once.
* In the backward pass of the norms, all programs are resident at once and prefetch the next rows.
* Exact GELU with Triton's `erf` takes 38 instructions per element and would be limited by arithmetic. Memory allows about 28 instructions. The
  formula in `activation.py` takes 24.
* Attention uses wgmma instructions, except in backward for head size 256. That case uses the older instructions with blocks of 32 keys.
* The inner loop of attention forward at head size 64 has 534 instructions per warp for 128 × 64 scores. Tensor cores, exponentials and issue
  slots each need about 510 cycles, so none of them can be hidden completely.
* Attention backward computes 7 matrix products. A single pass with atomics would compute 5, but its results would vary between runs.
* float32 attention with head size 256 spills 360 bytes per thread in one kernel. Smaller heads do not spill.
"""


def pages():
    """Returns {path from the root: text} of the page and of the file of details."""
    return {
        "docs/benchmarks.md": "\n".join(
            [HEAD, summary(), gpt2(), gpu_steps(), steps(), compiled_steps(), generation()]
        ),
        "benchmarks/README.md": "\n".join(
            [DETAILS, cpu(), compiled_in_detail(), overhead(), processes(), gpu_kernels(), gpu(), compiled()]
        ),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        (ROOT / path).write_text(text)
