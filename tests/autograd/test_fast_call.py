"""The fast path of ops (ops/dispatch/fast_call.py) has the same results, gradients and errors as `Op.dispatch`."""

import numpy as np
import pytest

import mytorch
import mytorch.nn  # defines layer_norm
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop

SINGLE_OUTPUT = {name: record for name, record in RECORDS.items() if not record.outputs}


def both(record, tensors, **attrs):
    """Returns a record's results and gradients, computed by its fast path and by `dispatch`."""
    found = []
    for call in (record.fast_call, record.dispatch):
        leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
        out = call(*leaves, **attrs)
        out.backward(mytorch.arange(1.0, 1.0 + out.numel()).reshape(out.shape))
        found.append((out.detach().numpy(), out.grad_fn, [t.grad for t in leaves]))
    return found


@loop
@pytest.mark.parametrize("wants", [(True, True, True), (True, False, False), (False, True, True), (False, False, True)])
@pytest.mark.parametrize("rows", [3, 101])  # the second one takes a compiled kernel, where Numba is
def test_fast_path_and_dispatch_agree_for_each_set_of_inputs_that_require_grad(wants, rows):
    record = RECORDS["layer_norm"]
    tensors = [mytorch.randn(*s, requires_grad=w) for s, w in zip([(rows, 4), (4,), (4,)], wants, strict=True)]
    (out, node, grads), (out2, node2, grads2) = both(record, tensors, width=4)
    np.testing.assert_array_equal(out, out2)
    assert node.plan is node2.plan
    assert [p is None for p in node.parents] == [p is None for p in node2.parents]
    for g, g2 in zip(grads, grads2, strict=True):
        np.testing.assert_array_equal(g, g2) if g is not None else None
        assert (g is None) == (g2 is None)


@pytest.mark.parametrize("wants", [(False, False), (True, False), (False, True), (True, True)])
def test_fast_path_and_dispatch_agree_for_any_number_of_inputs(wants):
    for name, shapes in (("cat", [(3, 4), (3, 2)]), ("stack", [(3, 2), (3, 2)])):
        tensors = [mytorch.randn(*s, requires_grad=w) for s, w in zip(shapes, wants, strict=True)]
        results = [call(*tensors, dim=1) for call in (RECORDS[name].fast_call, RECORDS[name].dispatch)]
        upstream = mytorch.randn(*results[0].shape)
        wanted = [t for t in tensors if t.requires_grad]
        grads = [mytorch.autograd.grad(out, wanted, upstream) if wanted else () for out in results]
        for a, b in zip((results[0].detach(), *grads[0]), (results[1].detach(), *grads[1]), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_views_share_memory_versions_and_their_base():
    x = mytorch.zeros(2, 3)
    for view in (x.reshape(3, 2), x.T, x[0], x.view(-1), x.expand(4, 2, 3), x.T[1:].unsqueeze(0)):
        assert view._base is x
        assert view._mt_data._version_counter is x._mt_data._version_counter
    assert x.T.reshape(6)._base is None  # a copy


def test_saved_arrays_are_watched_for_changes():
    for function in (lambda x: x.exp(), lambda x: x.sin(), lambda x: x * x, lambda x: mytorch.softmax(x, 0)):
        x = mytorch.rand(4, requires_grad=True) * 1.0
        y = function(x)
        (y if y.grad_fn.plan.out else x).detach().add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_fast_path_accepts_the_arguments_of_dispatch():
    x = mytorch.rand(3, 4)
    softmax = RECORDS["softmax"].fast_call
    expected = softmax(x, dim=1).numpy()
    for found in (softmax(x, 1), softmax(input=x, dim=1), softmax(x, axis=1), softmax(x, 1, fused=False)):
        np.testing.assert_array_equal(found.numpy(), expected)
    for args, kwargs in [((x,), {}), ((x, 1, None, None, False, 3), {}), ((x, 1), {"dims": 1}), ((x, 1), {"dim": 1})]:
        with pytest.raises(TypeError, match="softmax"):
            softmax(*args, **kwargs)


def test_a_renamed_op_records_nodes_under_its_name():
    renamed = RECORDS["exp"].named("Another")
    out = renamed.fast_call(mytorch.ones(2, requires_grad=True))
    assert out.grad_fn.label == "AnotherBackward"
    assert mytorch.ones(2, requires_grad=True).exp().grad_fn.label == "ExpBackward"


@loop
@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float32", "bfloat16", "complex64"])
def test_fast_path_and_dispatch_agree_on_dtypes_and_numbers(dtype):
    x = mytorch.tensor([[1, 2, 5, 0], [3, 1, 0, 2]]).to(getattr(mytorch, dtype))
    others = (0, 3, 100, -1, 2.5, True, x, x[0], mytorch.tensor(2.0), mytorch.tensor(2))
    binary = [
        r for r in SINGLE_OUTPUT.values() if r.inputs == ("input", "other") and not r.attrs and r.name != "matmul"
    ]
    assert len(binary) > 30
    for record in binary:
        for other in others:
            found = []
            for call in (record.fast_call, record.dispatch):
                try:
                    out = call(x, other)
                except Exception as error:
                    found.append((type(error), str(error)))
                else:
                    found.append((out.dtype, out.tolist()))
            assert str(found[0]) == str(found[1])
