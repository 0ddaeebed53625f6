"""Networks, boxes and regions of `mytorch.vision`, compared with formulas and with torchvision if it is installed."""

import numpy as np
import pytest

import mytorch
from mytorch import vision
from mytorch.vision import ops

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "parameters", "keys"),
    [
        ("resnet18", 11689512, 122),
        ("resnet50", 25557032, 320),
        ("resnext50_32x4d", 25028904, 320),
        ("vgg11", 132863336, 22),
        ("alexnet", 61100840, 16),
        ("squeezenet1_0", 1248424, 52),
        ("squeezenet1_1", 1235496, 52),
    ],
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


def test_networks_have_torchvisions_keys():
    torchvision = pytest.importorskip("torchvision")
    for name in ("resnet18", "resnet50", "vgg16_bn"):
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
        ours = getattr(vision.models, name)().state_dict()
        assert {k: tuple(v.shape) for k, v in ours.items()} == {k: tuple(v.shape) for k, v in theirs.items()}


def test_networks_are_found_by_name():
    names = vision.models.list_models()
    assert {"alexnet", "resnet18", "vit_b_16"} <= set(names)
    assert names == sorted(names)
    assert vision.models.list_models(include=["vgg*", "alex*"], exclude="*_bn") == [
        "alexnet",
        "vgg11",
        "vgg13",
        "vgg16",
        "vgg19",
    ]
    assert vision.models.get_model_builder("ResNet18") is vision.models.resnet18
    with pytest.raises(ValueError, match="Unknown model resnet19"):
        vision.models.get_model("resnet19")


def test_alexnet_and_squeezenet_have_torchvisions_keys_and_sizes():
    keys = set(vision.models.squeezenet1_1().state_dict())
    assert {
        "features.0.weight",
        "features.3.squeeze.weight",
        "features.12.expand3x3.bias",
        "classifier.1.weight",
    } <= keys
    squeeze = vision.models.squeezenet1_0(num_classes=7).eval()
    assert squeeze.features(mytorch.zeros(1, 3, 224, 224)).shape == (1, 512, 13, 13)
    assert squeeze(mytorch.zeros(2, 3, 65, 63)).shape == (2, 7)
    alex = vision.models.alexnet(num_classes=3).eval()
    assert {f"features.{i}.weight" for i in (0, 3, 6, 8, 10)} <= set(alex.state_dict())
    assert alex.features(mytorch.zeros(1, 3, 224, 224)).shape == (1, 256, 6, 6)
    with pytest.raises(ValueError, match="Unsupported SqueezeNet version"):
        vision.models.SqueezeNet("2_0")


def test_weights_are_files():
    with pytest.raises(ValueError, match="not downloaded"):
        vision.models.resnet18(weights=vision.models.ResNet18_Weights.DEFAULT)


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


def test_focal_loss_is_cross_entropy_without_focus():
    x, t = mytorch.randn(5, 3), mytorch.tensor(np.random.default_rng(0).integers(0, 2, (5, 3)).astype(np.float32))
    plain = mytorch.nn.functional.binary_cross_entropy_with_logits(x, t)
    assert np.allclose(ops.sigmoid_focal_loss(x, t, -1, 0, "mean").item(), plain.item(), atol=1e-6)
    with pytest.raises(ValueError, match="reduction"):
        ops.sigmoid_focal_loss(x, t, reduction="max")


def test_blocks_of_networks():
    x = mytorch.randn(2, 4, 8, 8)
    assert ops.Conv2dNormActivation(4, 6, 3, 2)(x).shape == (2, 6, 4, 4)
    assert ops.SqueezeExcitation(4, 2)(x).shape == x.shape
    assert ops.Permute([0, 2, 3, 1])(x).shape == (2, 8, 8, 4)
    assert ops.MLP(8, [16, 3], mytorch.nn.LayerNorm)(x).shape == (2, 4, 8, 3)
    frozen, norm = ops.FrozenBatchNorm2d(4), mytorch.nn.BatchNorm2d(4).eval()
    assert np.allclose(frozen(x).numpy(), norm(x).detach().numpy(), atol=1e-6)
    mytorch.manual_seed(0)
    dropped = ops.stochastic_depth(mytorch.ones(200, 3), 0.25, "row")
    assert set(np.round(dropped.numpy().ravel(), 4)) == {0, np.float32(1.3333)}
    assert ops.StochasticDepth(0.5, "batch").eval()(x) is x


# parameters and keys of the state dict with 7 classes, of which the head has (width + 1) * 7, in torchvision
NEWER = {
    "mobilenet_v2": (2232839, 314),
    "mobilenet_v3_large": (4210999, 312),
    "mobilenet_v3_small": (1525031, 244),
    "vit_b_32": (0, 152),
    "convnext_tiny": (0, 182),
    "efficientnet_b0": (4016515, 360),
    "densenet121": (6961031, 727),
}


@pytest.mark.parametrize("name", NEWER)
def test_newer_networks_have_torchvisions_keys(name):
    parameters, keys = NEWER[name]
    model = getattr(vision.models, name)(num_classes=7)
    assert len(model.state_dict()) == keys
    if parameters:
        assert sum(p.numel() for p in model.parameters()) == parameters


def test_newer_networks_learn():
    mytorch.manual_seed(0)
    models = vision.models
    small = [
        models.MobileNetV2(3, 0.25, [(1, 8, 1, 1), (6, 8, 2, 2)]),
        models.MobileNetV3([(3, 16, 16, 1, 1, 1), (5, 32, 16, 0, 0, 2)], 16, 3),
        models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3, representation_size=8),
        models.ConvNeXt((8, 16), (1, 1), 0.5, num_classes=3),
        models.EfficientNet(0.25, 0.25, num_classes=3),
        models.DenseNet(4, (2, 2), 8, num_classes=3),
    ]
    x, y = mytorch.randn(4, 3, 32, 32), mytorch.tensor([0, 1, 2, 1])
    for model in small:
        mytorch.nn.functional.cross_entropy(model(x), y).backward()
        assert (
            sum(p.grad is not None and bool((p.grad != 0).any()) for p in model.parameters()) >= 2
        )  # a new ViT has a head of zeros
        assert model.eval()(x).shape == (4, 3)
