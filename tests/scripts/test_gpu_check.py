"""benchmarks/gpu_check.py at tiny sizes, over the stand-in for CuPy and Triton's interpreter: every figure comes, none fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/tests/gpu", {root!r} + "/benchmarks"]
import fake_cupy, numpy as np
cp = fake_cupy.install()
rng = np.random.default_rng(0)
cp.random.standard_normal = lambda shape, dtype=None: fake_cupy.wrap(np.asarray(rng.standard_normal(shape), dtype))
cp.random.randint = lambda low, high, size: fake_cupy.wrap(rng.integers(low, high, size))
cp.get_default_memory_pool().free_all_blocks()
import gpu_check as g
g.ROWS, g.WIDTH, g.CLASSES, g.HEADS, g.LOSSES, g.CONV, g.GROUPED, g.LONG = 32, 16, 11, (1, 2, 8, 16), 8, (2, 4, 6, 6), (2, 32, 6, 6), (1, 2, 16, 16)
g.TIME_STEPS, g.cupy_timer = 0, lambda: lambda call: (call(), 1.0)[1]
from mytorch.models import gpt2
gpt2.SIZES["tiny"] = (1, 2, 16)
tiny = {{"size": "tiny", "vocab_size": 31, "context_length": 8}}
g.MODELS = {{"GPT-2 tiny": (tiny, 2, "bfloat16")}}
g.RUNNERS[{section!r}](g.Report({file!r}), False)
"""


@pytest.mark.cpu_only
@pytest.mark.parametrize("section", ["kernels", "blocks", "train"])
def test_section(section, tmp_path):
    pytest.importorskip("triton")
    file = tmp_path / "report.jsonl"
    code = RUN.format(root=str(ROOT), section=section, file=str(file))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    failed = [f"{r['name']}: {r['error'][-500:]}" for r in rows if "error" in r]
    assert not failed, "\n".join(failed)
    assert len(rows) >= {"kernels": 60, "blocks": 12, "train": 1}[section]
    if section.startswith("train"):
        assert all(r["loss"] > 0 and r["ms"] > 0 for r in rows)


def test_what_the_table_says_of_targets():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu_check

    assert gpu_check.verdict({"name": "softmax forward fp32", "ms": 0.05, "floor": 0.047}) == "ok"
    assert gpu_check.verdict({"name": "softmax forward fp32", "ms": 0.094, "floor": 0.047}).startswith("MISSED 1.74")
    assert gpu_check.verdict({"name": "dropout forward fp32", "ms": 9.0, "floor": 0.047}) == ""
    step = {"name": "GPT-2 124M bf16 B32xT1024 captured", "ms": 60.0, "GiB": 16.0, "ktok/s": 1.0, "loss": 1.0}
    assert gpu_check.verdict(step) == "MISSED 1.06 × 15.1 GiB"
    assert set(gpu_check.RUNNERS) == set(gpu_check.SECTIONS)
    results = {"train-captured": {"rows": [step, {"name": "GPT-2 small bf16 B32xT256 captured", "error": "a\nboom"}]}}
    text = gpu_check.table(results, ["train-captured"])
    assert "MISSED" in text
    assert "boom" in text
    assert "0 of 1 met" in gpu_check.summary(results)
