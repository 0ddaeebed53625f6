"""Names and arguments of the public MyTorch that PyTorch does not have, and errors with PyTorch's messages."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from tests.loops import loop

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
    with pytest.raises(TypeError, match="'logits' and 'input'"):
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


def test_linear_of_a_list_raises_pytorchs_error(torch):
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


X, I = mytorch.rand(2, 3), mytorch.tensor([0, 2])
ADAM = {"lr": 0.1, "weight_decay": 0.0, "eps": 1e-8}
SIGNATURES = [  # calls as the public MyTorch documents them
    lambda: nn.Linear(3, 4, bias=False, auto=True, fused=False)(X),
    lambda: nn.Linear(3, 4, fused=False, act_func="gelu")(X),
    lambda: nn.Linear(3, 4, act_func="relu_squared")(X),
    lambda: nn.Embedding(num_embeddings=3, embedding_dim=2, fused=False)(I),
    lambda: nn.Dropout(dropout_p=0.1)(X),
    lambda: nn.LayerNorm(3, weight=True, bias=False, auto=True, fused=False)(X),
    lambda: nn.LayerNorm(embed_dim=3, bias=True)(X),
    lambda: nn.RMSNorm(3, weight=True, fused=False)(X),
    lambda: nn.BatchNorm1d(3, eps=1e-5, momentum=0.1, auto=True)(X),
    lambda: nn.GroupNorm(1, 3, fused=False)(X),
    lambda: nn.Sigmoid(auto=True)(X),
    lambda: nn.ReLU(auto=True, fused=False)(X),
    lambda: nn.ReLUSquared()(X),
    lambda: nn.GeLU()(X),
    lambda: nn.GELU(auto=True, fused=False)(X),
    lambda: nn.LeakyReLU(negative_slope=0.1)(X),
    lambda: nn.Softmax(auto=True, fused=False)(X, dim=-1),
    lambda: nn.SoftMax(dim=-1)(X),
    lambda: nn.CrossEntropy(fused=False)(X, I),
    lambda: nn.CrossEntropyLoss(auto=True)(X, I),
    lambda: nn.MSELoss(auto=True)(X, X),
    lambda: nn.Conv2d(1, 2, kernel_size=3, stride=1, padding=1, bias=True, auto=True)(mytorch.rand(1, 1, 4, 4)),
    lambda: nn.ConvTranspose1d(1, 2, kernel_size=3, stride=1, padding=0, output_padding=0)(mytorch.rand(1, 1, 4)),
    lambda: nn.MaxPool2d(kernel_size=2, stride=2, padding=0)(mytorch.rand(1, 1, 4, 4)),
    lambda: nn.ModuleList([nn.ReLU()])[0](X),
    lambda: F.softmax(X, dim=-1, auto=True),
    lambda: F.gelu(X, auto=True, fused=False),
    lambda: F.tanh(X, fused=False),
    lambda: F.rmsnorm(X, weight=None, training=True, fused=False),
    lambda: F.cross_entropy(X, I, softcap=15.0, fused=False),
    lambda: F.dropout(X, dropout_p=0.0, training=True),
    lambda: F.apply_rotary_pos_embed(
        *[mytorch.rand(1, 2, 1, 4)] * 2, *[mytorch.rand(1, 2, 4)] * 2, unsqueeze_dim=2, fused=False
    ),
    lambda: F.precompute_rotary_cos_sin(head_dim=4, max_position_embeddings=3, base=10000),
    lambda: F.scaled_dot_product_attention(*[mytorch.rand(1, 2, 3, 4)] * 3, causal=True),
    lambda: F.scaled_dot_product_attention(*[mytorch.rand(1, 2, 3, 4)] * 3, is_causal=True, enable_gqa=False),
    lambda: mytorch.optim.Adam([nn.Parameter(X)], beta1=0.9, beta2=0.95, **ADAM),
    lambda: mytorch.optim.AdamW(parameters=[nn.Parameter(X)], beta1=0.9, beta2=0.95, **ADAM),
    lambda: mytorch.optim.SGD([nn.Parameter(X)], lr=0.1, weight_decay=0.0),
    lambda: mytorch.zeros((2, 3), requires_grad=True, device="cpu", dtype=mytorch.float32),
    lambda: mytorch.full((2,), 1.0, requires_grad=True),
    lambda: mytorch.randint(0, 10, (2,), dtype=mytorch.int32, device="cpu"),
    lambda: mytorch.randint(0, 10, shape=(1, 4)),
    lambda: mytorch.arange(0, 3, 1, requires_grad=False, device="cpu"),
    lambda: mytorch.tril(mytorch.ones(2, 2), k=1),
    lambda: mytorch.concatenate([X, X], dim=0),
    lambda: mytorch.masked_fill(X, X > 0.5, value=float("-inf")),
    lambda: mytorch.multinomial(mytorch.ones(3), num_samples=1),
    lambda: X.sum(dim=-1, keepdims=True) + X.var(dim=-1, keepdims=True),
    lambda: X.argsort(descending=True)[:, :1] + X.argmax(dim=-1, keepdims=True),
    lambda: X.astype(mytorch.float32).reshape(3, 2).transpose(0, 1).permute(1, 0).unsqueeze(0).squeeze(0),
    lambda: mytorch.Tensor([1, 2], dtype=mytorch.int32),
    lambda: mytorch.Tensor([]).shape == (0,),
    lambda: mytorch.utils.checkpoint(nn.Linear(3, 2), X),
]


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", range(len(SIGNATURES)))
def test_calls_that_the_public_mytorch_documents(n):
    SIGNATURES[n]()
