"""Sharded models, tensor parallelism, sharded checkpoints and restarts, under the launcher with two to four ranks."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed import checkpoint as dcp
from mytorch.distributed import rendezvous, run
from mytorch.distributed.elastic import record
from mytorch.distributed.elastic.multiprocessing.errors import error_file
from mytorch.nn import functional as F
from mytorch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from .launching import PROGRAMS, ROOT, checks_in, environment, launch, results_of

# Checks that depend on the number of ranks; two ranks run all checks.
THREE = [
    "fsdp_gpt2_with_tied_weights",
    "fsdp_accumulates_and_clips",
    "functions_of_dtensors",
    "memory_of_a_step",
    "join",
]
FOUR = ["fsdp_and_tensor_parallel", "hybrid_sharding", "functions_of_dtensors", "redistribution", "meshes"]
FOUR += ["checkpoints_are_loaded_in_other_layouts", "fsdp_llama"]
GENERATED = [
    name
    for program in (
        "dtensor_functions.py",
        "dtensor_arguments.py",
        "fsdp_modules.py",
        "dtensor_changes.py",
        "training_programs.py",
    )
    for name in checks_in(program)
]
CASES = (
    [(n, name) for n in (2, 3, 4) for name in GENERATED]
    + [(2, name) for name in checks_in("sharded.py")]
    + [(3, f"check_{n}") for n in THREE]
    + [(4, f"check_{n}") for n in FOUR]
)
NAMES = {n: [name for ranks, name in CASES if ranks == n] for n in (2, 3, 4)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    found = {}

    def of(n):
        if n not in found:
            path = tmp_path_factory.mktemp("sharded") / "results.json"
            found[n] = results_of(n, partial_program(n, path.parent), path, timeout=60, limit=400)
        return found[n]

    return of


def partial_program(n, folder):
    """A script that runs the checks for a number of ranks."""
    script = folder / "checks_of_ranks.py"
    program = str(PROGRAMS / "sharded.py")
    script.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(PROGRAMS)!r})\nimport checks\n"
        f"names = runpy.run_path({program!r})\nchecks.run({{k: names[k] for k in {NAMES[n]!r}}}, sys.argv[1])\n"
    )
    return script


@pytest.mark.parametrize("n", NAMES)
def test_sharded(results, n):
    failed = {name: results(n)[name] for name in NAMES[n] if results(n)[name] is not None}
    assert not failed, "\n\n".join(f"{name}: {told}" for name, told in failed.items())


def test_a_pytorch_program_has_the_losses_of_pytorch(tmp_path):
    pytest.importorskip("torch")
    program, modes = PROGRAMS / "pytorch_sharded.py", ("accumulated", "tp")
    command = [sys.executable, "-m", "mytorch.cli", "torchrun", "--cpu", "--nproc_per_node", "2", "--timeout", "60"]
    ours = subprocess.run(
        [*command, program, tmp_path / "ours.json", *modes],
        capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=200, check=False,
    )  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    theirs = launch(2, program, tmp_path / "theirs.json", *modes, limit=200)
    assert (tmp_path / "theirs.json").is_file(), theirs.stderr  # gloo sometimes aborts at its end
    mine, reference = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("ours", "theirs"))
    for mode, losses in reference.items():
        assert mine[mode] == pytest.approx(losses, abs=1e-5), mode


def losses_of(path):
    """{step: losses} of a file of restarting.py, and the number of attempts."""
    rows = [line.split() for line in path.read_text().splitlines()]
    steps = {}
    for step, loss, _ in rows:
        steps.setdefault(int(step), set()).add(loss)
    return steps, len({attempt for *_, attempt in rows})


def test_killed_ranks_are_restarted_and_the_losses_continue_bit_for_bit(tmp_path):
    """With the checkpoints of `distributed.checkpoint`, and of `Accelerator.save_state`."""
    for name, kind in (("killed", ()), ("accelerator", ("accelerator",))):
        (tmp_path / name).mkdir()
        options = ("--max_restarts", "3")
        killed = launch(2, PROGRAMS / "restarting.py", tmp_path / name, 40, 1, *kind, options=options)
        assert killed.returncode == 0, killed.stderr
        assert killed.stderr.count("was killed by SIGKILL") >= 1
        expected, _ = losses_of(tmp_path / name / "whole.txt")
        found, attempts = losses_of(tmp_path / name / "losses.txt")
        assert attempts > 1
        assert list(found) == list(range(40))
        assert found == expected
        assert all(len(losses) == 1 for losses in found.values())


WRONG = {  # function of the program -> errors of ranks 0 and 1
    "world_size": ("expected rank 1 and world_size 2, as in MPI, got 1 and 3",) * 2,
    "mesh": ("rank 0 calls new_group([0]), rank 1 barrier", "rank 1 calls barrier, rank 0 new_group([0])"),
    "layouts": ("rank 1 all_to_all(float32)", "rank 1 calls all_to_all(float32), rank 0 all_gather_into_tensor"),
    "before_a_collective": ("rank 1 is missing: it last called all_gather_into_tensor", "KeyError: 'the cause'"),
}


@pytest.mark.parametrize("how", WRONG)
def test_every_rank_reports_wrong_use_without_a_hang(tmp_path, how):
    done = launch(2, PROGRAMS / "wrong_input.py", how, tmp_path)
    assert done.returncode == 1
    for rank, text in enumerate(WRONG[how]):
        seconds, _, message = (tmp_path / f"{rank}.txt").read_text().partition(" ")
        assert text in message
        # a missing rank is noticed after the timeout, and a different collective at once
        assert float(seconds) < 30


# -- one process -----------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


def test_checkpoints_without_a_process_group(tmp_path):
    state = {
        "a": {"b": [mytorch.ones(2), mytorch.zeros(0, 3)]},
        "half": mytorch.ones(3).bfloat16(),
        "n": 3,
        "x": mytorch.tensor(2.0),
    }
    assert dcp.save(state, checkpoint_id=tmp_path / "c") == tmp_path / "c"
    loaded = {
        "a": {"b": [mytorch.zeros(2), mytorch.ones(0, 3)]},
        "half": mytorch.zeros(3).bfloat16(),
        "n": 0,
        "x": mytorch.tensor(0.0),
    }
    dcp.load(loaded, checkpoint_id=tmp_path / "c")
    assert loaded["n"] == 3
    assert loaded["a"]["b"][0].tolist() == [1.0, 1.0]
    assert loaded["half"].float().tolist() == [1.0] * 3
    assert loaded["x"].item() == 2.0
    with pytest.raises(ValueError, match="twice"):
        dcp.save({"a.b": 1, "a": {"b": 2}}, checkpoint_id=tmp_path / "c")
    assert dcp.latest(tmp_path) == tmp_path / "c"
    assert dcp.latest(tmp_path / "missing") is None
    (tmp_path / "c" / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="is damaged"):
        dcp.load(loaded, checkpoint_id=tmp_path / "c")
    assert dcp.latest(tmp_path) is None


def test_the_accelerator_names_the_option_that_loads_a_sharded_checkpoint(tmp_path):
    model = nn.Linear(2, 3)
    dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "state")
    accelerator = mytorch.Accelerator()
    accelerator.prepare(model)
    with pytest.raises(FileNotFoundError, match=r"Accelerator\(fsdp=True\)"):
        accelerator.load_state(tmp_path / "state")


def test_objects_with_state_dicts(tmp_path):
    layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
    dcp.save({"layer": layer}, checkpoint_id=tmp_path / "c")
    dcp.load({"layer": other}, checkpoint_id=tmp_path / "c")
    np.testing.assert_array_equal(other.weight.detach().numpy(), layer.weight.detach().numpy())


def test_a_failed_save_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    from mytorch.distributed.checkpoint import saving

    dcp.save({"x": mytorch.ones(2)}, checkpoint_id=tmp_path / "c")

    def fail(*args):
        raise OSError("the disk is gone")

    monkeypatch.setattr(saving, "save_safetensors", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        dcp.save({"x": mytorch.zeros(2)}, checkpoint_id=tmp_path / "c")
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    state = {"x": mytorch.zeros(2)}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["x"].tolist() == [1.0, 1.0]


def test_record_writes_the_error(tmp_path, monkeypatch):
    @record
    def fail():
        raise KeyError("cause")

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(KeyError):
        fail()
    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert message["message"] == "KeyError: 'cause'"
    assert "in fail" in message["extraInfo"]["py_callstack"]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert error_file() == tmp_path / "error_rank1.json"


def test_options_of_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("PET_NNODES", "2:2")
    monkeypatch.setenv("PET_MASTER_ADDR", "10.0.0.1")
    args = run.parse(["--nnodes", "1", "script.py"])
    assert (args.nnodes, args.master_addr, args.max_restarts) == (1, "10.0.0.1", None)
    assert run.parse(["script.py"]).nnodes == 2
    with pytest.raises(SystemExit):
        run.parse(["--nnodes", "1:4", "script.py"])
    assert "expected a fixed number of machines" in capsys.readouterr().err


def test_no_server_listens_at_all_addresses_without_a_token(monkeypatch):
    monkeypatch.delenv("MYTORCHRUN_TOKEN", raising=False)
    for address in ("0.0.0.0", "::", "203.0.113.7"):  # the last one is not an address of this machine
        with pytest.raises(dist.DistBackendError, match="Set MYTORCHRUN_TOKEN"):
            rendezvous.listen(address, 0, 1)
    monkeypatch.setenv("MYTORCHRUN_TOKEN", "secret")
    rendezvous.listen("203.0.113.7", 0, 1).close()


# -- selective checkpointing -------------------------------------------------------------------------


def save_all(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE


@pytest.mark.parametrize("policy", [[F.linear], ["gelu", "linear"], [], save_all])
@pytest.mark.parametrize("half", [False, True])
def test_selective_checkpointing_has_the_same_gradients(policy, half):
    mytorch.manual_seed(0)
    layers = (
        nn.Linear(8, 16),
        nn.GELU(),
        nn.LayerNorm(16),
        nn.Dropout(0.3),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
    )
    model, x = nn.Sequential(*layers), mytorch.randn(5, 8, requires_grad=True)

    def gradients(forward):
        model.zero_grad()
        x.grad = None
        mytorch.manual_seed(3)
        with mytorch.autocast("cpu", dtype=mytorch.bfloat16, enabled=half):
            out = forward()
        out.float().square().sum().backward()
        return [np.asarray(p.grad).copy() for p in (*model.parameters(), x)]

    contexts = partial(create_selective_checkpoint_contexts, policy)
    expected = gradients(lambda: model(x))
    found = gradients(lambda: checkpoint(model, x, use_reentrant=False, context_fn=contexts))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_selective_checkpointing_computes_stored_results_once(monkeypatch):
    from mytorch.ops.linalg import _linear

    calls, forward = [], _linear.reference.forward
    monkeypatch.setattr(
        _linear.reference, "forward", lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs)
    )
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh()), mytorch.ones(2, 3)
    for policy, count in (([], 4), (["linear"], 2)):
        calls.clear()
        contexts = partial(create_selective_checkpoint_contexts, policy)
        checkpoint(model, x, use_reentrant=False, context_fn=contexts).sum().backward()
        assert len(calls) == count
    with pytest.raises(TypeError, match="names of ops"):
        create_selective_checkpoint_contexts([3])


def test_nccl_calls_of_a_sharded_step(alone):
    """With one rank, the messages of a step are copies; the engine receives no call."""
    from mytorch.distributed.fsdp import fully_shard

    model, plain = nn.Linear(3, 2), nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    fully_shard(model)
    for m in (model, plain):
        m(mytorch.ones(1, 3)).sum().backward()
    np.testing.assert_array_equal(model.weight.grad.full_tensor().numpy(), np.asarray(plain.weight.grad))
