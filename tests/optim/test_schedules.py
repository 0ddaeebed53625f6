"""Learning rate schedules against PyTorch: rates, closed forms, tensor rates, saving, copies, subclasses."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

SCHEDULES = {
    "lambda": lambda S, o: S.LambdaLR(o, lambda e: 0.95**e),
    "multiplicative": lambda S, o: S.MultiplicativeLR(o, lambda e: 0.95),
    "step": lambda S, o: S.StepLR(o, 3, 0.5),
    "multistep": lambda S, o: S.MultiStepLR(o, [2, 5, 5], 0.5),
    "constant": lambda S, o: S.ConstantLR(o, 0.5, 3),
    "linear": lambda S, o: S.LinearLR(o, 0.5, 1.0, 4),
    "exponential": lambda S, o: S.ExponentialLR(o, 0.9),
    "polynomial": lambda S, o: S.PolynomialLR(o, 5, 2.0),
    "cosine": lambda S, o: S.CosineAnnealingLR(o, 4, 0.01),
    "restarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "onecycle": lambda S, o: S.OneCycleLR(o, 0.5, total_steps=12),
    "three phases": lambda S, o: S.OneCycleLR(o, 0.5, total_steps=12, three_phase=True, anneal_strategy="linear"),
    "cyclic": lambda S, o: S.CyclicLR(o, 0.01, 0.2, 3),
    "cyclic exp": lambda S, o: S.CyclicLR(o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9),
    "chained": lambda S, o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.9)]),
    "sequential": lambda S, o: S.SequentialLR(o, [S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.9)], [3]),
    "plateau": lambda S, o: S.ReduceLROnPlateau(o, patience=1),
}
NO_CLOSED_FORM = ("plateau", "chained", "sequential", "multiplicative")


def _optimizer(L, tensor=False):
    groups = [{"params": [L.nn.Parameter(L.ones(1))]}, {"params": [L.nn.Parameter(L.ones(1))], "lr": 0.3}]
    if tensor:
        groups[1]["lr"] = L.tensor(0.3)
    return L.optim.SGD(groups, lr=L.tensor(0.1) if tensor else 0.1, momentum=0.9)


@loop
@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore")
def test_rates_agree(name, tensor):
    logs = []
    for L in (torch, mytorch):
        o = _optimizer(L, tensor)
        s = SCHEDULES[name](L.optim.lr_scheduler, o)
        log = [[float(g["lr"]) for g in o.param_groups]]
        steps = [()] * 9 if name != "plateau" else [(1.0,)] * 9
        if name not in NO_CLOSED_FORM:
            steps += [(2,), (7,)]
        for args in steps:
            o.step()
            s.step(*args)
            log.append([float(x) for x in s.get_last_lr()])
            assert all(isinstance(g["lr"], L.Tensor) is tensor for g in o.param_groups)
        logs.append([x for row in log for x in row])
    assert logs[1] == pytest.approx(logs[0], rel=1e-6)


@loop
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore")
def test_saved_schedules_go_on_alike(name, tmp_path):
    def fresh():
        o = _optimizer(mytorch)
        return o, SCHEDULES[name](mytorch.optim.lr_scheduler, o)

    args = (1.0,) if name == "plateau" else ()
    o, s = fresh()
    for _ in range(4):
        s.step(*args)
    mytorch.save({"o": o.state_dict(), "s": s.state_dict()}, tmp_path / "s.pt")
    saved = mytorch.load(tmp_path / "s.pt")
    o2, s2 = fresh()
    o2.load_state_dict(saved["o"])
    s2.load_state_dict(saved["s"])
    s3 = copy.deepcopy(s)
    for _ in range(4):
        for schedule in (s, s2, s3):
            schedule.step(*args)
        assert s.get_last_lr() == s2.get_last_lr() == s3.get_last_lr()
    if "lambda" not in name and "multi" not in name:
        again = pickle.loads(pickle.dumps(s))
        again.step(*args)
        s.step(*args)
        assert again.get_last_lr() == s.get_last_lr()


class _Halved:
    """A scale function with an attribute, which state dicts contain."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor


OTHERS = {  # with other options than SCHEDULES, so that a state that is not loaded is noticed
    "onecycle": lambda S, o: S.OneCycleLR(o, 0.9, total_steps=40, three_phase=True),
    "cyclic": lambda S, o: S.CyclicLR(o, 0.02, 0.9, 5, mode="triangular2"),
    "cyclic custom": lambda S, o: S.CyclicLR(o, 0.01, 0.2, 3, scale_fn=_Halved(0.9)),
    "plateau": lambda S, o: S.ReduceLROnPlateau(o, patience=3, factor=0.7),
}
SWAPPED = {**SCHEDULES, "cyclic custom": lambda S, o: S.CyclicLR(o, 0.01, 0.2, 3, scale_fn=_Halved(0.5))}


@pytest.mark.parametrize("name", SWAPPED)
@pytest.mark.filterwarnings("ignore")
def test_state_dicts_of_both_libraries_have_the_same_keys_and_are_interchangeable(name):
    args = (1.0,) if name == "plateau" else ()
    states, rates = {}, {}
    for L in (torch, mytorch):
        o = _optimizer(L)
        s = SWAPPED[name](L.optim.lr_scheduler, o)
        for _ in range(2):
            s.step(*args)
        states[L] = o.state_dict(), s.state_dict()
        for _ in range(9):
            s.step(*args)
        rates[L] = s.get_last_lr()
    assert set(states[torch][1]) == set(states[mytorch][1])
    for L, other in ((torch, mytorch), (mytorch, torch)):
        o = _optimizer(L)
        s = OTHERS.get(name, SWAPPED[name])(L.optim.lr_scheduler, o)
        o.load_state_dict(copy.deepcopy(states[other][0]))
        s.load_state_dict(copy.deepcopy(states[other][1]))
        for _ in range(9):
            s.step(*args)
        assert s.get_last_lr() == pytest.approx(rates[L], rel=1e-9)


@pytest.mark.parametrize("name", ["chained", "sequential"])
def test_schedules_of_schedules_take_no_epoch(name):
    for L in (torch, mytorch):
        with pytest.raises(TypeError):
            SCHEDULES[name](L.optim.lr_scheduler, _optimizer(L)).step(3)


def test_a_schedule_written_for_pytorch():
    logs = []
    for L in (torch, mytorch):

        class Warmup(L.optim.lr_scheduler._LRScheduler):
            def __init__(self, optimizer, steps, last_epoch=-1):
                self.steps = steps
                super().__init__(optimizer, last_epoch)

            def get_lr(self):
                if not self._get_lr_called_within_step:
                    warnings.warn("please use get_last_lr()", UserWarning, stacklevel=2)
                return [base * min(1, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]

        o = _optimizer(L)
        s = Warmup(o, 4)
        log = []
        for _ in range(5):
            o.step()
            s.step()
            log += s.get_last_lr()
        with pytest.warns(UserWarning, match="get_last_lr"):
            s.get_lr()
        logs.append(log)
        state = s.state_dict()
        assert "optimizer" not in state
        assert state["last_epoch"] == 5
    assert logs[0] == pytest.approx(logs[1])


def test_a_step_to_an_epoch_warns_and_takes_the_closed_form(torch):
    for L in (mytorch, torch):
        optimizer = L.optim.SGD([L.zeros(1, requires_grad=True)], lr=0.4)
        schedule = L.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 4)
        optimizer.step()
        with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step.*` was not necessary"):
            schedule.step(2)
        assert schedule.get_last_lr() == [pytest.approx(0.3)]


def test_one_cycles_of_old_state_dicts_bring_their_own_function(torch):
    rates = []
    for L in (mytorch, torch):
        optimizer = L.optim.SGD([L.zeros(1, requires_grad=True)], lr=0.4, momentum=0.9)
        schedule = L.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=6)
        del schedule._anneal_func_type
        schedule.load_state_dict(
            {**schedule.state_dict(), "anneal_func": L.optim.lr_scheduler.OneCycleLR._annealing_linear}
        )
        for _ in range(3):
            optimizer.step()
            schedule.step()
        rates.append(schedule.get_last_lr())
    np.testing.assert_allclose(*rates)
