"""segment_reduce: values and gradients of random segments with NaN, ties and infinities, and what PyTorch refuses."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")


@loop
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (2, 6), (2, 6, 2), (2, 2, 6), (0,), (2, 0)])
@pytest.mark.parametrize("way", ["lengths", "offsets"])
@pytest.mark.parametrize("initial", [None, 0, 1.5, -2])
@pytest.mark.parametrize("seed", range(4))
def test_values_and_gradients(reduce, shape, way, initial, seed):
    rng = np.random.default_rng(seed)
    axis = {(6, 3): 0, (2, 6, 2): 1}.get(shape, len(shape) - 1)
    data = rng.permutation(int(np.prod(shape))).reshape(shape) - 3.0
    if seed % 2:
        data.ravel()[rng.random(data.size) < 0.2] = [np.nan, np.inf][seed // 2]
    cuts = np.sort(rng.integers(0, shape[axis] + 1, (*shape[:axis], 3)), -1)
    if way == "lengths":
        cuts = np.diff(cuts, prepend=0, append=shape[axis], axis=-1)
    upstream = rng.standard_normal((*shape[:axis], cuts.shape[-1] - (way == "offsets"), *shape[axis + 1 :]))
    outcomes = []
    for L in (torch, mytorch):
        x = L.tensor(data, requires_grad=True)
        try:
            found = L.segment_reduce(x, reduce, **{way: L.tensor(cuts)}, axis=axis, initial=initial)
            found.backward(L.tensor(upstream))
            outcomes.append((found.detach().numpy(), x.grad.numpy()))
        except RuntimeError:
            outcomes.append(None)
    want, got = outcomes
    assert (want is None) == (got is None) or not data.size  # which PyTorch cannot differentiate
    if seed % 2 and reduce in ("prod", "max", "min"):  # gradients at NaN and infinity are not defined
        want, got = want and want[:1], got and got[:1]
    for a, b in zip(want or (), got or (), strict=False):
        np.testing.assert_allclose(b, a, rtol=1e-12)


REFUSED = {
    "negative length": {"lengths": [2, -1, 5]},
    "another sum": {"lengths": [2, 3]},
    "another sum, unsafe": {"lengths": [2, 3], "unsafe": True},
    "more axes": {"lengths": [[2, 4]]},
    "float lengths": {"lengths": [2.0, 4.0]},
    "descending offsets": {"offsets": [3, 0, 6]},
    "no offsets": {"offsets": [1]},
    "indices": {"lengths": [6], "indices": [0]},
    "both": {"lengths": [6], "offsets": [1, 3]},
    "axis -1": {"lengths": [2, 4], "axis": -1},
    "axis 1": {"lengths": [2, 4], "axis": 1},
    "neither": {},
}


def test_equal_extremes_share_the_gradient():
    x = mytorch.tensor([2.0, 5, 5, 1, float("nan"), float("nan")], requires_grad=True)
    mytorch.segment_reduce(x, "max", lengths=mytorch.tensor([3, 3])).backward(mytorch.tensor([3.0, 8.0]))
    assert x.grad.tolist() == [0.0, 1.5, 1.5, 0.0, 4.0, 4.0]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_is_refused(name, dtype):
    outcomes = []
    for L in (torch, mytorch):
        given = {k: L.tensor(v) if isinstance(v, list) else v for k, v in REFUSED[name].items()}
        try:
            outcomes.append(L.segment_reduce(L.arange(6, dtype=getattr(L, dtype)), "sum", **given).tolist())
        except (RuntimeError, IndexError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1] or outcomes in (
        [RuntimeError, NotImplementedError],
        [NotImplementedError, RuntimeError],
    )


def test_offsets_outside_of_the_axis_are_refused():
    with pytest.raises(RuntimeError, match="Expected ascending offsets from 0 to 6"):  # PyTorch reads other memory
        mytorch.segment_reduce(mytorch.arange(6.0), "sum", offsets=mytorch.tensor([0, 9]))
