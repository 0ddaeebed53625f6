"""A training step never waits for the GPU: inside `no_sync`, each wait raises an error. Runs over the fake CuPy, or on a GPU."""

import numpy as np
import pytest
from waiting import HiddenWait, no_sync

import mytorch
from mytorch import cuda, nn
from mytorch.models import GPT2, GPT2Config, fuse_
from mytorch.nn import functional as F

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="needs a GPU, or the fake CuPy")
rng = np.random.default_rng(0)


def floats(*shape):
    return mytorch.tensor(rng.standard_normal(shape).astype(np.float32), device="cuda")


def whole(high, *shape):
    return mytorch.tensor(rng.integers(0, high, shape), device="cuda")


class Words(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.embed = nn.Embedding(17, 8, **options)
        self.head = nn.Linear(8, 17)

    def forward(self, x):
        return self.head(self.embed(x))


def classifier(model, x, y, **options):
    return lambda: F.cross_entropy(model(x).flatten(0, -2), y.flatten(), **options), model


def gpt2(**options):
    config = GPT2Config(vocab_size=33, context_length=8, num_layers=2, num_heads=2, embed_dim=16, **options)
    model = fuse_(GPT2(config)).to("cuda")
    x, y = whole(33, 2, 8), whole(33, 2, 8)
    return classifier(model, x, y)


def mlp():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 4)).cuda()
    return classifier(model, floats(10, 6), whole(4, 10), label_smoothing=0.1)


def cnn():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.3), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 5),
    ).cuda()  # fmt: skip
    return classifier(model, floats(4, 3, 12, 12), whole(5, 4))


def words():
    return classifier(Words(padding_idx=0).cuda(), whole(17, 4, 5), whole(17, 4, 5), ignore_index=3)


def weighted_words():
    model = Words().cuda()
    x, y, w = whole(17, 4, 5), whole(17, 4, 5), floats(17).abs()
    return lambda: F.nll_loss(F.log_softmax(model(x), -1).flatten(0, 1), y.flatten(), weight=w), model


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True).cuda()
    x, mask = floats(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5, device="cuda")
    return lambda: layer(x, src_mask=mask).pow(2).mean(), layer


def recurrent():
    model = nn.LSTM(4, 6, num_layers=2, batch_first=True, dropout=0.2).cuda()
    x = floats(3, 5, 4)
    return lambda: model(x)[0].square().mean(), model


def regressions():
    model = nn.Linear(4, 3).cuda()
    x, y = floats(7, 4), floats(7, 3)

    def loss():
        out = model(x)
        return (
            F.mse_loss(out, y) + F.l1_loss(out, y) + F.smooth_l1_loss(out, y) + F.huber_loss(out, y)
            + F.binary_cross_entropy_with_logits(out, (y > 0).float()) + F.kl_div(out.log_softmax(1), y.softmax(1), reduction="batchmean")
            + F.cosine_similarity(out, y).mean() + F.linear_cross_entropy(x, model.weight, mytorch.zeros_like(x[:, 0]).long())
        )  # fmt: skip

    return loss, model


def shapes():
    model = nn.Linear(6, 6).cuda()
    x, places = floats(5, 6), whole(6, 5, 3)
    lower = mytorch.ones(6, 6, device="cuda").tril().bool()

    def loss():
        out = model(x)
        parts = [
            out.gather(1, places), out[:, :2].repeat(1, 2), mytorch.zeros_like(out).scatter_add(1, places, out.gather(1, places)),
            out.index_select(0, places[:, 0] % 5), out.topk(2, 1).values, out.sort(1).values.cumsum(1), out.roll(1, 0).flip(1),
            out.masked_fill(out < 0, 0.0), mytorch.where(out > 0, out, -out), out.clamp(-1, 1).norm(dim=1, keepdim=True),
            mytorch.einsum("ij,kj->ik", out, out).masked_fill(lower[:5, :5], 0.0), F.pad(out, (1, 1)), out.logsumexp(1, keepdim=True),
            mytorch.cat([out, out.chunk(2, 1)[0]], 1), mytorch.stack([out, out]).mean(0), out.amax(1, keepdim=True), out.std(1, keepdim=True),
            F.scaled_dot_product_attention(out[None], out[None], out[None], is_causal=True)[0], F.one_hot(places[:, 0], 6) * out,
            F.interpolate(out[None], scale_factor=2.0)[0], F.unfold(out[None, None], 2)[0], out.argmax(1, keepdim=True) * out, out[places[:, 0] % 5],
        ]  # fmt: skip
        return mytorch.cat([p.reshape(-1).float() for p in parts]).square().mean()

    return loss, model


CASES = {
    "gpt2": gpt2, "gpt2 with dropout": lambda: gpt2(dropout_p=0.1), "mlp": mlp, "cnn": cnn, "words": words, "weighted_words": weighted_words,
    "transformer": transformer, "recurrent": recurrent, "regressions": regressions, "shapes": shapes,
}  # fmt: skip


def step(loss, model, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    out = loss()
    out.backward()
    if max_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return out


@pytest.mark.parametrize("name", CASES)
def test_a_step_does_not_wait(name):
    mytorch.manual_seed(0)
    loss, model = CASES[name]()
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    before = step(loss, model, optimizer)
    with no_sync():
        # A recurrent layer launches hundreds of kernels. CUDA's queue holds about a thousand, and then a launch waits.
        for _ in range(1 if name == "recurrent" else 3):
            after = step(loss, model, optimizer)
            schedule.step()
    assert np.isfinite(before.item())
    assert after.item() < before.item() * 1.5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_autocast_does_not_wait(precision):
    mytorch.manual_seed(0)
    loss, model = gpt2()
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)

    def cast():
        with mytorch.autocast("cuda", dtype=getattr(mytorch, precision)):
            return loss()

    step(cast, model, optimizer)
    with no_sync():
        step(cast, model, optimizer)


OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "Lion",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Rprop",
    "ASGD",
    "Muon",
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_do_not_wait(optimizer):
    model = nn.Linear(4, 4, bias=optimizer != "Muon").cuda()
    x = floats(7, 4)
    made = getattr(mytorch.optim, optimizer)(model.parameters(), lr=1e-2)
    loss = lambda: model(x).square().mean()  # noqa: E731
    step(loss, model, made, None)
    with no_sync():
        step(loss, model, made, None)


def test_data_and_random_numbers_do_not_wait():
    data = mytorch.utils.data.TensorDataset(mytorch.arange(12.0).reshape(6, 2))
    loader = mytorch.utils.data.DataLoader(data, 2, pin_memory=True, shuffle=True)

    def draw():
        for (x,) in loader:
            y = x.to("cuda", non_blocking=True) + mytorch.randn(2, 2, device="cuda")
            F.dropout(y, 0.5).bernoulli_(0.3).uniform_()
        mytorch.multinomial(mytorch.ones(5, device="cuda"), 2)
        mytorch.randperm(9, device="cuda")
        mytorch.randint(9, (4,), device="cuda")
        mytorch.manual_seed(3)
        x = y.requires_grad_()
        mytorch.utils.checkpoint.checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=False).sum().backward()

    draw()
    with no_sync():
        draw()


WAITING = {
    "item": lambda x: x.sum().item(), "bool": lambda x: bool(x.any()), "tolist": lambda x: x.tolist(), "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(), "mask": lambda x: x[x > 0], "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(), "repr": repr, "equal": lambda x: mytorch.equal(x, x), "synchronize": lambda x: cuda.synchronize(),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITING)
def test_necessary_waits_are_detected(name):
    x = floats(5)
    with pytest.raises(HiddenWait), no_sync():
        WAITING[name](x)
