"""Draw the graph of a linear function with its operations, saved values and gradients.

python -m examples.graph --save graph.svg
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from mytorch.cli.arguments import ArgumentParser, new_file, run_script
from mytorch.tools.drawing import draw


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--save", type=new_file, default="graph.svg", help="output file: .svg or .dot; .png and .pdf need Graphviz"
    )
    parser.add_argument("--show", action="store_true", help="open the drawing in the browser")
    args = parser.parse_args()
    mytorch.manual_seed(0)
    x, w, b = (mytorch.rand(*shape, requires_grad=True) for shape in ((2, 4), (3, 4), (3,)))
    y = x @ w.transpose(1, 0) + b
    y.retain_grad()
    loss = y.square().mean()
    loss.backward(retain_graph=True)
    drawing = draw(loss, args.save, {"x": x, "w": w, "b": b})
    print(f"{drawing.caption}\nsaved to {args.save}: {len(drawing.boxes)} boxes")
    if args.show:
        drawing.show()


if __name__ == "__main__":
    run_script(main)
