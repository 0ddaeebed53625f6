"""Run the cells of a notebook in this process and write the outputs into the file, without Jupyter.

    python docs/run_notebook.py examples/tiny_gpt2.ipynb

The outputs are printed text, figures of matplotlib, and a drawing in the last line of a cell. If a cell raises an error, the file
is not changed.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
from pathlib import Path


def figures():
    """Yields the open figures of matplotlib as outputs of a cell and closes them."""
    plt = sys.modules.get("matplotlib.pyplot")
    for number in plt.get_fignums() if plt is not None else ():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=80, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": ["<Figure>"]}
        yield {"output_type": "display_data", "data": data, "metadata": {}}
        plt.close(number)


def drawing(value, count):
    """Yields the output of a cell whose last line is an object with an SVG representation."""
    if hasattr(value, "_repr_svg_"):
        data = {"image/svg+xml": value._repr_svg_().splitlines(keepends=True), "text/plain": ["<drawing>"]}
        yield {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": count}


def run(book, change=lambda source: source):
    """Runs a notebook (a dict) and stores its outputs; `change` maps the source of a cell to the source that runs."""
    names, count = {"__name__": "__main__"}, 0
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        printed, tree = io.StringIO(), ast.parse(change("".join(cell["source"])))
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"<cell {count}>", "exec"), names)
            value = last and eval(compile(last, f"<cell {count}>", "eval"), names)
        text = printed.getvalue().splitlines(keepends=True)
        stream = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
        cell.update(execution_count=count, outputs=[*stream, *figures(), *drawing(value, count)])


def main():
    os.environ.setdefault("MPLBACKEND", "Agg")
    path = Path(sys.argv[1]).resolve()
    book = json.loads(path.read_text(encoding="utf-8"))
    os.chdir(path.parent)
    run(book)
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
