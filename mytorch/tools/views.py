"""Drawings of a tensor's memory layout: elements at the top, storage at the bottom. docs/strides.md has examples."""

import os
from html import escape

import numpy as np

from ..arrays.tensor import Tensor
from ..files.writing import atomic_write

CELL, PAD = 38, 12
ROWS = ("#a8cdf0", "#b5e2b5", "#f6d8a8", "#f0b8c8", "#d6c4ee", "#bfe3e0", "#e8e29a", "#d8d8d8")


def draw(tensor: Tensor, path: str | os.PathLike | None = None, title: str = "") -> str:
    """Draws the shape, the strides and the storage of a vector or a matrix.

    Args:
        tensor: vector or matrix with a few dozen elements.
        path: path of an SVG file to write.
        title: title (default: the shape, the strides and the offset).

    Returns:
        The SVG.

    Raises:
        ValueError: if the tensor has another number of axes.

    Example:
        >>> mytorch.tools.views.draw(mytorch.arange(6).reshape(2, 3).T).count("<rect")
        13
    """
    if tensor.ndim not in (1, 2):
        raise ValueError(f"views.draw: expected a vector or a matrix, got shape {tuple(tensor.shape)}.")
    offset, strides = tensor.storage_offset(), tensor.stride()
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    whole = np.asarray(tensor.detach().cpu().as_strided((count,), (1,), 0))
    matrix = tensor.reshape(1, -1) if tensor.ndim == 1 else tensor
    rows, columns = matrix.shape
    steps = (0, *strides) if tensor.ndim == 1 else strides
    title = title or f"shape {tuple(tensor.shape)}, stride {tuple(strides)}, offset {offset}"
    colours, cells = {}, []
    for i in range(rows):
        for j in range(columns):
            place = offset + i * steps[0] + j * steps[1]
            colours.setdefault(place, ROWS[i % len(ROWS)])
            cells.append(_cell(PAD + j * CELL, 34 + i * CELL, whole[place], ROWS[i % len(ROWS)]))
    below = 34 + rows * CELL + 34
    for place, number in enumerate(whole):
        cells.append(_cell(PAD + place * CELL, below, number, colours.get(place, "#f7f7f7"), place, place in colours))
    width = max(len(whole), columns) * CELL + 2 * PAD
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 8 * len(title) + 2 * PAD)}" height="{below + CELL + 24}" '
        'font-family="monospace" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{PAD}" y="22">{escape(title)}</text>\n<text x="{PAD}" y="{below - 8}" fill="#666">storage</text>\n'
        + "\n".join(cells) + "\n</svg>\n"
    )  # fmt: skip
    if path is not None:
        atomic_write(path, svg.encode())
    return svg


def _cell(x, y, number, colour, place=None, used=True):
    """Draw a number in a box, with its position in memory below."""
    ink = "#000" if used else "#bbb"
    below = f'<text x="{x + CELL / 2}" y="{y + CELL + 14}" font-size="10" fill="#888">{place}</text>'
    note = "" if place is None else below
    return (
        f'<g text-anchor="middle"><rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}" stroke="#777"/>'
        f'<text x="{x + CELL / 2}" y="{y + CELL / 2 + 5}" fill="{ink}">{number:g}</text>{note}</g>'
    )
