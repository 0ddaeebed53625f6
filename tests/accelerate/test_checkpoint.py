import errno
import json
import pickle
import random
import re
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.accelerate import Accelerator, checkpoint
from mytorch.accelerate.training_state import is_complete, newest_checkpoint
from mytorch.files import writing
from mytorch.optim.lr_scheduler import CosineLRScheduler
from mytorch.utils.data import DataLoader, TensorDataset


class Run:
    """A small training run with everything that must be restored: dropout, a shuffled loader, a schedule, batch norm
    statistics, accumulation, a scaler."""

    def __init__(self, precision="no", workers=0, seed=0):
        mytorch.manual_seed(99)
        x = mytorch.randn(37, 6)
        dataset = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
        mytorch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(16), nn.Linear(16, 2))
        model.register_buffer("seen", mytorch.zeros(()))
        optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = CosineLRScheduler(optimizer, 1e-2, 1e-4, 200, 10)
        loader = DataLoader(dataset, batch_size=5, shuffle=True, num_workers=workers)
        self.accelerator = Accelerator(
            gradient_accumulation_steps=2, mixed_precision=precision, scaler_options={"growth_interval": 7}
        )
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, optimizer, loader, scheduler
        )
        self.losses = []

    def train(self, steps):
        while True:
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                self.accelerator.clip_grad_norm_(1.0)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.losses.append(loss.item())
                if self.accelerator.sync_grad:
                    self.model.seen += 1
                    steps -= 1
                    if not steps:
                        return self

    def state(self):
        rng = mytorch.get_rng_state().numpy().tobytes()
        return {name: t.numpy().copy() for name, t in self.model.state_dict().items()}, rng


def assert_same(a, b):
    (weights, rng), (other_weights, other_rng) = a.state(), b.state()
    for name, w in weights.items():
        np.testing.assert_array_equal(w, other_weights[name], err_msg=name)
    assert rng == other_rng


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_two_hundred_steps_are_one_hundred_saved_loaded_and_one_hundred_more(tmp_path, precision):
    whole = Run(precision).train(200)
    first = Run(precision).train(100)
    first.accelerator.save_state(tmp_path / "checkpoint")
    second = Run(precision, seed=5)
    mytorch.randn(17)  # for any position of the generator
    second.accelerator.load_state(tmp_path / "checkpoint")
    second.train(100)
    assert first.losses + second.losses == whole.losses
    assert_same(second, whole)
    assert second.model.seen.item() == 200


def test_workers_change_nothing_in_resuming(tmp_path):
    whole = Run(workers=2).train(12)
    first = Run(workers=2).train(5)
    first.accelerator.save_state(tmp_path / "checkpoint")
    second = Run(workers=2, seed=5)
    second.accelerator.load_state(tmp_path / "checkpoint")
    second.train(7)
    assert first.losses + second.losses == whole.losses
    assert_same(second, whole)


def test_saving_disturbs_nothing(tmp_path):
    whole = Run().train(10)
    other = Run().train(5)
    other.accelerator.save_state(tmp_path / "checkpoint")
    other.train(5)
    # the interrupted loop began a new epoch, so only its first part is comparable
    assert other.losses[:10] == whole.losses[:10]


def test_numpys_and_pythons_generators_continue_too(tmp_path):
    run = Run()
    run.accelerator.save_state(tmp_path / "c")
    expected = np.random.rand(3).tolist(), random.random()
    run.accelerator.load_state(tmp_path / "c")
    assert (np.random.rand(3).tolist(), random.random()) == expected


def test_the_promised_files_are_there_and_none_is_a_pickle(tmp_path, capsys):
    run = Run("fp16").train(2)
    run.accelerator.register_for_checkpointing(Counter(4))
    run.accelerator.save_state(tmp_path / "c")
    assert capsys.readouterr().out == f"Saving Checkpoint to {tmp_path / 'c'}\n"
    names = {p.name for p in (tmp_path / "c").iterdir()}
    assert names == {
        "model.safetensors", "optimizer.bin", "scheduler.bin", "dataloader_0.bin", "mp_config.bin",
        "random_states_0.bin", "custom_checkpoint_0.bin", "accelerator.json",
    }  # fmt: skip
    for name in names:
        with pytest.raises(Exception):  # noqa: B017
            pickle.loads((tmp_path / "c" / name).read_bytes())
    assert set(mytorch.load(tmp_path / "c" / "model.safetensors")) == set(run.model.state_dict())
    assert mytorch.load(tmp_path / "c" / "mp_config.bin")["scale"] == run.accelerator.scaler.get_scale()


class Counter:
    def __init__(self, n):
        self.n = n

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def test_registered_objects_come_back_and_others_are_refused(tmp_path):
    accelerator = Accelerator()
    counter = Counter(4)
    accelerator.register_for_checkpointing(counter)
    accelerator.save_state(tmp_path / "c")
    counter.n = 0
    accelerator.load_state(tmp_path / "c")
    assert counter.n == 4
    with pytest.raises(ValueError, match="with state_dict and load_state_dict, got object"):
        accelerator.register_for_checkpointing(object())


def test_several_models_and_optimizers_get_numbered_files(tmp_path):
    accelerator = Accelerator()
    models = [nn.Linear(2, 2), nn.Linear(3, 3)]
    accelerator.prepare(*models, *[mytorch.optim.SGD(m.parameters(), lr=0.1) for m in models])
    accelerator.save_state(tmp_path / "c")
    assert {"model.safetensors", "model_1.safetensors", "optimizer.bin", "optimizer_1.bin"} <= {
        p.name for p in (tmp_path / "c").iterdir()
    }
    kept = [m.weight.detach().clone() for m in models]
    with mytorch.no_grad():
        for m in models:
            m.weight.zero_()
    accelerator.load_state(tmp_path / "c")
    assert all((m.weight == k).all() for m, k in zip(models, kept, strict=True))


def test_the_model_alone_can_be_saved_and_loaded(tmp_path):
    run = Run().train(3)
    run.accelerator.save_state(tmp_path / "c", save_model_only=True)
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"model.safetensors", "accelerator.json"}
    other = Run(seed=5)
    other.accelerator.load_state(tmp_path / "c")
    assert (other.model[0].weight == run.model[0].weight).all()
    assert other.scheduler.step_count == 0
    run.accelerator.save_model(run.model, tmp_path / "m")
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["model.safetensors"]


def test_only_the_newest_numbered_checkpoints_are_kept(tmp_path):
    accelerator = Accelerator(total_limit=2)
    (tmp_path / "checkpoint_x").mkdir()
    for n in (900, 1, 2, 10):  # 900: of an older run
        accelerator.save_state(tmp_path / f"checkpoint_{n}")
    accelerator.save_state(tmp_path / "final_checkpoint")
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint_2", "checkpoint_10", "checkpoint_x", "final_checkpoint"}
    assert newest_checkpoint(tmp_path).name == "final_checkpoint"
    accelerator.save_state(tmp_path / "checkpoint_3", total_limit=1)
    assert newest_checkpoint(tmp_path).name == "checkpoint_3"
    assert not is_complete(tmp_path / "checkpoint_10")


def test_a_checkpoint_is_replaced_completely_and_other_files_in_it_are_kept(tmp_path):
    run = Run("fp16")
    run.accelerator.save_state(tmp_path / "c")
    (tmp_path / "c" / "notes.txt").write_text("mine")
    plain = Accelerator()
    plain.save_state(tmp_path / "c")
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"notes.txt", "accelerator.json", "random_states_0.bin"}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_an_error_while_saving_leaves_the_old_checkpoint(tmp_path):
    run = Run()
    run.accelerator.save_state(tmp_path / "c")
    before = (tmp_path / "c" / "model.safetensors").read_bytes()
    run.train(2)
    run.accelerator.register_for_checkpointing(Counter(object()))
    with pytest.raises(TypeError, match="can't be saved"):
        run.accelerator.save_state(tmp_path / "c")
    assert (tmp_path / "c" / "model.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(("system", "after"), [("darwin", 1), ("darwin", 2), ("linux", 1), ("linux", 2)])
def test_a_process_killed_while_replacing_leaves_a_whole_checkpoint(tmp_path, system, after):
    """The process is killed after the first rename (the old checkpoint is moved away) or after the second (the new one is in
    place). On Linux the replacement is one step, so the process is killed before and after this step."""
    program = f"""
import os, sys
from pathlib import Path
from mytorch.accelerate import Accelerator, checkpoint
accelerator = Accelerator()
accelerator.save_state({str(tmp_path / "c")!r})
from mytorch.files import writing
real, exchange, count = os.rename, writing._exchange, 0
def rename(a, b):
    global count
    real(a, b)
    count += 1
    if count == {after}:
        os._exit(9)
def once(a, b):
    if {after} == 2:
        exchange(a, b)
    os._exit(9)
if sys.platform != {system!r}:
    sys.platform = {system!r}
    os.rename = rename
else:
    writing._exchange = once
accelerator.save_state({str(tmp_path / "c")!r})
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 9
    accelerator = Accelerator()
    accelerator.load_state(tmp_path / "c")
    accelerator.save_state(tmp_path / "c")
    assert is_complete(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_missing_directories_and_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Accelerator().load_state(tmp_path / "nothing")
    Accelerator().save_state(tmp_path / "c")
    run = Run()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing. Prepare the same objects"):
        run.accelerator.load_state(tmp_path / "c")


def test_a_later_version_is_refused(tmp_path):
    Accelerator().save_state(tmp_path / "c")
    meta = json.loads((tmp_path / "c" / "accelerator.json").read_text())
    (tmp_path / "c" / "accelerator.json").write_text(json.dumps({**meta, "version": 99}))
    with pytest.raises(ValueError, match="got version 99"):
        Accelerator().load_state(tmp_path / "c")


def test_a_full_disk_is_tried_again_and_named_and_keeps_the_old_checkpoint(tmp_path, monkeypatch, capsys):
    run = Run().train(1)
    run.accelerator.save_state(tmp_path / "c")
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    monkeypatch.setattr(writing, "WAITS", (0, 0))
    tried, write = [], checkpoint.save_state_dict

    def full(state, path):
        tried.append(path)
        if len(tried) != 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(state, path)

    monkeypatch.setattr(checkpoint, "save_state_dict", full)
    run.train(1)
    sentence = r"The disk is full: .*c needs at least [\d,]+ bytes, [\d,]+ are free\. The old files are unchanged\."
    with pytest.raises(OSError, match=sentence):
        run.accelerator.save_state(tmp_path / "c")
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert capsys.readouterr().err.count("Trying again in") == 2
    run.accelerator.save_state(tmp_path / "c")  # the second try succeeds
    assert len(tried) == 5
    assert is_complete(tmp_path / "c")
    assert (tmp_path / "c" / "model.safetensors").read_bytes() != before["model.safetensors"]


class _Table:
    """An object that keeps an array, twice."""

    def __init__(self):
        self.rows = np.zeros(50_000)

    def state_dict(self):
        return {"rows": self.rows, "again": self.rows, "moments": [mytorch.ones(2500)]}

    def load_state_dict(self, state):
        self.rows = state["rows"]


@pytest.mark.parametrize("model_only", [False, True])
def test_the_error_for_a_full_disk_contains_the_size_of_the_checkpoint(model_only, tmp_path, monkeypatch):
    """The size includes the state of registered objects. If only the weights are saved, it includes only the weights."""
    run = Run().train(1)
    run.accelerator.register_for_checkpointing(_Table())
    run.accelerator.save_state(tmp_path / "c", model_only)
    written = sum(path.stat().st_size for path in (tmp_path / "c").iterdir())
    monkeypatch.setattr(writing, "WAITS", ())
    monkeypatch.setattr(checkpoint, "save_state_dict", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="at least") as raised:
        run.accelerator.save_state(tmp_path / "d", model_only)
    told = int(re.search(r"at least ([\d,]+) bytes", str(raised.value))[1].replace(",", ""))
    assert (
        (0 if model_only else 410_000) < told < written < told + 40_000
    )  # of names, headers and states of generators as text


def test_accumulation_is_aligned_again_in_loading(tmp_path, capsys):
    """A step begins with the next backward, for every number of passes."""
    run = Run()
    run.accelerator.gradient_accumulation_steps = 1
    run.train(5).accelerator.save_state(tmp_path / "five")
    again = Run()
    again.accelerator.load_state(tmp_path / "five")
    before = again.model[0].weight.detach().numpy().copy()
    assert len(again.train(1).losses) == 2
    assert (again.model[0].weight.detach().numpy() != before).any()

    x = mytorch.ones(1, 6)
    run = Run()
    run.accelerator.backward(run.model(x).sum())  # half a step
    run.accelerator.save_state(tmp_path / "half")
    again = Run()
    again.accelerator.load_state(tmp_path / "half")
    assert "within a step, after 1 of 2 backward passes" in capsys.readouterr().out
    assert len(again.train(1).losses) == 2


def test_hooks_write_into_the_checkpoint(tmp_path):
    run = Run()
    run.accelerator.register_save_state_pre_hook(
        lambda models, weights, directory: (directory / "note.txt").write_text(f"{len(models)} {len(weights[0])}")
    )
    run.accelerator.save_state(tmp_path / "c")
    (tmp_path / "c" / "note.txt").write_text("an old one")
    (tmp_path / "c" / "mine.txt").write_text("kept")
    run.accelerator.save_state(tmp_path / "c")
    assert (tmp_path / "c" / "note.txt").read_text() == f"1 {len(run.model.state_dict())}"
    assert (tmp_path / "c" / "mine.txt").read_text() == "kept"
