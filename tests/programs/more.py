"""Further families: the idioms of published programs that `families.py` does not reach."""

import math

import numpy as np

from .families import classes, data, train


def swin_windows(torch):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift, self.norm, self.qkv, self.out = shift, nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
            self.table = nn.Parameter(torch.zeros(9, 2))
            coords = torch.stack(torch.meshgrid([torch.arange(2), torch.arange(2)], indexing="ij")).flatten(1)
            relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
            relative[:, :, 0] += 1
            relative[:, :, 1] += 1
            relative[:, :, 0] *= 3
            self.register_buffer("index", relative.sum(-1))

        def forward(self, x):
            B, H, W, C = x.shape
            y = torch.roll(self.norm(x), shifts=(-self.shift, -self.shift), dims=(1, 2))
            y = y.view(B, H // 2, 2, W // 2, 2, C).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, C)
            q, k, v = self.qkv(y).reshape(-1, 4, 3, 2, C // 2).permute(2, 0, 3, 1, 4).unbind(0)
            bias = self.table[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1).unsqueeze(0)
            attention = F.softmax(q @ k.transpose(-2, -1) * 0.5 + bias, dim=-1)
            y = self.out((attention @ v).transpose(1, 2).reshape(-1, 4, C))
            y = y.view(B, H // 2, W // 2, 2, 2, C).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)
            return x + torch.roll(y, (self.shift, self.shift), (1, 2))

    class Merge(nn.Module):
        def __init__(self):
            super().__init__()
            self.reduce = nn.Linear(32, 16, bias=False)

        def forward(self, x):
            return self.reduce(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1))

    model = nn.Sequential(Block(0), Block(1), Merge(), nn.Flatten(), nn.Linear(64, 3))
    x, y = torch.from_numpy(data((4, 4, 4, 8))), torch.from_numpy(classes(4, 3))
    return train(
        torch,
        model,
        lambda m, s: F.cross_entropy(m(x), y),
        torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05),
    )


def diffusion_with_ema(torch):
    import copy

    nn, F = torch.nn, torch.nn.functional
    x = torch.linspace(0, 50, 51)
    bar = torch.cos(((x / 50) + 0.008) / 1.008 * torch.pi * 0.5) ** 2
    bar = bar / bar[0]
    betas = torch.clip(1 - bar[1:] / bar[:-1], 0.0001, 0.9999)
    kept = torch.cumprod(1.0 - betas, axis=0)

    def extract(a, t, shape):
        return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(shape) - 1)))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.first, self.norm, self.last = (
                nn.Linear(8, 32),
                nn.Conv2d(1, 16, 3, padding=1),
                nn.GroupNorm(4, 16),
                nn.Conv2d(16, 1, 3, padding=1),
            )

        def forward(self, x, t):
            rates = torch.exp(torch.arange(4) * -(math.log(10000) / 3))
            angles = t[:, None] * rates[None, :]
            scale, shift = self.time(torch.cat((angles.sin(), angles.cos()), dim=-1))[:, :, None, None].chunk(2, dim=1)
            return self.last(F.silu(self.norm(self.first(x)) * (scale + 1) + shift))

    model = Denoiser()
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(20):
        clean, t = torch.rand(4, 1, 6, 6) * 2 - 1, torch.randint(0, 50, (4,)).long()
        noise = torch.randn_like(clean)
        noisy = extract(kept, t, clean.shape).sqrt() * clean + extract(1.0 - kept, t, clean.shape).sqrt() * noise
        loss = F.smooth_l1_loss(noise, model(noisy, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters(), strict=True):
                e.data.mul_(0.9).add_(p.data, alpha=0.1)
        losses.append(loss.item())
    with torch.no_grad():
        x = torch.randn(2, 1, 6, 6)
        for i in reversed(range(0, 50, 10)):
            eps = ema(x, torch.full((2,), i, dtype=torch.long))
            start = ((x - eps * (1 - kept[i]).sqrt()) / kept[i].sqrt()).clamp_(-1.0, 1.0)
            before = kept[i - 10] if i else torch.tensor(1.0)
            x = before.sqrt() * start + (1 - before).sqrt() * eps
    return [*losses, x.mean().item(), x.std().item()]


def vq_vae(torch):
    nn, F = torch.nn, torch.nn.functional

    class Quantizer(nn.Module):
        def __init__(self, count, width):
            super().__init__()
            self.count, self.embedding = count, nn.Embedding(count, width)
            self.embedding.weight.data.uniform_(-1.0 / count, 1.0 / count)
            self.register_buffer("used", torch.zeros(count))
            self.mean = nn.Parameter(torch.Tensor(count, width))
            self.mean.data.normal_()

        def forward(self, inputs):
            inputs = inputs.permute(0, 2, 3, 1).contiguous()
            flat, table = inputs.view(-1, inputs.shape[-1]), self.embedding.weight
            distances = flat.pow(2).sum(1, keepdim=True) + table.pow(2).sum(1) - 2 * flat @ table.t()
            indices = distances.argmin(1).unsqueeze(1)
            hot = torch.zeros(indices.shape[0], self.count)
            hot.scatter_(1, indices, 1)
            self.used = self.used * 0.9 + 0.1 * hot.sum(0)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(hot.t() @ flat, alpha=0.1)
            quantized = (hot @ table).view(inputs.shape)
            loss = F.mse_loss(quantized, inputs.detach()) + 0.25 * F.mse_loss(quantized.detach(), inputs)
            share = hot.mean(0)
            perplexity = torch.exp(-torch.sum(share * torch.log(share + 1e-10)))
            return loss, (inputs + (quantized - inputs).detach()).permute(0, 3, 1, 2).contiguous(), perplexity

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(True), nn.Conv2d(8, 4, 3, 1, 1))
            self.vq, self.dec = (
                Quantizer(8, 4),
                nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(True), nn.Conv2d(8, 3, 3, 1, 1)),
            )

        def forward(self, x):
            loss, z, perplexity = self.vq(self.enc(x))
            return loss + F.mse_loss(self.dec(z), x) + 0 * perplexity

    model = Model()
    x = torch.rand(4, 3, 8, 8) - 0.5
    return (
        train(torch, model, lambda m, s: m(x), torch.optim.Adam(model.parameters(), lr=1e-3)) + model.vq.used.tolist()
    )


def normalizing_flow(torch):
    nn = torch.nn

    class Coupling(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)
            self.s = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
            self.t = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))

        def forward(self, x):
            kept, free = x * self.mask, 1 - self.mask
            s, t = self.s(kept) * free, self.t(kept) * free
            return kept + free * (x * torch.exp(s) + t), s.sum(dim=1)

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            P, L, U = torch.linalg.lu(torch.linalg.qr(torch.randn(2, 2))[0])
            self.register_buffer("P", P)
            self.register_buffer("sign", torch.sign(U.diagonal()))
            self.L, self.U, self.log_s = (
                nn.Parameter(L),
                nn.Parameter(torch.triu(U, 1)),
                nn.Parameter(torch.log(torch.abs(U.diag()))),
            )

        def forward(self, x):
            lower = torch.tril(self.L, diagonal=-1) + torch.eye(2)
            W = self.P @ lower @ (torch.triu(self.U, 1) + torch.diag(self.sign * torch.exp(self.log_s)))
            return x @ W, torch.slogdet(W)[1].expand(x.shape[0])

    layers = nn.ModuleList([f for m in ([0.0, 1.0], [1.0, 0.0]) * 2 for f in (Coupling(torch.tensor(m)), Mix())])
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    x = torch.from_numpy(data((32, 2)))
    x[16:] = torch.tensor([1.0, 0.5]) - 0.5 * x[16:].abs()

    def loss_of(layers, step):
        z, logdet = x, x.new_zeros(x.shape[0])
        for layer in layers:
            z, d = layer(z)
            logdet += d
        return -(prior.log_prob(z) + logdet).mean()

    return train(torch, layers, loss_of, torch.optim.Adam(layers.parameters(), lr=5e-3))


def translation_with_attention(torch):
    nn, F = torch.nn, torch.nn.functional
    rnn = nn.utils.rnn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.trg = nn.Embedding(12, 8, padding_idx=0), nn.Embedding(12, 8)
            self.enc, self.fc = nn.GRU(8, 8, bidirectional=True), nn.Linear(16, 8)
            self.attn, self.v = nn.Linear(24, 8), nn.Linear(8, 1, bias=False)
            self.dec, self.out = nn.GRU(24, 8), nn.Linear(32, 12)

        def forward(self, src, lengths, trg):
            packed = rnn.pack_padded_sequence(self.src(src), lengths, enforce_sorted=False)
            states, hidden = self.enc(packed)
            states, _ = rnn.pad_packed_sequence(states)
            hidden = torch.tanh(self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)))
            mask = (src != 0).permute(1, 0)
            outputs = torch.zeros(trg.shape[0], src.shape[1], 12)
            word = trg[0]
            for t in range(1, trg.shape[0]):
                query = hidden.unsqueeze(1).repeat(1, states.shape[0], 1)
                energy = self.v(torch.tanh(self.attn(torch.cat((query, states.permute(1, 0, 2)), dim=2)))).squeeze(2)
                weights = F.softmax(energy.masked_fill(mask == 0, -1e10), dim=1).unsqueeze(1)
                context = torch.bmm(weights, states.permute(1, 0, 2)).permute(1, 0, 2)
                x = self.trg(word.unsqueeze(0))
                out, hidden = self.dec(torch.cat((x, context), dim=2), hidden.unsqueeze(0))
                hidden = hidden.squeeze(0)
                outputs[t] = self.out(torch.cat((out.squeeze(0), context.squeeze(0), x.squeeze(0)), dim=1))
                word = trg[t] if t % 2 else outputs[t].argmax(1)
            return outputs

    model = Model()
    rows = [torch.from_numpy(classes(n, 11, n)) + 1 for n in (5, 3, 6)]
    src, lengths, trg = rnn.pad_sequence(rows), torch.tensor([5, 3, 6]), rnn.pad_sequence([r.flip(0) for r in rows])
    criterion = nn.CrossEntropyLoss(ignore_index=0)

    def loss_of(model, step):
        out = model(src, lengths, trg)
        return criterion(out[1:].view(-1, 12), trg[1:].reshape(-1))

    return train(torch, model, loss_of, torch.optim.Adam(model.parameters(), lr=1e-2), clip=1.0)


def graph_attention(torch):
    nn, F = torch.nn, torch.nn.functional
    edges = torch.unique(torch.from_numpy(classes((2, 60), 20)), dim=1)
    src, dst = edges

    class GAT(nn.Module):
        def __init__(self, ins, outs):
            super().__init__()
            self.lin = nn.Linear(ins, 2 * outs, bias=False)
            self.a, self.b = nn.Parameter(torch.Tensor(1, 2, outs)), nn.Parameter(torch.Tensor(1, 2, outs))
            nn.init.xavier_uniform_(self.a, gain=1.414)
            nn.init.xavier_uniform_(self.b)

        def forward(self, x):
            n, h = x.size(0), self.lin(x).view(x.size(0), 2, -1)
            e = F.leaky_relu((h * self.a).sum(-1).index_select(0, src) + (h * self.b).sum(-1).index_select(0, dst), 0.2)
            top = torch.full((n, 2), float("-inf")).scatter_reduce_(
                0, dst[:, None].expand_as(e), e, reduce="amax", include_self=False
            )
            e = (e - top[dst].detach()).exp()
            e = e / (torch.zeros(n, 2).index_add_(0, dst, e)[dst] + 1e-16)
            message = h[src] * e.unsqueeze(-1)
            return (
                torch.zeros(n, 2, h.size(-1)).scatter_add_(0, dst.view(-1, 1, 1).expand_as(message), message).flatten(1)
            )

    model = nn.Sequential(GAT(6, 8), nn.ELU(), GAT(16, 3), nn.Linear(6, 3))
    x, y = torch.from_numpy(data((20, 6))), torch.from_numpy(classes(20, 3))
    mask = torch.zeros(20, dtype=torch.bool)
    mask[:14] = True
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    return train(torch, model, lambda m, s: F.nll_loss(m(x).log_softmax(-1)[mask], y[mask]), optimizer)


def physics_informed(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1))
    viscosity = nn.Parameter(torch.tensor([0.01 / torch.pi]))
    inside = torch.rand(30, 2, requires_grad=True)
    start = torch.cat([torch.linspace(-1, 1, 10)[:, None], torch.zeros(10, 1)], 1)

    def loss_of(model, step):
        u = model(inside)
        first = torch.autograd.grad(u, inside, torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        second = torch.autograd.grad(first, inside, torch.ones_like(first), create_graph=True)[0]
        f = first[:, [1]] + u * first[:, [0]] - viscosity * second[:, [0]]
        return nn.MSELoss()(model(start), -torch.sin(torch.pi * start[:, :1])) + f.pow(2).mean()

    return train(torch, model, loss_of, torch.optim.Adam([*model.parameters(), viscosity], lr=5e-3))


def maml(torch):
    nn, F = torch.nn, torch.nn.functional
    weights = nn.ParameterList()
    for shape in ((8, 1, 3, 3), (3, 72)):
        weights.append(nn.Parameter(nn.init.kaiming_normal_(torch.ones(*shape))))
        weights.append(nn.Parameter(torch.zeros(shape[0])))

    def net(x, w):
        x = F.max_pool2d(torch.tanh(F.conv2d(x, w[0], w[1], padding=1)), 2)
        return F.linear(x.view(x.size(0), -1), w[2], w[3])

    support, query = (torch.from_numpy(data((3, 5, 1, 6, 6), s)) for s in (0, 1))
    sy, qy = (torch.from_numpy(classes((3, 5), 3, s)) for s in (0, 1))
    optimizer = torch.optim.Adam(weights.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        total = 0
        for i in range(3):
            fast = list(weights)
            for _ in range(2):
                grads = torch.autograd.grad(F.cross_entropy(net(support[i], fast), sy[i]), fast, create_graph=True)
                fast = [w - 0.1 * g for g, w in zip(grads, fast, strict=True)]
            total = total + F.cross_entropy(net(query[i], fast), qy[i])
        optimizer.zero_grad()
        (total / 3).backward()
        optimizer.step()
        losses.append(total.item() / 3)
    return losses


def soft_actor_critic(torch):
    nn, F = torch.nn, torch.nn.functional
    Normal = torch.distributions.Normal

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.mu, self.log_std = nn.Linear(3, 16), nn.Linear(16, 2), nn.Linear(16, 2)

        def sample(self, s):
            h = F.relu(self.body(s))
            normal = Normal(self.mu(h), torch.clamp(self.log_std(h), min=-20, max=2).exp())
            x = normal.rsample()
            y = torch.tanh(x)
            return y, (normal.log_prob(x) - torch.log(1 - y.pow(2) + 1e-6)).sum(1, keepdim=True)

    actor, q1, q2 = Actor(), nn.Linear(5, 1), nn.Linear(5, 1)
    log_alpha = torch.zeros(1, requires_grad=True)
    critics = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-3)
    others = torch.optim.Adam(actor.parameters(), 3e-3), torch.optim.Adam([log_alpha], lr=3e-3)
    s, a = torch.from_numpy(data((16, 3))), torch.from_numpy(data((16, 2), 1)).tanh()
    reward = -a.pow(2).sum(-1, keepdim=True)
    losses = []
    for _ in range(20):
        with torch.no_grad():
            a2, logp2 = actor.sample(s)
            nxt = torch.cat([s, a2], 1)
            target = reward + 0.99 * (torch.min(q1(nxt), q2(nxt)) - log_alpha.exp() * logp2)
        critic = F.mse_loss(q1(torch.cat([s, a], 1)), target) + F.mse_loss(q2(torch.cat([s, a], 1)), target)
        critics.zero_grad()
        critic.backward()
        critics.step()
        pi, logp = actor.sample(s)
        value = torch.min(q1(torch.cat([s, pi], 1)), q2(torch.cat([s, pi], 1)))
        policy = (log_alpha.exp().detach() * logp - value).mean()
        temperature = -(log_alpha * (logp - 2).detach()).mean()
        for optimizer, loss in zip(others, (policy, temperature), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses += [critic.item(), policy.item(), temperature.item()]
    return losses


def radiance_field(torch):
    nn, F = torch.nn, torch.nn.functional

    def embed(x):
        return torch.cat([x, *[f(x * 2.0**k) for k in range(3) for f in (torch.sin, torch.cos)]], -1)

    def composite(raw, z, rays):
        gaps = torch.cat([z[..., 1:] - z[..., :-1], torch.Tensor([1e10]).expand(z[..., :1].shape)], -1)
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * gaps * torch.norm(rays[..., None, :], dim=-1))
        free = torch.cumprod(torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * free
        return torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), -2), weights

    def resample(bins, weights, count):
        pdf = (weights + 1e-5) / torch.sum(weights + 1e-5, -1, keepdim=True)
        cdf = torch.cat([torch.zeros_like(pdf[..., :1]), torch.cumsum(pdf, -1)], -1)
        u = torch.linspace(0.02, 0.98, steps=count).expand([*cdf.shape[:-1], count]).contiguous()
        found = torch.searchsorted(cdf, u, right=True)
        ends = torch.stack([(found - 1).clamp(min=0), found.clamp(max=cdf.shape[-1] - 1)], -1)
        shape = [ends.shape[0], ends.shape[1], cdf.shape[-1]]
        c, b = (torch.gather(t.unsqueeze(1).expand(shape), 2, ends) for t in (cdf, bins))
        width = torch.where(c[..., 1] - c[..., 0] < 1e-5, torch.ones_like(u), c[..., 1] - c[..., 0])
        return b[..., 0] + (u - c[..., 0]) / width * (b[..., 1] - b[..., 0])

    model = nn.Sequential(nn.Linear(21, 24), nn.ReLU(), nn.Linear(24, 4))
    i, j = torch.meshgrid(torch.linspace(0, 3, 4), torch.linspace(0, 3, 4), indexing="xy")
    rays = torch.stack([(i - 2) / 3, -(j - 2) / 3, -torch.ones_like(i)], -1).reshape(-1, 3)
    origin = torch.tensor([0.0, 0.0, 4.0]).expand(rays.shape)
    target = torch.from_numpy(np.abs(data((16, 3)))).clamp(0, 1)

    def loss_of(model, step):
        z = torch.linspace(2.0, 6.0, steps=6).expand([16, 6])
        coarse, weights = composite(model(embed(origin[..., None, :] + rays[..., None, :] * z[..., :, None])), z, rays)
        extra = resample(0.5 * (z[..., 1:] + z[..., :-1]), weights[..., 1:-1], 4).detach()
        z, _ = torch.sort(torch.cat([z, extra], -1), -1)
        fine, _ = composite(model(embed(origin[..., None, :] + rays[..., None, :] * z[..., :, None])), z, rays)
        return F.mse_loss(coarse, target) + F.mse_loss(fine, target)

    return train(torch, model, loss_of, torch.optim.Adam(model.parameters(), lr=5e-3))


def fourier_operator(torch):
    nn, F = torch.nn, torch.nn.functional

    class Spectral(nn.Module):
        def __init__(self, width, modes):
            super().__init__()
            self.modes = modes
            self.w1 = nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2)
            self.w2 = nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2)

        def forward(self, x):
            m, spectrum = self.modes, torch.fft.rfft2(x)
            out = torch.zeros(x.shape[0], x.shape[1], x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.w1)
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], self.w2)
            return torch.fft.irfft2(out, s=(x.size(-2), x.size(-1)))

    class FNO(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.spectral, self.skip, self.out = (
                nn.Linear(2, 6),
                Spectral(6, 2),
                nn.Conv2d(6, 6, 1),
                nn.Linear(6, 1),
            )

        def forward(self, x):
            grid = torch.linspace(0, 1, x.shape[1]).reshape(1, -1, 1, 1).repeat([x.shape[0], 1, x.shape[2], 1])
            h = F.pad(self.lift(torch.cat((x, grid), dim=-1)).permute(0, 3, 1, 2), [0, 2, 0, 2])
            h = F.gelu(self.spectral(h) + self.skip(h))[..., :-2, :-2]
            return self.out(h.permute(0, 2, 3, 1))

    model = FNO()
    x = torch.from_numpy(data((3, 6, 6, 1)))
    y = torch.sin(x).cumsum(1)

    def loss_of(model, step):
        gap = torch.norm(model(x).reshape(3, -1) - y.reshape(3, -1), 2, 1)
        return torch.sum(gap / torch.norm(y.reshape(3, -1), 2, 1))

    return train(torch, model, loss_of, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9))


def sharpness_aware_lion(torch):
    nn, F = torch.nn, torch.nn.functional

    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))  # noqa: C408

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None or p.grad.is_sparse:
                        continue
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                    state = self.state[p]
                    if len(state) == 0:
                        state["exp_avg"] = torch.zeros_like(p)
                    b1, b2 = group["betas"]
                    p.add_((state["exp_avg"] * b1 + p.grad * (1 - b1)).sign_(), alpha=-group["lr"])
                    state["exp_avg"].mul_(b2).add_(p.grad, alpha=1 - b2)

    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **kwargs):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base = base(self.param_groups, **kwargs)
            self.param_groups = self.base.param_groups

        @torch.no_grad()
        def first_step(self):
            norm = torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"]]), p=2)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["old"] = p.data.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old"]
            self.base.step()
            self.zero_grad()

    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    x, y = torch.from_numpy(data((32, 6))), torch.from_numpy(classes(32, 3))
    optimizer = SAM(model.parameters(), Lion, lr=1e-2, weight_decay=0.1)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step()
        losses.append(loss.item())
    return losses


MORE = [
    swin_windows, diffusion_with_ema, vq_vae, normalizing_flow, translation_with_attention, graph_attention, physics_informed, maml,
    soft_actor_critic, radiance_field, fourier_operator, sharpness_aware_lion,
]  # fmt: skip
