"""Which dtypes, devices, sizes and limits are equal to what: every pair of values as in PyTorch."""

import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cpu_only

VALUES = {
    **{
        name: lambda L, name=name: getattr(L, name)
        for name in "float32 float64 float16 bfloat16 int64 int32 uint8 bool complex64".split()
    },
    **{f"alias {name}": lambda L, name=name: getattr(L, name) for name in "float double half long int cfloat".split()},
    **{
        f"word {word}": lambda L, word=word: word
        for word in "float32 float double int64 int long bool cpu cuda cuda:0 strided".split()
    },
    **{f"type {t.__name__}": lambda L, t=t: t for t in (float, int, bool, complex, str)},
    **{f"device {d}": lambda L, d=d: L.device(d) for d in ("cpu", "cpu:0", "cuda", "cuda:0", "cuda:1", "meta")},
    "device of a tensor": lambda L: L.zeros(2).device,
    "dtype of a tensor": lambda L: L.zeros(2).dtype,
    "None": lambda L: None,
    **{f"finfo {d}": lambda L, d=d: L.finfo(getattr(L, d)) for d in ("float32", "float16")},
    **{f"iinfo {d}": lambda L, d=d: L.iinfo(getattr(L, d)) for d in ("int8", "int64")},
    "size": lambda L: L.Size([2, 3]),
    "shape": lambda L: L.zeros(2, 3).shape,
    "tuple": lambda L: (2, 3),
    "list": lambda L: [2, 3],
    "empty size": lambda L: L.Size([]),
    "empty tuple": lambda L: (),
    "preserve_format": lambda L: L.preserve_format,
    "contiguous_format": lambda L: L.contiguous_format,
}


@loop
@pytest.mark.parametrize("first", VALUES)
def test_equal_as_in_pytorch(first):
    for second, make in VALUES.items():
        if ("info" in first) != ("info" in second):  # PyTorch reads other objects as if they were limits
            continue
        found = []
        for L in (torch, mytorch):
            a, b = VALUES[first](L), make(L)
            found.append((a == b, b == a, a != b, a in [b], a in (b, None)))
            if a == b and type(a) is type(b) and not isinstance(a, list) and "info" not in first:
                assert hash(a) == hash(b), (L, first, second)
        assert found[0] == found[1], (first, second, found)
