"""The commands for training and sampling on a GPU, each in a separate process over the fake CuPy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mytorch.serialization import load

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.cpu_only, pytest.mark.xdist_group("gpu_scripts")]  # one process makes the folder, once


def run(script, *flags, **more):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'without_figures'}",
        "OMP_NUM_THREADS": "1",
        **more,
    }
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(ROOT / "tests/gpu/with_fake_cupy.py"),
        str(ROOT / script),
        *map(str, flags),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def train(folder, name, *flags, **more):
    return run(
        "train_gpt2.py", "--device", "cuda", "--path_to_data", folder / "data", "--working_directory", folder / "work", "--project_name", name,
        "--model_size", "demo", "--context_length", 16, "--batch_size", 4, "--gradient_accumulation_steps", 2, "--train_iterations", 6,
        "--warmup_steps", 1, "--eval_interval", 6, "--eval_iterations", 2, "--log_iter", 1, "--dropout_p", 0.1, *flags, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("gpu_scripts")
    text = where / "text.txt"
    text.write_text(
        "".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "mytorch" / "nn").glob("*.py")))[:60000]
    )
    run("prepare_data/prepare_shakespeare.py", "--input_file", text, "--path_to_save", where / "data")
    return where


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_training_resumes_bit_for_bit(folder, precision):
    flags = ["--mixed_precision", precision]
    out = train(folder, f"whole_{precision}", *flags, "--checkpoint_iterations", 3)
    assert "Validation Loss" in out
    assert "Peak memory" in out
    again = train(
        folder,
        f"again_{precision}",
        *flags,
        "--resume_from_checkpoint",
        folder / "work" / f"whole_{precision}" / "checkpoint_3",
    )
    assert "Resuming after 3 iterations" in again
    ends = [folder / "work" / f"{name}_{precision}" / "final_checkpoint" for name in ("whole", "again")]
    assert ends[0].joinpath("model.safetensors").read_bytes() == ends[1].joinpath("model.safetensors").read_bytes()
    assert {w.dtype.name for w in load(ends[0] / "model.safetensors").values()} == {"float32"}  # the masters
    assert (ends[0] / "mp_config.bin").is_file() == (precision != "no")
    losses = [
        json.loads(line)["loss"]
        for line in folder.joinpath("work", f"whole_{precision}", "log.jsonl").read_text().splitlines()
        if '"loss"' in line
    ]
    assert losses[-1] < losses[0]


def test_training_by_graphs_resumes_bit_for_bit(folder):
    """By Triton's kernels, in its interpreter; the resumed run prepares its graph while the first one replays."""
    pytest.importorskip("triton")
    small = ["--batch_size", 2, "--gradient_accumulation_steps", 1, "--context_length", 8, "--eval_iterations", 1]
    flags = ["--mixed_precision", "fp16", "--fused", "--cuda_graph", *small]
    train(folder, "whole_graph", *flags, "--checkpoint_iterations", 3, TRITON_INTERPRET="1")
    checkpoint = folder / "work" / "whole_graph" / "checkpoint_3"
    train(folder, "again_graph", *flags, "--resume_from_checkpoint", checkpoint, TRITON_INTERPRET="1")
    ends = [
        (folder / "work" / name / "final_checkpoint" / "model.safetensors").read_bytes()
        for name in ("whole_graph", "again_graph")
    ]
    assert ends[0] == ends[1]


def test_sampling(folder):
    train(folder, "sampled")
    flags = ["--device", "cuda", "--max_tokens_gen", 12, "--topk", 5, "--seed", 1]
    outs = [
        run("inference_gpt2.py", folder / "work" / "sampled", *flags, *more)
        for more in ([], [], ["--disable_cache"], ["--fp16"])
    ]
    assert outs[0] == outs[1] == outs[2]
    assert all(out.strip() for out in outs)
