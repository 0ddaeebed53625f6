"""Sections `profile`, `host` and `sanitizer`: the kernels of a captured step, the Python functions of an eager one, and kernels at odd
sizes under memcheck."""

import cProfile
import pstats
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from .sizes import BASE, BASE_MODEL, DEVICE, SMALL_MODEL

ODD = """
import mytorch
from mytorch.nn import functional as F
for half in (mytorch.float32, mytorch.bfloat16):
    draw = lambda *s: mytorch.randn(*s, device="cuda").to(half).requires_grad_()
    F.scaled_dot_product_attention(*(draw(2, 3, 77, 40) for _ in range(3)), is_causal=True, fused=True).sum().backward()
    F.layer_norm(draw(37, 771), (771,), draw(771), draw(771), fused=True).sum().backward()
    F.cross_entropy(draw(37, 5003), mytorch.randint(0, 5003, (37,), device="cuda"), fused=True).backward()
mytorch.cuda.synchronize()
"""


def profile(report, interpret):
    """Report the kernels in one replay of a step of the large model. PyTorch's profiler (CUPTI) records all libraries."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    from .training import make_step

    (name, (values, batch, half)), kind = next(iter(BASE_MODEL.items())), "CUDA" if DEVICE == "cuda" else "CPU"

    def run():
        import mytorch

        step, inputs, _ = make_step(values or BASE, batch, half)
        step = mytorch.compile_step(step)
        for _ in range(6):
            step(*inputs)
        mytorch.cuda.synchronize()
        with record(activities=[getattr(ProfilerActivity, kind)]) as recorded:
            step(*inputs)
            mytorch.cuda.synchronize()
        times = defaultdict(list)
        for event in recorded.events():
            times[event.name].append((getattr(event, "device_time", 0) or event.time_range.elapsed_us()) / 1e3)
        for kernel, spent in sorted(times.items(), key=lambda item: -sum(item[1]))[:60]:
            report(kernel[:100], spent=sum(spent), count=len(spent))
        return {"spent": sum(map(sum, times.values())), "count": sum(map(len, times.values()))}

    report.attempt(f"all of {name}", run)


def host(report, interpret):
    """Report the Python functions of an eager step of the small model, by their own time, in ms and calls of a step."""
    (name, model), steps = next(iter(SMALL_MODEL.items())), 10

    def run():
        import mytorch

        from .training import make_step

        step, inputs, _ = make_step(*model)
        for _ in range(steps):
            step(*inputs)
        mytorch.cuda.synchronize()
        with cProfile.Profile() as profiler:
            for _ in range(steps):
                step(*inputs)
        mytorch.cuda.synchronize()
        own = [(t, calls, place) for place, (_, calls, t, *_) in pstats.Stats(profiler).stats.items()]
        for t, calls, (file, line, function) in sorted(own, reverse=True)[:50]:
            label = f"{'/'.join(Path(file).parts[-2:])}:{line} {function}"
            report(label[:100], spent=t / steps * 1e3, count=calls / steps)
        return {"spent": sum(t for t, *_ in own) / steps * 1e3, "count": sum(calls for _, calls, _ in own) / steps}

    report.attempt(f"all of {name}", run)


def sanitizer(report, interpret):
    """Run compute-sanitizer memcheck over attention, norm and cross-entropy at odd sizes."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        return report("memcheck", value="compute-sanitizer is not installed")
    command = [tool, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, "-c", ODD]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return report("memcheck", error=f"exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return report("memcheck", value=done.stdout.strip().splitlines()[-1])
