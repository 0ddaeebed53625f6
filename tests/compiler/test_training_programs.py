"""Random training programs, compiled and eager: results, gradients, parameters, states, versions and counters are equal after each call.

A program is a text: a model, an optimizer, a training step in one of the forms of `STEPS`, and changes between the calls. The step reads
Python values from the places in `VALUES`, changes tensors in place, and runs code with effects. Half of the programs run without
`MYTORCH_COMPILE_CHECK`, in which case programs are kept although they are not faster.

`python -m tests.compiler.test_training_programs 7 123` shows program 123 of seed 7, `… 7 0 1000` the programs that differ. With `--mode` they
run in PyTorch mode, with `--torch` under `torch.compile(backend="eager")`.
"""

import importlib
import os
import random
import sys
import textwrap
import warnings

import numpy as np
import pytest

CALLS = 6
HEAD = """
    import collections, contextvars, copy, ctypes, itertools, random, threading, types, weakref
    import numpy as np
    nn, F = L.nn, L.nn.functional
    L.manual_seed(SEED); random.seed(SEED)
    class Twice(L.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 2
        @staticmethod
        def backward(ctx, g): return g * 2
    class Stop(Exception): pass
    class State(types.SimpleNamespace): pass
    S = State(n=0, k=0.5, seen=[], stop=False, it=itertools.count(1), d={"k": 0.25}, h=L.zeros(4, 5))
    S.var = contextvars.ContextVar("v", default=0.5); S.array = np.array([0.5, 2.0]); S.c = ctypes.c_double(0.5)
    S.pair = (L.ones(5), L.zeros(5)); S.local = threading.local(); S.local.k = 1.5; S.ref = weakref.WeakValueDictionary(s=S)
    class Net(nn.Module):
        k = 0.5
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(3, 5), nn.Linear(5, 5), NORM
            self.out = nn.Linear(5, 2); self.scale = nn.Parameter(L.rand(5) + 0.5); self.idle = nn.Parameter(L.ones(2))
            self.register_buffer("mean", L.zeros(5))
        def forward(self, x):
            h = L.tanh(self.a(x))
            BODY
            return self.out(h)
    net = Net()
    x, y = L.randn(4, 3), L.randn(4, 2)
"""
BODY = """
    h = h * self.scale
    h = self.norm(h)
    h = F.dropout(h, 0.4, self.training)
    h = h + self.b(h)
    h = F.relu(self.b(h)) * self.k
    h = F.gelu(h) / VALUE
    h = F.softmax(h * VALUE, -1)
    h = h.clone(); h[:, 1:].mul_(VALUE)
    h = h + 0; h.transpose(0, 1)[2].add_(self.scale.sum())
    h = h.clone(); h[h > 0.1] *= 0.5
    h = Twice.apply(h)
    h = L.utils.checkpoint.checkpoint(lambda t: L.tanh(self.b(t)), h, use_reentrant=False)
    h = L.cat([h[:, :2], h[:, 2:] * VALUE], 1)
    h = h.reshape(-1, 5).T.contiguous().T
    h = h + h[S.n % 3]
    h = L.where(h > 0, h, h * VALUE)
    h = (h @ self.b.weight.T + self.b.bias).sigmoid()
    h = h + L.func.vmap(lambda r: r.sin())(h)
    h = h + L.func.jvp(lambda t: t * t, (h.detach(),), (L.ones_like(h),))[1]
    h = S.inner(h)
    self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1); h = h - self.mean
    S.h = L.tanh(S.h * 0.5 + h.detach()); h = h + S.h
    h = h * S.pair[0] + S.pair[1]
    h = h.unsqueeze(0).expand(2, -1, -1).mean(0)
    h = h.masked_fill(h < 0, VALUE)
    h = h / (h.norm(dim=-1, keepdim=True) + 1)
    h = h.double().float()
    u, v = h.chunk(2, 0); h = L.cat([v, u * VALUE])
    h = (h.exp().sum(-1, keepdim=True).log() - h).clamp(-3, 3)
    h = F.layer_norm(h, (5,), self.scale)
    h = h.index_select(1, L.tensor([S.n % 5, 1, 1, 3, 0]))
    h = S.thread(lambda: L.tanh(self.b(h)))
    h = F.embedding(L.tensor([0, 1, S.n % 5, 0]), self.b.weight) + h
    h = h.cumsum(1) * 0.3
    h = h.amax(1, keepdim=True) + h
    h = F.conv1d(h.unsqueeze(1), self.scale.view(1, 1, 5)[..., :3], padding=1).squeeze(1)
"""
VALUES = [
    "S.k", 'S.d["k"]', "next(S.it)", "S.var.get()", "float(S.array[0])", "S.array[1]", "S.c.value", "(S.n + 1)", "random.random()",
    "(len(S.seen) + 1)", 'getattr(S, "late", 0.75)', "Net.k", "S.local.k", "(lambda v=S.k: v)()", "h.detach().abs().max().item()",
    "(0.5, True, 2)[S.n % 3]", "((-0.0, 0.0)[S.n % 2] + 1)", "(int(S.n > 2) + 1)", 'S.ref["s"].k', 'globals().get("K", 1.25)',
    'type("C", (), {"__getitem__": lambda s, i: S.k})()[0]', "{1: S.k}[True]", "S.pair[0][0].item()", "sum(S.d.values())",
    "next(iter(S.d.values()))", "L.tensor(S.k)", "L.rand(()).item()",
]  # fmt: skip
LOSSES = """
    F.mse_loss(p, y)
    F.mse_loss(p, y, reduction="sum") * VALUE
    (p - y).abs().mean() + VALUE * (net.scale ** 2).sum()
    F.cross_entropy(p, (y[:, 0] > 0).long())
    F.smooth_l1_loss(p, y) * L.tensor(VALUE)
    ((p - y) ** 2).mean(0).sum() / VALUE
    F.binary_cross_entropy_with_logits(p, (y > 0).float())
    F.kl_div(F.log_softmax(p, -1), F.softmax(y, -1), reduction="batchmean")
"""
STEPS = [
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward(); opt.step(); return loss.detach()",
    "p = net(x); loss = LOSS; loss.backward(); opt.step(); opt.zero_grad(); return loss",
    "opt.zero_grad(set_to_none=False); p = net(x); loss = LOSS; loss.backward(); opt.step(); return loss.item()",
    "opt.zero_grad()\nfor i in range(2):\n    p = net(x + i); loss = LOSS / 2; loss.backward()\nopt.step(); return loss",
    "def closure():\n    opt.zero_grad(); p = net(x); loss = LOSS; loss.backward(); return loss\nreturn opt.step(closure)",
    "opt.zero_grad(); p = net(x); loss = LOSS; S.scaler.scale(loss).backward(); S.scaler.step(opt); S.scaler.update(); return loss, S.scaler.get_scale()",
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward(); n = nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step(); return n",
    "p = net(x); loss = LOSS; loss.backward()\nwith L.no_grad():\n    for q in net.parameters():\n        if q.grad is not None: q -= 0.01 * q.grad; q.grad = None\nreturn loss",
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward(retain_graph=True); loss.backward(); opt.step(); return loss",
    "p = net(x); loss = LOSS; ps = [q for q in net.parameters() if q.requires_grad]\nfor q, g in zip(ps, L.autograd.grad(loss, ps, allow_unused=True)): q.grad = g\nopt.step(); return loss",
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward(); opt.step(); S.sched.step(); return loss, opt.param_groups[0]['lr']",
    "opt.zero_grad(); p = net(x); a = LOSS; a.backward(); p = net(y @ L.ones(2, 3)); (LOSS * 0.5).backward(); opt.step(); return a",
    "opt.zero_grad(); x = x.clone().requires_grad_(); p = net(x); loss = LOSS; (g,) = L.autograd.grad(loss, x, create_graph=True)\n(loss + g.square().sum()).backward(); opt.step(); return x.grad, g",
    "opt.zero_grad(); p = net(x); p.backward(y.T.contiguous().T * VALUE2); opt.step(); return p",
    "opt.zero_grad(); p = net(x); p.retain_grad(); loss = LOSS; loss.backward(); opt.step(); return p.grad",
    "opt.zero_grad()\nwith L.autocast('cpu', dtype=L.bfloat16): p = net(x).float(); loss = LOSS\nloss.backward(); opt.step(); return loss.float()",
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward()\nif S.stop: raise Stop\nopt.step(); return {'loss': loss, 'p': [p]}",
    "opt.zero_grad(); p = net(x); loss = LOSS\nif S.stop: raise Stop\nloss.backward(inputs=[net.scale, net.a.weight]); opt.step(); return loss",
    "S.n += 0; p = net(x); return LOSS",  # backward and update outside
    "opt.zero_grad(); p = net(x); loss = LOSS; loss.backward()\nfor q in net.parameters():\n    if q.grad is not None: q.grad.mul_(VALUE2)\nopt.step(); S.old = net.a.weight.grad; return S.old.clone()",
    "opt.zero_grad(); p = net(x); q = p.detach().requires_grad_(); (q * VALUE2).sum().backward(); p.backward(q.grad); opt.step(); return q.grad",
    "opt.zero_grad(); t = []\ndef work():\n    p = net(x); loss = LOSS; loss.backward(); t.append(loss.detach())\nS.thread(work); opt.step(); return t[0]",
    "opt.zero_grad(); p = net(x); w = p * 1; loss = ((w - y) ** 2).mean()\nif S.n == 3: w.detach().add_(0)\nloss.backward(); opt.step(); return loss",
    "opt.zero_grad(); p = net(x); loss = LOSS; S.seen.append(loss); S.seen = S.seen[-2:]; sum(S.seen[-1:]).backward(); opt.step(); return len(S.seen)",
]
CHANGES = """
    S.k = 0.125 * (S.n + 1)
    S.d["k"] = 2.0 + S.n
    S.d["a"] = 1.0; S.d["k"] = S.d.pop("k")
    S.array[0] = 1.5
    S.c.value = 3.0
    S.late = 0.1
    Net.k = 0.75
    S.pair = (S.pair[0] * 2, L.ones(5))
    S.pair[0].mul_(0.5)
    S.h = L.zeros(4, 5)
    S.stop = not S.stop
    opt.param_groups[0]["lr"] *= 0.5
    opt.param_groups[0]["lr"] = 1
    opt.param_groups[0]["weight_decay"] = 0.1
    opt.param_groups[0]["params"].pop()
    opt.param_groups[0]["params"] = opt.param_groups[0]["params"][::-1]
    opt.add_param_group({"params": [S.extra], "lr": 0.01})
    opt.state.clear()
    opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    net.load_state_dict({k: v * 0.9 for k, v in net.state_dict().items()})
    S.handle = net.a.weight.register_hook(lambda g: g * 0.5)
    S.handle.remove()
    S.post = net.scale.register_post_accumulate_grad_hook(lambda q: S.seen.append(q.grad.sum().item()))
    S.fh = net.b.register_forward_hook(lambda m, a, o: o * 0.5)
    S.bh = net.out.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    S.ph = opt.register_step_pre_hook(lambda o, a, k: S.seen.append(len(o.state)))
    net.out = nn.Linear(5, 2); opt.add_param_group({"params": list(net.out.parameters())})
    net.b = nn.Sequential(net.b)
    net.a.weight = net.a.weight
    net.a.weight.data = net.a.weight.data * 1.1
    net.a.weight.data = net.a.weight.data.T.contiguous().T
    net.a.weight.grad = None
    net.scale.grad = L.ones(5)
    net.scale.grad = L.ones(10)[::2]
    net.a.weight.requires_grad_(not net.a.weight.requires_grad)
    net.b.bias.data = net.scale.data
    net.eval()
    net.train()
    x = L.randn(4, 3)
    x, y = L.randn(2, 3), L.randn(2, 2); S.h = L.zeros(2, 5)
    x = L.randn(3, 4).T
    x = L.randn(8, 6)[::2, ::2]
    x = L.zeros(4, 3)
    x.requires_grad_()
    net.double(); x, y, S.h = x.double(), y.double(), S.h.double()
    net.norm = nn.Identity()
    net.forward = lambda x: net.out(L.tanh(net.a(x)))
    type(opt).k = 1; opt.k = 2
    with L.no_grad(): net.scale.add_(0.1)
    with L.no_grad(): net.a.weight[0].zero_()
    net.mean = L.ones(5)
    call = wrap(step)
    opt.zero_grad()
    net = copy.deepcopy(net); opt = OPTIMIZER
    opt.update = types.MethodType(type(opt).update, opt) if hasattr(opt, "update") else None
    S.t = L.tensor(2.0); [opt.state[q].update(step=S.t) for q in opt.state if "step" in opt.state[q]]
    opt.state[net.scale] = dict(opt.state[net.a.bias])
    opt.update = lambda *a: None
    L.set_grad_enabled(True)
"""
OPTIMIZERS = """
    SGD(lr=0.02) SGD(lr=0.02,momentum=0.9) SGD(lr=0.02,momentum=0.9,nesterov=True,weight_decay=0.01) SGD(lr=0.02,maximize=True) Adam(lr=0.01)
    Adam(lr=0.01,amsgrad=True) AdamW(lr=0.01) AdamW(lr=0.01,weight_decay=0.1,maximize=True) Adamax(lr=0.01) NAdam(lr=0.01) RAdam(lr=0.01) Adagrad(lr=0.01)
    Adagrad(lr=0.01,lr_decay=0.1) Adadelta(lr=0.5) ASGD(lr=0.01) RMSprop(lr=0.005) RMSprop(lr=0.005,momentum=0.5,centered=True) Rprop(lr=0.01)
    Adafactor(lr=0.01) LBFGS(lr=0.1,max_iter=3) SGD(lr=0.02,momentum=0.9,dampening=0.5) Adam(lr=0.01,foreach=False)
    SGD(lr=0.02,differentiable=True) Adam(lr=L.tensor(0.01))
""".split()
TAIL = """
    params = lambda: list(net.parameters())
    opt = OPTIMIZER
    S.extra = nn.Parameter(L.ones(3)); S.scaler = L.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    S.sched = L.optim.lr_scheduler.StepLR(opt, 2, 0.5); S.inner = wrap(lambda h: L.tanh(h) * S.k)
    def thread(f):
        out = []
        def work():
            try: out.append(f())
            except Exception as error: S.error = error
        t = threading.Thread(target=work); t.start(); t.join()
        if not out: raise S.error
        return out[0]
    S.thread = thread
    def step(x, y):
        S.n += 1
        STEP
    call = wrap(step)
    def record(found):
        def flat(v):
            if isinstance(v, L.Tensor): return [tuple(v.shape), str(v.dtype), v.requires_grad, v.detach().double().tolist()]
            if isinstance(v, dict): return [flat(i) for i in v.items()]
            if isinstance(v, (list, tuple)): return [flat(i) for i in v]
            return v if isinstance(v, (int, float, str, bool, type(None))) else type(v).__name__
        LOG.append(flat([
            found, S.n, S.k, S.d, S.h, S.seen[-2:], S.pair, next(copy.copy(S.it)), [[q, q._version] for q in net.parameters()],
            [None if q.grad is None else [q.grad.detach() if hasattr(q.grad, "detach") else q.grad, q.grad.stride() if hasattr(q.grad, "stride") else 0] for q in net.parameters()],
            [[opt.state[q].get(n) if not callable(opt.state[q].get(n)) else 0 for n in sorted(map(str, opt.state[q]))] for q in net.parameters() if q in opt.state],
            list(net.buffers()), L.rand(1), random.random(),
        ]))
"""
RUN = """
    try:
        found = call(x, y)
        OUTSIDE
    except Stop: found = "stopped"
    except Exception as error: found = "error " + type(error).__name__
    record(found)
"""


def program(rng):
    """Returns the text of a program."""
    value = lambda text: text.replace("VALUE2", rng.choice(VALUES[:14])).replace("VALUE", rng.choice(VALUES))  # noqa: E731
    lines = lambda text: [line.strip() for line in text.strip().splitlines()]  # noqa: E731
    body = [value(line) for line in rng.sample(lines(BODY), rng.randint(1, 4))]
    loss, form, name = value(rng.choice(lines(LOSSES))), rng.choice(STEPS), rng.choice(OPTIMIZERS)
    if name.startswith("LBFGS"):
        form = STEPS[4]
    kind, options = name[:-1].split("(", 1)
    optimizer = f"L.optim.{kind}([q for n, q in net.named_parameters()], {options})"
    norm = rng.choice(["nn.Identity()", "nn.LayerNorm(5)", "nn.BatchNorm1d(5)", "nn.GroupNorm(1, 5)", "nn.RMSNorm(5)"])
    outside = (
        "found.backward(); opt.step(); opt.zero_grad(); found = found.item()" if form.startswith("S.n +=") else "pass"
    )
    text = textwrap.dedent(HEAD).replace("NORM", norm).replace("BODY", "\n        ".join(body))
    form = value(form.replace("LOSS", f"({loss})")).replace("h.detach()", "x.detach()")
    text += textwrap.dedent(TAIL).replace("STEP", form.replace("\n", "\n    "))
    for i in range(CALLS):
        text += textwrap.dedent(RUN).replace("OUTSIDE", outside)
        for change in rng.sample(lines(CHANGES), rng.choice([0, 0, 1, 1, 2])) if i >= 1 else ():
            text += f"try:\n    {change}\nexcept Exception as error: LOG.append(type(error).__name__)\n"
    return text.replace("OPTIMIZER", optimizer)


def run(text, library, seed, wrap):
    """Returns what a program records."""
    log = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exec(compile(text, "<program>", "exec"), {"L": library, "SEED": seed, "LOG": log, "wrap": wrap})
    return log


def differ(a, b):
    """Returns True if two records differ by more than rounding."""
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return any(map(differ, a, b))
    if type(a) is float and type(b) is float:
        return not np.isclose(a, b, 2e-3, 2e-4, equal_nan=True)
    return type(a) is not type(b) or a != b


def first_difference(eager, compiled):
    """Returns (number of the record, eager, compiled) of the first difference between two lists of records, or None."""
    for i, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        if differ(a, b):
            j = next((j for j in range(len(a)) if differ(a[j], b[j])), None) if type(a) is list is type(b) else None
            return (i, a, b) if j is None else (i, j, a[j], b[j])
    return None


def compared(text, library, seed, wrap):
    """Runs a program eagerly and compiled; returns their first difference."""
    return first_difference(*(run(text, library, seed, w) for w in (lambda f: f, wrap)))


@pytest.mark.parametrize("seed", range(8))
def test_training_programs_are_equal_compiled(seed, monkeypatch):
    import mytorch
    from mytorch.compiler import regions

    monkeypatch.setattr(regions, "FASTER", float("inf"))
    monkeypatch.setenv("MYTORCH_COMPILE_CHECK", str(seed % 2))
    for i in range(4):
        number = seed * 1000 + i
        text = program(random.Random(number))
        found = compared(text, mytorch, number, (mytorch.compile, mytorch.compile_step)[i % 2])
        assert found is None, f"{text}\n# {found}"


@pytest.mark.parametrize("change", ["branch", "counter"])
def test_updates_follow_the_numbers_of_steps(change, monkeypatch):
    """RAdam has another form from step 6 on, in which its program is recorded; parameters may share one counter."""
    import mytorch
    from mytorch.compiler import regions

    monkeypatch.setattr(regions, "FASTER", float("inf"))
    monkeypatch.setenv("MYTORCH_COMPILE_CHECK", "0")

    def trained(wrap):
        mytorch.manual_seed(0)
        net, x = mytorch.nn.Linear(3, 2), mytorch.randn(4, 3)
        opt = mytorch.optim.RAdam(net.parameters(), lr=0.1)

        @wrap
        def step():
            opt.zero_grad()
            net(x).square().sum().backward()
            opt.step()

        for i in range(9):
            if change == "branch" and i == 4:
                opt.param_groups[0]["weight_decay"] = 0.1
            if change == "counter" and i == 3:
                shared = mytorch.tensor(3.0)
                for state in opt.state.values():
                    state["step"] = shared
            step()
        return [p.tolist() for p in net.parameters()] + [state["step"].item() for state in opt.state.values()]

    assert not differ(trained(lambda f: f), trained(mytorch.compile))


def main(seed, first, last=None, *options):
    """Shows one program, or the programs that differ."""
    if "--torch" in options:
        library = importlib.import_module("torch")
        wraps = [lambda f: library.compile(f, backend="eager")] * 2
    else:
        library = importlib.import_module("mytorch")
        from mytorch.compiler import regions

        regions.FASTER = float("inf")
        if "--mode" in options:
            library.install_as_torch()
        wraps = [library.compile, library.compile_step]
        library = sys.modules.get("torch", library)
    if last is None:
        return print(program(random.Random(int(seed) * 1_000_000 + int(first))))
    bad = errors = 0
    for i in range(int(first), int(last)):
        number = int(seed) * 1_000_000 + i
        text = program(random.Random(number))
        if "--torch" not in options:
            os.environ["MYTORCH_COMPILE_CHECK"] = str(i % 2)
            library.compiler.reset()
        else:
            library._dynamo.reset()
        try:
            found = compared(text, library, number, wraps[i // 2 % 2])
        except Exception as error:  # noqa: BLE001 - a program that does not run at all
            found, errors = f"{type(error).__name__}: {error}", errors + 1
        if found is not None:
            bad += 1
            print(i, str(found)[:300], flush=True)
    print(f"{int(last) - int(first)} programs, {bad} differ, {errors} did not run")
    return None


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w[0] != "-"]
    main(*words[:2], *(words[2:] or [None]), *[w for w in sys.argv[1:] if w[0] == "-"])
