"""The meta device: shapes and dtypes without memory."""

import copy
import tracemalloc

import numpy as np
import pytest

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from tests.loops import loop

pytestmark = pytest.mark.cpu_only


def blocks(lib):
    """Modules of many kinds."""
    return lib.nn.ModuleList(
        [lib.nn.Linear(4, 8), lib.nn.LayerNorm(8), lib.nn.Embedding(10, 4), lib.nn.Conv2d(3, 8, 3), lib.nn.LSTM(4, 5),
         lib.nn.MultiheadAttention(8, 2), lib.nn.BatchNorm2d(4), lib.nn.TransformerEncoderLayer(8, 2)]
    )  # fmt: skip


def test_a_model_larger_than_memory_is_made_in_no_memory():
    tracemalloc.start()
    with mytorch.device("meta"):
        model = nn.Sequential(nn.Linear(1_000_000, 100_000), nn.Embedding(1 << 33, 64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    assert sum(p.numel() for p in model.parameters()) == 100_000_100_000 + (1 << 39)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert mytorch.ones(2).device.type == "cpu"


def test_modules_are_made_with_pytorchs_shapes(torch):
    with torch.device("meta"):
        theirs = blocks(torch)
    with mytorch.device("meta"):
        mine = blocks(mytorch)
    for (name, a), (other, b) in zip(mine.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert (name, tuple(a.shape), str(a.dtype).split(".")[1]) == (other, tuple(b.shape), str(b.dtype).split(".")[1])
        assert a.is_meta
        assert a.stride() == b.stride()
        assert a.is_contiguous()


def test_factories_and_moves(torch):
    def made(lib):
        kind = {"device": "meta"}
        x = lib.empty(3, 4, **kind)
        return [
            x, lib.zeros(3, **kind), lib.full((2,), 3, **kind), lib.arange(5, **kind), lib.linspace(0, 1, 7, **kind), lib.eye(3, **kind),
            lib.rand(2, 3, **kind), lib.randn(2, **kind), lib.randint(0, 5, (2, 3), **kind), lib.randperm(4, **kind), lib.tensor([[1, 2]], **kind),
            lib.ones_like(x), lib.empty_like(lib.ones(3), **kind), x.new_zeros(2), lib.ones(2, dtype=lib.int16).to("meta"), x.to(lib.float64),
            x.clone(), x.half(), x.zero_(), x.normal_(), copy.deepcopy(x), lib.tril(lib.ones(5, 5, **kind)).view(1, 1, 5, 5),
        ]  # fmt: skip

    for a, b in zip(made(mytorch), made(torch), strict=True):
        assert a.is_meta
        assert (tuple(a.shape), str(a.dtype).split(".")[1]) == (tuple(b.shape), str(b.dtype).split(".")[1])


def test_operations_give_shapes(torch):
    def found(lib):
        x, i = lib.empty(3, 4, device="meta"), lib.zeros(2, 3, dtype=lib.int64, device="meta")
        f = lib.nn.functional
        layers = blocks(lib).to("meta")
        return [
            x + 1, x @ x.T, x.softmax(-1), lib.cat([x, x]), x.max(1).indices, x.sort(0).values, x.sum(), x[1:, None], x.permute(1, 0),
            f.scaled_dot_product_attention(x, x, x, is_causal=True), f.embedding(i, x), x[i], lib.where(x > 0, x, 0.0),
            lib.einsum("ij,kj->ik", x, x), layers[0](x), layers[3](x.new_ones(1, 3, 8, 8)), layers[4](x.new_ones(5, 2, 4))[0],
        ]  # fmt: skip

    for a, b in zip(found(mytorch), found(torch), strict=True):
        assert a.is_meta
        assert (tuple(a.shape), str(a.dtype).split(".")[1]) == (tuple(b.shape), str(b.dtype).split(".")[1])


def test_weights_are_given_by_assignment():
    source, meta = nn.Linear(3, 4), nn.Linear(3, 4, device="meta")
    with pytest.warns(UserWarning, match="which is a no-op"):
        meta.load_state_dict(source.state_dict())
    assert meta.weight.is_meta
    meta.load_state_dict(source.state_dict(), assign=True)
    x = mytorch.randn(2, 3)
    np.testing.assert_array_equal(meta(x).detach().numpy(), source(x).detach().numpy())
    made = nn.Linear(3, 4, device="meta").to_empty(device="cpu")
    made.reset_parameters()
    assert made.weight.requires_grad
    assert np.isfinite(made(x).detach().numpy()).all()


READING = ["x.cpu()", "x.item()", "x.tolist()", "x.detach().numpy()", "bool(x)", "float(x)", "x.nonzero()", "x[x > 0]", "m.to('cpu')"]  # fmt: skip


@loop
@pytest.mark.parametrize("text", [*READING, "mytorch.save(x, '/dev/null')"])
def test_reading_values_is_rejected(text):
    names = {"x": mytorch.empty(1, device="meta"), "m": nn.Linear(2, 2, device="meta"), "mytorch": mytorch}
    with pytest.raises(NotImplementedError, match=r"no data! Please use Module.to_empty\(\)"):
        eval(text, names)
    assert repr(names["x"]) == "tensor(..., size=(1,), device=meta)"


def test_meta_and_other_tensors_do_not_mix():
    with pytest.raises(mytorch.DeviceError if hasattr(mytorch, "DeviceError") else RuntimeError, match="same device"):
        F.linear(mytorch.ones(2, 3), mytorch.ones(4, 3, device="meta"))
