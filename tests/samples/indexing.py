"""Rows for mytorch/ops/indexing.py."""

from . import case

case("gather", [(3, 4), (3, 2)], integer={1: 3}, dim=[0, 1])
case("masked_fill", [(3, 4), (3, 4)], bools=(1,), value=[0.5, float("-inf")])
case("tril", [(3, 4)], diagonal=[0, 1, -1])
case("triu", [(3, 4)], diagonal=[0, 1, -1])
case("sort", [(3, 5)], dim=[0, 1], descending=[False, True])
case("argsort", [(3, 5)], dim=[0, 1], grad=False)
case("topk", [(3, 40)], k=[1, 3], dim=[-1], largest=[True, False])
