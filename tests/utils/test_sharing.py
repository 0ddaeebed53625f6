"""`share_memory_`: several processes read and write the same tensors."""

import gc
import multiprocessing

import pytest

import mytorch
from mytorch import nn, optim

pytestmark = pytest.mark.skipif(mytorch.get_default_device().type != "cpu", reason="processes share memory of the CPU")


def _train(model, seed):
    mytorch.manual_seed(seed)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        x = mytorch.randn(16, 3)
        optimizer.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()


def _exchange(tensor, queue, done):
    tensor.add_(1)
    other = mytorch.zeros(2).share_memory_()
    queue.put((other, tensor))
    done.get(timeout=120)
    queue.put(other.tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_hogwild_training_changes_the_weights_of_the_parent(method):
    mytorch.manual_seed(0)
    model = nn.Linear(3, 1)
    weight, row = model.weight, model.weight.detach()[0]
    before = weight.tolist()
    assert not weight.is_shared()
    assert model.share_memory() is model
    assert weight is model.weight
    assert weight.is_shared()
    assert row.is_shared()
    assert weight.tolist() == before
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=_train, args=(model, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert weight.tolist()[0] == pytest.approx([1, 1, 1], abs=0.05)
    assert row.tolist() == weight.tolist()[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queues_and_arguments_pass_shared_tensors_without_a_copy(method):
    context = multiprocessing.get_context(method)
    tensor, queue, done = mytorch.ones(2).share_memory_(), context.Queue(), context.Queue()
    process = context.Process(target=_exchange, args=(tensor, queue, done))
    process.start()
    other, same = queue.get(timeout=60)
    assert tensor.tolist() == [2, 2]
    assert other.is_shared()
    same.mul_(3)
    other.fill_(4)
    done.put(0)
    assert tensor.tolist() == [6, 6]
    assert queue.get(timeout=60) == [4, 4]
    process.join(30)


def test_views_and_storages_follow_into_shared_memory():
    x = mytorch.arange(6.0).reshape(2, 3)
    y = x.t()
    assert not x.untyped_storage().is_shared()
    x.share_memory_()
    y[0, 0] = 9
    assert x[0, 0].item() == 9
    assert y.is_shared()
    assert y.stride() == (1, 3)
    assert x.untyped_storage().is_shared()
    assert mytorch.ones(3, dtype=mytorch.bfloat16).share_memory_().tolist() == [1, 1, 1]
    assert x.share_memory_() is x


def test_objects_that_the_program_has_frozen_are_shared():
    model = nn.Linear(3, 2)
    weight, row, tensor = model.weight, model.weight.detach()[0], mytorch.arange(4)
    part = tensor[1:]
    gc.freeze()
    frozen = gc.get_freeze_count()
    model.share_memory()
    tensor.share_memory_()
    assert weight.is_shared()
    assert row.is_shared()
    assert part.is_shared()
    tensor[1], weight.data[0, 0] = 7, 5
    assert part[0] == 7
    assert row[0] == 5
    assert gc.get_freeze_count() >= frozen / 2  # what the program has frozen remains frozen
