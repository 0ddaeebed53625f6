"""Special functions, as in `torch.special`."""

import math

from ..arrays.arguments import described as _described
from ..ops import PUBLIC
from ..ops import special as _ops
from ..ops.dispatch.bind import found_by_pickle as _found
from ..ops.dispatch.bind import public_function as _public_function
from ..ops.dispatch.out import takes_out as _takes_out


def ndtr(input):
    """Computes the cumulative distribution function of the standard normal distribution, elementwise.

        erfc(-input / sqrt(2)) / 2

    Args:
        input: tensor of a floating point dtype.

    Example:
        >>> mytorch.special.ndtr(tensor([0.0])).tolist()
        [0.5]
    """
    return _ops.erfc.fast_call(input * -math.sqrt(0.5)) * 0.5


_SAME = "digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp polygamma round sinc softmax xlogy"
_FUNCTIONS = {name: PUBLIC[name] for name in _SAME.split()}
_RECORDS = {
    "i0e": _ops.i0e, "i1": _ops.i1, "i1e": _ops.i1e, "erfcx": _ops._erfcx, "gammainc": _ops.igamma, "gammaincc": _ops.igammac,
    "gammaln": _ops.lgamma, "ndtri": _ops._ndtri, "psi": _ops.digamma, "zeta": _ops._zeta,
}  # fmt: skip
_FUNCTIONS.update(
    {name: record.fast_call for name, record in _RECORDS.items()},
    entr=_ops._entr,
    expit=PUBLIC["sigmoid"],
    log_ndtr=_ops._log_ndtr,
    multigammaln=_ops.mvlgamma,
    ndtr=ndtr,
    xlog1py=_ops._xlog1py.fast_call,
)
globals().update(
    {
        name: _found(_described(_public_function(_takes_out(function))), name, __name__)
        for name, function in _FUNCTIONS.items()
    }
)
