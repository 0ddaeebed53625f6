"""AlexNet. Source: Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014."""

from ... import nn
from .common import Classifier, variant


class AlexNet(Classifier):
    """AlexNet: five convolutions and three linear layers, (N, 3, H, W) to (N, num_classes).

    Args:
        num_classes: number of classes.
        dropout: dropout probability before the first two linear layers.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        for inside, out in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(inside, out, 3, padding=1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, num_classes),
        )  # fmt: skip


alexnet = variant("alexnet", "Builds an AlexNet.", AlexNet, AlexNet)
