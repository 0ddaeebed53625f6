"""Rows for mytorch/ops/movement.py."""

from . import case

case("reshape", [(3, 4)], shape=[(2, 6), (-1,), (4, -1, 1)])
case("permute", [(2, 3, 4)], dims=[(2, 0, 1), (0, 1, 2), (-1, 1, 0)])
case("transpose", [(2, 3, 4)], dim0=[0, 1], dim1=[-1])
case("t", [(2, 3)])
case("movedim", [(2, 3, 4)], source=[0, 1], destination=[-1])
case("flatten", [(2, 3, 4)], start_dim=[0, 1], end_dim=[-1])
case("unflatten", [(2, 6)], dim=[1], sizes=[(2, 3), (-1, 2)])
case("squeeze", [(2, 1, 3)])
case("squeeze", [(2, 1, 3)], dim=[1, 0, (0, 1)])
case("unsqueeze", [(2, 3)], dim=[0, 1, -1])
case("broadcast_to", [(3, 1)], size=[(3, 4), (2, 3, 4)])
case("cat", [(2, 3), (4, 3)], listed=True)
case("cat", [(2, 3), (2, 1)], dim=[1, -1], listed=True)
case("stack", [(2, 3), (2, 3)], dim=[0, 1, -1], listed=True)
case("split", [(5, 3)], split_size_or_sections=[2, [1, 4]])
case("chunk", [(5, 3)], chunks=[2, 3, 7])
case("unbind", [(3, 2)], dim=[0, 1])
case("tile", [(2, 3)], dims=[(2,), (2, 1, 2)])
case("flip", [(2, 3)], dims=[(0,), (0, 1)])
case("clone", [(2, 3)])
