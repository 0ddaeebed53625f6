"""`mytorch.testing` compared with `torch.testing`: every argument of `make_tensor` and `assert_close`."""

import importlib
import itertools

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 float8_e4m3fn float8_e5m2".split()
NAN = float("nan")
OPTIONS = [
    {}, {"low": 0, "high": 1}, {"low": -300, "high": 300}, {"low": 2.3, "high": 6.7}, {"low": 3, "high": 3}, {"low": 5, "high": 2},
    {"low": NAN}, {"low": -1e39, "high": 1e39}, {"low": -1e300, "high": 1e300}, {"requires_grad": True}, {"exclude_zero": True},
    {"noncontiguous": True}, {"low": 0, "high": 2, "exclude_zero": True, "noncontiguous": True}, {"memory_format": "channels_last"},
    {"memory_format": "channels_last", "noncontiguous": True},
]  # fmt: skip
SHAPES = [(2, 3, 4, 5), (7,), (0, 3), ()]


def made(library, shape, dtype, options):
    """The values, strides and requires_grad of a tensor and the next random number, or the class of the error."""
    library.manual_seed(3)
    options = {k: library.channels_last if k == "memory_format" else v for k, v in options.items()}
    try:
        x = library.testing.make_tensor(shape, dtype=getattr(library, dtype), device="cpu", **options)
    except Exception as error:
        return type(error)
    values = x.detach()
    if values.dtype.itemsize <= 2:
        values = values.to(library.float32)
    return values.numpy().tolist(), x.stride(), x.requires_grad, library.rand(1).item()


@pytest.mark.filterwarnings("ignore:Passing `low==high`")
@pytest.mark.parametrize("dtype", DTYPES)
def test_make_tensor(dtype):
    for options, shape in itertools.product(OPTIONS, SHAPES):
        if "float8" in dtype and "exclude_zero" in options:
            continue  # PyTorch raises NotImplementedError
        expected, result = (made(library, shape, dtype, options) for library in (torch, mytorch))
        assert result == expected, (options, shape)


def pairs(lib):
    """Pairs of values to compare, and options."""
    x, eye = lib.tensor([1.0, 2.0, 3.0]), lib.eye(3)

    class Sub(lib.Tensor):
        pass

    values = {
        "None": None, "True": True, "False": False, "1": 1, "2": 2, "1.0": 1.0, "1j": 1j, "nan": NAN, "array": np.ones(3), "x": x,
        "near": x + 1e-7, "far": x + 0.1, "x64": x.double(), "xhalf": x.half(), "one": lib.tensor(1.0), "ones": lib.ones(3), "long": lib.tensor([1, 2, 3]),
        "sub": x.as_subclass(Sub), "meta": x.to("meta"), "eye": eye, "eye.t": lib.ones(2, 3), "ones.t": lib.ones(3, 2).t(),
        "coo": eye.to_sparse(), "coo2": (2 * eye).to_sparse(), "coo1": lib.zeros(3, 3).to_sparse(), "csr": eye.to_sparse_csr(), "csc": eye.to_sparse_csc(),
        "nans": lib.tensor([1.0, NAN, 3.0]), "infs": lib.tensor([1.0, float("inf"), 3.0]), "complex": lib.tensor([1, 2 + 1e-8j, 3]),
        "bytes": lib.tensor([0, 255], dtype=lib.uint8), "bytes2": lib.tensor([255, 0], dtype=lib.uint8), "large": lib.tensor([2**62]), "large1": lib.tensor([2**62 + 1]),
        "empty": lib.ones(0), "list": [x, 1], "tuple": (x, 1), "list1": [x], "dict": {"a": x}, "dict2": {"b": x}, "grad": x.clone().requires_grad_(),
    }  # fmt: skip
    options = [
        {}, {"rtol": 0, "atol": 0}, {"rtol": 0.2, "atol": 0}, {"equal_nan": True}, {"check_dtype": False}, {"check_layout": False},
        {"check_stride": True}, {"allow_subclasses": False}, {"check_device": False},
    ]  # fmt: skip
    return values, options


def outcome(lib, a, b, options):
    try:
        lib.testing.assert_close(a, b, **options)
    except Exception as error:
        text = str(error).split("\n")[0].replace("mytorch", "torch")
        return type(error), text[: len("None mismatch")] if text.startswith(
            "None"
        ) else text  # without the printed tensor
    return "close"


@pytest.mark.filterwarnings("ignore:Sparse")
def test_assert_close():
    (values, options), (expected_values, _) = pairs(mytorch), pairs(torch)
    differences = []
    for one, other in itertools.product(values, repeat=2):
        for chosen in options:
            expected = outcome(torch, expected_values[one], expected_values[other], chosen)
            result = outcome(mytorch, values[one], values[other], chosen)
            if result != expected and expected[0] is not RuntimeError:  # PyTorch's errors on pairs that it forgot
                differences.append((one, other, chosen, expected, result))
    assert not differences, (len(differences), differences[:20])


@pytest.mark.parametrize("given", [{"rtol": 0.1}, {"atol": 0.1}])
def test_assert_close_needs_both_tolerances(given):
    assert outcome(mytorch, 1.0, 1.0, given) == outcome(torch, 1.0, 1.0, given)
    assert outcome(mytorch, 1.0, 1.0, given)[0] is ValueError


@pytest.mark.filterwarnings("ignore")
def test_equality_of_pytorchs_test_cases():
    """`assertEqual` of the test case that the tests of packages inherit."""
    theirs = pytest.importorskip("torch.testing._internal.common_utils").TestCase()
    mine = importlib.import_module("mytorch.compat.testing_internal").TestCase()
    (values, _), (expected_values, _) = pairs(mytorch), pairs(torch)
    options = [
        {},
        {"atol": 1.5, "rtol": 0},
        {"rtol": 0, "atol": 0},
        {"exact_dtype": False},
        {"exact_layout": True},
        {"exact_stride": True},
    ]
    values |= {
        "text": "a",
        "set": {1},
        "0.1": mytorch.tensor(0.1).item(),
        "0.1d": 0.1,
        "numbers": [1.0, 2.0, 3.0],
        "type": int,
    }
    expected_values |= {key: value for key, value in values.items() if key not in expected_values}
    differences = []
    for one, other in itertools.product(values, repeat=2):
        for chosen in options:
            expected, result = (
                _equal(case, found[one], found[other], chosen)
                for case, found in ((theirs, expected_values), (mine, values))
            )
            if result != expected:
                differences.append((one, other, chosen, expected, result))
    assert not differences, (len(differences), differences[:20])


def _equal(case, a, b, options):
    try:
        case.assertEqual(a, b, **options)  # noqa: PT009
    except Exception:
        return False  # different, or not to be compared
    return True
