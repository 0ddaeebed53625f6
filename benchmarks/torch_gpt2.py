"""GPT-2 in PyTorch for comparison in tests and benchmarks. Its state dict has the same names as `mytorch.models.GPT2`."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, bias, eps = config.embed_dim, config.use_bias, config.layer_norm_eps
        hidden = int(config.mlp_ratio * width)
        self.heads = config.num_heads
        self.dropout_p = config.dropout_p
        self.approximate = "tanh" if config.activation == "gelu_tanh" else "none"
        self.ln_1 = nn.LayerNorm(width, eps=eps, bias=bias)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(width, 3 * width, bias), "c_proj": nn.Linear(width, width, bias)}
        )
        self.ln_2 = nn.LayerNorm(width, eps=eps, bias=bias)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, hidden, bias), "c_proj": nn.Linear(hidden, width, bias)})

    def forward(self, x):
        B, T, C = x.shape
        p = self.dropout_p if self.training else 0.0
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + F.dropout(self.attn["c_proj"](y.transpose(1, 2).reshape(B, T, C)), p)
        h = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate=self.approximate)
        return x + F.dropout(self.mlp["c_proj"](h), p)


class TorchGPT2(nn.Module):
    """GPT-2, created from a `mytorch.models.GPT2Config`."""

    def __init__(self, config):
        super().__init__()
        self.dropout_p = config.dropout_p
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.embed_dim),
                "wpe": nn.Embedding(config.context_length, config.embed_dim),
                "h": nn.ModuleList([Block(config) for _ in range(config.num_layers)]),
                "ln_f": nn.LayerNorm(config.embed_dim, eps=config.layer_norm_eps, bias=config.use_bias),
            }
        )
        self.lm_head = nn.Linear(config.embed_dim, config.vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, input, targets=None):
        body = self.transformer
        x = body["wte"](input) + body["wpe"](torch.arange(input.shape[1], device=input.device))
        x = F.dropout(x, self.dropout_p if self.training else 0.0)
        for block in body["h"]:
            x = block(x)
        logits = self.lm_head(body["ln_f"](x))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def take(self, model):
        """Copy the weights of a `mytorch.models.GPT2`, and return self."""
        self.load_state_dict({name: torch.from_numpy(t.numpy().copy()) for name, t in model.state_dict().items()})
        return self

    def parameter_groups(self, weight_decay):
        """Returns the same groups as `mytorch.models.GPT2.parameter_groups`."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
