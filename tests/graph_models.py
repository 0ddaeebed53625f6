"""Models for the tests of graphs: fx, export and onnx, and a program that checks all of them.

    python -m tests.graph_models            # every model in fx, export and ONNX Runtime
    python -m tests.graph_models unet lstm  # some models

Each case has a model, and inputs for a batch size and a second size, such as the length or the height. `fx` is False for models
whose Python code depends on sizes, which `fx.symbolic_trace` cannot follow.
"""

import copy
import math
import pickle
import sys
import time
from typing import NamedTuple

import numpy as np

import mytorch
from mytorch import nn
from mytorch.export import Dim
from mytorch.nn import functional as F
from mytorch.vision import models as vision
from mytorch.vision import ops as vision_ops

randn = mytorch.randn


def integers(high, *shape):
    """Random integers below `high`."""
    return mytorch.randint(0, high, shape)


class Case(NamedTuple):
    """One model.

    Attributes:
        build: function that returns the model.
        inputs: function of (batch, size) that returns the arguments.
        dynamic: for each argument, {axis: "batch" or "size"}.
        size: the second size of the example.
        fx: `fx.symbolic_trace` traces the model.
        step: other sizes differ by a multiple of this number.
    """

    build: object
    inputs: object
    dynamic: tuple
    size: int = 6
    fx: bool = True
    step: int = 1


CASES = {}
IMAGE = ({0: "batch"},)
SIZED = ({0: "batch", 2: "size", 3: "size"},)
TOKENS = ({0: "batch", 1: "size"},)
ROWS = ({0: "batch"},)


def image(channels=3):
    """Inputs of image models: (batch, channels, size, size)."""
    return lambda batch, size: (randn(batch, channels, size, size),)


def tokens(high=20):
    """Inputs of language models: integers (batch, size)."""
    return lambda batch, size: (integers(high, batch, size),)


def rows(width):
    """Inputs of models of vectors: (batch, width)."""
    return lambda batch, size: (randn(batch, width),)


def sequence(width):
    """Inputs of models of sequences: (batch, size, width)."""
    return lambda batch, size: (randn(batch, size, width),)


def case(name, inputs, dynamic, **options):
    """Registers a model."""

    def give(build):
        CASES[name] = Case(build, inputs, dynamic, **options)
        return build

    return give


# -- image classifiers ---------------------------------------------------------------------------------------------

for _name in ("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2"):
    case(_name, image(), IMAGE, size=32)(lambda name=_name: getattr(vision, name)(num_classes=10))


@case("vgg", image(), IMAGE, size=16)
def _vgg():
    layers = []
    for a, b in ((3, 8), (8, 12)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2)]
    head = [
        nn.AdaptiveAvgPool2d((4, 4)),
        nn.Flatten(),
        nn.Linear(192, 16),
        nn.ReLU(True),
        nn.Dropout(),
        nn.Linear(16, 10),
    ]
    return nn.Sequential(*layers, *head)


@case("dense", image(), SIZED, size=17)
class Dense(nn.Module):
    """Layers of which each receives the results of all layers before, as in DenseNet."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, 4, 3, padding=1, bias=False)) for n in (3, 7, 11)
        )
        self.head = nn.Linear(15, 10)

    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(layer(mytorch.cat(found, 1)))
        x = F.relu(F.avg_pool2d(mytorch.cat(found, 1), 2, 2))
        return self.head(mytorch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


@case("mobile", image(), SIZED, size=17)
class Mobile(nn.Module):
    """Inverted residuals with grouped convolutions, squeeze-and-excitation, SiLU and hard functions, as in MobileNet and EfficientNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8, eps=0.001), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(inplace=True))
        self.deep = nn.Sequential(nn.Conv2d(24, 24, 5, 1, 2, groups=24, bias=False), nn.BatchNorm2d(24), nn.SiLU(True))
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Hardsigmoid()
        )
        self.narrow, self.head = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8)), nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        h = self.deep(self.wide(x))
        x = self.narrow(self.squeeze(h) * h) + x
        return self.head(x.mean([2, 3]))


@case("convnext", image(), IMAGE, size=16)
class ConvNeXt(nn.Module):
    """A block with a 7 x 7 convolution, a norm and linear layers over the channels, and a learned scale."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8, eps=1e-6)
        self.conv, self.scale = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.Parameter(mytorch.full((8, 1, 1), 0.1))
        self.layers, self.head = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        h = self.layers(self.norm(self.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return self.head((x + self.scale * h).mean((-2, -1)))


@case("vit", image(), IMAGE, size=16, fx=False)
class VisionTransformer(nn.Module):
    """Patches as tokens, with a token for the class and learned positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token, self.positions = nn.Parameter(randn(1, 1, 16)), nn.Parameter(randn(1, 5, 16))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.layers, self.head = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        x = mytorch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return self.head((x + self.layers(self.norms[1](x)))[:, 0])


@case("lenet", image(1), IMAGE, size=28)
def _lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 84), nn.ReLU(), nn.Linear(84, 10), nn.LogSoftmax(1),
    )  # fmt: skip


@case("squeeze", image(), SIZED, size=17)
class Squeeze(nn.Module):
    """A fire module of SqueezeNet, with pools that round up and dynamic sizes."""

    def __init__(self):
        super().__init__()
        self.stem, self.squeeze = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 4, 1)
        self.narrow, self.wide = nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, 3, padding=1)
        self.head, self.pool = nn.Conv2d(12, 5, 1), nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2)
        x = F.relu(self.squeeze(x))
        x = mytorch.cat([F.relu(self.narrow(x)), F.relu(self.wide(x))], 1)
        return self.pool(self.head(x)).flatten(1)


@case("se_block", image(8), SIZED)
class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 8)

    def forward(self, x):
        gate = self.up(F.relu(self.down(x.mean((2, 3))))).sigmoid()
        return x * gate[:, :, None, None]


@case("mixer", image(), IMAGE, size=16)
class Mixer(nn.Module):
    """MLP-Mixer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4)
        self.norm, self.tokens = nn.LayerNorm(12), nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 24), nn.GELU("tanh"), nn.Linear(24, 12))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(x)).mean(dim=1)


@case("inception", image(), SIZED, size=9)
class Inception(nn.Module):
    """An inception block."""

    def __init__(self):
        super().__init__()
        self.one, self.three = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 3, padding=1)
        self.five = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 4, 5, padding=2))
        self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=True), nn.Conv2d(3, 4, 1))

    def forward(self, x):
        return mytorch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


@case("conv3d", lambda batch, size: (randn(batch, 2, size, 6, 6),), ({0: "batch", 2: "size"},))
def _conv3d():
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ELU(), nn.MaxPool3d((1, 2, 2)), nn.Conv3d(4, 2, 1)
    )


# -- image to image ------------------------------------------------------------------------------------------------


@case("unet", image(1), SIZED, size=16, step=4)
class UNet(nn.Module):
    """U-Net with two levels."""

    def __init__(self):
        super().__init__()

        def block(inside, out):
            return nn.Sequential(nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

        self.a, self.b, self.c = block(1, 8), block(8, 16), block(16, 32)
        self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.d, self.e, self.out = block(32, 16), block(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(mytorch.cat([self.up1(c), b], 1))
        return self.out(self.e(mytorch.cat([self.up2(d), a], 1)))


@case("super_resolution", image(1), SIZED)
def _super_resolution():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 9, 3, padding=1), nn.PixelShuffle(3), nn.Hardtanh()
    )


@case("style_transfer", image(), SIZED, size=8, step=2)
def _style_transfer():
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3, 2), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2, mode="nearest"), nn.ReplicationPad2d(1), nn.Conv2d(8, 3, 3), nn.Tanh(),
    )  # fmt: skip


@case("segmentation", image(), SIZED, size=12, step=4)
class Segmentation(nn.Module):
    """A fully convolutional network with atrous convolutions, resized to the input."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.branches = nn.ModuleList([nn.Conv2d(8, 4, 3, padding=d, dilation=d) for d in (1, 2, 3)])
        self.head = nn.Conv2d(12, 3, 1)

    def forward(self, x):
        y = self.stem(x)
        y = mytorch.cat([branch(y) for branch in self.branches], 1)
        return F.interpolate(self.head(y), size=x.shape[2:], mode="bilinear", align_corners=False)


@case("autoencoder", image(1), IMAGE, size=16)
def _autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10), nn.Linear(10, 256), nn.Unflatten(1, (4, 8, 8)),
        nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
    )  # fmt: skip


@case("dcgan_generator", rows(12), ROWS)
def _generator():
    return nn.Sequential(
        nn.Unflatten(1, (12, 1, 1)), nn.ConvTranspose2d(12, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


@case("dcgan_discriminator", image(), IMAGE, size=16)
def _discriminator():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.Flatten(),
        nn.Linear(256, 1),
    )


@case(
    "diffusion",
    lambda batch, size: (randn(batch, 2, size, size), integers(100, batch)),
    ({0: "batch", 2: "size", 3: "size"}, {0: "batch"}),
)
class Diffusion(nn.Module):
    """A denoiser with sinusoidal embeddings of the time."""

    def __init__(self):
        super().__init__()
        self.time, self.first, self.second = (
            nn.Linear(8, 6),
            nn.Conv2d(2, 6, 3, padding=1),
            nn.Conv2d(6, 2, 3, padding=1),
        )
        self.norm = nn.GroupNorm(3, 6)

    def forward(self, x, t):
        rates = mytorch.exp(mytorch.arange(4) * (-math.log(1000.0) / 4))
        angles = t[:, None].float() * rates
        embedding = self.time(mytorch.cat([angles.sin(), angles.cos()], dim=-1))
        h = self.norm(self.first(x)) + embedding[:, :, None, None]
        return self.second(F.silu(h))


# -- vectors ---------------------------------------------------------------------------------------------------------


@case("mlp", rows(8), ROWS)
def _mlp():
    return nn.Sequential(
        nn.Linear(8, 16), nn.Mish(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4), nn.Softmax(dim=-1)
    )


@case("activations", rows(6), ROWS)
class Activations(nn.Module):
    """Activation functions."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.CELU(), nn.ELU(0.5), nn.GELU(), nn.Hardshrink(), nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(-0.5, 0.5), nn.LeakyReLU(),
                nn.LogSigmoid(), nn.PReLU(), nn.ReLU6(), nn.SELU(), nn.SiLU(), nn.Softplus(2.0), nn.Softshrink(), nn.Softsign(),
                nn.Tanhshrink(), nn.Threshold(0.1, 0.3), nn.GLU(), nn.Softmin(dim=1),
            ]
        )  # fmt: skip

    def forward(self, x):
        return mytorch.cat([layer(x) for layer in self.layers], 1)


@case("vae", rows(8), ROWS)
class VAE(nn.Module):
    """A variational autoencoder that returns the mean."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return self.decoder(mean).sigmoid(), divergence


@case("siamese", lambda batch, size: (randn(batch, 5), randn(batch, 5)), ({0: "batch"}, {0: "batch"}))
class Siamese(nn.Module):
    """Two inputs with shared weights, and their similarities."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, a, b):
        a, b = self.body(a), self.body(b)
        return F.cosine_similarity(a, b), F.pairwise_distance(a, b), F.normalize(a, dim=1) @ F.normalize(b, dim=1).t()


@case("deep_fm", lambda batch, size: (integers(30, batch, 4),), ROWS)
class DeepFM(nn.Module):
    """Factorization machine with a deep part."""

    def __init__(self):
        super().__init__()
        self.linear, self.embedding = nn.Embedding(30, 1), nn.Embedding(30, 6)
        self.deep = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        e = self.embedding(x)
        pairs = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
        return (self.linear(x).sum(1) + pairs + self.deep(e.flatten(1))).squeeze(1).sigmoid()


@case("point_net", lambda batch, size: (randn(batch, 3, size),), ({0: "batch", 2: "size"},))
class PointNet(nn.Module):
    """Features of point clouds, with a maximum over the points."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 1))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x).max(dim=2)[0])


@case(
    "graph_network",
    lambda batch, size: (randn(batch, size, 4), (randn(batch, size, size) > 0)),
    ({0: "batch", 1: "size"}, {0: "batch", 1: "size", 2: "size"}),
)
class GraphNetwork(nn.Module):
    """Graph convolutions with a dense adjacency matrix."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, links):
        links = links.to(mytorch.float32)
        degree = links.sum(-1, keepdim=True).clamp(min=1.0)
        x = F.relu(self.first(mytorch.bmm(links / degree, x)))
        return self.second(mytorch.matmul(links, x) / degree)


@case("coupling_flow", rows(6), ROWS)
class CouplingFlow(nn.Module):
    """A coupling layer of a normalizing flow."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x):
        a, b = x[:, :3], x[:, 3:]
        scale, shift = mytorch.split(self.net(a), 3, dim=1)
        return mytorch.cat([b * mytorch.exp(scale) + shift, a], dim=1).flip(1), scale.sum(dim=1)


# -- sequences -------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Embedding, recurrent layers and a linear layer."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.body = kind(8, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 5)

    def forward(self, x):
        out, state = self.body(self.embedding(x))
        return self.head(out), state


case("lstm", tokens(), TOKENS)(lambda: Recurrent(nn.LSTM))
case("bilstm", tokens(), TOKENS)(lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True))
case("gru", tokens(), TOKENS)(lambda: Recurrent(nn.GRU, num_layers=2))
case("rnn", tokens(), TOKENS)(lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False))


@case(
    "seq2seq",
    lambda batch, size: (integers(20, batch, size), integers(20, batch, 4)),
    ({0: "batch", 1: "size"}, {0: "batch"}),
)
class Seq2Seq(nn.Module):
    """Encoder and decoder with dot product attention."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 6), nn.Linear(12, 20)
        self.encoder, self.decoder = nn.GRU(6, 6, batch_first=True), nn.GRU(6, 6, batch_first=True)

    def forward(self, source, target):
        memory, state = self.encoder(self.embedding(source))
        out, _ = self.decoder(self.embedding(target), state)
        weights = F.softmax(out @ memory.transpose(1, 2), dim=-1)
        return self.head(mytorch.cat([out, weights @ memory], dim=-1))


@case("text_cnn", tokens(), TOKENS, size=9)
class TextCNN(nn.Module):
    """Convolutions over words, with maxima over the positions."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.convs, self.head = nn.ModuleList([nn.Conv1d(6, 4, k) for k in (2, 3, 4)]), nn.Linear(12, 3)

    def forward(self, x):
        x = self.embedding(x).permute(0, 2, 1)
        return self.head(mytorch.cat([F.relu(conv(x)).amax(dim=-1) for conv in self.convs], dim=1))


@case("wave_net", lambda batch, size: (randn(batch, 2, size),), ({0: "batch", 2: "size"},), size=12)
class WaveNet(nn.Module):
    """Causal dilated convolutions with gates."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(2, 6, 1)
        self.filters = nn.ModuleList([nn.Conv1d(6, 12, 2, dilation=d) for d in (1, 2, 4)])
        self.out = nn.Conv1d(6, 2, 1)

    def forward(self, x):
        x = self.first(x)
        for layer in self.filters:
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, dim=1)
            x = x + mytorch.tanh(a) * mytorch.sigmoid(b)
        return self.out(x)


@case("keyword_spotting", lambda batch, size: (randn(batch, 1, 10, size),), ({0: "batch", 3: "size"},), size=12)
def _keyword_spotting():
    return nn.Sequential(
        nn.Conv2d(1, 8, (10, 4), padding=(0, 2)), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


@case("transformer_encoder", sequence(8), TOKENS)
def _encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3))


@case(
    "transformer",
    lambda batch, size: (randn(batch, size, 8), randn(batch, 4, 8)),
    ({0: "batch", 1: "size"}, {0: "batch"}),
    fx=False,
)
def _transformer():
    return nn.Transformer(8, 2, 1, 1, 16, batch_first=True, activation="gelu")


@case("attention_pooling", sequence(8), TOKENS, fx=False)
class AttentionPooling(nn.Module):
    """Multihead attention of learned queries."""

    def __init__(self):
        super().__init__()
        self.queries, self.attention = nn.Parameter(randn(1, 3, 8)), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(self.queries.expand(x.shape[0], -1, -1), x, x)


@case("linear_attention", sequence(8), TOKENS)
class LinearAttention(nn.Module):
    """Causal linear attention by einsum and cumulative sums."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = mytorch.einsum("bti,btj->btij", k, v).cumsum(1)
        return mytorch.einsum("bti,btij->btj", q, state) / (q * k.cumsum(1)).sum(-1, keepdim=True)


@case("char_gpt", tokens(), TOKENS, fx=False)
class CharGPT(nn.Module):
    """A decoder with a mask in a buffer, as in many tutorials."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.qkv, self.out, self.head = nn.Linear(8, 24, bias=False), nn.Linear(8, 8), nn.Linear(8, 20)
        self.register_buffer("mask", mytorch.tril(mytorch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T = x.size()
        h = self.tokens(x) + self.positions(mytorch.arange(0, T, dtype=mytorch.long))
        q, k, v = (part.view(B, T, 2, 4).transpose(1, 2) for part in self.qkv(h).split(8, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        h = h + self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, 8))
        return self.head(h)


_DECODER = {"num_layers": 2, "num_heads": 4, "embed_dim": 16, "vocab_size": 20, "context_length": 16}


@case("gpt2", tokens(), TOKENS, fx=False)
def _gpt2():
    return mytorch.models.GPT2(**_DECODER, use_bias=True, activation="gelu_tanh")


@case("llama", tokens(), TOKENS, fx=False)
def _llama():
    return mytorch.models.Llama(**_DECODER, num_kv_heads=2)


@case("qwen3", tokens(), TOKENS, fx=False)
def _qwen():
    return mytorch.models.Llama(**_DECODER, num_kv_heads=1, qk_norm=True, qkv_bias=True, tie_embeddings=True)


@case("mistral", tokens(), TOKENS, fx=False)
def _mistral():
    return mytorch.models.Llama(**_DECODER, sliding_window=3)


def _past(batch, size):
    return (integers(20, batch, 2), *(randn(batch, 4, size, 4) for _ in range(4)))


@case("gpt2_with_cache", _past, ({0: "batch"}, [{0: "batch", 2: "size"}] * 4), fx=False)
def _gpt2_with_cache():
    return mytorch.models.WithPast(mytorch.models.GPT2(**_DECODER))


@case("llama_with_cache", _past, ({0: "batch"}, [{0: "batch", 2: "size"}] * 4), fx=False)
def _llama_with_cache():
    return mytorch.models.WithPast(mytorch.models.Llama(**_DECODER, sliding_window=4))


# -- detection -------------------------------------------------------------------------------------------------------


@case("detector", image(), SIZED, size=16, step=8, fx=False)
class Detector(nn.Module):
    """A one-stage detector of one class for the first image: anchors, box decoding and non-maximum suppression."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        features = self.body(x)
        rows, columns = features.shape[2:]
        y = (mytorch.arange(rows).float()[:, None] + 0.5).expand(rows, columns) * 4
        x = (mytorch.arange(columns).float()[None] + 0.5).expand(rows, columns) * 4
        centers = mytorch.stack([x, y], dim=-1).reshape(-1, 2)
        scores = self.scores(features)[0].flatten().sigmoid()
        moves = self.boxes(features)[0].flatten(1).t()
        middle, half = centers + moves[:, :2] * 4, 4 * mytorch.exp(moves[:, 2:].clamp(max=2.0))
        boxes = mytorch.cat([middle - half, middle + half], dim=1)
        kept = vision_ops.nms(boxes, scores, 0.3)
        return boxes[kept], scores[kept]


@case("roi_head", lambda batch, size: (randn(2, 4, 12, 12), _boxes(size)), (None, {0: "size"}), fx=False)
class RoiHead(nn.Module):
    """The second stage of a detector: pooled regions, classes and boxes by class, filtered by score."""

    def __init__(self):
        super().__init__()
        self.body, self.classes, self.moves = nn.Linear(36, 16), nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, features, boxes):
        pooled = vision_ops.roi_align(features, boxes, (3, 3), spatial_scale=0.5, sampling_ratio=2, aligned=True)
        h = F.relu(self.body(pooled.flatten(1)))
        scores, labels = F.softmax(self.classes(h), dim=-1).max(dim=1)
        refined = boxes[:, 1:] + self.moves(h)
        kept = vision_ops.batched_nms(refined, scores, labels, 0.5)[:5]
        return refined[kept], scores[kept], labels[kept]


def _boxes(count):
    corner = mytorch.rand(count, 2) * 10
    first = integers(2, count, 1).float()
    return mytorch.cat([first, corner, corner + 4 + mytorch.rand(count, 2) * 8], dim=1)


@case("spatial_transformer", image(1), IMAGE, size=8)
class SpatialTransformer(nn.Module):
    """An affine grid from the image itself."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Linear(64, 6)
        self.theta.bias.data = mytorch.tensor([1.0, 0, 0, 0, 1, 0])

    def forward(self, x):
        theta = self.theta(x.flatten(1)).view(-1, 2, 3)
        line = mytorch.linspace(-0.8, 0.8, 8)
        grid = mytorch.stack([line.expand(8, 8), line[:, None].expand(8, 8), mytorch.ones(8, 8)], dim=-1)
        return F.grid_sample(x, mytorch.einsum("hwk,bck->bhwc", grid, theta), align_corners=False)


@case("indexing", sequence(6), TOKENS, fx=False)
class Indexing(nn.Module):
    """Slices, assignments, gathers, sorts and comparisons."""

    def forward(self, x):
        out = x.clone()
        out[:, 1:, 0] = 0.0
        out[:, :, 2:4] = out[:, :, 2:4] * 2 + x[:, :1, :2]
        out[out > 1.5] = 1.5
        best, index = out.topk(2, dim=-1)
        gathered = x.gather(-1, index.flip(-1))
        ordered = x.sort(dim=1, descending=True)[0][:, ::2]
        picked = x[:, -1, [0, 2]] + x[..., 1::2].amin(1)[:, :2]
        rolled = mytorch.roll(x, 1, dims=-1).where(x > 0, -x)
        return best - gathered, ordered.sum(1), picked, rolled.cumsum(1), x.argmax(-1), (x > 0).any(1)


# -- checks ----------------------------------------------------------------------------------------------------------


def build(name):
    """Returns a model in evaluation mode, with running statistics other than 0 and 1."""
    mytorch.manual_seed(0)
    model = CASES[name].build().eval()
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.data.uniform_(-0.5, 0.5)
            module.running_var.data.uniform_(0.5, 1.5)
    return model


def flat(result):
    """Returns the tensors of a nested result."""
    return [x for x in mytorch.utils._pytree.tree_leaves(result) if isinstance(x, mytorch.Tensor)]


def difference(expected, found):
    """Returns the largest difference between two results, relative to the size of the values if they are large."""
    expected, found = flat(expected), flat(found)
    assert len(expected) == len(found)
    largest = 0.0
    for a, b in zip(expected, found, strict=True):
        a, b = np.asarray(a.detach().numpy(), np.float64), np.asarray(b.detach().numpy(), np.float64)
        assert a.shape == b.shape, (a.shape, b.shape)
        if a.size:
            largest = max(largest, float((abs(a - b) / np.maximum(1.0, abs(a))).max()))
    return largest


def dynamic_shapes(name, batch, size):
    """Returns `dynamic_shapes` of a case, with the given Dims."""
    chosen = CASES[name]
    dims = {"batch": batch, "size": chosen.step * size if chosen.step > 1 else size}

    def convert(spec):
        if isinstance(spec, list):
            return [convert(item) for item in spec]
        return None if spec is None else {axis: dims[word] for axis, word in spec.items()}

    return tuple(convert(spec) for spec in chosen.dynamic)


def examples(name):
    """Returns arguments of the example size, and of two other sizes."""
    chosen = CASES[name]
    sized = "size" in str(chosen.dynamic)
    mytorch.manual_seed(1)
    return [chosen.inputs(b, chosen.size + chosen.step * d * sized) for b, d in ((2, 0), (5, 3), (1, 1))]


def check_fx(name):
    """Traces a model, prints, copies and transforms it. Returns the largest difference of the results."""
    model, found = build(name), []
    args = examples(name)[0]
    traced = mytorch.fx.symbolic_trace(model)
    traced.graph.lint()
    assert traced.code
    assert str(traced.graph)
    assert traced.print_readable(print_output=False)
    with mytorch.no_grad():
        expected = model(*args)
        found.append(difference(expected, traced(*args)))
        found.append(difference(expected, mytorch.fx.Interpreter(traced).run(*args)))
        found.append(difference(expected, mytorch.fx.Transformer(traced).transform()(*args)))
        found.append(difference(expected, copy.deepcopy(traced)(*args)))
        found.append(difference(expected, pickle.loads(pickle.dumps(traced))(*args)))
        found.append(difference(expected, mytorch.fx.experimental.optimization.fuse(model)(*args)))
    return max(found)


def check_export(name):
    """Exports a model with dynamic sizes. Returns (the largest difference, the program)."""
    model, (args, *others) = build(name), examples(name)
    program = mytorch.export.export(model, args, dynamic_shapes=dynamic_shapes(name, Dim("batch"), Dim("size")))
    module = program.module()
    with mytorch.no_grad():
        return max(difference(model(*a), module(*a)) for a in (args, *others)), program


def check_onnx(name, program, **options):
    """Converts a program to ONNX. Returns the largest difference of the results of ONNX Runtime."""
    converted = mytorch.onnx.export(program, **options)
    model = build(name)
    with mytorch.no_grad():
        return max(difference(model(*a), converted(*a)) for a in examples(name))


def main(names):
    """Checks models and prints a table."""
    failures, worst = 0, [0.0, 0.0, 0.0]
    print(f"{'model':22} {'fx':>9} {'export':>9} {'onnx':>9} {'CPU s':>6}")
    for name in names or CASES:
        start, cells = time.process_time(), []
        program = None
        for i, check in enumerate((check_fx, check_export, check_onnx)):
            try:
                if i == 0 and not CASES[name].fx:
                    cells.append("-")
                    continue
                found = check(name) if i < 2 else check(name, program)
                if i == 1:
                    found, program = found
                worst[i] = max(worst[i], found)
                cells.append(f"{found:.1e}")
                if not found <= 1e-4:
                    raise AssertionError(f"difference {found}")
            except Exception as error:
                failures += 1
                cells = cells[:i] + ["FAILED"]
                print(f"  {name}: {type(error).__name__}: {str(error)[:600]}")
                if i:
                    break
        print(f"{name:22} {' '.join(f'{c:>9}' for c in cells)} {time.process_time() - start:6.1f}", flush=True)
    traced = sum(CASES[n].fx for n in names or CASES)
    print(f"{len(names or CASES)} models, {traced} of them in fx, {failures} failures, largest differences {worst}")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
