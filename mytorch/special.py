"""Special functions, with `torch.special`'s names."""

import math

from .ops import PUBLIC
from .ops import special as _ops
from .ops.out import takes_out as _takes_out

_SAME = "digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp polygamma round sinc softmax xlogy"
_FUNCTIONS = {name: PUBLIC[name] for name in _SAME.split()}
_FUNCTIONS.update(
    {name: getattr(_ops, name).caller for name in "i0e i1 i1e".split()},
    entr=_ops._entr,
    erfcx=_ops._erfcx.caller,
    expit=PUBLIC["sigmoid"],
    gammainc=_ops.igamma.caller,
    gammaincc=_ops.igammac.caller,
    gammaln=_ops.lgamma.caller,
    log_ndtr=_ops._log_ndtr,
    multigammaln=_ops.mvlgamma,
    ndtr=lambda input: _ops.erfc.caller(input * -math.sqrt(0.5)) * 0.5,
    ndtri=_ops._ndtri,
    psi=_ops.digamma.caller,
    xlog1py=lambda input, other: PUBLIC["xlogy"](input, other + 1),
    zeta=_ops._zeta.caller,
)
globals().update({name: _takes_out(function) for name, function in _FUNCTIONS.items()})
