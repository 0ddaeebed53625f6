"""The table that gpu_check.py prints, and what is to be reached on an H200."""

import math
import traceback
from collections import defaultdict

WITHIN = 1.15  # of the floor: the kernels below, on an H200
NEAR_FLOOR = ("softmax", "layer_norm", "rms_norm", "cross_entropy", "AdamW 124M")
TARGETS = {  # what is to be reached on an H200: ms, and for training GiB
    "attention forward 32x12x1024x64 causal": (0.158, None),  # cuDNN's times
    "attention backward 32x12x1024x64 causal": (0.53, None),
    "attention by cuDNN forward 32x12x1024x64 causal": (0.158, None),
    "attention by cuDNN backward 32x12x1024x64 causal": (0.53, None),
    "GPT-2 124M bf16 B32xT1024": (80.8, 27.3),  # PyTorch, eager
    "GPT-2 124M bf16 B32xT1024 captured": (61.8, 15.1),  # PyTorch, compiled; the goal is 52
    "GPT-2 124M bf16 B32xT1024 captured, tuned": (61.8, 15.1),
    "GPT-2 124M bf16 B32xT1024 captured, Triton's attention": (61.8, 15.1),
    "GPT-2 small bf16 B32xT256 captured, tuned": (4.0, None),
    "GPT-2 small bf16 B32xT256": (14.6, None),
    "GPT-2 small bf16 B32xT256 captured": (4.0, None),
    "GPT-2 124M fp16 B32xT1024": (83.0, None),
    "GPT-2 124M fp32 B8xT1024": (156.0, None),
}


def target_of(row):
    """(ms, GiB) that a figure is to reach, None where nothing is said."""
    if row["name"] in TARGETS:
        return TARGETS[row["name"]]
    near = row.get("floor") and row["name"].startswith(NEAR_FLOOR)
    return (WITHIN * row["floor"] if near else None), None


def verdict(row):
    """ "ok" or what was missed by how much; "" without a target."""
    ms, gib = target_of(row)
    missed = [
        f"{row[key] / most:.2f} × {most:.3g} {key}"
        for key, most in (("ms", ms), ("GiB", gib))
        if most and not row[key] <= most
    ]
    missed += ["the loss is " + str(row["loss"])] if not math.isfinite(row.get("loss", 0.0)) else []
    return "MISSED " + ", ".join(missed) if missed else "ok" if ms else ""


def _last(text):
    return (text.splitlines() or ["?"])[-1][:110]


def table(results, names):
    """The figures of some sections as lines of text."""
    lines = []
    rows = defaultdict(dict)
    rows |= {name: {r["name"]: r for r in part.get("rows", [])} for name, part in results.items()}
    for name in names:
        own = rows[name]
        if name in ("versions", "ceilings", "sanitizer"):
            lines += [f"{key:<28}{r['value'] if 'value' in r else _last(r['error'])}" for key, r in own.items()]
        elif name == "correctness":
            good = sum("error" not in r for r in own.values())
            lines.append(f"{good} of {len(own)} checks against float64 passed")
            lines += [f"  FAILED {r['name']}: {_last(r['error'])}" for r in own.values() if "error" in r]
        elif name in ("kernels", "products", "torch"):
            lines.append(f"{'kernel':<52}{'ms':>9}{'floor':>9}{'× floor':>9}{'PyTorch':>9}{'× PyTorch':>11}")
            measured = {**rows["kernels"], **rows["products"]}
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
                lines.append(f"{label:<52}{text}  {errors[0] if errors else verdict(mine) if ms else ''}")
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
        elif name == "profile":
            for r in own.values():
                lines.append(
                    f"{r['spent']:>9.3f} ms{r['count']:>6} ×  {r['name']}" if "spent" in r else _last(r["error"])
                )
        elif name == "parity":
            for r in own.values():
                apart = f"losses {r['loss apart']:.1e}, norms {r['norm apart']:.1e} apart" if "loss apart" in r else ""
                lines.append(f"{r['name']:<52}{apart}  {_last(r['error']) if 'error' in r else 'ok'}")
        else:
            lines.append(f"{'training step':<52}{'ms':>9}{'ktok/s':>9}{'peak GiB':>10}{'loss':>9}")
            library = "PyTorch" if name == "torch-train" else "mytorch"
            for r in own.values():
                label = f"{library + ' ' + r['name']:<52}"
                if "error" in r:
                    lines.append(label + "  " + _last(r["error"]))
                else:
                    said = verdict(r) if library == "mytorch" else ""
                    lines.append(f"{label}{r['ms']:>9.2f}{r['ktok/s']:>9.0f}{r['GiB']:>10.2f}{r['loss']:>9.3f}  {said}")
    return "\n".join(lines)


def summary(results):
    """How many targets were met, and which were not."""
    own = [
        r for name, s in results.items() if not name.startswith("torch") for r in s["rows"] if "ms" in r and verdict(r)
    ]
    missed = [f"  {r['name']}: {verdict(r)[7:]}" for r in own if verdict(r) != "ok"]
    return "\n".join([f"targets: {len(own) - len(missed)} of {len(own)} met", *missed])


def show(make, *args):
    """Print what `make` makes of the results; should it fail, the figures are in the file, and what comes next is worth more."""
    try:
        print(make(*args) + "\n", flush=True)
    except Exception:
        traceback.print_exc()
