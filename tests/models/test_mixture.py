import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.models import Llama, LlamaConfig, MixtureOfExperts
from mytorch.models.mixture import balance_loss


def mixture(**options):
    return MixtureOfExperts(6, lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)), **options)


def looped(torch, mine, x, g, capacity):
    """The output and the gradients of x and the gate's weight, a token and an expert at a time, in PyTorch."""
    x = torch.tensor(x, requires_grad=True)
    gate = torch.tensor(mine.gate.weight.detach().numpy(), requires_grad=True)
    experts = [[torch.tensor(p.detach().numpy()) for p in e.parameters()] for e in mine.experts]
    p = (x @ gate.T).softmax(-1)
    weights, choices = p.topk(mine.chosen, -1)
    out, taken = [0.0] * len(x), [0] * len(experts)
    for rank in range(mine.chosen):
        for n in range(len(x)):
            i = int(choices[n, rank])
            taken[i] += 1
            if taken[i] <= capacity:
                w1, b1, w2, b2 = experts[i]
                said = torch.tanh(x[n] @ w1.T + b1) @ w2.T + b2
                out[n] = out[n] + said * weights[n, rank] / weights[n].sum()
    out = torch.stack([o if isinstance(o, torch.Tensor) else torch.zeros(x.shape[1]) for o in out])
    balance = len(experts) * sum((choices == i).sum() / len(x) * p[:, i].mean() for i in range(len(experts)))
    ((out * torch.tensor(g)).sum() + balance).backward()
    return out.detach().numpy(), x.grad.numpy(), gate.grad.numpy(), balance.item(), taken


@pytest.mark.parametrize(("factor", "training"), [(None, True), (0.7, True), (0.7, False)])
@pytest.mark.parametrize("chosen", [1, 2, 5])
def test_a_mixture_equals_a_loop_over_tokens(torch, rng, chosen, factor, training):
    mine = mixture(num_experts=5, chosen=chosen, capacity_factor=factor).train(training)
    x, g = rng.standard_normal((2, 23, 6)).astype("float32")
    capacity = max(1, int(factor * 23 * chosen / 5)) if factor and training else 23
    expected, gx, gw, balance, taken = looped(torch, mine, x, g, capacity)
    if factor and training:
        assert max(taken) > capacity, "some tokens are passed over"
    given = mytorch.tensor(x, requires_grad=True)
    out, routing = mine(given)
    (out * mytorch.from_numpy(g)).sum().backward(retain_graph=True)
    loss = balance_loss([routing])
    loss.backward()
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(given.grad.numpy(), gx, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mine.gate.weight.grad.numpy(), gw, rtol=1e-4, atol=1e-5)
    assert loss.item() == pytest.approx(balance, rel=1e-5)


def test_the_balance_is_the_number_chosen_if_all_are_used_equally():
    even = mytorch.tensor([[0.5] * 4, [0.25] * 4])
    assert balance_loss([even, even]).item() == pytest.approx(2)
    one = mytorch.tensor([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    assert balance_loss([one]).item() == pytest.approx(4)


def test_impossible_mixtures_are_refused():
    with pytest.raises(ValueError, match="from 1 to num_experts=2, got 3"):
        mixture(num_experts=2, chosen=3)
    with pytest.raises(ValueError, match="capacity_factor .*got 0"):
        mixture(num_experts=2, capacity_factor=0)


def test_the_balance_is_part_of_the_loss_in_training_also_with_checkpointing():
    config = LlamaConfig(
        vocab_size=11, num_layers=2, num_heads=2, embed_dim=8, hidden_dim=8, num_experts=3, balance=0.5
    )
    model = Llama(config)
    x = mytorch.randint(0, 11, (2, 9))
    again = Llama(config, gradient_checkpointing=True)
    again.load_state_dict(model.state_dict())
    loss, same = model(x, x), again(x, x)
    loss.backward()
    same.backward()
    assert loss.item() - model.eval()(x, x).item() == pytest.approx(0.5 * 2, abs=0.1)
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)
    assert model.matrix_parameters() == model.num_parameters() - 11 * 8 - 2 * 3 * 64


def test_the_balance_is_that_of_transformers(torch):
    modeling = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    layers = [mixture(num_experts=4) for _ in range(2)]
    x = mytorch.randn(17, 6)
    found = balance_loss([layer(x)[1] for layer in layers]).item()
    logits = tuple(torch.tensor(layer.gate(x).detach().numpy()) for layer in layers)
    assert found == pytest.approx(modeling.load_balancing_loss_func(logits, 4, 2).item(), rel=1e-5)
