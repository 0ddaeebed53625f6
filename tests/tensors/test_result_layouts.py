"""The order of results and gradients in memory, compared with PyTorch: strides of functions on inputs of many layouts, random
elementwise expressions, indices, seeded draws, and memory that comes from another library or a file.

Strides of axes with one element, and of empty tensors, have no effect on memory and are not compared.
"""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of PyTorch, about functions that it will remove

LAYOUTS = (
    "rows",
    "reversed",
    "swapped",
    "rotated",
    "last",
    "stepped",
    "rows stepped",
    "expanded",
    "inner expanded",
    "offset",
)


def laid(x, layout):
    """Returns a tensor of PyTorch like x in a layout; x itself if the layout needs other axes."""
    n = x.ndim
    if layout == "last":
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return x.contiguous(memory_format=formats[n]) if n in formats else x
    if layout in ("stepped", "rows stepped", "offset"):
        if n < 2:
            return x
        wide = torch.zeros([2 * s + 1 for s in x.shape], dtype=x.dtype)
        index = {"stepped": (..., slice(0, 2 * x.shape[-1], 2)), "rows stepped": (slice(0, 2 * len(x), 2),)}.get(layout)
        if layout == "offset":
            index = tuple(slice(1, s + 1) for s in x.shape)
        elif layout == "stepped":
            index = (*[slice(s) for s in x.shape[:-1]], index[-1])
        else:
            index = (*index, *[slice(s) for s in x.shape[1:]])
        wide[index] = x
        return wide[index]
    if layout == "expanded":
        return x[:1].expand_as(x) if n and len(x) else x
    if layout == "inner expanded":
        return x[..., :1].expand_as(x) if n and x.shape[-1] else x
    order = list(range(n))
    if layout == "reversed":
        order.reverse()
    elif layout == "swapped" and n > 1:
        order[-2:] = order[:-3:-1]
    elif layout == "rotated":
        order = order[1:] + order[:1]
    return x.permute(order).contiguous().permute([order.index(i) for i in range(n)])


def ours(x):
    """Returns our tensor with the layout of a tensor of PyTorch; on a CPU over its memory."""
    memory = torch.empty(0, dtype=x.dtype).set_(x.detach().untyped_storage())
    return mytorch.from_numpy(memory.numpy()).as_strided(x.shape, x.stride(), x.storage_offset())


def steps(x):
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1] if x.numel() else []


def flat(x):
    return [leaf for item in x for leaf in flat(item)] if isinstance(x, (tuple, list)) else [x]


def compare(function, *inputs, ties=False):
    """Runs a function in both libraries and compares strides and values; not the places of equal elements if there are `ties`."""
    theirs = flat(function(torch, *inputs))
    mine = flat(function(mytorch, *map(ours, inputs)))
    for a, b in zip(theirs, mine, strict=True):
        assert steps(a) == steps(b), f"{tuple(a.shape)}: strides {b.stride()}, expected {tuple(a.stride())}"
        if not ties or a.is_floating_point():
            np.testing.assert_allclose(b.detach().numpy(), a.detach().resolve_conj().numpy(), rtol=1e-5, atol=1e-6)


FUNCTIONS = {
    "clone": lambda L, x: x.clone(), "cast": lambda L, x: (x.float().double(), x.long(), x.to(L.float64, copy=True)),
    "like": lambda L, x: (L.zeros_like(x), L.full_like(x, 2.0), L.ones_like(x, memory_format=L.contiguous_format)),
    "unary": lambda L, x: (x.exp(), -x, x.abs(), x.sigmoid(), L.erf(x), L.special.i0(x), x > 0, x.nan_to_num()),
    "activation": lambda L, x: (L.nn.functional.gelu(x), L.nn.functional.elu(x), L.nn.functional.leaky_relu(x), L.nn.functional.logsigmoid(x)),
    "numbers": lambda L, x: (x * 2.0, 1.0 - x, x ** 2, x.clamp(-1.0, 1.0), x.clamp_min(0.0)),
    "reductions": lambda L, x: (x.sum(0), x.mean(-1), x.amax(0), x.std(0), x.max(0), x.logsumexp(0), x.prod(0), x.norm(dim=0), x.argmax(0)),
    "scans": lambda L, x: (x.cumsum(0), x.cumprod(-1), x.softmax(-1), x.log_softmax(0), x.cummax(0)),
    "order": lambda L, x: (x.sort(0), x.argsort(-1), x.topk(1, 0), x.unique()),
    "movement": lambda L, x: (x.flip(0), x.roll(1, 0), x.ravel(), L.cat([x, x]), L.stack([x[0], x[0]]), x.repeat_interleave(2, 0), L.diff(x, dim=0)),
    "picked": lambda L, x: (x.index_select(0, L.tensor([1, 0])), x[L.tensor([1, 0])], x[..., L.tensor([1, 0, 1])], x[x > 0], x.gather(0, x.long() * 0), x.nonzero()),
    "written": lambda L, x: (x.masked_fill(x > 0, 1.0), x.index_fill(0, L.tensor([1]), 2.0), x.index_add(0, L.tensor([1]), x[:1]), x.scatter_add(0, x.long() * 0, x)),
    "copies": lambda L, x: (x.tril(), x.narrow_copy(0, 0, 1), L.select_scatter(x, x[0], 0, 1), x.renorm(2, 0, 1.0)),
    "complex": lambda L, x: (L.complex(x, x), L.polar(x.abs(), x), L.complex(x, x).conj_physical()),
    "fft": lambda L, x: (L.fft.fft(x), L.fft.rfft(x, dim=0), L.fft.irfft(L.complex(x, x)), L.fft.fft2(x), L.fft.rfftn(x), L.fft.ihfft(x)),
    "losses": lambda L, x: (L.nn.functional.mse_loss(x, x * 2, reduction="none"), L.nn.functional.huber_loss(x, x * 2, reduction="none")),
    "norms": lambda L, x: (L.nn.functional.layer_norm(x, x.shape[-1:]), L.nn.functional.rms_norm(x, x.shape[-1:])),
    "quantiles": lambda L, x: (x.quantile(0.3, 0), L.quantile(x, L.tensor([0.2, 0.5], dtype=x.dtype), -1), L.nanquantile(x, 0.4, dim=0, keepdim=True, interpolation="lower")),
    "detached": lambda L, x: (x.detach().exp(), x.data.abs(), x.detach() * 2.0, x.detach() - x, L.nn.Parameter(x.detach()).detach().square(), L.tensor(x), L.frexp(x), L.nn.functional.rrelu(x)),
}  # fmt: skip
CHANNELS = {
    "pools": lambda L, x: (L.nn.functional.max_pool2d(x, 2), L.nn.functional.avg_pool2d(x, 2), L.nn.functional.max_pool2d(x, 2, return_indices=True)),
    "adaptive": lambda L, x: (L.nn.functional.adaptive_avg_pool2d(x, (3, 2)), L.nn.functional.adaptive_max_pool2d(x, 2), L.nn.functional.adaptive_avg_pool2d(x, 1)),
    "resize": lambda L, x: (L.nn.functional.interpolate(x, scale_factor=2), L.nn.functional.interpolate(x, size=(5, 3), mode="bilinear"), L.nn.functional.pixel_shuffle(x, 2)),
    "pads": lambda L, x: (L.nn.functional.pad(x, (1, 1)), L.nn.functional.pad(x, (1, 1, 0, 2), "reflect"), L.nn.functional.pad(x, (1, 2, 0, 1), "circular"), L.nn.functional.pad(x, (1, 1, 0, 0), "replicate")),
    "norms": lambda L, x: (L.nn.functional.batch_norm(x, None, None, training=True), L.nn.functional.instance_norm(x), L.nn.functional.group_norm(x, 2)),
    "convolutions": lambda L, x: (L.nn.functional.conv2d(x, L.ones(3, 4, 2, 2, dtype=L.float64)), L.nn.functional.conv_transpose2d(x, L.ones(4, 3, 2, 2, dtype=L.float64))),
    "joined": lambda L, x: (L.cat([x, x], 1), L.nn.functional.dropout(x, 0.0), L.nn.functional.relu(x), x.resize_as_(x) if 0 not in x.stride() else x),
}  # fmt: skip
MATRICES = {
    "inverse": lambda L, x: (L.linalg.inv(x), L.linalg.inv_ex(x)[0], L.linalg.matrix_power(x, -1)),
    "cholesky": lambda L, x: (L.linalg.cholesky(x @ x.mT), L.linalg.cholesky(x @ x.mT, upper=True), L.cholesky_inverse(x.tril())),
    "solve": lambda L, x: (L.linalg.solve(x, x), L.linalg.solve(x, x, left=False), L.linalg.solve_triangular(x, x, upper=True)),
    "factors": lambda L, x: (L.linalg.lu(x), L.linalg.lu_factor(x), L.linalg.eigh(x + x.mT).eigenvalues, L.linalg.svdvals(x)),
    "products": lambda L, x: (x @ x, L.matmul(x, x[..., :1]), L.einsum("...ij,...jk->...ki", x, x)),
}  # fmt: skip


@loop
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, layout):
    rng = np.random.default_rng(1)
    for shape in ((3, 4), (2, 3, 4), (2, 3, 2, 3), (3, 1, 4), (2, 1, 3, 2)):
        compare(FUNCTIONS[name], laid(torch.tensor(rng.standard_normal(shape)), layout), ties="expanded" in layout)


@loop
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CHANNELS)
def test_functions_of_channels(name, layout):
    rng = np.random.default_rng(2)
    for shape in ((2, 4, 6, 5), (1, 4, 4, 4)):
        compare(CHANNELS[name], laid(torch.tensor(rng.standard_normal(shape)), layout), ties="expanded" in layout)


@loop
@pytest.mark.parametrize("layout", [x for x in LAYOUTS if "expanded" not in x])
@pytest.mark.parametrize("name", MATRICES)
def test_functions_of_matrices(name, layout):
    rng = np.random.default_rng(3)
    for shape in ((4, 4), (2, 3, 3)):
        x = torch.tensor(rng.standard_normal(shape) + 4 * np.eye(shape[-1]))
        compare(MATRICES[name], laid(x, layout))


BINARY = ("add", "sub", "mul", "div", "maximum", "atan2", "lt", "eq", "hypot", "fmod", "logaddexp", "copysign")


@loop
@pytest.mark.parametrize("seed", range(40))
def test_elementwise_functions_of_several_tensors(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        shape = rng.integers(1, 5, rng.integers(1, 5))
        tensors = []
        for _ in range(3):
            own = np.where(rng.random(len(shape)) < 0.25, 1, shape)[rng.integers(0, 2) * (rng.random() < 0.3) :]
            x = torch.tensor(rng.standard_normal(tuple(own.tolist())))
            x = laid(x, LAYOUTS[rng.integers(len(LAYOUTS))])
            tensors.append(x.to([torch.float64, torch.float32][rng.integers(2)]))
        name = BINARY[rng.integers(len(BINARY))]
        compare(lambda L, x, y, z, name=name: getattr(L, name)(x, y), *tensors)
        compare(lambda L, x, y, z: (L.where(x > 0, y, z), L.addcmul(x, x, x), L.clamp(x, min=x, max=x + 1)), *tensors)
        compare(lambda L, x, y, z: L.lerp(x, x + 1, 0.3), *tensors)


@loop
@pytest.mark.parametrize("seed", range(20))
def test_indices(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        shape = tuple(rng.integers(2, 5, rng.integers(2, 5)).tolist())
        x = laid(torch.tensor(rng.standard_normal(shape)), LAYOUTS[rng.integers(len(LAYOUTS))])
        where = int(rng.integers(len(shape)))
        before = [slice(None), slice(0, 2), slice(None, None, 1)][rng.integers(3)]
        index = rng.integers(-2, 2, [(2,), (3,), (2, 3)][rng.integers(3)])
        mask = np.arange(shape[0]) < rng.integers(2, shape[0] + 1)  # PyTorch orders axes of one element in other ways
        compare(lambda L, x: x[(*[before] * where, L.tensor(index))], x)
        compare(lambda L, x: (x[L.tensor(mask)], x[L.tensor(mask), ..., L.tensor(0)]), x)
        compare(lambda L, x: (x[L.tensor(index), L.tensor(index)], x[0, ..., L.tensor(index)]), x)


@loop
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_leaves(layout):
    """A gradient has the strides of its leaf if those are dense, and is in row-major order otherwise."""
    rng = np.random.default_rng(4)
    for shape in ((3, 4), (2, 3, 4), (2, 3, 4, 5)):
        x = laid(torch.tensor(rng.standard_normal(shape)), layout)
        for function in (
            lambda L, x: x * x, lambda L, x: x.sum(0), lambda L, x: x.transpose(0, 1).exp(), lambda L, x: x.flip(0),
            lambda L, x: x[..., 1:], lambda L, x: x @ x.transpose(-1, -2), lambda L, x: x.expand(2, *x.shape), lambda L, x: x.softmax(0) + x,
        ):  # fmt: skip
            found = []
            for library, leaf in ((torch, x.detach()), (mytorch, ours(x))):
                leaf.requires_grad_()
                out = function(library, leaf)
                rng_g = np.random.default_rng(5)
                out.backward(library.tensor(rng_g.standard_normal(tuple(out.shape))))
                found.append(leaf.grad)
            a, b = found
            assert steps(a) == steps(b), (shape, a.stride(), b.stride())
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-6)


OF_UPSTREAM = {
    "pad": lambda L, x: L.nn.functional.pad(x, (1, 2)), "crop": lambda L, x: L.nn.functional.pad(x, (-1, 0)), "cumsum": lambda L, x: x.cumsum(0),
    "logcumsumexp": lambda L, x: x.logcumsumexp(-1), "cumprod": lambda L, x: x.cumprod(0), "flip": lambda L, x: x.flip(0), "mean": lambda L, x: x.mean(),
    "means": lambda L, x: x.mean(0), "kept": lambda L, x: x.mean(-1, keepdim=True), "sum": lambda L, x: x.sum(), "exp": lambda L, x: x.exp(), "nanmean": lambda L, x: x.nanmean(),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_UPSTREAM)
def test_gradients_have_memory_of_their_own(name):
    """Strides of gradients that `autograd.grad` returns. Changes in place do not reach the gradient of the result."""
    rng = np.random.default_rng(9)
    for shape in ((5,), (3, 4), (2, 3, 4)):
        data, found = torch.tensor(rng.standard_normal(shape)), []
        for library, x in ((torch, data.clone()), (mytorch, ours(data).clone())):
            x.requires_grad_()
            out = OF_UPSTREAM[name](library, x)
            up = library.tensor(np.random.default_rng(3).standard_normal(tuple(out.shape)))
            before = up.clone()
            (g,) = library.autograd.grad(out, x, up)
            found.append((steps(g), np.array(g.tolist())))
            if 0 not in g.stride():
                g.zero_()
            assert (up == before).all().item()
        assert found[0][0] == found[1][0], (shape, found)
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6)


DRAWS = {
    "fills": lambda L, x: [getattr(x.clone(), f)() for f in ("normal_", "uniform_", "bernoulli_", "exponential_", "cauchy_", "log_normal_")],
    "integers": lambda L, x: (x.clone().random_(0, 9), x.clone().geometric_(0.3), L.randint_like(x, 9)),
    "like": lambda L, x: (L.rand_like(x), L.randn_like(x), L.bernoulli(x.sigmoid()), L.poisson(x.abs()), L.normal(x, 1.0)),
    "multinomial": lambda L, x: [L.multinomial(w, n, r) for w in [x.reshape(-1, x.shape[-1]).abs() + 0.1, x.flatten(1).T.abs() + 0.1] for n, r in ((1, False), (2, False), (3, True))],
    "dropout": lambda L, x: (L.nn.functional.dropout(x, 0.4), L.nn.functional.alpha_dropout(x, 0.4, True), L.nn.functional.dropout(x.clone(), 0.4, inplace=True), L.native_dropout(x, 0.4, True)),
    "channels": lambda L, x: (L.nn.functional.feature_alpha_dropout(x, 0.4, True), L.nn.functional.dropout2d(x, 0.4), L.nn.functional.dropout3d(x[:0], 0.4)),
    "gumbel": lambda L, x: (L.nn.functional.gumbel_softmax(x), L.nn.functional.gumbel_softmax(x, hard=True, dim=0), L.nn.functional.rrelu(x, training=True)),
    "attention": lambda L, x: [L.nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.4) for y in (x, x.transpose(-3, -2) if x.ndim > 2 else x)],
    "distributions": lambda L, x: (L.distributions.Categorical(logits=x).sample(), L.distributions.OneHotCategorical(logits=x).sample((2,)), L.distributions.Normal(x, x.abs() + 1).sample()),
}  # fmt: skip


@pytest.mark.cpu_only
@loop
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DRAWS)
def test_seeded_draws(name, layout):
    rng = np.random.default_rng(6)
    for shape in ((3, 4), (4, 4), (4, 2, 4), (2, 3, 4, 5), (2, 4, 4, 4)):
        x = laid(torch.tensor(rng.standard_normal(shape)), layout)
        torch.manual_seed(7)
        mytorch.manual_seed(7)
        compare(
            lambda L, x: [*flat(DRAWS[name](L, x)), L.rand(3)], x
        )  # the last numbers depend on the generator's state


@pytest.mark.cpu_only
def test_dropout_in_attention_layers():
    rng = np.random.default_rng(8)
    for shape, batch_first in (((4, 2, 4), True), ((2, 2, 4), True), ((2, 4, 4), False), ((4, 4), True)):
        x, results = rng.standard_normal(shape).astype("f"), []
        for L in (torch, mytorch):
            L.manual_seed(1)
            attention = L.nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=batch_first)
            encoder = L.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.4, batch_first=batch_first)
            t = L.tensor(x)
            results.append([attention(t, t, t, need_weights=False)[0], encoder(t), L.rand(2)])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_resize_in_a_memory_format():
    for L in (torch, mytorch):
        x = L.zeros(2, 3, 4, 5)
        assert x.resize_(2, 3, 4, 5, memory_format=L.channels_last).stride() == (60, 1, 15, 3)
        assert x.resize_as_(
            L.zeros(1, 2, 3, 4).contiguous(memory_format=L.channels_last), memory_format=L.preserve_format
        ).stride() == (24, 1, 8, 2)
        out = L.empty(0)
        L.exp(L.zeros(3, 4).t(), out=out)
        assert out.stride() == (1, 4)


def test_imported_memory_has_its_own_storage():
    import copy

    base = np.arange(24, dtype="f").reshape(4, 6)
    for array in (base[:, ::2], base[1:, 1:], base.T, base[::2], np.broadcast_to(base[:1], (4, 6)).copy()[:, ::3]):
        a, b = torch.from_dlpack(torch.from_numpy(array)), mytorch.from_dlpack(array)
        assert (a.storage_offset(), a.stride(), a.tolist()) == (b.storage_offset(), b.stride(), b.tolist())
        assert (
            a.untyped_storage().nbytes() == b.untyped_storage().nbytes()
            or array.flags.c_contiguous
            or array.flags.f_contiguous
        )
        assert copy.deepcopy(b).tolist() == b.tolist()
        assert copy.deepcopy(b).stride() == b.stride()
        assert b.as_strided((2,), (1,), 0).tolist() == a.as_strided((2,), (1,), 0).tolist()
    expanded = mytorch.from_dlpack(torch.arange(3.0).expand(2, 3))
    assert (expanded.stride(), expanded.storage_offset(), copy.deepcopy(expanded).tolist()) == (
        (0, 1),
        0,
        [[0.0, 1.0, 2.0]] * 2,
    )
    with pytest.raises(ValueError, match="no negative strides"):
        mytorch.from_dlpack(base[::-1])


@pytest.mark.cpu_only
def test_mapped_files_have_one_storage_for_each_tensor(tmp_path):
    import copy

    x = mytorch.arange(6.0)
    mytorch.save({"a": x, "b": x[2:4], "c": mytorch.zeros(5000)}, tmp_path / "f.pt")
    found = mytorch.load(tmp_path / "f.pt", mmap=True)
    a, b = found["a"], found["b"]
    assert (a.untyped_storage().nbytes(), a.storage_offset(), b.untyped_storage().nbytes(), b.storage_offset()) == (
        24,
        0,
        24,
        2,
    )
    assert b.as_strided((6,), (1,), 0).tolist() == x.tolist()
    assert a.untyped_storage()._cdata == b.untyped_storage()._cdata
    assert copy.deepcopy(b).untyped_storage().nbytes() == 24
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        mytorch.save({"a": x, "b": x.view(mytorch.int32)}, tmp_path / "g.pt")
    whole = x.view(mytorch.int32)
    mytorch.save([whole, whole[2:]], tmp_path / "h.pt")
    first, second = mytorch.load(tmp_path / "h.pt")
    assert first[2:].data_ptr() == second.data_ptr()
    assert second.tolist() == whole[2:].tolist()


ORDERED = (
    "x < x|x >= x|x.max()|x.min(0)|x.sort()|x.argsort()|x.topk(1)|x.median()|x.kthvalue(1)|x.mode()|x.cummax(0)|x.amax()|x.argmax()|"
    "x.clamp(0)|L.maximum(x, x)|L.fmin(x, x)|L.where(x > x, x, x)|x.unique()|L.bucketize(x.real, x)|L.histc(x)|x.sign()|x.round()|"
    "x.relu()|L.erf(x)|L.nn.functional.gelu(x)|L.nn.functional.softplus(x)|x.softmax(0)|L.lgamma(x)|L.randint(3, (2,), dtype=x.dtype)|"
    "x.aminmax()|x.fmax(x)|x.msort()|L.nn.functional.mse_loss(x, x)|L.nn.functional.dropout(x)|L.arange(2, dtype=x.dtype)"
)


@loop
@pytest.mark.parametrize("expression", ORDERED.split("|"))
def test_complex_numbers_have_no_order(expression):
    for L in (torch, mytorch):
        x = L.tensor([1 + 2j, 3 - 1j])
        with pytest.raises((RuntimeError, NotImplementedError)):
            eval(expression, {"L": L, "x": x})


@loop
@pytest.mark.parametrize(
    "expression",
    [
        "L.tensor([1]).broadcast_to(3)", "L.tensor([1]).broadcast_to(2, 3)", "L.tensor(3).movedim(0, -1)", "L.tensor(3).mT",
        "L.tensor(3).adjoint()", "L.arange(0.5, 10, 0.5, dtype=L.int32)", "L.arange(-0.5, 3.7, 1.2, dtype=L.int16)",
        "(lambda x: x.masked_scatter_(x > 0, x))(L.tensor([1.0, -1.0, 2.0]))", "L.tensor([], dtype=L.bool).median()",
        "L.sum(L.tensor([1.5, 2.0]), 0, out=L.tensor(0))", "L.cumsum(L.tensor([1.5, 2.0]), 0, out=L.tensor([0, 0]))",
        "L.func.vmap(lambda x: L.nn.functional.dropout(x), randomness='different')(L.ones(0, 3))",
    ],
)  # fmt: skip
def test_accepted_as_in_pytorch(expression):
    a, b = (eval(expression, {"L": L}) for L in (torch, mytorch))
    assert (tuple(a.shape), a.tolist(), str(a.dtype)[6:]) == (tuple(b.shape), b.tolist(), b.dtype.name)


@loop
@pytest.mark.parametrize(
    "expression",
    [
        "L.arange(3)[np.bool_(True)]", "L.ones(3, 3)[L.tensor([0, 1]), np.bool_(True)]", "L.ones(2).fill_(None)",
        "(lambda a: L.cat([a, a], out=a))(L.ones(3))", "(lambda a: L.index_select(a, 0, L.tensor([0]), out=a))(L.ones(3))",
        "(lambda a: L.gather(a, 0, L.tensor([1, 0]), out=a))(L.ones(2))", "(lambda a: L.stack([a[0], a[1]], out=a))(L.ones(2, 2))",
        "L.arange(0, 5, 0.5, dtype=L.int64)", "L.tensor(3).chunk(1)", "L.tensor(3).unbind()", "L.tensor(3).rot90()",
    ],
)  # fmt: skip
def test_refused_as_in_pytorch(expression):
    kinds = []
    for L in (torch, mytorch):
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)) as caught:
            eval(expression, {"L": L, "np": np})
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]
