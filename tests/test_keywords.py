"""No public function ignores a keyword."""

import inspect

import pytest

import mytorch
from mytorch import nn, tensor
from mytorch.arrays import config
from mytorch.nn import functional as F
from tests.loops import loop
from tests.public_names import callables

MODULES = {
    "Tensor": mytorch.Tensor, "mytorch": mytorch, "nn.functional": F, "nn.init": mytorch.nn.init, "nn.utils": mytorch.nn.utils,
    **{name: getattr(mytorch, name) for name in "linalg fft special random func autograd serialization cuda".split()},
}  # fmt: skip


def arguments():
    """Yield positional arguments, of which at least one fits almost any function."""

    def x(*shape):
        return mytorch.rand(*(shape or (2, 2)))

    index = tensor([[0, 1], [1, 0]])
    yield ()
    yield from ((x(),), (x(), x()), (x(), x(), x()), (x(), 0), (x(), 1.0), (x(), 0, 0), (x(), 2, 2), (x(), (0, 1)))
    yield from ((x(), 0, index), (x(), 0, tensor([0]), x()), (x(), (2, 2), (2, 1)), ([x(), x()],), ("ij->i", x()))
    yield from ((2,), (3, 3), (0, 1, 3), ((2, 3),), (x() > 0,), (index[0],), (index[0], index[0]))
    yield from ((x(1, 2, 4),), (x(1, 2, 4), 2), (x(1, 2, 4, 4),), (x(1, 2, 4, 4), 2))


def public(module):
    for name in sorted(dir(module)):
        value = getattr(module, name, None)
        if not name.startswith("_") and callable(value) and not isinstance(value, type) and not inspect.ismodule(value):
            yield name, value


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["native", "pytorch"])
@pytest.mark.parametrize("module", MODULES)
def test_unknown_keywords_are_refused(module, mode, monkeypatch):
    monkeypatch.setattr(config, "pytorch_mode", mode == "pytorch")
    ignored = []
    for name, function in public(MODULES[module]):
        for args in arguments():
            try:
                function(*args, unknown_keyword=1)
            except Exception:
                continue
            ignored.append(name)
            break
    assert not ignored


# Callables with `**kwargs`: they pass the keywords to a function, class or module of the user, or store them.
FORWARDED = """always_wrap_policy Join Module Container Identity Function SyncBatchNormFunction Kernels Options temporarily describe LanguageModel Classifier
LazyModuleMixin RandomTransform StackDataset tqdm range checkpoint checkpoint_sequential skip_init
checkpoint_wrapper CheckpointWrapper GraphModule ZeroRedundancyOptimizer global_unstructured config_of model_of from_pretrained read_model generate stream pieces reply""".split()
ABSENT = (
    "eig lstsq matrix_rank solve symeig SymBool SymFloat SymInt DTensor DTensorParameter".split()
)  # these always raise
REFUSED = (
    ValueError,
    NotImplementedError,
)  # the functions below have keywords for another function, and name the unknown one


def constructors():
    """Yields a name and a call of each class and function whose signature accepts any keyword."""
    layer = nn.Linear(2, 2)
    inputs = (
        (),
        (2,),
        ((2, 2),),
        ([],),
        (0.5,),
        ((0.5,), (0.5,)),
        (mytorch.float32,),
        (len,),
        ([len],),
        (0, 3),
        (mytorch.ones(2, 2),),
    )
    inputs += (
        (mytorch.ones(2, 2), 0), (mytorch.ones(2, 2), (4,)), (mytorch.ones(2, 2), (2, 2), (2, 1)), (mytorch.ones(2, 2), 0, 2, 1),
        (mytorch.ones(2, 2), (1, 0)), (mytorch.ones(2, 2), 0, 0), (mytorch.ones(2, 2), 0, 1), (mytorch.ones(2, 2), [1, 1]), (0, 3, (2,)),
        (mytorch.ones(1, 2, 2),), (mytorch.ones(2), (2, 2)), (mytorch.ones(2, dtype=mytorch.complex64),), (mytorch.ones(2, 2), mytorch.int32), ("text",),
        (layer.parameters(), mytorch.optim.SGD, 0.1), (layer, [mytorch.ones(2, 2)], 0, 1),
    )  # fmt: skip
    for module, name, value in callables():
        if inspect.isclass(value) and issubclass(value, mytorch.autograd.Function):
            continue  # programs call `apply`, which has no keywords
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):  # a class of Python
            continue
        if any(p.kind is p.VAR_KEYWORD for p in parameters) and name not in FORWARDED + ABSENT:
            yield f"{module}.{name}", value, inputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["native", "pytorch"])
def test_callables_with_any_keyword_refuse_unknown_ones(mode, monkeypatch, tmp_path):
    """Python itself refuses the keyword for every callable that declares all of its arguments."""
    monkeypatch.setattr(config, "pytorch_mode", mode == "pytorch")
    accepted, not_called = [], []
    mytorch.save({}, tmp_path / "file")
    for name, function, inputs in constructors():
        large_model = name.startswith(
            ("mytorch.vision.models.", "mytorch.models.")
        )  # refused before the weights are created
        called = large_model
        for args in (
            ((),) if large_model else ((tmp_path / "file",), (mytorch.ones(3, 2, 2), tmp_path / "file.png"), *inputs)
        ):
            try:
                large_model or function(*args)
            except Exception:
                continue
            called = True
            try:
                function(*args, unknown_keyword=1)
                accepted.append(name)
            except (TypeError, *REFUSED):
                break
        if not called:
            not_called.append(name)
    assert not accepted
    assert not not_called, "add arguments that fit"


@loop
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.uniform_(low=5, high=6),
        lambda x: x.view(2, 2, order="F"),
        lambda x: x.reshape(2, 2, shape=(4,)),
        lambda x: x.reshape(order="F"),
        lambda x: x.permute(1, 0, axes=(0, 1)),
        lambda x: x.repeat(repetitions=2),
        lambda x: mytorch.logspace(0, 2, 3, bas=2),
        lambda x: mytorch.zeros(2, names=("N",)),
        lambda x: mytorch.full((2,), 1, names=("N",)),
        lambda x: mytorch.zeros(2, layout="sparse"),
        lambda x: mytorch.zeros_like(x, layout="sparse"),
        lambda x: mytorch.arange(3, layout="sparse"),
        lambda x: mytorch.scalar_tensor(1, layout="sparse"),
        lambda x: mytorch.hamming_window(3, layout="sparse"),
        lambda x: mytorch.tril_indices(3, 3, layout="sparse"),
        lambda x: x.new_zeros(2, layout="sparse"),
    ],
)
def test_arguments_that_pytorch_refuses(call):
    with pytest.raises(TypeError):
        call(mytorch.rand(2, 2))


def test_names_of_arguments():
    x = mytorch.arange(4)
    assert x.flip(dims=(0,)).tolist() == x.flip(axis=0).tolist() == x.flip(0).tolist() == [3, 2, 1, 0]
    assert x.tile(dims=(2,)).tolist() == x.tile(reps=2).tolist() == x.tile(2).tolist()
    assert x.view(size=(2, 2)).tolist() == x.reshape(shape=(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert x.view(dtype=mytorch.float64).dtype == mytorch.float64
    assert [p.tolist() for p in x.split(split_size=2)] == [p.tolist() for p in x.split(split_size_or_sections=2)]
    assert mytorch.zeros(size=(2, 3)).shape == (2, 3)
    filled = mytorch.zeros(100).uniform_(**{"from": 5, "to": 6})
    assert filled.min() >= 5
    assert filled.max() <= 6
    assert mytorch.logspace(0, 2, 3, base=2).tolist() == [1, 2, 4]
    assert mytorch.zeros(2, layout=mytorch.strided).tolist() == [0, 0]
