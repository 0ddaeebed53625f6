"""A run of Weights & Biases in offline mode, under the launcher, and its files read back."""

import json
import struct

import pytest

from .launching import launch

SCRIPT = """
import sys
from mytorch.accelerate import Accelerator
accelerator = Accelerator(log_wandb=True, project_dir=sys.argv[1])
accelerator.init_tracker("project", "run", {"lr": 0.1, "processes": accelerator.num_processes})
for step in range(3):
    loss = accelerator.gather_for_metrics(float(step + accelerator.rank))
    accelerator.log({"loss": loss, "step_squared": step**2}, step=step)
accelerator.end_training()
"""


def records(path):
    """The records of a .wandb file: LevelDB's log format, in blocks of 32 KB, behind a header of 7 bytes."""
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def history_of(path):
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    rows, config = [], {}
    for content in records(path):
        record = internal.Record()
        record.ParseFromString(content)
        if record.HasField("history"):
            rows.append(
                {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            )
        if record.HasField("run"):
            config.update({item.key: json.loads(item.value_json) for item in record.run.config.update})
    return rows, config


@pytest.mark.parametrize("n", [1, 2])
def test_an_offline_run(n, tmp_path):
    pytest.importorskip("wandb")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = launch(n, script, tmp_path, WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")  # one run: only rank 0 logs
    rows, config = history_of(path)
    assert [row["loss"] for row in rows] == [step + (n - 1) / 2 for step in range(3)]
    assert [row["step_squared"] for row in rows] == [0, 1, 4]
    assert [row["_step"] for row in rows] == [0, 1, 2]
    assert config["lr"] == 0.1
    assert config["processes"] == n
