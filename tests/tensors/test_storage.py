"""Storages: the memory of tensors as objects, compared with PyTorch."""

import copy
import warnings

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:Casting complex")
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


def pair(shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return mytorch.tensor(values), torch.tensor(values)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[1:],
        lambda x: x[:, 2],
        lambda x: x.T[1:, ::2],
        lambda x: x.reshape(-1)[3:7],
        lambda x: x[:0],
        lambda x: x.permute(1, 0).contiguous(),
    ],
)
def test_views_share_the_storage_of_their_base(view):
    ours, theirs = pair((3, 5))
    mine, wanted = view(ours), view(theirs)
    assert mine.storage_offset() == wanted.storage_offset() or wanted.numel() == 0
    assert mine.untyped_storage().nbytes() == wanted.untyped_storage().nbytes()
    assert mine.untyped_storage().tolist() == wanted.untyped_storage().tolist()
    assert mine.storage().tolist() == wanted.storage().tolist()
    same = wanted.untyped_storage()._cdata == theirs.untyped_storage()._cdata
    assert (mine.untyped_storage()._cdata == ours.untyped_storage()._cdata) == same
    assert (mine.untyped_storage() is ours.untyped_storage()) == same


@pytest.mark.parametrize("name", DTYPES)
def test_typed_storages_hold_the_given_values(name):
    values = [0, 1, 1, 0, 1]
    ours = mytorch.TypedStorage(values, dtype=getattr(mytorch, name))
    theirs = torch.TypedStorage(values, dtype=getattr(torch, name))
    assert ours.tolist() == theirs.tolist()
    assert ours.nbytes() == theirs.nbytes()
    assert ours.untyped().tolist() == theirs.untyped().tolist()
    assert ours.type() == theirs.type()
    assert isinstance(ours, getattr(mytorch, ours.pickle_storage_type()))
    assert ours.double().tolist() == theirs.double().tolist()
    assert ours.int().tolist() == theirs.int().tolist()
    assert ours[-1] == theirs[-1]
    assert ours.untyped()[1:3].tolist() == theirs.untyped()[1:3].tolist()
    assert mytorch.tensor(ours).dtype is getattr(mytorch, name)
    again = mytorch.tensor(ours.untyped(), dtype=getattr(mytorch, name))
    assert again.tolist() == mytorch.tensor(ours).tolist()


def test_writing_a_storage_writes_its_tensors():
    x = mytorch.zeros(2, 3)
    storage = x.storage()
    storage[4] = 7
    storage[:2] = 1
    assert x.tolist() == [[1, 1, 0], [0, 7, 0]]
    copied = copy.deepcopy(storage)
    copied.fill_(3)
    assert x.sum().item() == 9
    assert storage.copy_(copied) is storage
    assert x.sum().item() == 18


def test_set_takes_the_memory_of_tensors_and_storages():
    ours, theirs = pair((3, 4, 5))
    for args in [(), (0, (5, 3), (1, 20)), (7, (2, 2)), (3, (4,), (2,))]:
        mine, wanted = mytorch.tensor([]).set_(ours.storage(), *args), torch.tensor([]).set_(theirs.storage(), *args)
        assert mine.shape == wanted.shape
        assert mine.stride() == wanted.stride()
        assert mine.tolist() == wanted.tolist()
        assert mine.untyped_storage()._cdata == ours.untyped_storage()._cdata
    assert mytorch.tensor([1.0]).set_().shape == (0,)
    assert mytorch.tensor([]).set_(source=ours.untyped_storage()).numel() == 60
    for bad in (ours.double(), ours.double().storage()):
        with pytest.raises(RuntimeError):
            mytorch.tensor([]).set_(bad)
    with pytest.raises(RuntimeError):
        mytorch.tensor([]).set_(ours.storage(), 58, (2, 2))


@pytest.mark.parametrize("order", ["little", "big", "native"])
def test_buffers_are_read_in_their_byte_order(order):
    data = bytearray(range(8))
    for name in ("ShortStorage", "IntStorage", "FloatStorage", "BoolStorage"):
        ours, theirs = getattr(mytorch, name).from_buffer(data, order), getattr(torch, name).from_buffer(data, order)
        assert ours.tolist() == theirs.tolist()
    with pytest.raises(ValueError):
        mytorch.IntStorage.from_buffer(data[:7], order)


def test_storage_warns_once_that_it_is_deprecated(monkeypatch):
    module = __import__("mytorch.storage", fromlist=["x"])
    monkeypatch.setattr(module, "_warned", [False])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mytorch.ones(2).storage()
        mytorch.ones(2).storage()
    assert [w.category for w in seen] == [UserWarning]
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.FloatStorage(device="cpu"), RuntimeError),
        (lambda t: t.FloatStorage(0, 0), RuntimeError),
        (lambda t: t.FloatStorage("word"), TypeError),
        (lambda t: t.TypedStorage(t.tensor([]), dtype=t.float32), TypeError),
        (lambda t: t.TypedStorage(wrap_storage=t.UntypedStorage(4)), RuntimeError),
        (lambda t: t.UntypedStorage(4)[9], IndexError),
        (lambda t: t.UntypedStorage([1])["a"], TypeError),
        (lambda t: t.tensor(t.FloatStorage([1]), dtype=t.int32), RuntimeError),
    ],
)
def test_refusals_are_pytorchs(call, error):
    for library in (mytorch, torch):
        with pytest.raises(error):
            call(library)


@pytest.mark.cpu_only  # the installed PyTorch has no GPU support
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool", "int8", "complex64"])
def test_capsules_carry_every_dtype_in_both_directions(torch, name):
    mine = mytorch.tensor([[0.0, 1.0], [2.5, 3.0]]).to(getattr(mytorch, name))[:, 1:]
    back = mytorch.from_dlpack(mytorch.utils.dlpack.to_dlpack(mine))
    theirs = torch.from_dlpack(mine)
    again = mytorch.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))
    assert back.dtype is again.dtype is mine.dtype
    assert str(theirs.dtype) == f"torch.{name}"
    assert back.tolist() == again.tolist() == theirs.tolist() == mine.tolist()
    back[0, 0] = 0
    assert theirs.tolist()[0] == again.tolist()[0] == [0]  # one memory


def test_a_capsule_is_taken_once_and_streams_are_numbers():
    x = mytorch.ones(2)
    capsule = mytorch.utils.dlpack.to_dlpack(x)
    mytorch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        mytorch.from_dlpack(capsule)
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream=object())


@pytest.mark.cpu_only  # the owner of the memory is only searched on the CPU
def test_resize_keeps_the_memory_from_the_first_element_on():
    for step in (lambda x: x.t(), lambda x: x[1:], lambda x: x[:1], lambda x: x[:, 1]):
        found = []
        for L in (torch, mytorch):
            x = step(L.arange(6.0).reshape(2, 3).clone())
            found.append(x.resize_(3).tolist())
        assert found[0] == found[1]


@pytest.mark.cpu_only  # the owner of the memory is only searched on the CPU
def test_resize_restores_elements_hidden_by_a_smaller_shape():
    x = mytorch.arange(6.0)
    assert x.resize_(2).resize_(3, 2).tolist() == [[0, 1], [2, 3], [4, 5]]
