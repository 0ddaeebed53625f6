"""Rows for mytorch/ops/reduction.py."""

from . import case

DIMS = [None, 0, -1, (0, 2), (0, 1, 2)]
for name in ("sum", "mean"):
    case(name, [(3, 4, 2)], dim=DIMS, keepdim=[False, True])
case("sum", [()])
case("sum", [(0, 3)], dim=[None, 0, 1])
case("mean", [()])
case("var", [(3, 4, 2)], dim=DIMS, keepdim=[False, True], correction=[1, 0])
case("std", [(3, 4, 2)], dim=[1, (0, 2)], keepdim=[False, True])
case("amax", [(3, 4, 2)], dim=[0, (0, 2), -1], keepdim=[False, True])
case("amin", [(3, 4, 2)], dim=[0, (0, 2), -1], keepdim=[False, True])
case("max", [(3, 4)])
case("min", [(3, 4)])
case("max", [(3, 4)], dim=[0, 1, -1], keepdim=[False, True])
case("min", [(3, 4)], dim=[0, 1, -1], keepdim=[False, True])
case("argmax", [(3, 4)], dim=[None, 0, 1], grad=False)
case("argmin", [(3, 4)], dim=[None, 0, 1], grad=False)
case("all", [(3, 4)], dim=[0, 1], grad=False)
case("any", [(3, 4)], dim=[0, 1], grad=False)
case("count_nonzero", [(3, 4)], dim=[None, 1], grad=False)
case("cumsum", [(3, 4)], dim=[0, 1])
case("logsumexp", [(3, 4)], dim=[0, 1, (0, 1)], keepdim=[False, True])
case("norm", [(3, 4)], p=[1, 2, 3, float("inf"), 0.5], dim=[0, (0, 1)], keepdim=[False, True])
case("norm", [(3, 4)])
