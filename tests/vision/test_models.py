"""Networks, boxes and regions of `mytorch.vision`, compared with formulas. Their operators are compared with torchvision in tests/packages."""

import numpy as np
import pytest

import mytorch
from mytorch import vision
from mytorch.vision import ops


@pytest.mark.parametrize(
    ("name", "parameters", "keys"),
    [("resnet18", 11689512, 122), ("resnet50", 25557032, 320), ("resnext50_32x4d", 25028904, 320)],
)
def test_networks_have_torchvisions_numbers_of_parameters(name, parameters, keys):
    model = getattr(vision.models, name)()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(model.state_dict()) == keys


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_residual_networks_learn(name):
    mytorch.manual_seed(0)
    model = getattr(vision.models, name)(num_classes=3)
    x = mytorch.randn(4, 3, 33, 35)
    loss = mytorch.nn.functional.cross_entropy(model(x), mytorch.tensor([0, 1, 2, 1]))
    loss.backward()
    assert all(p.grad is not None and mytorch.isfinite(p.grad).all() for p in model.parameters())
    assert model.eval()(x).shape == (4, 3)


def test_a_dilated_network_keeps_its_resolution():
    model = vision.models.resnet50(num_classes=2, replace_stride_with_dilation=[False, True, True])
    x = model.relu(model.bn1(model.conv1(mytorch.randn(1, 3, 64, 64))))
    assert model.layer4(model.layer3(model.layer2(model.layer1(model.maxpool(x))))).shape[-2:] == (8, 8)


def test_weights_are_files():
    with pytest.raises(ValueError, match="not downloaded"):
        vision.models.resnet18(weights="IMAGENET1K_V1")


def boxes(n, seed=0):
    g = np.random.default_rng(seed)
    corner, size = g.uniform(0, 20, (n, 2)), g.uniform(1, 15, (n, 2))
    return mytorch.tensor(np.concatenate([corner, corner + size], 1).astype(np.float32)), g


def test_overlaps_are_counted():
    a = boxes(1)[0] * 0 + mytorch.tensor([0.0, 0.0, 2.0, 2.0])
    b = mytorch.tensor([[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
    assert np.allclose(ops.box_iou(a, b).numpy(), [[1 / 7, 1, 0]])
    assert np.allclose(ops.generalized_box_iou(a, b).numpy(), [[1 / 7 - 2 / 9, 1, -(36 - 5) / 36]])
    assert ops.box_area(b).tolist() == [4, 4, 1]


def test_forms_of_boxes_go_round():
    a, _ = boxes(7)
    for form in ("xywh", "cxcywh"):
        back = ops.box_convert(ops.box_convert(a, "xyxy", form), form, "xyxy")
        assert np.allclose(back.numpy(), a.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="expected formats in"):
        ops.box_convert(a, "xyxy", "yxyx")
    assert ops.clip_boxes_to_image(a, (10, 12)).numpy()[:, [0, 2]].max() <= 12
    assert ops.remove_small_boxes(mytorch.tensor([[0.0, 0, 1, 9], [0, 0, 4, 4]]), 2).tolist() == [1]


@pytest.mark.parametrize("n", [0, 1, 40])
def test_suppression_keeps_boxes_not_covered_by_better_boxes(n):
    a, g = boxes(n)
    scores = mytorch.tensor(g.permutation(n).astype(np.float32))
    kept = ops.nms(a, scores, 0.4).tolist()
    iou, order = ops.box_iou(a, a).numpy(), np.argsort(-scores.numpy(), kind="stable")
    wanted = []
    for i in order:
        if all(iou[i, j] <= 0.4 for j in wanted):
            wanted.append(i)
    assert kept == wanted
    groups = mytorch.tensor(g.integers(0, 3, n))
    parts = [
        i
        for c in range(3)
        for i in np.flatnonzero(groups.numpy() == c)[ops.nms(a[groups == c], scores[groups == c], 0.4).numpy()]
    ]
    assert sorted(ops.batched_nms(a, scores, groups, 0.4).tolist()) == sorted(parts)


def test_regions_of_a_plane_are_its_values():
    """For an image linear in x and y, the result is the value at the center of the bin, for any number of samples."""
    y, x = np.mgrid[:20, :30].astype(np.float32)
    picture = mytorch.tensor((2 * x + 3 * y)[None, None])
    rows = mytorch.tensor([[0.0, 4.0, 5.0, 16.0, 11.0]])
    for ratio in (-1, 1, 3):
        out = ops.roi_align(picture, rows, (3, 4), 1.0, ratio, aligned=True).numpy()[0, 0]
        wanted = 2 * (4 + 3 * (np.arange(4) + 0.5) - 0.5) + 3 * (5 + 2 * (np.arange(3)[:, None] + 0.5) - 0.5)
        assert np.allclose(out, wanted, atol=1e-4)
    assert ops.roi_align(picture, [rows[:, 1:]], 2).shape == (1, 1, 2, 2)
    assert ops.roi_align(picture, rows[:0], 2).shape == (0, 1, 2, 2)


def test_regions_pass_gradients_on():
    picture = mytorch.randn(1, 2, 9, 9, dtype=mytorch.float64, requires_grad=True)
    rows = mytorch.tensor([[0.0, 1.2, 2.1, 6.3, 7.7]], dtype=mytorch.float64)
    assert mytorch.autograd.gradcheck(lambda p: ops.roi_align(p, rows, 3, 0.9, 2), (picture,))
