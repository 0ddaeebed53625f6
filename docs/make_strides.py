"""Write the pictures of strides.md: PYTHONPATH=. python docs/make_strides.py"""

from pathlib import Path

import mytorch
from mytorch.utils.views import draw

X = mytorch.arange(12).reshape(3, 4)
PICTURES = {
    "matrix": X,
    "transpose": X.T,
    "slice": X[1:, ::2],
    "expand": mytorch.arange(4).expand(3, 4),
    "windows": mytorch.arange(6).unfold(0, 3, 1),
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, tensor in PICTURES.items():
        draw(tensor, folder / f"{name}.svg")
