"""Small differences from PyTorch that programs have met."""

import importlib
import os

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.distributed.collective_log import RING, CollectiveLog

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "text",
    ["[t([1.0]), t([2.0])]", "[[t([1.0]), t([2.0])]]", "[t(1.0), 2.0]", "[t([1.0]), 2.0]", "[[t(1.0)], [t([2.0])]]",
     "[t([[1.0]])]", "[[t([1])], [3]]", "[t([True]), False]", "(t([1.0]),)"],
)  # fmt: skip
def test_tensors_of_one_element_in_lists_are_numbers(text):
    ours, theirs = (lib.tensor(eval(text, {"t": lib.tensor})) for lib in (mytorch, torch))
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.tolist() == theirs.tolist()
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


def test_lstm_accepts_a_list_of_states():
    lstm, x, states = nn.LSTM(4, 5), mytorch.randn(3, 2, 4), [mytorch.randn(1, 2, 5), mytorch.randn(1, 2, 5)]
    assert mytorch.equal(lstm(x, states)[0], lstm(x, tuple(states))[0])
    with pytest.raises(TypeError, match="list"):
        nn.GRU(4, 5)(x, states)


def test_weights_change_their_memory_format():
    for lib in (mytorch, torch):
        model = lib.nn.Sequential(lib.nn.Conv2d(4, 8, 3), lib.nn.Conv1d(4, 8, 3))
        weight = model[0].weight
        assert lib.nn.utils.convert_conv2d_weight_memory_format(model, lib.channels_last) is model
        assert model[0].weight is weight
        assert tuple(weight.stride()) == (36, 1, 12, 4)


@pytest.mark.parametrize("dtype", [None, "float64"])
@pytest.mark.parametrize("name", [None, "channels_last", "channels_last_3d", "contiguous_format", "preserve_format"])
def test_modules_move_to_a_memory_format(name, dtype):
    found = []
    for lib in (mytorch, torch):
        model = lib.nn.Module()
        for n in range(6):
            transposed = lib.ones(tuple(range(2, 2 + n))).permute(tuple(range(n)[::-1]))
            model.register_parameter(f"p{n}", lib.nn.Parameter(lib.ones(tuple(range(2, 2 + n)))))
            model.register_buffer(f"b{n}", transposed)
        options = {} if dtype is None else {"dtype": getattr(lib, dtype)}
        try:
            model.to(memory_format=name and getattr(lib, name), **options)
        except Exception as error:
            found.append(type(error))
            continue
        found.append(
            [(k, tuple(t.shape), t.stride(), str(t.dtype).split(".")[-1]) for k, t in model.state_dict().items()]
        )
    assert found[0] == found[1]


def test_a_loaded_state_dict_is_copied():
    p, q = (nn.Parameter(mytorch.ones(2)) for _ in range(2))
    first, second = optim.Adam([p]), optim.Adam([q])
    (p * 2).sum().backward()
    first.step()
    state = first.state_dict()
    state["param_groups"][0]["note"] = [1, [2]]
    second.load_state_dict(state)
    before = second.state[q]["exp_avg"].tolist()
    state["param_groups"][0]["note"][1].append(3)
    state["param_groups"][0]["lr"] = 5
    state["state"][0]["exp_avg"].fill_(99)
    assert second.param_groups[0]["note"] == [1, [2]]
    assert second.param_groups[0]["lr"] == 0.001
    assert second.state[q]["exp_avg"].tolist() == before


@pytest.mark.parametrize(
    "name", ["clip_grad", "convert_parameters", "fusion", "memory_format", "prune", "rnn", "weight_norm"]
)
def test_modules_of_nn_utils_have_pytorchs_paths(name):
    assert importlib.import_module(f"mytorch.nn.utils.{name}")


def test_distributed_data_parallel_refuses_device_ids_on_the_cpu():
    with pytest.raises(ValueError, match="only work with .* GPU modules"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1, device="cpu"), device_ids=[0])


def test_a_storage_maps_a_file(tmp_path):
    path = str(tmp_path / "bytes")
    (tmp_path / "bytes").write_bytes(bytes(range(8)))
    private = mytorch.UntypedStorage.from_file(path, False, 8)
    private[0] = 9
    assert (tmp_path / "bytes").read_bytes()[0] == 0
    assert private.tolist()[:2] == [9, 1]
    shared = mytorch.UntypedStorage.from_file(path, True, 10)
    shared[9] = 7
    assert len(shared) == 10
    assert (tmp_path / "bytes").read_bytes()[9] == 7


def test_half_precision_complex_numbers_are_refused():
    for call in (
        lambda: mytorch.ones(1).to(mytorch.complex32),
        lambda: mytorch.zeros(2, dtype=mytorch.complex32),
        lambda: mytorch.tensor([1j], dtype=mytorch.chalf),
    ):
        with pytest.raises(NotImplementedError, match="complex32"):
            call()
    assert mytorch.ones(1).dtype != mytorch.complex32


@pytest.mark.filterwarnings("ignore:DataParallel")
def test_data_parallel_calls_the_module_on_one_device():
    layer, x = nn.Linear(3, 2), mytorch.randn(4, 3)
    assert mytorch.equal(nn.parallel.data_parallel(layer, x), layer(x))
    assert mytorch.equal(nn.parallel.data_parallel(layer, (), module_kwargs={"input": x}), layer(x))
    with pytest.raises(NotImplementedError, match="at most one device"):
        nn.parallel.data_parallel(layer, x, device_ids=[0, 1])


@pytest.mark.cpu_only  # on a GPU, CuPy's solver raises an error
@pytest.mark.parametrize("values", [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]])
def test_the_gradient_of_lu_of_a_singular_matrix_is_not_finite(values):
    for lib in (mytorch, torch):
        A = lib.tensor(values, requires_grad=True)
        lib.linalg.lu_factor_ex(A)[0].sum().backward()
        assert not lib.isfinite(lib.tensor(A.grad.tolist())).all()


def test_the_gradient_of_lu_is_as_in_pytorch():
    rng = np.random.default_rng(0)
    for batch in ((), (3,)):
        values, upstream = rng.standard_normal((*batch, 4, 4)), rng.standard_normal((*batch, 4, 4))
        grads = []
        for lib in (mytorch, torch):
            A = lib.tensor(values, requires_grad=True)
            lib.linalg.lu_factor(A)[0].backward(lib.tensor(upstream))
            grads.append(A.grad.tolist())
        np.testing.assert_allclose(*grads, rtol=1e-9)


def test_the_error_of_monitored_barrier_names_one_or_all_missing_ranks():
    log = CollectiveLog(None, 0, range(3))
    log.shared = True
    log.enter("barrier")
    assert log.missing().count("has not entered") == 2
    assert log.missing(1) == "rank 1 has not entered any collective."


def test_a_rank_that_overwrites_its_slot_while_another_one_reads_it_does_not_disagree():
    path = CollectiveLog.create(2)
    ahead, behind = (CollectiveLog(path, rank, range(2)) for rank in range(2))
    os.unlink(path)

    class Slots(np.ndarray):
        def __getitem__(self, key):
            if isinstance(key, str) and key == "what" and self.ndim == 1:
                while ahead.count < behind.count + RING:
                    ahead.enter(f"broadcast {ahead.count}")
            return super().__getitem__(key)

    behind.slots = behind.slots.view(Slots)
    for number in range(3):
        ahead.enter(f"broadcast {number}")
    for number in range(RING):
        behind.enter(f"broadcast {number}")
    behind.slots = behind.slots.view(np.ndarray)
    with pytest.raises(ValueError, match="rank 1 calls barrier, rank 0 broadcast 16"):
        behind.enter("barrier")
