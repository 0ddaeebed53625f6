"""Boxes and arrows as SVG, with the layered layout of Sugiyama, Tagawa and Toda (1981) in four steps.

1. `_layers`: a box is below all boxes that point to it. A leaf is directly above its first user.
2. `_with_bends`: an arrow over several layers gets a bend in each layer, so that arrows connect adjacent layers only.
3. `_order`: boxes of a layer are sorted by the mean position of their neighbors, in several sweeps, to reduce crossings.
4. `_places`: each box is as near to the mean of its neighbors as the layer permits. This is isotonic regression, solved by
   pooling adjacent violators.
"""

from html import escape
from itertools import pairwise

LINE, CHAR, PAD = 16, 7.3, 10  # line height, character width, margin
GAP, RISE = 26, 42  # between boxes, between layers
SWEEPS = 12


def svg_of(boxes, arrows, colours, direction="TB", caption=""):
    """Return an SVG of `boxes` (key -> (kind, lines)) and `arrows` ((from, to, label), …), with `colours` by kind."""
    sizes = {k: (max(map(len, text)) * CHAR + 2 * PAD, len(text) * LINE + PAD) for k, (_, text) in boxes.items()}
    across = direction in ("LR", "RL")
    least = len(caption) * CHAR + 2 * PAD
    breadth = {k: size[across] for k, size in sizes.items()}
    length = {k: size[not across] for k, size in sizes.items()}
    layers = _layers(boxes, arrows)
    paths, rows = _with_bends(arrows, layers, boxes)
    links = _links(paths)
    _order(rows, links)
    x = _places(rows, links, breadth)
    tops, bottom = [], PAD
    for row in rows:
        tops.append(bottom)
        bottom += max(length.get(k, 0) for k in row) + RISE
    depth = bottom - RISE + PAD
    layer_of = {k: i for i, row in enumerate(rows) for k in row}
    thick = [max(length.get(k, 0) for k in row) for row in rows]
    left = min(x[k] - breadth.get(k, 0) / 2 for k in x) - PAD
    wide = max(x[k] + breadth.get(k, 0) / 2 for k in x) + PAD - left
    if wide < least and not across:
        left, wide = left - (least - wide) / 2, least

    def point(along, down):
        """Convert a position in the layered plane to the image."""
        along -= left
        if direction in ("BT", "RL"):
            down = depth - down
        return (down, along) if across else (along, down)

    def middle(key):
        return tops[layer_of[key]] + thick[layer_of[key]] / 2

    parts = []
    for path, label in paths:
        parts.append(_arrow(path, label, x, middle, length, tops, thick, layer_of, point))
    for key, (kind, text) in boxes.items():
        parts.append(_box(*point(x[key], middle(key)), *sizes[key], text, colours[kind]))
    width, height = (depth, wide) if across else (wide, depth)
    width = max(width, least)
    if caption:
        parts.append(f'<text x="{PAD}" y="{height + LINE:.0f}" fill="#555">{escape(caption)}</text>')
        height += 2 * LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="monospace" font-size="12">\n<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _layers(boxes, arrows):
    """Return key -> layer: one more than the deepest predecessor; a box without predecessors is above its first user."""
    waits, users = dict.fromkeys(boxes, 0), {k: [] for k in boxes}
    for start, end, _ in arrows:
        waits[end] += 1
        users[start].append(end)
    layer = dict.fromkeys(boxes, 0)
    ready = [k for k in boxes if not waits[k]]
    sources = set(ready)
    while ready:
        key = ready.pop()
        for user in users[key]:
            layer[user] = max(layer[user], layer[key] + 1)
            waits[user] -= 1
            if not waits[user]:
                ready.append(user)
    for key in sources:
        layer[key] = min((layer[user] for user in users[key]), default=1) - 1
    return layer


def _with_bends(arrows, layers, boxes):
    """Return ([keys along an arrow], label) for each arrow, and the rows of keys. A bend has the key (number of arrow, layer)."""
    rows = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for key in boxes:
        rows[layers[key]].append(key)
    paths = []
    for n, (start, end, label) in enumerate(arrows):
        step = 1 if layers[end] >= layers[start] else -1
        bends = [("bend", n, i) for i in range(layers[start] + step, layers[end], step)]
        for bend in bends:
            rows[bend[2]].append(bend)
        paths.append(([start, *bends, end], label))
    return paths, rows


def _links(paths):
    """Return key -> (neighbors before it, neighbors after it)."""
    links = {}
    for path, _ in paths:
        for a, b in pairwise(path):
            links.setdefault(a, ([], []))[1].append(b)
            links.setdefault(b, ([], []))[0].append(a)
    return links


def _order(rows, links):
    for sweep in range(SWEEPS):
        side = sweep % 2  # 0: downward, by the neighbors above
        place = {k: i / len(row) for row in rows for i, k in enumerate(row)}
        for row in rows[:: -1 if side else 1]:
            near = {k: [place[other] for other in links.get(k, ((), ()))[side]] or [place[k]] for k in row}
            row.sort(key={k: sum(v) / len(v) for k, v in near.items()}.get)
            place.update((k, i / len(row)) for i, k in enumerate(row))


def _places(rows, links, breadth):
    """Return key -> center of the box along its layer."""
    x, gaps = {}, []
    for row in rows:
        offsets, end = [], 0.0
        for i, key in enumerate(row):
            if i:
                end += (breadth.get(row[i - 1], 0) + breadth.get(key, 0)) / 2 + GAP
            offsets.append(end)
        gaps.append(offsets)
        x.update((k, offset - end / 2) for k, offset in zip(row, offsets, strict=True))
    for sweep in range(SWEEPS):
        order = range(len(rows))
        for r in reversed(order) if sweep % 2 else order:
            wanted = []
            for key, offset in zip(rows[r], gaps[r], strict=True):
                before, after = links.get(key, ([], []))
                near = before + after if sweep >= SWEEPS // 2 else (after if sweep % 2 else before) or before + after
                wanted.append((sum(x[k] for k in near) / len(near) if near else x[key]) - offset)
            x.update((k, w + o) for k, w, o in zip(rows[r], _isotonic(wanted), gaps[r], strict=True))
    return x


def _isotonic(values):
    """Return the nearest non-decreasing numbers to `values`."""
    pools = []  # [sum, count]
    for value in values:
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    return [total / count for total, count in pools for _ in range(count)]


def _arrow(path, label, x, middle, length, tops, thick, layer_of, point):
    """Draw a curve from the lower edge of the first box through the bends to the upper edge of the last."""
    start, *bends, end = path
    marks = [(x[start], middle(start) + length[start] / 2)]
    for bend in bends:  # straight within its layer
        r = layer_of[bend]
        marks += [(x[bend], tops[r]), (x[bend], tops[r] + thick[r])]
    marks.append((x[end], middle(end) - length[end] / 2))
    at = point(*marks[0])
    d = f"M{at[0]:.1f},{at[1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(marks):
        half = (y0 + y1) / 2
        d += " C" + " ".join(f"{a:.1f},{b:.1f}" for a, b in (point(x0, half), point(x1, half), point(x1, y1)))
    text = ""
    if label:
        a, b = point(marks[0][0], marks[0][1] + RISE / 3)
        text = f'<text x="{a + 4:.1f}" y="{b + 4:.1f}" fill="#666" font-size="10">{escape(label)}</text>'
    return f'<path d="{d}" fill="none" stroke="#666" marker-end="url(#tip)"/>{text}'


def _box(cx, cy, w, h, text, colour):
    top = cy - h / 2
    lines = []
    for i, line in enumerate(text):
        style = ' font-weight="bold"' if i == 0 else ' fill="#444"'
        lines.append(f'<text x="{cx:.1f}" y="{top + PAD / 2 + (i + 0.75) * LINE:.1f}"{style}>{escape(line)}</text>')
    return (
        f'<g text-anchor="middle"><rect x="{cx - w / 2:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" rx="5" '
        f'fill="{colour}" stroke="#555"/>{"".join(lines)}</g>'
    )
