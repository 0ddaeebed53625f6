"""Faults around a loader: threads in BLAS while workers are forked, other numbers of workers in resuming, cycles."""

import gc
import io
import os
import subprocess
import sys

import pytest

import mytorch
from mytorch import nn
from mytorch.utils.data import DataLoader, TensorDataset
from tests.loops import loop

FORKING = """
import os, threading
import numpy as np
from mytorch.utils.data import DataLoader, Dataset

class Products(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return (np.ones((200, 200)) @ np.ones((200, 200)))[0, :3]

def work():
    x = np.random.rand(400, 400)
    while True:
        x @ x

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
for _ in range(3):
    assert sum(len(batch) for batch in DataLoader(Products(), 2, num_workers=2, timeout=120)) == 8
print("well", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked")
def test_workers_are_forked_while_other_threads_are_in_blas():
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORKING], env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout == "well\n", done.stderr


def test_forking_leaves_blas_its_threads():
    import threading

    from mytorch.utils.data._utils import forking

    before = [getter() for getter, _ in forking._libraries()]
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        for _, setter in forking._libraries():
            setter(2)
        with forking.safe_to_fork():
            assert all(getter() == 1 for getter, _ in forking._libraries())
        assert all(getter() == 2 for getter, _ in forking._libraries())
    finally:
        stop.set()
        other.join()
        for (_, setter), count in zip(forking._libraries(), before, strict=True):
            setter(count)


@loop
@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("taken", [0, 1, 4, 8])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_an_epoch_is_resumed_with_more_or_fewer_workers(before, after, taken):
    if taken in (0, 4) and 3 in (before, after):
        pytest.skip("as with 2")
    data = TensorDataset(mytorch.arange(23))

    def loader(workers):
        mytorch.manual_seed(3)
        return DataLoader(data, 3, shuffle=True, num_workers=workers)

    whole = [b[0].tolist() for b in loader(0)]
    first = loader(before)
    iterator = iter(first)
    for _ in range(taken):
        next(iterator)
    state = first.state_dict()
    second = loader(after)
    second.load_state_dict(state)
    batches = iter(second)
    rest = []
    for batch in batches:
        rest.append(batch[0].tolist())
        if len(rest) == 2:  # and once more, from the middle
            third = loader(before)
            third.load_state_dict(second.state_dict())
            assert [b[0].tolist() for b in third] == whole[taken + 2 :] if taken else True
    assert rest == (whole[taken:] if taken else rest)
    assert sorted(sum(whole[:taken] + rest, [])) == list(range(23))


def cycles(function):
    """The objects that only Python's collector can free after a call."""
    function()
    while gc.collect():  # what finalizers release is found in the next round
        pass
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        function()
        gc.collect()
        return [type(x).__name__ for x in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_loading_a_state_makes_no_cycles():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3)))
    state = model.state_dict()
    assert cycles(lambda: model.load_state_dict(state)) == []
    assert cycles(lambda: model.load_state_dict(state, assign=True)) == []


def test_a_file_is_let_go_of_when_it_is_read_or_written():
    file = io.BytesIO()
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert cycles(lambda: mytorch.save([model.state_dict(), {"shape": model[0].weight.shape}], file)) == []
    assert cycles(lambda: mytorch.load(io.BytesIO(file.getvalue()))) == []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["whole", "left", "resumed"])
def test_a_loader_makes_no_cycles(workers, how):
    data = TensorDataset(mytorch.arange(20))

    def epoch():
        loader = DataLoader(data, 4, shuffle=True, num_workers=workers)
        for batch in loader:
            if how != "whole":
                break
        if how == "resumed":
            state = loader.state_dict()
            loader = DataLoader(data, 4, shuffle=True, num_workers=workers)
            loader.load_state_dict(state)
            for batch in loader:
                del batch

    assert cycles(epoch) == []
