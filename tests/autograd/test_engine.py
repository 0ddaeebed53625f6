"""The engine: the gate, accumulation, freeing, hooks, higher derivatives."""

import gc
import threading
import weakref

import numpy as np
import pytest

import mytorch
from mytorch.autograd import grad


def test_diamond():
    x = mytorch.tensor(3.0, requires_grad=True)
    y = x * 2
    (y * y + y).backward()
    assert x.grad.item() == 2 * (2 * 6 + 1)


def test_grad_of_shared_input_is_summed():
    x, y = mytorch.ones(2, requires_grad=True), mytorch.ones(2, requires_grad=True)
    ((3 * x) + (x + y)).sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [4, 4])
    np.testing.assert_array_equal(np.asarray(y.grad), [1, 1])


def test_leaf_grads_do_not_alias():
    x, y = mytorch.ones(2, requires_grad=True), mytorch.ones(2, requires_grad=True)
    (x + y).backward(mytorch.tensor([1.0, 2.0]))
    x.grad.zero_()
    np.testing.assert_array_equal(np.asarray(y.grad), [1, 2])


def test_given_gradient_is_not_taken_over():
    x = mytorch.ones(2, requires_grad=True)
    g = mytorch.tensor([1.0, 2.0])
    x.clone().backward(g)
    x.grad.mul_(10)
    np.testing.assert_array_equal(g.numpy(), [1, 2])


def test_unused_branch_does_not_block_gate():
    x = mytorch.ones(3, requires_grad=True)
    a = x * 2
    side = a + 1  # a metric that is not differentiated
    a.sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2, 2, 2])
    assert side.requires_grad


def test_chain_of_20000_ops():
    x = mytorch.ones((), requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1


def test_graph_freed_without_gc():
    gc.collect()
    gc.disable()
    try:
        x = mytorch.ones(4, requires_grad=True)
        y = (x.exp() * 2).softmax(-1)
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_add_saves_nothing():
    y = mytorch.ones(4, requires_grad=True) + 1
    assert y.grad_fn.saved == ()


@pytest.mark.cpu_only
def test_constant_factor_saves_only_the_constant():
    x = mytorch.ones(4, requires_grad=True)
    y = x * mytorch.full((4,), 2.0)
    assert sum(isinstance(value, np.ndarray) for value in y.grad_fn.saved) == 1


def test_second_backward_raises():
    x = mytorch.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_retain_graph_twice():
    x = mytorch.tensor(2.0, requires_grad=True)
    y = x * x * 3
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 24


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_retain_grad_and_retain_graph_keep_intermediate_gradients():
    a = mytorch.ones([1], requires_grad=True)
    b = 2 * a
    c = b**2
    d = c * 9
    b.retain_grad()
    d.backward()
    assert (a.grad.item(), b.grad.item(), c.grad) == (72, 36, None)
    a = mytorch.ones([1], requires_grad=True)
    b = 2 * a
    c = b**2
    (c * 9).backward(retain_graph=True)
    assert (b.grad.item(), c.grad.item()) == (36, 9)


def test_broadcast_gradients(torch):
    for sa, sb in (((3, 1), (2, 3, 4)), ((), (2, 2)), ((1,), (5,)), ((2, 1, 4), (3, 1))):
        x, y = np.random.randn(*sa), np.random.randn(*sb)
        up = np.random.randn(*np.broadcast_shapes(sa, sb))
        a, b = mytorch.tensor(x, requires_grad=True), mytorch.tensor(y, requires_grad=True)
        (a * b).backward(mytorch.tensor(up))
        c, d = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
        (c * d).backward(torch.tensor(up))
        np.testing.assert_allclose(np.asarray(a.grad), c.grad.numpy())
        np.testing.assert_allclose(np.asarray(b.grad), d.grad.numpy())


def test_dtype_is_kept():
    x = mytorch.ones(3, dtype=mytorch.float64, requires_grad=True)
    (x * 2).sum().backward()
    assert (x * 2).dtype is mytorch.float64
    assert x.grad.dtype is mytorch.float64


def test_gradient_of_a_promoted_input_has_its_own_dtype():
    x = mytorch.ones(3, dtype=mytorch.float16, requires_grad=True)
    (x * mytorch.ones(3)).sum().backward()
    assert x.grad.dtype is mytorch.float16


def test_unused_input_of_grad():
    x, y = mytorch.ones(2, requires_grad=True), mytorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used"):
        grad(x.sum(), [x, y])
    assert grad(x.sum(), [x, y], allow_unused=True)[1] is None
    assert grad(x.sum(), [x, y], materialize_grads=True)[1].sum().item() == 0


def test_grad_with_respect_to_an_intermediate():
    x = mytorch.tensor(2.0, requires_grad=True)
    y = x * 3
    (g,) = grad(y * y, y)
    assert g.item() == 12
    assert x.grad is None


def test_backward_inputs():
    x, y = mytorch.ones(2, requires_grad=True), mytorch.ones(2, requires_grad=True)
    (x * y).sum().backward(inputs=[x])
    assert x.grad is not None
    assert y.grad is None


def test_only_scalars_start_by_themselves():
    with pytest.raises(RuntimeError, match="scalar"):
        mytorch.ones(3, requires_grad=True).exp().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        mytorch.ones(()).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        mytorch.ones(3, requires_grad=True).exp().backward(mytorch.ones(4))


def test_hooks():
    x = mytorch.ones(3, requires_grad=True)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(np.asarray(g).copy()))
    handle = x.register_hook(lambda g: g * 10)
    after = []
    x.register_post_accumulate_grad_hook(lambda t: after.append(t.grad.sum().item()))
    y.sum().backward()
    np.testing.assert_array_equal(seen[0], [1, 1, 1])
    assert after == [60]
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2, 2, 2])


def test_hook_runs_once_for_a_shared_tensor():
    x = mytorch.ones(3, requires_grad=True)
    y = x.exp()
    calls = []
    y.register_hook(lambda g: calls.append(1))
    (y + y * 2).sum().backward()
    assert calls == [1]


def test_no_grad_nests_and_is_per_thread():
    assert mytorch.is_grad_enabled()
    with mytorch.no_grad():
        with mytorch.no_grad():
            assert not mytorch.is_grad_enabled()
        assert not mytorch.is_grad_enabled()
        with mytorch.enable_grad():
            assert mytorch.is_grad_enabled()
        other_device = []
        thread = threading.Thread(target=lambda: other_device.append(mytorch.is_grad_enabled()))
        thread.start()
        thread.join()
        assert other_device == [True]
    assert mytorch.is_grad_enabled()


def test_no_grad_decorates_functions_and_generators():
    @mytorch.no_grad()
    def recursive(n):
        return mytorch.is_grad_enabled() or (recursive(n - 1) if n else False)

    @mytorch.no_grad
    def stream():
        for _ in range(2):
            yield mytorch.is_grad_enabled()

    assert recursive(3) is False
    assert mytorch.is_grad_enabled()
    states = []
    for inside in stream():
        states.append((inside, mytorch.is_grad_enabled()))
    assert states == [(False, True), (False, True)]


def test_set_grad_enabled_as_call_and_as_block():
    mytorch.set_grad_enabled(False)
    assert not mytorch.is_grad_enabled()
    mytorch.set_grad_enabled(True)
    with mytorch.set_grad_enabled(False):
        assert not mytorch.is_grad_enabled()
    assert mytorch.is_grad_enabled()


def test_split_with_unused_parts():
    x = mytorch.arange(6.0).requires_grad_()
    a, b, c = x.chunk(3)
    (a * 2).sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2, 2, 0, 0, 0, 0])


def test_create_graph_leaves_tensors(torch):
    x = mytorch.tensor([1.0, 2.0], requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    assert isinstance(x.grad, mytorch.Tensor)
    g = x.grad
    x.grad = None
    g.sum().backward()
    np.testing.assert_allclose(np.asarray(x.grad), [6, 12])


def test_gradient_penalty(torch):
    """A loss that holds the norm of a gradient, through a small network."""
    w1, w2, data = np.random.randn(5, 3), np.random.randn(1, 5), np.random.randn(4, 3)

    def run(lib):
        a, b = lib.tensor(w1, requires_grad=True), lib.tensor(w2, requires_grad=True)
        x = lib.tensor(data, requires_grad=True)
        out = lib.nn.functional.linear(lib.tanh(lib.nn.functional.linear(x, a)), b)
        (g,) = lib.autograd.grad(out.sum(), x, create_graph=True)
        ((g.norm(2, dim=1) - 1) ** 2).mean().backward()
        return [np.asarray(a.grad), np.asarray(b.grad)]

    for mine, theirs in zip(run(mytorch), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


@pytest.mark.cpu_only
def test_anomaly_names_the_op():
    with mytorch.autograd.detect_anomaly():
        loss = mytorch.tensor([-1.0, 4.0], requires_grad=True).sqrt().sum()
        with pytest.raises(RuntimeError, match="SqrtBackward"):
            loss.backward()


@pytest.mark.cpu_only
def test_anomaly_names_the_op_of_a_chain_of_0d_tensors():
    with mytorch.autograd.detect_anomaly():
        x = mytorch.tensor(0.0, requires_grad=True)
        loss = (x / 1.0) * float("inf") + 1.0
        with pytest.raises(RuntimeError, match="MulBackward"):
            (loss * 0.0).backward()


def test_training_leaves_memory_flat():
    """Arrays that are alive after a step do not grow, with the garbage collector off."""
    model = mytorch.nn.Sequential(
        mytorch.nn.Linear(8, 8), mytorch.nn.GELU(), mytorch.nn.LayerNorm(8), mytorch.nn.Linear(8, 2)
    )
    optimizer = mytorch.optim.AdamW(model.parameters())

    def step():
        loss = mytorch.nn.functional.cross_entropy(model(mytorch.randn(4, 8)), mytorch.randint(0, 2, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def alive():
        return sum(type(o) in (mytorch.Array, mytorch.Tensor, mytorch.nn.Parameter) for o in gc.get_objects())

    for _ in range(3):
        step()
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(20):
            step()
        assert alive() <= before
    finally:
        gc.enable()


def test_split_passes_adjacent_gradients_as_one_array():
    from mytorch.ops.movement import _rejoined

    whole = np.arange(24.0).reshape(2, 12)
    parts = [whole[:, :5], whole[:, 5:6], whole[:, 6:]]
    joined = _rejoined(np, parts, 1)
    assert np.shares_memory(joined, whole)
    np.testing.assert_array_equal(joined, whole)
    for other in (
        [parts[1], parts[0]],
        [parts[0], parts[2]],
        [parts[0], parts[1].copy()],
        [whole[:, :4:2], whole[:, 4:8]],
    ):
        joined = _rejoined(np, other, 1)
        assert not np.shares_memory(joined, whole)
        np.testing.assert_array_equal(joined, np.concatenate(other, 1))
    x = mytorch.randn(3, 10, requires_grad=True)
    a, b = x.split([4, 6], 1)
    g = mytorch.randn(3, 10)
    mytorch.cat([a, b], 1).backward(g)
    np.testing.assert_array_equal(x.grad.numpy(), g.numpy())


def test_a_wide_gradient_goes_through_a_cast_to_half_precision_unrounded():
    class Wide(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return mytorch.full(g.shape, 1.0 + 2.0**-20)

    exact, rounded = 1.0 + 2.0**-20, 1.0
    x = mytorch.zeros(3, requires_grad=True)
    Wide.apply(x.to(mytorch.bfloat16)).sum().backward()
    assert x.grad.dtype is mytorch.float32
    assert x.grad.tolist() == [exact] * 3

    x = mytorch.zeros(3, requires_grad=True)  # with another gradient for the cast, in either order
    y = x.to(mytorch.bfloat16)
    (Wide.apply(y).sum() + y.sum()).backward()
    assert all(abs(g - 2.0) < 2e-6 for g in x.grad.tolist())
    before = x.grad
    (Wide.apply(x.to(mytorch.bfloat16)).sum()).backward()
    assert all(abs(g - 3.0) < 2e-6 for g in before.tolist())

    x = mytorch.zeros(3, requires_grad=True)  # a retained gradient of a cast has the dtype of the cast
    y = x.to(mytorch.bfloat16)
    y.retain_grad()
    Wide.apply(y).sum().backward()
    assert y.grad.dtype is mytorch.bfloat16
    assert x.grad.tolist() == [rounded] * 3
    x = mytorch.zeros(3, requires_grad=True)
    y = x.to(mytorch.bfloat16)
    y.register_hook(lambda g: seen.append(g.dtype))
    seen = []
    Wide.apply(y).sum().backward()
    assert seen == [mytorch.bfloat16]
    x = mytorch.zeros(3)  # not a cast of float32: nothing changes
    z = x.to(mytorch.bfloat16).requires_grad_()
    Wide.apply(z).sum().backward()
    assert z.grad.dtype is mytorch.bfloat16


def test_two_leaves_never_share_a_gradient():
    rnn = mytorch.nn.LSTM(3, 4)  # its two biases have one gradient
    for _ in range(2):
        rnn(mytorch.ones(5, 2, 3))[0].sum().backward()
    twice = rnn.bias_ih_l0.grad.numpy().copy()
    rnn.zero_grad()
    rnn(mytorch.ones(5, 2, 3))[0].sum().backward()
    np.testing.assert_allclose(twice, 2 * rnn.bias_ih_l0.grad.numpy(), rtol=1e-6)
    assert not np.shares_memory(rnn.bias_ih_l0.grad.numpy(), rnn.bias_hh_l0.grad.numpy())
    w, v = (mytorch.randn(3, 4, requires_grad=True) for _ in range(2))
    a, b = mytorch.nn.functional.add_layer_norm(w, v, (4,))
    (a.sum() + b.sum()).backward()
    assert not np.shares_memory(w.grad.numpy(), v.grad.numpy())


def test_nodes_that_saved_no_numbers_run_again(torch):
    for L in (mytorch, torch):
        x = L.ones(2, 3, requires_grad=True)
        y = x.permute(1, 0).reshape(6).unbind()
        y[0].backward()
        y[3].backward()  # permute and reshape save only sizes
        assert x.grad.tolist() == [[1, 0, 0], [0, 1, 0]]
        z = (x * x).sum()
        z.backward()
        with pytest.raises(RuntimeError, match="second time"):
            z.backward()


def test_the_other_name_of_a_gradient():
    x = mytorch.ones(2, requires_grad=True)
    x._grad = mytorch.ones(2)
    assert x.grad.tolist() == x._grad.tolist() == [1, 1]
