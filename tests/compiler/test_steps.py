"""Training steps, compiled and eager: optimizers × loops × changes between steps, natively and in PyTorch mode.

`python -m tests.compiler.test_steps 2000` runs 2,000 random steps; with `--mode` in PyTorch mode, and with `--torch` PyTorch itself, compiled
with `backend="eager"`, which shows that the programs are sensible.
"""

import copy
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

OPTIMIZERS = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "dampening": 0.3}, {"weight_decay": 0.1},
            {"maximize": True}],
    "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"maximize": True}, {"foreach": True}],
    "AdamW": [{}, {"amsgrad": True}],
    "RMSprop": [{}, {"momentum": 0.5}, {"centered": True}],
    "Adagrad": [{}, {"lr_decay": 0.1}, {"initial_accumulator_value": 0.1}],
    "Adadelta": [{}],
    "Adamax": [{}],
    "NAdam": [{}, {"decoupled_weight_decay": True}],
    "RAdam": [{}, {"weight_decay": 0.1}],
    "ASGD": [{}],
    "Rprop": [{}],
    "Adafactor": [{}],
    "LBFGS": [{"max_iter": 1}],
}  # fmt: skip
LOOPS = """
    zero first|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); opt.step()
    zero last|loss = loss_of(x, y); loss.backward(); opt.step(); opt.zero_grad()
    zeros|opt.zero_grad(set_to_none=False); loss = loss_of(x, y); loss.backward(); opt.step()
    zero last, zeros|loss = loss_of(x, y); loss.backward(); opt.step(); opt.zero_grad(set_to_none=False)
    zero middle|loss = loss_of(x, y); opt.zero_grad(); loss.backward(); opt.step()
    accumulate|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); loss_of(x * 0.5, y).backward(); opt.step()
    scaled|opt.zero_grad(); loss = loss_of(x, y); (loss * weight[0]).backward(); opt.step()
    clip|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); T.nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step()
    every second|opt.zero_grad() if k[0] % 2 == 0 else None; loss = loss_of(x, y); loss.backward(); opt.step() if k[0] % 2 else None
    number|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); opt.step(); log.append(loss.item())
    gradients|gs = T.autograd.grad(loss_of(x, y), list(net.parameters())); [setattr(p, "grad", g) for p, g in zip(net.parameters(), gs)]; opt.step()
    retain|opt.zero_grad(); loss = loss_of(x, y); loss.backward(retain_graph=True); loss.backward(); opt.step()
    closure|loss = opt.step(closure_of(x, y))
    scheduler|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); opt.step(); sched.step()
    momentum by hand|net.zero_grad(); loss = loss_of(x, y); loss.backward(); by_hand()
    keeps|opt.zero_grad(); loss = loss_of(x, y); loss.backward(); kept.append([p.grad for p in net.parameters()]); opt.step()
"""  # noqa: E501
LOOPS = dict(line.strip().split("|") for line in LOOPS.strip().splitlines())
CHANGES = """
    group lr|opt.param_groups[0]["lr"] *= 0.5
    weight|weight[0] = weight[0] + 0.25
    decay|opt.param_groups[0]["weight_decay"] = 0.05 if "weight_decay" in opt.param_groups[0] else 0
    freeze|net[0].bias.requires_grad_(False); net[0].bias.grad = None
    drop gradient|net[2].bias.grad = None
    remove parameter|opt.param_groups[0]["params"].pop(0)
    reverse parameters|opt.param_groups[0]["params"].reverse()
    add group|extra = T.nn.Parameter(T.ones(2)); extra.grad = T.ones(2); opt.add_param_group({"params": [extra]})
    replace module|net[1] = T.nn.Sigmoid()
    more modules|net.append(T.nn.Tanh())
    hook|net[0].weight.register_hook(lambda g: g * 0.5)
    post hook|net[2].weight.register_post_accumulate_grad_hook(lambda p: log.append(1))
    forward hook|net[1].register_forward_hook(lambda m, a, out: out * 0.5)
    step hook|opt.register_step_post_hook(lambda *a: log.append(2))
    state dict|opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    weights|net.load_state_dict({k: v * 0.5 for k, v in net.state_dict().items()})
    new data|net[0].weight.data = net[0].weight.data.clone() * 0.5
    view as data|net[0].bias.data = net[2].weight.data.reshape(-1)[:4]
    reset state|opt.state.clear()
    edit state|[v.mul_(0.5) for s in opt.state.values() for n, v in s.items() if n != "step" and hasattr(v, "mul_") and v.ndim]
    double|net[0].weight.data.mul_(2)
    eval|net.eval()
    batch|batch[0] = 3
    monkeypatch|setattr(opt, "step", lambda *a, _s=opt.step: (log.append(3), _s(*a))[1])
    no gradients|[setattr(p, "requires_grad", p is net[2].weight) for p in net.parameters()]
"""
CHANGES = dict(line.strip().split("|", 1) for line in CHANGES.strip().splitlines())
STEPS = 9


def run(T, case, compile):
    """Returns all numbers of a training."""
    name, options, loop, changes, seed = case
    T.manual_seed(seed)
    net = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 2))
    draw = np.random.default_rng(seed)
    space = {
        "T": T,
        "net": net,
        "log": [],
        "kept": [],
        "weight": [0.5],
        "k": [0],
        "copy": copy,
        "buffers": {},
        "batch": [5],
    }
    space["opt"] = opt = getattr(T.optim, name)(net.parameters(), lr=0.05, **options)
    space["sched"] = T.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    space["loss_of"] = lambda x, y: T.nn.functional.mse_loss(net(x), y)

    def closure_of(x, y):
        def closure():
            opt.zero_grad()
            loss = space["loss_of"](x, y)
            loss.backward()
            return loss

        return closure

    def by_hand():
        with T.no_grad():
            for p in net.parameters():
                if p.grad is None:
                    continue
                if p not in space["buffers"]:
                    space["buffers"][p] = p.grad.clone()
                else:
                    space["buffers"][p].mul_(0.9).add_(p.grad)
                p.add_(space["buffers"][p], alpha=-0.1)

    space.update(closure_of=closure_of, by_hand=by_hand)
    exec(
        f"def step(x, y):\n    {LOOPS[loop]}\n    k[0] += 1\n    return loss.detach() if 'loss' in locals() else x.sum()",
        space,
    )
    step, found = compile(space["step"]), []
    for i in range(STEPS):
        for at, change in changes:
            if at == i:
                try:
                    exec(CHANGES[change], space)
                except Exception as error:  # two changes that do not fit
                    found.append(type(error).__name__)
        x, y = (T.tensor(draw.standard_normal((space["batch"][0], n)).astype("float32")) for n in (3, 2))
        try:
            found.append(step(x, y))
        except Exception as error:
            found.append(type(error).__name__)
            break
    found += [p.detach() for p in net.parameters()] + [p.grad for p in net.parameters()]
    found += [g for gradients in space["kept"] for g in gradients] + [space["log"], T.rand(1)]
    return [np.array(x.detach().numpy()) if hasattr(x, "numpy") else x for x in found]


def cases(count, seed):
    draw = random.Random(seed)
    for i in range(count):
        name = draw.choice(list(OPTIMIZERS))
        loop = "closure" if name == "LBFGS" else draw.choice(list(LOOPS))
        changes = [
            (draw.randint(1, STEPS - 2), draw.choice(list(CHANGES))) for _ in range(draw.choice((0, 0, 1, 1, 2)))
        ]
        yield name, draw.choice(OPTIMIZERS[name]), loop, changes, i


def difference(T, case, compile):
    expected, found = run(T, case, lambda f: f), run(T, case, compile)
    if len(expected) != len(found):
        return f"{len(found)} values, not {len(expected)}: {found} {expected}"
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            # Rprop and sign functions amplify rounding errors.
            if a.shape != b.shape or not np.allclose(a, b, 1e-3, 1e-4, equal_nan=True):
                return f"{a} is not {b}"
        elif str(a) != str(b) and not (isinstance(a, list) and np.allclose(a, b, 1e-3, 1e-4)):
            return f"{a} is not {b}"
    return None


def main():
    count = int(sys.argv[1])
    if "--torch" in sys.argv:
        import torch as T

        kinds = [lambda f: T.compile(f, backend="eager")]
    else:
        import mytorch as T

        if "--mode" in sys.argv:
            T.install_as_torch()
            import torch as T
        kinds = [T.compile, getattr(T, "compile_step", T.compile)]
    failed = 0
    for i, case in enumerate(cases(count, int(sys.argv[2]) if sys.argv[2:3] and sys.argv[2].isdigit() else 0)):
        problem = difference(T, case, kinds[i % len(kinds)])
        if problem:
            failed += 1
            print(case, problem[:300], flush=True)
    print(f"{count} steps, {failed} differ")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    ("mode", "count", "seed"), [("native", 130, 1), ("mode", 65, 2)]
)  # one compiler, two sets of names
def test_steps_give_the_eager_results(mode, count, seed):
    command = [sys.executable, "-W", "ignore", "-m", "tests.compiler.test_steps", str(count), str(seed)]
    command += ["--mode"] if mode == "mode" else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=580)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
