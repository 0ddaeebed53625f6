"""DistributedDataParallel under the launcher with two and three ranks, and in a single process."""

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.arrays.errors import warn_once
from mytorch.distributed.reducer import make_buckets
from tests.loops import loop

from .launching import checks_in, results_of


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    return results_of(request.param, "ddp.py", tmp_path_factory.mktemp("ddp") / "results.json", timeout=30)


@loop  # one process runs all checks once
@pytest.mark.parametrize("name", [*checks_in("ddp.py"), *checks_in("ddp_patterns.py"), *checks_in("process_edges.py")])
def test_ddp(results, name):
    assert results[name] is None, results[name]


@pytest.fixture
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


def test_one_process_alone(alone):
    plain = nn.Linear(3, 2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2), device_ids=None)
    model.module.load_state_dict(plain.state_dict())
    x = mytorch.randn(4, 3)
    for m in (plain, model):
        m(x).pow(2).sum().backward()
    assert np.array_equal(np.asarray(plain.weight.grad), np.asarray(model.module.weight.grad))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]


def test_wrong_arguments(alone):
    DDP = nn.parallel.DistributedDataParallel
    with pytest.raises(RuntimeError, match="don't have|doesn't have any parameters"):
        DDP(nn.ReLU())
    with pytest.raises(ValueError, match="at most one device"):
        DDP(nn.Linear(1, 1), device_ids=[0, 1])
    with pytest.raises(ValueError, match="bucket_cap_mb"):
        DDP(nn.Linear(1, 1), bucket_cap_mb=0)


def test_buckets_are_filled_from_the_last_parameter():
    params = [nn.Parameter(mytorch.zeros(n)) for n in (10, 20, 30, 40)]
    params.insert(2, nn.Parameter(mytorch.zeros(5, dtype=mytorch.float64)))
    buckets = make_buckets(params, cap_bytes=4 * 60, first_bytes=4 * 50)
    sizes = [[p.numel() for p in b.params] for b in buckets]
    assert sizes == [[40], [30, 20, 10], [5]]
    assert all(len({p.dtype for p in b.params}) == 1 for b in buckets)


def test_data_parallel_warns_that_it_uses_one_device():
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="one device"):
        model = nn.DataParallel(nn.Linear(2, 2))
    assert model(mytorch.ones(1, 2)).shape == (1, 2)
    assert "module.weight" in model.state_dict()
    nn.DataParallel(nn.Linear(2, 2))  # once is enough
    with pytest.raises(NotImplementedError, match="at most one device"):
        nn.DataParallel(nn.Linear(2, 2), device_ids=[0, 1])
