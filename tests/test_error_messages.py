"""Common mistakes, compared with PyTorch: the same kind of error, at least as many facts, no raw NumPy message."""

import copy
import pickle
import re
import traceback

import pytest

import mytorch
from tests.loops import loop

NUMPYS = re.compile(
    r"broadcast together with shapes \(|for axis \d|inhomogeneous|ufunc|boolean index did not|could not broadcast|core dimension"
    r"|_first\(|object array|np\.\w|array element with a sequence"
)
# These messages contain a number that is not a size of the inputs, for example the position of an argument.
NO_SIZE = {
    "bmm of matrices", "expand to fewer axes", "embedding of floats", "einsum of sizes that differ", "sqrt of a list", "float sizes",
    "gradient of another shape", "grad of a constant", "deep copy of a result", "assignment of another shape", "gather of floats",
    "multinomial of too many", "inverse of a singular matrix", "cholesky of no positive matrix", "normal with a negative deviation",
}  # fmt: skip


def load_changed(L, change):
    state = dict(L.nn.Linear(2, 3).state_dict())
    change(state)
    L.nn.Linear(2, 3).load_state_dict(state)


def backward_twice(L):
    y = L.ones(2, requires_grad=True).exp().sum()
    y.backward()
    y.backward()


def in_place_on_a_leaf(L):
    L.ones(2, requires_grad=True).add_(1)


def item_assignment_on_a_leaf(L):
    x = L.ones(2, requires_grad=True)
    x[0] = 3


def saved_value_changed_in_place(L):
    x = L.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def gradient_of_another_shape(L):
    (L.ones(2, requires_grad=True) * 2).backward(L.ones(3))


def grad_of_what_was_not_used(L):
    x, y = L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)
    L.autograd.grad(x.sum(), y)


def grad_of_a_constant(L):
    L.autograd.grad(L.ones(1).sum(), L.ones(1))


def setting_grad_of_another_shape(L):
    x = L.ones(2, requires_grad=True)
    x.grad = L.ones(3)


def requires_grad_off_for_a_result(L):
    y = L.ones(2, requires_grad=True) * 2
    y.requires_grad = False


def deep_copy_of_a_result(L):
    copy.deepcopy(L.ones(2, requires_grad=True) * 2)


def retain_grad_without_grad(L):
    L.ones(2).retain_grad()


def assignment_of_another_shape(L):
    x = L.zeros(3)
    x[:2] = L.ones(3)


def a_module_without_super___init(L):
    class M(L.nn.Module):
        def __init__(self):
            self.a = L.nn.Linear(1, 1)

    M()


def a_module_without_forward(L):
    class M(L.nn.Module):
        pass

    M()(1)


def a_tensor_where_a_parameter_stands(L):
    l = L.nn.Linear(2, 2)
    l.weight = L.ones(2, 2)


def register_a_parameter_that_is_a_tensor(L):
    L.nn.Module().register_parameter("a", L.ones(2))


def register_a_module_with_a_dot(L):
    L.nn.Module().add_module("a.b", L.nn.Linear(1, 1))


def a_list_in_sequential(L):
    L.nn.Sequential([L.nn.Linear(1, 1)])


def sequential_out_of_range(L):
    L.nn.Sequential(L.nn.Linear(1, 1))[3]


def submodule_that_is_not_there(L):
    L.nn.Linear(1, 1).get_submodule("a")


def module_to_an_integer_dtype(L):
    L.nn.Linear(1, 1).to(L.int64)


def a_parameter_in_two_groups(L):
    p = L.ones(2, requires_grad=True)
    L.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


def optimizer_state_of_another_model(L):
    p = L.ones(2, requires_grad=True)
    q = L.ones(2, requires_grad=True)
    L.optim.SGD([p], lr=0.1).load_state_dict(L.optim.SGD([p, q], lr=0.1).state_dict())


def unknown_option_of_an_optimizer(L):
    L.optim.SGD([L.ones(2, requires_grad=True)], lr=0.1, momentm=0.9)


def a_scheduler_of_no_optimizer(L):
    L.optim.lr_scheduler.StepLR(L.nn.Linear(1, 1), 2)


MISTAKES = {
    # values
    "an int out of range": lambda L: L.tensor([2**70]),
    # shapes
    "add of shapes that do not broadcast": lambda L: L.ones(2, 3) + L.ones(4),
    "product of matrices that do not fit": lambda L: L.ones(2, 3) @ L.ones(2, 3),
    "mm of vectors": lambda L: L.mm(L.ones(2), L.ones(2)),
    "bmm of matrices": lambda L: L.bmm(L.ones(2, 3), L.ones(3, 2)),
    "bmm of batches that differ": lambda L: L.bmm(L.ones(2, 3, 4), L.ones(3, 4, 5)),
    "dot of matrices": lambda L: L.dot(L.ones(2, 2), L.ones(2, 2)),
    "dot of other lengths": lambda L: L.dot(L.ones(2), L.ones(3)),
    "batched product that does not broadcast": lambda L: L.ones(2, 3, 4) @ L.ones(3, 4, 5),
    "linear layer, wrong features": lambda L: L.nn.Linear(3, 4)(L.ones(2, 5)),
    "view of another size": lambda L: L.ones(6).view(4, 2),
    "reshape of another size": lambda L: L.ones(2, 3).reshape(4),
    "reshape with two unknowns": lambda L: L.ones(6).reshape(-1, -1),
    "view of a transposed": lambda L: L.ones(2, 3).t().view(6),
    "cat of other shapes": lambda L: L.cat([L.ones(2, 3), L.ones(2, 4)]),
    "cat of nothing": lambda L: L.cat([]),
    "stack of other shapes": lambda L: L.stack([L.ones(2), L.ones(3)]),
    "cat of other ranks": lambda L: L.cat([L.ones(2, 3), L.ones(2)]),
    "expand of a real axis": lambda L: L.ones(2, 3).expand(4, 3),
    "expand to fewer axes": lambda L: L.ones(2, 3).expand(3),
    "permute of wrong rank": lambda L: L.ones(2, 3).permute(0, 1, 2),
    "permute of repeated axes": lambda L: L.ones(2, 3).permute(0, 0),
    "transpose beyond the rank": lambda L: L.ones(2, 3).transpose(0, 2),
    "squeeze beyond the rank": lambda L: L.ones(2, 3).squeeze(5),
    "sum over an axis beyond the rank": lambda L: L.ones(2, 3).sum(2),
    "softmax beyond the rank": lambda L: L.softmax(L.ones(2, 3), 2),
    "sum over an axis twice": lambda L: L.ones(2, 3).sum((0, 0)),
    "split in sizes that do not add up": lambda L: L.ones(5).split([2, 2]),
    "chunk in no parts": lambda L: L.ones(5).chunk(0),
    "unflatten of another size": lambda L: L.ones(6).unflatten(0, (4, 2)),
    "conv2d with wrong channels": lambda L: L.nn.Conv2d(3, 4, 3)(L.ones(1, 1, 8, 8)),
    "conv2d with wrong rank": lambda L: L.nn.Conv2d(3, 4, 3)(L.ones(8, 8)),
    "conv2d, kernel beyond the picture": lambda L: L.nn.Conv2d(1, 1, 5)(L.ones(1, 1, 3, 3)),
    "conv2d, groups that do not divide": lambda L: L.nn.Conv2d(3, 4, 3, groups=2),
    "max pool beyond the picture": lambda L: L.nn.MaxPool2d(4)(L.ones(1, 1, 2, 2)),
    "layer norm of another width": lambda L: L.nn.LayerNorm(4)(L.ones(2, 3)),
    "batch norm of other channels": lambda L: L.nn.BatchNorm1d(4)(L.ones(2, 3)),
    "batch norm 2d of a matrix": lambda L: L.nn.BatchNorm2d(3)(L.ones(2, 3)),
    "batch norm of one value in training": lambda L: L.nn.BatchNorm1d(3)(L.ones(1, 3)),
    "group norm that does not divide": lambda L: L.nn.GroupNorm(2, 3),
    "lstm of another width": lambda L: L.nn.LSTM(3, 4)(L.ones(2, 1, 5)),
    "attention with heads that do not divide": lambda L: L.nn.MultiheadAttention(5, 2),
    "mse of shapes that do not fit": lambda L: L.nn.functional.mse_loss(L.ones(2, 3), L.ones(4)),
    "cross entropy of other batches": lambda L: L.nn.functional.cross_entropy(L.ones(2, 3), L.zeros(3, dtype=L.long)),
    "cross entropy, class out of range": lambda L: L.nn.functional.cross_entropy(L.ones(2, 3), L.tensor([0, 3])),
    "bce of other shapes": lambda L: L.nn.functional.binary_cross_entropy(L.ones(2), L.ones(3)),
    "bce outside [0, 1]": lambda L: L.nn.functional.binary_cross_entropy(L.full((2,), 2.0), L.ones(2)),
    "embedding out of range": lambda L: L.nn.Embedding(3, 2)(L.tensor([3])),
    "embedding of floats": lambda L: L.nn.Embedding(3, 2)(L.tensor([0.5])),
    "einsum with the wrong rank": lambda L: L.einsum("ij,jk->ik", L.ones(2, 3), L.ones(3)),
    "einsum of sizes that differ": lambda L: L.einsum("ij,jk->ik", L.ones(2, 3), L.ones(4, 2)),
    "ragged list": lambda L: L.tensor([[1, 2], [3]]),
    "negative size": lambda L: L.zeros(-1, 2),
    # dtypes, types
    "a tensor of a string": lambda L: L.tensor("abc"),
    "a tensor of None": lambda L: L.tensor(None),
    "sqrt of a list": lambda L: L.sqrt([1.0]),
    "adding a string": lambda L: L.ones(2) + "a",
    "adding a list": lambda L: L.ones(2) + [1, 2],
    "adding None": lambda L: L.ones(2) + None,
    "mean of integers": lambda L: L.tensor([1, 2]).mean(),
    "gradient for integers": lambda L: L.tensor([1, 2], requires_grad=True),
    "requires_grad_ of integers": lambda L: L.tensor([1, 2]).requires_grad_(),
    "bitwise and of floats": lambda L: L.ones(2) & L.ones(2),
    "subtraction of bools": lambda L: L.tensor([True]) - L.tensor([True]),
    "minus a bool": lambda L: -L.tensor([True]),
    "in place, float into int": lambda L: L.tensor([1, 2]).add_(0.5),
    "unknown dtype": lambda L: L.zeros(2, dtype="float33"),
    "unknown device": lambda L: L.zeros(2, device="gpu"),
    "bad device index": lambda L: L.zeros(2, device="cpu:x"),
    "float sizes": lambda L: L.zeros(2.5),
    "item of many": lambda L: L.ones(2).item(),
    "truth of many": lambda L: bool(L.ones(2)),
    "float of many": lambda L: float(L.ones(2)),
    "length of a scalar": lambda L: len(L.tensor(1.0)),
    "iterating a scalar": lambda L: list(L.tensor(1.0)),
    "numpy of what requires grad": lambda L: L.ones(2, requires_grad=True).numpy(),
    # names, arguments
    "an unknown attribute of a tensor": lambda L: L.ones(2).siez,
    "an unknown function": lambda L: L.softmaxx,
    "an unknown layer": lambda L: L.nn.Liner,
    "an unknown attribute of a module": lambda L: L.nn.Linear(2, 2).wieght,
    "an unknown keyword of an op": lambda L: L.ones(2).sum(dims=0),
    "an unknown keyword of a layer": lambda L: L.nn.Linear(2, 2, baias=True),
    "too many arguments": lambda L: L.exp(L.ones(2), 1, 2),
    "no argument": lambda L: L.exp(),
    "a layer without its sizes": lambda L: L.nn.Linear(2),
    "a layer called without input": lambda L: L.nn.Linear(2, 2)(),
    "a layer called with too much": lambda L: L.nn.Linear(2, 2)(L.ones(2), L.ones(2)),
    "an unknown reduction": lambda L: L.nn.functional.mse_loss(L.ones(2), L.ones(2), reduction="avg"),
    "an unknown padding mode": lambda L: L.nn.functional.pad(L.ones(2), (1, 1), mode="mirror"),
    "a dropout probability above one": lambda L: L.nn.Dropout(1.5),
    # autograd
    "backward of many": lambda L: (L.ones(2, requires_grad=True) * 2).backward(),
    "backward without grad": lambda L: L.ones(1).sum().backward(),
    "backward twice": backward_twice,
    "in place on a leaf": in_place_on_a_leaf,
    "item assignment on a leaf": item_assignment_on_a_leaf,
    "saved value changed in place": saved_value_changed_in_place,
    "gradient of another shape": gradient_of_another_shape,
    "grad of what was not used": grad_of_what_was_not_used,
    "grad of a constant": grad_of_a_constant,
    "setting grad of another shape": setting_grad_of_another_shape,
    "requires_grad off for a result": requires_grad_off_for_a_result,
    "deep copy of a result": deep_copy_of_a_result,
    "retain_grad without grad": retain_grad_without_grad,
    # indexing
    "index out of range": lambda L: L.ones(3)[3],
    "index tensor out of range": lambda L: L.ones(3)[L.tensor([0, 3])],
    "too many indices": lambda L: L.ones(3)[0, 0],
    "float index": lambda L: L.ones(3)[1.0],
    "string index": lambda L: L.ones(3)["a"],
    "float tensor index": lambda L: L.ones(3)[L.tensor([0.0])],
    "mask of another shape": lambda L: L.ones(3)[L.tensor([True, False])],
    "negative step": lambda L: L.ones(3)[::-1],
    "index tensors that do not broadcast": lambda L: L.ones(3, 3)[L.tensor([0, 1]), L.tensor([0, 1, 2])],
    "assignment of another shape": assignment_of_another_shape,
    "gather of another rank": lambda L: L.ones(2, 3).gather(1, L.tensor([0])),
    "gather out of range": lambda L: L.ones(2, 3).gather(1, L.tensor([[3]])),
    "gather of floats": lambda L: L.ones(2, 3).gather(1, L.ones(1, 1)),
    "scatter out of range": lambda L: L.zeros(2, 3).scatter(1, L.tensor([[5]]), 1.0),
    "index_select of a matrix": lambda L: L.ones(2, 3).index_select(0, L.tensor([[0]])),
    "index_select out of range": lambda L: L.ones(2, 3).index_select(0, L.tensor([2])),
    "narrow beyond the end": lambda L: L.ones(3).narrow(0, 2, 5),
    "topk of too many": lambda L: L.ones(3).topk(4),
    "select out of range": lambda L: L.ones(2, 3).select(0, 2),
    "take out of range": lambda L: L.ones(3).take(L.tensor([7])),
    "one_hot of too few classes": lambda L: L.nn.functional.one_hot(L.tensor([3]), 2),
    "max of nothing": lambda L: L.zeros(0).max(),
    "argmax of nothing": lambda L: L.zeros(0).argmax(),
    "multinomial of negatives": lambda L: L.multinomial(L.tensor([-1.0, 2.0]), 1),
    "multinomial of too many": lambda L: L.multinomial(L.ones(2), 3),
    "randint of nothing": lambda L: L.randint(3, 3, (2,)),
    "arange with step zero": lambda L: L.arange(0, 3, 0),
    "arange the wrong way": lambda L: L.arange(3, 0),
    "linspace without steps": lambda L: L.linspace(0, 1, -1),
    "inverse of a singular matrix": lambda L: L.linalg.inv(L.zeros(2, 2)),
    "inverse of no square": lambda L: L.linalg.inv(L.ones(2, 3)),
    "cholesky of no positive matrix": lambda L: L.linalg.cholesky(-L.eye(2)),
    "solve of sizes that do not fit": lambda L: L.linalg.solve(L.eye(2), L.ones(3)),
    "tril of a vector": lambda L: L.tril(L.ones(3)),
    "normal with a negative deviation": lambda L: L.normal(0.0, -1.0, (2,)),
    "clamp without bounds": lambda L: L.ones(2).clamp(),
    # modules, state dicts
    "state dict with a missing key": lambda L: load_changed(L, lambda d: d.pop("bias")),
    "state dict with another key": lambda L: load_changed(L, lambda d: d.update(bais=d["bias"])),
    "state dict of another shape": lambda L: load_changed(L, lambda d: d.update(weight=L.ones(4, 4))),
    "state dict that is a list": lambda L: L.nn.Linear(2, 3).load_state_dict([1]),
    "a module without super().__init__": a_module_without_super___init,
    "a module without forward": a_module_without_forward,
    "a tensor where a parameter stands": a_tensor_where_a_parameter_stands,
    "register a parameter that is a tensor": register_a_parameter_that_is_a_tensor,
    "register a module with a dot": register_a_module_with_a_dot,
    "a list in Sequential": a_list_in_sequential,
    "Sequential out of range": sequential_out_of_range,
    "submodule that is not there": submodule_that_is_not_there,
    "module to an integer dtype": module_to_an_integer_dtype,
    # optimizers
    "optimizer without parameters": lambda L: L.optim.SGD([], lr=0.1),
    "optimizer of one tensor": lambda L: L.optim.SGD(L.ones(2, requires_grad=True), lr=0.1),
    "optimizer of numbers": lambda L: L.optim.SGD([1.0], lr=0.1),
    "optimizer of a result": lambda L: L.optim.SGD([L.ones(2, requires_grad=True) * 2], lr=0.1),
    "negative learning rate": lambda L: L.optim.SGD([L.ones(2, requires_grad=True)], lr=-1),
    "betas out of range": lambda L: L.optim.Adam([L.ones(2, requires_grad=True)], betas=(1.0, 0.9)),
    "nesterov without momentum": lambda L: L.optim.SGD([L.ones(2, requires_grad=True)], lr=1, nesterov=True),
    "a parameter in two groups": a_parameter_in_two_groups,
    "optimizer state of another model": optimizer_state_of_another_model,
    "unknown option of an optimizer": unknown_option_of_an_optimizer,
    "a scheduler of no optimizer": a_scheduler_of_no_optimizer,
    # data
    "tensor data of other lengths": lambda L: L.utils.data.TensorDataset(L.ones(2), L.ones(3)),
    "batch size zero": lambda L: L.utils.data.DataLoader([1], batch_size=0),
    "loader with shuffle and sampler": lambda L: L.utils.data.DataLoader(
        [1], shuffle=True, sampler=L.utils.data.SequentialSampler([1])
    ),
    "negative workers": lambda L: L.utils.data.DataLoader([1], num_workers=-1),
    "prefetch without workers": lambda L: L.utils.data.DataLoader([1], prefetch_factor=2),
    "batch of other shapes": lambda L: next(iter(L.utils.data.DataLoader([L.ones(2), L.ones(3)], batch_size=2))),
    "batch of objects": lambda L: next(iter(L.utils.data.DataLoader([object()], batch_size=1))),
    "split that does not add up": lambda L: L.utils.data.random_split([1, 2, 3], [1, 1]),
    "iterating a dataset without items": lambda L: L.utils.data.Dataset()[0],
    "loading a file that is not there": lambda L: L.load("/nowhere/file.pt"),
}


def error_of(mistake, L):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is compared
        mistake(L)
    return caught.value


def sizes_in(text):
    """Returns the numbers in a message, except numbers inside words such as float32 and 0-d."""
    return set(re.findall(r"\d+(?:\.\d+)?", re.sub(r"0-d\w*|\w*(float|int)\d+", "", text)))


@loop
@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_raise_the_same_errors_as_pytorch(name, torch):
    theirs, ours = (error_of(MISTAKES[name], L) for L in (torch, mytorch))
    expected = next(kind for kind in type(theirs).__mro__ if kind.__module__ == "builtins")
    assert isinstance(ours, expected), (theirs, ours)
    assert not NUMPYS.search(str(ours)), ours
    assert name in NO_SIZE or sizes_in(str(theirs)) <= sizes_in(str(ours)), (theirs, ours)


def test_an_unknown_name_looks_like_an_attribute_error_and_can_be_pickled():
    error = error_of(lambda L: L.concatt, mytorch)
    assert traceback.format_exception_only(error)[-1].startswith("AttributeError: module 'mytorch' has no attribute")
    again = pickle.loads(pickle.dumps(error))  # as a worker process sends it
    assert (type(again), str(again)) == (AttributeError, str(error))


def test_a_module_without_super_init_says_what_is_missing():
    class Net(mytorch.nn.Module):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"Begin Net.__init__ with super\(\).__init__\(\)"):
        Net()(mytorch.ones(2))


class OfThisFile:
    pass


@pytest.mark.cpu_only
def test_messages_name_the_function_that_was_called(tmp_path):
    """`save` adds advice to the error of pickle and keeps its class; functions that send objects do not speak of files."""
    with pytest.raises((pickle.PicklingError, AttributeError), match=r"^save: Can't .*Save a state dict"):
        mytorch.save(lambda x: x, tmp_path / "x.pt")
    dist = mytorch.distributed
    dist.init_process_group()
    try:
        for name, call in {
            "all_gather_object": lambda: dist.all_gather_object([None], OfThisFile()),
            "gather_object": lambda: dist.gather_object(OfThisFile(), [None]),
            "broadcast_object_list": lambda: dist.broadcast_object_list([OfThisFile()]),
            "scatter_object_list": lambda: dist.scatter_object_list([None], [OfThisFile()]),
        }.items():
            with pytest.raises(TypeError, match=rf"^{name}: .* is OfThisFile, which can't be sent"):
                call()
    finally:
        dist.destroy_process_group()


def test_a_module_attribute_of_another_class_is_named_by_its_package():
    layer = mytorch.nn.Linear(1, 1)
    package = mytorch.Tensor.__module__.partition(".")[0]  # "torch" if an earlier test switched to PyTorch mode
    with pytest.raises(
        TypeError, match=rf"cannot assign '{package}\..*Tensor' as parameter 'weight' \({package}\.nn\."
    ):
        layer.weight = mytorch.ones(1)


def test_a_forward_function_without_xp_is_refused():
    from mytorch.ops.dispatch.op import op

    with pytest.raises(TypeError, match=r"forgetful: expected .* got \(input\)\. Put xp first"):

        @op(dtype="float")
        def forgetful(input):
            return input


@pytest.mark.cpu_only
def test_a_device_that_is_missing_or_unknown():
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda, meta") as caught:
        mytorch.ones(1, device="gpu")
    assert not {"mps", "xpu"} & set(re.findall(r"\w+", str(caught.value)))
    if not mytorch.cuda.is_available():
        with pytest.raises(AssertionError, match="can't be used") as caught:  # as in a PyTorch without CUDA
            mytorch.ones(1, device="cuda")
        assert isinstance(caught.value, RuntimeError)


def test_an_unexpected_keyword_names_the_one_that_was_meant():
    for call in (lambda: mytorch.sum(mytorch.ones(2), dims=0), lambda: mytorch.softmax(mytorch.ones(2), dims=0)):
        with pytest.raises(
            TypeError, match=r"^\w+\(\) got an unexpected keyword argument 'dims'\. Did you mean 'dim'\?$"
        ):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'$"):
        mytorch.sum(mytorch.ones(2), zzz=0)
