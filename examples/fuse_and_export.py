"""Train a small network, fuse its batch norms, and export it with a dynamic batch.

python -m examples.fuse_and_export
"""

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from mytorch import fx, nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.export import Dim, export, load, save


def stripes(number):
    """Returns noisy images of horizontal (0) and vertical (1) stripes, and their classes."""
    classes = mytorch.randint(0, 2, (number,))
    wave = (mytorch.arange(8) % 2).float().expand(number, 1, 8, 8)
    images = mytorch.where(classes[:, None, None, None] == 1, wave, wave.transpose(2, 3))
    return images + 0.3 * mytorch.randn(number, 1, 8, 8), classes


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=60, help="number of training steps")
    parser.add_argument("--lr", type=positive, default=0.02, help="learning rate")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="ONNX file for the model (needs onnx)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    for _ in range(args.steps):
        images, classes = stripes(32)
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    fused = fx.experimental.optimization.fuse(model)
    print(fused.code.strip())

    images, classes = stripes(200)
    program = export(fused, (images[:4],), dynamic_shapes=({0: Dim("batch")},))
    file = io.BytesIO()
    save(program, file)  # the graph and the parameters, without Python code
    file.seek(0)
    loaded = load(file).module()
    difference = (loaded(images) - model(images)).abs().max().item()
    print(f"saved {file.getbuffer().nbytes} bytes; the largest difference from the model is {difference:.1e}")
    if args.save:
        mytorch.onnx.export(program, f=args.save, input_names=["images"], output_names=["logits"])
    print(f"accuracy {(loaded(images).argmax(1) == classes).float().mean().item():.2f}")


if __name__ == "__main__":
    run_script(main)
