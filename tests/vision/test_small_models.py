"""Small networks of each family: numbers of torchvision 0.28 with equal random numbers, and torchvision itself if it is installed."""

import zlib
from functools import partial

import numpy as np
import pytest

import mytorch
from mytorch import vision

# Functions that build a network from the classes of mytorch or torchvision.
CLASSIFIERS = {
    "googlenet": lambda models, nn: models.googlenet(num_classes=3, init_weights=False),
    "shufflenet_v2_x0_5": lambda models, nn: models.shufflenet_v2_x0_5(num_classes=3),
    "mnasnet0_5": lambda models, nn: models.mnasnet0_5(num_classes=3),
    "efficientnet_v2_s": lambda models, nn: models.efficientnet_v2_s(num_classes=3),
    "regnet_y_400mf": lambda models, nn: models.regnet_y_400mf(num_classes=3),
    "regnet_x_400mf": lambda models, nn: models.regnet_x_400mf(num_classes=3),
    "swin": lambda models, nn: models.SwinTransformer([4, 4], 12, [2, 2], [2, 3], [3, 4], num_classes=3),
    "swin_v2": lambda models, nn: models.SwinTransformer(
        [4, 4], 12, [2, 2], [2, 3], [3, 4], num_classes=3, block=models.swin_transformer.SwinTransformerBlockV2,
        downsample_layer=models.swin_transformer.PatchMergingV2,
    ),
    "maxvit": lambda models, nn: models.MaxVit((32, 32), 8, 2, [8, 16], [1, 2], 4, 0.2, num_classes=3),
    "mobilenet_v3_small": lambda models, nn: models.mobilenet_v3_small(num_classes=3, reduced_tail=True, dilated=True),
    "lraspp": lambda models, nn: models.segmentation.lraspp_mobilenet_v3_large(num_classes=3, weights_backbone=None),
}  # fmt: skip


def picture(name):
    """Return one image (1, 3, H, W)."""
    size = (32, 32) if name == "maxvit" else (50, 61)
    return np.sin(np.arange(3 * size[0] * size[1], dtype=np.float32) * 0.37).reshape(1, 3, *size)


def checksum(model):
    """Return a checksum of the names and shapes in the state dict of a model."""
    text = "".join(f"{name} {tuple(value.shape)}\n" for name, value in model.state_dict().items())
    return zlib.crc32(text.encode())


def _backbone(ops, nn):
    backbone = nn.Sequential(ops.Conv2dNormActivation(3, 32, stride=4), ops.Conv2dNormActivation(32, 32, stride=2))
    backbone.out_channels = 32
    return backbone


class _Levels:
    """Two levels of features for SSD."""

    def __new__(cls, ops, nn):
        class Levels(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = ops.Conv2dNormActivation(3, 8, stride=4)
                self.second = ops.Conv2dNormActivation(8, 16, stride=4)

            def forward(self, x):
                x = self.first(x)
                return {"a": x, "b": self.second(x)}

        return Levels()


def _anchors(detection, name):
    return getattr(getattr(detection, "anchor_utils", detection), name)


def _dense(kind, detection, ops, nn, **options):
    return getattr(detection, kind)(_backbone(ops, nn), 5, min_size=64, max_size=100, **options)


def _retinanet(detection, ops, nn, norm=False):
    anchors = _anchors(detection, "AnchorGenerator")(((16, 32),), ((0.5, 1.0),))
    head = None
    if norm:
        head = detection.retinanet.RetinaNetHead(32, 4, 5, norm_layer=partial(nn.GroupNorm, 4))
        head.regression_head._loss_type = "giou"
    return _dense("RetinaNet", detection, ops, nn, anchor_generator=anchors, score_thresh=0.009, head=head)


def _fcos(detection, ops, nn):
    anchors = _anchors(detection, "AnchorGenerator")(((8,),), ((1.0,),))
    return _dense("FCOS", detection, ops, nn, anchor_generator=anchors, score_thresh=0.05)


def _ssd(detection, ops, nn):
    boxes = _anchors(detection, "DefaultBoxGenerator")([[2], [2, 3]], 0.2, 0.6)
    return detection.ssd.SSD(_Levels(ops, nn), boxes, (70, 60), 5, detections_per_img=20)


def _regions(kind, detection, ops, nn, classes=5, **options):
    anchors = _anchors(detection, "AnchorGenerator")(((16, 32),), ((1.0,),))
    pools = {
        f"{name}_roi_pool": ops.MultiScaleRoIAlign(["0"], 3, 2) for name in ("box", "mask", "keypoint")[: 2 if kind == "MaskRCNN" else 3]
    }  # fmt: skip
    if kind == "KeypointRCNN":
        del pools["mask_roi_pool"]
    return getattr(detection, kind)(
        _backbone(ops, nn), classes, min_size=64, max_size=100, rpn_anchor_generator=anchors, rpn_post_nms_top_n_train=20,
        rpn_post_nms_top_n_test=20, rpn_batch_size_per_image=10**5, box_batch_size_per_image=10**5, box_positive_fraction=0.5,
        box_detections_per_img=6, **pools, **options,
    )  # fmt: skip


def _mask(detection, ops, nn):
    head = detection.mask_rcnn.MaskRCNNHeads(32, [8, 8], 1, norm_layer=nn.BatchNorm2d)
    predictor = detection.mask_rcnn.MaskRCNNPredictor(8, 8, 5)
    box = detection.faster_rcnn.FastRCNNConvFCHead((32, 3, 3), [8], [16], norm_layer=nn.BatchNorm2d)
    box_predictor = detection.faster_rcnn.FastRCNNPredictor(16, 5)
    options = {"mask_head": head, "mask_predictor": predictor, "box_head": box, "box_predictor": box_predictor}
    return _regions("MaskRCNN", detection, ops, nn, classes=None, **options)


def _keypoint(detection, ops, nn):
    head = detection.keypoint_rcnn.KeypointRCNNHeads(32, [8, 8])
    predictor = detection.keypoint_rcnn.KeypointRCNNPredictor(8, 4)
    return _regions("KeypointRCNN", detection, ops, nn, classes=2, keypoint_head=head, keypoint_predictor=predictor)


DETECTORS = {
    "RetinaNet": _retinanet, "RetinaNet with norms": partial(_retinanet, norm=True), "FCOS": _fcos, "SSD": _ssd,
    "MaskRCNN": _mask, "KeypointRCNN": _keypoint,
}  # fmt: skip


def batch(make, name):
    """Return (images, targets) of a detector."""
    generator = np.random.default_rng(0)
    images, targets = [], []
    for shape, boxes, labels in (
        ((3, 80, 100), [[10, 10, 50, 60], [30, 20, 90, 70]], [1, 3]),
        ((3, 120, 70), [[5, 8, 60, 100]], [2]),
    ):
        image = generator.random(shape)
        if name == "KeypointRCNN":
            labels = [1] * len(boxes)
        target = {"boxes": np.array(boxes, np.float64), "labels": np.array(labels)}
        masks, points = np.zeros((len(boxes), *shape[1:]), np.uint8), np.zeros((len(boxes), 4, 3), np.float32)
        for i, (x1, y1, x2, y2) in enumerate(boxes):
            masks[i, y1 + 2 : y2 - 3, x1 : x2 - 6] = 1
            points[i] = [[x1 + 3.3, y1 + 5.2, 1], [x2, y2, 1], [x1 + 17.1, y1 + 23.4, 2], [x1 - 5, y1, 1]]
        if name == "MaskRCNN":
            target["masks"] = masks
        if name == "KeypointRCNN":
            target["keypoints"] = points
        images.append(make(image))
        targets.append({key: make(value) for key, value in target.items()})
    return images, targets


# checksum of the state dict, and logits of a new network with seed 0
LOGITS = {
    "googlenet": (953582996, [-0.00302512, 0.0105764, 0.0088036]),
    "shufflenet_v2_x0_5": (777111044, [0.00283393, -0.0061359, -0.00855318]),
    "mnasnet0_5": (3546096120, [-2.34221e-07, 2.76481e-07, -8.31111e-09]),
    "efficientnet_v2_s": (2307795429, [3.68516e-06, -3.60386e-07, -5.62396e-07]),
    "regnet_y_400mf": (3978503199, [0.00629832, 0.00492669, -0.00271377]),
    "regnet_x_400mf": (3135238850, [0.00766319, -0.00348075, -0.0274251]),
    "swin": (2032738008, [-0.00181505, -0.00302433, 0.0150755]),
    "swin_v2": (686721366, [-0.00169944, 0.0463101, 0.0235087]),
    "maxvit": (2271638483, [0.00119966, -0.000590833, -0.00164866]),
    "mobilenet_v3_small": (2801108507, [2.94591e-11, -3.954e-11, -3.17209e-11]),
    "lraspp": (3956731605, [0.0997476, 0.0924292, -0.128891]),
}
# checksum of the state dict, losses, number of results and sums of the results of the first image with seed 0
RESULTS = {
    "RetinaNet": (1031022903, {"classification": 1.12861, "bbox_regression": 1.23499}, 300, {'boxes': 59873.682, 'scores': 3.0, 'labels': 452.0}),
    "RetinaNet with norms": (2915317976, {"classification": 1.14389, "bbox_regression": 0.665527}, 300, {'boxes': 55565.867, 'scores': 3.71, 'labels': 603.0}),
    "FCOS": (3141571085, {"classification": 1.16531, "bbox_regression": 0.999625, "bbox_ctrness": 0.693355}, 100, {'boxes': 20949.691, 'scores': 7.782, 'labels': 82.0}),
    "SSD": (1221918429, {"bbox_regression": 3.29174, "classification": 9.6131}, 20, {'boxes': 3789.84, 'scores': 6.988, 'labels': 56.0}),
    "MaskRCNN": (388430518, {"loss_classifier": 1.51858, "loss_box_reg": 0.617013, "loss_mask": 0.733092, "loss_objectness": 0.693794, "loss_rpn_box_reg": 0.0266388}, 6, {'boxes': 1160.868, 'labels': 24.0, 'scores': 1.373, 'masks': 2220.24}),
    "KeypointRCNN": (246285318, {"loss_classifier": 0.711884, "loss_box_reg": 0.161288, "loss_keypoint": 4.97711, "loss_objectness": 0.692865, "loss_rpn_box_reg": 0.0271485}, 6, {'boxes': 1371.271, 'labels': 6.0, 'scores': 3.068, 'keypoints': 2978.77, 'keypoints_scores': 3.559}),
}  # fmt: skip


def _logits(library, nn, make, name):
    model = CLASSIFIERS[name](library, nn).eval()
    result = model(make(picture(name)))
    return model, result["out"][0, :, 5, 7] if isinstance(result, dict) else result[0]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_networks_have_the_keys_and_logits_of_torchvision(name):
    mytorch.manual_seed(0)
    with mytorch.no_grad():
        model, logits = _logits(vision.models, mytorch.nn, mytorch.tensor, name)
    keys, expected = LOGITS[name]
    assert checksum(model) == keys
    np.testing.assert_allclose(logits.numpy(), expected, rtol=0, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_have_the_losses_and_results_of_torchvision(name):
    mytorch.manual_seed(0)
    model = DETECTORS[name](vision.models.detection, vision.ops, mytorch.nn).double()
    images, targets = batch(mytorch.tensor, name)
    keys, losses, count, sums = RESULTS[name]
    assert checksum(model) == keys
    found = model(images, targets)
    assert {key: loss.item() for key, loss in found.items()} == pytest.approx(losses, rel=1e-4)
    sum(found.values()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    with mytorch.no_grad():
        result = model.eval()(images)[0]
    assert len(result["scores"]) == count
    assert {key: value.double().sum().item() for key, value in result.items()} == pytest.approx(sums, rel=1e-3)


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_accept_images_without_objects(name):
    model = DETECTORS[name](vision.models.detection, vision.ops, mytorch.nn).double()
    images, targets = batch(mytorch.tensor, name)
    empty = {key: value[:0] for key, value in targets[1].items()}
    for several in ([targets[0], empty], [empty, empty]):
        losses = model(images, several)
        sum(losses.values()).backward()
        assert all(bool(loss.isfinite()) for loss in losses.values())


@pytest.mark.parametrize("name", [*CLASSIFIERS, *DETECTORS])
def test_gradients_equal_torchvisions(name):
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    models = {}
    for library, extension in ((torch, torchvision), (mytorch, vision)):
        library.manual_seed(0)
        if name in CLASSIFIERS:
            model = CLASSIFIERS[name](extension.models, library.nn).eval().double()
            result = model(library.tensor(picture(name)).double())
            result = result["out"] if isinstance(result, dict) else result
            loss = (result * library.arange(result.numel()).reshape(result.shape)).sum() / result.detach().abs().max()
        else:
            model = DETECTORS[name](extension.models.detection, extension.ops, library.nn).double()
            images, targets = batch(library.tensor, name)
            loss = sum(model(images, targets).values())
        loss.backward()
        models[library.__name__] = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
    scale = max(np.abs(gradient).max() for gradient in models["torch"].values())
    for key, gradient in models["torch"].items():
        np.testing.assert_allclose(models["mytorch"].get(key, 0.0), gradient, rtol=1e-4, atol=1e-5 * scale, err_msg=key)
