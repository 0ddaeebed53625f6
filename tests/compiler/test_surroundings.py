"""Compiled steps under profilers and tracers, in threads, after fork, and inside transforms: the eager results."""

import cProfile
import os
import sys
import threading
import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import explain
from mytorch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.cpu_only


class Training:
    """A small training, eager or compiled."""

    def __init__(self, compile=lambda f: f):
        mytorch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.optimizer = mytorch.optim.Adam(self.net.parameters(), 0.01)
        self.step = compile(self.step)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, count=6):
        draw = np.random.default_rng(0)
        losses = [self.step(mytorch.tensor(draw.standard_normal((5, 3)).astype("f"))).item() for _ in range(count)]
        return np.array(losses)


def check(found):
    np.testing.assert_allclose(found, Training().run(len(found)), 1e-5, 1e-6)


def test_under_cprofile():
    profile = cProfile.Profile()
    check(profile.runcall(Training(mytorch.compile).run))


def test_under_a_tracer_as_of_coverage_and_pdb():
    seen, before = [], sys.gettrace()

    def tracer(frame, event, arg):
        seen.append(event)
        return tracer

    training = Training(mytorch.compile)
    sys.settrace(tracer)
    try:
        found = training.run(3)
    finally:
        sys.settrace(before)
    check(found)
    assert seen


def test_in_threads():
    found = [None] * 4
    trainings = [Training(mytorch.compile) for _ in found]

    def run(k):
        found[k] = trainings[k].run(8)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    for losses in found:
        check(losses)


def test_one_function_in_threads():
    w = mytorch.ones(50, requires_grad=True)

    @mytorch.compile
    def grad(x):
        y = w.detach().requires_grad_()
        (y * x).exp().sum().backward()
        return y.grad

    wrong = []

    def run(k):
        for _ in range(30):
            x = mytorch.full((50,), 0.1 * k)
            if not np.allclose(np.asarray(grad(x)), (x * x.exp()).numpy(), 1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_fork():
    training = Training(mytorch.compile)
    first = training.run(4)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            os.write(write, b"%.9g" % training.run(4)[-1])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    check(first)
    assert float(os.read(read, 100)) == pytest.approx(training.run(4)[-1], rel=1e-6)
    os.close(read), os.close(write)


def test_inside_transforms_and_modes():
    w = mytorch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    compiled = mytorch.compile(lambda x: (w * x).tanh().sum())
    x = mytorch.randn(4, 3)
    expected = (w * x).tanh().sum(-1).detach().numpy()
    for _ in range(3):
        np.testing.assert_allclose(mytorch.func.vmap(compiled)(x).detach().numpy(), expected, 1e-6)
        _, tangent = mytorch.func.jvp(compiled, (x,), (mytorch.ones(4, 3),))
        np.testing.assert_allclose(tangent.item(), (w * (1 - (w * x).tanh() ** 2)).sum().item(), 1e-5)
        checkpoint(compiled, x, use_reentrant=False).backward()
        by_checkpoint, w.grad = w.grad, None
        with mytorch.autograd.detect_anomaly(check_nan=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(x).backward()
        np.testing.assert_allclose(np.asarray(by_checkpoint), np.asarray(w.grad), 1e-6)
        w.grad = None
    step = mytorch.compile(lambda: checkpoint(lambda x: (w * x).sum(), x, use_reentrant=False).backward())
    for _ in range(3):
        step()
    assert "runs eagerly" in explain(step)


def test_modules_that_are_compiled_alone_have_compiled_backward_passes():
    model = mytorch.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    for k in range(4):
        x = mytorch.randn(5, 3)
        model.zero_grad()
        nn.functional.mse_loss(model(x), mytorch.zeros(5, 2)).backward()
        found = [p.grad.numpy() for p in model.parameters()]
        model.zero_grad()
        nn.functional.mse_loss(model._orig_mod(x), mytorch.zeros(5, 2)).backward()
        for a, p in zip(found, model.parameters(), strict=True):
            np.testing.assert_allclose(a, p.grad.numpy(), 1e-5, 1e-6)
    assert "a program of" in explain(model)
