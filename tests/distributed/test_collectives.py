"""Collectives under the launcher with two and three ranks, and in a single process."""

import os
import subprocess
import sys

import pytest

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import rendezvous
from mytorch.distributed.work import Future, Work
from tests.loops import loop

from .launching import ROOT, checks_in, connected, environment, needs_mpi, results_of


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    return results_of(
        request.param, "collectives.py", tmp_path_factory.mktemp("collectives") / "results.json", timeout=120
    )


@loop  # one process runs all checks once
@pytest.mark.parametrize("name", checks_in("collectives.py"))
def test_collectives(results, name):
    assert results[name] is None, results[name]


def test_plain_mpiexec_is_enough(tmp_path):
    needs_mpi()
    from mytorch.distributed.launcher import mpiexec_command

    script = tmp_path / "script.py"
    script.write_text(
        "import mytorch, mytorch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=120)\n"
        "x = mytorch.ones(2) * dist.get_rank()\n"
        "dist.all_reduce(x)\n"
        "if dist.get_rank() == 0: print('sum', x.tolist())\n"
        "lines = open('/proc/self/maps').read().splitlines()\n"
        "assert not any('/dev/shm/mpich' in line and not line.endswith('(deleted)') for line in lines)  # a kill leaves none\n"
    )
    done = subprocess.run(
        [*mpiexec_command(2), sys.executable, script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sum [1.0, 1.0]" in done.stdout
    assert done.stderr.count("runs over MPI") == 1


@pytest.fixture
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


def test_one_process_alone_needs_no_mpi(alone):
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    x = mytorch.arange(4.0)
    for call in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.reduce(t, 0)):
        call(x)
    out = [mytorch.zeros(4)]
    dist.all_gather(out, x)
    dist.gather(x, out)
    half = mytorch.zeros(4)
    dist.reduce_scatter(half, [x])
    dist.all_to_all([half], [x])
    dist.scatter(half, [x])
    objects = [None]
    dist.all_gather_object(objects, "me")
    assert x.tolist() == out[0].tolist() == half.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert objects == ["me"]
    assert dist.all_reduce(x, async_op=True).wait() is True
    assert dist.new_group([0]).size() == 1
    with pytest.raises(ValueError, match="at least 2 processes"):
        dist.send(x, 0)


def test_questions_about_a_group_from_outside_of_it_are_refused(alone):
    outside = dist.GroupMember.NON_GROUP_MEMBER
    for question in (dist.get_backend, lambda g: dist.get_global_rank(g, 0), lambda g: dist.get_group_rank(g, 0)):
        with pytest.raises(ValueError, match="Invalid process group"):
            question(outside)
    assert dist.all_reduce(mytorch.ones(1), group=outside, async_op=True) is None


def test_the_source_of_objects_has_to_give_them(alone):
    with pytest.raises(ValueError, match="non-None scatter_object_input_list"):
        dist.scatter_object_list([None])
    with pytest.raises(ValueError, match="object_gather_list"):
        dist.gather_object("me")


def test_a_second_beginning_is_refused(alone):
    with pytest.raises(RuntimeError, match="twice"):
        dist.init_process_group("mpi")


def test_calls_without_a_group_raise_an_error():
    for question in (dist.get_rank, dist.get_world_size, dist.get_backend, dist.barrier, dist.destroy_process_group):
        with pytest.raises(ValueError, match="has not been initialized"):
            question()
    assert not dist.is_initialized()
    assert dist.is_available()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "ucc"}, "got 'ucc'"),
        ({"backend": "mpi", "rank": 2, "world_size": 2}, "rank to be from 0 to 1"),
        ({"backend": "mpi", "init_method": "file:///x"}, "init_method"),
        ({"backend": "mpi", "timeout": -1}, "positive"),
    ],
)
def test_wrong_arguments(arguments, message, monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=message):
        dist.init_process_group(**arguments)


def test_pynorchs_form():
    if mytorch.cuda.is_available():  # the backend is then NCCL
        pytest.importorskip("cupy.cuda.nccl")
    dist.init_process_group(0, 1)
    assert dist.get_world_size() == 1
    dist.destroy_process_group()


def test_two_ranks_without_mpiexec_raise_an_error(tmp_path):
    needs_mpi()
    code = "import mytorch.distributed as d; d.init_process_group('mpi', rank=0, world_size=2)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "processes started by mpiexec" in done.stderr


def test_the_environment_of_other_launchers(monkeypatch):
    from mytorch.distributed.environment import place

    for name in list(os.environ):
        if name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "PMI_", "MPI_", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)
    assert place() == (0, 1, 0, 1)
    cases = [
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NUM_TASKS": "8",
                "SLURM_LOCALID": "1",
                "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
            },
            (3, 8, 1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (1, 2, 1, 2)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            (2, 4, 0, 2),
        ),
        ({"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (5, 6, 1, 2)),
    ]
    for variables, wanted in cases:  # each before the ones above it
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert place() == wanted


def test_a_future_without_a_source_does_not_wait_for_ever():
    with pytest.raises(RuntimeError, match="expected a running collective"):
        Future().wait()
    work = Work("barrier")
    assert work.get_future().then(lambda f: len(f.wait())).wait() == 0


def test_ranks_meet_over_tcp_and_strangers_get_nothing(monkeypatch):
    import threading

    from mytorch.distributed.launcher import free_port

    monkeypatch.setenv("MYTORCHRUN_TOKEN", "secret")
    port = free_port()
    got = {}

    def rank(r):
        got[r] = rendezvous.exchange(b"the id" if r == 0 else None, r, 3, "127.0.0.1", port, 120)

    threads = [threading.Thread(target=rank, args=(r,)) for r in (0, 1)]
    for t in threads:
        t.start()
    stranger = connected(port)
    stranger.sendall(b"mytorch1" + b"wrong".ljust(64, b"\0") + (2).to_bytes(4, "little"))
    assert stranger.recv(10) == b""
    stranger.close()
    rank(2)
    for t in threads:
        t.join(120)
    assert got == dict.fromkeys(range(3), b"the id")


def test_a_rank_that_does_not_come_is_named():
    from mytorch.distributed.launcher import free_port

    with pytest.raises(dist.DistBackendError, match=r"ranks \[1\] did not connect"):
        rendezvous.exchange(b"id", 0, 2, "127.0.0.1", free_port(), 0.2)
    with pytest.raises(dist.DistBackendError, match="rank 1 could not connect"):
        rendezvous.exchange(None, 1, 2, "127.0.0.1", free_port(), 0.3)


def test_pickles_are_not_read_even_if_they_are_sent():
    import io
    import pickle
    import zipfile

    from mytorch.distributed.objects import decode, encode

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps([1]))
    for content in (archive.getvalue(), pickle.dumps([1]), b"junk"):
        with pytest.raises(ValueError):
            decode(content)
    assert decode(encode([1, {"a": None}])) == [1, {"a": None}]


def test_backend_none_is_mpi_if_the_launcher_selects_the_cpu(monkeypatch):
    from mytorch.distributed import process_group as group

    monkeypatch.setattr(group, "cuda_available", lambda: True)
    assert group._backend_of(None) == ("nccl", "nccl")
    monkeypatch.setenv("MYTORCHRUN_CPU", "1")
    assert group._backend_of(None) == ("mpi", "mpi")
    assert group._backend_of("cuda:nccl") == ("nccl", "nccl")


def test_backends():
    assert dist.Backend("NCCL") == dist.Backend.NCCL == "nccl"
    with pytest.raises(ValueError, match="Invalid backend: .*got 'ucc'"):
        dist.Backend("ucc")
    assert dist.is_backend_available("gloo") == dist.is_mpi_available()
    assert not dist.is_backend_available("ucc")
