"""NaN, infinity and overflow are values: no NumPy warning reaches a user who turns warnings into errors."""

import subprocess
import sys
import warnings

import pytest

import mytorch
from mytorch import nn
from mytorch.kernels import registry

LINES = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "var.*degrees of freedom")  # PyTorch's own warning
import mytorch as t
F = t.nn.functional
bad = t.tensor([[float("nan"), 1.0, -2.0], [float("inf"), -float("inf"), 0.0]], requires_grad=True)
big = t.tensor([[1e38, 3e38, -3e38]] * 2, requires_grad=True)
names = "sum mean var std prod exp log sqrt rsqrt log1p tanh sigmoid abs norm max min median amax square reciprocal sin cos tan asin "
names += "acosh atanh erf erfinv lgamma digamma frac nansum nanmean"
functions = [lambda x, n=n: getattr(x, n)() for n in names.split()]
functions += [
    lambda x: x.cumsum(1), lambda x: x.cumprod(1), lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.logsumexp(1),
    lambda x: F.layer_norm(x, (3,)), lambda x: F.rms_norm(x, (3,)), lambda x: F.batch_norm(x, None, None, training=True),
    lambda x: F.group_norm(x[:, :, None], 3), lambda x: F.cross_entropy(x, t.tensor([0, 1])), lambda x: x @ x.T, lambda x: x**0.5,
    lambda x: x / 0, F.gelu, F.silu, F.softplus, lambda x: x.logcumsumexp(1), lambda x: t.einsum("ij,kj->ik", x, x),
    lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), lambda x: F.conv1d(x[None], t.ones(1, 2, 2)),
    lambda x: t.cdist(x, x), lambda x: (x * 1e5).half(), lambda x: x[:, :1].var(1), lambda x: x.quantile(0.5),
]
for f in functions:
    for x in (bad, big):
        f(x).sum().backward()
"""


def test_no_warning_reaches_the_user():
    done = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _scheduler_first(lib):
    p = lib.nn.Parameter(lib.ones(1))
    schedule = lib.optim.lr_scheduler.StepLR(lib.optim.SGD([p], lr=1.0), 1)
    return schedule.step


def _grad_of_non_leaf(lib):
    y = lib.ones(2, requires_grad=True) * 2
    return lambda: y.grad


def _twice_in_a_group(lib):
    p = lib.nn.Parameter(lib.ones(1))
    return lambda: lib.optim.SGD([p, p], lr=0.1)


CALLS = {  # calls for which PyTorch warns and continues
    "scheduler": _scheduler_first,
    "grad": _grad_of_non_leaf,
    "tensor": lambda lib: lambda x=lib.ones(2): lib.tensor(x),
    "softmax": lambda lib: lambda x=lib.ones(2, 2): lib.nn.functional.softmax(x),
    "log_softmax": lambda lib: lambda x=lib.ones(2, 2): lib.nn.LogSoftmax()(x),
    "lstm": lambda lib: lambda: lib.nn.LSTM(2, 3, dropout=0.5),
    "mse_loss": lambda lib: lambda: lib.nn.MSELoss()(lib.ones(3, 1), lib.ones(3)),
    "duplicate parameters": _twice_in_a_group,
    "out of another size": lambda lib: lambda x=lib.ones(2), y=lib.empty(3): lib.add(x, x, out=y),
}


@pytest.mark.parametrize("name", CALLS)
def test_pytorchs_warnings_point_at_the_users_line(name, torch):
    texts = []
    for lib in (mytorch, torch):
        call = CALLS[name](lib)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert len(seen) == 1
        assert seen[0].category is UserWarning
        texts.append(str(seen[0].message).replace("mytorch", "torch"))
        if lib is mytorch:
            assert seen[0].filename == __file__
    assert texts[0][:60] == texts[1][:60]


def test_missing_kernel_warns_at_the_users_line():
    registry._warned.clear()
    x = mytorch.ones(2, 2)
    calls = (
        lambda: mytorch.tanh(x, fused=True),
        nn.Linear(2, 2, fused=True),
        nn.Softmin(0, fused=True),
        nn.RMSNorm(2, fused=True),
    )
    for call in calls:
        with pytest.warns(UserWarning, match="uses the reference because") as seen:
            call(x) if isinstance(call, nn.Module) else call()
        assert [w.filename for w in seen] == [__file__]


def test_no_warning_where_all_is_well():
    p = mytorch.nn.Parameter(mytorch.ones(1))
    optimizer = mytorch.optim.SGD([p], lr=1.0)
    schedule = mytorch.optim.lr_scheduler.StepLR(optimizer, 1)
    y = p * 2
    y.retain_grad()
    y.sum().backward()
    optimizer.step()
    schedule.step()
    assert y.grad.item() == 1.0
