"""Groups of operations of a program that run as one Triton kernel, over the fake CuPy.

Random chains of operations on arrays of all dtypes, layouts and sizes, with operations in place, sums and maxima of rows. The
results equal the results of CuPy's functions to the last bit, except for sums of floats.
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

if os.environ.get("MYTORCH_KERNELS_ON") != "cuda":
    sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
    import fake_cupy

    fake_cupy.install()

import mytorch  # noqa: E402
from mytorch.compiler import gpu, groups  # noqa: E402
from mytorch.compiler.program import Program  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    import fake_triton

    fake_triton.install()

COMPILES = "MYTORCH_COMPILE_ONLY" in os.environ  # kernels are compiled, not run
SHAPES = [(), (1,), (7,), (2500,), (3, 1), (1, 5), (33, 70), (4, 1500), (5, 3, 17), (2, 1, 3, 40), (1, 1), (6, 6)]
DTYPES = ["float32"] * 4 + ["float64", "float16", "bfloat16", "int32", "int64", "bool", "uint8"]
FLOAT = """
    {0}+{1} {0}-{1} {0}*{1} {0}/{1} {0}*0.375 1-{0} 2/{0} -{0} {0}.abs() {0}.abs().sqrt() {0}*{0} {0}.square() {0}.tanh() {0}.exp()
    {0}.abs().log1p() {0}.sin() {0}.cos() where({0}>{1},{0},{1}) where({0}>0.125,{0},0.0) maximum({0},{1}) minimum({0},{1})
    {0}.floor() {0}.ceil() {0}.reciprocal() {0}.expm1() {0}**3 {0}.isnan() {0}.float() {0}.double() {0}.add_(1) {0}.mul_({1}) {0}>={1}
    {0}==0 {0}.sub_(0.5).mul_(2) {0}*float("inf") {0}*-0.0
""".split()
OTHER = "{0}+1 {0}*{1} {0}.float() {0}==1 {0}!={1} {0}<{1} {0}*0.5 -{0}.int() ({0}>0)&({1}>0) ~({0}>0) ({0}>0)|({1}==0) {0}.long()*2".split()
ROWS = """
    {0}.sum(-1,keepdim=True) {0}.mean(-1,keepdim=True) {0}.amax(-1,keepdim=True) {0}.amin(-1,keepdim=True) {0}-{0}.mean(-1,keepdim=True)
    {0}/({0}*{0}).sum(-1,keepdim=True) ({0}-{0}.amax(-1,keepdim=True)).exp() {0}.sum(-1) {0}.amax(-1)*2 ({0}*2).sum(-1,keepdim=True)+1
""".split()


def array(data, shape, dtype):
    """Returns a tensor with random elements in a random memory layout."""
    layout = data.choice(["plain", "plain", "permuted", "strided", "expanded"])
    size = [*shape]
    if layout == "strided" and shape:
        size[-1] *= 2
    if layout == "expanded" and shape:
        size[0] = 1
    x = np.asarray(data.standard_normal(size) * 2)
    x[data.random(size) < 0.05] = 0
    if data.random() < 0.2:
        x[data.random(size) < 0.02] = data.choice([np.nan, np.inf, -np.inf])
    if "float" not in dtype:
        x = np.nan_to_num(x).clip(-9, 9)
        x = x > 0 if dtype == "bool" else np.abs(x) if dtype == "uint8" else x
    if layout == "permuted" and shape:
        t = mytorch.tensor(np.ascontiguousarray(x.T.astype(np.float32))).permute(*range(x.ndim)[::-1])
        return t.to(getattr(mytorch, dtype)).to("cuda")
    t = mytorch.tensor(x.copy()).to(getattr(mytorch, dtype)).to("cuda")
    if layout == "strided" and shape:
        return t[..., ::2]
    return t.expand(*shape) if layout == "expanded" and shape else t


def program(seed):
    """Returns the source of a random program, and its arguments."""
    rng, data = random.Random(seed), np.random.default_rng(seed)
    shape = rng.choice(SHAPES)
    dtypes = {name: rng.choice(DTYPES) for name in "xyz"}
    if rng.random() < 0.6:
        dtypes = dict.fromkeys("xyz", dtypes["x"])
    shapes = {
        "x": shape,
        "y": shape,
        "z": tuple(n if rng.random() < 0.6 else 1 for n in shape)[rng.randint(0, len(shape)) :],
    }
    args = {name: array(data, shapes[name], dtypes[name]) for name in "xyz"}
    space = {n: getattr(mytorch, n) for n in ("where", "maximum", "minimum")}
    space.update(args)
    lines, names = ["x = x * 1", "y = y * 1"], ["x", "y", "z"]
    exec("\n".join(lines), space)
    for k in range(rng.randint(3, 9)):
        a, b = rng.choice(names), rng.choice(names)
        kinds = FLOAT if space[a].is_floating_point() else OTHER
        kinds = ROWS if rng.random() < 0.3 and space[a].is_floating_point() and space[a].ndim else kinds
        line = f"t{k} = {rng.choice(kinds).format(a, b)}"
        if "_(" in line and space[a].data_ptr() == args["z"].data_ptr():
            continue  # its elements may share memory, and each call would change the argument
        try:
            with np.errstate(all="ignore"):
                exec(line, space)
        except (RuntimeError, TypeError):
            continue
        lines.append(line)
        names.append(f"t{k}")
    outs = rng.sample(names[3:], min(2, len(names) - 3)) or ["x"]
    lines.append(f"return x, {', '.join(f'{n} * 1' for n in outs)}")
    return "def f(x, y, z):\n" + "".join(f"    {line}\n" for line in lines), list(args.values())


def elements(t):
    return t.detach().cpu().double().numpy()


def tensor(raw):
    return mytorch.Tensor._of(mytorch.arrays.array.Array._wrap(raw))


def run(function, args):
    """Records a function of tensors as a program. Returns the results of a run, and its calls."""
    tape, raws = gpu.GpuTape(), [t._mt_data._array for t in args]
    given = [tensor(tape.input(raw)) for raw in raws]
    with tape, mytorch.no_grad():
        outs = function(*given)
    instance = gpu.GpuInstance(
        Program(tape, [out._mt_data._array.index for out in (outs if isinstance(outs, tuple) else (outs,))])
    )
    return [tensor(raw) for raw in instance.run(raws)], instance.calls


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_groups(first):
    made = 0
    for seed in range(first, first + 40):
        source, args = program(seed)
        space = {n: getattr(mytorch, n) for n in ("where", "maximum", "minimum")}
        exec(source, space)
        with mytorch.no_grad():
            expected = space["f"](*args)
            found, calls = run(space["f"], args)
        made += sum(isinstance(call, groups.GroupCall) for call in calls)
        sums = any(word in source for word in ("sum", "mean"))
        if sums and any(word in source for word in ("floor", "ceil")):
            continue  # the results differ if a sum is near an integer
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.dtype == theirs.dtype, source
            strides = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (mine, theirs)]
            assert strides[0] == strides[1] or not mine.numel(), source
            if COMPILES or (sums and theirs.dtype == mytorch.bool):
                continue
            a, b = elements(mine), elements(theirs)
            if sums:
                coarse = {mytorch.float16: 2e-2, mytorch.bfloat16: 1e-1, mytorch.float64: 1e-9}
                rtol = max(coarse.get(t.dtype, 1e-4) for t in (*args, theirs))
                finite = np.isfinite(b)
                np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=source)
                scale = max(1, np.abs(b[finite]).max(initial=0))
                np.testing.assert_allclose(a[finite], b[finite], rtol, rtol * scale, err_msg=source)
            else:
                np.testing.assert_array_equal(a, b, err_msg=source)
                number = ~np.isnan(b)
                np.testing.assert_array_equal(np.signbit(a[number]), np.signbit(b[number]), err_msg=source)
    assert made > 20


@pytest.mark.skipif(COMPILES, reason="kernels do not run")
def test_written_out_layers_are_one_kernel():
    def softmax(x):
        e = mytorch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    def layer_norm(x):
        centered = x - x.mean(-1, keepdim=True)
        return centered / ((centered * centered).mean(-1, keepdim=True) + 1e-5).sqrt()

    def gelu(x):
        return 0.5 * x * (1 + mytorch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    x = mytorch.randn(9, 300, device="cuda")
    for function in (softmax, layer_norm, gelu):
        (found,), calls = run(function, [x])
        assert [type(c) for c in calls if not hasattr(c, "func")] == [groups.GroupCall]
        np.testing.assert_allclose(elements(found), elements(function(x)), 1e-5, 1e-6)


@pytest.mark.skipif(COMPILES, reason="kernels do not run")
def test_an_error_of_a_kernel_names_the_operations(monkeypatch):
    def failing(*args, **options):
        raise ValueError("no memory")

    monkeypatch.setattr("mytorch.kernels.launch.launch", failing)
    with pytest.raises(RuntimeError, match=r"the kernel of add, multiply failed: no memory"):
        run(lambda x: (x + 1) * 2, [mytorch.ones(3, device="cuda")])


def test_layouts():
    """`allocate` and `copy_of` create the strides of a value."""
    x = mytorch.arange(60.0, device="cuda").reshape(3, 4, 5)
    for t in (
        x,
        x.permute(2, 0, 1),
        x[:, ::2],
        x[..., :1],
        x.expand(2, 3, 4, 5),
        x.unfold(0, 2, 1),
        x[0, 0, 0],
        x[:0],
        x.mT,
    ):
        raw = t._mt_data._array
        copy = gpu.copy_of(raw)
        assert copy.strides == raw.strides or not raw.size
        assert (copy.get() == raw.get()).all()
