"""Detect squares and discs in synthetic images with a small Faster R-CNN. Source: Ren et al., 2015.

This is a program for PyTorch and torchvision, which runs on mytorch without changes:

pip install --no-deps torchvision==0.28.0
python -m mytorch -m examples.detector --steps 450 --save detections.png
"""

import argparse
import itertools

import torch
import torchvision
from torch import nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FasterRCNN, FastRCNNPredictor, TwoMLPHead
from torchvision.ops import Conv2dNormActivation, MultiScaleRoIAlign, box_iou

SIZE, KINDS = 64, ("background", "square", "disc")


def scene(shapes=2):
    """Returns an image (3, 64, 64) with noise and up to `shapes` objects, and its target."""
    image = 0.3 * torch.rand(3, SIZE, SIZE)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    boxes, labels = [], []
    for i in range(int(torch.randint(1, shapes + 1, (1,)))):
        width = int(torch.randint(12, 26, (1,)))
        top = int(torch.randint(0, SIZE - width, (1,)))
        left = int(torch.randint(0, SIZE // 2 - width, (1,))) + SIZE // 2 * i  # one object on each side
        kind = int(torch.randint(1, 3, (1,)))
        inside = (y >= top) & (y < top + width) & (x >= left) & (x < left + width)
        if kind == 2:
            inside &= (y + 0.5 - top - width / 2) ** 2 + (x + 0.5 - left - width / 2) ** 2 <= width**2 / 4
        color = 0.4 + 0.6 * torch.rand(3, 1, 1)
        image = torch.where(inside, color, image)
        boxes.append([left, top, left + width, top + width])
        labels.append(kind)
    return image, {"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=450, help="number of training steps")
    parser.add_argument("--batch_size", type=int, default=4, help="number of images in a step")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--save", help="image file for one test image with its detections (default: none)")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
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
    with torch.no_grad():
        results = model([image for image, _ in tests])
    hits = sum(found(result, target) for result, (_, target) in zip(results, tests, strict=True))
    total = sum(len(target["labels"]) for _, target in tests)
    print(
        f"share of objects found: {hits / total:.2f}, boxes per object: {sum(len(r['boxes']) for r in results) / total:.2f}"
    )
    if args.save:
        image = (tests[0][0] * 255).to(torch.uint8)
        image = torchvision.transforms.functional.resize(image, 4 * SIZE)
        image = torchvision.utils.draw_bounding_boxes(image, results[0]["boxes"] * 4, colors="white")
        torchvision.utils.save_image(image / 255, args.save)


if __name__ == "__main__":
    main()
