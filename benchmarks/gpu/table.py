"""The tables of gpu_check.py, and the target times for an H200."""

import math
import traceback
from collections import defaultdict

WITHIN = 1.15  # target of the kernels below, as a multiple of the lower bound
NEAR_FLOOR = ("softmax", "layer_norm", "rms_norm", "cross_entropy", "AdamW 124M")
TARGETS = {  # targets on an H200: milliseconds, and GiB for training
    "attention forward 32x12x1024x64 causal": (0.158, None),  # times of cuDNN
    "attention backward 32x12x1024x64 causal": (0.53, None),
    "attention by cuDNN forward 32x12x1024x64 causal": (0.158, None),
    "attention by cuDNN backward 32x12x1024x64 causal": (0.53, None),
    "GPT-2 124M bf16 B32xT1024": (80.8, 27.3),  # PyTorch in eager mode
    "GPT-2 124M bf16 B32xT1024 captured": (61.8, 15.1),  # PyTorch with torch.compile
    "GPT-2 124M bf16 B32xT1024 captured, tuned": (61.8, 15.1),
    "GPT-2 124M bf16 B32xT1024 captured, Triton's attention": (61.8, 15.1),
    "GPT-2 10.7M bf16 B32xT256 captured, tuned": (4.0, None),
    "GPT-2 10.7M bf16 B32xT256": (14.6, None),
    "GPT-2 10.7M bf16 B32xT256 captured": (4.0, None),
    "GPT-2 124M fp16 B32xT1024": (83.0, None),
    "GPT-2 124M fp32 B8xT1024": (156.0, None),
}


def card_of(results):
    """Returns the name of the GPU, or "" if it is unknown."""
    rows = results.get("versions", {}).get("rows", [])
    return next((str(row["value"]) for row in rows if row["name"] == "card" and "value" in row), "")


def target_of(row, card=""):
    """Returns the targets (ms, GiB) of a figure, or None for each without a target. Milliseconds hold for an H200 only."""
    if "H200" in card and row["name"] in TARGETS:
        return TARGETS[row["name"]]
    near = row.get("floor") and row["name"].startswith(NEAR_FLOOR)
    return (WITHIN * row["floor"] if near else None), None


def verdict(row, card=""):
    """Returns "ok", or the missed targets with their ratios, or "" without a target."""
    ms, gib = target_of(row, card)
    missed = [
        f"{row[key] / limit:.2f} × {limit:.3g} {key}"
        for key, limit in (("ms", ms), ("GiB", gib))
        if limit and not row[key] <= limit
    ]
    missed += ["the loss is " + str(row["loss"])] if not math.isfinite(float(row.get("loss", 0.0))) else []
    return "MISSED " + ", ".join(missed) if missed else "ok" if ms else ""


def _torch_steps(results):
    """Returns the steps of PyTorch in this run by name."""
    names = ("torch-train", "torch-small", "torch-images", "torch-more")
    rows = [row for name in names for row in results.get(name, {}).get("rows", [])]
    return {row["name"]: row for row in rows if "ms" in row}


def _counterpart(name):
    """Returns PyTorch's name of a step: a captured step is compared with a compiled one."""
    model, captured, _ = name.partition(" captured")
    return model + (" compiled" if captured else "")


def _last(text):
    return (text.splitlines() or ["?"])[-1][:110]


def table(results, names):
    """Returns the figures of some sections as text."""
    lines = []
    rows, card = defaultdict(dict), card_of(results)
    rows |= {name: {r["name"]: r for r in part.get("rows", [])} for name, part in results.items()}
    for name in names:
        own = rows[name]
        if name in ("versions", "sanitizer", "again", "script"):
            lines += [
                f"{key:<28}{_last(r['error']) if 'error' in r else r.get('value', 'ok')}" for key, r in own.items()
            ]
        elif name in ("correctness", "together"):
            good = sum("error" not in r and "skipped" not in r for r in own.values())
            lines.append(f"{good} of {len(own)} checks and tests passed")
            lines += [f"  FAILED {r['name']}: {_last(r['error'])}" for r in own.values() if "error" in r]
            lines += [f"  not run: {r['name']}: {r['skipped']}" for r in own.values() if "skipped" in r]
        elif name in ("kernels", "kernels-more", "products", "torch"):
            lines.append(f"{'kernel':<52}{'ms':>9}{'bound':>9}{'× bound':>9}{'PyTorch':>9}{'× PyTorch':>11}")
            measured = {**rows["kernels"], **rows["kernels-more"], **rows["products"]}
            for label in dict.fromkeys([*measured, *own]) if name == "torch" else own:
                mine, other = measured.get(label, {}), rows["torch"].get(label, {})
                ms, floor, torch_ms = mine.get("ms"), mine.get("floor"), other.get("ms")
                cells = [
                    ms,
                    floor,
                    ms / floor if ms and floor else None,
                    torch_ms,
                    ms / torch_ms if ms and torch_ms else None,
                ]
                text = "".join(
                    f"{'-' if c is None else f'{c:.3f}':>{w}}" for c, w in zip(cells, (9, 9, 9, 9, 11), strict=True)
                )
                errors = [_last(r["error"]) for r in (mine, other) if "error" in r]
                lines.append(f"{label:<52}{text}  {errors[0] if errors else verdict(mine, card) if ms else ''}")
        elif name == "blocks":
            for kernel in dict.fromkeys(r["kernel"] for r in own.values() if "ms" in r):
                lines.append(kernel)
                timed = sorted(
                    (r for r in own.values() if r.get("kernel") == kernel and "ms" in r), key=lambda r: r["ms"]
                )
                lines += [
                    f"  {r['ms']:.3f} ms  {r['options']}{'   (the default)' if r['default'] else ''}" for r in timed
                ]
            lines += [f"  {r['name']}: {_last(r['error'])}" for r in own.values() if "error" in r]
        elif name in ("profile", "host"):
            for r in own.values():
                lines.append(
                    f"{r['spent']:>9.3f} ms{r['count']:>6g} ×  {r['name']}" if "spent" in r else _last(r["error"])
                )
        elif name.startswith("parity"):
            for r in own.values():
                apart = f"losses {r['loss apart']:.1e}, norms {r['norm apart']:.1e} apart" if "loss apart" in r else ""
                lines.append(f"{r['name']:<52}{apart}  {_last(r['error']) if 'error' in r else 'ok'}")
        else:
            lines += _step_lines(results, name)
    return "\n".join(lines)


def _step_lines(results, name):
    """Returns the training steps of a section, with PyTorch's time in this run."""
    card, torch = card_of(results), _torch_steps(results)
    lines = [f"{'training step':<66}{'ms':>9}{'ktok/s':>9}{'peak GiB':>10}{'loss':>9}{'× PyTorch':>11}"]
    library = "PyTorch" if name.startswith("torch") else "mytorch"
    for r in results[name]["rows"]:
        label = f"{library + ' ' + r['name']:<66}"
        if "error" in r:
            lines.append(label + "  " + _last(r["error"]))
        elif "ms" not in r:
            lines.append(label + "  " + str(r.get("value", r.get("count", ""))))
        else:
            other = torch.get(_counterpart(r["name"])) if library == "mytorch" else None
            ratio = f"{r['ms'] / other['ms']:.2f}" if other else "-"
            state = verdict(r, card) if library == "mytorch" else ""
            rate = f"{r['ktok/s']:.0f}" if "ktok/s" in r else "-"
            figures = f"{r['ms']:>9.2f}{rate:>9}{r['GiB']:>10.2f}{float(r['loss']):>9.3f}{ratio:>11}"
            lines.append(f"{label}{figures}  {state}")
    return lines


def steps(results):
    """Returns all training steps, with the ratios to PyTorch's steps of the same run."""
    names = [name for name in results if "train" in name or name.endswith(("small", "images", "more"))]
    return "\n".join(line for name in names for line in _step_lines(results, name))


def failures(results, skipped):
    """Returns what failed, with one line of the error for each, and what did not run. The last output of a run."""
    lines = []
    for name, part in results.items():
        if part["problem"]:
            first, last = part["problem"].splitlines()[0], _last(part["problem"])
            lines.append(f"  {name}: {first}{'' if last == first else f' … {last}'}")
        lines += [f"  {name}: {r['name']}: {_last(r['error'])}" for r in part["rows"] if "error" in r]
        skipped = {**skipped, **{r["name"]: r["skipped"] for r in part["rows"] if "skipped" in r}}
    return "\n".join(
        [
            f"failures: {len(lines)}",
            *lines,
            f"not run: {len(skipped)}",
            *(f"  {name}: {why}" for name, why in skipped.items()),
        ]
    )


def summary(results):
    """Returns the number of targets that were met, and the missed targets."""
    card = card_of(results)
    rows = [r for name, s in results.items() if not name.startswith("torch") for r in s["rows"] if "ms" in r]
    own = [r for r in rows if verdict(r, card)]
    missed = [f"  {r['name']}: {verdict(r, card)[7:]}" for r in own if verdict(r, card) != "ok"]
    return "\n".join([f"targets: {len(own) - len(missed)} of {len(own)} met", *missed])


def show(make, *args):
    """Print the text that `make` returns. An error is printed too, because the next sections are more important."""
    try:
        print(make(*args) + "\n", flush=True)
    except Exception:
        traceback.print_exc()
