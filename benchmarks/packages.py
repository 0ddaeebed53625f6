"""Run a small program with each of several packages written for PyTorch, using mytorch or PyTorch, and print its results.

    python benchmarks/packages.py mytorch [case …]
    python benchmarks/packages.py torch [case …]

Weights and inputs are equal in both libraries. `package_tests.py` runs the test suites of the packages.
"""
# ruff: noqa

import sys
import time
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
library, *selected = sys.argv[1:] or ["mytorch"]
if library == "mytorch":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import mytorch

    mytorch.install_as_torch()

import torch

nn = torch.nn
F = nn.functional


def fill(m):
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in m.parameters():
            if p.dtype.is_floating_point:
                p.copy_(torch.randn(p.shape, generator=g) * 0.1)
    return m


def draw(*s, seed=1):
    return torch.randn(*s, generator=torch.Generator().manual_seed(seed))


def step(m, out, n=1):
    loss = out if out.ndim == 0 else (out.float() ** 2).mean()
    loss.backward()
    gs = sum(p.grad.abs().sum().item() for p in m.parameters() if p.grad is not None)
    return round(loss.item(), 6), round(gs, 4)


def ignite():
    from ignite.engine import Engine, create_supervised_trainer, create_supervised_evaluator
    from ignite.metrics import Accuracy, Loss

    m = fill(nn.Linear(4, 3))
    x = draw(32, 4)
    y = (x.sum(1) > 0).long()
    data = [(x[:16], y[:16]), (x[16:], y[16:])]
    t = create_supervised_trainer(m, torch.optim.SGD(m.parameters(), lr=0.5), F.cross_entropy)
    t.run(data, max_epochs=3)
    e = create_supervised_evaluator(m, metrics={"a": Accuracy(), "l": Loss(F.cross_entropy)})
    s = e.run(data)
    return t.state.output, s.metrics["a"], s.metrics["l"]


def torchsde():
    import torchsde

    class S(nn.Module):
        noise_type = "diagonal"
        sde_type = "ito"

        def __init__(s):
            super().__init__()
            s.a = nn.Parameter(torch.tensor(0.5))

        def f(s, t, y):
            return -s.a * y

        def g(s, t, y):
            return 0 * y + 1e-6

    s = S()
    y = torchsde.sdeint(s, torch.ones(2, 3), torch.linspace(0, 1, 5), method="euler", dt=0.05)
    return step(s, y[-1])


def torchdiffeq():
    from torchdiffeq import odeint, odeint_adjoint

    m = fill(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))

    class O(nn.Module):
        def __init__(s):
            super().__init__()
            s.m = m

        def forward(s, t, y):
            return s.m(y)

    o = O()
    y = odeint_adjoint(o, draw(5, 2), torch.linspace(0, 1, 4))
    return step(o, y[-1])


def metric_learning():
    from pytorch_metric_learning import losses, miners

    e = draw(12, 8).requires_grad_()
    l = torch.arange(12) % 4
    mi = miners.MultiSimilarityMiner()(e, l)
    loss = losses.TripletMarginLoss()(e, l, mi) + losses.NTXentLoss()(e, l) + losses.SupConLoss()(e, l)
    loss.backward()
    return loss.item(), e.grad.abs().sum().item()


def smp():
    import segmentation_models_pytorch as s

    m = fill(s.Unet("resnet18", encoder_weights=None, classes=2))
    x = draw(2, 3, 64, 64)
    y = m(x)
    l = s.losses.DiceLoss("multiclass")(y, (x[:, 0] > 0).long())
    return step(m, l)


def kornia():
    import kornia as K

    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = K.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))
    z = K.geometry.transform.rotate(x, torch.tensor([30.0]))
    w = K.color.rgb_to_hsv(x)
    s = K.filters.sobel(x)
    l = y.mean() + z.std() + w.mean() + s.mean() + K.losses.ssim_loss(x, y, 5)
    l.backward()
    return l.item(), x.grad.abs().sum().item()


def gpytorch():
    import gpytorch as G

    x = torch.linspace(0, 1, 12)
    y = torch.sin(x * 6)

    class M(G.models.ExactGP):
        def __init__(s, l):
            super().__init__(x, y, l)
            s.m = G.means.ConstantMean()
            s.k = G.kernels.ScaleKernel(G.kernels.RBFKernel())

        def forward(s, x):
            return G.distributions.MultivariateNormal(s.m(x), s.k(x))

    l = G.likelihoods.GaussianLikelihood()
    m = M(l)
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    mll = G.mlls.ExactMarginalLogLikelihood(l, m)
    m.train()
    l.train()
    for _ in range(5):
        o.zero_grad()
        loss = -mll(m(x), y)
        loss.backward()
        o.step()
    m.eval()
    l.eval()
    with torch.no_grad():
        p = l(m(torch.linspace(0, 1, 5)))
    return loss.item(), p.mean.sum().item(), p.variance.sum().item()


def linear_operator():
    from linear_operator.operators import DenseLinearOperator, DiagLinearOperator

    a = draw(5, 5)
    op = DenseLinearOperator(a @ a.mT) + DiagLinearOperator(torch.ones(5))
    return op.logdet().item(), op.solve(draw(5, 1, seed=2)).sum().item()


def pyro():
    import pyro, pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    d = draw(20) + 3

    def model(d):
        m = pyro.sample("m", dist.Normal(0.0, 10.0))
        with pyro.plate("p", len(d)):
            pyro.sample("o", dist.Normal(m, 1.0), obs=d)

    def guide(d):
        a = pyro.param("a", torch.tensor(0.0))
        b = pyro.param("b", torch.tensor(1.0), constraint=dist.constraints.positive)
        pyro.sample("m", dist.Normal(a, b))

    s = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    ls = [s.step(d) for _ in range(20)]
    return ls[0], ls[-1], pyro.param("a").item()


def x_transformers():
    from x_transformers import TransformerWrapper, Decoder, AutoregressiveWrapper

    m = fill(
        TransformerWrapper(
            num_tokens=50, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True)
        )
    )
    a = AutoregressiveWrapper(m)
    return step(m, a(torch.arange(40).reshape(2, 20)))


def lion():
    from lion_pytorch import Lion

    m = fill(nn.Linear(4, 3))
    o = Lion(m.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(3):
        o.zero_grad()
        r = step(m, m(draw(8, 4)))
        o.step()
    return r


def botorch():
    from botorch.models import SingleTaskGP
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf

    x = torch.linspace(0, 1, 8, dtype=torch.double)[:, None]
    y = torch.sin(6 * x)
    g = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(g.likelihood, g))
    a = LogExpectedImprovement(g, best_f=y.max())
    c, v = optimize_acqf(a, bounds=torch.tensor([[0.0], [1.0]], dtype=torch.double), q=1, num_restarts=2, raw_samples=8)
    return round(c.item(), 3), round(v.item(), 2)


def skorch():
    from skorch import NeuralNetClassifier
    import numpy as np

    torch.manual_seed(0)
    x = draw(64, 4).numpy()
    y = (x.sum(1) > 0).astype("int64")
    n = NeuralNetClassifier(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(-1)),
        max_epochs=3,
        lr=0.5,
        verbose=0,
        iterator_train__shuffle=False,
    )
    n.fit(x, y)
    return n.history[-1]["train_loss"], n.history[-1]["valid_loss"], float(n.predict_proba(x).sum())


def higher():
    import higher

    m = fill(nn.Linear(3, 1))
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    x = draw(5, 3)
    with higher.innerloop_ctx(m, o, copy_initial_weights=False) as (f, d):
        for _ in range(2):
            d.step((f(x) ** 2).mean())
        (f(x) ** 2).mean().backward()
    return m.weight.grad.abs().sum().item()


def entmax():
    from entmax import entmax15, sparsemax, entmax_bisect

    x = draw(3, 5).requires_grad_()
    y = entmax15(x) ** 2 + sparsemax(x) ** 2 + entmax_bisect(x, 1.3) ** 2
    y.sum().backward()
    return y.sum().item(), x.grad.abs().sum().item()


def torchtyping():
    from torchtyping import TensorType

    def f(x: TensorType["b", "c"]):
        return x

    return f(torch.ones(2, 2)).sum().item()


def sentence_transformers():
    from sentence_transformers import losses, util

    a, b = draw(4, 8), draw(4, 8, seed=3)
    return util.cos_sim(a, b).sum().item(), util.semantic_search(a, b, top_k=1)[0][0]["corpus_id"]


def ddpm():
    from denoising_diffusion_pytorch import Unet, GaussianDiffusion

    m = fill(Unet(dim=8, dim_mults=(1, 2), flash_attn=False))
    d = GaussianDiffusion(m, image_size=16, timesteps=10)
    torch.manual_seed(0)
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return step(m, d(x))


def e3nn():
    from e3nn import o3

    tp = fill(o3.FullyConnectedTensorProduct("4x0e+2x1o", "2x0e+1x1o", "3x0e+2x1o"))
    return step(tp, tp(draw(3, 10), draw(3, 5, seed=2)))


def lamb():
    from pytorch_lamb import Lamb

    m = fill(nn.Linear(4, 3))
    o = Lamb(m.parameters(), lr=1e-2)
    for _ in range(3):
        o.zero_grad()
        r = step(m, m(draw(8, 4)))
        o.step()
    return r


def ema():
    from ema_pytorch import EMA

    m = fill(nn.Linear(4, 3))
    e = EMA(m, beta=0.9, update_after_step=0, update_every=1)
    for i in range(3):
        with torch.no_grad():
            m.weight.add_(1.0)
        e.update()
    return e(draw(2, 4)).sum().item()


def vq():
    from vector_quantize_pytorch import VectorQuantize, FSQ

    torch.manual_seed(0)
    f = FSQ([8, 5, 5])
    y, i = f(draw(1, 6, 3))
    v = VectorQuantize(dim=8, codebook_size=16)
    v._codebook.embed.data.copy_(draw(1, 16, 8, seed=5))
    v.eval()
    q, ix, l = v(draw(1, 6, 8))
    return y.sum().item(), i.sum().item(), q.sum().item(), ix.sum().item()


def effnet():
    from efficientnet_pytorch import EfficientNet

    m = fill(EfficientNet.from_name("efficientnet-b0", num_classes=5)).eval()
    return step(m, m(draw(1, 3, 64, 64)))


def torch_optimizer():
    import torch_optimizer as t

    r = []
    for n in (
        "RAdam",
        "DiffGrad",
        "AdaBound",
        "Yogi",
        "Shampoo",
        "Lookahead",
        "NovoGrad",
        "Ranger",
        "SWATS",
        "QHAdam",
        "AdaBelief",
    ):
        m = fill(nn.Linear(4, 3))
        o = getattr(t, n, None)
        if o is None:
            continue
        o = t.Lookahead(t.Yogi(m.parameters(), lr=0.01)) if n == "Lookahead" else o(m.parameters(), lr=0.01)
        for _ in range(3):
            o.zero_grad()
            s = step(m, m(draw(8, 4)))
            o.step()
        r.append(s[0])
    return r


def local_attention():
    from local_attention import LocalAttention

    q = draw(1, 2, 16, 8).requires_grad_()
    y = LocalAttention(dim=8, window_size=4, causal=True)(q, q, q)
    y.sum().backward()
    return y.abs().sum().item(), q.grad.abs().sum().item()


def einx_sum():
    import einx

    return einx.sum("a [b]", draw(3, 4)).sum().item()


def fairscale():
    from fairscale.nn import checkpoint_wrapper

    m = fill(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    c = checkpoint_wrapper(m)
    return step(m, c(draw(3, 4)))


def torchmetrics():
    import torchmetrics as t

    a = t.classification.MulticlassAccuracy(3)
    a.update(draw(20, 3), torch.arange(20) % 3)
    f = t.classification.MulticlassF1Score(3)(draw(20, 3), torch.arange(20) % 3)
    s = t.regression.SpearmanCorrCoef()(draw(20), draw(20, seed=2))
    au = t.classification.BinaryAUROC()(draw(20).sigmoid(), torch.arange(20) % 2)
    return a.compute().item(), f.item(), s.item(), au.item()


def timm_models():
    import timm

    r = []
    for n in ("resnet18", "vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0", "mobilenetv3_small_050"):
        kw = {"img_size": 64} if "vit" in n else {}
        m = fill(timm.create_model(n, num_classes=5, **kw)).eval()
        r.append(step(m, F.cross_entropy(m(draw(2, 3, 64, 64)), torch.tensor([1, 3]))))
    return r


def vit():
    from vit_pytorch import ViT

    m = fill(ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64))
    return step(m, m(draw(2, 3, 32, 32)))


def lora():
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    m = get_peft_model(
        GPT2LMHeadModel(
            GPT2Config(
                n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
            )
        ),
        LoraConfig(r=2, target_modules=["c_attn"], lora_dropout=0.0),
    )
    fill(m)
    i = torch.arange(10)[None]
    return step(m, m(input_ids=i, labels=i).loss)


def accelerated():
    from accelerate import Accelerator

    a = Accelerator(cpu=True)
    m = fill(nn.Linear(4, 3))
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m, o, d = a.prepare(m, o, torch.utils.data.DataLoader(draw(8, 4), batch_size=4))
    for x in d:
        o.zero_grad()
        l = (m(x) ** 2).mean()
        a.backward(l)
        o.step()
    return l.item()


def ddpm_unet():
    from diffusers import UNet2DModel, DDPMScheduler

    m = fill(
        UNet2DModel(
            sample_size=16,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            layers_per_block=1,
            attention_head_dim=4,
        )
    )
    s = DDPMScheduler(100)
    n = draw(2, 3, 16, 16, seed=4)
    x = s.add_noise(draw(2, 3, 16, 16), n, torch.tensor([3, 50]))
    return step(m, F.mse_loss(m(x, torch.tensor([3, 50])).sample, n))


def lightning_fit():
    import lightning as L

    class M(L.LightningModule):
        def __init__(s):
            super().__init__()
            torch.manual_seed(0)
            s.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
            s.seen = []

        def training_step(s, b, i):
            l = F.cross_entropy(s.net(b[0]), b[1])
            s.log("loss", l)
            s.seen.append(l.item())
            return l

        def configure_optimizers(s):
            return torch.optim.AdamW(s.parameters(), lr=1e-2)

    x = draw(64, 4)
    d = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
    m = M()
    L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(m, d)
    return m.seen[0], m.seen[-1]


HELPERS = ("fill", "draw", "step")
cases = {
    k: v
    for k, v in globals().items()
    if callable(v) and getattr(v, "__module__", None) == "__main__" and k not in HELPERS
}
for name in selected or cases:
    start = time.perf_counter()
    try:
        print(name, cases[name](), f"[{time.perf_counter() - start:.1f} s]", flush=True)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        print(
            name,
            "fails:",
            type(error).__name__,
            str(error)[:200].replace("\n", " "),
            f"{place.filename}:{place.lineno}",
            flush=True,
        )
