"""Memory timeline of a profile: bytes of each category over time, as numbers and as an image."""

import gzip
import json
from html import escape
from typing import Any

from ..files.writing import atomic_write

CATEGORIES = {  # in PyTorch's order, with similar colors
    "PARAMETER": "#2e7d32", "OPTIMIZER_STATE": "#daa520", "INPUT": "#37474f", "TEMPORARY": "#9575cd", "ACTIVATION": "#e05545",
    "GRADIENT": "#2f5fd0", "AUTOGRAD_DETAIL": "#7fa8f5", "UNKNOWN": "#9e9e9e",
}  # fmt: skip
WIDTH, HEIGHT, LEFT, TOP = 900, 360, 90, 60  # size and margins of the image
POINTS = 1500  # maximum number of points across the image


def timeline(blocks: Any, events: Any) -> tuple[list[float], list[list[int]]]:
    """Returns (microseconds, [0, bytes of each category]) for each change, in PyTorch's format.

    Args:
        blocks: blocks of memory of a profile.
        events: events of the profile, which determine the time range.
    """
    first = min([e.start for e in events] + [b.start for b in blocks if b.start], default=0.0)
    last = max([e.end for e in events], default=first)
    changes = [(b.start or first, b.size, b.category) for b in blocks]
    changes += [(b.end, -b.size, b.category) for b in blocks if b.end]
    times, sizes, places = [first], [[0] * (len(CATEGORIES) + 1)], list(CATEGORIES)
    for time, change, category in sorted(changes, key=lambda c: c[0]):
        if time != times[-1]:
            times.append(time)
            sizes.append(list(sizes[-1]))
        sizes[-1][places.index(category) + 1] += change
    return [*times, max(last, times[-1])], [*sizes, list(sizes[-1])]


def write_timeline(path: Any, times: Any, sizes: Any, device: str) -> None:
    """Writes a timeline to a file of type .html, .svg, .json or .json.gz.

    Args:
        path: path of the file.
        times: microseconds of the changes.
        sizes: bytes of each category after each change.
        device: name of the device.

    Raises:
        ValueError: if the file type is not supported.
    """
    name = str(path)
    if name.endswith((".json", ".json.gz")):
        text = json.dumps([times, sizes])
    elif name.endswith((".svg", ".html")):
        text = svg(times, sizes, device)
    else:
        raise ValueError(
            f"export_memory_timeline: expected a file name ending in .html, .svg, .json or .json.gz, got {name}."
        )
    if name.endswith(".html"):
        text = f'<!doctype html><meta charset="utf-8"><title>Memory timeline</title>\n{text}'
    atomic_write(path, gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def svg(times: Any, sizes: Any, device: str) -> str:
    """Returns a timeline as an SVG image with stacked categories, parameters at the bottom.

    Args:
        times: microseconds of the changes.
        sizes: bytes of each category after each change.
        device: name of the device.
    """
    peak = max(sum(row) for row in sizes)
    end = max(times[-1] - times[0], 1e-9)
    unit, scale = next(
        (n, s) for n, s in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)) if peak >= s or s == 1
    )
    rows = list(_thinned(times, sizes, end))
    right, bottom = LEFT + WIDTH, TOP + HEIGHT

    def y(count):
        return round(bottom - HEIGHT * count / max(peak, 1), 1)

    parts = [f'<rect x="0" y="0" width="{right + 230}" height="{bottom + 60}" fill="#ffffff"/>']
    title = f"Memory on {device}: at most {peak / scale:.1f} {unit}, in {end / 1e3:.1f} ms"
    parts.append(f'<text x="{LEFT}" y="32" font-size="18">{escape(title)}</text>')
    for k in range(5):
        at = y(peak * k / 4)
        parts.append(f'<path d="M{LEFT} {at}H{right}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 5}" text-anchor="end">{peak * k / 4 / scale:.1f} {unit}</text>')
        across = LEFT + WIDTH * k / 4
        parts.append(f'<text x="{across}" y="{bottom + 22}" text-anchor="middle">{end * k / 4e3:.1f} ms</text>')
    shown = 0
    for i, (name, colour) in enumerate(CATEGORIES.items(), 1):
        most = max(row[i] for row in sizes)
        if not most:
            continue
        upper = [(x, y(sum(row[: i + 1]))) for x, row in rows]
        lower = [(x, y(sum(row[:i]))) for x, row in rows]
        path = f"M{upper[0][0]} {upper[0][1]}" + _steps(upper)
        path += f"V{lower[-1][1]}" + _steps_back(lower) + "Z"
        parts.append(f'<path d="{path}" fill="{colour}"/>')
        at = bottom - 14 - 26 * shown
        shown += 1
        parts.append(f'<rect x="{right + 16}" y="{at - 12}" width="14" height="14" fill="{colour}"/>')
        words = name.lower().replace("_", " ")
        parts.append(f'<text x="{right + 38}" y="{at}">{words}: {most / scale:.1f} {unit}</text>')
    size = f'viewBox="0 0 {right + 230} {bottom + 60}" width="{right + 230}" style="max-width: 100%"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14">'
    return "\n".join([head, *parts, "</svg>\n"])


def _thinned(times, sizes, end):
    """Return (x, row) of the changes; of changes in the same column, the row with the most bytes."""
    found = {}
    for time, row in zip(times, sizes, strict=True):
        x = round(LEFT + WIDTH * round((time - times[0]) / end * POINTS) / POINTS, 1)
        if x not in found or sum(row) > sum(found[x]) or time == times[-1]:
            found[x] = row
    return found.items()


def _steps(points):
    """Return a step path along points: each value holds until the next."""
    return "".join(f"H{x}V{y}" for x, y in points[1:])


def _steps_back(points):
    """Return the step path from the last point to the first."""
    return "".join(f"V{y}H{x}" for x, y in reversed(points[:-1])) + f"V{points[0][1]}"
