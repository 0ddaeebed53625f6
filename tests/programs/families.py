"""One program for each family, written as for PyTorch. Each function takes the library under the name `torch`, builds
a model and data, and returns the losses of a few steps. `same` makes both libraries start from equal weights."""

import math

import numpy as np


def train(torch, model, loss_of, optimizer, steps=20, scheduler=None, clip=None):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def data(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def classes(n, k, seed=0):
    return np.random.default_rng(seed).integers(0, k, n)


def gpt(torch):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.heads = heads
            self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.qkv(self.ln1(x)).split(C, dim=2)
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), dim=-1)
            x = x + self.out((att @ v).transpose(1, 2).contiguous().view(B, T, C))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(20, 16), nn.Embedding(16, 16)
            self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
            self.head = nn.Linear(16, 20, bias=False)
            self.wte.weight = self.head.weight

        def forward(self, idx):
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = GPT()
    ids = torch.from_numpy(classes((4, 17), 20))

    def loss_of(model, step):
        logits = model(ids[:, :-1])
        return F.cross_entropy(logits.view(-1, logits.size(-1)), ids[:, 1:].reshape(-1))

    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
    return train(torch, model, loss_of, optimizer, scheduler=schedule, clip=1.0)


def llama(torch):
    nn, F = torch.nn, torch.nn.functional

    class RMS(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def rotate(x, freqs):
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * freqs).flatten(3).type_as(x)

    class Layer(nn.Module):
        def __init__(self, dim=16, heads=4, kv=2):
            super().__init__()
            self.heads, self.kv, self.hd = heads, kv, dim // heads
            self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
            self.k, self.v = nn.Linear(dim, kv * self.hd, bias=False), nn.Linear(dim, kv * self.hd, bias=False)
            self.n1, self.n2 = RMS(dim), RMS(dim)
            self.w1, self.w2, self.w3 = (
                nn.Linear(dim, 32, bias=False),
                nn.Linear(32, dim, bias=False),
                nn.Linear(dim, 32, bias=False),
            )

        def forward(self, x, freqs):
            B, T, _ = x.shape
            h = self.n1(x)
            q = rotate(self.q(h).view(B, T, self.heads, self.hd), freqs).transpose(1, 2)
            k = rotate(self.k(h).view(B, T, self.kv, self.hd), freqs).transpose(1, 2)
            v = self.v(h).view(B, T, self.kv, self.hd).transpose(1, 2)
            k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(out.transpose(1, 2).reshape(B, T, -1))
            h = self.n2(x)
            return x + self.w2(F.silu(self.w1(h)) * self.w3(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 16)
            self.layers = nn.ModuleList(Layer() for _ in range(2))
            self.norm, self.head = RMS(16), nn.Linear(16, 20, bias=False)
            inv = 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4))
            angles = torch.outer(torch.arange(8).float(), inv)
            self.freqs = torch.polar(torch.ones_like(angles), angles).view(1, 8, 1, 2)

        def forward(self, x):
            h = self.emb(x)
            for layer in self.layers:
                h = layer(h, self.freqs)
            return self.head(self.norm(h))

    model = Llama()
    ids = torch.from_numpy(classes((4, 9), 20))

    def loss_of(model, step):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return train(torch, model, loss_of, torch.optim.Adam(model.parameters(), lr=5e-3))


def resnet(torch):
    nn, F = torch.nn, torch.nn.functional

    class Basic(nn.Module):
        def __init__(self, ins, outs, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outs)
            self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outs)
            self.short = nn.Sequential()
            if stride != 1 or ins != outs:
                self.short = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)), inplace=True)
            out = self.bn2(self.conv2(out))
            out += self.short(x)
            return F.relu(out)

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), Basic(8, 8), Basic(8, 16, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(16, 5)
    )  # fmt: skip
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    x, y = torch.from_numpy(data((8, 3, 16, 16))), torch.from_numpy(classes(8, 5))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    return train(torch, model, lambda m, s: criterion(m(x), y), optimizer, scheduler=schedule)


def unet(torch):
    nn = torch.nn

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
            self.down2 = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.SiLU())
            self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.out = nn.Conv2d(32, 1, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(a)
            return self.out(torch.cat([a, self.up(b), self.up2(b)], dim=1))

    model = UNet()
    x = torch.from_numpy(data((2, 1, 8, 8)))
    target = (x > 0).float()
    loss_fn = nn.BCEWithLogitsLoss()
    return train(torch, model, lambda m, s: loss_fn(m(x), target), torch.optim.AdamW(model.parameters(), lr=1e-2))


def vae(torch):
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.mu, self.var, self.dec1, self.dec2 = (
                nn.Linear(20, 16),
                nn.Linear(16, 4),
                nn.Linear(16, 4),
                nn.Linear(4, 16),
                nn.Linear(16, 20),
            )

        def forward(self, x, eps):
            h = F.relu(self.enc(x))
            mu, logvar = self.mu(h), self.var(h)
            z = mu + eps * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.dec2(F.relu(self.dec1(z)))), mu, logvar

    model = VAE()
    x = torch.sigmoid(torch.from_numpy(data((16, 20))))

    def loss_of(model, step):
        recon, mu, logvar = model(x, torch.from_numpy(data((16, 4), step)))
        return F.binary_cross_entropy(recon, x, reduction="sum") - 0.5 * torch.sum(
            1 + logvar - mu.pow(2) - logvar.exp()
        )

    return train(torch, model, loss_of, torch.optim.Adam(model.parameters(), lr=1e-3))


def gan_with_gradient_penalty(torch):
    nn = torch.nn
    g = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 6), nn.Tanh())
    d = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1, bias=False))
    og, od = torch.optim.RMSprop(g.parameters(), lr=1e-3), torch.optim.SGD(d.parameters(), lr=1e-2, momentum=0.5)
    real = torch.from_numpy(data((8, 6)))
    losses = []
    for step in range(20):
        noise = torch.from_numpy(data((8, 4), step))
        fake = g(noise)
        alpha = torch.from_numpy(np.random.default_rng(step).random((8, 1)).astype(np.float32))
        mixed = (alpha * real + (1 - alpha) * fake.detach()).requires_grad_(True)
        (grads,) = torch.autograd.grad(d(mixed).sum(), mixed, create_graph=True)
        penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean()
        loss_d = d(fake.detach()).mean() - d(real).mean() + 10 * penalty
        od.zero_grad()
        loss_d.backward()
        od.step()
        loss_g = -d(g(noise)).mean()
        og.zero_grad()
        loss_g.backward()
        og.step()
        losses += [loss_d.item(), loss_g.item()]
    return losses


def lstm_language_model(torch):
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.gru, self.out = (
                nn.Embedding(12, 8),
                nn.LSTM(8, 16, num_layers=2, batch_first=True),
                nn.GRU(16, 8, batch_first=True),
                nn.Linear(8, 12),
            )

        def forward(self, x, state):
            h, state = self.rnn(self.emb(x), state)
            return self.out(self.gru(h)[0]), state

    model = Model()
    ids = torch.from_numpy(classes((4, 41), 12))
    state = None
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for step in range(20):
        start = step * 2 % 30
        x, y = ids[:, start : start + 10], ids[:, start + 1 : start + 11]
        optimizer.zero_grad()
        logits, state = model(x, state)
        state = tuple(s.detach() for s in state)
        loss = F.cross_entropy(logits.permute(0, 2, 1), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def transformer_seq2seq(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.tgt = nn.Embedding(12, 16), nn.Embedding(12, 16)
            self.core = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, 12)

        def forward(self, s, t):
            mask = nn.Transformer.generate_square_subsequent_mask(t.size(1))
            return self.out(self.core(self.src(s), self.tgt(t), tgt_mask=mask, src_key_padding_mask=(s == 0)))

    model = Model()
    s, t = torch.from_numpy(classes((4, 7), 12, 1)), torch.from_numpy(classes((4, 6), 12, 2))
    loss_fn = nn.CrossEntropyLoss(ignore_index=0)
    return train(
        torch,
        model,
        lambda m, _: loss_fn(m(s, t[:, :-1]).reshape(-1, 12), t[:, 1:].reshape(-1)),
        torch.optim.NAdam(model.parameters(), lr=2e-3),
    )


def policy_gradient(torch):
    nn = torch.nn
    policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2, maximize=False)
    losses = []
    for step in range(20):
        states = torch.from_numpy(data((10, 3), step))
        dist = torch.distributions.Categorical(logits=policy(states))
        actions = torch.from_numpy(classes(10, 4, step))
        returns = torch.from_numpy(data((10,), step + 100))
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(dist.log_prob(actions) * returns).mean() - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def custom_optimizer_and_function(torch):
    nn = torch.nn

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return grad_output * (s * (1 + x * (1 - s)))

    class Momentum(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1, mu=0.9):
            super().__init__(params, {"lr": lr, "mu": mu})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if "v" not in state:
                        state["v"] = torch.zeros_like(p.data)
                    state["v"].mul_(group["mu"]).add_(p.grad)
                    p.data.add_(state["v"], alpha=-group["lr"])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.b(Swish.apply(self.a(x)))

    model = Net()
    seen = []
    model.a.register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape)))
    x, y = torch.from_numpy(data((16, 5))), torch.from_numpy(data((16, 1), 1))
    losses = train(torch, model, lambda m, s: nn.functional.mse_loss(m(x), y), Momentum(model.parameters(), lr=0.02))
    assert seen[0] == (16, 8)
    return losses


def vision_transformer_with_einops(torch):
    from einops import rearrange, repeat

    nn = torch.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Linear(48, 16)
            self.cls = nn.Parameter(torch.zeros(1, 1, 16))
            self.pos = nn.Parameter(torch.zeros(1, 5, 16))
            layer = nn.TransformerEncoderLayer(
                16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            x = self.patch(rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4))
            x = torch.cat([repeat(self.cls, "1 1 d -> b 1 d", b=x.shape[0]), x], dim=1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    model = ViT()
    x, y = torch.from_numpy(data((6, 3, 8, 8))), torch.from_numpy(classes(6, 3))
    return train(
        torch, model, lambda m, s: nn.functional.cross_entropy(m(x), y), torch.optim.RAdam(model.parameters(), lr=1e-2)
    )


FAMILIES = [
    gpt, llama, resnet, unet, vae, gan_with_gradient_penalty, lstm_language_model, transformer_seq2seq, policy_gradient,
    custom_optimizer_and_function, vision_transformer_with_einops,
]  # fmt: skip
