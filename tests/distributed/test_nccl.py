"""The calls of the NCCL engine, with their pointers, counts, types and streams, on a fake CuPy.

The tests marked gpu run NCCL itself. Here, the communicator of a single rank copies memory. `programs/nccl_sharded.py` runs two
ranks with a fake NCCL over MPI.
"""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import mytorch
from mytorch.arrays import capturing
from mytorch.arrays.config import temporarily
from mytorch.arrays.errors import CaptureError
from mytorch.distributed import HashStore, nccl, reducer
from mytorch.distributed.engine import ReduceOp
from tests.loops import loop

from .launching import checks_in, results_of

NAMES = "INT8 UINT8 INT32 UINT32 INT64 UINT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT64 SUM PROD MIN MAX".split()
SIZES = {"NCCL_UINT8": 1, "NCCL_INT32": 4, "NCCL_INT64": 8, "NCCL_FLOAT16": 2, "NCCL_BFLOAT16": 2, "NCCL_FLOAT32": 4}


class FakeArray(np.ndarray):
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def array(values, dtype=np.float32):
    return np.array(values, dtype).view(FakeArray)


class FakeEvent:
    ptr = 5

    def synchronize(self):
        pass


class FakeStream:
    ptr = 77

    def __init__(self, non_blocking=False, priority=0):
        self.waited, self.priority = [], priority

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

    def check_async_error(self):
        """No error yet."""

    def abort(self):
        self.calls.append("abort")

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
        runtime=SimpleNamespace(eventQuery=lambda pointer: 0),
    )
    xp = SimpleNamespace(
        cuda=cuda, zeros=lambda *a: np.zeros(*a).view(FakeArray), empty_like=np.empty_like,
        asarray=lambda a: a.view(FakeArray), asnumpy=np.asarray,
    )  # fmt: skip
    monkeypatch.setattr(nccl, "cupy_ns", lambda: xp)
    made = nccl.NCCLEngine.world(0, 1, "127.0.0.1", 1)
    yield made
    made.close()
    assert made.comm.calls[-1] == "destroy"


def test_ranks_connect_through_a_store(engine, monkeypatch):
    store = HashStore()
    monkeypatch.setattr(
        FakeCommunicator, "__init__", lambda self, size, content, rank: setattr(self, "calls", [content])
    )
    for rank in range(2):
        made = nccl.NCCLEngine.world(rank, 2, "unused", 0, 5.0, store)
        assert made.comm.calls == [bytes(range(128))]
        made.close()
    assert nccl.decode_id(store.get("nccl_id")) == bytes(range(128))


def test_reductions(engine):
    x = array([1, 2, 3])
    for op, name in (
        (ReduceOp.SUM, "NCCL_SUM"),
        (ReduceOp.AVG, 4),  # ncclAvg
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
    with pytest.raises(ValueError, match="ReduceOp.BOR is not supported"):
        engine.all_reduce(array([1], np.int32), ReduceOp.BOR)
    with pytest.raises(TypeError, match="got int16"):
        engine.all_reduce(array([1], np.int16), ReduceOp.SUM)


def test_ddp_leaves_the_average_to_nccl():
    """No gradient is multiplied on its way into a bucket; one array, one reduction, and AVG is its operation."""
    asked = []

    class Group:
        engine = SimpleNamespace(averages=True)

        def size(self):
            return 4

    def all_reduce(tensor, op, group, async_op):
        asked.append((op, tensor.numpy().copy()))
        done = nccl.Work()
        done.outputs = [tensor]
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reducer.collectives, "all_reduce", all_reduce)
        p = mytorch.nn.Parameter(mytorch.zeros(3, 5))
        reducer.Reducer([("p", p)], Group(), 1 << 20, False, True, ())
        (p * mytorch.arange(15.0).reshape(3, 5)).sum().backward()
    ((op, sent),) = asked
    assert op is ReduceOp.AVG
    np.testing.assert_array_equal(sent, np.arange(15.0))


def test_a_peers_failure_ends_the_process_at_once(engine, monkeypatch, capsys):
    ended = nccl.threading.Event()
    monkeypatch.setattr(nccl.os, "_exit", lambda code: (ended.set(), engine.closed.set()))

    def failed():
        raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: a peer is gone")

    engine.comm.check_async_error = failed
    assert ended.wait(10)
    engine.watcher.join()
    assert engine.comm.calls[-1] == "abort"
    assert "failed (NCCL_ERROR_SYSTEM_ERROR: a peer is gone)." in capsys.readouterr().err


def test_an_error_of_the_gpu_is_no_transfer_under_way(engine, monkeypatch):
    work = engine.all_reduce(array([1.0]), ReduceOp.SUM, "all_reduce")
    runtime = nccl.cupy_ns().cuda.runtime
    runtime.eventQuery = lambda pointer: 600
    assert not work.poll()
    runtime.eventQuery = lambda pointer: 700  # cudaErrorIllegalAddress
    with pytest.raises(nccl.DistBackendError, match="all_reduce: the GPU failed, CUDA error 700"):
        work.poll()
    engine.pending.append(work)
    assert "CUDA error 700" in engine._problem()
    engine.pending.clear()


def test_collectives_within_a_capture(engine):
    """CUDA does not allow a query of an event that a graph contains. The graph keeps the arrays, and `wait` is part of it."""
    current, runtime = nccl.cupy_ns().cuda.get_current_stream(), nccl.cupy_ns().cuda.runtime
    before = engine.all_reduce(array([1.0]), ReduceOp.SUM, "before")
    x, out = array([1.0, 2.0]), array([0.0, 0.0])
    calls = {
        "all_reduce": lambda: engine.all_reduce(x, ReduceOp.AVG),
        "reduce": lambda: engine.reduce(x, 0, ReduceOp.SUM),
        "reduce_scatter": lambda: engine.reduce_scatter(out, x, ReduceOp.SUM),
        "broadcast": lambda: engine.broadcast(x, 0),
        "all_gather": lambda: engine.all_gather(out, x),
        "all_to_all": lambda: engine.all_to_all(out, x, [2], [2]),
        "send": lambda: (engine.send(x, 0, 0), engine.receive(out, 0, 0))[1],
    }
    with temporarily(capturing, current=capturing.Capture(recording=True)):
        runtime.eventQuery = lambda pointer: 907  # cudaErrorCapturedEvent
        for name, call in calls.items():
            kept, waited = len(capturing.current.kept), len(current.waited)
            work = call()
            assert work not in engine.pending
            assert len(capturing.current.kept) > kept, name
            with pytest.raises(CaptureError, match=r"call wait\(\)"):
                work.is_completed()
            work.wait()
            assert work.is_completed()
            assert len(current.waited) == waited + 1
        with pytest.raises(CaptureError, match="barrier"):
            engine.barrier()
        runtime.eventQuery = lambda pointer: 0
        assert engine._problem() is None  # the watcher may ask for transfers that are not part of the graph
    assert before.poll()


def test_a_failed_group_is_closed(engine, monkeypatch):
    calls = []
    monkeypatch.setattr(engine.nccl, "groupStart", lambda: calls.append("start"))
    monkeypatch.setattr(engine.nccl, "groupEnd", lambda: calls.append("end"))
    monkeypatch.setattr(engine.comm, "send", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.send(array([1.0]), 0, 0)
    assert calls == ["start", "end"]


def test_connecting_has_a_time_limit(engine, monkeypatch, capsys):
    ended = nccl.threading.Event()
    monkeypatch.setattr(nccl.os, "_exit", lambda code: ended.set())
    engine.timeout, engine.size = 0.05, 2
    engine.nccl.NcclCommunicator = lambda *given: ended.wait(10)  # as ncclCommInitRank does for ranks that do not come
    assert engine._connect(bytes(128))
    assert "connecting 2 ranks timed out after 0.05 seconds" in capsys.readouterr().err
    engine.timeout, engine.size = None, 1
    engine.nccl.NcclCommunicator = lambda *given: given
    assert engine._connect(bytes(128)) == (1, bytes(128), 0)


def test_transfers_run_before_pending_computations(engine):
    assert engine.stream.priority == -1


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
    with pytest.raises(ValueError, match="rank of the source"):
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


def test_each_group_has_a_separate_id(engine):
    other = engine.split([0])
    assert (other.rank, other.size) == (0, 1)
    other.close()


def test_the_unique_id_survives_the_way_whatever_its_form():
    for unique in (bytes(range(128, 256)), tuple(range(-64, 64)), tuple(range(128, 256)), tuple(range(128))):
        assert nccl.decode_id(nccl.encode_id(unique)) == unique


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("nccl") / "results.json"
    return results_of(2, "nccl_sharded.py", path, limit=300, MYTORCH_FUSED="0")


@loop  # one process runs all checks once
@pytest.mark.parametrize("name", checks_in("nccl_sharded.py"))
def test_sharded_models_over_a_fake_nccl(results, name):
    assert results[name] is None, results[name]


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
