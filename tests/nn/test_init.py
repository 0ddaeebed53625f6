"""Every function of nn.init with its options, for many shapes: with equal seeds, PyTorch's values or a refusal as PyTorch's."""

import itertools

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")
SHAPES = [
    (),
    (0,),
    (3,),
    (4, 6),
    (6, 4),
    (1, 1),
    (3, 0),
    (6, 2, 1),
    (6, 3, 2),
    (4, 2, 3, 4),
    (6, 6, 5, 7),
    (2, 2, 3, 4, 5),
]


def product(**options):
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


OPTIONS = {
    "uniform_": product(a=[0.0, -2.0], b=[1.0, 3.0]),
    "normal_": product(mean=[0.0, -2.0], std=[1.0, 0.3]),
    "trunc_normal_": product(mean=[0.0, 1.0, 3.0], std=[0.5, 1.0, 3.0, 40.0], a=[-2.0, 0.5], b=[2.0, 0.75]),
    "constant_": product(val=[0.0, 1.5, -3]),
    "ones_": [{}],
    "zeros_": [{}],
    "eye_": [{}],
    "dirac_": product(groups=[1, 2, 3]),
    "xavier_uniform_": product(gain=[1.0, 2.5]),
    "xavier_normal_": product(gain=[1.0, 2.5]),
    "kaiming_uniform_": product(a=[0, 0.5], mode=["fan_in", "fan_out"], nonlinearity=["leaky_relu", "relu", "tanh"]),
    "kaiming_normal_": product(a=[0, 0.5], mode=["fan_in", "fan_out"], nonlinearity=["leaky_relu", "selu", "linear"]),
    "orthogonal_": product(gain=[1, 2.5]),
    "sparse_": product(sparsity=[0.0, 0.3, 1.0], std=[0.01, 2.0]),
}


@pytest.mark.cpu_only
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.filterwarnings("ignore")
def test_values(name):
    wrong = []
    for shape, options, generated in itertools.product(SHAPES, OPTIONS[name], (False, True)):
        if generated and name in ("constant_", "ones_", "zeros_", "eye_", "dirac_"):
            continue
        outcomes = []
        for L in (torch, mytorch):
            L.manual_seed(7)
            own = {"generator": L.Generator().manual_seed(3)} if generated else {}
            try:
                t = L.zeros(shape, requires_grad=True)
                found = getattr(L.nn.init, name)(t, **options, **own)
                assert found is t
                assert (t.requires_grad, t.grad_fn) == (True, None)
                outcomes.append(t.detach().numpy())
            except (ValueError, RuntimeError, IndexError, ZeroDivisionError) as error:
                outcomes.append(ValueError if isinstance(error, ValueError) else type(error))
        want, found = outcomes
        if isinstance(want, type) or isinstance(found, type):
            same = want is found
        else:
            same = np.allclose(want, found, rtol=1e-4, atol=1e-5)
        if not same:
            wrong.append((shape, options, generated, want, found))
    assert not wrong, (len(wrong), wrong[:3])


@pytest.mark.parametrize(
    "name", ["linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "?"]
)
@pytest.mark.parametrize("param", [None, 0, 0.3, 2, True, "word"])
def test_gains(name, param):
    outcomes = []
    for L in (torch, mytorch):
        try:
            outcomes.append(L.nn.init.calculate_gain(name, param))
        except ValueError:
            outcomes.append(ValueError)
    assert outcomes[0] == outcomes[1]
