"""Detectors, segmentation networks and feature pyramids, compared with formulas and with torchvision where it is installed."""

import numpy as np
import pytest

import mytorch
from mytorch import vision
from mytorch.vision import ops
from mytorch.vision.models import detection, segmentation
from mytorch.vision.models.detection import boxes as parts

IMAGES = [(3, 80, 100), (3, 120, 70)]
TARGETS = [([[10, 10, 50, 60], [30, 20, 90, 70]], [1, 3]), ([[5, 8, 60, 100]], [2])]


def _images(make):
    generator = np.random.default_rng(0)
    return [make(generator.random(shape).astype(np.float32)) for shape in IMAGES]


def _targets(make):
    return [{"boxes": make(np.array(b, np.float32)), "labels": make(np.array(n))} for b, n in TARGETS]


def test_anchors_are_centered_on_the_positions():
    generator = detection.AnchorGenerator(((32,), (64,)), ((0.5, 1.0, 2.0),) * 2)
    anchors = generator((64, 96), [mytorch.zeros(1, 2, 8, 12), mytorch.zeros(1, 2, 4, 6)]).numpy()
    assert anchors.shape == (3 * (8 * 12 + 4 * 6), 4)
    centers, sizes = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]
    np.testing.assert_array_equal(centers[3 * 13], [8, 8])
    np.testing.assert_allclose(sizes[:288].prod(1), 32**2, rtol=0.05)
    np.testing.assert_allclose((sizes[:, 1] / sizes[:, 0])[::3], 0.5, rtol=0.06)
    assert generator.num_anchors_per_location() == [3, 3]


def test_codes_of_boxes_are_decoded():
    generator = np.random.default_rng(0)
    corners, sizes = generator.uniform(0, 50, (2, 9, 2)), generator.uniform(1, 30, (2, 9, 2))
    boxes, references = (mytorch.tensor(b) for b in np.concatenate([corners, corners + sizes], -1))
    coder = parts.BoxCoder((10.0, 10.0, 5.0, 5.0))
    np.testing.assert_allclose(coder.decode(coder.encode(boxes, references), references)[:, 0].numpy(), boxes.numpy())
    shifted = coder.decode(mytorch.tensor([[10.0, 0.0, 0.0, 5 * np.log(2)]]).double(), references[:1])[0, 0]
    (x1, y1, x2, y2), width = references[0].tolist(), float(references[0, 2] - references[0, 0])
    half = y2 - y1
    np.testing.assert_allclose(shifted.numpy(), [x1 + width, y1 - half / 2, x2 + width, y2 + half / 2])


def test_boxes_are_matched_by_their_overlap():
    overlap = mytorch.tensor([[0.9, 0.5, 0.1, 0.0], [0.2, 0.4, 0.3, 0.0]])
    assert parts.match(overlap, 0.7, 0.35, False).tolist() == [0, parts.BETWEEN, parts.BELOW, parts.BELOW]
    assert parts.match(overlap, 0.7, 0.35, True).tolist() == [0, 0, parts.BELOW, parts.BELOW]
    assert parts.match(overlap[:0], 0.7, 0.35, True).tolist() == [parts.BELOW] * 4
    labels = mytorch.tensor([1] * 30 + [0] * 50 + [-1] * 20)
    positive, negative = parts.sample(labels, 40, 0.25)
    assert (len(positive), len(negative)) == (10, 30)
    assert len(set(negative.tolist())) == 30
    assert bool((labels[positive] == 1).all())
    assert bool((labels[negative] == 0).all())


def test_pyramids_and_regions_have_gradients():
    mytorch.manual_seed(0)
    pyramid = ops.FeaturePyramidNetwork([1, 2], 2, ops.LastLevelP6P7(2, 2)).double()
    x, y = (mytorch.randn(1, c, n, n, dtype=mytorch.float64, requires_grad=True) for c, n in ((1, 8), (2, 4)))
    levels = pyramid({"a": x, "b": y})
    assert {k: tuple(v.shape) for k, v in levels.items()} == {
        "a": (1, 2, 8, 8), "b": (1, 2, 4, 4), "p6": (1, 2, 2, 2), "p7": (1, 2, 1, 1),
    }  # fmt: skip
    pool = ops.MultiScaleRoIAlign(["a", "b"], 2, 2, canonical_scale=12, canonical_level=2)
    boxes = mytorch.tensor([[1.0, 2.0, 9.0, 11.0], [3.0, 1.0, 30.0, 29.0]], dtype=mytorch.float64)

    def run(x, y):
        return pool(pyramid({"a": x, "b": y}), [boxes], [(32, 32)])

    assert mytorch.autograd.gradcheck(run, (x, y), fast_mode=True)
    expected = [
        ops.roi_align(levels[k], [boxes[i : i + 1]], 2, s, 2) for i, (k, s) in enumerate((("a", 1 / 4), ("b", 1 / 8)))
    ]
    np.testing.assert_allclose(run(x, y).detach().numpy(), mytorch.cat(expected).detach().numpy())


@pytest.mark.parametrize(("name", "keys"), [("fcn_resnet50", 334), ("deeplabv3_resnet50", 370)])
def test_segmentation_networks(name, keys):
    model = getattr(segmentation, name)(num_classes=4, aux_loss=True)
    assert len(model.state_dict()) == keys
    result = model.eval()(mytorch.zeros(1, 3, 33, 40))
    assert {k: tuple(v.shape) for k, v in result.items()} == {"out": (1, 4, 33, 40), "aux": (1, 4, 33, 40)}


def _detector(**options):
    backbone = mytorch.nn.Sequential(ops.Conv2dNormActivation(3, 8, stride=4), ops.Conv2dNormActivation(8, 8, stride=2))
    backbone.out_channels = 8
    anchors = detection.AnchorGenerator(((16, 32),), ((1.0,),))
    pool = ops.MultiScaleRoIAlign(["0"], 3, 2)
    return detection.FasterRCNN(
        backbone, 5, min_size=64, max_size=100, rpn_anchor_generator=anchors, box_roi_pool=pool, rpn_post_nms_top_n_train=20,
        rpn_post_nms_top_n_test=20, **options,
    )  # fmt: skip


def test_detectors_train_with_and_without_objects():
    mytorch.manual_seed(0)
    model, images = _detector(), _images(mytorch.tensor)
    empty = {"boxes": mytorch.zeros(0, 4), "labels": mytorch.zeros(0, dtype=mytorch.int64)}
    for targets in (_targets(mytorch.tensor), [_targets(mytorch.tensor)[0], empty], [empty, empty]):
        model.zero_grad()
        losses = model(images, targets)
        assert sorted(losses) == ["loss_box_reg", "loss_classifier", "loss_objectness", "loss_rpn_box_reg"]
        sum(losses.values()).backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
        assert bool((model.backbone[0][0].weight.grad != 0).any())
    results = model.eval()(images)
    for result, shape in zip(results, IMAGES, strict=True):
        assert (result["boxes"] >= 0).all()
        assert (result["boxes"].amax(0) <= mytorch.tensor([shape[2], shape[1]] * 2) + 1e-3).all()
        assert len(result["scores"]) == len(result["labels"]) == len(result["boxes"])


def test_bad_targets_are_named():
    model, images, targets = _detector(), _images(mytorch.tensor), _targets(mytorch.tensor)
    for wrong, text in (
        (None, "targets should not be None"),
        (targets[:1], "one target for each of the 2 images"),
        ([{"boxes": targets[0]["boxes"]}] * 2, "'boxes' and 'labels'"),
        ([{**targets[0], "boxes": mytorch.ones(2, 5)}] * 2, r"shape \[N, 4\]"),
        ([{**targets[0], "boxes": mytorch.ones(2, 4)}] * 2, "positive height and width"),
        ([{**targets[0], "labels": mytorch.ones(3).long()}] * 2, "expected 2 labels"),
    ):
        with pytest.raises(ValueError, match=text):
            model(images, wrong)
    with pytest.raises(TypeError, match="convert_image_dtype"):
        model.eval()([x.to(mytorch.uint8) for x in images])
    with pytest.raises(ValueError, match="out_channels"):
        detection.FasterRCNN(mytorch.nn.Identity(), 2)
    with pytest.raises(ValueError, match="layer9"):
        vision.models.layer_getter.IntermediateLayerGetter(vision.models.resnet18(), {"layer9": "a"})


def _equal_weights(torchvision_model, model):
    theirs = torchvision_model.state_dict()
    assert list(theirs) == list(model.state_dict())
    model.load_state_dict({name: mytorch.tensor(value.numpy()) for name, value in theirs.items()})


def test_detectors_equal_torchvisions():
    torch, other = pytest.importorskip("torch"), pytest.importorskip("torchvision.models.detection")
    # All boxes are in the losses, so that the losses do not depend on random choices.
    options = {
        "num_classes": 5, "min_size": 96, "max_size": 160, "rpn_batch_size_per_image": 10**5, "box_batch_size_per_image": 10**5,
        "box_positive_fraction": 0.5,
    }  # fmt: skip
    theirs = other.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, **options)
    model = detection.fasterrcnn_resnet50_fpn(**options)
    _equal_weights(theirs, model)
    for layer in [*theirs.modules(), *model.modules()]:
        if type(layer).__name__ == "BatchNorm2d":
            layer.eval()
    expected, losses = (
        theirs(_images(torch.tensor), _targets(torch.tensor)),
        model(_images(mytorch.tensor), _targets(mytorch.tensor)),
    )
    for name, loss in expected.items():
        assert losses[name].item() == pytest.approx(loss.item(), rel=1e-4)
    with torch.no_grad(), mytorch.no_grad():
        results = model.eval()(_images(mytorch.tensor))
        for result, wanted in zip(results, theirs.eval()(_images(torch.tensor)), strict=True):
            np.testing.assert_allclose(result["scores"].numpy(), wanted["scores"].numpy(), atol=1e-3)
            np.testing.assert_allclose(result["boxes"].numpy(), wanted["boxes"].numpy(), atol=0.1)


@pytest.mark.parametrize("name", ["fcn_resnet50", "deeplabv3_resnet50"])
def test_segmentation_networks_equal_torchvisions(name):
    torch, other = pytest.importorskip("torch"), pytest.importorskip("torchvision.models.segmentation")
    theirs = getattr(other, name)(weights=None, weights_backbone=None, num_classes=4, aux_loss=True).eval()
    model = getattr(segmentation, name)(num_classes=4, aux_loss=True).eval()
    _equal_weights(theirs, model)
    x = np.random.default_rng(0).random((1, 3, 33, 40)).astype(np.float32)
    with torch.no_grad(), mytorch.no_grad():
        for name, value in theirs(torch.tensor(x)).items():
            np.testing.assert_allclose(model(mytorch.tensor(x))[name].numpy(), value.numpy(), atol=1e-4)


def test_inception_equals_torchvisions():
    torch, other = pytest.importorskip("torch"), pytest.importorskip("torchvision.models")
    theirs = other.inception_v3(weights=None, num_classes=5, init_weights=False).eval()
    model = vision.models.inception_v3(num_classes=5, init_weights=False).eval()
    _equal_weights(theirs, model)
    x = np.random.default_rng(0).random((2, 3, 96, 80)).astype(np.float32)
    with torch.no_grad(), mytorch.no_grad():
        np.testing.assert_allclose(model(mytorch.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), atol=1e-4)
