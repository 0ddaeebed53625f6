"""Random programs of four parts: how a step is wrapped, where it reads a Python value, what it computes, and what changes between calls.

`python -m tests.compiler.test_places SEED FIRST LAST [--mode] [--show]` runs more programs; `--mode` selects PyTorch mode.
"""

import os
import random
import sys
import textwrap

import pytest

from .test_training_programs import first_difference, run

pytestmark = pytest.mark.cpu_only

CALLS = 6
# How the step is wrapped: `step(x)` is defined from `BODY`, which reads `KEY` and returns a value.
WRAPPINGS = r"""
@wrap
def step(x, k=2.0, *, j=3.0):
    BODY
---
class Owner:
    @wrap
    def run(self, x): BODY2
owner = Owner()
step = lambda x: owner.run(x)
---
class Owner:
    run = staticmethod(wrap(lambda x: body(x)))
step = lambda x: Owner.run(x)
---
class Owner:
    @classmethod
    @wrap
    def run(cls, x): BODY2
step = lambda x: Owner().run(x)
---
class Owner:
    def __init__(self): self.k = 1.0
    def run(self, x):
        self.k += 0.5
        return body(x), self.k
owner = Owner()
step = wrap(owner.run)
---
class Owner:
    def __call__(self, x):
        BODY2
step = wrap(Owner())
---
class Owner:
    __call__ = wrap(lambda self, x: body(x))
step = Owner()
---
class Owner:
    @property
    @wrap
    def value(self): return body(self.x)
owner = Owner()
def step(x):
    owner.x = x
    return owner.value
---
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.sub = 1.0, nn.Linear(2, 2)
    def forward(self, x):
        self.k += 1
        return body(x), self.k, self.training
net = Net()
made = L.compile(net) if COMPILED else net
def step(x):
    made.k = made.k * 2
    made.train(S.n % 2 == 0)
    made.other = S.n
    return made(x), made.k, net.k, net.other, net.training, len(dict(made.named_parameters()))
---
class Net(nn.Module):
    def forward(self, x): return body(x)
step = Net()
if COMPILED: step.compile()
step = copy.deepcopy(step)
---
step = wrap(functools.partial(lambda k, x: (body(x), k), 3.0))
---
@wrap
def gen(x):
    yield body(x)
    yield "end"
step = lambda x: list(gen(x))
---
@wrap
def gen(x):
    k = yield body(x)
    yield k
def step(x):
    found = gen(x)
    return next(found), found.send(S.n)
---
@wrap
def inner(x): return body(x)
@wrap
def step(x): return inner(x)
---
step = wrap(wrap(lambda x: body(x)))
---
@wrap
async def work(x):
    return body(x)
step = lambda x: asyncio.run(work(x))
---
@wrap
def step(x, depth=2):
    return step(x, depth - 1) if depth else body(x)
---
@wrap
def inside(x): return body(x)
def step(x): return S.thread(lambda: inside(x))
---
@contextlib.contextmanager
@wrap
def scope(x):
    yield body(x)
def step(x):
    with scope(x) as found: return found
---
@wrap
def step(x):
    step.calls += 1; step.regions = [step.calls]; step.function = step.programs = step.limit = step.calls
    return body(x), step.calls, step.regions, step.function, step.programs, step.limit
step.calls = 0
---
@functools.wraps(body)
def outer(x): return body(x)
step = wrap(outer)
---
made = {"f": wrap(lambda x: body(x))}
made["g"] = copy.copy(made["f"])
step = lambda x: (made["f"], copy.deepcopy(made["g"]))[S.n % 2](x)
---
@wrap
def step(x):
    found = [body(x)]
    found.append(found)
    return found[:1], {1: found[0], "a": S.n, None: ()}
---
@wrap
def step(x):
    try: return body(x)
    finally: S.log.append("end")
---
@wrap
def step(x):
    @wrap
    def each(x): return body(x)
    return each(x)
---
def step(x): return wrap(lambda x: body(x))(x)
---
step = functools.singledispatch(lambda x: 0)
@step.register(L.Tensor)
@wrap
def _(x): return body(x)
"""
# Where the value `KEY` is: statements that create it | the expression | statements that change it.
PLACES = r"""
K = 1.5 | K | K += 0.25
S.k = 1.5 | S.k | S.k *= 1.5
S.d = {"k": 2.0, "j": 3.0} | [*S.d.values()][0] | S.d["k"] = S.d.pop("k") + 1
S.d = collections.OrderedDict(a=1.0, b=2.0) | next(iter(S.d.values())) | S.d.move_to_end(next(iter(S.d)))
S.d = collections.ChainMap({}, {"k": 2.0}) | S.d["k"] | S.d["k"] = S.d["k"] / 2
S.q = collections.deque([1.0, 2.0, 3.0]) | S.q[0] | S.q.rotate(1)
S.a = array.array("d", [1.0, 2.0]) | S.a[1] | S.a[1] += 0.5
S.a = bytearray(b"abc") | S.a[0] / 50 | S.a[0] += 3
S.a = memoryview(bytearray(b"abc")) | S.a[1] / 50 | S.a[1] += 3
S.i = iter([1.0, 2.0, 0.5, 3.0, 1.0, 4.0, 1.0, 2.0] * 9) | next(S.i) | pass
S.i = itertools.count(1) | float(next(S.i)) | next(S.i)
S.a = np.array(1.5) | float(S.a) | S.a[...] = S.a * 1.25
S.a = np.float32(1.5) | S.a | S.a = S.a * np.float32(1.25)
class P(enum.Enum): A = 1.0; B = 2.5 \n S.p = P.A | S.p.value | S.p = P.B if S.p is P.A else P.A
P = collections.namedtuple("P", "a b"); S.p = P(1.0, 2.0) | S.p.a | S.p = S.p._replace(a=S.p.a + 1)
P = dataclasses.make_dataclass("P", ["a"], frozen=True); S.p = P(1.5) | S.p.a | S.p = dataclasses.replace(S.p, a=S.p.a * 2)
class P: k = 1.5 \n S.p = P() | S.p.k | P.k += 1
class P: __slots__ = "k" \n S.p = P(); S.p.k = 1.0 | S.p.k | S.p.k += 1
class P(type): k = property(lambda cls: S.n * 0.5 + 1) \n class Q(metaclass=P): pass | Q.k | pass
class P: __getattr__ = lambda self, name: 1.0 + len(name) + S.n \n S.p = P() | S.p.abc | S.p.abc = 2.0
class P: __get__ = lambda *a: 1.0 + S.n \n class Q: k = P() | Q().k | Q.k = 3.0
class P: __float__ = lambda self: 1.0 + S.n % 3 \n S.p = P() | float(S.p) | pass
class P: __len__ = lambda self: 2 + S.n % 3 \n S.p = P() | len(S.p) / 2 | pass
class P: __bool__ = lambda self: S.n % 2 == 0 \n S.p = P() | (2.0 if S.p else 3.0) | pass
class P: __eq__ = lambda self, o: S.n % 2 == 0 \n S.p = P() | (2.0 if S.p == 1 else 3.0) | pass
class P(abc.ABC): pass \n class Q: pass | (2.0 if isinstance(Q(), P) else 3.0) | P.register(Q)
S.v = contextvars.ContextVar("v", default=1.0) | S.v.get() | S.v.set(S.v.get() + 0.5)
S.v = threading.local(); S.v.k = 1.0 | getattr(S.v, "k", 7.0) | S.v.k += 0.5
S.v = types.SimpleNamespace(k=1.0) | S.v.k | S.v.__dict__["k"] *= 2
S.v = types.MappingProxyType(S.__dict__); S.k = 1.0 | S.v["k"] | S.k += 1
S.v = types.ModuleType("m"); S.v.k = 1.0 | S.v.k | S.v.k += 1
S.v = weakref.ref(S); S.k = 2.0 | S.v().k | S.k -= 0.25
def P(k=1.5): return k | P() | P.__defaults__ = (P.__defaults__[0] + 1,)
def P(k=1.5): return k | P() | P.__code__ = (lambda k=0: k * 2).__code__
def P(*, k=1.5): return k | P() | P.__kwdefaults__ = {"k": 3.0}
def P(): return P.k \n P.k = 1.0 | P() | P.k += 1
P = (lambda c: (lambda: c))(1.5) | P() | P.__closure__[0].cell_contents = 3.5
P = functools.lru_cache(lambda: 1.0 + S.n) | P() | P.cache_clear()
S.v = ctypes.c_double(1.5) | S.v.value | S.v.value += 1
S.v = io.StringIO("123456789" * 9) | float(S.v.read(1)) | S.v.read(1)
S.v = fractions.Fraction(3, 2) | float(S.v) | S.v += 1
S.v = "{:.2f}" ; S.k = 1.0 | float(S.v.format(S.k)) | S.k += 0.5
S.v = {1, 2} | len(S.v) / 2 | S.v ^= {S.n}
S.v = random.Random(3) | S.v.random() + 1 | S.v.seed(5)
S.v = 0 | random.random() + 1 | random.seed(S.n)
S.v = 0 | L.rand(()).item() + 1 | L.manual_seed(S.n)
S.v = L.Generator().manual_seed(3) | L.rand(1, generator=S.v).item() + 1 | S.v.manual_seed(S.n)
S.t = L.tensor(1.5) | S.t.item() | S.t.mul_(1.25)
S.t = L.tensor(1.5) | S.t | S.t = S.t * 1.25
S.t = L.tensor(1.5) | S.t | S.t.add_(1)
S.t = L.ones(3) | S.t[0] | S.t[0] = 2.5
S.a = np.ones(3, "float32"); S.t = L.from_numpy(S.a) | S.t.sum() | S.a[0] += 1
S.a = [L.ones(3), L.ones(3) * 2] | S.a[0].sum() | S.a.reverse()
S.a = {"a": L.ones(3)} | S.a["a"].sum() | S.a["a"] = S.a["a"] + 1
S.a = (L.ones(3), [L.ones(3)]) | S.a[1][0].sum() | S.a[1][0] = S.a[1][0] * 2
S.p = nn.Parameter(L.ones(())) | S.p | S.p.data = S.p.data * 2
S.p = nn.Parameter(L.ones(())) | S.p | S.p.requires_grad_(not S.p.requires_grad)
S.t = L.ones(3, 2) | S.t.shape[0] / S.t.stride(0) | S.t = S.t.T.contiguous()
S.t = L.ones(3, 2) | (2.0 if S.t.is_contiguous() else 3.0) | S.t = S.t.T
S.t = L.ones(3) | 1.0 + S.t._version | S.t.add_(1)
S.t = L.ones(3) | (2.0 if S.t.requires_grad else 3.0) | S.t.requires_grad_(not S.t.requires_grad)
S.t = L.ones(3) | (2.0 if S.t.dtype == L.float32 else 3.0) | S.t = S.t.double()
S.t = w | (2.0 if S.t is w else 3.0) | S.t = w.detach() if S.t is w else w
S.t = 1.0 | (2.0 if w.grad is None else 3.0) | w.grad = None
S.t = 1.0 | opt.param_groups[0]["lr"] * 20 | opt.param_groups[0]["lr"] *= 0.9
S.t = 1.0 | len(opt.state) + 1.0 | pass
S.t = 1.0 | sched.get_last_lr()[0] * 20 | sched.step()
S.t = 1.0 | 1.0 + L.is_grad_enabled() | pass
S.t = 1.0 | 1.0 + (L.get_default_dtype() == L.float64) | L.set_default_dtype(L.float64)
S.t = 1.0 | float(S.n % 2 == 1) or 2.0 | pass
S.t = 1.0 | float(len(S.log) + 1) | S.log.append(0)
S.t = 1.0 | (1.0, 0.0, -0.0)[S.n % 3] | pass
S.t = 1.0 | (1, 1.0, True)[S.n % 3] | pass
S.t = 1.0 | (1.5, float("inf"), float("nan"), 2.5)[S.n % 4] | pass
S.t = 1.0 | (3, 3.0, L.tensor(3.0), np.float64(3.0))[S.n % 4] | pass
S.t = 1.0 | (1, 2, 3)[S.n % 3] | pass
"""
# What the step computes: the value of x and of the parameters w and b, with the value KEY.
LOSSES = r"""
(F.tanh(x @ w + b) * KEY).square().sum()
(x @ w).relu().mean() * KEY + b.sum()
F.mse_loss(x @ w * KEY, L.ones(4, 3).to(x.dtype))
F.cross_entropy(x @ w * KEY + b, L.arange(4) % 3)
((x @ w + b).sigmoid() ** 2 / 3).sum(0).mul(KEY).norm()
(F.layer_norm(x @ w, (3,), b) * KEY).abs().sum()
L.where(x @ w > 0, x @ w * KEY, b).logsumexp(-1).sum()
F.dropout(x @ w, 0.5).mul(KEY).sum() + b.exp().sum()
(w * KEY).sum() + (b[1:] * b[:-1]).sum() + x.sum() * 0
L.cat([x @ w, b[None]]).mul(KEY).softmax(-1).square().sum()
(x.unsqueeze(-1) * w).sum(1).add(b, alpha=2).pow(2).mul(KEY).mean()
L.einsum("ij,jk->k", x, w).mul(KEY).dot(b)
(x @ w).view(-1)[::2].mul(KEY).clamp(-1, 1).sum() + b.view(3, 1).T.sum()
F.leaky_relu(x @ w, 0.1).mul_(KEY).sum() + (b * 1).add_(1).square().sum()
F.smooth_l1_loss(x @ w, (x @ w).detach() * KEY + 0.3) + b.sum()
F.huber_loss(x @ w * KEY, L.zeros(4, 3).to(x.dtype)) * KEY + b.var()
sum((x[i] @ w * KEY).sum() * (i + 1) for i in range(S.n % 3 + 1)) + b.prod()
(x @ w)[S.n % 4].mul(KEY).sum() + b[S.n % 3]
(x @ w).mul(S.n).cumsum(0).mul(KEY).mean() + b.amax()
F.gelu(x @ w * KEY).sum() + F.softplus(b, beta=S.n + 1).sum()
"""
STEPS = r"""
opt.zero_grad(); loss = LOSS; loss.backward(); opt.step(); return loss
loss = LOSS; loss.backward(); opt.step(); opt.zero_grad(); return loss
loss = LOSS; loss.backward(); opt.step(); opt.zero_grad(set_to_none=False); return loss
loss = LOSS / 2; loss.backward(); [(opt.step(), opt.zero_grad()) for _ in range(S.n % 2)]; return loss
opt.zero_grad(); loss = LOSS; loss.backward(); S.kept.append(w.grad); S.kept = S.kept[-3:]; opt.step(); return loss.item()
opt.zero_grad(); loss = LOSS; loss.backward(); S.alias = None if w.grad is None else w.grad.numpy(); opt.step(); return loss.detach()
opt.zero_grad(); loss = LOSS; loss.backward(); w.grad.numpy()[0] *= 2; opt.step(); S.kept = [w.detach(), w.data[0], b.grad]; return loss
opt.zero_grad(); loss = LOSS; loss.backward(retain_graph=True); loss.backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; loss.backward(); loss.backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; loss.backward(loss.detach() * 0 + 2); opt.step(); return loss
opt.zero_grad(); y = x.clone().requires_grad_(); x, z = y, x; loss = LOSS; loss.backward(); opt.step(); return loss, y.grad
opt.zero_grad(); h = w.register_hook(lambda g: g * (1 + S.n % 2)); loss = LOSS; loss.backward(); h.remove(); opt.step(); return loss
opt.zero_grad(); loss = LOSS\nif S.n % 4 == 3: raise ValueError("stop")\nloss.backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; loss.backward()\nif S.n % 4 == 2: raise ValueError("stop")\nopt.step(); return loss
opt.zero_grad(); loss = LOSS; g = L.autograd.grad(loss, [w, b], allow_unused=True); w.grad, b.grad = g; opt.step(); return g
opt.zero_grad(); loss = LOSS; g, = L.autograd.grad(loss, [w], create_graph=True); (loss + g.square().sum()).backward(); opt.step(); return g
scaler.scale(LOSS).backward(); scaler.step(opt); scaler.update(); opt.zero_grad(); return scaler.get_scale()
opt.zero_grad()\nwith L.autocast("cpu", dtype=L.bfloat16): loss = LOSS\nloss.float().backward(); opt.step(); return loss.float()
opt.zero_grad(); loss = LOSS; loss.backward(); n = nn.utils.clip_grad_norm_([w, b], 0.1 * S.n); opt.step(); sched.step(); return n
def closure():\n    opt.zero_grad(); loss = LOSS; loss.backward(); return loss\nreturn opt.step(closure)
loss = LOSS; loss.backward()\nwith L.no_grad(): w.sub_(0.1 * w.grad); b.data -= 0.1; w.grad = b.grad = None\nreturn loss
opt.zero_grad(); loss = LOSS; a = x.numpy(); a[0] = S.n; loss.backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; w.detach().mul_(1 + (S.n % 3 == 1)); loss.backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; S.kept.append(loss); S.kept = S.kept[-2:]; sum(S.kept).backward(); opt.step(); return loss
opt.zero_grad(); loss = LOSS; S.thread(loss.backward); S.thread(opt.step); return loss
opt.zero_grad()\nwith L.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t): loss = LOSS\nloss.backward(); opt.step(); return loss
with L.set_grad_enabled(S.n % 3 != 2): loss = LOSS\n[loss.backward() for _ in range(loss.requires_grad)]; opt.step(); return loss
opt.zero_grad(); loss = LOSS; [loss.backward(inputs=[w]), opt.step()]; return loss
S.out = LOSS; return S.out
"""
BETWEEN = r"""
x = L.randn(4, 2)
x = L.randn(2, 4).T
x = L.randn(8, 4)[::2, ::2]
x = x.double(); w.data, b.data, w.grad, b.grad = w.data.double(), b.data.double(), None, None
x = x.clone().requires_grad_()
x = L.from_numpy(np.ones((4, 2), "float32"))
w.data = L.from_numpy(np.full((2, 3), 0.5, "float32"))
S.m = np.full((2, 3), 0.5, "float32"); w.grad = L.from_numpy(S.m)
w.data = w.data.T.contiguous().T
w.grad = L.ones(3, 2).T
w.grad = L.ones(1, 3).expand(2, 3)
with L.no_grad(): w[0] = 0.25
b.requires_grad_(not b.requires_grad)
b.data = w.data[0]
w.grad, b.grad = L.ones(2, 3), L.ones(2, 3)[0]
opt.state.clear()
opt.load_state_dict(copy.deepcopy(opt.state_dict()))
opt.param_groups[0]["params"].reverse()
opt.param_groups[0]["weight_decay"] = 0.01
opt.add_param_group({"params": [nn.Parameter(L.ones(2))]})
S.keep = [v.numpy() for s in opt.state.values() for v in s.values() if isinstance(v, L.Tensor)]
[v.mul_(0.5) for s in opt.state.values() for v in s.values() if isinstance(v, L.Tensor) and v.ndim]
S.hook = b.register_post_accumulate_grad_hook(lambda p: S.log.append(p.grad.sum().item()))
S.hook = opt.register_step_post_hook(lambda *a: S.log.append("step"))
L.set_default_dtype(L.float32)
L.use_deterministic_algorithms(S.n % 2 == 0)
L.set_num_threads(1)
L.autograd.set_detect_anomaly(S.n % 2 == 0)
"""
OPTIMIZERS = r"""
SGD(lr=0.05) SGD(lr=0.05,momentum=0.9) SGD(lr=0.05,momentum=0.9,nesterov=True) Adam(lr=0.02) AdamW(lr=0.02,amsgrad=True) Adamax(lr=0.02)
NAdam(lr=0.02) RAdam(lr=0.02) Adagrad(lr=0.02) Adadelta(lr=0.5) ASGD(lr=0.02) RMSprop(lr=0.01,momentum=0.5) Rprop(lr=0.01) Adafactor(lr=0.02)
SGD(lr=0.05,maximize=True,weight_decay=0.1)
""".split()
HEAD = r"""
import abc, array, asyncio, collections, contextlib, contextvars, copy, ctypes, dataclasses, enum, fractions, functools, io, itertools, random
import sys, threading, types, weakref
import numpy as np
nn, F = L.nn, L.nn.functional
L.manual_seed(SEED); random.seed(SEED); L.set_default_dtype(L.float32)
class State: pass
S = State(); S.n, S.log, S.kept, S.alias, S.out = 0, [], [], None, None
w, b = nn.Parameter(L.randn(2, 3)), nn.Parameter(L.randn(3) + 0.1)
x = L.randn(4, 2)
opt = L.optim.OPTIMIZER
sched, scaler = L.optim.lr_scheduler.StepLR(opt, 2, 0.7), L.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
def thread(f):
    out = []
    def work():
        try: out.append(f())
        except Exception as error: S.error = error
    t = threading.Thread(target=work); t.start(); t.join()
    if not out: raise S.error
    return out[0]
S.thread = thread
"""
TAIL = r"""
def flat(v, depth=0):
    if isinstance(v, L.Tensor):
        found = [tuple(v.shape), v.stride(), str(v.dtype), v.requires_grad, v._version, v.detach().double().tolist()]
        return [*found, flat(v.grad, 1) if v.is_leaf and not depth else 0]
    if isinstance(v, np.ndarray): return v.tolist()
    if isinstance(v, dict): return [flat(i, depth) for i in v.items()]
    if isinstance(v, (list, tuple)): return [flat(i, depth) for i in v]
    return v if isinstance(v, (int, float, str, bool, type(None))) else type(v).__name__
def call():
    S.n += 1
    try:
        found = step(x)
        if S.out is not None: S.out.backward(); opt.step(); S.out = None
    except Exception as error: found = f"{type(error).__name__}: {str(error)[:60]}"
    state = [[(n, v) for n, v in sorted(opt.state[p].items())] for p in (w, b) if p in opt.state]
    LOG.append(flat([found, S.n, S.log, S.kept, S.alias, x, w, b, state, L.rand(1), random.random()]))
"""


def lines(text):
    return [line.replace("\\n", "\n") for line in text.strip().splitlines()]


def program(number):
    """Returns the text of a program."""
    rng = random.Random(number)
    setup, key, change = (part.strip() for part in rng.choice(lines(PLACES)).split(" | "))
    wrapping = rng.choice(WRAPPINGS.strip().split("---"))
    name, options = rng.choice(OPTIMIZERS).split("(", 1)
    body = rng.choice(lines(STEPS)).replace("LOSS", f"({rng.choice(lines(LOSSES))})").replace("KEY", key)
    text = HEAD.replace("OPTIMIZER", f"{name}([w, b], {options}")
    text += "\n".join(line.strip() for line in setup.split("\n")) + "\n"
    text += f"def body(x):\n{textwrap.indent(body, '    ')}\n"
    wrapping = wrapping.strip().replace("BODY2", "return body(x)")
    wrapping = wrapping.replace("    BODY", textwrap.indent(body, "    "))
    text += f"{wrapping}\n{TAIL}"
    for i in range(CALLS):
        text += "call()\n"
        for line in [change] * (i >= 1) + ([rng.choice(lines(BETWEEN))] if i > 1 and rng.random() < 0.4 else []):
            text += (
                f"try:\n{textwrap.indent(line, '    ')}\nexcept Exception as error: LOG.append(type(error).__name__)\n"
            )
    return text


def difference(number, library, wrap):
    """Returns the first record that differs, or None."""

    text, found = program(number), []
    for compiled in (False, True):
        try:
            found.append(
                run(text.replace("COMPILED", str(compiled)), library, number % 1000, wrap if compiled else lambda f: f)
            )
        finally:
            library.set_default_dtype(library.float32)
            library.use_deterministic_algorithms(False)
            library.autograd.set_detect_anomaly(False)
    return first_difference(*found)


@pytest.mark.parametrize("seed", range(4))
def test_programs_are_equal_compiled(seed, monkeypatch):
    import mytorch
    from mytorch.compiler import regions

    monkeypatch.setattr(regions, "FASTER", float("inf"))
    monkeypatch.setenv("MYTORCH_COMPILE_CHECK", str(seed % 2))
    if seed > 1:
        monkeypatch.setenv("MYTORCH_COMPILE", "numpy")
    for i in range(25):
        number = seed * 1000 + i
        found = difference(number, mytorch, (mytorch.compile, mytorch.compile_step)[i % 2])
        assert found is None, f"{program(number)}\n# {found}"


def main(seed, first, last, *options):
    """Shows the programs that differ."""
    import mytorch
    from mytorch.compiler import regions

    regions.FASTER = float("inf")
    library = mytorch
    if "--mode" in options:
        mytorch.install_as_torch()
        library = sys.modules["torch"]
    bad = broken = 0
    for i in range(int(first), int(last)):
        number = int(seed) * 1_000_000 + i
        if "--show" in options:
            print(program(number))
        os.environ["MYTORCH_COMPILE_CHECK"] = str(i % 2)
        mytorch.compiler.reset()
        try:
            found = difference(number, library, (library.compile, library.compile_step)[i // 2 % 2])
        except Exception as error:  # noqa: BLE001 - a program that does not run at all
            found, broken = f"{type(error).__name__}: {error}", broken + 1
        if found is not None:
            bad += 1
            print(i, str(found)[:400], flush=True)
    print(f"{int(last) - int(first)} programs, {bad} differ, {broken} did not run")


if __name__ == "__main__":
    words = sys.argv[1:]
    main(*[w for w in words if w[0] != "-"], *[w for w in words if w[0] == "-"])
