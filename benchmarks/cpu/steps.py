"""Workloads: training steps of many kinds of networks, generation, attention, sampling from a policy, and data loading."""

from .convolutions import NETWORKS
from .loader import WORKLOADS as EPOCHS


def train(L, model, make, loss, optimizer=None, **options):
    """Returns a training step on `loss(model, *make())` with the given optimizer (default: Adam)."""
    optimizer = (optimizer or L.optim.Adam)(model.parameters(), **({"lr": 1e-3} | options))
    batch = make()

    def step():
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()

    return step


def _recurrent(kind):
    def case(L):
        nn = L.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(65, 64)
                self.rnn = getattr(nn, kind)(64, 128, batch_first=True)
                self.head = nn.Linear(128, 65)

            def forward(self, x):
                return self.head(self.rnn(self.emb(x))[0])

        return train(
            L, Net(), lambda: (L.randint(0, 65, (32, 50)), L.randint(0, 65, (32, 50))),
            lambda m, x, y: nn.functional.cross_entropy(m(x).reshape(-1, 65), y.reshape(-1)),
        )  # fmt: skip

    return case


def text_cnn(L):
    nn, F = L.nn, L.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(5000, 64)
            self.convs = nn.ModuleList([nn.Conv1d(64, 64, k) for k in (3, 4, 5)])
            self.head = nn.Linear(192, 2)

        def forward(self, x):
            e = self.emb(x).transpose(1, 2)
            return self.head(L.cat([F.relu(c(e)).max(2)[0] for c in self.convs], 1))

    return train(
        L,
        Net(),
        lambda: (L.randint(0, 5000, (32, 100)), L.randint(0, 2, (32,))),
        lambda m, x, y: F.cross_entropy(m(x), y),
    )


def seq2seq(L):
    nn, F = L.nn, L.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.tgt = nn.Embedding(200, 64), nn.Embedding(200, 64)
            self.enc = nn.GRU(64, 64, batch_first=True, bidirectional=True)
            self.cell = nn.GRUCell(64 + 128, 128)
            self.query = nn.Linear(128, 128)
            self.head = nn.Linear(256, 200)

        def forward(self, x, y):
            memory, h = self.enc(self.src(x))
            h = L.cat([h[0], h[1]], 1)
            outs = []
            e = self.tgt(y)
            for t in range(y.shape[1]):
                weights = L.softmax((memory @ self.query(h).unsqueeze(2)).squeeze(2), -1)
                context = (weights.unsqueeze(1) @ memory).squeeze(1)
                h = self.cell(L.cat([e[:, t], context], 1), h)
                outs.append(self.head(L.cat([h, context], 1)))
            return L.stack(outs, 1)

    return train(
        L, Net(), lambda: (L.randint(0, 200, (32, 20)), L.randint(0, 200, (32, 20))),
        lambda m, x, y: F.cross_entropy(m(x, y).reshape(-1, 200), y.reshape(-1)),
    )  # fmt: skip


def _gpt_model(L, vocab, width, layers, heads, context):
    nn, F = L.nn, L.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (a.view(B, T, heads, C // heads).transpose(1, 2) for a in self.qkv(self.n1(x)).split(C, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
            self.head.weight = self.tok.weight

        def forward(self, x):
            x = self.tok(x) + self.pos(L.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def _gpt(batch, context, width, layers, heads, vocab=65):
    def case(L):
        F = L.nn.functional
        return train(
            L, _gpt_model(L, vocab, width, layers, heads, context),
            lambda: (L.randint(0, vocab, (batch, context)), L.randint(0, vocab, (batch, context))),
            lambda m, x, y: F.cross_entropy(m(x).reshape(-1, vocab), y.reshape(-1)), L.optim.AdamW,
        )  # fmt: skip

    return case


def gpt_generate(L):
    model = _gpt_model(L, 65, 128, 4, 4, 128).eval()

    def run():
        x = L.zeros(1, 1, dtype=L.int64)
        with L.no_grad():
            for _ in range(64):
                p = L.softmax(model(x)[:, -1], -1)
                x = L.cat([x, L.multinomial(p, 1)], 1)

    return run


def attention_T1024(L):
    q, k, v = (L.randn(1, 8, 1024, 64, requires_grad=True) for _ in range(3))

    def run():
        L.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    return run


def manual_attention(L):
    q, k, v = (L.randn(8, 4, 128, 32, requires_grad=True) for _ in range(3))
    future = L.ones(128, 128).triu(1).bool()

    def run():
        scores = (q @ k.transpose(-2, -1) * 32**-0.5).masked_fill(future, float("-inf"))
        (L.softmax(scores, -1) @ v).sum().backward()

    return run


def encoder_layers(L):
    nn = L.nn
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0), 2)
    return train(L, model, lambda: (L.randn(8, 64, 256),), lambda m, x: (m(x) ** 2).mean())


def mlp_mnist(L):
    nn = L.nn
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    return train(
        L,
        model,
        lambda: (L.randn(32, 784), L.randint(0, 10, (32,))),
        lambda m, x, y: nn.functional.cross_entropy(m(x), y),
    )


def mlp_tiny(L):
    nn = L.nn
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    return train(L, model, lambda: (L.randn(8, 4), L.randn(8, 1)), lambda m, x, y: nn.functional.mse_loss(m(x), y))


def vit_tiny(L):
    nn = L.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 192, 4, 4)
            self.pos = nn.Parameter(L.zeros(1, 64, 192))
            self.enc = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(192, 3, 768, batch_first=True, dropout=0.0, activation="gelu"), 4
            )
            self.head = nn.Linear(192, 10)

        def forward(self, x):
            return self.head(self.enc(self.patch(x).flatten(2).transpose(1, 2) + self.pos).mean(1))

    return train(
        L,
        ViT(),
        lambda: (L.randn(16, 3, 32, 32), L.randint(0, 10, (16,))),
        lambda m, x, y: nn.functional.cross_entropy(m(x), y),
    )


def vae_mlp(L):
    nn, F = L.nn, L.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.out = nn.Linear(784, 400), nn.Linear(400, 40)
            self.dec = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

        def forward(self, x):
            mu, logvar = self.out(F.relu(self.enc(x))).chunk(2, 1)
            z = mu + L.randn_like(mu) * (0.5 * logvar).exp()
            bce = F.binary_cross_entropy_with_logits(self.dec(z), x, reduction="sum")
            return bce - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()

    return train(L, VAE(), lambda: (L.rand(128, 784),), lambda m, x: m(x))


def recommender(L):
    nn = L.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(20000, 32), nn.Embedding(20000, 32)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1)

    return train(
        L, Net(), lambda: (L.randint(0, 20000, (1024,)), L.randint(0, 20000, (1024,)), L.rand(1024)),
        lambda m, u, i, y: nn.functional.mse_loss(m(u, i), y), L.optim.SGD,
    )  # fmt: skip


def graph_conv(L):
    nn = L.nn
    src, dst = L.randint(0, 2000, (20000,)), L.randint(0, 2000, (20000,))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 8)

        def hop(self, x):
            return L.zeros(2000, x.shape[1]).index_add(0, dst, x[src])

        def forward(self, x):
            return self.b(self.hop(L.relu(self.a(self.hop(x)))))

    return train(
        L,
        Net(),
        lambda: (L.randn(2000, 64), L.randint(0, 8, (2000,))),
        lambda m, x, y: nn.functional.cross_entropy(m(x), y),
    )


def policy_act(L):
    nn = L.nn
    net, x = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)), L.randn(4)

    def run():
        for _ in range(20):
            L.distributions.Categorical(logits=net(x)).sample().item()

    return run


def policy_log_prob(L):
    nn = L.nn
    net, x = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)), L.randn(4)

    def run():
        for _ in range(20):
            d = L.distributions.Categorical(logits=net(x))
            d.log_prob(d.sample())
            d.entropy()

    return run


def normal_act(L):
    mu, sd = L.zeros(3), L.ones(3)

    def run():
        for _ in range(20):
            d = L.distributions.Normal(mu, sd)
            d.log_prob(d.rsample()).sum()

    return run


WORKLOADS = {
    "gpt_0p8m": _gpt(12, 64, 128, 4, 4),
    "gpt_10p8m": _gpt(8, 256, 384, 6, 6),
    "gpt_124m": _gpt(4, 256, 768, 12, 12, 50304),
    "gpt_generate_64tok": gpt_generate,
    "attention_T1024": attention_T1024,
    "manual_attention": manual_attention,
    "encoder_layers": encoder_layers,
    "vit_tiny": vit_tiny,
    "lstm_char": _recurrent("LSTM"),
    "gru_char": _recurrent("GRU"),
    "rnn_char": _recurrent("RNN"),
    "text_cnn": text_cnn,
    "seq2seq": seq2seq,
    "mlp_tiny": mlp_tiny,
    "mlp_mnist": mlp_mnist,
    "vae_mlp": vae_mlp,
    **NETWORKS,
    "graph_conv": graph_conv,
    "recommender": recommender,
    "policy_act": policy_act,
    "policy_log_prob": policy_log_prob,
    "normal_act": normal_act,
    "loader_epoch": EPOCHS["loader_epoch"],
}
