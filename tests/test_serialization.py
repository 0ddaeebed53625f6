import contextlib
import datetime
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.serialization import (
    atomic_file,
    atomic_write,
    load_safetensors,
    read_safetensors,
    save_safetensors,
    save_state_dict,
)
from tests.loops import loop

EVERY_DTYPE = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
    "uint8", "bool", "complex64",
]  # fmt: skip


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()


@loop
@pytest.mark.parametrize("name", EVERY_DTYPE)
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)])
def test_tensors_of_every_dtype_come_back(tmp_path, name, shape):
    t = (mytorch.rand(shape) * 3).to(getattr(mytorch, name))
    mytorch.save({"t": t}, tmp_path / "x.pt")
    back = mytorch.load(tmp_path / "x.pt")["t"]
    assert type(back) is mytorch.Tensor
    assert same(back, t)


def test_nested_containers_and_plain_values_come_back(tmp_path):
    obj = {
        "list": [1, 2.5, None, True, "text …"],
        "tuple": (1, (2, [3])),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        "ordered": OrderedDict(b=1, a=2),
        "numbers": [float("inf"), float("-inf"), 10**30, 1e-320, 2 + 3j],
        3: "key of another kind",
        ("a", 1): "tuple as key",
        "$tensor": "key that looks like a mark",
        "bytes": b"\x00\xff",
        "dtype": mytorch.bfloat16,
        "size": mytorch.Size([2, 3]),
        "device": mytorch.device("cpu"),
        "scalar": np.float32(1.5),
        "empty": [{}, [], ()],
    }
    mytorch.save(obj, tmp_path / "x.pt")
    back = mytorch.load(tmp_path / "x.pt")
    assert back == obj
    assert type(back["ordered"]) is OrderedDict
    assert type(back["tuple"]) is tuple
    assert type(back["scalar"]) is np.float32
    assert list(back) == list(obj)


def test_nan_comes_back(tmp_path):
    mytorch.save([float("nan")], tmp_path / "x.pt")
    (value,) = mytorch.load(tmp_path / "x.pt")
    assert value != value


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_parameters_buffers_arrays_and_requires_grad_come_back(tmp_path, name):
    obj = {
        "parameter": nn.Parameter(mytorch.randn(2)),
        "frozen": nn.Parameter(mytorch.randn(2), requires_grad=False),
        "buffer": nn.Buffer(mytorch.randn(2)),
        "leaf": mytorch.randn(2, requires_grad=True),
        "result": mytorch.randn(2, requires_grad=True) * 2,
        "numpy": np.arange(3),
        "brain": np.ones((2, 3), ml_dtypes.bfloat16).T,
    }
    mytorch.save(obj, tmp_path / name)
    back = mytorch.load(tmp_path / name)
    for name, value in obj.items():
        assert type(back[name]) is type(value), name
        assert getattr(back[name], "requires_grad", None) == getattr(value, "requires_grad", None), name
        assert same(*(np.asarray(x.detach() if isinstance(x, mytorch.Tensor) else x) for x in (back[name], value)))


def test_shared_memory_is_written_once_and_shared_again(tmp_path):
    t = mytorch.zeros(1000)
    mytorch.save([t, t, t.detach()], tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 6000
    a, b, c = mytorch.load(tmp_path / "x.pt")
    a.add_(1)
    assert b[0] == c[0] == 1


def test_loaded_tensors_are_writable_and_independent_of_the_file(tmp_path):
    mytorch.save(mytorch.zeros(3), tmp_path / "x.pt")
    t = mytorch.load(tmp_path / "x.pt")
    t.add_(1)
    assert (mytorch.load(tmp_path / "x.pt") == 0).all()


def test_non_contiguous_tensors_come_back(tmp_path):
    t = mytorch.randn(4, 6)[::2].T
    mytorch.save(t, tmp_path / "x.pt")
    assert (mytorch.load(tmp_path / "x.pt") == t).all()


def test_model_and_optimizer_state_come_back(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = mytorch.optim.AdamW(model.parameters())
    model(mytorch.randn(5, 3)).sum().backward()
    optimizer.step()
    mytorch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, tmp_path / "x.pt")
    back = mytorch.load(tmp_path / "x.pt")
    twin = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    twin.load_state_dict(back["model"])
    other = mytorch.optim.AdamW(twin.parameters())
    other.load_state_dict(back["optimizer"])
    assert all((p == q).all() for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert (optimizer.state[p]["exp_avg"] == other.state[q]["exp_avg"]).all()


def test_files_and_buffers_work_as_names_do():
    buffer = io.BytesIO()
    mytorch.save({"a": mytorch.ones(2)}, buffer)
    buffer.seek(0)
    assert (mytorch.load(buffer)["a"] == 1).all()


def test_map_location_takes_devices_dicts_and_functions(tmp_path):
    mytorch.save(mytorch.ones(2, device="cpu"), tmp_path / "x.pt")
    for where in ("cpu", mytorch.device("cpu"), {"cpu": "cpu"}, lambda tensor, name: tensor):
        assert mytorch.load(tmp_path / "x.pt", map_location=where).device == mytorch.device("cpu")


def test_nothing_is_written_for_objects_that_cannot_be_pickled(tmp_path):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        mytorch.save({"a": [1, {"b": lambda: 0}]}, tmp_path / "x.pt")
    assert list(tmp_path.iterdir()) == []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.rnn = nn.LSTM(4, 4, num_layers=2)
        self.attention = nn.MultiheadAttention(4, 2)
        self.head = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5), nn.Linear(4, 2))
        self.parts = nn.ModuleList([nn.Embedding(3, 4), nn.LayerNorm(4)])
        self.activation, self.dtype, self.size = mytorch.relu, mytorch.float64, mytorch.Size([1, 2])

    def forward(self, x):
        x = self.activation(self.norm(self.conv(x))).mean(1)
        x = self.rnn(x)[0]
        x = self.attention(x, x, x)[0] + self.parts[0](mytorch.tensor([1]))
        return self.head(self.parts[1](x))


@pytest.mark.parametrize("zipped", [True, False])
def test_whole_modules_and_other_objects_are_saved_for_trusted_files(tmp_path, zipped):
    net = Net().eval()
    x = mytorch.randn(2, 1, 6, 6)
    optimizer = mytorch.optim.AdamW(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    saved = {
        "net": net,
        "day": datetime.date(2020, 1, 2),
        "optimizer": optimizer,
        "x": x,
        "view": x[0],
        "f": mytorch.exp,
    }
    mytorch.save(saved, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        mytorch.load(tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt", weights_only=False)
    assert same(found["net"](x).detach(), net(x).detach())
    assert found["day"] == saved["day"]
    assert found["f"] is mytorch.exp
    assert found["view"].data_ptr() == found["x"].data_ptr()
    for (p, state), (q, other) in zip(optimizer.state.items(), found["optimizer"].state.items(), strict=True):
        assert same(p.detach(), q.detach())
        assert same(state["exp_avg"], other["exp_avg"])
    found["net"](x).sum().backward()
    found["optimizer"].step()
    assert any(
        p is q for p, q in zip(found["net"].parameters(), found["optimizer"].param_groups[0]["params"], strict=True)
    )


def test_pytorch_reads_simple_whole_modules_of_this_library_and_the_reverse(torch, tmp_path):
    for ours, theirs in ((mytorch, torch), (torch, mytorch)):
        layers = ours.nn.Sequential(ours.nn.Linear(3, 4), ours.nn.ReLU(), ours.nn.LayerNorm(4), ours.nn.Linear(4, 2))
        ours.save(layers, tmp_path / "x.pt")
        found = theirs.load(tmp_path / "x.pt", weights_only=False, map_location="cpu")
        assert type(found[0]) is theirs.nn.Linear
        x = np.random.default_rng(0).standard_normal((5, 3)).astype("f4")
        expected = layers(ours.from_numpy(x).to(next(layers.parameters()).device)).detach().cpu().numpy()
        given = theirs.from_numpy(x).to(next(found.parameters()).device)
        np.testing.assert_allclose(found(given).detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_modules_of_pytorch_with_further_attributes_are_read(torch, tmp_path):
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Dropout(0.1)
    )
    layers.eval()
    torch.save({"layers": layers, "rnn": torch.nn.GRU(2, 3)}, tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt", weights_only=False, map_location="cpu")
    x = torch.randn(2, 1, 5, 5)
    ours = found["layers"](mytorch.from_numpy(x.numpy()).cpu())
    np.testing.assert_allclose(ours.detach().numpy(), layers(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert found["rnn"](mytorch.ones(1, 1, 2, device="cpu"))[0].shape == (1, 1, 3)


# -- safetensors -----------------------------------------------------------------------------------


def test_the_safetensors_package_reads_our_files_and_we_read_its(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1, 2], np.int64),
        "c": np.ones((), bool),
    }
    package.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"who": "they"})
    found = mytorch.load(tmp_path / "theirs.safetensors")
    assert all(same(found[name], mytorch.from_numpy(a)) for name, a in arrays.items())
    save_safetensors(arrays, tmp_path / "ours.safetensors", {"who": "we"})
    back = package.load_file(tmp_path / "ours.safetensors")
    assert all(same(back[name], a) for name, a in arrays.items())
    mytorch.save({"x": {"y": mytorch.ones(2)}}, tmp_path / "tree.safetensors")
    assert list(package.load_file(tmp_path / "tree.safetensors")) == ["x.y"]


def test_the_torch_side_of_safetensors_reads_bfloat16(torch, tmp_path):
    package = pytest.importorskip("safetensors.torch")
    save_safetensors({"a": mytorch.tensor([1.5, -2.0]).bfloat16()}, tmp_path / "x.safetensors")
    back = package.load_file(tmp_path / "x.safetensors")["a"]
    assert back.dtype == torch.bfloat16
    assert back.tolist() == [1.5, -2.0]
    package.save_file({"a": torch.tensor([3.5], dtype=torch.bfloat16)}, tmp_path / "y.safetensors")
    assert load_safetensors(tmp_path / "y.safetensors")["a"].numpy().dtype == ml_dtypes.bfloat16


def test_tied_tensors_are_found_under_all_names_by_any_reader(tmp_path):
    from mytorch.models import GPT2, GPT2Config

    model = GPT2(GPT2Config(vocab_size=50, context_length=4, num_layers=1, num_heads=1, embed_dim=8))
    save_state_dict(model.state_dict(), tmp_path / "x.safetensors")
    arrays, _ = read_safetensors(
        (tmp_path / "x.safetensors").read_bytes()
    )  # as a reader without support for tied weights
    assert set(arrays) == set(model.state_dict())
    np.testing.assert_array_equal(arrays["lm_head.weight"], arrays["transformer.wte.weight"])
    for state in (load_safetensors(tmp_path / "x.safetensors"), mytorch.load(tmp_path / "x.safetensors")):
        assert set(state) == set(model.state_dict())
        assert state["lm_head.weight"] is state["transformer.wte.weight"]
        model.load_state_dict(state)


def test_damaged_truncated_and_other_files_are_rejected(tmp_path):
    path = tmp_path / "x.safetensors"
    save_safetensors({"a": mytorch.arange(100)}, path)
    whole = path.read_bytes()
    for content, sentence in (
        (b"", "not a safetensors file, or it is truncated"),
        (whole[:20], "not a safetensors file, or it is truncated"),
        (whole[:-1], "truncated or damaged: 'a' should span bytes 0 to 800 of 799"),
        (b"hello, this is a text file", "not a safetensors file"),
        (whole.replace(b'"I64"', b'"I65"'), "which can't be read"),
        (whole.replace(b"[100]", b"[999]"), "truncated or damaged"),
        ((8).to_bytes(8, "little") + b"{abcdefg", "its header can't be read"),
        (pickle.dumps([1]), "bare pickle"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=sentence):
            mytorch.load(path)
    with pytest.raises(FileNotFoundError):
        mytorch.load(tmp_path / "nothing")


def test_dtypes_without_a_code_are_refused(tmp_path):
    with pytest.raises(TypeError, match="'a' has dtype complex128"):
        save_safetensors({"a": mytorch.zeros(1, dtype=mytorch.complex128)}, tmp_path / "x")
    with pytest.raises(TypeError, match="'a' is int; expected a tensor"):
        save_safetensors({"a": 1}, tmp_path / "x")


# -- atomicity -------------------------------------------------------------------------------------


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    atomic_write(path, b"old")
    with pytest.raises(RuntimeError, match="halfway"), atomic_file(path) as file:  # noqa: PT012
        file.write(b"new")
        raise RuntimeError("halfway")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.pt", lambda path: mytorch.save({"x": mytorch.ones(2)}, path)),
        ("x.safetensors", lambda path: save_safetensors({"x": mytorch.ones(2)}, path)),
        ("x.png", lambda path: mytorch.vision.utils.save_image(mytorch.ones(3, 4, 4), path)),
        ("x.jpg", lambda path: mytorch.vision.utils.save_image(mytorch.ones(3, 4, 4), path)),
        ("y.png", lambda path: mytorch.vision.io.write_png(mytorch.ones(3, 4, 4, dtype=mytorch.uint8), path)),
        ("x.svg", lambda path: mytorch.utils.render(mytorch.ones(2, requires_grad=True) * 2, path)),
        ("y.svg", lambda path: mytorch.utils.views.draw(mytorch.ones(2, 2), path)),
        ("x.onnx", lambda path: mytorch.onnx.export(mytorch.nn.Linear(2, 2), mytorch.ones(1, 2), path)),
        (
            "y.onnx",
            lambda path: mytorch.onnx.export(mytorch.nn.Linear(2, 200), mytorch.ones(1, 2), path, external_data=True),
        ),
        ("x.json", lambda path: mytorch.profiler.profile().__enter__().export_chrome_trace(path)),
    ],
)
def test_writers_leave_the_old_file_after_an_error(name, write, tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    path = tmp_path / name
    path.write_bytes(b"old")

    def fails(partial, path):
        raise RuntimeError("the power failed")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(RuntimeError, match="the power failed"):
        write(path)
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    write(path)
    assert path.read_bytes() != b"old"
    assert {p.name for p in tmp_path.iterdir()} == {name} | ({name + ".data"} if name == "y.onnx" else set())


def test_the_directory_is_renamed_as_soon_as_a_file_has_its_final_name(tmp_path, monkeypatch):
    """Another process may complete a checkpoint directory as soon as the last file of this process exists."""
    replace = os.replace

    def replace_and_rename_directory(partial, path):
        replace(partial, path)
        os.rename(tmp_path / "partial", tmp_path / "complete")

    (tmp_path / "partial").mkdir()
    monkeypatch.setattr(os, "replace", replace_and_rename_directory)
    atomic_write(tmp_path / "partial" / "x", b"new")
    assert (tmp_path / "complete" / "x").read_bytes() == b"new"


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    atomic_write(path, b"old")
    program = f"""
import os
from mytorch.serialization import atomic_file
with atomic_file({str(path)!r}) as file:
    file.write(b"new")
    file.flush()
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_links_permissions_and_pipes_are_preserved(tmp_path):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    mytorch.save({"x": mytorch.arange(3)}, link)
    assert link.is_symlink()
    assert mytorch.load(target)["x"].tolist() == [0, 1, 2]
    assert target.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    atomic_write(pipe, b"through")  # a device such as /dev/null goes the same way
    reader.join(20)
    assert read == [b"through"]
    assert pipe.is_fifo()


# -- PyTorch's files -------------------------------------------------------------------------------


def test_a_pytorch_checkpoint_is_read(torch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt")
    assert found["epoch"] == 3
    for name, t in model.state_dict().items():
        np.testing.assert_array_equal(found["model"][name].numpy(), t.numpy())
    twin = nn.Linear(3, 4)
    twin.load_state_dict({k.removeprefix("0."): v for k, v in found["model"].items() if k.startswith("0.")})
    assert found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
    np.testing.assert_array_equal(
        found["optimizer"]["state"][0]["exp_avg"].numpy(), optimizer.state_dict()["state"][0]["exp_avg"].numpy()
    )


@loop
@pytest.mark.parametrize("name", [n for n in EVERY_DTYPE if n not in ("uint16", "uint32", "uint64")])
def test_pytorch_tensors_of_every_dtype_are_read(torch, tmp_path, name):
    t = (torch.rand(3, 4) * 5).to(getattr(torch, name))
    torch.save(t, tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt")
    assert found.dtype == getattr(mytorch, name)
    assert found.float().tolist() == t.float().tolist() if name != "complex64" else True


def test_views_parameters_and_odd_values_of_pytorch_are_read(torch, tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    obj = {
        "transposed": base.t(),
        "slice": base[1:3, 2:5],
        "expanded": torch.ones(3, 1).expand(3, 4),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "grad": torch.ones(2, requires_grad=True),
        "size": torch.Size([1, 2]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "set": {1, 2},
        "nested": [(1, OrderedDict(a=torch.ones(1)))],
        "bytes": b"\x00\xff",
        "complex": 1 + 2j,
    }
    torch.save(obj, tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt")
    for name in ("transposed", "slice", "expanded", "scalar", "empty"):
        np.testing.assert_array_equal(found[name].numpy(), obj[name].numpy())
    assert type(found["parameter"]) is nn.Parameter
    assert found["grad"].requires_grad
    assert found["size"] == (1, 2)
    assert found["dtype"] is mytorch.float16
    assert found["device"] == mytorch.device("cpu")
    assert found["set"] == {1, 2}
    assert found["nested"][0][1]["a"].item() == 1
    assert found["bytes"] == b"\x00\xff"
    assert found["complex"] == 1 + 2j


BOTH_WAYS = [*EVERY_DTYPE, "complex128"]


def _bits(x):
    """The bytes of either library's tensor."""
    if isinstance(x, mytorch.Tensor):
        return np.ascontiguousarray(np.asarray(x.detach())).tobytes()
    return bytes(x.detach().contiguous().resolve_conj().reshape(-1).view(sys.modules["torch"].uint8).numpy())


@loop
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2), (1,)])
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_every_dtype_goes_both_ways(torch, tmp_path, name, shape):
    ours = (mytorch.rand(shape) * 3).to(getattr(mytorch, name))
    mytorch.save({"t": ours}, tmp_path / "ours.pt")
    theirs = torch.load(tmp_path / "ours.pt", weights_only=True, map_location="cpu")["t"]
    assert (theirs.dtype, theirs.shape) == (getattr(torch, name), ours.shape)
    assert 0 in shape or theirs.stride() == tuple(ours.stride())
    assert _bits(theirs) == _bits(ours)
    torch.save({"t": theirs}, tmp_path / "theirs.pt")
    back = mytorch.load(tmp_path / "theirs.pt")["t"]
    assert same(back, ours)


def _views(L):
    base = L.arange(24.0).reshape(4, 6)
    return {
        "base": base,
        "transposed": base.t(),
        "slice": base[1:3, 2:5],
        "expanded": L.ones(3, 1).expand(3, 4),
        "permuted": L.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        "scalar": L.tensor(3.5),
        "empty": L.zeros(0, 3),
        "frozen": L.nn.Parameter(L.ones(2), requires_grad=False),
        "parameter": L.nn.Parameter(L.ones(2)),
        "buffer": L.nn.Buffer(L.ones(2), persistent=False),
        "grad": L.ones(2, requires_grad=True),
        "size": L.Size([1, 2]),
        "dtype": L.bfloat16,
        "device": L.device("cpu"),
        "plain": [1, -(2**40), 2**70, 2.5, None, True, "text …", (1, (2, [3])), b"\x00\xff", 1 + 2j, bytearray(b"ab")],
        "nested": [(1, OrderedDict(a=L.ones(1)))],
        "set": {1, 2},
        3: {("a", 1): "odd keys"},
    }


def test_views_classes_and_values_go_both_ways(torch, tmp_path):
    mytorch.save(_views(mytorch), tmp_path / "ours.pt")
    torch.save(_views(torch), tmp_path / "theirs.pt")
    for found, made in (
        (torch.load(tmp_path / "ours.pt", weights_only=True, map_location="cpu"), _views(torch)),
        (mytorch.load(tmp_path / "theirs.pt"), _views(mytorch)),
        (mytorch.load(tmp_path / "ours.pt"), _views(mytorch)),
    ):
        assert list(found) == list(made)
        for name, x in made.items():
            assert type(found[name]) is type(x)
            if hasattr(x, "requires_grad"):
                assert (found[name].shape, found[name].requires_grad) == (x.shape, x.requires_grad), name
                assert _bits(found[name]) == _bits(x), name
            elif name != "nested":
                assert found[name] == x
        assert found["buffer"].persistent is False
        assert found["slice"].stride() == made["slice"].stride()
        found["base"][1, 2] = 100.0
        assert found["transposed"][2, 1] == found["slice"][0, 0] == 100.0


def test_models_and_optimizers_go_both_ways(torch, tmp_path):
    states = []
    for L in (torch, mytorch):
        L.manual_seed(0)
        model = L.nn.Sequential(L.nn.Linear(3, 4, bias=False), L.nn.BatchNorm1d(4), L.nn.Linear(4, 1))
        optimizer = L.optim.AdamW(model.named_parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(L.ones(5, 3) * L.arange(5.0)[:, None]).square().mean().backward()
            optimizer.step()
        model[1]._version = 2  # PyTorch's counts the batches since this one
        L.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2},
            tmp_path / f"{L.__name__}.pt",
        )
        states.append((model, optimizer))
    for L, other, (model, optimizer) in ((torch, mytorch, states[0]), (mytorch, torch, states[1])):
        found = L.load(tmp_path / f"{other.__name__}.pt", weights_only=True, map_location="cpu" if L is torch else None)
        assert found["model"]._metadata[""] == {"version": 1}
        before = {k: np.array(v.detach().numpy()) for k, v in model.state_dict().items()}
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        for k, v in model.state_dict().items():
            np.testing.assert_allclose(
                v.detach().numpy(), before[k], rtol=1e-2, atol=1e-3
            )  # tiny gradients, divided by their roots
        assert optimizer.param_groups[0]["param_names"] == ["0.weight", "1.weight", "1.bias", "2.weight", "2.bias"]


def test_entries_are_laid_out_as_pytorch_lays_them_out(torch, tmp_path):
    for L in (torch, mytorch):
        L.save({"a": L.ones(3), "b": L.ones(5)}, tmp_path / f"{L.__name__}.pt")
    names = []
    for L in (torch, mytorch):
        with zipfile.ZipFile(tmp_path / f"{L.__name__}.pt") as archive:
            assert archive.testzip() is None
            names.append({n.partition("/")[2] for n in archive.namelist()} - {".data/serialization_id"})
            content = (tmp_path / f"{L.__name__}.pt").read_bytes()
            for entry in archive.infolist():
                if "/data/" in entry.filename:
                    head = content[entry.header_offset :]
                    start = (
                        entry.header_offset
                        + 30
                        + int.from_bytes(head[26:28], "little")
                        + int.from_bytes(head[28:30], "little")
                    )
                    assert start % 64 == 0
    assert names[0] == names[1]
    assert torch.load(tmp_path / "mytorch.pt", mmap=True, map_location="cpu")["b"].sum() == 5
    mapped = mytorch.load(tmp_path / "torch.pt", mmap=True)
    mapped["b"].add_(1)
    assert mapped["b"].sum() == 10
    assert mytorch.load(tmp_path / "torch.pt", mmap=True)["b"].sum() == 5
    with pytest.raises(ValueError, match="file path in order to use the mmap"):
        mytorch.load(io.BytesIO(b""), mmap=True)


def test_conjugates_storages_and_numpy_of_pytorch_are_read(torch, tmp_path):
    z = torch.tensor([1 + 2j, 3 - 1j])
    obj = {
        "conj": z.conj(),
        "neg": (z + 1).conj().imag,
        "untyped": torch.tensor([1.5]).untyped_storage(),
        "numpy": np.arange(6).reshape(2, 3).T,
    }
    obj["scalar"] = np.float32(2.5)
    torch.save(obj, tmp_path / "x.pt")
    found = mytorch.load(tmp_path / "x.pt")
    assert found["conj"].tolist() == [1 - 2j, 3 + 1j]
    assert found["neg"].tolist() == [-2.0, 1.0]
    assert np.asarray(found["untyped"]).tobytes() == np.float32(1.5).tobytes()
    np.testing.assert_array_equal(found["numpy"], obj["numpy"])
    assert found["scalar"] == np.float32(2.5)
    mytorch.save({k: found[k] for k in ("numpy", "scalar")}, tmp_path / "y.pt")
    back = torch.load(tmp_path / "y.pt", weights_only=False, map_location="cpu")
    np.testing.assert_array_equal(back["numpy"], obj["numpy"])
    assert type(back["scalar"]) is np.float32


class Settings:
    def __init__(self, width):
        self.width = width


def test_classes_that_are_trusted_by_name(torch, tmp_path):
    S = mytorch.serialization
    with S.safe_globals([Settings]):
        assert S.get_safe_globals() == [Settings]
        mytorch.save({"a": Settings(mytorch.ones(2))}, tmp_path / "x.pt")
        assert mytorch.load(tmp_path / "x.pt")["a"].width.sum() == 2
    with pytest.raises(RuntimeError, match=r"Settings, which is refused"):
        mytorch.load(tmp_path / "x.pt")
    with torch.serialization.safe_globals([Settings]):
        assert torch.load(tmp_path / "x.pt", weights_only=True, map_location="cpu")["a"].width.sum() == 2
    torch.save(Settings(4), tmp_path / "y.pt")
    S.add_safe_globals([(Settings, f"{Settings.__module__}.Settings")])
    assert mytorch.load(tmp_path / "y.pt").width == 4
    S.clear_safe_globals()
    assert S.get_safe_globals() == []


def test_map_location_is_asked_for_each_storage(torch, tmp_path):
    torch.save([torch.ones(2, 3), torch.zeros(1)], tmp_path / "x.pt")
    seen = []
    found = mytorch.load(tmp_path / "x.pt", map_location=lambda storage, where: seen.append((storage.numel(), where)))
    assert seen == [(6, "cpu"), (1, "cpu")]
    assert found[0].sum() == 6
    content = (tmp_path / "x.pt").read_bytes()
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cuda:0'\nI4\ntQ"
    data = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"I0\n(I4\nt(I1\ntI00\nNtR."
    zip_of(tmp_path / "cuda.pt", data, **{"data/0": b"\0" * 16})
    for where in ("cpu", mytorch.device("cpu"), {"cuda:0": "cpu"}, lambda storage, name: storage):
        assert mytorch.load(tmp_path / "cuda.pt", map_location=where).device == mytorch.device("cpu")
    if not mytorch.cuda.is_available():
        with pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
            mytorch.load(tmp_path / "cuda.pt")
    assert mytorch.load(io.BytesIO(content))[1].item() == 0


def test_pickle_opcodes_with_side_effects_are_rejected(tmp_path):
    for options in ({"pickle_module": json}, {"pickle_protocol": 9}):
        with pytest.raises(ValueError, match="save: "):
            mytorch.save(1, tmp_path / "x.pt", **options)
    mytorch.save(1, tmp_path / "x.pt", pickle_module=pickle)
    with pytest.raises(RuntimeError, match="pickle_module"):
        mytorch.load(tmp_path / "x.pt", pickle_module=pickle, weights_only=True)
    assert mytorch.load(tmp_path / "x.pt", pickle_module=pickle) == 1
    assert mytorch.load(tmp_path / "x.pt", weights_only=False) == 1


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('the file ran code')",)


def zip_of(path, data, **members):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for name, content in members.items():
            archive.writestr("archive/" + name, content)


def test_code_in_a_pytorch_file_is_refused_by_name(torch, tmp_path):
    torch.save({"a": Evil()}, tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match=r"contains builtins\.exec, which is refused"):
        mytorch.load(tmp_path / "x.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match=r"contains torch\.nn\.modules\.linear\.Linear, which is refused"):
        mytorch.load(tmp_path / "x.pt")


@loop
@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "builtins eval",
        "builtins getattr",
        "posix system",
        "torch load",
        "torch._utils _import",
        "mytorch load",
    ],
)
def test_no_global_but_the_known_ones_is_reached(tmp_path, name):
    module, function = name.split()
    zip_of(tmp_path / "x.pt", f"c{module}\n{function}\n(S'echo'\ntR.".encode())
    with pytest.raises(RuntimeError, match=f"contains {module}.{function}, which is refused"):
        mytorch.load(tmp_path / "x.pt")


def test_a_pickle_cannot_alter_this_library(tmp_path):
    """The opcode BUILD would set attributes on the object of a global."""
    data = b"ctorch._utils\n_rebuild_tensor_v2\n}S'__call__'\nS'x'\nsb."
    zip_of(tmp_path / "x.pt", data)
    with pytest.raises(RuntimeError, match="sets the state of a function"):
        mytorch.load(tmp_path / "x.pt")


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQ"
    for offset, size, stride in ((0, 9, 1), (3, 2, 1), (-1, 2, 1), (0, 2, -1), (0, 3, 2)):
        data = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage
        data += f"I{offset}\n(I{size}\nt(I{stride}\ntI00\nNtR.".encode()
        zip_of(tmp_path / "x.pt", data, **{"data/0": b"\0" * 16})
        with pytest.raises(ValueError, match="exceeds its storage of 4 elements"):
            mytorch.load(tmp_path / "x.pt")


def test_damaged_pytorch_files_are_refused(torch, tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"a": torch.ones(100)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    with pytest.raises(ValueError, match="damaged zip file"):
        mytorch.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ValueError, match=r"without data\.pkl"):
        mytorch.load(path)
    zip_of(path, b"\x80\x02}q\x00(")
    with pytest.raises(ValueError, match="its pickle cannot be read"):
        mytorch.load(path)
    zip_of(path, b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQ.")
    with pytest.raises(ValueError, match="storage '0' cannot be read"):
        mytorch.load(path)
    zip_of(path, b"N.", **{"constants.pkl": b""})
    with pytest.raises(RuntimeError, match="TorchScript"):
        mytorch.load(path)


@pytest.mark.cpu_only
def test_files_of_before_pytorch_1_6_go_both_ways(torch, tmp_path):
    obj = {"step": 3, "name": "x"}
    for L, there, path in ((torch, mytorch, tmp_path / "a.pt"), (mytorch, torch, tmp_path / "b.pt")):
        base = L.arange(12, dtype=L.float64).reshape(3, 4)
        mine = {
            **obj,
            "rows": base[1:],
            "columns": base.T[::2],
            "half": L.ones(2, 0, 3).to(L.bfloat16),
            "p": L.nn.Parameter(L.ones(2)),
            "coo": L.eye(3).to_sparse(),
        }
        L.save(mine, path, _use_new_zipfile_serialization=False)
        found = there.load(path)
        assert found["rows"].tolist() == mine["rows"].tolist()
        assert found["columns"].tolist() == mine["columns"].tolist()
        assert (str(found["half"].dtype).split(".")[-1], tuple(found["half"].shape)) == ("bfloat16", (2, 0, 3))
        assert isinstance(found["p"], there.nn.Parameter)
        assert found["coo"].to_dense().tolist() == L.eye(3).tolist()
        found["rows"][0, 0] = -1  # tensors that shared memory share it again
        assert found["columns"][0, 1] == -1
        assert (found["step"], found["name"]) == (3, "x")


def test_damaged_files_of_before_pytorch_1_6_are_refused(tmp_path):
    whole = io.BytesIO()
    mytorch.save({"x": mytorch.arange(5)}, whole, _use_new_zipfile_serialization=False)
    whole = whole.getvalue()
    rng = np.random.default_rng(0)
    for cut in (30, 200, len(whole) - 1):
        with pytest.raises(ValueError, match="load: "):
            mytorch.load(io.BytesIO(whole[:cut]))
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[rng.integers(20, len(whole))] ^= 1 << rng.integers(8)
        with contextlib.suppress(ValueError, RuntimeError):
            mytorch.load(io.BytesIO(bytes(damaged)))
    code = whole.replace(b"torch._utils\n_rebuild_tensor_v2", b"builtins\nprint")
    with pytest.raises(RuntimeError, match=r"builtins.print, which is refused"):
        mytorch.load(io.BytesIO(code))


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_attributes_of_tensors_and_storages_go_both_ways(torch, tmp_path):
    for L, there, path in ((torch, mytorch, tmp_path / "a.pt"), (mytorch, torch, tmp_path / "b.pt")):
        x = L.arange(6, dtype=L.float32)
        p = L.nn.Parameter(x[2:4])
        x.note, p.width = "first", 3
        L.save(
            {"x": x, "p": p, "typed": x._typed_storage(), "bytes": L.tensor([1, 2], dtype=L.uint8).untyped_storage()},
            path,
        )
        found = there.load(path)
        assert (found["x"].note, found["p"].width) == ("first", 3)
        assert type(found["typed"]) is there.storage.TypedStorage
        assert found["typed"].tolist() == x.tolist()
        assert found["bytes"].tolist() == [1, 2]
        found["x"][0] = 7
        assert found["typed"][0] == 7


def test_files_that_do_not_say_their_byte_order_are_read_in_the_default_one(tmp_path):
    mytorch.save({"x": mytorch.tensor([1, 256])}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as whole, zipfile.ZipFile(tmp_path / "y.pt", "w") as part:
        for name in whole.namelist():
            if not name.endswith("byteorder"):
                part.writestr(name, whole.read(name))
    settings = mytorch.serialization
    try:
        for order, expected in ((None, [1, 256]), ("LITTLE", [1, 256]), ("BIG", [1 << 56, 1 << 48])):
            settings.set_default_load_endianness(None if order is None else settings.LoadEndianness[order])
            assert mytorch.load(tmp_path / "y.pt")["x"].tolist() == expected
    finally:
        settings.set_default_load_endianness(None)
    with pytest.raises(TypeError):
        settings.set_default_load_endianness("big")


@pytest.mark.cpu_only
def test_maps_of_files_are_private_or_shared(tmp_path):
    import mmap

    mytorch.save({"x": mytorch.zeros(3)}, tmp_path / "x.pt")
    settings = mytorch.serialization
    mytorch.load(tmp_path / "x.pt", mmap=True)["x"][0] = 1
    assert mytorch.load(tmp_path / "x.pt")["x"].tolist() == [0, 0, 0]
    try:
        settings.set_default_mmap_options(mmap.MAP_SHARED)
        mytorch.load(tmp_path / "x.pt", mmap=True)["x"][0] = 1
        assert mytorch.load(tmp_path / "x.pt")["x"].tolist() == [1, 0, 0]
    finally:
        settings.set_default_mmap_options(mmap.MAP_PRIVATE)


def test_strings_of_python_2_are_read_in_an_encoding(tmp_path):
    mytorch.save({"x": "PLACE"}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as whole, zipfile.ZipFile(tmp_path / "y.pt", "w") as part:
        for name in whole.namelist():
            content = b"\x80\x02U\x02\xc3\xa9." if name.endswith("data.pkl") else whole.read(name)
            part.writestr(name, content)
    assert mytorch.load(tmp_path / "y.pt") == "é"
    assert mytorch.load(tmp_path / "y.pt", encoding="latin1") == "Ã©"
    assert mytorch.load(tmp_path / "y.pt", encoding="bytes") == "é".encode()


def test_tensors_of_python_2_are_read_whatever_the_encoding(torch):
    file = io.BytesIO()
    torch.save([torch.tensor([1.0, 2.0])], file, _use_new_zipfile_serialization=False)
    content = file.getvalue()
    for word in (b"storage", b"cpu"):  # as Python 2 wrote its strings
        content = content.replace(b"X" + len(word).to_bytes(4, "little") + word, b"U" + bytes([len(word)]) + word)
    for encoding in ("utf-8", "bytes"):
        assert mytorch.load(io.BytesIO(content), encoding=encoding)[0].tolist() == [1, 2]
