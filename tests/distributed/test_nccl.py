"""The NCCL engine on a stand-in for CuPy: which calls it makes, with which pointers, counts, types and streams.

What NCCL itself does is seen on GPUs only (the tests marked gpu); here one rank's communicator copies memory.
"""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import mytorch
from mytorch.distributed import nccl
from mytorch.distributed.engine import ReduceOp

NAMES = "INT8 UINT8 INT32 UINT32 INT64 UINT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT64 SUM PROD MIN MAX".split()
SIZES = {"NCCL_UINT8": 1, "NCCL_INT32": 4, "NCCL_INT64": 8, "NCCL_FLOAT16": 2, "NCCL_BFLOAT16": 2, "NCCL_FLOAT32": 4}


class FakeArray(np.ndarray):
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def array(values, dtype=np.float32):
    return np.array(values, dtype).view(FakeArray)


class FakeEvent:
    done = True

    def synchronize(self):
        pass


class FakeStream:
    ptr = 77

    def __init__(self, non_blocking=False):
        self.waited = []

    def record(self):
        return FakeEvent()

    def wait_event(self, event):
        self.waited.append(event)

    def synchronize(self):
        pass


class FakeCommunicator:
    def __init__(self, ndev, comm_id, rank):
        assert (ndev, rank, len(comm_id), type(comm_id)) == (1, 0, 128, bytes)
        self.calls, self.queue = [], []

    def _copy(self, name, send, receive, nbytes, stream):
        assert stream == FakeStream.ptr
        self.calls.append(name)
        if nbytes and send != receive:
            ctypes.memmove(receive, send, nbytes)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._copy(("allReduce", datatype, op), sendbuf, recvbuf, count * SIZES[datatype], stream)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        self._copy(("reduce", datatype, op), sendbuf, recvbuf, count * SIZES[datatype], stream)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._copy(("broadcast", root), sendbuff, recvbuff, count * SIZES[datatype], stream)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        self._copy(("reduceScatter", op), sendbuf, recvbuf, recvcount * SIZES[datatype], stream)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        self._copy("allGather", sendbuf, recvbuf, count * SIZES[datatype], stream)

    def send(self, sendbuf, count, datatype, peer, stream):
        self.queue.append((sendbuf, count))

    def recv(self, recvbuf, count, datatype, peer, stream):
        sendbuf, n = self.queue.pop(0)
        assert n == count
        self._copy("exchange", sendbuf, recvbuf, count, stream)

    def destroy(self):
        self.calls.append("destroy")


@pytest.fixture
def engine(monkeypatch):
    library = SimpleNamespace(
        NcclCommunicator=FakeCommunicator, available=True, groupStart=lambda: None, groupEnd=lambda: None,
        get_unique_id=lambda: bytes(range(128)), **{f"NCCL_{n}": f"NCCL_{n}" for n in NAMES},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", library)
    cuda = SimpleNamespace(
        Stream=FakeStream,
        get_current_stream=lambda current=FakeStream(): current,
        Device=lambda: SimpleNamespace(use=lambda: None),
    )
    xp = SimpleNamespace(
        cuda=cuda, zeros=lambda *a: np.zeros(*a).view(FakeArray), empty_like=np.empty_like, divide=np.divide,
        asarray=lambda a: a.view(FakeArray), asnumpy=np.asarray,
    )  # fmt: skip
    monkeypatch.setattr(nccl, "cupy_ns", lambda: xp)
    made = nccl.NCCLEngine.world(0, 1, "127.0.0.1", 1)
    yield made
    made.close()
    assert made.comm.calls[-1] == "destroy"


def test_reductions(engine):
    x = array([1, 2, 3])
    for op, name in (
        (ReduceOp.SUM, "NCCL_SUM"),
        (ReduceOp.AVG, "NCCL_SUM"),
        (ReduceOp.PRODUCT, "NCCL_PROD"),
        (ReduceOp.MAX, "NCCL_MAX"),
    ):
        engine.all_reduce(x, op).wait()
        assert engine.comm.calls[-1] == ("allReduce", "NCCL_FLOAT32", name)
    engine.reduce(array([1], np.int64), 0, ReduceOp.MIN).wait()
    assert engine.comm.calls[-1] == ("reduce", "NCCL_INT64", "NCCL_MIN")
    engine.all_reduce(array([True], np.bool_), ReduceOp.SUM).wait()
    assert engine.comm.calls[-1] == ("allReduce", "NCCL_UINT8", "NCCL_MAX")
    out = array([0, 0, 0])
    engine.reduce_scatter(out, x, ReduceOp.AVG).wait()
    assert out.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="NCCL has no ReduceOp.BOR"):
        engine.all_reduce(array([1], np.int32), ReduceOp.BOR)
    with pytest.raises(TypeError, match="no type for int16"):
        engine.all_reduce(array([1], np.int16), ReduceOp.SUM)


def test_an_average_is_divided_when_it_is_waited_for(engine):
    engine.size = 4  # as if four had been added up
    x = array([8.0])
    work = engine.all_reduce(x, ReduceOp.AVG)
    work.wait()
    assert x.tolist() == [2.0]
    work.wait()
    assert x.tolist() == [2.0]
    engine.size = 1


def test_moving(engine):
    x, out = array([1, 2, 3]), array([0, 0, 0])
    for call in (
        lambda: engine.all_gather(out, x),
        lambda: engine.gather(out, x, 0),
        lambda: engine.scatter(out, x, 0),
        lambda: engine.all_to_all(out, x, [3], [3]),
    ):
        out[:] = 0
        call().wait()
        assert out.tolist() == [1, 2, 3]
    engine.broadcast(x, 0).wait()
    assert engine.comm.calls[-1] == ("broadcast", 0)
    engine.send(x, 0, 0)
    engine.receive(out, 0, 0).wait()
    with pytest.raises(ValueError, match="no tags"):
        engine.send(x, 0, 3)
    with pytest.raises(ValueError, match="source's rank"):
        engine.receive(x, None, 0)


def test_waiting_is_the_streams(engine):
    current = nccl.cupy_ns().cuda.get_current_stream()
    before = len(engine.stream.waited), len(current.waited)
    work = engine.all_reduce(array([1]), ReduceOp.SUM)
    assert (len(engine.stream.waited), len(current.waited)) == (before[0] + 1, before[1])
    work.wait()
    work.wait()
    assert len(current.waited) == before[1] + 1
    engine.barrier().wait()
    assert not engine.pending


def test_a_group_gets_an_id_of_its_own(engine):
    other = engine.split([0])
    assert (other.rank, other.size) == (0, 1)
    other.close()


def test_the_unique_id_survives_the_way_whatever_its_form():
    for unique in (bytes(range(128, 256)), tuple(range(-64, 64)), tuple(range(128, 256)), tuple(range(128))):
        assert nccl.decode_id(nccl.encode_id(unique)) == unique


@pytest.mark.gpu
@pytest.mark.skipif(not mytorch.cuda.is_available(), reason="there is no GPU")
def test_one_rank_on_a_gpu():
    """All collectives, DDP and the Accelerator over NCCL, by `mytorchrun test`."""
    import subprocess

    from .launching import ROOT, environment

    done = subprocess.run(
        [sys.executable, "-m", "mytorch.cli", "test", "--num_gpus", "1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "backend nccl" in done.stdout
    assert done.stdout.endswith("PASS\n")
