"""A vision transformer for images of digits. Source: Dosovitskiy et al., 2020."""

import mytorch
from mytorch import nn


class ViT(nn.Module):
    """Applies a transformer to the patches of an image. The output of the class token gives the logits."""

    def __init__(self, side, patch_size=4, embed=128, num_heads=2, num_layers=1):
        super().__init__()
        if side % patch_size:
            raise SystemExit(f"--patch_size: expected a divisor of the image side {side}, got {patch_size}.")
        self.patches = nn.Conv2d(1, embed, kernel_size=patch_size, stride=patch_size)  # a linear layer for each patch
        self.token = nn.Parameter(mytorch.zeros(1, 1, embed))
        self.positions = nn.Parameter(mytorch.randn(1, 1 + (side // patch_size) ** 2, embed) * 0.02)
        layer = nn.TransformerEncoderLayer(
            embed, num_heads, 4 * embed, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, norm=nn.LayerNorm(embed), enable_nested_tensor=False)
        self.head = nn.Linear(embed, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)  # (B, patches, embed)
        # add the class token before the patches: (B, 1 + patches, embed)
        x = mytorch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])  # (B, 10)
