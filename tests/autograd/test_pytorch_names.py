"""`type(x.grad_fn).__name__` on the samples of PyTorch's operator database, and after common programs."""

import itertools

import pytest

import mytorch
from tests import test_opinfo as opinfo
from tests.loops import loop

torch = opinfo.torch
COMPOSED = set(  # mytorch computes these with several ops, and the last op names the node
    """addbmm addmm addmv addr aminmax angle baddbmm block_diag cdist combinations complex cross cummax cummin
    cumulative_trapezoid diag diagonal_scatter diff dist frac frexp
    grid_sampler_2d grid_sampler_3d index_add index_copy index_fill index_put index_reduce kron ldexp lerp linalg.cond
    linalg.cross linalg.householder_product linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_norm
    linalg.matrix_power linalg.multi_dot linalg.vecdot logcumsumexp lu lu_solve lu_unpack masked_scatter
    masked_select matrix_exp mvlgamma nanmedian nanquantile nansum nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
    nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.alpha_dropout
    nn.functional.bilinear nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
    nn.functional.channel_shuffle nn.functional.ctc_loss nn.functional.dropout3d nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.glu nn.functional.grid_sample nn.functional.group_norm
    nn.functional.huber_loss nn.functional.instance_norm nn.functional.interpolate nn.functional.margin_ranking_loss
    nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d nn.functional.mish
    nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss nn.functional.nll_loss
    nn.functional.pairwise_distance nn.functional.pdist nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.prelu nn.functional.rrelu nn.functional.smooth_l1_loss nn.functional.soft_margin_loss
    nn.functional.triplet_margin_loss nn.functional.upsample_bilinear nn.functional.upsample_nearest ormqr polar put
    renorm repeat_interleave rot90 rsub scatter_add scatter_reduce select_scatter slice_scatter special.log_ndtr
    special.ndtr special.ndtri std_mean stft take trace trapezoid trapz triangular_solve unsafe_chunk unsafe_split
    var_mean vdot""".split()
)
ONE_OP = {  # mytorch computes these with one op, and PyTorch with several
    "nn.functional.rms_norm": "PyTorch's last step", "fill": "PyTorch's own node",
    "tensor_split": "PyTorch slices", "hsplit": "PyTorch slices", "vsplit": "PyTorch slices", "dsplit": "PyTorch slices",
    "nn.functional.scaled_dot_product_attention": "depends on PyTorch's choice of a kernel",
}  # fmt: skip
PARTLY = {  # only some samples differ
    "atleast_2d": "0-d tensors", "atleast_3d": "0-d tensors", "index_select": "0-d tensors", "scatter": "0-d tensors",
    "unfold": "0-d tensors", "copysign": "the number depends on the second input, which is not saved",
    "cholesky": "the older function of the same op", "linalg.cholesky": "upper triangles",
    "linalg.cholesky_ex": "upper triangles", "linalg.qr": "wide matrices", "qr": "wide matrices", "linalg.lu": "wide matrices",
    "linalg.solve": "a vector on the right", "linalg.solve_ex": "a vector on the right", "linalg.svd": "full matrices",
    "linalg.tensorinv": "a view without a copy", "matmul": "a matrix times a batch", "median": "along a dimension", "mean": "dim=()",
    "sum": "dim=()", "nn.functional.cross_entropy": "weights and images", "round": "decimals=0",
    "nn.functional.pad": "modes other than constant", "double": "a memory format", "float": "a memory format", "half": "a memory format",
    "cdouble": "a memory format", "cfloat": "a memory format",
}  # fmt: skip
CASES = [case for case in opinfo.cases() if case.values[1] is torch.float64 and case.values[0].supports_autograd]


def name(tensor):
    return None if tensor.grad_fn is None else type(tensor.grad_fn).__name__


def listed(op):
    real_fft = op.startswith("fft.")  # mytorch's transforms are complex, with conversions around them
    return real_fft or op.endswith("_copy") or any(op in names for names in (COMPOSED, ONE_OP, PARTLY))


@loop
@pytest.mark.parametrize("op", [pytest.param(case.values[0], id=case.id) for case in CASES])
@pytest.mark.filterwarnings("ignore")
def test_name(op):
    function, different = opinfo.ours(op.name), []
    for sample in itertools.islice(opinfo.samples(op, torch.float64, True), opinfo.SAMPLES):
        try:
            theirs = op.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, NotImplementedError):
            continue
        input, args, values = opinfo.convert([sample.input, list(sample.args), list(sample.kwargs.values())])
        mine = function(input, *args, **dict(zip(sample.kwargs, values, strict=True)))
        pairs = zip(opinfo.flat(theirs), opinfo.flat(mine), strict=True)
        names = [(name(a), name(b)) for a, b in pairs if isinstance(a, torch.Tensor)]
        assert all((a is None) == (b is None) for a, b in names) or listed(op.name)
        different += [(a, b) for a, b in names if a != b]
    assert listed(op.name) or not different
    assert different or op.name not in COMPOSED, "delete it from the list"


PROGRAMS = {
    "index": "x[0]; x[0:1]; x[:]; x[...]; x[0, 1:]; x[1:, 0]; x[None]; x[..., 0]; x[0, None]; x[:, 0]; x[[0, 1]]; x[x > 0]; x[::2]",
    "operator": "x + 1; x - 1; x * 2; x / 2; -x; x**2; 2**x; x**x; x @ x.mT; m @ m; m @ v; v @ v; v @ m; x % 2; x % x",
    "view": "m.T; m.t(); m.mT; m.H; x.squeeze(); x.squeeze(0); x.squeeze((0,)); x.flatten(); x.view(-1); x.unflatten(0, (3, 1));"
    "x.movedim(0, 1); x.swapaxes(0, 1); x.permute(0, 2, 1); x.narrow(0, 0, 1); m.diagonal(); x.select(0, 1); v.unfold(0, 2, 1);"
    "v.as_strided((2,), (1,)); v.expand(2, 4); x.unbind(0)[0]; list(x)[0]; x.chunk(3)[0]; x.split(1)[0]; x.split([1, 2])[1]",
    "reduction": "x.max(); x.max(0)[0]; x.sum(0); x.sum(); x.mean(1); x.mean(); x.std(); x.var(0); x.prod(); x.prod(0); m.logsumexp(0)",
    "other": "v.clamp(0); v.clamp(0, 1); v.clamp_min(0); v.masked_fill(v > 0, 1.0); v.lerp(v, 0.5); v.sgn(); v.square();"
    "v.double(); (v * 1).add_(1); (v * 1).clone(); v.repeat(2); m.tril(); m.det(); v.norm(); v.sigmoid()",
    "random": "(v * 1).normal_(); (v * 1).uniform_(); (v * 1).random_(); (v * 1).random_(5); (v * 1).random_(2, 5); (v * 1).bernoulli_();"
    "(v * 1).bernoulli_(v.detach()); (v * 1).exponential_(); (v * 1).log_normal_(); bernoulli(v); poisson(v); normal(v, v);"
    "normal(v, 1.0); normal(0.0, v)",
    "constants": "(v * 1).zero_(); (v * 1).fill_(2); (v * 1).copy_(v.detach()); (v * 1).eq_(0); (v * 1).sign_();"
    "(v * 1).index_fill_(0, t, 2.0); (v * 1).masked_fill_(v > 0, 1.0); put(v * 1, 0); put(v * 1, slice(2)); put(v * 1, t)",
    "functional": "F.linear(m, m); F.linear(m, m, v); F.linear(x, m, v); F.linear(x, m); F.celu(v); F.selu(v); F.elu(v);"
    "F.relu6(v); F.mse_loss(v, v * 0); F.dropout(v); F.layer_norm(m, (4,)); F.cross_entropy(m, t); F.embedding(t, m);"
    "F.conv1d(x, k); F.max_pool1d(x, 2); F.avg_pool1d(x, 2); F.batch_norm(m, None, None, training=True)",
}


def put(x, index):
    x[index] = 1.0
    return x


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_name_in_a_program(program):
    scopes = []
    for lib in (torch, mytorch):
        scope = {"F": lib.nn.functional, "t": lib.tensor([0, 1, 2, 3]), "k": lib.ones(2, 4, 2), "put": put}
        scope.update((name, getattr(lib, name)) for name in ("normal", "poisson", "bernoulli"))
        scope.update(x=lib.ones(3, 4, 4, requires_grad=True), m=lib.eye(4), v=lib.ones(4, requires_grad=True))
        scopes.append(scope | {"m": scope["m"].requires_grad_()})
    for text in PROGRAMS[program].split(";"):
        theirs, mine = (eval(text.strip(), scope) for scope in scopes)
        if isinstance(theirs, torch.Tensor):
            assert name(mine) == name(theirs) == mine.grad_fn.name(), text


def test_a_node_keeps_its_identity_and_its_gradient():
    x = mytorch.ones(3, requires_grad=True)
    y = (x * 2).sin()
    node = y.grad_fn
    assert node is y.grad_fn
    assert type(node) is type(x.sin().grad_fn)
    (parent, _), = node.next_functions  # fmt: skip
    assert type(parent).__name__ == "MulBackward0"
    assert type(parent.next_functions[0][0]).__name__ == "AccumulateGrad"
    y += 1
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx((2 * (x * 2).cos()).tolist())
