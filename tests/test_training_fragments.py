"""Random fragments of training code, one after the other, compared with PyTorch.

Each seed is one program. A fragment is a template: {a|b|c} is one of the parts, and statements are divided by lines of `-`. Each statement
runs in both libraries, also after an error; `see` collects values, dtypes, strides, flags and gradients. The fragments leave out what
docs/differences.md lists.
"""

import copy
import re

import numpy as np
import pytest

import mytorch
from tests.loops import loop

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.cpu_only]

FRAGMENTS = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(data(D, D))
        self.register_buffer("mean", L.zeros(D), persistent={True|False})
    def forward(self, x):
        with L.no_grad(): self.mean{.lerp_(x.mean(0), 0.1)|.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)|.copy_(x.mean(0))|[...] = x.amax(0)}
        return F.{relu|gelu|silu|tanh|softplus}({x @ self.w|F.linear(x, self.w)|L.einsum("bi,ij->bj", x, self.w)}) - self.mean
-
m = Layer(); y = m(x); LOSS; see(y, x, m.w, m.state_dict())
-
m.{eval()|requires_grad_(False)|double()|zero_grad(set_to_none=False)}; see(m.w, m.mean, m(x.detach().to(m.w.dtype)))
=
L.manual_seed(3); net = nn.Sequential(nn.Linear(D, 3), nn.{ReLU|Tanh|GELU}(), nn.Linear(3, 2)); average = copy.deepcopy(net); y = net(x); LOSS
-
opt = L.optim.{SGD(net.parameters(), lr=0.1, momentum=0.9)|AdamW(net.parameters(), lr=0.1)|RMSprop(net.parameters())|Adagrad(net.parameters())}; opt.step()
-
with L.no_grad():
    for p, q in zip(net.parameters(), average.parameters()): q{.lerp_(p, 0.25)|.mul_(0.75).add_(p, alpha=0.25)|.copy_(p / 2)|.data = p.data * 2}
-
see(list(average.parameters()), list(net.parameters()), L._foreach_norm(list(net.parameters())), opt.state_dict()["state"])
-
see(nn.utils.{clip_grad_norm_(net.parameters(), 0.5)|clip_grad_value_(net.parameters(), 0.05)|clip_grad_norm_(net[0].weight, 0.1, norm_type=1)}, list(net.parameters()))
=
mask = L.arange(D)[None, :] {<|<=} L.tensor([1, 2, 3, 1, 2])[:B, None]; y = x * 1.5; target = data(B, D)
-
y = {(F.mse_loss(y, target, reduction="none") * mask).sum() / mask.sum()|F.l1_loss(y[mask], target[mask])|L.where(mask, y - target, L.zeros(())).pow(2).sum(-1)}
-
see(y); LOSS; see(x, y.masked_fill(L.tensor(True), {0|-1.5}), x.masked_select(mask))
=
seq = data(3, 4, 2).requires_grad_(); L.manual_seed(5); rnn = nn.{LSTM|GRU|RNN}(2, 2, batch_first=True, bidirectional={True|False})
-
packed = nn.utils.rnn.pack_padded_sequence(seq, {[4, 2, 3]|L.tensor([1, 4, 3])}, batch_first=True, enforce_sorted=False); out, h = rnn(packed)
-
y, n = nn.utils.rnn.pad_packed_sequence(out, batch_first={True|False}); see(y, n, h, packed.batch_sizes); LOSS; see(seq, list(rnn.parameters()))
-
see(nn.utils.rnn.unpad_sequence(y, n{, batch_first=True|})); see(nn.utils.rnn.unpack_sequence(out))
=
L.manual_seed(7); gate = nn.Linear(D, 3); experts = nn.ModuleList([nn.Linear(D, D) for _ in range(3)]); w, index = gate(x).softmax(-1).topk(2, -1)
-
{y = L.zeros(B, 3).scatter(1, index, w) @ L.stack([e(x).mean(0) for e in experts])|y = L.zeros_like(x)
for j in range(3):
    r, c = L.where(index == j)
    y = y.index_add(0, r, experts[j](x[r]) * w[r, c, None])|y = L.gather(L.stack([e(x) for e in experts], 1), 1, index[..., None].expand(-1, -1, D)).mul(w[..., None]).sum(1)}
-
see(y, index, index.flatten().bincount(minlength=3)); LOSS; see(x, gate.weight, list(experts.parameters()))
=
f = L.fft.{rfft(x)|fft2(x, norm="ortho")|fftshift(L.fft.fft(x))}; {f = f * 2j|f = f.conj() * f|f = f * L.exp(-1j * L.arange(f.shape[-1]))}
-
y = {f.real|f.abs()|L.view_as_real(f).sum(-1)|f.imag.mul(2)}; see(f, y); LOSS; see(x)
=
class Fn(L.autograd.Function):
    @staticmethod
    def forward(ctx, a, s=2.0):
        {ctx.save_for_backward(a); return a.clamp(min=0)|ctx.save_for_backward(a); return a.view_as(a)|ctx.save_for_backward(a); return a * s}
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return {g * (a > 0)|-g}, {None|g}
-
y = Fn.apply(x{ * 1|.t()|[0]}, 3.0)
-
see(y); LOSS
-
see(x)
=
log = []; L.manual_seed(9); net = nn.Sequential(nn.Linear(D, 3), nn.Tanh(), nn.Linear(3, 2))
-
handle = {net[1].register_forward_hook(lambda m, a, o: o * 2)|net[2].register_full_backward_hook(lambda m, gi, go: log.append((gi[0], go[0])))|net[0].weight.register_hook(lambda g: g * 2)|net.register_forward_pre_hook(lambda m, a: (a[0] / 2,))}
-
y = net(x); LOSS; handle.remove(); see(log, y, x, list(net.parameters())); y = net(x); LOSS; see(len(log), list(net.parameters()))
=
y = x{ * 1|.exp()|.t() + 0}
-
y{[0]|.t()|.view(-1)[::2]|.diagonal()|.as_strided((2,), (1,))|[1:]|.unsqueeze(0)}.{mul_(2)|fill_(3)|copy_(x.detach()[0, 0])|neg_()|add_(x.sum())}
-
see(y); LOSS; see(x)
=
y = x.clone(); i = {0|[0, 1]|L.tensor([1, 0])|(None, ..., 1)|(slice(None), None, [0, 1])|x > 0|([[0], [1]], [0, 1])}
-
{y = y[i]|y[i] = 0.5|y[i] *= 2|y[i] = y[i].detach() * 3}
-
see(y); LOSS; see(x)
=
a = L.from_numpy(x.detach().numpy().copy()); a{.mul_(2)|[0] = 1|.t_()}; see(a, a.double(), a.numpy().T.copy(), L.tensor(a.numpy().T), a.long(), a.tolist())
-
see(a{[None]|[..., None]|.expand(2, *a.shape)|.reshape(1, -1)|.unfold(1, 2, 1)}, a + 1, {2.0 ** a|1 - a|a // 0.5}, a.to({L.float16|L.complex64|L.int32}))
=
L.manual_seed(11); d = L.distributions.{Normal(x, 1.0)|Bernoulli(logits=x)|Categorical(logits=x)|Gamma(x.abs() + 1, 1.0)}; s = d.sample({(2,)|})
-
y = d.log_prob(s); see(s, d.mean); LOSS; see(x)
"""
LOSSES = [
    "y.sum()",
    "y.square().mean()",
    "(y * L.linspace(-1, 1, y.numel()).reshape(y.shape)).sum()",
    "y.logsumexp(-1).sum()",
]


def _program(rng):
    """Returns the statements of two fragments."""
    lines = []
    for fragment in rng.choice(FRAGMENTS.strip("\n").split("\n=\n"), 2, replace=False):
        text = re.sub(r"\{([^{}]*\|[^{}]*)\}", lambda found: str(rng.choice(found[1].split("|"))), str(fragment))
        lines += text.replace("LOSS", f"({rng.choice(LOSSES)}).backward()").split("\n-\n")
        lines.append(str(rng.choice(["x.grad = None", "x = x.detach().t().contiguous().t().requires_grad_()"])))
    return lines


def _seen(L, value, leaf=True):
    """Returns what a program can observe of a value, as nested lists of plain objects and NumPy arrays."""
    if isinstance(value, L.Tensor) or type(value).__name__ == "Array":
        strides = [s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1]
        flags = str(value.dtype).rpartition(".")[2], tuple(value.shape), strides, value.requires_grad
        grad = _seen(L, value.grad, leaf=False) if leaf and value.is_leaf and value.grad is not None else None
        values = value.detach() if isinstance(value, L.Tensor) else value
        return [flags, np.array(values.tolist()), grad]
    if isinstance(value, dict):
        return [(key, _seen(L, item)) for key, item in value.items()]
    return [_seen(L, item) for item in value] if isinstance(value, (list, tuple)) else value


def _run(L, lines, seed):
    """Runs a program. Returns what it saw, and the type of the error of each statement."""
    rng, seen = np.random.default_rng(seed), []

    def data(*shape):
        return L.tensor(np.round(rng.standard_normal(shape), 2).astype(np.float32))

    b, d = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    space = {
        "L": L,
        "nn": L.nn,
        "F": L.nn.functional,
        "copy": copy,
        "B": b,
        "D": d,
        "data": data,
        "__name__": "program",
    }
    space |= {
        "x": data(b, d).requires_grad_(),
        "see": lambda *values: seen.append([_seen(L, value) for value in values]),
    }
    for line in lines:
        try:
            exec(line, space)
        except (RuntimeError, ValueError, TypeError, IndexError, NameError) as error:
            seen.append(type(error))
    return seen


def _compare(mine, theirs):
    if isinstance(theirs, type):
        assert isinstance(mine, type)
        assert issubclass(mine, theirs)
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            _compare(a, b)
    else:
        assert mine == theirs


@loop(parts=2)
@pytest.mark.parametrize("seed", range(80))
def test_fragments(seed, torch):
    lines = _program(np.random.default_rng(seed))
    mine, theirs = (_run(L, lines, seed) for L in (mytorch, torch))
    _compare(mine, theirs)
