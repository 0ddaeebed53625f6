"""Rows for mytorch/ops/elementwise.py and activation.py."""

from . import case

PAIRS = [[(3, 4), (4,)], [(2, 1, 3), (4, 1)], [(), (3,)], [(0, 3), (3,)], [(1,), (1,)]]

for name in ("add", "sub", "mul", "maximum", "minimum"):
    case(name, [(3, 4), (3, 4)], also=PAIRS)
case("add", [(3, 4), (3, 4)], alpha=[2.5])
case("sub", [(3, 4), (4,)], alpha=[-2])
case("rsub", [(3, 4), (4,)], alpha=[1, 2])
case("div", [(3, 4), (3, 4)], also=PAIRS, domain=(0.5, 2.0))
case("div", [(3, 4), (3, 4)], domain=(0.5, 2.0), rounding_mode=["floor", "trunc"], grad=False)
case("pow", [(3, 4), (3, 4)], domain=(0.3, 2.0), also=PAIRS)
case("remainder", [(3, 4), (3, 4)], domain=(0.5, 2.0))
case("fmod", [(3, 4), (3, 4)], domain=(0.5, 2.0))
case("floor_divide", [(3, 4), (3, 4)], domain=(0.5, 2.0), grad=False)

UNARY = [[()], [(0, 3)], [(1,)], [(5, 2, 3)]]
for name in ("neg", "exp", "exp2", "expm1", "square", "abs", "sign", "sin", "cos", "tanh", "sigmoid", "floor", "ceil",
             "trunc", "round", "frac", "erf", "positive"):  # fmt: skip
    case(name, [(3, 4)], also=UNARY)
case("tan", [(3, 4)], domain=(-1.2, 1.2), also=UNARY)
for name in ("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal"):
    case(name, [(3, 4)], domain=(0.2, 3.0), also=UNARY)
case("log1p", [(3, 4)], domain=(-0.5, 3.0), also=UNARY)
case("relu", [(3, 4)], also=UNARY)
case("clamp", [(3, 4)], min=[-0.5, None], max=[0.7])
case("clamp", [(3, 4), (4,), (3, 1)], half=False)
case("clamp_min", [(3, 4)], min=[0.1])
case("clamp_max", [(3, 4)], max=[0.1])
case("lerp", [(3, 4), (3, 4)], weight=[0.3])
case("lerp", [(3, 4), (4,), (3, 1)])
case("addcmul", [(3, 4), (3, 4), (4,)], value=[1, 2, 0.5])
case("addcdiv", [(3, 4), (3, 4), (4,)], value=[1, 2, 0.5], domain=(0.5, 2.0))
case("where", [(3, 4), (3, 4), (4,)], bools=(0,))
case("nan_to_num", [(3, 4)])
for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
    case(name, [(3, 4), (4,)], grad=False)
for name in ("isnan", "isinf", "isfinite", "logical_not"):
    case(name, [(3, 4)], grad=False, also=UNARY)
case("isclose", [(3, 4), (3, 4)], grad=False)
