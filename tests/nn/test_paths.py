"""PyTorch's import paths, hooks for all modules, containers and methods of Module, compared with PyTorch."""

import copy
import importlib
import inspect
import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop


def test_modules_of_pytorch_are_found(torch):
    """Every layer and base class that nn.modules.* defines in PyTorch is at that path here."""
    import pkgutil

    missing = []
    internal = {
        "_ConvTransposeMixin",
        "_LinearWithBias",
        "Node",
        "_WrappedHook",
        "_LazyProtocol",
        "_AutoDefault",
        "_CircularPadNd",
        "_ReflectionPadNd",
        "_ReplicationPadNd",
        "_AdaptiveMaxPoolNd",
        "_AdaptiveAvgPoolNd",
    }
    for info in pkgutil.iter_modules(torch.nn.modules.__path__):
        if info.name in ("_functions", "utils", "linear_cross_entropy"):
            continue
        theirs = importlib.import_module(f"torch.nn.modules.{info.name}")
        mine = importlib.import_module(f"mytorch.nn.modules.{info.name}")
        for name, value in vars(theirs).items():
            if (
                inspect.isclass(value)
                and value.__module__ == theirs.__name__
                and name not in internal
                and not hasattr(mine, name)
            ):
                missing.append(f"{info.name}.{name}")
    assert not missing


def test_paths_lead_to_one_class():
    from mytorch.nn.modules import Conv2d, Module
    from mytorch.nn.modules.batchnorm import _BatchNorm
    from mytorch.nn.modules.conv import _ConvNd
    from mytorch.nn.modules.utils import _pair, _single, _triple, consume_prefix_in_state_dict_if_present

    nn = mytorch.nn
    assert Conv2d is nn.Conv2d
    assert Module is nn.Module is mytorch.nn.modules.module.Module
    assert isinstance(nn.Conv1d(1, 1, 1), _ConvNd)
    assert isinstance(nn.BatchNorm2d(3), _BatchNorm)
    assert not isinstance(nn.InstanceNorm2d(3), _BatchNorm)
    assert isinstance(nn.MSELoss(), mytorch.nn.modules.loss._Loss)
    assert isinstance(nn.NLLLoss(), mytorch.nn.modules.loss._WeightedLoss)
    assert (_single(2), _pair(2), _triple((1, 2, 3))) == ((2,), (2, 2), (1, 2, 3))
    state = nn.Sequential(nn.Linear(2, 2)).state_dict(prefix="module.")
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["0.weight", "0.bias"]
    with pytest.raises(AttributeError):
        mytorch.nn.modules.conv.Nothing  # noqa: B018


@pytest.mark.cpu_only
def test_sdpa_kernel():
    from mytorch.nn.attention import SDPBackend, sdpa_kernel

    q = mytorch.randn(1, 2, 4, 8)
    plain = mytorch.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(SDPBackend.MATH):
        assert mytorch.arrays.config.fused_policy.get() is False
        math = mytorch.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        assert mytorch.arrays.config.fused_policy.get() is not False
    np.testing.assert_allclose(plain.numpy(), math.numpy(), atol=1e-6)
    with pytest.raises(AssertionError, match="instance of SDPBackend"), sdpa_kernel("math"):
        pass


@pytest.mark.parametrize(
    ("d", "options"),
    [(1, {"stride": 2, "padding": 1}), (2, {"groups": 2, "dilation": (1, 2)}), (3, {"padding": (0, 1, 1)})],
)
def test_gradients_of_convolutions(d, options, torch):
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((2, 4, *(7, 6, 5)[:d])),
        rng.standard_normal((6, 4 // options.get("groups", 1), *(3, 2, 2)[:d])),
    )
    out = getattr(torch.nn.functional, f"conv{d}d")(torch.tensor(x), torch.tensor(w), **options)
    g = rng.standard_normal(tuple(out.shape))
    for which, arguments in (("input", lambda t: (x.shape, t(w), t(g))), ("weight", lambda t: (t(x), w.shape, t(g)))):
        results = []
        for lib in (mytorch, torch):
            module = importlib.import_module(f"{lib.__name__}.nn.grad")
            results.append(getattr(module, f"conv{d}d_{which}")(*arguments(lib.tensor), **options).numpy())
        np.testing.assert_allclose(*results, atol=1e-10)


def _record(lib):
    """Records the arguments of hooks for all modules, as text."""
    module = importlib.import_module(f"{lib.__name__}.nn.modules.module")
    log = []
    handles = [
        module.register_module_forward_pre_hook(lambda m, a: log.append(f"pre {type(m).__name__} {len(a)}")),
        module.register_module_forward_hook(lambda m, a, o: log.append(f"forward {type(m).__name__}")),
        module.register_module_forward_hook(lambda m, a, k, o: log.append(f"kwargs {sorted(k)}"), with_kwargs=True),
        module.register_module_full_backward_pre_hook(
            lambda m, g: log.append(f"backward pre {type(m).__name__} {len(g)}")
        ),
        module.register_module_full_backward_hook(
            lambda m, gi, go: log.append(f"backward {type(m).__name__} {len(gi)} {len(go)}")
        ),
        module.register_module_parameter_registration_hook(lambda m, n, p: log.append(f"param {n}")),
        module.register_module_buffer_registration_hook(lambda m, n, b: log.append(f"buffer {n}")),
        module.register_module_module_registration_hook(lambda m, n, c: log.append(f"module {n}")),
    ]
    try:
        net = lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.BatchNorm1d(2))
        net(lib.ones(4, 3, requires_grad=True)).sum().backward()
        always = module.register_module_forward_hook(lambda m, a, o: log.append("always"), always_call=True)
        handles.append(always)
        with pytest.raises(RuntimeError):
            net[0](lib.ones(4, 5))
    finally:
        for handle in handles:
            handle.remove()
    size = len(log)
    net(lib.ones(4, 3))
    assert len(log) == size
    return log


def test_hooks_of_all_modules(torch):
    assert _record(mytorch) == _record(torch)


def test_registration_hooks_may_replace(torch):
    for lib in (mytorch, torch):
        module = importlib.import_module(f"{lib.__name__}.nn.modules.module")
        with module.register_module_parameter_registration_hook(
            lambda m, n, p, lib=lib: lib.nn.Parameter(p.detach() * 0)
        ):
            layer = lib.nn.Linear(2, 2)
            layer.weight = lib.nn.Parameter(lib.ones(2, 2))
        assert (layer.weight == 0).all()


CONTAINERS = {
    "Sequential": [
        "c *= 2", "c * 2", "2 * c", "c + c", "c += c", "c.append(extra)", "c.insert(1, extra)", "c.extend([extra, extra])", "c.pop(0)", "c.pop(-1)", "del c[0]", "del c[0:2]", "c[0:2]", "c[1] = extra",
        "c[-1]", "c[7]", "c *= 0", "c *= 'x'", "c + 3", "c.insert(9, extra)", "c.insert(0, 3)", "c.append(3)", "reversed(c)", "len(c)",
    ],
    "ModuleList": [
        "c += [extra]", "c + [extra]", "c.append(extra)", "c.insert(1, extra)", "c.extend([extra, extra])", "c.pop(0)", "c.pop()", "del c[0]", "del c[0:2]", "c[0:2]", "c[1] = extra", "c[-1]", "c[7]",
        "c.extend(3)", "c.append(3)", "dir(c)", "len(c)",
    ],
}  # fmt: skip


@loop
@pytest.mark.parametrize(("kind", "statement"), [(k, s) for k, statements in CONTAINERS.items() for s in statements])
def test_containers(kind, statement, torch):
    results = []
    for lib in (mytorch, torch):
        parts = [lib.nn.Linear(2, 3), lib.nn.ReLU(), lib.nn.Linear(3, 2)]
        container = lib.nn.Sequential(*parts) if kind == "Sequential" else lib.nn.ModuleList(parts)
        names = {"c": container, "extra": lib.nn.Tanh()}
        try:
            try:
                value = eval(statement, names)
            except SyntaxError:
                exec(statement, names)
                value = None
            error = ""
        except Exception as e:
            value, error = None, type(e).__name__
        shown = repr(value) if isinstance(value, (lib.nn.Module, int)) else ""
        results.append((shown, repr(names["c"]), list(names["c"].state_dict()), error))
    assert results[0] == results[1]


@pytest.mark.parametrize("statement", [
    "c |= {'z': t}", "c = c | {'z': t}", "c = {'z': t} | c", "c.update([('z', t)])", "c.update({'z': t, 'a': t})", "v = c.pop('a')", "v = c.popitem()", "v = c.get('q', 3)", "v = c.setdefault('q', t)", "c.clear()",
    "c['k'] = t", "del c['a']", "c = c.copy()", "c = c.fromkeys(['m', 'n'], t)", "v = list(reversed(c))", "v = 'a' in c", "c['n'] = 3",
])  # fmt: skip
def test_parameter_dict(statement, torch):
    results = []
    for lib in (mytorch, torch):
        names = {
            "c": lib.nn.ParameterDict({"b": lib.ones(2), "a": lib.nn.Parameter(lib.zeros(1, 2))}),
            "t": lib.ones(3),
            "v": None,
        }
        error = ""
        try:
            exec(statement, names)
        except Exception as e:
            error = type(e).__name__
        c = names["c"] if hasattr(names["c"], "state_dict") else lib.nn.ParameterDict(names["c"])
        results.append(
            (
                list(c.keys()),
                list(c.state_dict()),
                [type(v).__name__ for v in c.values()],
                len(c),
                repr(c).replace("mytorch", "torch"),
                error,
            )
        )
    mine, theirs = results
    assert mine[:4] == theirs[:4]
    assert mine[5] == theirs[5]


MODULE_CALLS = [
    "m.get_submodule('0.1')", "m.get_submodule('0.9')", "m.get_submodule('1.weight')", "m.get_submodule('')", "m.get_parameter('1.weight').shape", "m.get_parameter('1.nothing')", "m.get_parameter('2.running_mean')",
    "m.get_buffer('2.running_mean').shape", "m.get_buffer('1.weight')", "m.set_submodule('0.1', nn.Tanh())", "m.set_submodule('0.7', nn.Tanh())", "m.set_submodule('0.7', nn.Tanh(), strict=True)", "m.set_submodule('', nn.Tanh())",
    "m.set_submodule('1', 3)", "m.set_submodule('1.weight', nn.Tanh())", "[n for n, _ in m.named_modules(remove_duplicate=False)]", "[n for n, _ in m.named_modules(prefix='x')]", "[n for n, _ in m.named_parameters('p', False)]",
    "[n for n, _ in m.named_parameters(remove_duplicate=False)]", "[n for n, _ in m.named_buffers(recurse=True)]", "len(list(m.modules()))", "[n for n, _ in m.named_children()]", "m.register_module('new', nn.Tanh())",
    "m.add_module('a.b', nn.Tanh())", "m.add_module('', nn.Tanh())", "m.add_module('train', nn.Tanh())", "m.add_module('x', 3)", "m.register_buffer('x', 3)", "m.register_parameter('x', 3)", "m[1].register_buffer('weight', None)",
    "m.requires_grad_(False)", "m.train(3)", "m.double()", "m.half()", "m.bfloat16()", "m.to(dtype='x')", "m.to_empty(device='cpu')", "m.eval()", "m.apply(lambda x: None)", "m.zero_grad()", "m.share_memory()", "m.extra_repr()",
    "m.load_state_dict({})", "m.load_state_dict({'1.weight': None, 'z': 1}, strict=False)", "m.load_state_dict(3)", "m.nothing", "m[1].nothing", "nn.Linear(2, 2, foo=3)", "nn.Module(3)", "nn.Module(x=3)", "nn.Module()(3)",
    "setattr(m[1], 'weight', 3)", "setattr(m[1], 'weight', None)", "delattr(m[1], 'weight')", "m.to(memory_format=None)", "m.float().type(lib.float64)",
]  # fmt: skip


@loop
@pytest.mark.parametrize("call", MODULE_CALLS)
def test_module_methods(call, torch):
    results = []
    for lib in (mytorch, torch):
        nn = lib.nn
        shared = nn.Linear(2, 2)
        m = nn.Sequential(nn.Sequential(shared, nn.ReLU()), shared, nn.BatchNorm1d(2))
        error = ""
        try:
            value = eval(call, {"m": m, "nn": nn, "lib": lib})
        except Exception as e:
            value, error = (
                None,
                f"{type(e).__name__}: {e}".replace("mytorch", "torch").replace(
                    "torch.nn.module.", "torch.nn.modules.module."
                ),
            )
        shown = repr(value) if not callable(value) else repr(value) if isinstance(value, nn.Module) else ""
        results.append(
            (
                shown.replace("mytorch", "torch"),
                [(k, tuple(v.shape), str(v.dtype).partition(".")[2]) for k, v in m.state_dict().items()],
                error,
            )
        )
    mine, theirs = results
    assert mine[:2] == theirs[:2]
    assert mine[2].partition(":")[0] == theirs[2].partition(":")[0], (mine[2], theirs[2])


@pytest.fixture
def torch_layout():
    mytorch.set_printoptions(layout="torch")
    yield
    mytorch.set_printoptions(layout="mytorch")


def test_printing(torch, torch_layout):
    for text in (
        "Dropout(0.2, inplace=True)",
        "Transformer(8, 2, 1, 1, 16, batch_first=True)",
        "MultiheadAttention(4, 2)",
        "ParameterList([3, 'x'])",
        "CrossMapLRN2d(3)",
        "FractionalMaxPool2d(2, 3)",
        "GRU(2, 3)",
    ):
        assert repr(eval(f"nn.{text}", {"nn": mytorch.nn})) == repr(eval(f"nn.{text}", {"nn": torch.nn}))


def test_extra_state_and_state_dict_hooks(torch):
    logs = []
    for lib in (mytorch, torch):
        log = []

        class Counting(lib.nn.Linear):
            count = 3

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"]

        net = lib.nn.Sequential(Counting(2, 2))
        net[0].count = 7
        net.register_state_dict_pre_hook(lambda m, p, k, log=log: log.append(("pre", p, k)))
        net[0].register_state_dict_post_hook(lambda m, s, p, meta, log=log: log.append(("post", p, sorted(s))))
        net[0].register_load_state_dict_pre_hook(
            lambda m, s, p, *rest, log=log: log.append(("load", type(m).__name__, p, len(rest)))
        )
        net.register_load_state_dict_post_hook(
            lambda m, keys, log=log: log.append(("loaded", keys.missing_keys, keys.unexpected_keys))
        )
        state = net.state_dict()
        net[0].count = 1
        net.load_state_dict(state)
        log.append((net[0].count, list(state)))
        logs.append(log)
    assert logs[0] == logs[1]


def test_copies(torch):
    net = mytorch.nn.Sequential(mytorch.nn.Linear(2, 2), mytorch.nn.Dropout(0.1))
    net[0].register_forward_hook(_double)
    x = mytorch.ones(1, 2)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        twin.eval()
        np.testing.assert_array_equal(twin(x).detach().numpy(), net.eval()(x).detach().numpy())
        assert twin[0].weight is not net[0].weight


def _double(module, args, output):
    return output * 2


def test_states_from_before_batches_were_counted(torch):
    """A state dict without a version may lack num_batches_tracked."""
    for lib in (mytorch, torch):
        norm = lib.nn.BatchNorm1d(2)
        old = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
        assert not norm.load_state_dict(old).missing_keys
        new = norm.state_dict()
        del new["num_batches_tracked"]
        with pytest.raises(RuntimeError, match="Missing key"):
            norm.load_state_dict(new)


def test_settings_of_backends_hold_within_a_context():
    settings = mytorch.backends.cudnn
    names = "enabled", "benchmark", "deterministic", "allow_tf32"

    def values():
        return [getattr(settings, name) for name in names]

    before = values()
    inside = settings.flags(enabled=True, benchmark=True, deterministic=True, allow_tf32=False)(values)
    assert inside() == [True, True, True, False]
    with settings.flags():
        assert values() == [False, False, False, True]  # PyTorch's defaults
    assert values() == before
    assert mytorch.backends.cuda.preferred_linalg_library("magma") == mytorch.backends.cuda.preferred_linalg_library()
    with pytest.raises(RuntimeError, match="Choose from"):
        mytorch.backends.cuda.preferred_linalg_library("another")
    mytorch.backends.cuda.preferred_linalg_library("default")


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 5)])
@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_causal_biases_mask_as_pytorchs(torch, name, queries, keys):
    rng, results = np.random.default_rng(0), []
    q, k, v = (rng.normal(size=(2, n, 6)) for n in (queries, keys, keys))
    for L in (mytorch, torch):
        bias = getattr(importlib.import_module(f"{L.__name__}.nn.attention.bias"), name)(queries, keys)
        results.append(
            np.asarray(L.nn.functional.scaled_dot_product_attention(*map(L.tensor, (q, k, v)), attn_mask=bias))
        )
        with pytest.raises(ValueError, match="CausalBias should not be used with causal=True"):
            L.nn.functional.scaled_dot_product_attention(*map(L.tensor, (q, k, v)), attn_mask=bias, is_causal=True)
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_alibi_is_a_mask_of_attention(rng):
    """Slopes and distances as in Press et al., 2022, compared with a loop over queries and keys, with and without a causal mask."""
    F, (q, k, v) = mytorch.nn.functional, rng.standard_normal((3, 2, 4, 6, 8)).astype("float32")
    slopes, place = 2.0 ** -mytorch.arange(2, 9, 2), mytorch.arange(6)
    bias = slopes[:, None, None] * (place - place[:, None])
    bias = bias.masked_fill(place > place[:, None], -float("inf"))
    found = F.scaled_dot_product_attention(*map(mytorch.from_numpy, (q, k, v)), attn_mask=bias).numpy()
    for b, h, i in np.ndindex(2, 4, 6):
        weights = np.array([np.exp(q[b, h, i] @ k[b, h, j] / 8**0.5 - 4.0 ** -(h + 1) * (i - j)) for j in range(i + 1)])
        np.testing.assert_allclose(found[b, h, i], weights @ v[b, h, : i + 1] / weights.sum(), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="expected a positive softcap, got 0"):
        F.scaled_dot_product_attention(*map(mytorch.from_numpy, (q, k, v)), softcap=0)
