"""GPT-2 compared with PyTorch: equal weights and batches give equal gradients, and equal losses during training."""

import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, GPT2Config

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from torch_gpt2 import TorchGPT2  # noqa: E402


def batches(count, vocab_size, batch_size, length, seed=0):
    rng = np.random.default_rng(seed)
    # a language with something to learn: each token is near the last one
    steps = rng.integers(-3, 4, (count, batch_size, length + 1)).cumsum(-1) % vocab_size
    return [(s[:, :-1].copy(), s[:, 1:].copy()) for s in steps]


def demo(**changes):
    return GPT2(GPT2Config.sized("demo", vocab_size=65, context_length=64, **changes))


@pytest.mark.parametrize(
    "changes", [{}, {"use_bias": True, "activation": "gelu_tanh"}, {"gradient_checkpointing": True}]
)
def test_every_gradient_of_the_first_step_is_that_of_float64_pytorch(torch, changes):
    model = demo(**changes)
    reference = TorchGPT2(model.config).take(model).double()
    ((x, y),) = batches(1, 65, 12, 64)
    loss = model(mytorch.from_numpy(x), mytorch.from_numpy(y))
    loss.backward()
    expected = reference(torch.from_numpy(x), torch.from_numpy(y))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    theirs = dict(reference.named_parameters())
    mine = dict(model.named_parameters())
    assert set(mine) == set(theirs)
    for name, p in mine.items():
        np.testing.assert_allclose(p.grad.numpy(), theirs[name].grad.numpy(), rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_fifty_losses_are_pytorchs(torch):
    model = demo()
    reference = TorchGPT2(model.config).take(model)
    options = {"lr": 1e-3, "betas": (0.9, 0.99)}
    mine = mytorch.optim.AdamW(model.parameter_groups(0.1), **options)
    theirs = torch.optim.AdamW(reference.parameter_groups(0.1), **options)
    losses = []
    for x, y in batches(50, 65, 12, 64):
        loss = model(mytorch.from_numpy(x), mytorch.from_numpy(y))
        mine.zero_grad()
        loss.backward()
        norm = mytorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        mine.step()
        expected = reference(torch.from_numpy(x), torch.from_numpy(y))
        theirs.zero_grad()
        expected.backward()
        expected_norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        theirs.step()
        losses.append(loss.item())
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
        assert norm.item() == pytest.approx(expected_norm.item(), rel=1e-3)
    assert losses[-1] < losses[0] - 0.5


def test_equal_seeds_make_equal_weights(torch):
    """The layers draw the same initial weights as in PyTorch, in the order of nanoGPT."""
    mytorch.manual_seed(7)
    model = demo()
    torch.manual_seed(7)
    reference = TorchGPT2(model.config)

    def init(module):
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    reference.apply(init)
    for name, p in reference.named_parameters():
        if name.endswith("c_proj.weight"):
            torch.nn.init.normal_(p, mean=0.0, std=0.02 / (2 * 4) ** 0.5)
    theirs = reference.state_dict()
    for name, t in model.state_dict().items():
        np.testing.assert_allclose(t.numpy(), theirs[name].numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
