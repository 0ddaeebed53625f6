"""Programs for torchvision and torchaudio. Each group returns {name: results}, computed with mytorch or with PyTorch.

    python tests/packages/cases.py mytorch models             # prints JSON
    python tests/packages/cases.py torch all > tests/packages/expected.json

The second command needs PyTorch 2.14.1, torchvision 0.29.1 and torchaudio 2.11.0, since the wheels of torchvision 0.28.0 do not
fit the wheels of PyTorch on PyPI. The programs use only what both versions of torchvision have.
"""

import functools
import inspect
import itertools
import json
import sys
import warnings
import zlib

library, group, *selected = sys.argv[1:] or ["mytorch", "all"]
if library == "mytorch":
    import mytorch

    mytorch.install_as_torch()

import numpy as np  # noqa: E402
import torch  # noqa: E402

warnings.filterwarnings("ignore")
ACROSS = 6  # number of elements that are stored of each result


def draw(name):
    """Returns NumPy's generator with a seed for a name."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(name, *shape, dtype=np.float32):
    return torch.from_numpy(draw(name).standard_normal(shape).astype(dtype))


def summary(result):
    """Returns [[shape, sum of absolute values, some elements], …] of all tensors in a result."""
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        flat = result.detach().double().reshape(-1)
        index = np.linspace(0, max(len(flat) - 1, 0), ACROSS).astype(int).tolist() if len(flat) else []
        return [[list(result.shape), float(flat.abs().nan_to_num().sum()), [round(float(flat[i]), 7) for i in index]]]
    if isinstance(result, dict):
        return [row for key in sorted(result, key=str) for row in summary(result[key])]
    if isinstance(result, (list, tuple)):
        return [row for item in result for row in summary(item)]
    if isinstance(result, (int, float, bool, str)):
        return [[[], 0.0, [float(zlib.crc32(result.encode())) if isinstance(result, str) else float(result)]]]
    return summary(torch.from_numpy(np.array(result)))  # a PIL image


def with_gradients(function, *inputs):
    """Returns the results of a function and the gradients of its float inputs, for a random upstream gradient."""
    inputs = [
        x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs
    ]
    out = function(*inputs)
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = torch.autograd.grad(out, leaves, normal("upstream", *out.shape).to(out.dtype), allow_unused=True)
    return [out, *(g for g in grads if g is not None)]


# -- models ---------------------------------------------------------------------------------------------------------

MOST = 30e6  # parameters of a model that is run; larger models are constructed on the meta device
SIZES = {"inception_v3": 80, "vit": 224, "maxvit": 224, "mvit": 224, "s3d": 224, "alexnet": 96, "raft": 128}


def fill(model):
    """Sets all parameters and buffers to random numbers that depend on their names."""
    with torch.no_grad():
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if not t.is_floating_point() or "anchor" in name:
                continue
            values, last = draw(name).standard_normal(tuple(t.shape), dtype=np.float32), name.rpartition(".")[2]
            if last == "running_var":
                values = 1 + 0.5 * np.abs(values)
            elif t.ndim >= 2 and "weight" in last:
                values *= np.float32(np.sqrt(1.5 / (values.size / len(values))))
            else:
                values = 0.1 * values + (last in ("weight", "layer_scale"))
            t.copy_(torch.from_numpy(np.asarray(values, np.float32)))


def on_meta(name, build):
    """Returns the model, constructed on the meta device."""
    from torchvision.models import regnet

    make = regnet._regnet  # its table of widths needs values, so only the network is made on the meta device

    def without_values(*args, **kwargs):
        with torch.device("meta"):
            return make(*args, **kwargs)

    if "regnet" not in name:
        with torch.device("meta"):
            return build()
    regnet._regnet = without_values
    try:
        return build()
    finally:
        regnet._regnet = make


def model_inputs(name, module):
    size = next((v for k, v in SIZES.items() if name.startswith(k)), 64)
    if "detection" in module:
        return ([normal("image", 3, 64, 80).abs().clamp(max=1)],)
    if "video" in module:
        return (normal("image", 1, 3, 16 if "s3d" in name or "mvit" in name else 4, size, size),)
    if "optical" in module:
        return normal("image", 1, 3, size, size), normal("next", 1, 3, size, size)
    return (normal("image", 2, 3, size, size),)


def models():
    from torchvision import models

    for name in selected or models.list_models():
        builder = models.get_model_builder(name)
        options = {key: None for key in ("weights", "weights_backbone") if key in inspect.signature(builder).parameters}
        build = functools.partial(builder, **options)
        if name.startswith("quantized"):
            continue
        model = on_meta(name, build)
        count = sum(p.numel() for p in model.parameters())
        if count >= MOST:
            yield name, [count]
            continue
        model = build().eval()
        fill(model)
        with torch.no_grad():
            out = model(*model_inputs(name, builder.__module__))
        yield name, [count, out[-1] if "raft" in name else out]


# -- operators ------------------------------------------------------------------------------------------------------


def boxes(name, count, scale=20.0):
    values = draw(name).uniform(0, scale, (count, 4))
    return np.concatenate([values[:, :2], values[:, :2] + values[:, 2:] * 0.7], 1).astype(np.float32)


def ops():
    from torchvision import ops as O

    for count, threshold, dtype in itertools.product((0, 1, 60), (0.1, 0.5), (torch.float32, torch.float64)):
        name = f"nms {count} {threshold} {dtype}"
        b, s = torch.from_numpy(boxes(name, count)).to(dtype), normal(name, count).to(dtype).round(decimals=1)
        yield name, O.nms(b, s, threshold)
        yield f"batched_{name}", O.batched_nms(b, s, torch.from_numpy(draw(name).integers(0, 3, count)), threshold)
    for count, size, scale, ratio, aligned in itertools.product(
        (0, 5), (3, (2, 5)), (1.0, 0.4), (-1, 2), (False, True)
    ):
        name = f"{count} {size} {scale} {ratio} {aligned}"
        images = draw(name).integers(0, 2, (count, 1))
        rois = torch.from_numpy(np.concatenate([images, boxes(name, count) - 2], 1).astype(np.float32))
        x = normal(name, 2, 90, 13, 17)
        yield f"roi_align {name}", with_gradients(lambda x: O.roi_align(x, rois, size, scale, ratio, aligned), x)
        if aligned:
            yield f"ps_roi_align {name}", with_gradients(lambda x: O.ps_roi_align(x, rois, size, scale, ratio), x)
            if ratio == 2:
                yield f"roi_pool {name}", with_gradients(lambda x: O.roi_pool(x, rois, size, scale), x)
                yield f"ps_roi_pool {name}", with_gradients(lambda x: O.ps_roi_pool(x, rois, size, scale), x)
    for masked, groups, blocks in itertools.product((False, True), (1, 2), (1, 2)):
        name = f"deform_conv2d {masked} {groups} {blocks}"
        x, weight = normal(name, 2, 4, 9, 8), normal(f"w {name}", 6, 4 // blocks, 3, 2)
        offset, mask = normal(f"o {name}", 2, 12 * groups, 5, 5) * 2, normal(f"m {name}", 2, 6 * groups, 5, 5)
        options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 3)}
        arguments = [x, offset, weight, normal(f"b {name}", 6), *([mask] if masked else [])]
        call = lambda x, o, w, b, m=None: O.deform_conv2d(x, o, w, b, mask=m, **options)  # noqa: E731
        yield name, with_gradients(call, *arguments)
    layer = O.MultiScaleRoIAlign(["a", "b"], 3, 2)
    levels = {"a": normal("a", 1, 4, 32, 32), "b": normal("b", 1, 4, 16, 16)}
    yield "MultiScaleRoIAlign", layer(levels, [torch.from_numpy(boxes("multi", 7, 100.0))], [(128, 128)])
    rois = torch.from_numpy(np.concatenate([np.zeros((4, 1)), boxes("cast", 4)], 1).astype(np.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = O.roi_align(normal("cast", 1, 2, 20, 20).bfloat16(), rois.bfloat16(), 3)
        yield "autocast", [out, str(out.dtype), O.nms(rois[:, 1:].bfloat16(), normal("s", 4), 0.2)]
    a, b = torch.from_numpy(boxes("a", 5)), torch.from_numpy(boxes("b", 5))
    for name in "box_iou generalized_box_iou distance_box_iou complete_box_iou".split():
        yield name, getattr(O, name)(a, b)
        if name != "box_iou":
            yield f"{name}_loss", with_gradients(getattr(O, f"{name}_loss"), a, b)
    yield "focal loss", with_gradients(O.sigmoid_focal_loss, normal("f", 4, 3), (normal("t", 4, 3) > 0).float())
    yield "boxes", [
        O.box_convert(a, "xyxy", "cxcywh"), O.clip_boxes_to_image(a, (10, 12)), O.remove_small_boxes(a, 5.0),
        O.masks_to_boxes(normal("masks", 3, 9, 8) > 0.5), O.box_area(a),
    ]  # fmt: skip


# -- transforms -----------------------------------------------------------------------------------------------------

PLAIN = {
    "Resize": [((9, 14),), (8,), ((30, 40),)], "CenterCrop": [(9,)], "Pad": [((1, 2, 3, 4), 5), (2, 0, "reflect")], "RandomCrop": [(9, 2)],
    "RandomHorizontalFlip": [(0.5,)], "RandomVerticalFlip": [(0.5,)], "RandomResizedCrop": [((10, 12),)], "FiveCrop": [(7,)],
    "TenCrop": [(7,)], "ColorJitter": [(0.3, 0.2, 0.3, 0.1)], "RandomRotation": [(30,)], "RandomAffine": [(20, (0.1, 0.2), (0.8, 1.2), 5)],
    "RandomPerspective": [(0.4, 1.0)], "Grayscale": [(3,)], "RandomGrayscale": [(0.5,)], "GaussianBlur": [(3, (0.5, 1.5))],
    "RandomInvert": [(1.0,)], "RandomPosterize": [(3, 1.0)], "RandomSolarize": [(0.5, 1.0)], "RandomAdjustSharpness": [(1.7, 1.0)],
    "RandomAutocontrast": [(1.0,)], "RandomEqualize": [(1.0,)], "ElasticTransform": [(20.0, 1.0)], "RandAugment": [()],
    "TrivialAugmentWide": [()], "AutoAugment": [()], "AugMix": [()],
}  # fmt: skip
OF_BYTES = "RandomEqualize RandAugment TrivialAugmentWide AutoAugment AugMix RandomPosterize".split()


def transforms():
    import PIL.Image
    from torchvision import transforms as v1
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    picture = draw("picture").integers(0, 256, (17, 22, 3)).astype(np.uint8)
    whole = torch.from_numpy(picture.transpose(2, 0, 1).copy())
    images = {"uint8": whole, "float": whole / 255, "PIL": PIL.Image.fromarray(picture)}
    for (name, variants), (kind, image), (number, package) in itertools.product(
        PLAIN.items(), images.items(), [(1, v1), (2, v2)]
    ):
        if kind == "float" and name in OF_BYTES:
            continue
        for arguments in variants:
            if name == "RandomSolarize":
                arguments = (0.5 if kind == "float" else 128, 1.0)
            torch.manual_seed(3)
            yield f"v{number}.{name}{arguments} {kind}", getattr(package, name)(*arguments)(image)
    for name, arguments in (("RandomErasing", (1.0,)), ("Normalize", ([0.4] * 3, [0.2] * 3))):
        torch.manual_seed(4)
        yield name, [getattr(package, name)(*arguments)(whole / 255) for package in (v1, v2)]
    for name, arguments in {
        "RandomPhotometricDistort": (),
        "ScaleJitter": ((20, 20),),
        "RandomZoomOut": (),
        "RandomIoUCrop": (),
    }.items():
        torch.manual_seed(5)
        box = tv_tensors.BoundingBoxes(
            torch.tensor([[2, 3, 9, 12], [5, 5, 20, 15]]), format="XYXY", canvas_size=(17, 22)
        )
        sample = {
            "image": tv_tensors.Image(whole),
            "boxes": box,
            "labels": torch.tensor([1, 2]),
            "mask": tv_tensors.Mask(whole[:1] > 99),
        }
        out = v2.Compose(
            [getattr(v2, name)(*arguments), v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True)]
        )(sample)
        yield f"v2.{name} with boxes", [out, type(out["boxes"]).__name__]
    torch.manual_seed(6)
    mixed = v2.CutMix(num_classes=4)(normal("batch", 4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    yield "v2.CutMix", [mixed, v2.MixUp(num_classes=4)(normal("batch", 4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))]
    preset = v1._presets.ImageClassification(crop_size=12, resize_size=16)
    yield "preset", [preset(images["PIL"]), preset(whole)]


def others():
    import torchvision
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    data = torchvision.datasets.FakeData(6, (3, 8, 9), 5, torchvision.transforms.ToTensor())
    torch.manual_seed(1)
    yield "FakeData", next(iter(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)))
    x = normal("grid", 5, 3, 6, 7).sigmoid()
    yield (
        "make_grid",
        [torchvision.utils.make_grid(x, nrow=2), torchvision.utils.make_grid(x, normalize=True, scale_each=True)],
    )
    image, b = (x[0] * 255).to(torch.uint8), torch.tensor([[1, 1, 4, 5]])
    yield "drawings", torchvision.utils.draw_segmentation_masks(image, x[0] > 0.5, colors="blue", alpha=0.3)
    yield "bounding boxes", torchvision.utils.draw_bounding_boxes(image, b, colors="red")
    yield "flow", torchvision.utils.flow_to_image(normal("flow", 2, 5, 6))
    model = torchvision.models.resnet18(num_classes=3).eval()
    fill(model)
    extractor = create_feature_extractor(model, {"layer1": "low", "layer3.1.add": "high"})
    yield "features", [extractor(normal("image", 1, 3, 32, 32)), " ".join(get_graph_node_names(model)[0])]
    getter = torchvision.models._utils.IntermediateLayerGetter(model, {"layer2": "a"})
    yield "layers", getter(normal("image", 1, 3, 32, 32))
    detector = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3, box_nms_thresh=0.5
    )
    fill(detector)
    torch.manual_seed(2)
    target = {"boxes": torch.tensor([[10.0, 12.0, 40.0, 50.0]]).double(), "labels": torch.tensor([1])}
    image = normal("image", 3, 64, 80).abs().clamp(max=1).double()
    losses = detector.double().train()([image], [target])  # in float32, rounding errors grow to 1 % of the gradients
    # The other losses depend on a choice of proposals with almost equal scores.
    found = [losses["loss_objectness"], losses["loss_rpn_box_reg"]]
    sum(found).backward()
    yield (
        "training of a detector",
        [found, detector.backbone.body["0"][0].weight.grad, detector.rpn.head.bbox_pred.weight.grad],
    )


# -- audio ----------------------------------------------------------------------------------------------------------

AUDIO = {
    "Spectrogram": (128,), "MelSpectrogram": (8000, 128, None, None, 0.0, None, 0, 20), "MFCC": (8000, 13), "LFCC": (8000,),
    "Resample": (8000, 6000), "Vol": (0.5,), "Fade": (10, 20), "ComputeDeltas": (), "MuLawEncoding": (), "SpectralCentroid": (8000, 128),
    "PitchShift": (8000, 3, 12, 256), "Preemphasis": (), "Deemphasis": (), "Speed": (8000, 1.25),
    "Loudness": (8000,),
}  # fmt: skip
FILTERS = {
    "allpass_biquad": (500.0,), "band_biquad": (500.0,), "bandpass_biquad": (500.0,), "bandreject_biquad": (500.0,), "bass_biquad": (3.0,),
    "treble_biquad": (3.0,), "equalizer_biquad": (500.0, 2.0), "highpass_biquad": (500.0,), "lowpass_biquad": (500.0,), "riaa_biquad": (),
    "flanger": (), "phaser": (), "vad": (),
}  # fmt: skip


def audio():
    import torchaudio
    import torchaudio.functional as F
    from torchaudio import transforms as T

    wave = normal("wave", 2, 4000) * 0.2
    for name, arguments in AUDIO.items():
        options = {"melkwargs": {"n_fft": 128, "n_mels": 20}} if name == "MFCC" else {}
        options = {"speckwargs": {"n_fft": 128}, "n_lfcc": 13} if name == "LFCC" else options
        torch.manual_seed(0)
        yield name, T.__dict__[name](*arguments, **options)(wave)
    for name, arguments in FILTERS.items():
        yield name, getattr(F, name)(wave, 44100 if name == "riaa_biquad" else 8000, *arguments)
    for name in ("contrast", "overdrive", "dcshift", "gain"):
        yield name, getattr(F, name)(wave, *((0.1,) if name == "dcshift" else ()))
    for batching, order in itertools.product((True, False), (1, 2, 5)):
        a = normal("a", 2, order + 1) * 0.2
        a[:, 0] = 1 + a[:, 0]
        b, short = normal("b", 2, order + 1), wave[:, :300]
        call = lambda x, a, b: F.lfilter(x, a, b, clamp=False, batching=batching)  # noqa: E731
        yield f"lfilter {batching} {order}", with_gradients(call, short, a, b)
    yield "filtfilt", F.filtfilt(wave, torch.tensor([1.0, -0.5]), torch.tensor([0.3, 0.2]))
    spec = T.Spectrogram(128, power=None)(wave)
    yield "InverseSpectrogram", T.InverseSpectrogram(128)(spec, 4000)
    yield "TimeStretch", T.TimeStretch(n_freq=65, fixed_rate=1.3)(spec)
    yield "GriffinLim", T.GriffinLim(128, n_iter=4, rand_init=False)(spec.abs() ** 2)
    yield "AmplitudeToDB", T.AmplitudeToDB(top_db=60)(spec.abs())
    yield (
        "fbanks",
        [F.melscale_fbanks(65, 0.0, 4000.0, 20, 8000, "slaney", "slaney"), F.linear_fbanks(65, 0.0, 4000.0, 20, 8000)],
    )
    torch.manual_seed(1)
    yield "masks", T.SpecAugment(2, 10, 2, 5)(spec.abs())
    yield "convolve", [F.convolve(wave, wave[:, :30]), F.fftconvolve(wave, wave[:, :30], "same")]
    yield "add_noise", F.add_noise(wave, normal("noise", 2, 4000), torch.tensor([5.0, 10.0]))
    yield "edit_distance", F.edit_distance("kitten", "sitting")
    yield "sliding_window_cmn", F.sliding_window_cmn(spec.abs().transpose(1, 2)[:, :15])
    yield "detect_pitch_frequency", F.detect_pitch_frequency(wave, 8000)
    yield (
        "MVDR",
        T.MVDR()(spec[None].to(torch.complex128)[0], spec.abs()[0].clamp(max=1), 1 - spec.abs()[0].clamp(max=1)),
    )
    yield "kaldi", torchaudio.compliance.kaldi.fbank(wave, sample_frequency=8000.0, dither=0.0)
    networks = {
        "Conformer": (torchaudio.models.Conformer(16, 2, 32, 2, 5), (normal("c", 2, 12, 16), torch.tensor([12, 9]))),
        "ConvTasNet": (torchaudio.models.ConvTasNet(2, 16, 32, 3, 16, 24, 2, 2), (normal("t", 1, 1, 400),)),
        "WaveRNN": (
            torchaudio.models.WaveRNN([2, 2], 8, 4, 1, 16, 16, 5, 20, 16, 12),
            (normal("w", 2, 1, 20), normal("s", 2, 1, 20, 9)),
        ),
    }
    for name, (model, inputs) in networks.items():
        fill(model.eval())
        with torch.no_grad():
            yield name, model(*inputs)


GROUPS = {f.__name__: f for f in (models, ops, transforms, others, audio)}


def main():
    found = {}
    for name in GROUPS if group == "all" else [group]:
        found[name] = {key: summary(value) for key, value in GROUPS[name]()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
