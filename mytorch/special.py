"""Special functions, with `torch.special`'s names."""

import math

from .dispatch.out import takes_out as _takes_out
from .ops import PUBLIC
from .ops import special as _ops

_SAME = "digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp polygamma round sinc softmax xlogy"
_FUNCTIONS = {name: PUBLIC[name] for name in _SAME.split()}
_RECORDS = {
    "i0e": _ops.i0e, "i1": _ops.i1, "i1e": _ops.i1e, "erfcx": _ops._erfcx, "gammainc": _ops.igamma, "gammaincc": _ops.igammac,
    "gammaln": _ops.lgamma, "psi": _ops.digamma, "zeta": _ops._zeta,
}  # fmt: skip
_FUNCTIONS.update(
    {name: record.fast_call for name, record in _RECORDS.items()},
    entr=_ops._entr,
    expit=PUBLIC["sigmoid"],
    log_ndtr=_ops._log_ndtr,
    multigammaln=_ops.mvlgamma,
    ndtr=lambda input: _ops.erfc.fast_call(input * -math.sqrt(0.5)) * 0.5,
    ndtri=_ops._ndtri,
    xlog1py=_ops._xlog1py.fast_call,
)
globals().update({name: _takes_out(function) for name, function in _FUNCTIONS.items()})
