"""Views, memory and the constructor, against PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop


@pytest.mark.parametrize("sizes", [(2, 3), (2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5), (0, 1)], ids=str)
def test_constructor_takes_sizes(torch, sizes):
    for library in (torch, mytorch):
        x = library.Tensor(*sizes)
        assert tuple(x.shape) == sizes
        assert x.dtype is library.float32
        assert not x.requires_grad


def test_base_of_a_view(torch):
    for library in (torch, mytorch):
        x = library.ones(2, 3)
        y = x.view(6)[2:]
        assert x._base is None
        assert y._base is x
        assert y._is_view()
        assert not x._is_view()


def test_grad_must_be_a_tensor(torch):
    for library in (torch, mytorch):
        with pytest.raises(TypeError, match="int"):
            library.ones(2).grad = 3


def test_as_strided_of_as_strided(torch):
    for library in (torch, mytorch):
        x = library.arange(10.0)
        y = x.as_strided((3, 3), (1, 2), 1)
        assert y.storage_offset() == 1
        assert y.as_strided((2,), (1,)).tolist() == [1.0, 2.0]
        with pytest.raises(RuntimeError, match="trides"):
            x.as_strided((3,), (-1,))


@pytest.mark.parametrize("dim", [0, 1])
def test_as_strided_under_vmap_looks_at_each_samples_own_elements(torch, dim):
    views = {
        "own": lambda L, t: t.as_strided((2, 3), (1, 2)),
        "offset": lambda L, t: t.as_strided((2, 3), (1, 2), 1),
        "made": lambda L, t: (t * t)[2:].as_strided((2, 2), (1, 2)) * t[:2],
        "strides": lambda L, t: t[::3].as_strided((2,), t[::3].stride()),
        "overlapping": lambda L, t: (t * t.as_strided((3, 12), (0, 1), 0)).sum(0),
    }

    def run(L):
        x = L.arange(24.0).reshape((2, 12) if dim == 0 else (12, 2))
        for view in views.values():
            yield L.func.vmap(lambda t, view=view: view(L, t), in_dims=dim)(x).tolist()
            if dim == 0:
                yield L.func.vmap(L.func.grad(lambda t, view=view: (view(L, t) ** 2).sum()))(x).tolist()

    assert list(run(mytorch)) == list(run(torch))


def test_values_written_through_as_strided_have_gradients(torch):
    def run(L):
        x = L.arange(10.0).requires_grad_()
        y = (x * 2)[3:]
        y.as_strided((2, 2), (1, 2)).mul_(x[:4].reshape(2, 2))
        (y * L.arange(7.0)).sum().backward()
        return x.grad.tolist()

    assert run(mytorch) == run(torch)


@loop
@pytest.mark.parametrize("word", ["Float", "Double", "Half", "Long", "Int", "Bool"])
def test_type_by_name(torch, word):
    for library in (torch, mytorch):
        x = library.ones(2)
        assert x.type(getattr(library, word + "Tensor")).dtype is x.type(f"torch.{word}Tensor").dtype


@pytest.mark.parametrize("name", ["leaf", "pixel_unshuffle", "channel_shuffle", "sliced_pool", "twice"])
def test_gradients_have_the_strides_of_their_tensors(torch, name):
    """Gradients of channels-last tensors are channels-last; results keep the order of strides, even with gaps."""

    def run(L):
        F = L.nn.functional
        x = L.arange(2.0 * 8 * 4 * 4).reshape(2, 8, 4, 4).contiguous(memory_format=L.channels_last).requires_grad_()
        y = {
            "leaf": lambda: x * L.arange(4.0),
            "twice": lambda: x + x,
            "pixel_unshuffle": lambda: F.pixel_unshuffle(x, 2),
            "channel_shuffle": lambda: F.channel_shuffle(x, 2),
            "sliced_pool": lambda: F.max_pool2d(x[:, ::2], 2),
        }[name]()
        (y * L.arange(float(y.numel())).reshape(y.shape)).sum().backward()
        if name == "twice":
            (2 * x).sum().backward()
        return [*([] if name in ("leaf", "twice") else [y.stride()]), x.grad.stride(), x.grad.tolist()]

    assert run(mytorch) == run(torch)


@loop
@pytest.mark.parametrize("write", ["mul_(2)", "fill_(3.0)", "copy_(w)"])
@pytest.mark.parametrize("view", ["y", "y.t()", "y[1:]", "y[:, 1:]", "y[0]", "y.unsqueeze(0)"])
@pytest.mark.parametrize(
    "base", ["x + 0", "(x.t().contiguous() + 0).t()", "L.stack([x, x], -1)[..., 0]", "L.cat([x, x])[1:3]"]
)
def test_gradients_of_writes_through_as_strided(base, view, write, torch):
    """The gradient that arrives has any layout; the region is a part of the memory that the base had."""
    found = []
    for L in (mytorch, torch):
        for loss in ("y.sum()", "(y * L.arange(1.0, 7.0).reshape(3, 2).t()).sum()", "(y * y).sum()"):
            x = (L.arange(6.0).reshape(2, 3) / 4).requires_grad_()
            space = {"L": L, "x": x, "w": L.ones(2, requires_grad=True)}
            space["y"] = eval(base, space)
            exec(f"{view}.as_strided((2,), (2,), 1).{write}", space)
            eval(loss, space).backward()
            grads = [None if t.grad is None else t.grad.tolist() for t in (x, space["w"])]
            found.append((space["y"].tolist(), grads))
    assert found[:3] == found[3:]


@pytest.mark.cpu_only
@loop
@pytest.mark.parametrize("seed", range(40))
def test_strides_of_chains_of_views(seed, torch):
    """Also those of axes of size 1, which can decide the layout of results. CuPy's own strides of such axes stay as they are."""
    rng = np.random.default_rng(seed)

    def pick(*options):
        return options[int(rng.integers(len(options)))]

    shape = [int(n) for n in rng.integers(1, 4, int(rng.integers(0, 4)))]
    mine, theirs = (L.arange(float(np.prod(shape))).reshape(shape) for L in (mytorch, torch))
    for _ in range(20):
        n = theirs.ndim
        items = [pick(":", "::2", "None", "None", "...", "0") for _ in range(int(rng.integers(1, n + 2)))]
        step = pick(
            f"x[{', '.join(items)}]", f"x.unsqueeze({rng.integers(-n - 1, n + 1)})", "x.squeeze()", f"x.permute({rng.permutation(n).tolist()})",
            "x.view(1, *x.shape, 1)", "x.reshape(-1, 1)", "x.expand(2, *x.shape)", "L.stack([x, x], -1)[..., 0]", "x.flatten()",
            f"x.view(*x.shape[:{n // 2}], 1, *x.shape[{n // 2}:])",
        )  # fmt: skip
        try:
            result = eval(step, {"x": theirs, "L": torch})
        except (IndexError, RuntimeError):
            continue
        if 0 < result.numel() < 100:
            mine, theirs = eval(step, {"x": mine, "L": mytorch}), result
            assert (mine.stride(), mine.tolist()) == (theirs.stride(), theirs.tolist()), step


@pytest.mark.parametrize("view", ["x", "x.view_as(x)", "x[1:]", "x.t()"])
def test_as_strided_of_a_leaf_that_is_a_view(view, torch):
    found = []
    for L in (mytorch, torch):
        x = L.arange(12.0).reshape(2, 3, 2)[..., 0].requires_grad_()
        y = eval(view).as_strided((2,), (2,), 6)
        (y * L.tensor([2.0, 3.0])).sum().backward()
        found.append((y.tolist(), x.grad.tolist()))
        with pytest.raises(RuntimeError, match="leaf"):
            eval(view).as_strided((2,), (2,), 6).mul_(2)
    assert found[0] == found[1]
