"""Runs all cells of a parametrized test in one test, because a test costs more than most cells do.

    @loop
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("op", OPS)
    def test_values(op, dtype): ...

`test_values` runs each op in each dtype and reports all cells that fail. Every cell starts from the same random state, with
its own `rng`, `tmp_path` and `monkeypatch`. `pytest --cell exp-float64` runs only the cells with this text in their names, and
`--cells 20` at most 20 cells of each test, evenly spaced. `--each 3` runs a sample in which each value of each parameter is at
least once; the number is its seed.
"""

import functools
import inspect
import itertools
import random
import traceback
import warnings
import zlib

import numpy as np
import pytest

SELECTED = {"cell": None, "cells": None, "each": None}  # the options --cell, --cells and --each
LEFT_OUT = set()  # the marks of cells that do not run on this device: some of MARKS
MARKS = {"cpu_only", "slow"}
SHARED = {"capsys", "caplog", "recwarn", "request", "self"}  # one cell would see what another one left


def seed():
    """Sets the random state from which every test and every cell starts."""
    import mytorch

    random.seed(0)
    np.random.seed(0)
    mytorch.manual_seed(0)


def named(value, name, number):
    """Returns the name of a value in the name of its cell."""
    if isinstance(value, (str, int, float, bool, complex, bytes)) or value is None:
        return str(value)
    return getattr(value, "__name__", None) or f"{name}{number}"


def axis(mark):
    """Returns (names, [(id, values, marks)]) of one mark `parametrize`."""
    names, rows = mark.args[:2]
    ids = mark.kwargs.get("ids")
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    out = []
    for number, row in enumerate(rows):
        param = row if hasattr(row, "marks") else None
        marks = {mark.name for mark in param.marks} if param is not None else set()
        if marks - MARKS:
            raise ValueError(f"loop: expected the marks {sorted(MARKS)}, got {marks}. Call pytest.skip in the test.")
        values = tuple(param.values) if param is not None else (row,) if len(names) == 1 else tuple(row)
        if param is not None and isinstance(param.id, str):
            label = param.id
        elif ids is not None and not callable(ids):
            label = str(list(ids)[number])
        else:
            given = [ids(value) if callable(ids) else None for value in values]
            label = "-".join(
                str(g) if g is not None else named(v, n, number) for g, v, n in zip(given, values, names, strict=True)
            )
        out.append((label, values, marks))
    return names, out


def covering(rows, seed):
    """Returns the fewest index tuples that contain each index of each axis; `rows` are the lengths of the axes.

    The longest axis runs through its values once. The others repeat theirs from a place that the seed chooses, and move on by one
    after each round, so that the pairs of values differ from round to round.
    """
    first = [zlib.crc32(f"{seed} {axis}".encode()) for axis in range(len(rows))]
    return sorted(
        {
            tuple((i + start + (i // n if n < max(rows) else 0)) % n for n, start in zip(rows, first, strict=True))
            for i in range(max(rows, default=1) if all(rows) else 0)
        }
    )


def loop(function=None, *, parts=1):
    """Returns a test that runs all cells of a test; `parts` divides them among several tests, which run in parallel."""
    if function is None:
        return functools.partial(loop, parts=parts)
    axes = [axis(mark) for mark in function.pytestmark if mark.name == "parametrize"]
    names = [name for found, _ in axes for name in found]
    cells = [
        (
            "-".join(label for label, _, _ in cell),
            dict(zip(names, (value for _, values, _ in cell for value in values), strict=True)),
            set().union(*(marks for _, _, marks in cell)),
        )
        for cell in itertools.product(*(rows for _, rows in axes))
    ]
    lengths = [len(rows) for _, rows in axes]

    def sample():
        """The cells, or the sample of `--each`."""
        if SELECTED["each"] is None:
            return cells
        return [cells[np.ravel_multi_index(index, lengths)] for index in covering(lengths, SELECTED["each"])]

    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in names]
    if {p.name for p in parameters} & SHARED:
        raise ValueError(f"loop: expected no fixture of {sorted(SHARED)}, got {function.__name__}.")

    @functools.wraps(function)
    def run(part=0, **fixtures):
        chosen = [
            cell[:2] for cell in sample()[part::parts] if not cell[2] & LEFT_OUT and (SELECTED["cell"] or "") in cell[0]
        ]
        most = min(len(chosen), -(-SELECTED["cells"] // parts) if SELECTED["cells"] else len(chosen))
        run_cells(function, [chosen[i * len(chosen) // most] for i in range(most)], fixtures)

    extra = [inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY)] if parts > 1 else []
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature([*parameters, *extra])
    run.pytestmark = [mark for mark in function.pytestmark if mark.name != "parametrize"]
    run.cells = len(cells)
    return pytest.mark.parametrize("part", range(parts))(run) if parts > 1 else run


def run_cells(function, cells, fixtures):
    """Calls a function with each cell, and reports all cells that fail.

    Raises:
        AssertionError: at least one cell failed.
    """
    failed, skipped, folder = [], [], fixtures.get("tmp_path")
    for number, (label, values) in enumerate(cells):
        seed()
        own = dict(fixtures)
        if "rng" in own:
            own["rng"] = np.random.default_rng(0)
        if "torch" in own:
            own["torch"].manual_seed(0)
        if folder is not None:
            own["tmp_path"] = folder / str(number)
            own["tmp_path"].mkdir()
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            if "monkeypatch" in own:
                own["monkeypatch"] = patch
            try:
                function(**values, **own)
            except pytest.skip.Exception as reason:
                skipped.append(str(reason))
            except (Exception, pytest.fail.Exception) as error:
                failed.append((label, error))
    if len(skipped) == len(cells):
        pytest.skip(skipped[0] if skipped else "no cell is selected")
    if failed:
        lines = [f"{label}: {type(error).__name__}: {str(error).strip()[:300]}" for label, error in failed]
        first = "".join(traceback.format_exception(failed[0][1]))
        pytest.fail(
            f"{len(failed)} of {len(cells)} cells failed:\n" + "\n".join(lines) + f"\n\nThe first one:\n{first}",
            pytrace=False,
        )
