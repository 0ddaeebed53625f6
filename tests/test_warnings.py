"""NaN, infinity and overflow are values: no NumPy warning reaches a user who turns warnings into errors."""

import subprocess
import sys

LINES = """
import warnings
warnings.simplefilter("error")
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
