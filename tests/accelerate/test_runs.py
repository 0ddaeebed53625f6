"""Parts of training scripts: mytorch.accelerate.runs."""

import json
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

import mytorch
from mytorch import accelerate, nn
from mytorch.accelerate import Accelerator, Interrupt, Progress, RunLog, Throughput, runs


class Printing:
    """An Accelerator of one process on the CPU whose lines are kept."""

    def __init__(self, scaler=None):
        self.lines, self.logged, self.scaler = [], [], scaler
        self.device, self.num_processes, self.is_main_process = mytorch.device("cpu"), 1, True

    def print(self, line):
        self.lines.append(line)

    def log(self, values, step):
        self.logged.append((step, values))

    def gather_for_metrics(self, loss):
        return float(loss)


def test_the_first_signal_is_remembered_and_the_second_one_raises(capfd):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with Interrupt() as interrupt:
        assert not interrupt.received()
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.received()
        assert interrupt.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "Finishing this step; Ctrl-C again quits" in capfd.readouterr().err
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


def test_all_processes_stop_for_a_signal_of_one(capfd):
    arriving = mytorch.tensor([0, int(signal.SIGINT)])
    other = SimpleNamespace(
        num_processes=2, device="cpu", is_main_process=False, gather=lambda mine: mytorch.cat([mine, arriving])
    )
    with Interrupt(other) as interrupt:
        assert interrupt.received()
        assert interrupt.signal == signal.SIGINT
        arriving = mytorch.tensor([0, 0])
    with Interrupt(other) as interrupt:
        assert not interrupt.received()
        signal.raise_signal(signal.SIGINT)
        assert interrupt.received()
    assert capfd.readouterr().err == ""  # only the main process prints


def test_workers_ignore_ctrl_c():
    before = signal.getsignal(signal.SIGINT)
    try:
        accelerate.ignore_interrupts(0)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_log_resumes_without_later_and_truncated_records(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path)
    for i in range(1, 5):
        log.write(iteration=i, loss=1 / i)
    with open(path, "a") as file:
        file.write('{"iteration": 2, "lo')
    again = RunLog(path, iteration=2)
    assert [r["iteration"] for r in again.records] == [1, 2]
    assert path.read_text().splitlines() == [json.dumps({"iteration": i, "loss": 1 / i}) for i in (1, 2)]
    assert RunLog(path).records == []
    assert path.read_text() == ""


def test_a_log_keeps_records_until_they_can_be_written(tmp_path, monkeypatch):
    log = RunLog(tmp_path / "log.jsonl")

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", full)
        log.write(iteration=1)
    log.write(iteration=2)
    assert [json.loads(line)["iteration"] for line in log.path.read_text().splitlines()] == [1, 2]


def test_a_log_that_does_not_write_makes_no_file(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", writes=False)
    log.write(iteration=1)
    log.plot(tmp_path / "loss.png")
    assert not list(tmp_path.iterdir())


def test_losses_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    log = RunLog(tmp_path / "log.jsonl")
    for i in range(1, 5):
        log.write(iteration=i, loss=1 / i, other=2 / i)
    log.write(iteration=4, validation_loss=0.5)
    log.plot(tmp_path / "loss.png")
    log.plot(tmp_path / "other.png", [("other", "Other")], ylabel="y")
    for name in ("loss.png", "other.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_checkpoints_are_found_by_name_by_path_and_as_the_latest_and_removed(tmp_path):
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(2, 2))
    with pytest.raises(FileNotFoundError, match="expected a checkpoint in"):
        accelerate.find_checkpoint(tmp_path)
    for i in (1, 2):
        accelerator.step_counter = i
        accelerator.save_state(tmp_path / f"checkpoint_{i}")
    (tmp_path / "log.jsonl").write_text("")
    (tmp_path / "other").mkdir()
    assert accelerate.find_checkpoint(tmp_path) == tmp_path / "checkpoint_2"
    assert accelerate.find_checkpoint(tmp_path, "checkpoint_1") == tmp_path / "checkpoint_1"
    assert accelerate.find_checkpoint(tmp_path / "x", tmp_path / "checkpoint_1") == tmp_path / "checkpoint_1"
    with pytest.raises(FileNotFoundError, match="expected a complete checkpoint other"):
        accelerate.find_checkpoint(tmp_path, "other")
    accelerate.remove_checkpoints(tmp_path)
    accelerate.remove_checkpoints(tmp_path / "missing")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.jsonl", "other"]


def test_one_run_uses_a_folder(tmp_path, monkeypatch):
    with accelerate.exclusive(tmp_path):
        with pytest.raises(BlockingIOError, match="no other run uses"), accelerate.exclusive(tmp_path):
            pass
        with accelerate.exclusive(tmp_path, writes=False):
            pass
    assert list(tmp_path.iterdir()) == []

    locked = []

    def late(file):  # the first time, another run ends after the file was opened, and removes it
        if not locked:
            (tmp_path / ".lock").unlink()
        locked.append(runs_lock(file))
        return locked[-1]

    runs_lock = runs.lock
    monkeypatch.setattr(runs, "lock", late)
    with accelerate.exclusive(tmp_path):
        assert locked == [True, True]
        with pytest.raises(BlockingIOError), accelerate.exclusive(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_throughput_leaves_pauses_out():
    speed = Throughput(1000, flops_per_token=6.0, peak=6e4)
    for _ in range(5):
        speed.step()
    with speed.paused():
        time.sleep(0.2)
    time.sleep(0.01)
    assert 5000 / 0.15 < speed.tokens_per_second() <= 5000 / 0.01
    assert speed.mfu(2500) == 0.25
    assert Throughput(1000, 6.0, None).mfu(2500) is None
    speed.restart()
    assert speed.tokens_per_second() == 0


def test_the_peak_of_a_device(monkeypatch):
    cpu, gpu = mytorch.device("cpu"), SimpleNamespace(type="cuda")
    assert accelerate.peak_flops(cpu) is None
    assert accelerate.peak_flops(cpu, tflops=2.5) == 2.5e12
    monkeypatch.setattr(accelerate.runs, "get_device_name", lambda device: "NVIDIA H200")
    assert (accelerate.peak_flops(gpu), accelerate.peak_flops(gpu, half=True)) == (67e12, 989e12)
    monkeypatch.setattr(accelerate.runs, "get_device_name", lambda device: "another")
    assert accelerate.peak_flops(gpu) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_an_error(value):
    accelerate.check_finite(Printing(), 1.0, 1.0)
    accelerate.check_finite(Printing(scaler=object()), 1.0, value)  # the scaler skips the step
    with pytest.raises(FloatingPointError, match=f"the gradient norm is {value} there"):
        accelerate.check_finite(Printing(), 1.0, value, " there")
    with pytest.raises(FloatingPointError, match=f"the loss is {value}"):
        accelerate.check_finite(Printing(scaler=object()), value, 1.0)


def test_the_mean_loss_is_measured_in_evaluation_mode_without_a_graph():
    seen = []

    class Model(nn.Module):
        def forward(self, x, y):
            seen.append((self.training, mytorch.is_grad_enabled()))
            return (x - y).square().mean()

    batches = [(np.full(2, i, np.float32), np.zeros(2, np.float32)) for i in range(3)]
    model, accelerator = Model(), Printing()
    assert accelerate.mean_loss(accelerator, model, batches) == pytest.approx(5 / 3)
    assert seen == [(False, False)] * 3
    assert model.training
    with Interrupt(message="") as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert accelerate.mean_loss(accelerator, model, batches, interrupt) is None
    assert len(seen) == 3
    assert model.training


def test_progress_prints_and_logs_each_interval_and_the_last_step(tmp_path):
    log, speed, accelerator = RunLog(tmp_path / "log.jsonl"), Throughput(100, 6.0, 1e9), Printing()
    with Progress(accelerator, log, speed, total=5, done=2, every=2) as progress:
        for i in (3, 4, 5):
            progress.step(i, mytorch.tensor(2.0), 1e-3, mytorch.tensor(0.25))
        progress.evaluating(1, 2)
        progress.record(5, validation_loss=3.0)
    assert len(accelerator.lines) == 2
    assert accelerator.lines[0].startswith(
        "Iter:      4 | Loss:  2.0000 | LR:  1.00e-03 | GradNorm:   0.250 | Toks/Sec:"
    )
    assert "MFU" in accelerator.lines[0]
    assert [r["iteration"] for r in log.records] == [4, 5, 5]
    assert log.records[0].keys() == {"iteration", "loss", "lr", "grad_norm", "tokens_per_second", "mfu"}
    assert accelerator.logged[-1] == (5, {"validation_loss": 3.0})


def test_a_long_training_on_a_cpu_is_announced():
    accelerator = Printing()
    assert accelerate.warn_if_long(accelerator, 1e14, "less is faster.") < 1
    assert not accelerator.lines
    assert accelerate.warn_if_long(accelerator, 3.6e15, "less is faster.") == 10
    assert accelerator.lines == ["On a CPU that computes 100 GFLOP/s this takes about 10 hours; less is faster."]


def test_a_damaged_log_is_repaired(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [
        '{"iteration": 1, "loss": 2.5}',
        '{"iteration": 2}}',
        '{"loss": 1}',
        "[1]",
        '{"iteration": "x"}',
        '{"iteration": null}',
    ]
    path.write_bytes(
        "\n".join(lines).encode() + b"\n\xff\xfe{}\n" + b"[" * 100_000 + b'\n{"iteration": 2, "loss": 2.0}\n{"itera'
    )
    assert RunLog(path, iteration=5).records == [{"iteration": 1, "loss": 2.5}, {"iteration": 2, "loss": 2.0}]
    assert len(path.read_text().splitlines()) == 2
