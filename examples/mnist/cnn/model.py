"""A convolutional network for images of digits."""

from mytorch import nn


class ConvNet(nn.Module):
    """Classifies images with two convolutions, two poolings and a linear layer."""

    def __init__(self, side, width=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, padding=1),  # (B, width, side, side)
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),  # (B, 2 * width, side / 2, side / 2)
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(2 * width * (side // 4) ** 2, 10))

    def forward(self, x):
        return self.head(self.features(x))  # (B, 1, H, W) to (B, 10)
