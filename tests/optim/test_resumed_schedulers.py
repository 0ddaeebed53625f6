"""Schedulers compared with PyTorch: created with `last_epoch`, resumed, created again, with tensors and added groups."""

import warnings

import pytest

import mytorch
from tests.loops import loop

S = {
    "LambdaLR": lambda s, o, e: s.LambdaLR(o, lambda t: 0.9**t, last_epoch=e),
    "MultiplicativeLR": lambda s, o, e: s.MultiplicativeLR(o, lambda t: 0.9 + t / 100, last_epoch=e),
    "StepLR": lambda s, o, e: s.StepLR(o, 2, 0.5, last_epoch=e),
    "MultiStepLR": lambda s, o, e: s.MultiStepLR(o, [1, 3], 0.5, last_epoch=e),
    "ConstantLR": lambda s, o, e: s.ConstantLR(o, 0.5, 3, last_epoch=e),
    "LinearLR": lambda s, o, e: s.LinearLR(o, 0.25, 1.0, 4, last_epoch=e),
    "ExponentialLR": lambda s, o, e: s.ExponentialLR(o, 0.7, last_epoch=e),
    "PolynomialLR": lambda s, o, e: s.PolynomialLR(o, 5, 2.0, last_epoch=e),
    "CosineAnnealingLR": lambda s, o, e: s.CosineAnnealingLR(o, 4, 0.01, last_epoch=e),
    "CosineAnnealingWarmRestarts": lambda s, o, e: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01, last_epoch=e),
    "CyclicLR": lambda s, o, e: s.CyclicLR(o, 0.1, 0.5, 3, last_epoch=e),
    "CyclicLR with lists": lambda s, o, e: s.CyclicLR(
        o, [0.1, 0.2], [0.5, 0.6], 3, mode="exp_range", gamma=0.9, base_momentum=[0.7, 0.8], max_momentum=[0.9, 0.95],
        last_epoch=e,
    ),
    "OneCycleLR": lambda s, o, e: s.OneCycleLR(o, 0.5, 12, last_epoch=e),
    "OneCycleLR with lists": lambda s, o, e: s.OneCycleLR(
        o, [0.5, 0.6], 12, base_momentum=[0.7, 0.8], max_momentum=[0.9, 0.95], three_phase=True, last_epoch=e
    ),
    "SequentialLR": lambda s, o, e: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, 2, last_epoch=e), s.ExponentialLR(o, 0.7, last_epoch=e)], [3], last_epoch=e
    ),
    "SequentialLR of a ChainedScheduler": lambda s, o, e: s.SequentialLR(
        o, [s.ChainedScheduler([s.LinearLR(o, 0.5, last_epoch=e), s.StepLR(o, 2, last_epoch=e)]), s.StepLR(o, 1, last_epoch=e)],
        [2], last_epoch=e,
    ),
    "SequentialLR from the second": lambda s, o, e: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, 2, last_epoch=e), s.ExponentialLR(o, 0.7, last_epoch=e)], [0], last_epoch=e
    ),
    "ChainedScheduler": lambda s, o, e: s.ChainedScheduler(
        [s.ConstantLR(o, 0.5, 2, last_epoch=e), s.ExponentialLR(o, 0.7, last_epoch=e)]
    ),
}  # fmt: skip


def optimizer(L, tensor):
    a, b = (L.nn.Parameter(L.ones(2)) for _ in "ab")
    lr = (lambda v: L.tensor(v)) if tensor else float
    return L.optim.SGD([{"params": [a], "lr": lr(0.4)}, {"params": [b], "lr": lr(0.8)}], lr=1.0, momentum=0.9)


def trace(L, name, last_epoch, tensor, how):
    """Returns the learning rates and momenta of each step, and the types of the learning rates."""
    o = optimizer(L, tensor)
    seen = []

    def note(s):
        for g, last in zip(o.param_groups, s.get_last_lr(), strict=True):
            seen.extend([float(g["lr"]), float(last), float(g["momentum"]), float(g["initial_lr"])])
            seen.append(type(g["lr"]).__name__ + type(g["initial_lr"]).__name__ + type(last).__name__)

    if last_epoch >= 0:
        s = S[name](L.optim.lr_scheduler, o, -1)  # sets initial_lr, and what a schedule stores in the groups
        for _ in range(last_epoch):
            o.step()
            s.step()
    s = S[name](L.optim.lr_scheduler, o, last_epoch)
    note(s)
    for i in range(6):
        if i == 3 and how == "loaded":
            state, other = s.state_dict(), S[name](L.optim.lr_scheduler, o, -1)
            other.load_state_dict(state)
            s = other
        if i == 3 and how == "again":
            s = S[name](L.optim.lr_scheduler, o, -1)
        o.step()
        s.step()
        note(s)
    return seen


@loop
@pytest.mark.parametrize("how", ["plain", "loaded", "again"])
@pytest.mark.parametrize("name", S)
def test_rates_are_pytorchs(torch, name, how):
    for tensor in (False, True):
        for last_epoch in (-1, 0, 1, 2, 5):
            if last_epoch >= 0 and how != "plain":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want, got = (trace(L, name, last_epoch, tensor, how) for L in (torch, mytorch))
            for a, b in zip(want, got, strict=True):
                if isinstance(a, float):
                    assert b == pytest.approx(a, rel=1e-5, abs=1e-9), (tensor, last_epoch)
                else:
                    assert a == b, (tensor, last_epoch)


def test_plateaus_of_added_groups(torch):
    seen = []
    for L in (torch, mytorch):
        o = optimizer(L, False)
        s = L.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0, min_lr=0.1)
        s.step(1.0)
        o.add_param_group({"params": [L.nn.Parameter(L.ones(1))], "lr": 0.3})
        rates = []
        for _ in range(4):
            s.step(1.0)
            rates.append([g["lr"] for g in o.param_groups])
        seen.append(rates)
        s = L.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[0.1] * 3)
        o.add_param_group({"params": [L.nn.Parameter(L.ones(1))]})
        s.step(1.0)
        with pytest.raises(RuntimeError, match="number of param groups in the `optimizer`"):
            s.step(2.0)
    assert seen[0] == seen[1]
