"""Random programs, compiled and eager: outputs, gradients, random states and in-place effects are equal to the bit.

`MYTORCH_PROGRAMS=10000 MYTORCH_PROGRAMS_SEED=7 python -m pytest tests/compiler/test_generated.py` runs more programs than the
default, and different programs. `python -m tests.compiler.test_generated 7 123` shows program 123 of seed 7, and
`… 7 0 1000` the programs that differ. `--exact` runs them without machine code.
"""

import os
import random
import sys
import warnings
from collections import Counter

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import explain, native

SEED = int(os.environ.get("MYTORCH_PROGRAMS_SEED", "3"))
COUNT = int(os.environ.get("MYTORCH_PROGRAMS", "400"))
CALLS = 4
MOST = 300  # elements of a tensor

UNARY = """
    relu({}) F.gelu({}) F.silu({}) sigmoid({}) tanh({}) exp({}.clamp(max=3)) abs({}) -{} sin({}) cos({}) sqrt({}.abs()+0.1) {}.square()
    log1p({}.abs()) F.leaky_relu({},0.2) F.softplus({}) F.elu({}) F.hardtanh({}) erf({}) {}**2 {}**3 {}**0.5 2**{} 1-{} 1/{} {}/3 {}*0.5
    {}.clone() {}.contiguous() {}.detach() {}*{} {}.clamp(-0.5,0.5) {}.sign() {}.floor() {}.round() F.selu({}) F.mish({})
    F.hardswish({}) F.logsigmoid({}) {}.nan_to_num() {}.rsqrt() {}.expm1() {}.isnan() {}.logical_not() zeros_like({})
    ones_like({})*{} {}.softmax(-1) {}.log_softmax(0) {}.cumsum(0) {}.cumsum(-1) {}.cumprod(-1) {}.flip(0) {}.roll(1,0)
    {}.tril() {}.triu(1) {}.repeat(2,*[1]*({}.ndim-1)) {}.sort(-1)[0] {}.argsort(-1) F.layer_norm({},({}.shape[-1],))
    F.rms_norm({},({}.shape[-1],)) F.normalize({},dim=-1) F.pad({},(1,2)) F.dropout({},0.5) F.dropout({},0.3,training=False)
    rand_like({})*{} randn_like({})+{} bernoulli({}.sigmoid().detach()) {}.masked_fill({}>0,-1) where({}>0,{},-{}*2) where({}>0,{},0.5)
    {}.double() {}.float() {}.half() {}.bfloat16() {}.long() {}.int() {}.bool() {}.to(mytorch.float64) {}.type_as(a) full_like({},2)
    {}.new_zeros({}.shape)+{} {}*{}.shape[0] {}+arange({}.shape[-1]) {}@{}.mT {}.mT@{} {}*{}.sum() {}-{}.mean(-1,keepdim=True)
    {}-{}.amax(-1,keepdim=True) {}/{}.sum(-1,keepdim=True) F.glu({},-1) {}.T.contiguous() F.one_hot({}.long()%3,3) {}.tanh().exp()
    ({}*2+1).relu().sum(-1) {}.unsqueeze(0).expand(2,*{}.shape) {}.index_select(0,i%{}.shape[0]) {}.gather(0,zeros_like({}).long())
    {}.topk(2,-1)[1] {}.topk({}.shape[0],0,False)[1] {}.sort(-1,descending=True)[1] {}.argsort(0,descending=True) {}.kthvalue(1,-1)[1]
    {}.cummax(-1)[1] {}.cummin(0)[0] {}.mode(-1)[1] {}.topk(2,-1)[0]*{}.topk(2,-1)[1] {}.msort() {}.rot90(1,(0,1)) {}.fliplr()
    linalg.inv({}) linalg.det({}) linalg.qr({})[1] linalg.cholesky({}@{}.mT+eye({}.shape[0])) linalg.svdvals({}) linalg.pinv({})
    linalg.eigvalsh({}+{}.mT) linalg.slogdet({})[1] linalg.matrix_power({},2) linalg.vector_norm({},3,dim=-1) {}.quantile(0.5) {}.cov()
    fft.rfft({}).abs() fft.ifft({}).real special.i0({}) {}.abs().add(0.5).lgamma() {}.clamp(-0.9,0.9).erfinv() {}.clamp(0.1,0.9).logit()
    F.group_norm({}.reshape(1,-1,1),1) F.interpolate({}.reshape(1,1,-1),scale_factor=2) F.adaptive_avg_pool1d({}.reshape(1,1,-1),2)
    F.gumbel_softmax({},dim=-1) F.rrelu({}) F.alpha_dropout({},0.3) bucketize({},tensor([-0.5,0.0,0.5])) cumulative_trapezoid({})
    searchsorted({}.sort(-1)[0],{}) vander({}.flatten()[:3]) F.local_response_norm({}.reshape(1,2,-1),2) {}.nanmean(-1) {}.heaviside({})
    {}.median(-1)[1] {}.frexp()[1] {}.histc(4) {}.unfold(0,2,1).flip(0) {}.sort(0)[0].flip(0) {}.tensor_split(2)[1]*2
    {}.repeat_interleave(2,0) {}.diff() {}.logcumsumexp(-1) {}.renorm(2,0,1.0) {}.tile(2) {}.mT.softmax(-1) {}.hypot({}) {}.sgn()
""".split()
REDUCTIONS = """
    {}.sum() {}.mean() {}.sum(0) {}.sum(-1) {}.mean(-1,keepdim=True) {}.amax(-1) {}.amin() {}.var(-1) {}.std() {}.prod(-1) {}.norm()
    {}.logsumexp(-1) {}.argmax(-1) {}.any() {}.all(-1) {}.max(-1)[0] {}.min(0)[0] {}.max() {}.median() {}.count_nonzero() {}.topk(1,-1)[0]
    {}.sum((0,-1)) {}.norm(dim=-1) {}.sum(dtype=mytorch.float64) {}.argmin(0) {}.nansum() {}.var_mean(-1)[1] {}.aminmax()[1] {}.trace()
    F.cross_entropy({}.reshape(-1,{}.shape[-1]),zeros({}.numel()//{}.shape[-1]).long()) F.mse_loss({},zeros_like({}))
    F.binary_cross_entropy_with_logits({},({}>0).float()) F.smooth_l1_loss({},{}.detach()*2) F.kl_div({}.log_softmax(-1),{}.softmax(-1))
    F.l1_loss({},{}+1) F.nll_loss({}.reshape(-1,{}.shape[-1]).log_softmax(-1),zeros({}.numel()//{}.shape[-1]).long())
""".split()
VIEWS = """
    {}.transpose(0,-1) {}.reshape(-1) {}.view(-1) {}.flatten() {}.unsqueeze(0) {}.unsqueeze(-1) {}.squeeze() {}[0] {}[1:] {}[...,::2]
    {}[:,:1] {}[-1] {}[...,None] {}.mT {}.T {}.narrow(0,0,1) {}.chunk(2,0)[-1] {}.split(1,-1)[0] {}.unbind(0)[-1] {}.diagonal() {}.select(-1,0)
    {}.expand(2,*{}.shape) {}.reshape({}.shape[-1],-1) {}.permute(*reversed(range({}.ndim))) {}.view_as({}) {}.movedim(0,-1) {}.real
    {}[::2,1:] {}.unfold(0,2,1) {}.as_strided((2,2),(1,1)) {}[:0] {}.detach()[0] {}.ravel() {}.swapaxes(0,-1)
""".split()
BINARY = """
    {0}+{1} {0}-{1} {0}*{1} {0}/{1} maximum({0},{1}) minimum({0},{1}) {0}.abs()**{1}.clamp(-1,1) atan2({0},{1}) where({0}>{1},{0},{1})
    where(m,{0},{1}) {0}>{1} {0}=={1} {0}@{1} {0}@{1}.mT matmul({0}.mT,{1}) cat([{0},{1}]) cat([{0},{1}],-1) stack([{0},{1}]) F.mse_loss({0},{1})
    addcmul({0},{1},{1},value=0.5) lerp({0},{1},0.3) {0}.masked_fill({1}>0,0) {0}.type_as({1}) {0}.expand_as({1}) F.linear({0},{1})
    einsum('i...,j...->ij...',{0},{1}) outer({0}.flatten()[:4],{1}.flatten()[:4]) F.cosine_similarity({0},{1},dim=-1) {0}.dot({1})
    {0}+{1}.detach() {0}*{1}.sum() {0}*{1}.mean(-1,keepdim=True) {0}.index_add(0,i%{0}.shape[0],{1}) {0}.scatter(0,zeros_like({1}).long(),{1})
    {0}.scatter_add(-1,zeros_like({1}).long(),{1}) cdist({0},{1}) {0}.fmod({1}) {0}//({1}.abs()+1) ({0}+{1}).relu()*2 {0}.softmax(-1)@{1} logaddexp({0},{1})
    F.embedding(i%{0}.shape[0],{0}) {0}[i%{0}.shape[0]]*{1} {0}.put((i%3),{1}.flatten()[:i.numel()]) F.smooth_l1_loss({0},{1}) meshgrid({0}.flatten()[:3],{1}.flatten()[:3],indexing='ij')[0]
    F.scaled_dot_product_attention({0},{1},{1}) F.huber_loss({0},{1}) bmm({0},{1}.mT) addmm({0},{0},{1}) {0}.lerp({1},{1}) clamp({0},max={1})
    F.conv1d({0}.reshape(1,1,-1),{1}.reshape(1,1,-1)[...,:2]) F.avg_pool1d({0}.reshape(1,1,-1)+{1}.sum(),2) F.max_pool1d({0}.reshape(1,1,-1)*{1}.sum(),2)
    F.linear({0},{0},{1}.flatten()[:{0}.shape[0]]) F.conv1d({0}.reshape(1,1,-1),{1}.reshape(1,1,-1)[...,:2],{1}.flatten()[:1])
    linalg.solve_triangular({0}.triu(),{1},upper=True) linalg.solve({0},{1}) linalg.lstsq({0},{1})[0] kron({0},{1}) cross({0}[...,:3],{1}[...,:3])
    {0}.scatter_reduce(0,zeros_like({1}).long(),{1},'amax') {0}.index_reduce(0,i%{0}.shape[0],{1},'prod') {0}.take_along_dim({1}.argsort(-1),-1)
    F.triplet_margin_loss({0},{1},{1}*2) F.gaussian_nll_loss({0},{1},{1}.abs()+0.1) F.bilinear({0},{1},w[:1,:1,None]) F.pairwise_distance({0},{1})
    F.multi_head_attention_forward({0},{1},{1},1,1,None,None,None,None,False,0,w,None) baddbmm({0},{0},{1}) block_diag({0},{1}) {0}.true_divide({1})
    {0}.masked_scatter({1}>0,{1}) tensordot({0},{1},1) nextafter({0},{1}) copysign({0},{1}) xlogy({0}.abs(),{1}.abs())
    F.batch_norm({0},{1}[0].detach().clone(),{1}[0].detach().abs().clone(),training=True) F.prelu({0},{1}.flatten()[:1]) tensordot({0},{1},0)
""".split()
CHANGES = """
    {0}.add_({1}) {0}.mul_({1}) {0}.sub_(1) {0}.mul_(0.5) {0}.relu_() {0}.clamp_(-0.5,0.5) {0}.zero_() {0}.fill_(2) {0}.copy_({1}) {0}.exp_() {0}.neg_()
    {0}[0]={1} {0}[0]=1.5 {0}[...,::2]*=2 {0}[1:]+=1 {0}[:,0]={1} {0}+={1} {0}*={1} {0}-=0.1 {0}/=2 {0}.masked_fill_({0}>0,1) {0}.normal_() {0}.uniform_()
    {0}.addcmul_({1},{1}) {0}.lerp_({1},0.5) {0}.t_() {0}.unsqueeze_(0) {0}.squeeze_() {0}.transpose_(0,-1) {0}.bernoulli_(0.5) {0}.index_fill_(0,i%2,3) {0}[m]=0 {0}[i%2]=1
    {0}.index_add_(0,i%{0}.shape[0],{1}) {0}.scatter_(0,zeros_like({1}).long(),{1}) {0}.sigmoid_() {0}.tanh_() {0}.requires_grad_() {0}[i%2]+={1}[i%2]
    {0}.fill_diagonal_(1) {0}.round_() {0}.abs_() {0}.cumsum_(0) {0}.data.mul_(2) {0}.detach().add_(1) {0}.view(-1)[0]=3 {0}.mT.mul_(2) F.relu(  {0},inplace=True)
    F.dropout({0},0.5,inplace=True) {0}.random_(5) {0}.pow_(2) {0}.sqrt_() {0}.div_({1}.abs()+1)
""".split()
CREATED = """
    zeros(2,3) ones(3) arange(4) rand(2,3) randn(3) randint(0,5,(3,)) randperm(4) eye(3) full((2,2),0.5) linspace(0,1,3) tensor([1.0,2.0,3.0])
    tensor(2) rand(()) empty(0) normal(0.0,1.0,(2,3)) tensor([[True,False,True]]) rand(2,3,requires_grad=True) w.detach().clone() buf.clone() w*2 w@w.mT buf+1
    a.data*2 w.data+1 c0*1 tensor(K) a.new_tensor([1.0,2.0]) zeros(3,dtype=mytorch.float64) multinomial(ones(4),2)
""".split()


BACKWARD = """
    ({0}*{1}).sum().backward() {0}.square().sum().backward() (w*{0}.sum()).sum().backward() {0}.sum().backward(retain_graph=True)
    {0}.grad=None {0}.retain_grad() {0}.grad.zero_()
""".split()
GRADIENTS = """
    autograd.grad(({0}*{1}).sum(),{0})[0] autograd.grad(({0}*w.sum()).sum(),w)[0] {0}*{1}.grad where(tensor({1}.grad==None),{0},-{0})
""".split()


def statement(rng, names):
    """Returns the text of one random statement and the name that it defines, or None."""
    pick = lambda: rng.choice(names[-4:] if rng.random() < 0.6 else names)  # noqa: E731
    new = f"t{len(names)}"
    kind = rng.random()
    if kind < 0.3:
        text = f"{new} = {_fill(rng.choice(UNARY), pick())}"
    elif kind < 0.38:
        text = f"{new} = {_fill(rng.choice(REDUCTIONS), pick())}"
    elif kind < 0.52:
        text = f"{new} = {_fill(rng.choice(VIEWS), pick())}"
    elif kind < 0.76:
        text = f"{new} = {rng.choice(BINARY).format(pick(), pick())}"
    elif kind < 0.9:
        target = pick()
        change = rng.choice(CHANGES).format(target, pick())
        if rng.random() < 0.6:
            return f"{new} = {target} * 1; {change.replace(target, new, 1)}", new
        return change, None
    elif kind < 0.95:
        text = f"{new} = {rng.choice(CREATED)}"
    elif kind < 0.97:
        if rng.random() < 0.5:
            return rng.choice(BACKWARD).format(pick(), pick()), None
        text = f"{new} = {rng.choice(GRADIENTS).format(pick(), pick())}"
    else:
        inner = f"{new} = {_fill(rng.choice(UNARY), pick())}"
        blocks = "mytorch.no_grad() mytorch.enable_grad() mytorch.autocast('cpu')".split()
        return f"with {rng.choice(blocks)}: {inner}", new
    return text, new


def _fill(template, name):
    return template.replace("{}", name)


def _layout(x, kind):
    """Returns a tensor with the elements of x in another memory layout."""
    if kind == "permuted" and x.ndim > 1:
        return mytorch.tensor(np.ascontiguousarray(np.swapaxes(x, 0, -1))).transpose(0, -1)
    if kind == "strided" and x.ndim:
        wide = np.repeat(x, 2, -1)
        return mytorch.tensor(wide)[..., ::2]
    return mytorch.tensor(x)


def _in_memory_of(t, known):
    if t.dtype == mytorch.bfloat16:
        return False
    return any(np.may_share_memory(t.detach().numpy(), x) for x in known)


class Case:
    """A random program: its source, and functions that create its arguments and its state."""

    def __init__(self, seed, number):
        self.rng = rng = random.Random(f"{seed} {number}")
        dims = [1, 2, 3, 3, 4, 5] + [0] * (rng.random() < 0.15)
        last = rng.choice(dims)
        self.shapes = {}
        for name in "ab":
            self.shapes[name] = tuple(rng.choice(dims) for _ in range(rng.randint(0, 2))) + (last,) * (
                rng.random() < 0.95
            )
        self.kinds = {n: rng.choice("plain plain plain permuted strided".split()) for n in "ab"}
        self.dtypes = {n: rng.choice(["float32"] * 8 + ["float64", "float16"]) for n in "ab"}
        self.grads = {n: rng.random() < 0.5 for n in "abw"}
        self.graphs = {n: rng.random() < 0.1 for n in "ab"}  # arguments that are results of an operation
        self.earlier = {n: rng.random() < 0.2 for n in "ab"}  # arguments with a gradient
        self.last = last
        self.data_seed = rng.randrange(10**9)
        self.no_grad, self.alias, self.retain = rng.random() < 0.1, rng.random() < 0.4, rng.random() < 0.15
        self.lines = []
        names = ["a", "b", "w", "buf", "i", "m"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            space, args = self.state(), self.args(0)
            space.update(zip("abim", args, strict=True))
            for _ in range(rng.randint(1, 14)):
                text, new = statement(rng, names)
                try:
                    with np.errstate(all="ignore"):
                        exec(text, space)
                except Exception:
                    # an in-place statement can have had an effect
                    if new is None or ";" in text:
                        space, args = self.state(), self.args(0)
                        space.update(zip("abim", args, strict=True))
                        for line in self.lines:
                            exec(line, space)
                    continue
                if new is not None:
                    if not isinstance(space[new], mytorch.Tensor) or space[new].numel() > MOST:
                        continue
                    names.append(new)
                self.lines.append(text)
        made = [n for n in names if n[0] == "t"]
        outs = rng.sample(made, min(len(made), rng.randint(1, 3))) if made else []
        if made and made[-1] not in outs:
            outs.append(made[-1])
        if rng.random() < 0.1:
            outs.append(rng.choice(names))
        if rng.random() < 0.05:
            outs.append(rng.choice(["3", "None", "'x'", "a.shape"]))
        # Views of arguments run eagerly, so most programs return copies of them.
        known = [t.detach().numpy() for t in (*args, space["w"], space["buf"])]
        outs = [f"{n}*1" if n in made and rng.random() < 0.8 and _in_memory_of(space[n], known) else n for n in outs]
        result = outs[0] if len(outs) == 1 else ", ".join(outs) if outs else "a"
        if len(outs) > 1 and rng.random() < 0.2:
            result = "{" + ", ".join(f"'{n}': {n}" for n in outs if n.isidentifier()) + "}"
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {result}"])
        self.source = f"def program(a, b, i, m):\n{body}"

    def state(self):
        """Returns the global names of the program, with new parameters and buffers."""
        data = np.random.default_rng(self.data_seed)
        space = {n: getattr(mytorch, n, None) for n in dir(mytorch) if not n.startswith("_")}
        space.update(mytorch=mytorch, F=nn.functional, K=3)
        space["w"] = mytorch.tensor(
            data.standard_normal((3, self.last)).astype("float32"), requires_grad=self.grads["w"]
        )
        space["buf"] = mytorch.tensor(data.standard_normal(self.last).astype("float32"))
        space["c0"] = mytorch.tensor(data.standard_normal(3).astype("float32"))
        return space

    def args(self, call):
        """Returns the arguments of a call."""
        data = np.random.default_rng([self.data_seed, call])
        args, self.leaves = [], {}
        for n in "ab":
            x = _layout(data.standard_normal(self.shapes[n]).astype(self.dtypes[n]), self.kinds[n])
            x.requires_grad_(self.grads[n])
            if self.earlier[n] and (call + self.data_seed) % 3:
                x.grad = mytorch.ones_like(x)
            args.append(x * 1 if self.graphs[n] else x)
            self.leaves[f"leaf behind {n}"] = x
        ints = mytorch.tensor(data.integers(0, 6, (2,)))
        mask = mytorch.tensor(data.random(self.last) < 0.5)
        return [*args, ints, mask]

    adds_in_another_order = False

    def run(self, compiled):
        """Returns descriptions of all that the calls return and change."""
        space = self.state()
        exec(compile(self.source, "<program>", "exec"), space)
        function = space["program"]
        if compiled:
            function = mytorch.compile(function)
        found = []
        mytorch.manual_seed(5)
        for call in range(CALLS):
            found += self.call(function, self.args(call), space, np.random.default_rng([1, self.data_seed, call]))
        return found, function

    def call(self, function, args, space, data):
        known = {"w": space["w"], "buf": space["buf"], "c0": space["c0"], **dict(zip("abim", args, strict=True))}
        found = []
        try:
            with mytorch.set_grad_enabled(not self.no_grad):
                result = function(*args)
        except Exception as error:
            found.append(type(error).__name__)
            result = ()
        outs = list(result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else [result])
        try:
            tensors = [out for out in outs if isinstance(out, mytorch.Tensor) and [out.requires_grad]]
        except RuntimeError as error:  # a view whose base has another shape now
            return [*found, type(error).__name__]
        for k, out in enumerate(outs):
            if isinstance(out, mytorch.Tensor):
                same = [n for n, t in known.items() if t is out] + [j for j, o in enumerate(outs[:k]) if o is out]
                strides = [s for s, n in zip(out.stride(), out.shape, strict=True) if n > 1]
                found.append((f"out {k}", described(out), out.requires_grad, out.is_leaf, strides, same))
            else:
                found.append((f"out {k}", type(out), str(out)))
        roots = [out for out in tensors if out.requires_grad]
        if roots and data.random() < 0.95:
            used = [r for r in roots if data.random() < 0.8] or roots
            # Gradients with other strides than the output would be summed in another order than in the trace.
            upstream = [
                mytorch.empty_like(r, requires_grad=False).copy_(mytorch.tensor(data.standard_normal(tuple(r.shape))))
                for r in used
            ]
            # A compiled function adds its gradients for a tensor before the gradient from outside. The order does not depend on
            # the outputs that have a gradient. In half precision, it rounds wherever several outputs can have one.
            self.adds_in_another_order |= len(used) < len(roots) or any(r is t for r in used for t in known.values())
            try:
                for again in range(1 + self.retain):
                    mytorch.autograd.backward(used, upstream, retain_graph=self.retain and not again)
            except (
                Exception
            ) as error:  # it depends on the order of the nodes which gradients are added before the error
                return [*found, f"backward: {type(error).__name__}"]
        found += [
            (f"gradient of {n}", None if t.grad is None else described(t.grad.detach() + 0.0))  # zeros without sign
            for n, t in {**known, **self.leaves}.items()
            if t.is_leaf
        ]
        found += [(f"state of {n}", described(t)) for n, t in known.items()]
        if self.alias:
            with mytorch.no_grad():
                for out in tensors:
                    if out.dtype == mytorch.float32:
                        try:
                            out.mul_(1.25)
                        except Exception as error:
                            found.append(f"change: {type(error).__name__}")
            found += [(f"changed out {k}", described(out)) for k, out in enumerate(tensors)]
            found += [(f"changed {n}", described(t)) for n, t in known.items()]
        found.append(("random state", mytorch.rand(2).tolist()))
        return found


def described(t):
    return str(t.dtype), tuple(t.shape), Elements(t)


class Elements:
    """The elements of a tensor, which are compared with the tolerance of the class, or to the bit."""

    tolerance = 0

    def __init__(self, t):
        t = t.detach()
        self.array = (t.float() if t.dtype == mytorch.bfloat16 else t).numpy().copy()

    def __eq__(self, other):
        a, b = self.array, other.array
        if a.dtype.kind in "fc":
            a, b = (np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x) for x in (a, b))
        if a.tobytes() == b.tobytes():
            return True
        if not self.tolerance or a.dtype.kind not in "fc":
            return False
        tolerance = self.tolerance * (1000 if a.dtype == np.float16 else 1)
        finite = np.isfinite(b)
        scale = 1 + np.abs(b[finite]).max(initial=0)
        return np.array_equal(a[~finite], b[~finite], equal_nan=True) and bool(
            (np.abs(a - b)[finite] <= tolerance * scale).all()
        )

    def __repr__(self):
        return repr(self.array)


def difference(case, exact):
    """Returns a description of the first difference between both runs or None, and the compiled function.

    Machine code sums in another order, so its results are compared with a tolerance.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if exact:
            patch.setattr(native, "available", lambda: False)
        expected, _ = case.run(False)
        result, function = case.run(True)
        has_half = "half" in case.source or "float16" in case.dtypes.values()
        rounding = 0 if not case.adds_in_another_order else 1e-3 if has_half else 1e-6
        patch.setattr(Elements, "tolerance", rounding if exact else max(rounding, 1e-4))
        if len(expected) != len(result):
            only = [x for x in map(str, result) if x not in set(map(str, expected))][:3]
            return f"{len(result)} results, expected {len(expected)}; {only}", function
        for mine, theirs in zip(result, expected, strict=True):
            if mine != theirs:
                return f"expected {theirs}\n     got {mine}", function
    return None, function


@pytest.mark.cpu_only
@pytest.mark.parametrize("code", ["numpy", "machine code"])
def test_random_programs_give_the_eager_results(code):
    count = COUNT if code == "numpy" else COUNT // 2
    failed, traced, reasons = [], 0, Counter()
    for number in range(count):
        case = Case(SEED, number)
        problem, function = difference(case, code == "numpy")
        traced += bool(function._mt_regions.programs)
        reasons.update(
            map(
                str,
                [
                    *function._mt_regions.reasons,
                    *[r.reason for rs in function._mt_regions.known.values() for r in rs if r.reason],
                ],
            )
        )
        if problem:
            failed.append(f"--- program {number}\n{case.source}{problem}")
    assert not failed, f"{len(failed)} of {count}\n" + "\n".join(failed[:10])
    assert traced > count / 5, f"only {traced} of {count} programs have regions; the others: {reasons.most_common()}"


def main():
    """Shows the programs of a seed that give other results, and the reasons for which programs run eagerly."""
    exact = "--exact" in sys.argv
    seed, start, *stop = [a for a in sys.argv[1:] if a != "--exact"]
    start = int(start)
    numbers = range(start, int(stop[0]) if stop else start + 1)
    reasons, failures = Counter(), 0
    for number in numbers:
        case = Case(seed, number)
        problem, function = difference(case, exact)
        reasons.update(explain(function).splitlines()[:1])
        failures += bool(problem)
        if problem or not stop:
            print(f"--- program {number}\n{case.source}{problem}\n{explain(function)}", flush=True)
    print(f"{len(numbers)} programs, {failures} differ", *reasons.most_common(), sep="\n")


if __name__ == "__main__":
    main()


def _index_out_of_range(x, i):
    x.put(i, x[:1])
    return x * 2


def _no_probability(x, i):
    mytorch.bernoulli(x * i[0])
    return x * 2


@pytest.mark.cpu_only
@pytest.mark.parametrize("program", [_index_out_of_range, _no_probability])
def test_operations_whose_results_are_not_used_raise_their_errors(program):
    compiled = mytorch.compile(program)
    x, good = mytorch.tensor([0.5, 1.0]), mytorch.tensor([1])
    for _ in range(3):
        assert compiled(x, good).tolist() == [1.0, 2.0]
    for function in (program, compiled):
        with pytest.raises((IndexError, RuntimeError)):
            function(x, mytorch.tensor([2]))


@pytest.mark.cpu_only
def test_views_can_be_differentiated_again_after_a_backward_pass_in_the_function():
    w = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)

    @mytorch.compile
    def program():
        column = w.select(-1, 0)
        (column * column).sum().backward()
        return column * 1

    for _ in range(3):
        w.grad = None
        program().sum().backward()
        assert w.grad.tolist() == [[3.0, 0.0], [7.0, 0.0]]
