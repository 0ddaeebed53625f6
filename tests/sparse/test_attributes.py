"""Sparse tensors change no attribute of the library, and what has no implementation for a layout raises PyTorch's error."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import mytorch

pytestmark = [pytest.mark.cpu_only, pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta")]
UNCHANGED = """
import sys
import mytorch
{mode}
import mytorch.nn, mytorch.optim, mytorch.storage
places = (mytorch, mytorch.Tensor, type(mytorch.ones(1)._mt_data), mytorch.autograd, mytorch.autograd.gradcheck)
for cls in places[1:3]:
    for name in [*vars(cls)]:
        getattr(cls, name, None)  # methods that are imported on first use
def found():
    return {{(place, k): v for place in places for k, v in vars(place).items()}}
before = found()
mytorch.sparse
x = mytorch.eye(3).to_sparse().requires_grad_()
(x @ mytorch.ones(3, 2)).sum().backward()
for y in (x.detach(), mytorch.eye(3).to_sparse_csr(), mytorch.eye(3).to_sparse_csc()):
    repr(y), y.layout, y.is_sparse, y.to_dense().numpy(), y.select(0, 1), mytorch.zeros_like(y), y + y
    y.clone().copy_(y)
mytorch.autograd.gradcheck(lambda x: x.to_dense(), (mytorch.eye(2).double().to_sparse().requires_grad_(),), masked=True)
layer = mytorch.nn.Embedding(3, 2, sparse=True)
layer(mytorch.tensor([1])).sum().backward()
mytorch.optim.SGD(layer.parameters(), 0.1).step()
after = found()
print([k for k, v in before.items() if after.get(k) is not v])
print([k for k in after.keys() - before.keys() if k[0] is not mytorch])
"""


@pytest.mark.parametrize("mode", ["", "mytorch.install_as_torch()"])
def test_no_attribute_of_the_library_changes(mode):
    done = subprocess.run([sys.executable, "-c", UNCHANGED.format(mode=mode)], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"], done.stdout + done.stderr


def tensors(lib):
    x = lib.tensor([[0.0, 2.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 3.0]])
    return {
        "coo": x.to_sparse(),
        "uncoalesced": lib.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [2.0, 0.5, -1.0], (3, 3)),
        "hybrid": x.to_sparse(1),
        "csr": x.to_sparse_csr(),
        "csc": x.to_sparse_csc(),
    }


ARGUMENTS = [(), (0,), (1, 0), (lambda x: x,), (lambda x: x.to_dense(),), (0, lambda x: x), (2.0,)]
# Names with no effect on the elements, or for other kinds of tensors. new_zeros of PyTorch sometimes ends the process.
SKIPPED = {
    "backward",
    "share_memory_",
    "is_shared",
    "register_hook",
    "data_ptr",
    "type",
    "new",
    "reinforce",
    "to_mkldnn",
}
# Functions whose results do not follow from zeros in place of the missing elements.
OTHER = {"softmax", "log_softmax", "nan_to_num", "div", "divide", "true_divide", "floor_divide"}


def names():
    return sorted(
        name for name in dir(mytorch.Tensor)
        if not name.startswith(("_", "new_")) and name not in SKIPPED and not name.endswith("_")
        and callable(getattr(mytorch.Tensor, name, None))
    )  # fmt: skip


def outcome(x, name, arguments):
    given = [a(x) if callable(a) else a for a in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(x, name)(*given)
        except Exception as error:
            return error


def elements(x):
    x = x.detach()
    return np.asarray((x.to_dense() if "sparse" in str(x.layout) else x).cpu().tolist())


def dense_outcome(x, name, arguments):
    def dense(a):
        given = a(x) if callable(a) else a
        return given.to_dense() if hasattr(given, "to_dense") else given

    return outcome(x.to_dense(), name, [lambda _, a=a: dense(a) for a in arguments])


@pytest.mark.parametrize("layout", ["coo", "uncoalesced", "hybrid", "csr", "csc"])
def test_methods_of_all_layouts_are_right_or_raise_an_error(layout):
    """Compared with PyTorch, or where PyTorch raises an error with the dense tensor. Functions of a sparse tensor are not dense."""
    torch = pytest.importorskip("torch")
    x, compared, refused = tensors(mytorch)[layout], 0, 0
    with torch.sparse.check_sparse_tensor_invariants():
        # Some functions of PyTorch write outside of the memory of compressed tensors.
        theirs = tensors(torch)[layout] if layout not in ("csr", "csc") else None
        for name in names():
            if not hasattr(torch.Tensor, name):
                continue
            for arguments in ARGUMENTS:
                mine = outcome(x, name, arguments)
                if isinstance(mine, Exception):
                    refused += 1
                    # Python numbers in place of tensors raise other errors.
                    assert not isinstance(mine, AttributeError) or "Sparse" not in str(mine), (name, mine)
                    continue
                yours = ValueError() if theirs is None else outcome(theirs, name, arguments)
                same_layout = isinstance(yours, torch.Tensor)
                if isinstance(yours, Exception):
                    yours = None if name in OTHER else dense_outcome(x, name, arguments)
                if isinstance(mine, mytorch.Tensor) and isinstance(yours, (mytorch.Tensor, torch.Tensor)):
                    compared += 1
                    case = f"{name} {arguments}"
                    assert not same_layout or str(mine.layout) == str(yours.layout), case
                    if name not in ("empty_like", "rand_like", "randn_like"):
                        np.testing.assert_allclose(elements(mine), elements(yours), 1e-4, 1e-6, err_msg=case)
    assert compared > 100
    assert refused > 400
