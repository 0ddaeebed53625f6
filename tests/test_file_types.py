"""The types of plain objects, kinds of files, and allowed classes: what `save` writes and `load` returns, in both modes.

The file is also a script: `python -m tests.test_file_types` runs the tests in PyTorch mode.
"""

import bz2
import collections
import gzip
import io
import lzma
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from tests.loops import loop

if __name__ == "__main__":
    mytorch.install_as_torch()

from mytorch import nn

ROOT = pathlib.Path(__file__).parent.parent
Point = collections.namedtuple("Point", "x y")


class Words(dict):
    pass


class Numbers(list):
    pass


class Sorted(collections.OrderedDict):
    pass


PLAIN = {
    "path": pathlib.Path("a/b"),
    "pure path": pathlib.PureWindowsPath("c:/a"),
    **{
        f"defaultdict {f}": collections.defaultdict(f, {1: f()})
        for f in (bool, int, float, str, bytes, list, dict, tuple, set)
    },
    **{
        f"defaultdict {f}": collections.defaultdict(f, {1: f()})
        for f in (frozenset, collections.OrderedDict, collections.Counter)
    },
    "defaultdict": collections.defaultdict(None, a=1),
    "ordered": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("aab"),
    "set": {1, 2},
    "frozenset": frozenset([1]),
    "tuple": (1, (2.5, True, None)),
    "bytes": b"ab",
    "bytearray": bytearray(b"ab"),
    "complex": 1 + 2j,
    "dtype": mytorch.float16,
    "device": mytorch.device("cpu"),
    "size": mytorch.Size([2, 3]),
    "layout": mytorch.strided,
    "number": np.float32(2),
    "nested": {"a": [collections.defaultdict(list, x=[pathlib.Path("b")])]},
    "tensor class": mytorch.Tensor,
    "parameter class": nn.Parameter,
}
OTHER = {
    "named tuple": Point(1, 2),
    "dict": Words(a=1),
    "list": Numbers([1]),
    "ordered": Sorted(a=1),
    "deque": collections.deque([1], 3),
    "range": range(3),
    "generator": mytorch.Generator(),
    "function": nn.functional.gelu,
    "class": nn.Linear,
    "structured": np.zeros(2, [("a", "f4")]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
}


def _saved(x, archive=True):
    file = io.BytesIO()
    mytorch.save(x, file, _use_new_zipfile_serialization=archive)
    return file.getvalue()


def _loaded(content, **options):
    return mytorch.load(io.BytesIO(content), **options)


def _equal(x, y):
    if isinstance(x, collections.defaultdict) and x.default_factory is not y.default_factory:
        return False
    return type(x) is type(y) and (x == y if not isinstance(x, np.ndarray) else bool((x == y).all()))


@loop
@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_objects_keep_their_types(name, archive):
    content = _saved(PLAIN[name], archive)
    for weights_only in (True, False):
        assert _equal(_loaded(content, weights_only=weights_only), PLAIN[name])


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("name", OTHER)
def test_other_objects_keep_their_types_or_are_refused(name, archive):
    content = _saved(OTHER[name], archive)
    loaded = _loaded(content, weights_only=False)
    assert type(loaded) is type(OTHER[name]) if name == "generator" else _equal(loaded, OTHER[name])
    with pytest.raises(pickle.UnpicklingError):
        _loaded(content)


@pytest.mark.parametrize("name", [name for name in PLAIN if "class" not in name and name != "layout"])
def test_types_in_safetensors_files(name, tmp_path):
    x = PLAIN[name]
    if isinstance(x, (bytearray, collections.defaultdict)) or name == "nested":
        pytest.skip("the format has no such container")
    mytorch.save({"x": x}, tmp_path / "x.safetensors")
    assert _equal(mytorch.load(tmp_path / "x.safetensors")["x"], x)


@pytest.mark.parametrize("value", [OTHER["named tuple"], OTHER["dict"], OTHER["list"], collections.defaultdict(list)])
def test_safetensors_files_refuse_other_containers(value, tmp_path):
    with pytest.raises(TypeError, match="can't be saved"):
        mytorch.save({"x": value}, tmp_path / "x.safetensors")


def test_a_file_cannot_call_the_classes_that_it_may_name():
    for name in ("int", "list", "bytes", "str"):
        for call in (b"R", b"\x81"):
            content = b"\x80\x02cbuiltins\n%b\nK\x05\x85%b." % (name.encode(), call)
            with pytest.raises(RuntimeError, match="refused"):
                mytorch.files.archive.unpickle(content, None, mytorch.files.limits.Budget("x", 100))


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_compressed_files(module, archive, tmp_path):
    state = nn.Linear(30, 20).state_dict()
    with module.open(tmp_path / "x", "wb") as file:
        mytorch.save(state, file, _use_new_zipfile_serialization=archive)
    with module.open(tmp_path / "x", "rb") as file:
        loaded = mytorch.load(file)
    assert loaded.keys() == state.keys()
    assert all(mytorch.equal(loaded[name], state[name]) for name in state)


def test_several_objects_in_one_file(tmp_path):
    with open(tmp_path / "x", "wb") as file:
        pickle.dump("head", file)
        for n in range(3):
            mytorch.save({"x": mytorch.arange(n)}, file, _use_new_zipfile_serialization=False)
        file.write(b"tail")
    with open(tmp_path / "x", "rb") as file:
        assert pickle.load(file) == "head"
        assert [mytorch.load(file)["x"].tolist() for _ in range(3)] == [[], [0], [0, 1]]
        assert file.read() == b"tail"


def test_appending_to_a_file(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    with open(tmp_path / "x", "ab") as file:
        mytorch.save(mytorch.arange(3), file)
    with open(tmp_path / "x", "rb") as file:
        assert file.read(3) == b"abc"
        assert mytorch.load(file).tolist() == [0, 1, 2]


def test_errors_have_the_types_of_pytorch():
    for f in (None, 5, [1]):
        with pytest.raises(AttributeError, match="expected a path or a file"):
            mytorch.save(1, f)
        with pytest.raises(AttributeError, match="expected a path or a file"):
            mytorch.load(f)
    with pytest.raises(EOFError, match="empty"):
        _loaded(b"")
    for content in (b"PK", b"garbage", pickle.dumps([1])):
        with pytest.raises(pickle.UnpicklingError):
            _loaded(content)
    with pytest.raises(RuntimeError, match="Create it first"):
        mytorch.save(1, "/a folder that does not exist/x")


def _model():
    layer = nn.TransformerEncoderLayer(4, 2, dropout=0.0, activation=nn.functional.relu, batch_first=True)
    return nn.Sequential(
        nn.Linear(2, 4),
        nn.Dropout(0.1),
        nn.LayerNorm(4),
        nn.ReLU(),
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
    )


def test_allowed_classes_of_the_library():
    model = _model().eval()
    classes = {type(module) for module in model.modules()}
    content = _saved(model)
    with pytest.raises(pickle.UnpicklingError):
        _loaded(content)
    with mytorch.serialization.safe_globals([*classes, nn.functional.relu]):
        loaded = _loaded(content)
        again = _loaded(_saved(model))
    x = mytorch.randn(3, 5, 2)
    assert mytorch.equal(loaded(x), model(x))
    assert mytorch.equal(again(x), model(x))


def test_allowed_classes_in_a_file_of_pytorch():
    torch = pytest.importorskip("torch")
    if torch is mytorch:
        pytest.skip("PyTorch mode")
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.1), torch.nn.MultiheadAttention(4, 2))
    file = io.BytesIO()
    torch.save(theirs, file)
    classes = [
        nn.Sequential,
        nn.Linear,
        nn.Dropout,
        nn.MultiheadAttention,
        nn.modules.linear.NonDynamicallyQuantizableLinear,
    ]
    with mytorch.serialization.safe_globals(classes):
        ours = _loaded(file.getvalue())
    assert ours[0].weight.tolist() == theirs[0].weight.tolist()
    ours_in_theirs = torch.load(io.BytesIO(_saved(_model())), weights_only=False)
    assert type(ours_in_theirs[4].layers[0].dropout) is torch.nn.Dropout
    assert torch.load(io.BytesIO(_saved({"x": collections.Counter("aab")})))["x"] == collections.Counter("aab")


def test_in_pytorch_mode():
    if "torch" in sys.modules and sys.modules["torch"] is mytorch:
        return
    run = subprocess.run(
        [sys.executable, "-m", "tests.test_file_types"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider", "--noconftest"]))
