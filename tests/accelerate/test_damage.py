"""Checkpoints and files that something has happened to: nothing is lost, and nothing half loaded.

Cases are made by functions of a random generator; `CASES=100 python -m pytest tests/accelerate/test_damage.py` for more.
"""

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.accelerate import checkpoint
from mytorch.accelerate.tracking import Table
from mytorch.accelerate.training_state import newest_checkpoint
from mytorch.files import writing
from mytorch.models import GPT2, GPT2Config
from mytorch.serialization import atomic_file

from .test_checkpoint import Run, assert_same

CASES = int(os.environ.get("CASES", "3"))


class Count:
    def __init__(self, wrong=False):
        self.n, self.wrong = 0, wrong

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]
        if self.wrong:
            raise ZeroDivisionError("a state that can't be taken")


def run_with_all():
    run = Run("fp16")
    run.count = Count()
    run.accelerator.register_for_checkpointing(run.count)
    return run


def everything(run):
    """All that `load_state` may change, as plain values."""
    parts = [
        run.model.state_dict(), run.optimizer.state_dict(), run.scheduler.state_dict(), run.loader.state_dict(),
        run.accelerator.scaler.state_dict(), run.count.state_dict(), checkpoint.random_states(),
        run.accelerator.step_counter,
    ]  # fmt: skip

    def plain(x):
        if isinstance(x, dict):
            return {str(k): plain(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return [plain(v) for v in x]
        return (str(x.dtype), x.numpy().tolist()) if isinstance(x, mytorch.Tensor) else np.asarray(x).tolist()

    return plain(parts)


# -- kinds of damage to a file ------------------------------------------------------------------------------------


def missing(path, r):
    path.unlink()


def cut(path, r):
    os.truncate(path, int(r.integers(path.stat().st_size)))


def longer(path, r):
    with open(path, "ab") as file:
        file.write(bytes(int(r.integers(1, 100))))


def one_bit(path, r):
    content = bytearray(path.read_bytes())
    content[r.integers(len(content))] ^= 1 << int(r.integers(8))
    path.write_bytes(content)


def zeroed(path, r):
    content = bytearray(path.read_bytes())
    at = int(r.integers(len(content)))
    at -= at % 512
    content[at : at + 512] = bytes(len(content[at : at + 512]))
    path.write_bytes(content)


def anothers(path, r):
    others = [p for p in path.parent.iterdir() if p.name not in (path.name, checkpoint.META)]
    path.write_bytes(others[r.integers(len(others))].read_bytes())


DAMAGES = [missing, cut, longer, one_bit, zeroed, anothers]


@pytest.fixture
def folder(tmp_path):
    run_with_all().train(3).accelerator.save_state(tmp_path / "checkpoint_3")
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_part_is_named_and_nothing_is_loaded(folder, damage):
    path = folder / "checkpoint_3"
    names = sorted(p.name for p in path.iterdir() if p.name != checkpoint.META)
    assert len(names) == 7
    run = run_with_all().train(1)
    before = everything(run)
    for name in names:
        whole = (path / name).read_bytes()
        for seed in range(CASES):
            damage(path / name, np.random.default_rng(seed))
            with pytest.raises((FileNotFoundError, ValueError), match=name.replace(".", r"\.")):
                run.accelerator.load_state(path)
            (path / name).write_bytes(whole)
    assert everything(run) == before
    run.accelerator.load_state(path)
    assert_same(run, run_with_all().train(3))


@pytest.mark.parametrize(
    "part", ["model", "optimizer", "scheduler", "dataloader", "mp_config", "random_states", "custom"]
)
@pytest.mark.parametrize("content", [{}, [], {"other": 1}, None, 3, {"state": 1, "param_groups": []}])
def test_a_part_of_another_form_changes_nothing(folder, part, content):
    """Whole files, with an honest manifest, of something else."""
    path = folder / "checkpoint_3"
    (file,) = path.glob(f"{part}*")
    mytorch.serialization.save_tree(content, file)
    meta = json.loads((path / checkpoint.META).read_text())
    meta["files"][file.name] = checkpoint._record(file)
    (path / checkpoint.META).write_text(json.dumps(meta))
    run = run_with_all().train(1)
    before = everything(run)
    try:
        run.accelerator.load_state(path)
    except (ValueError, RuntimeError):
        assert everything(run) == before


def test_an_object_that_cannot_take_its_state_leaves_all_as_it_was(folder):
    run = run_with_all().train(1)
    run.accelerator.register_for_checkpointing(last := Count(wrong=True))
    (folder / "checkpoint_3" / "custom_checkpoint_1.bin").write_bytes(
        (folder / "checkpoint_3" / "custom_checkpoint_0.bin").read_bytes()
    )
    run.count.n = 7
    before = everything(run)
    with pytest.raises(ZeroDivisionError):
        run.accelerator.load_state(folder / "checkpoint_3")
    last.wrong = False
    assert everything(run) == before


def test_the_weights_of_another_model_change_nothing(folder):
    run = run_with_all().train(1)
    run.model[4] = nn.Linear(16, 3)
    before = everything(run)
    with pytest.raises(RuntimeError, match=r"size mismatch for 4\.bias: \(2,\) in the checkpoint, \(3,\) in the model"):
        run.accelerator.load_state(folder / "checkpoint_3")
    assert everything(run) == before


def test_a_checkpoint_of_before_there_were_checksums_is_read(folder):
    path = folder / "checkpoint_3" / checkpoint.META
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "files": sorted(meta["files"])}))
    run = run_with_all()
    run.accelerator.load_state(folder / "checkpoint_3")
    assert_same(run, run_with_all().train(3))


def test_the_checksum_detects_any_change_of_a_few_words():
    r = np.random.default_rng(0)
    whole = r.integers(0, 256, checkpoint._BLOCK + 3 * checkpoint._ROW + 77, np.uint8)
    right = checkpoint.checksum(checkpoint._in_blocks(whole))
    for _ in range(20 * CASES):
        other = whole.copy()
        places = r.integers(0, whole.size - 8, int(r.integers(1, 4)))
        for at in places:
            other[at] ^= 1 << int(r.integers(8))
        assert (checkpoint.checksum(checkpoint._in_blocks(other)) == right) == np.array_equal(other, whole)
        i, j = 8 * r.integers(0, whole.size // 8, 2)  # swaps two words
        other = whole.copy()
        other[i : i + 8], other[j : j + 8] = whole[j : j + 8], whole[i : i + 8]
        assert (checkpoint.checksum(checkpoint._in_blocks(other)) == right) == np.array_equal(other, whole)


# -- latest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, 0, 1, -1e5])
def test_latest_is_the_highest_step_for_any_clock(tmp_path, monkeypatch, hours):
    run = Run().train(2)
    run.accelerator.save_state(tmp_path / "checkpoint_2", total_limit=1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600 * hours)
    run.train(2).accelerator.save_state(tmp_path / "checkpoint_4", total_limit=2)
    assert newest_checkpoint(tmp_path).name == "checkpoint_4"
    run.train(1).accelerator.save_state(tmp_path / "checkpoint_5", total_limit=1)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint_5"]
    run.accelerator.save_state(tmp_path / "final_checkpoint", total_limit=1)
    assert newest_checkpoint(tmp_path).name == "final_checkpoint"


MANIFESTS = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"time": "x"}', b'{"version": []}', b'{"files": 3}', b"[" * 100000,
             b'{"micro_steps": NaN}', b'{"version": 99}']  # fmt: skip


@pytest.mark.parametrize("manifest", MANIFESTS, ids=range(len(MANIFESTS)))
def test_a_damaged_manifest_is_named_and_passed_over(tmp_path, manifest):
    run = Run().train(1)
    for n in (1, 2):
        run.accelerator.save_state(tmp_path / f"checkpoint_{n}")
    (tmp_path / "checkpoint_2" / checkpoint.META).write_bytes(manifest)
    with pytest.warns(UserWarning, match="skipped .*checkpoint_2:"):
        assert newest_checkpoint(tmp_path).name == "checkpoint_1"
    run.accelerator.save_state(tmp_path / "checkpoint_3", total_limit=3)
    with pytest.raises(ValueError, match=r"accelerator\.json is damaged|got version"):
        run.accelerator.load_state(tmp_path / "checkpoint_2")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_checkpoint_is_named_and_passed_over(folder, damage):
    run = run_with_all().train(5)
    run.accelerator.save_state(folder / "checkpoint_5")
    damage(folder / "checkpoint_5" / "optimizer.bin", np.random.default_rng(0))
    with pytest.warns(UserWarning, match=r"skipped .*checkpoint_5: .*optimizer\.bin"):
        assert newest_checkpoint(folder).name == "checkpoint_3"


# -- leftovers of killed writers ----------------------------------------------------------------------------------


def killed(program, tmp_path):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_half_written_checkpoints_and_files_go_at_the_next_start(tmp_path):
    killed(
        f"""
import os, signal
from mytorch.accelerate import checkpoint
from mytorch.serialization import atomic_file
def write(directory):
    (directory / "model.safetensors").write_bytes(bytes(100))
    with atomic_file({str(tmp_path / "x.pt")!r}) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.replace_directory({str(tmp_path / "checkpoint_1")!r}, write)
""",
        tmp_path,
    )
    assert len(list(tmp_path.glob(".*.partial"))) == 2
    with atomic_file(tmp_path / "y.pt") as mine:  # of a writer that lives: it stays
        assert newest_checkpoint(tmp_path) is None
        assert [p.name for p in tmp_path.iterdir()] == [os.path.basename(mine.name)]
    assert [p.name for p in tmp_path.iterdir()] == ["y.pt"]
    (tmp_path / ".checkpoint_9.123.partial").mkdir()  # of an earlier version
    run = Run().train(1)
    run.accelerator.save_state(tmp_path / "checkpoint_1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint_1", "y.pt"]


def test_a_kill_while_an_old_checkpoint_is_removed_leaves_no_part_of_it(tmp_path):
    run = Run().train(1)
    for i in (1, 2, 3):
        run.accelerator.step_counter = i
        run.accelerator.save_state(tmp_path / f"checkpoint_{i}")
    for call in (
        f"training_state.keep_newest({str(tmp_path / 'checkpoint_3')!r}, 2)",
        f"accelerate.remove_checkpoints({str(tmp_path)!r})",
    ):
        killed(
            f"""
import os, shutil, signal
from mytorch import accelerate
from mytorch.accelerate import training_state
def die(path, **options):
    if not os.path.isdir(path):  # a partial directory that is removed before it is written
        return
    os.remove(os.path.join(path, {checkpoint.META!r}))
    os.kill(os.getpid(), signal.SIGKILL)
shutil.rmtree = die
{call}
""",
            tmp_path,
        )
        assert all(checkpoint.is_complete(path) for path in tmp_path.glob("checkpoint_*"))
        assert len(list(tmp_path.glob(".*.partial"))) == 1
        newest_checkpoint(tmp_path)
        assert not list(tmp_path.glob(".*"))


def test_a_kill_in_save_pretrained_leaves_one_model_or_the_other(tmp_path):
    path = tmp_path / "model"
    small = {"vocab_size": 11, "context_length": 8, "num_layers": 1, "num_heads": 1, "embed_dim": 4}
    old, new = GPT2(GPT2Config(**small)), GPT2(GPT2Config(**{**small, "embed_dim": 8}))
    old.save_pretrained(path)
    (path / "notes.txt").write_text("mine")
    for name in ("write_json", "save_safetensors", "rename"):
        killed(
            f"""
import os, signal, sys
from mytorch.models import GPT2, GPT2Config, hugging_face
from mytorch.files import writing
def die(*args, **options): os.kill(os.getpid(), signal.SIGKILL)
if {name!r} == "rename": writing.shutil.rmtree = die
else: hugging_face.{name} = die
GPT2(GPT2Config(**{ {**small, "embed_dim": 8} })).save_pretrained({str(path)!r})
""",
            tmp_path,
        )
        found = GPT2.from_pretrained(path)
        assert found.config.embed_dim in (4, 8)
        assert (path / "notes.txt").read_text() == "mine"
    new.save_pretrained(path)
    assert GPT2.from_pretrained(path).config.embed_dim == 8
    assert sorted(p.name for p in path.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", "[" * 100000, '{"model_type": "gpt2", "n_layer": 1}'])
def test_a_damaged_config_raises_a_clear_error(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"GPT2\.from_pretrained: .*config\.json"):
        GPT2.from_pretrained(tmp_path)


def test_a_table_is_rewritten_in_one_step(tmp_path, monkeypatch):
    table = Table(tmp_path / "x.csv")
    table.add({"step": 1, "loss": 2.0})
    before = (tmp_path / "x.csv").read_text()
    monkeypatch.setattr(os, "replace", lambda a, b: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        table.add({"step": 2, "accuracy": 0.5})
    assert (tmp_path / "x.csv").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


# -- several writers, and a full disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_several_threads_may_save_to_one_path(tmp_path, name):
    problems = []

    def save(i):
        try:
            for _ in range(5):
                mytorch.save({"x": mytorch.full((1000 + i,), i)}, tmp_path / name)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    x = mytorch.load(tmp_path / name)["x"]
    assert x.numel() == 1000 + int(x[0])
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_several_threads_may_replace_one_directory(tmp_path):
    problems = []

    def save(i):
        try:
            for _ in range(5):
                writing.replace_directory(tmp_path / "d", lambda d: (d / f"{i}").write_text(str(i)), ours=str.isdigit)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(list((tmp_path / "d").iterdir())) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_a_full_disk_names_path_and_size_and_keeps_the_old_file(tmp_path, monkeypatch, name):
    mytorch.save([1], tmp_path / name)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=rf"{name} needs more than [\d,]{{3,}} bytes, [\d,]+ are free\. The old file is unchanged"
    ) as e:
        mytorch.save([mytorch.zeros(3000)], tmp_path / name)
    assert e.value.errno == errno.ENOSPC
    assert mytorch.load(tmp_path / name) == [1]
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_saving_does_not_change_the_saved_objects(folder):
    run = run_with_all().train(1)
    before = copy.deepcopy(everything(run))
    run.accelerator.save_state(folder / "again")
    assert everything(run) == before
