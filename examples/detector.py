"""Detect squares and discs in synthetic images with a small Faster R-CNN. Source: Ren et al., 2015.

python -m examples.detector --steps 450 --save detections.png
"""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from mytorch import nn, vision
from mytorch.cli.arguments import ArgumentParser, count, positive, run_script
from mytorch.vision.models.detection import AnchorGenerator, FasterRCNN, FastRCNNPredictor, TwoMLPHead
from mytorch.vision.ops import Conv2dNormActivation, MultiScaleRoIAlign, box_iou

SIZE, KINDS = 64, ("background", "square", "disc")


def scene(shapes=2):
    """Returns an image (3, 64, 64) with noise and up to `shapes` objects, and its target."""
    image = 0.3 * mytorch.rand(3, SIZE, SIZE)
    y, x = mytorch.meshgrid(mytorch.arange(SIZE), mytorch.arange(SIZE), indexing="ij")
    boxes, labels = [], []
    for i in range(int(mytorch.randint(1, shapes + 1, (1,)))):
        width = int(mytorch.randint(12, 26, (1,)))
        top = int(mytorch.randint(0, SIZE - width, (1,)))
        left = int(mytorch.randint(0, SIZE // 2 - width, (1,))) + SIZE // 2 * i  # one object on each side
        kind = int(mytorch.randint(1, 3, (1,)))
        inside = (y >= top) & (y < top + width) & (x >= left) & (x < left + width)
        if kind == 2:
            inside &= (y + 0.5 - top - width / 2) ** 2 + (x + 0.5 - left - width / 2) ** 2 <= width**2 / 4
        color = 0.4 + 0.6 * mytorch.rand(3, 1, 1)
        image = mytorch.where(inside, color, image)
        boxes.append([left, top, left + width, top + width])
        labels.append(kind)
    return image, {"boxes": mytorch.tensor(boxes, dtype=mytorch.float32), "labels": mytorch.tensor(labels)}


def build():
    """Returns a Faster R-CNN with four convolutions as its backbone."""
    widths = (3, 16, 32, 48, 48)
    layers = [
        Conv2dNormActivation(a, b, stride=2 if i < 3 else 1) for i, (a, b) in enumerate(itertools.pairwise(widths))
    ]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = widths[-1]
    return FasterRCNN(
        backbone, min_size=SIZE, max_size=SIZE, image_mean=[0.5] * 3, image_std=[0.25] * 3,
        rpn_anchor_generator=AnchorGenerator(((12, 18, 25),), ((1.0,),)), rpn_pre_nms_top_n_train=100, rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_train=40, rpn_post_nms_top_n_test=20, rpn_batch_size_per_image=64, box_batch_size_per_image=24,
        box_roi_pool=MultiScaleRoIAlign(["0"], 5, 2), box_head=TwoMLPHead(48 * 25, 96), box_predictor=FastRCNNPredictor(96, len(KINDS)),
        box_score_thresh=0.5, box_nms_thresh=0.3,
    )  # fmt: skip


def found(result, target):
    """Returns the number of objects with a detection of the same kind and an overlap of at least 0.5."""
    if not len(result["boxes"]):
        return 0
    hits = (box_iou(target["boxes"], result["boxes"]) >= 0.5) & (target["labels"][:, None] == result["labels"])
    return int(hits.any(1).sum())


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=450, help="number of training steps")
    parser.add_argument("--batch_size", type=count, default=4, help="number of images in a step")
    parser.add_argument("--lr", type=positive, default=0.002, help="learning rate")
    parser.add_argument("--save", help="image file for one test image with its detections (default: none)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    model = build()
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(1, args.steps + 1):
        images, targets = zip(*(scene() for _ in range(args.batch_size)), strict=True)
        losses = model(list(images), list(targets))
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(args.steps // 5, 1) == 0:
            print(f"step {step}  loss {loss.item():.3f}")
    model.eval()
    tests = [scene() for _ in range(40)]
    with mytorch.no_grad():
        results = model([image for image, _ in tests])
    hits = sum(found(result, target) for result, (_, target) in zip(results, tests, strict=True))
    total = sum(len(target["labels"]) for _, target in tests)
    print(
        f"share of objects found: {hits / total:.2f}, boxes per object: {sum(len(r['boxes']) for r in results) / total:.2f}"
    )
    if args.save:
        image = (tests[0][0] * 255).to(mytorch.uint8)
        image = vision.transforms.functional.resize(image, 4 * SIZE)
        for x1, y1, x2, y2 in (results[0]["boxes"] * 4).round().long().clamp(0, 4 * SIZE - 1).tolist():
            image[0, [y1, y2], x1 : x2 + 1] = 255
            image[0, y1 : y2 + 1, [x1, x2]] = 255
        vision.io.write_png(image, args.save)


if __name__ == "__main__":
    run_script(main)
