"""Names and arguments of the public MyTorch that PyTorch does not have, and errors in PyTorch's words."""

import numpy as np
import pytest

import mytorch
from mytorch import nn

F = nn.functional


def test_rotary_tables_are_as_nanochats():
    cos, sin = F.precompute_rotary_cos_sin(head_dim=4, max_position_embeddings=6)
    assert tuple(cos.shape) == tuple(sin.shape) == (1, 6, 4)
    half, _ = F.precompute_rotary_cos_sin(4, 6, base=10000.0, scaling_factor=2.0, device="cpu", dtype=mytorch.float64)
    assert half.dtype is mytorch.float64
    np.testing.assert_allclose(half[0, 4].numpy(), cos[0, 2].numpy(), rtol=1e-5)
    q = mytorch.randn(2, 3, 6, 4)
    turned, _ = F.apply_rotary_pos_embed(q, q, cos, sin)
    plain, _ = F.apply_rotary_pos_embed(q, q, cos[0], sin[0])
    assert (turned == plain).all()


def test_multinomial_draws_one_by_default():
    assert mytorch.multinomial(mytorch.tensor([0.0, 1.0])).tolist() == [1]


@pytest.mark.filterwarnings("ignore:fused=True")
def test_tanh_takes_fused():
    assert F.tanh(mytorch.zeros(1), fused=True).item() == 0.0


def test_banner():
    assert mytorch.__version__ in mytorch.banner


@pytest.mark.cpu_only
def test_printing_in_either_layout():
    weight = nn.Parameter(mytorch.ones(2))
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1)"
    assert repr(nn.Dropout(0.1, inplace=True)) == "Dropout(p=0.1, inplace=True)"
    assert repr(weight) == "tensor([1.00000 1.00000], requires_grad=True)"
    mytorch.set_printoptions(layout="torch")
    try:
        assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1, inplace=False)"
        assert repr(weight) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    finally:
        mytorch.set_printoptions(layout="mytorch")


def test_instance_norm_of_any_number_of_axes():
    x = mytorch.randn(2, 3, 4, 5)
    assert (nn.InstanceNorm(3)(x) == nn.InstanceNorm2d(3)(x)).all()
    with pytest.raises(ValueError, match="at least 3D"):
        nn.InstanceNorm(3)(mytorch.ones(2, 3))


def test_sliding_window_attention():
    q, k, v = (mytorch.randn(2, 5, 4) for _ in range(3))
    found = nn.SlidingWindowAttention(2)(q, k, v)
    mask = mytorch.tensor([[0 <= i - j <= 2 for j in range(5)] for i in range(5)])
    np.testing.assert_allclose(
        found.numpy(), F.scaled_dot_product_attention(q, k, v, attn_mask=mask).numpy(), atol=1e-6
    )


def test_argument_names():
    x = mytorch.randn(3, 4)
    assert nn.LayerNorm(embed_dim=4).normalized_shape == (4,)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'normalized_shape'"):
        nn.LayerNorm()
    assert nn.RMSNorm(4, weight=False).weight is None
    assert (F.dropout(x, dropout_p=0.0) == x).all()
    q = mytorch.randn(2, 3, 4)
    assert (F.scaled_dot_product_attention(Q=q, K=q, V=q) == F.scaled_dot_product_attention(q, q, q)).all()
    labels = mytorch.tensor([0, 1, 2])
    assert F.cross_entropy(logits=x, targets=labels).item() == F.cross_entropy(x, labels).item()
    low = mytorch.tril(mytorch.ones(3, 3), k=-1, requires_grad=True, device="cpu")
    assert low.requires_grad
    assert low.sum().item() == 3
    assert mytorch.triu(mytorch.ones(2, 2), k=1).sum().item() == 1
    optimizer = mytorch.optim.AdamW(parameters=[nn.Parameter(x)], lr=0.1)
    assert optimizer.param_groups[0]["lr"] == 0.1
    with pytest.raises(TypeError, match="both 'logits' and 'input'"):
        F.cross_entropy(input=x, logits=x, target=labels)


def test_index_zero_of_a_number():
    loss = mytorch.tensor(2.0, requires_grad=True)
    assert f"{loss[0]:.4f}" == "2.0000"
    loss[0].backward()
    assert loss.grad.item() == 1.0
    with pytest.raises(IndexError):
        loss[1]
    with pytest.raises(TypeError):
        iter(loss)


def test_linear_of_a_list_is_told_in_pytorchs_words(torch):
    messages = []
    for lib in (mytorch, torch):
        with pytest.raises(TypeError) as caught:
            lib.nn.Linear(2, 1)([1, 2])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_the_older_path_of_the_accelerator():
    from miniddp.accelerate import Accelerator

    assert Accelerator is mytorch.Accelerator


def test_a_cosine_schedules_rates_are_a_list_that_formats_as_one_number():
    optimizer = mytorch.optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
    rates = mytorch.lr_scheduler.CosineLRScheduler(optimizer, max_lr=0.5).get_last_lr()
    assert rates == [0.5]
    assert f"{rates:.2e} {rates}" == "5.00e-01 [0.5]"
