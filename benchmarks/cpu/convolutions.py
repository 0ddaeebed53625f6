"""Workloads: convolutions, pooling and batch norm. Also defines the convolutional networks for steps.py."""


def _fb(make, *shape):
    """Returns a workload: forward and backward of the function `make(lib)` on an input of this shape."""

    def workload(lib):
        function, x = make(lib), lib.randn(*shape).requires_grad_()
        up = lib.randn(*function(x).shape)

        def step():
            x.grad = None
            function(x).backward(up)

        return step

    return workload


def _training(make, *shape, classes=10):
    """Returns a workload: an SGD step on the network `make(lib)`. With `classes=None`, the loss is the squared output."""

    def workload(lib):
        net, x = make(lib), lib.randn(*shape)
        y = lib.randint(0, classes or 1, (shape[0],))
        optimizer = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step():
            optimizer.zero_grad()
            out = net(x)
            loss = out.pow(2).mean() if classes is None else lib.nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()

        return step

    return workload


def _add(lib, body, shortcut):
    """Returns a module that computes relu(body(x) + shortcut(x))."""

    class Residual(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x):
            return lib.nn.functional.relu(self.body(x) + self.shortcut(x))

    return Residual()


def _cnn_mnist(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)
    )  # fmt: skip


def _block(lib, c, d, stride=1):
    """Returns the basic block of ResNet."""
    nn = lib.nn
    body = nn.Sequential(
        nn.Conv2d(c, d, 3, stride, 1, bias=False), nn.BatchNorm2d(d), nn.ReLU(), nn.Conv2d(d, d, 3, 1, 1, bias=False), nn.BatchNorm2d(d)
    )  # fmt: skip
    if stride == 1 and c == d:
        return _add(lib, body, nn.Identity())
    return _add(lib, body, nn.Sequential(nn.Conv2d(c, d, 1, stride, bias=False), nn.BatchNorm2d(d)))


def resnet_cifar(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), _block(lib, 16, 16), _block(lib, 16, 32, 2),
        _block(lib, 32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )  # fmt: skip


def resnet18(lib):
    nn, widths = lib.nn, ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [block for c, d, s in widths for block in (_block(lib, c, d, s), _block(lib, d, d))]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)
    )  # fmt: skip


def _unet(lib):
    nn = lib.nn

    def double(c, d):
        layers = [(nn.Conv2d(a, d, 3, padding=1), nn.BatchNorm2d(d), nn.ReLU()) for a in (c, d)]
        return nn.Sequential(*layers[0], *layers[1])

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([double(3, 16), double(16, 32), double(32, 64)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
            self.joined = nn.ModuleList([double(64, 32), double(32, 16)])
            self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(16, 2, 1)

        def forward(self, x):
            kept = [self.down[0](x)]
            for level in self.down[1:]:
                kept.append(level(self.pool(kept[-1])))
            x = kept.pop()
            for up, joined in zip(self.up, self.joined):  # noqa: B905
                x = joined(lib.cat([up(x), kept.pop()], dim=1))
            return self.head(x)

    return UNet()


def _convnext(lib):
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.narrow(nn.functional.gelu(self.wide(y)))
            return x + y.permute(0, 3, 1, 2)

    return Block(64)


def _generator(lib):
    nn, widths = lib.nn, ((64, 128, 1, 0), (128, 64, 2, 1), (64, 32, 2, 1))
    layers = [
        layer
        for c, d, s, p in widths
        for layer in (nn.ConvTranspose2d(c, d, 4, s, p, bias=False), nn.BatchNorm2d(d), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())


def _discriminator(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64),
        nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1, bias=False), nn.BatchNorm2d(128), nn.LeakyReLU(0.2), nn.Conv2d(128, 1, 4, bias=False)
    )  # fmt: skip


def _dcgan(lib):
    """Returns a step that trains both networks of a GAN on 32 × 32 images."""
    nets = [_generator(lib), _discriminator(lib)]
    optimizers = [lib.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in nets]
    (make, judge), real, noise = nets, lib.randn(32, 3, 32, 32), lib.randn(32, 64, 1, 1)

    def loss(scores, truth):
        return lib.nn.functional.binary_cross_entropy_with_logits(scores, lib.full_like(scores, truth))

    def step():
        fake = make(noise)
        optimizers[1].zero_grad()
        (loss(judge(real), 1.0) + loss(judge(fake.detach()), 0.0)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        loss(judge(fake), 1.0).backward()
        optimizers[0].step()

    return step


NETWORKS = {
    "cnn_mnist": _training(_cnn_mnist, 64, 1, 28, 28),
    "resnet_cifar": _training(resnet_cifar, 32, 3, 32, 32),
    "unet_small": _training(_unet, 4, 3, 64, 64, classes=None),
    "convnext_block": _training(_convnext, 8, 64, 28, 28, classes=None),
    "dcgan": _dcgan,
    "resnet18_224": _training(resnet18, 4, 3, 224, 224, classes=1000),
}

WORKLOADS = {
    "conv3x3_fb": _fb(lambda lib: lib.nn.Conv2d(64, 64, 3, padding=1), 16, 64, 28, 28),
    "conv3x3_narrow_fb": _fb(lambda lib: lib.nn.Conv2d(16, 16, 3, padding=1), 32, 16, 32, 32),
    "conv3x3_stride2_fb": _fb(lambda lib: lib.nn.Conv2d(64, 128, 3, 2, 1), 16, 64, 28, 28),
    "conv3x3_dilated_fb": _fb(lambda lib: lib.nn.Conv2d(64, 64, 3, 1, 2, 2), 8, 64, 28, 28),
    "conv7x7_first_fb": _fb(lambda lib: lib.nn.Conv2d(3, 64, 7, 2, 3), 4, 3, 224, 224),
    "conv1x1_fb": _fb(lambda lib: lib.nn.Conv2d(64, 256, 1), 16, 64, 28, 28),
    "conv1d_fb": _fb(lambda lib: lib.nn.Conv1d(64, 64, 3, padding=1), 16, 64, 256),
    "conv3d_fb": _fb(lambda lib: lib.nn.Conv3d(16, 32, 3, padding=1), 2, 16, 16, 28, 28),
    "grouped_fb": _fb(lambda lib: lib.nn.Conv2d(128, 128, 3, padding=1, groups=8), 8, 128, 28, 28),
    "depthwise_fb": _fb(lambda lib: lib.nn.Conv2d(64, 64, 7, padding=3, groups=64), 8, 64, 28, 28),
    "depthwise3x3_fb": _fb(lambda lib: lib.nn.Conv2d(96, 96, 3, padding=1, groups=96), 8, 96, 56, 56),
    "conv_transpose_fb": _fb(lambda lib: lib.nn.ConvTranspose2d(64, 32, 4, 2, 1), 16, 64, 16, 16),
    "max_pool_fb": _fb(lambda lib: lib.nn.MaxPool2d(2), 32, 64, 28, 28),
    "max_pool3_fb": _fb(lambda lib: lib.nn.MaxPool2d(3, 2, 1), 4, 64, 112, 112),
    "avg_pool_fb": _fb(lambda lib: lib.nn.AvgPool2d(2), 32, 64, 28, 28),
    "batch_norm_fb": _fb(lambda lib: lib.nn.BatchNorm2d(64), 32, 64, 28, 28),
    "batch_norm_eval_fb": _fb(lambda lib: lib.nn.BatchNorm2d(64).eval(), 32, 64, 28, 28),
    "relu": lambda lib: (lambda x: lambda: x.relu())(lib.randn(1024, 1024)),
    "relu_fb": _fb(lambda lib: lib.relu, 1024, 1024),
}
