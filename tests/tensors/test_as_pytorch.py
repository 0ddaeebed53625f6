"""Details that the tests of PyTorch check: errors, warnings, 0-d and empty tensors."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

pytestmark = pytest.mark.cpu_only  # PyTorch's results on a CPU


def outcome(call, lib):
    """Returns the values and dtypes of a call, or "refused" for an error, and True if it warns."""
    lib.manual_seed(3)
    lib.set_warn_always(True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = call(lib)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return next(c.__name__ for c in (TypeError, IndexError, RuntimeError, ValueError) if isinstance(error, c))
        finally:
            lib.set_warn_always(False)
    parts = found if isinstance(found, (tuple, list)) else (found,)
    values = [
        (np.asarray(p.tolist()).tolist(), str(p.dtype).rpartition(".")[2]) if hasattr(p, "tolist") else p for p in parts
    ]
    return values, any(w.category is UserWarning for w in seen)


def same(call, torch):
    mine, theirs = outcome(call, mytorch), outcome(call, torch)
    if isinstance(theirs, str) or isinstance(mine, str):
        assert mine == theirs
        return
    assert mine[1] == theirs[1], "warnings"
    for a, b in zip(mine[0], theirs[0], strict=True):
        if not isinstance(b, tuple):
            assert a == b
            continue
        (a, kind_a), (b, kind_b) = a, b
        assert kind_a == kind_b
        np.testing.assert_allclose(a, b, rtol=1e-6, equal_nan=True)


def shared(L):
    return L.ones(1).expand(6)


def index(L):
    return L.tensor([2, 1, 0])


def changed_indices(L, pool):
    """Max pooling whose indices are changed in place before backward."""
    x = L.ones(1, 1, 4, 4, requires_grad=True)
    out, indices = pool(x, 2, return_indices=True)
    indices.add_(1)
    out.sum().backward()
    return x.grad


def gradient(L, function, shape):
    x = L.zeros(shape, requires_grad=True)
    function(x).sum().backward()
    return x.grad


CALLS = {
    "cumsum_bool": lambda L: (L.ones(3, dtype=L.bool)).cumsum_(0),
    "cumsum_dtype": lambda L: L.ones(3).cumsum_(0, dtype=L.float64),
    "cumprod_int": lambda L: (L.arange(1, 5, dtype=L.int32)).cumprod_(0),
    "cumprod_same": lambda L: L.full((3,), 2.0).cumprod_(0, dtype=L.float32),
    **{
        f"strides_{name}_{number}": lambda L, name=name, number=number: getattr(L, name)(number, L.ones(2, 3, 4).permute(2, 0, 1)).stride()
        for name, number in itertools.product(("pow", "float_power"), (2, 2.5))
    },
    **{
        f"meta_{name}": lambda L, name=name, args=args: (tuple(getattr(L.empty(2, 3, device="meta"), name)(*args).shape), name)
        for name, args in {
            "bernoulli": (), "bernoulli_": (0.5,), "geometric_": (0.3,), "cauchy_": (), "log_normal_": (), "normal_": (), "uniform_": (),
            "exponential_": (), "random_": (5,),
        }.items()
    },
    **{
        f"derivative_{n}_of_square": lambda L, n=n: functools.reduce(
            lambda f, _: L.func.grad(f), range(n), lambda x: x.square()
        )(L.tensor(1.5))
        for n in range(1, 5)
    },
    # products: numbers first, as older programs have them; dtypes
    "addmm_beta_first": lambda L: L.addmm(2, L.ones(2, 2), L.full((2, 3), 2.0), L.ones(3, 2)),
    "addbmm_factors_around": lambda L: L.addbmm(2, L.ones(2, 2), 0.5, L.ones(3, 2, 2), L.ones(3, 2, 2)),
    "addbmm_factors_first": lambda L: L.ones(2, 2).addbmm_(0.5, 3, L.ones(3, 2, 2), L.ones(3, 2, 2)),
    "baddbmm_mixed": lambda L: L.baddbmm(L.ones(1, 2, 2).double(), L.ones(1, 2, 2), L.ones(1, 2, 2)),
    "multi_dot_out": lambda L: L.linalg.multi_dot([L.ones(2), L.ones(2)], out=L.empty(0).double()),
    "householder_mixed": lambda L: L.linalg.householder_product(L.ones(3, 2), L.ones(2).double()),
    "nuclear_norm_of_a_vector": lambda L: L.norm(L.ones(2), "nuc", (0, 1)),
    "nuclear_norm_over_nothing": lambda L: L.norm(L.ones(2), "nuc", ()),
    "vander_0": lambda L: L.vander(L.tensor([1, 2]), 0),
    "vander_1_bool": lambda L: L.vander(L.tensor([True, False]), 1),
    "matrix_rank_is_gone": lambda L: L.matrix_rank(L.ones(2, 2)),
    "lu_of_tall_singular": lambda L: L.linalg.lu(L.ones(4, 2)),
    # dtypes that must agree
    "lerp_mixed": lambda L: L.lerp(L.ones(2), L.ones(2).double(), 0.5),
    "lerp_mixed_weight": lambda L: L.lerp(L.ones(2), L.ones(2), L.ones(2).double()),
    "write_at_indices_mixed": lambda L: L.ones(2).__setitem__(L.tensor([0, 1]), L.ones(2).double()),
    "write_at_one_index_mixed": lambda L: L.ones(2).__setitem__([0], L.tensor(2).double()),
    "write_at_mask_mixed": lambda L: L.ones(2).__setitem__(L.tensor([True, True]), L.ones(2).double()),
    "write_one_at_mask_mixed": lambda L: (lambda x: x.__setitem__(L.tensor([True, False]), L.tensor(3).double()) or x)(L.ones(2)),
    "write_slice_mixed": lambda L: (lambda x: x.__setitem__(slice(1), L.full((1,), 3.0).double()) or x)(L.ones(2)),
    "to_complex_of_ints": lambda L: L.int64.to_complex(),
    "isclose_tolerance_with_grad": lambda L: L.isclose(L.ones(1), L.ones(1), L.tensor(1.0), L.tensor(1.0, requires_grad=True)),
    # statistics
    "histogram_of_matrix_bins": lambda L: L.histogram(L.ones(2), L.ones(2, 2)),
    "histogram_of_nan": lambda L: L.histogram(L.tensor([math.nan, 1.0]), 2),
    "unique_nan": lambda L: L.unique(L.tensor([math.nan, 1.0, math.nan, 1.0])),
    "trapezoid_complex_dx": lambda L: L.cumulative_trapezoid(L.ones(3), dx=1j),
    "trapezoid_x_and_dx": lambda L: L.trapezoid(L.ones(3), x=L.ones(3), dx=2),
    "batch_norm_update_stats": lambda L: (lambda m, v: (*L.batch_norm_update_stats(L.arange(8.0).view(2, 2, 2), m, v, 0.1), m, v))(
        L.zeros(2), L.ones(2)
    ),
    "batch_norm_update_stats_of_nothing": lambda L: L.batch_norm_update_stats(L.ones(0, 1), None, None, 0.1),
    "gamma_of_a_number": lambda L: L.distributions.Gamma(1, 1).log_prob(1),
    "beta_of_small_numbers": lambda L: L.distributions.Beta(L.full((3,), 0.01), L.full((3,), 0.01)).sample((4,)),
    # layers
    "module_to_copy": lambda L: L.nn.Linear(2, 2).to("cpu", copy=True),
    "autocast_device": lambda L: L.autocast(L.device("cpu")),
    "grid_sample_nearest_grid": lambda L: gradient(
        L, lambda g: L.nn.functional.grid_sample(L.ones(1, 1, 2, 2), g, mode="nearest", align_corners=False), (1, 2, 2, 2)
    ),
    "checkpoint_of_nothing": lambda L: L.utils.checkpoint.checkpoint(
        lambda a, b: a, L.ones(2), L.ones(2, requires_grad=True), use_reentrant=True
    ).sum().backward(),
    "max_pool_changed_indices": lambda L: changed_indices(L, L.nn.functional.max_pool2d),
    "adaptive_max_pool_changed_indices": lambda L: changed_indices(L, L.nn.functional.adaptive_max_pool2d),
    "embedding_bag_mixed": lambda L: L.nn.functional.embedding_bag(
        index(L), L.ones(4, 2), L.tensor([0]), mode="sum", per_sample_weights=L.ones(3).double()
    ),
    "logsigmoid_out": lambda L: L.nn.functional.logsigmoid(L.ones(2), out=L.empty(0)),
    "softplus_out": lambda L: L.nn.functional.softplus(L.ones(2), out=L.empty(0)),
    "softshrink_out_shared": lambda L: L.nn.functional.softshrink(L.ones(6), out=shared(L)),
    # 0-d and empty indices
    "scatter_empty_index": lambda L: L.ones(2, 2).scatter_(0, L.tensor([], dtype=L.int64), L.zeros(2, 2)),
    "scatter_number_empty_index": lambda L: L.ones(2, 2).scatter(0, L.tensor([], dtype=L.int64), 3.0),
    "scatter_reduce_empty_index": lambda L: L.ones(2, 2).scatter_reduce(0, L.tensor([], dtype=L.int64), L.zeros(2, 2), "sum"),
    "gather_0d_index": lambda L: L.arange(3.0).gather(0, L.tensor(2)),
    "index_copy_0d_source": lambda L: L.zeros(1).index_copy_(0, L.tensor(0), L.tensor(4.0)),
    "index_copy_0d_self": lambda L: L.zeros(()).index_copy_(0, L.tensor([0]), L.tensor([4.0])),
    # memory that is shared
    "fill_shared": lambda L: shared(L).fill_(2.0),
    "index_fill_shared": lambda L: shared(L).index_fill_(0, L.arange(6), 2.0),
    "masked_fill_shared": lambda L: shared(L).masked_fill_(L.ones(6, dtype=L.bool), 2.0),
    "index_put_shared": lambda L: shared(L).index_put_((index(L),), L.ones(3)),
    "index_copy_shared": lambda L: shared(L).index_copy_(0, index(L), L.ones(3)),
    "put_shared": lambda L: shared(L).put_(index(L), L.ones(3)),
    "add_shared": lambda L: shared(L).add_(1.0),
    "exp_out_shared": lambda L: L.exp(L.ones(6), out=shared(L)),
    "linspace_out_shared": lambda L: L.linspace(0, 1, 6, out=shared(L)),
    "exp_out_partly": lambda L: (lambda x: L.exp(x[:3], out=x[1:4]))(L.ones(6)),
    "exp_out_same": lambda L: (lambda x: L.exp(x, out=x))(L.ones(3)),
    "index_copy_own_index": lambda L: (lambda i: i.index_copy_(0, i, i.clone()))(index(L)),
    "scatter_self": lambda L: (lambda x: x.scatter_(0, index(L), x))(L.ones(3)),
    "put_own": lambda L: (lambda x: x.put_(index(L), x[:3]))(L.ones(6)),
    "expand_of_equal_size_is_writable": lambda L: L.ones(2, 3).expand(2, 3).add_(1.0),
    "write_one_of_expanded": lambda L: (lambda v: v.__setitem__(0, 0.0) or v)(shared(L)),
    # shapes
    "flip_0d": lambda L: L.tensor(3.0).flip(0),
    "flip_twice": lambda L: L.ones(2, 2).flip(0, -2),
    "fliplr_vector": lambda L: L.fliplr(L.ones(3)),
    "flipud_0d": lambda L: L.flipud(L.tensor(1.0)),
    "vstack_tensor": lambda L: L.vstack(L.ones(2)),
    "hstack_nothing": lambda L: L.hstack([]),
    "tensor_split_0d": lambda L: L.tensor(1.0).tensor_split(1),
    "tensor_split_float": lambda L: L.ones(4).tensor_split(L.tensor(2.0)),
    "narrow_float_start": lambda L: L.ones(3).narrow(0, L.tensor(1.0), 1),
    "mT_vector": lambda L: L.ones(3).mT,
    "H_cube": lambda L: L.ones(2, 2, 2).H,
    "meshgrid_warns": lambda L: L.meshgrid(L.ones(2)),
    "meshgrid_matrix": lambda L: L.meshgrid(L.ones(2, 2), indexing="ij"),
    "meshgrid_dtypes": lambda L: L.meshgrid(L.ones(2), L.arange(2), indexing="ij"),
    "combinations_0": lambda L: L.combinations(L.ones(3), r=0),
    "block_diag_nothing": lambda L: L.block_diag(),
    "cat_dtype_of_empty": lambda L: L.cat([L.ones(2), L.tensor([], dtype=L.float64)]),
    "slice_step_0": lambda L: L.ones(3)[0:2:0],
    "slice_of_floats": lambda L: L.ones(3)[0.0:2.0],
    # random numbers
    "random_range": lambda L: L.zeros(9, dtype=L.int32).random_(-7, 8),
    "random_from_none": lambda L: L.zeros(9, dtype=L.uint8).random_(250, None),
    "random_empty": lambda L: L.zeros(9).random_(-3),
    "random_outside": lambda L: L.zeros(9, dtype=L.uint8).random_(0, 300),
    "random_rounded": lambda L: L.zeros(3, dtype=L.float16).random_(0, 5000).isfinite(),
    "uniform_reversed": lambda L: L.zeros(9).uniform_(2, 1),
    "uniform_wide": lambda L: L.zeros(9, dtype=L.float16).uniform_(-60000, 60000),
    "exponential_negative": lambda L: L.zeros(9).exponential_(-1.0),
    "cauchy_zero": lambda L: L.zeros(9).cauchy_(0.0, 0.0),
    "normal_negative": lambda L: L.normal(0.0, L.tensor([1.0, -1.0])),
    "randint_high": lambda L: L.randint(high=9, size=(4,)),
    "bernoulli_out": lambda L: L.bernoulli(L.full((5,), 0.5), out=L.zeros(5, dtype=L.int64)),
    "rand_out": lambda L: L.rand(5, out=L.zeros(5, dtype=L.float64)),
    # making tensors
    "linspace_complex": lambda L: L.linspace(0, 2 + 1j, 5),
    "linspace_complex_as_float": lambda L: L.linspace(0, 1j, 5, dtype=L.float32),
    "logspace_complex": lambda L: L.logspace(0, 1j, 3),
    "arange_infinite": lambda L: L.arange(0, float("inf")),
    "empty_too_large": lambda L: L.empty(2, 4, 2**29, 2**29, dtype=L.float64),
    "asarray_requires_grad": lambda L: L.asarray(L.ones(2), requires_grad=True, copy=True).requires_grad,
    "vander_negative": lambda L: L.vander(L.ones(3), N=-1),
    "window_of_ints": lambda L: L.hann_window(3, dtype=L.int64),
    "range_warns": lambda L: L.range(0, 3),
    "frombuffer_nothing": lambda L: L.frombuffer(bytearray(8), dtype=L.float32, count=0),
    "frombuffer_offset": lambda L: L.frombuffer(bytearray(8), dtype=L.float32, offset=9),
    "frombuffer_odd": lambda L: L.frombuffer(bytearray(8), dtype=L.float32, offset=1),
    "frombuffer_many": lambda L: L.frombuffer(bytearray(8), dtype=L.float32, count=3),
    "empty_strided_lengths": lambda L: L.empty_strided((2,), ()),
    "layout": lambda L: L.zeros(1).layout is L.strided,
    # copies of views
    "view_copy": lambda L: L.view_copy(L.arange(4), (2, 2)),
    "diagonal_copy_out": lambda L: L.diagonal_copy(L.arange(4).view(2, 2), out=L.empty(2, dtype=L.int64)),
    "split_copy": lambda L: L.split_copy(L.arange(4), 2),
    "slice_copy": lambda L: L.slice_copy(L.arange(4), 0, 1, 3),
    # results in tensors of another dtype
    "nonzero_out_float": lambda L: L.nonzero(L.ones(2), out=L.empty(0)),
    "max_out_float_indices": lambda L: L.max(L.ones(2, 2), 0, out=(L.empty(2), L.empty(2))),
    "prod_out_dtype": lambda L: L.prod(L.ones(2), 0, out=L.empty(()), dtype=L.float64),
    "isposinf_out_float": lambda L: L.isposinf(L.ones(2), out=L.empty(2)),
    "frexp_ints": lambda L: L.frexp(L.arange(3)),
    "frexp_out": lambda L: L.frexp(L.ones(2), out=(L.empty(2), L.empty(2))),
    # arithmetic
    "add_bool_alpha": lambda L: L.add(L.ones(2, dtype=L.int64), 1, alpha=True),
    "add_bools_alpha_0": lambda L: L.add(L.ones(2, dtype=L.bool), L.ones(2, dtype=L.bool), alpha=0),
    "add_float_alpha": lambda L: L.add(L.arange(2), 1, alpha=1.0),
    "addcdiv_ints": lambda L: L.addcdiv(L.arange(2), L.arange(2), L.arange(1, 3)),
    "lerp_half": lambda L: L.lerp(L.zeros(2, dtype=L.float16), L.full((2,), 0.1, dtype=L.float16), 70000),
    "heaviside_dtypes": lambda L: L.heaviside(L.ones(2), L.arange(2)),
    "heaviside_complex": lambda L: L.heaviside(L.ones(2) * 1j, L.ones(2) * 1j),
    "heaviside_complex_input": lambda L: L.heaviside(L.ones(2) * 1j, L.ones(2)),
    "heaviside_complex_values": lambda L: L.heaviside(L.ones(2), L.ones(2) * 1j),
    "heaviside_complex_out": lambda L: L.heaviside(L.ones(2), L.ones(2), out=L.empty(2, dtype=L.complex64)),
    "hardshrink_bfloat16": lambda L: L.nn.functional.hardshrink(L.tensor([0.3, -0.3, 0.6, float("nan")], dtype=L.bfloat16), 0.3).float(),
    "nan_to_num_complex": lambda L: L.nan_to_num(L.tensor([complex(1, float("inf")), complex(float("nan"), 2)]), posinf=9.0),
    "i0_large": lambda L: L.i0(L.tensor([1e7, 1e300, -1e300], dtype=L.float64)),
    # reductions
    "median_empty": lambda L: L.ones(2, 0).median(1),
    "median_empty_elsewhere": lambda L: L.ones(0, 2).median(1),
    "kthvalue_empty": lambda L: L.ones(2, 0).kthvalue(1, 1),
    "logsumexp_empty": lambda L: L.ones(2, 0).logsumexp(1),
    "trapezoid_empty": lambda L: L.trapezoid(L.ones(2, 0)),
    "trapezoid_x_along": lambda L: L.trapezoid(L.arange(12.0).view(2, 3, 2), x=L.tensor([0.0, 1.0, 3.0]), dim=1),
    "var_warns": lambda L: L.ones(3).var(correction=5),
    "nansum_complex": lambda L: L.nansum(L.ones(2) * 1j),
    "bincount_minlength": lambda L: L.bincount(L.arange(2), minlength=-1),
    "bincount_weights": lambda L: L.bincount(L.arange(2), L.ones(3)),
    "quantile_ints": lambda L: L.quantile(L.arange(3), 0.5),
    "quantile_matrix": lambda L: L.quantile(L.ones(3), L.ones(1, 1)),
    "histogram_ints": lambda L: L.histogram(L.arange(3), 2),
    "histogram_bins": lambda L: L.histogram(L.ones(3), -1),
    "histogram_weight": lambda L: L.histogram(L.ones(3), 2, weight=L.ones(2)),
    "delete": lambda L: L.ones(3).__delitem__(0),
    "apply_string": lambda L: L.arange(2).apply_(lambda v: "str"),
    "device_negative": lambda L: L.device(-1),
    "nll_loss_0d": lambda L: L.nn.functional.nll_loss(L.tensor(1.0), L.tensor(0)),
}  # fmt: skip
SIZED = {  # functions of a size or a number of parts, which may be NumPy's integer or a 0-d tensor
    "affine_grid": lambda L, n: L.nn.functional.affine_grid(L.eye(2, 3)[None], [1, 1, n, n], align_corners=False),
    "interpolate": lambda L, n: L.nn.functional.interpolate(L.arange(16.0).view(1, 1, 4, 4), size=[n, n]),
    "one_hot": lambda L, n: L.nn.functional.one_hot(L.tensor([0, 1]), n),
    "avg_pool2d": lambda L, n: L.nn.functional.avg_pool2d(L.arange(16.0).view(1, 1, 4, 4), n),
    "pad": lambda L, n: L.nn.functional.pad(L.ones(3), (n, n)),
    "randperm": lambda L, n: L.randperm(n),
    "fftfreq": lambda L, n: L.fft.fftfreq(n),
    "rfftfreq": lambda L, n: L.fft.rfftfreq(n),
    "tensor_split": lambda L, n: L.arange(5).tensor_split(n),
    "reshape": lambda L, n: L.arange(6).reshape(n, -1),
    "repeat": lambda L, n: L.arange(3).repeat(n),
    "linspace": lambda L, n: L.linspace(0, 1, n),
    "topk": lambda L, n: tuple(L.arange(5).topk(n)),
}
CALLS |= {
    f"{name} {kind}": functools.partial(lambda call, number, L: call(L, number(L)), call, number)
    for name, call in SIZED.items()
    for kind, number in {
        "int64": lambda L: np.int64(2),
        "int32": lambda L: np.int32(2),
        "tensor": lambda L: L.tensor(2),
    }.items()
}
REDUCTIONS = "sum mean prod max min amax amin add".split()
CALLS |= {
    f"{name} {reduce}": functools.partial(lambda call, reduce, L: call(L, reduce), call, reduce)
    for name, call in {
        "scatter_reduce": lambda L, r: L.zeros(3).scatter_reduce(0, L.tensor([0, 0, 1]), L.tensor([3.0, -1.0, 2.0]), r),
        "segment_reduce": lambda L, r: L.segment_reduce(L.tensor([3.0, -1.0, 2.0]), r, lengths=L.tensor([2, 1])),
    }.items()
    for reduce in REDUCTIONS
}


@loop
@pytest.mark.parametrize("name", CALLS)
def test_answers_as_pytorch_does(name, torch):
    same(CALLS[name], torch)


def test_parts_of_a_complex_tensor_are_views_that_can_be_set(torch):
    for L in (mytorch, torch):
        x = L.zeros(2, 3, dtype=L.complex64)
        x.real, x.T.imag = 1.0, L.arange(6.0).view(3, 2)
        assert x.tolist() == [[1 + 0j, 1 + 2j, 1 + 4j], [1 + 1j, 1 + 3j, 1 + 5j]]
        assert L.view_as_real(x.T).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert L.view_as_real(x.T)._base is x


@pytest.mark.parametrize(("shape", "strides"), [((2,), (2,)), ((2, 2), (1, 1)), ((3,), (1,)), ((), ())])
def test_view_as_complex_refuses_pairs_that_are_none_in_memory(shape, strides, torch):
    def call(L):
        return L.view_as_complex(L.arange(8.0).as_strided(shape, strides)).abs()

    same(call, torch)


def test_a_storage_turns_its_bytes_round(torch):
    for L in (mytorch, torch):
        s = L.tensor([1.0, 2.0]).untyped_storage()
        s.byteswap(L.float32)
        assert s.tolist() == [63, 128, 0, 0, 64, 0, 0, 0]
        assert s.filename is None


def test_a_tensor_over_memory_that_is_not_writable_is_warned_of():
    a = np.arange(3.0)
    a.flags.writeable = False
    with pytest.warns(UserWarning, match="non-writable"):
        mytorch.from_numpy(a)


LINALG = {
    "cond_singular": lambda L: L.linalg.cond(L.ones(2, 2), "fro"),
    "cond_regular": lambda L: L.linalg.cond(L.tensor([[3.0, 1.0], [1.0, 2.0]]), 1),
    "cond_empty": lambda L: L.linalg.cond(L.ones(2, 0, 0)),
    "inv_ex_singular": lambda L: L.linalg.inv_ex(L.diag(L.tensor([1.0, 2.0, 0.0]))).info,
    "inv_ex_batch": lambda L: L.linalg.inv_ex(L.stack([L.zeros(2, 2), L.eye(2) * 4])).info,
    "inv_ex_regular": lambda L: L.linalg.inv_ex(L.stack([L.zeros(2, 2), L.eye(2) * 4])).inverse[1],
    "inv_ex_checked": lambda L: L.linalg.inv_ex(L.zeros(2, 2), check_errors=True),
    "lstsq_rcond": lambda L: L.linalg.lstsq(L.ones(1, 1), L.ones(1, 1), rcond=1.0, driver="gels").solution,
    "lstsq_vector": lambda L: L.linalg.lstsq(L.eye(3)[:, :2], L.arange(3.0)).solution,
    "lstsq_mismatch": lambda L: L.linalg.lstsq(L.ones(2, 3), L.ones(3)),
    "lstsq_vectors": lambda L: L.linalg.lstsq(L.ones(3), L.ones(3)),
    "vector_norm_empty": lambda L: L.linalg.vector_norm(L.ones(0), float("inf")),
    "vector_norm_empty_rows": lambda L: L.linalg.vector_norm(L.ones(0, 2), float("inf"), dim=1),
    "matrix_norm_axis": lambda L: L.linalg.matrix_norm(L.ones(2, 2), dim=(0,)),
    "matrix_norm_of_one_axis_twice": lambda L: L.linalg.matrix_norm(L.ones(2, 2), dim=(0, -2)),
    "norm_axis": lambda L: L.linalg.norm(L.ones(2, 2), ord=1, axis=(-2, -1)),
    "lu_unpack_pivots": lambda L: L.lu_unpack(L.eye(2), L.tensor([0, 2], dtype=L.int32)),
    "multi_dot_axes": lambda L: L.linalg.multi_dot([L.ones(2, 2), L.ones(2), L.ones(2, 2)]),
    "chain_matmul_nothing": lambda L: L.chain_matmul(),
    "tensordot_negative": lambda L: L.tensordot(L.ones(2), L.ones(2), -1),
    "householder_shapes": lambda L: L.linalg.householder_product(L.ones(2, 3), L.ones(2)),
    "addr_bool_alpha": lambda L: L.addr(L.ones(2, 2), L.ones(2), L.ones(2), alpha=True),
    "addmm_float_beta": lambda L: L.addr(L.ones(2, 2).int(), L.arange(2).int(), L.arange(2).int(), beta=2.5),
    "einsum_numbers": lambda L: L.einsum(L.ones(2, 3), [0, 1], L.ones(3, 4), [1, 2], [0, 2]),
    "einsum_dots": lambda L: L.einsum(L.ones(2, 3), [..., 0], L.ones(3), [0]),
    "rfft_complex": lambda L: L.fft.rfft(L.ones(4) * 1j),
    "rfft2_complex": lambda L: L.fft.rfft2(L.ones(4, 4) * 1j),
    "stft_window": lambda L: L.view_as_real(L.stft(L.ones(20), 4, return_complex=True)),
    "complex32": lambda L: (
        L.complex32 is L.chalf,
        L.complex32.itemsize,
        L.complex32.is_complex,
        L.complex32 == L.half,
    ),
}


@loop
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_answers_as_pytorch_does(name, torch):
    same(LINALG[name], torch)


@pytest.mark.parametrize("kind", [np.float64, np.complex64])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4), (0, 2, 3)])
@pytest.mark.parametrize("transpose", [False, True])
def test_reflectors_and_their_product_are_lapacks(shape, kind, transpose, torch):
    draw = np.random.default_rng(4)
    both = draw.normal(size=(2, *shape)) + 1j * draw.normal(size=(2, *shape))
    A, C = (both if kind is np.complex64 else both.real).astype(kind)
    mine, theirs = mytorch.geqrf(mytorch.tensor(A)), torch.geqrf(torch.tensor(A))
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(mine.a.numpy(), theirs.a.numpy(), **tolerance)
    np.testing.assert_allclose(mine.tau.numpy(), theirs.tau.numpy(), **tolerance)
    mine = mytorch.ormqr(*mine, mytorch.tensor(C), transpose=transpose)
    theirs = torch.ormqr(*theirs, torch.tensor(C), transpose=transpose)
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), **tolerance)


def test_ormqr_refuses_shapes_that_do_not_go_together(torch):
    for a, tau, c in [
        ((4,), (2,), (2,)),
        ((4, 2), (5,), (4, 2)),
        ((4, 4), (3,), (3, 3)),
        ((1, 2, 2), (2, 2), (1, 2, 2)),
    ]:
        for L in (mytorch, torch):
            with pytest.raises(RuntimeError, match="ormqr"):
                L.ormqr(L.ones(a), L.ones(tau), L.ones(c))


def test_older_names_take_out():
    A, Q, R, n = mytorch.tensor([[2.0, 1.0], [0.0, 3.0]]), mytorch.empty(2, 2), mytorch.empty(2, 2), mytorch.empty(())
    mytorch.qr(A, out=(Q, R))
    assert mytorch.allclose(Q @ R, A, atol=1e-6)
    assert mytorch.nuclear_norm(A, out=n) is n
    assert mytorch.allclose(n, mytorch.linalg.svdvals(A).sum())


@loop()
@pytest.mark.parametrize("kind", ["leaf", "result", "constant", "array", "list", "ints"])
@pytest.mark.parametrize("requires_grad", [None, False, True])
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
@pytest.mark.filterwarnings("ignore:torch.asarray")
def test_asarray_shares_and_detaches_as_pytorch(kind, requires_grad, copy, dtype, torch):
    outcomes = []
    for L in (mytorch, torch):
        leaf = L.tensor([1.0, 2.0], requires_grad=True)
        data = {
            "leaf": leaf, "result": leaf * 2, "constant": L.ones(2), "array": np.ones(2), "list": [1.0, 2.0], "ints": L.arange(2),
        }[kind]  # fmt: skip
        given = {"requires_grad": requires_grad, "copy": copy, "dtype": dtype and getattr(L, dtype)}
        try:
            found = L.asarray(data, **{k: v for k, v in given.items() if v is not None})
        except (RuntimeError, ValueError) as error:
            outcomes.append(type(error).__name__)
            continue
        shares = isinstance(data, L.Tensor) and found.data_ptr() == data.data_ptr()
        outcomes.append(
            (
                found.tolist(),
                str(found.dtype)[-7:],
                found.requires_grad,
                found.is_leaf,
                found is data,
                shares,
                leaf.requires_grad,
            )
        )
    assert outcomes[0] == outcomes[1]


@loop
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@pytest.mark.parametrize("shape", [(0,), (1,), (4,), (5,), (4, 5), (3, 4, 5)])
def test_shifts_of_frequencies(name, shape, torch):
    x = np.arange(math.prod(shape)).reshape(shape)
    dims = [None, *range(-len(shape), len(shape)), *itertools.combinations(range(len(shape)), 2)]
    for dim in dims:
        mine, theirs = (getattr(L.fft, name)(L.tensor(x), dim) for L in (mytorch, torch))
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), err_msg=str(dim))
