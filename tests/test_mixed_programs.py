"""Random programs that mix views, in-place changes, indices, reductions, products and dtypes, compared with PyTorch.

Each seed is one program. All tensors are compared after it: values, dtypes, shapes, strides and flags, and the first and second
derivatives for a random upstream gradient. The statements leave out what docs/differences.md lists, and writes to overlapping memory.
"""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = ["float64"] * 5 + ["float32", "float32", "complex128", "int64", "int32", "uint8", "bool"]
SHAPES = [(), (1,), (3,), (2, 3), (3, 3), (3, 1), (1, 4), (2, 3, 4), (2, 1, 3), (2, 0)]
NUMBERS = ["2", "2.5", "True", "-1", "0.5", "1j", "-2.0"]
UNARY = "sin cos exp abs sign neg sigmoid tanh square isnan logical_not conj positive atan".split()
BINARY = "add sub mul maximum minimum eq ne lt logical_and logical_or xlogy fmax".split()
# {x} and {y} are tensors of the program, {n} a number, {o} a tensor or a number, {d} and {e} dimensions of x, {ds} dimensions, {k} a
# choice of keepdim, {i} an index, {u} and {b} functions.
STATEMENTS = """{x}.transpose({d},{e}) {x}.unsqueeze({d}) {x}.squeeze() {x}.squeeze({d}) {x}.flatten() {x}.reshape(-1) {x}.view(-1)
{x}.select({d},-1) {x}.narrow({d},0,1) {x}.diagonal(0,{d},{e}) {x}.unfold({d},2,1) {x}.movedim({d},{e}) {x}.expand(2,*{x}.shape) {x}.expand_as({y})
{x}.real {x}.detach() {x}[{i}] {x}[{i}] {x}[{i}] {x}[{i}] {x}.contiguous() L.view_as_real({x})
{x}.sum({ds}{k}) {x}.mean({ds}{k}) {x}.sum({d}{k},dtype=L.float32) {x}.prod({d}{k}) {x}.amax({ds}{k}) {x}.logsumexp({ds}{k}) {x}.all({ds}{k})
{x}.any({ds}) {x}.var({d},correction=0{k}) {x}.std({d},correction=0) {x}.max({d})[0] {x}.sort({d})[0] {x}.argmax({d}{k}) {x}.cumsum({d}) {x}.cumprod({d}) {x}.norm(2,{ds})
{x}.double().softmax({d}) {x}.count_nonzero({d}) {x}.nansum({ds}) {x}.flip({d})
{x}+{o} {n}-{x} {x}*{o} {x}/{o} {x}**2 {x}<{o} {x}=={o} L.{b}({x},{o}) L.{b}({x},{o}) L.add({x},{o},alpha=2) L.where({x}=={y},{x},{o})
L.where({x}!={x},{x},{n}) {x}.masked_fill({x}==0,{n}) L.addcmul({x},{y},{y}) L.result_type({x},{o})
{x}.{u}() {x}.{u}() {x}.double() {x}.long() {x}.to({y}) {x}.clone() L.zeros_like({x}) {x}.repeat(2,*[1]*{x}.ndim) {x}.roll(1,{d}) {x}.tril(-1)
{x}.index_select({d},L.tensor([0,0])) {x}.take(L.tensor([0,-1])) {x}.masked_select({x}==0) {x}.repeat_interleave(2,{d}) L.diag_embed({x})
L.cat([{x},{y}],{d}) L.stack([{x},{x}],{d}) L.hstack([{x},{y}]) {x}@{y} {x}@{x}.mT L.einsum('ij,jk->ik',{x}*1.5,{y}*1.5) L.einsum('...i,...i->...',{x},{x})
L.einsum('ij->ji',{x}) L.einsum('ii->i',{x}) L.outer({x},{y}) L.complex({x},{x}) L.broadcast_tensors({x},{y})[1]""".split()
IN_PLACE = """{x}.add_({o}*1) {x}.mul_({o}*1) {x}.sub_({o}*1,alpha=2) {x}.copy_({y}.clone()) {x}.fill_({n}) {x}.zero_() {x}.clamp_(-0.5,0.7) {x}.sin_()
{x}.exp_() {x}[{i}]={n} {x}[{i}]={y}*1 {x}[{i}]+=2 {x}[{i}]*={n} {x}.masked_fill_({x}==0,{n}) {x}+={o}*1 {x}*={o}*1 {x}.t_() {x}.squeeze_() {x}.unsqueeze_(0)
{x}.transpose_({d},{e}) {x}.index_add_({d},L.tensor([0,0]),{y}.clone()) {x}.addcmul_({y}*1,{y}*1)
{x}.index_put_((L.tensor([0,-1]),),{y}.clone(),accumulate=True) {x}.lerp_({y}*1,0.3)""".split()


def _leaf(L, values, dtype, layout, grad):
    """Returns a tensor of the same values and strides in both libraries."""
    x = L.tensor(values).to(getattr(L, dtype))
    if layout == 1:
        x = x.mT.clone(memory_format=L.contiguous_format).mT if x.ndim > 1 else x
    elif layout == 2:
        x = L.stack([x, x], -1)[..., 0]
    return x.requires_grad_() if grad and (x.dtype.is_floating_point or x.dtype.is_complex) else x


def _index(rng, shape):
    kinds = [
        "0",
        "-1",
        ":",
        "1:",
        "::2",
        "None",
        "...",
        "[0]",
        "[0,-1,0]",
        "L.tensor([-1,0])",
        "L.tensor([[0],[-1]])",
        "L.tensor(0)",
        "True",
    ]
    items = [kinds[i] for i in rng.integers(0, len(kinds), int(rng.integers(1, len(shape) + 2)))]
    if shape and rng.random() < 0.2:
        items[0] = f"L.tensor({[bool(b) for b in rng.random(shape[0]) < 0.5]},dtype=L.bool)"
    return ",".join(items)


def _program(torch, seed):
    """Returns the statements of a program and the values of its leaves; statements that PyTorch refuses are left out."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[int(rng.integers(len(options)))]

    leaves = {}
    for name in "ab":
        dtype, shape = pick(DTYPES), pick(SHAPES)
        values = np.round(rng.standard_normal(shape) * (1 if dtype[0] in "fc" else 2), 2)
        leaves[name] = np.abs(values) if dtype == "uint8" else values, dtype, int(rng.integers(3)), rng.random() < 0.7
    space = {"L": torch, **{name: _leaf(torch, *given) for name, given in leaves.items()}}
    lines = []
    for _ in range(30):
        names = [name for name, value in space.items() if isinstance(value, torch.Tensor)]
        x, y = pick(names), pick(names)
        ndim = space[x].ndim
        d, e = (int(rng.integers(-ndim, ndim)) if ndim else -1 for _ in range(2))
        changes = rng.random() < 0.3
        parts = {
            "x": x, "y": y, "n": pick(NUMBERS), "o": pick([y, y, pick(NUMBERS)]), "d": d, "e": e, "k": pick(["", ",keepdim=True"]),
            "ds": pick([d, f"[{d}]", "None", tuple(range(ndim))]), "i": _index(rng, tuple(space[x].shape)), "u": pick(UNARY), "b": pick(BINARY),
        }  # fmt: skip
        line = pick(IN_PLACE if changes else STATEMENTS).format(**parts)
        line = line if changes else f"v{len(lines)}={line}"
        line = (
            f"with L.no_grad(): {line}"
            if changes and ("mul_" in line or "zero_" in line) and rng.random() < 0.3
            else line
        )
        trial = dict(space)
        try:
            exec(line, trial)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            if changes:  # which may have changed a part
                return lines, leaves, int(rng.integers(1 << 30))
            continue
        space = trial
        lines.append(line)
        if len(lines) == 8:
            break
    return lines, leaves, int(rng.integers(1 << 30))


def _run(L, lines, leaves, seed):
    """Runs a program. Returns its tensors, and the first and second derivatives of the last one that has some."""
    space = {"L": L, **{name: _leaf(L, *given) for name, given in leaves.items()}}
    for line in lines:
        exec(line, space)
    tensors = {name: value for name, value in space.items() if isinstance(value, L.Tensor)}
    inputs = [tensors[name] for name in leaves if tensors[name].is_leaf and tensors[name].requires_grad]
    ends = [t for t in tensors.values() if t.requires_grad and not t.is_leaf and t.numel()]
    if inputs and ends:
        up = np.random.default_rng(seed).standard_normal(tuple(ends[-1].shape))
        options = {"allow_unused": True, "materialize_grads": True}
        try:
            first = L.autograd.grad(ends[-1], inputs, L.tensor(up).to(ends[-1].dtype), create_graph=True, **options)
            tensors.update((f"first {i}", g) for i, g in enumerate(first))
            total = sum((g * g.conj()).real.double().sum() for g in first)
            if total.requires_grad:
                second = L.autograd.grad(total, inputs, **options)
                tensors.update((f"second {i}", g) for i, g in enumerate(second))
        except RuntimeError as error:
            tensors["refused"] = type(error)
    return tensors


def _differences(torch, want, got):
    """Returns the tensors of a program that differ, with what differs."""
    found = []
    for name, theirs in want.items():
        mine = got.get(name)
        if name == "refused":  # mytorch copies values that backward needs before they are overwritten
            continue
        if not isinstance(mine, mytorch.Tensor):
            found.append((name, "missing"))
            continue
        facts = [
            (tuple(t.shape), str(t.dtype).rpartition(".")[2], t.requires_grad, t.is_leaf, [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1])
            for t in (theirs, mine)
        ]  # fmt: skip
        if not theirs.numel() or name[:2] in ("fi", "se"):  # strides of derivatives of products may differ
            facts = [f[:2] for f in facts]
        if facts[0] != facts[1]:
            found.append((name, *facts))
            continue
        values = [np.asarray(t.detach().numpy(force=True)) for t in (theirs, mine)]
        single = values[0].dtype in (np.float32, np.complex64)
        scale = np.max(np.abs(values[0][np.isfinite(values[0])]), initial=1) if values[0].dtype.kind in "fc" else 1
        if not np.allclose(
            values[1], values[0], 3e-4 if single else 1e-6, (3e-5 if single else 1e-8) * scale, equal_nan=True
        ):
            found.append((name, "values"))
    return found


@loop
@pytest.mark.cpu_only  # statements draw CPU tensors
@pytest.mark.parametrize("seed", range(250))
def test_mixed_programs(seed, torch):
    lines, leaves, upstream = _program(torch, seed)
    want = _run(torch, lines, leaves, upstream)
    try:
        got = _run(mytorch, lines, leaves, upstream)
    except RuntimeError as error:
        if "memory location" in str(error):  # PyTorch accepts some writes to elements that share memory
            return
        raise
    differences = _differences(torch, want, got)
    assert not differences, "\n".join([*lines, *map(str, differences)])
