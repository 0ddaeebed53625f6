"""Arguments, dtypes and special values of functions of DTensors, against the same expressions of plain tensors.

An expression has the value, the shape, the dtype and the gradients of plain tensors, or it raises an error on all ranks. Copies
of one tensor stay equal, although each rank has other random numbers.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np
from dtensor_functions import REFUSED, meshes, placements_of

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch.distributed.tensor import DTensor, Replicate, distribute_tensor

DTYPES = "float32 float32 float64 float16 bfloat16 int64 int32 int8 uint8 bool complex64".split()
DIMS = "0 -1 1 None (0,) (0,-1) () [0,1] [-1]".split()
# Expressions of a tensor `a` and a tensor `b` that broadcasts with it, or has its shape. {k} is a dimension, {d} one or several.
ONE = """
    abs(a) neg(a) -a sign(a) a.sgn() sqrt(a) exp(a) a**2 a**-1 a**0.5 2**a a+1 a+1.5 a*2 a*0 a*0.5 a*-1 a*float('inf') a*float('nan') a/2
    a/0 a/0.0 a//2 a%3 a&1 a|2 a^1 ~a 1-a 1/a a-1 a-0.5 a*True a+True a*2j a==0 a!=0 a>0 a.bool() a.int() a.long() a.float() a.double()
    a.half() a.bfloat16() a.to(L.float64) a.to(L.int32) a.to('cpu') a.type(L.float64) a.type_as(L.zeros(1,dtype=L.float64)) a.clamp(0)
    a.clamp(max=1) a.clamp(-1,1) a.clamp_min(0) a.clamp_max(1.5) a.clip(0,2) a.round(decimals=1) a.round() a.nan_to_num()
    a.nan_to_num(nan=2.0,posinf=3.0) a.logical_not() a.isnan() a.isinf() a.isfinite() zeros_like(a) ones_like(a) full_like(a,2)
    zeros_like(a,dtype=L.float64) full_like(a,True) a.clone() a.contiguous() a.div(2,rounding_mode='floor') a.div(2,rounding_mode='trunc')
    a.div(0.5) a.add(2,alpha=3) a.sub(2,alpha=3) a.mul(other=3) L.rsub(a,2) L.rsub(a,2,alpha=3) a.masked_fill(a>0,1) L.where(a>0,a,0)
    L.where(a>0,a,-a) L.where(a>0,1.0,a) a.real a.imag a.conj() a.angle() a.sin() a.tanh() a.sigmoid() a.reciprocal() a.rsqrt() a.log()
    a.log1p() a.floor() a.ceil() a.trunc() a.frac() F.relu(a) F.gelu(a) F.gelu(a,approximate='tanh') F.silu(a) F.elu(a,0.5)
    F.leaky_relu(a,0.3) F.softplus(a,2,5) F.hardtanh(a,-1,0.5) F.threshold(a,0.1,20) F.celu(a,0.5) F.hardshrink(a,0.2) F.softshrink(a,0.2)
    F.tanhshrink(a) F.prelu(a,L.tensor([0.25])) F.relu6(a) F.logsigmoid(a) F.softsign(a) F.dropout(a,0.0) F.dropout(a,1.0)
    F.dropout(a,0.5,False) F.relu(a*1,inplace=True) F.elu(a*1,0.5,True) F.leaky_relu(a*1,0.1,inplace=True) F.hardtanh(a*1,-1,1,True)
    F.threshold(a*1,0.5,2,True) F.silu(a*1,inplace=True) F.dropout(a*1,1.0,True,True) a+a a-a a*a a+a*2 (a-a).sum() (a+a).mean()
    (a*3+a).sum(0) (a.sum()-a).abs() a.sum()*a a-a.mean() (a/2).sum() (-a).amax() (a*0.5).mean(-1) a.sum()+a.sum() a.sum(0)+a.sum(0)
    a.mean(0)*2-a.mean(0) a.sum(0).abs() (a.sum(0)*2).relu() a.sum(-1)/3 (a.sum(0)+1).sum() a.sum(0).sum() a.mean(-1).sum() a.sum(0).mean()
    a.sum(-1).unsqueeze(-1)*a a.sum(0).to(L.float64) a.sum(0).half() a.sum(0).int() a.sum(0).bool() a.mean(0).long() a.sum(0).clone()
    a.sum().neg() a.sum(0)*a.sum(0) a.sum().sqrt() a.sum(0).reshape(-1) a.sum(0).unsqueeze(0).T
""".split()
CHANGES = """
    add_(2) add_(1.5) sub_(1) mul_(2) mul_(0.5) mul_(-1.0) div_(2) pow_(2) clamp_(0) clamp_(max=1) clamp_(0,1) clamp_min_(0) clamp_max_(1)
    neg_() abs_() sqrt_() exp_() relu_() square_() reciprocal_() sigmoid_() tanh_() round_() nan_to_num_() zero_() fill_(3) fill_(1.5)
    fill_(True) masked_fill_(b>0,2) masked_fill_(b>0,1.5) add_(b) add_(b,alpha=2) sub_(b) sub_(b,alpha=2) mul_(b) div_(b)
    div_(b,rounding_mode='floor') addcmul_(b,b) addcmul_(b,b,value=2) addcdiv_(b,b,value=0.5) lerp_(b,0.5) lerp_(b,b) copy_(b) clamp_(b)
    clamp_(max=b) pow_(b) floor_() ceil_() __iadd__(b) __imul__(2) __isub__(b) __itruediv__(2) __ipow__(2) __ifloordiv__(2) __imod__(3)
    __iand__(1) __ior__(1) logical_not_() eq_(1) fmod_(2) remainder_(2) floor_divide_(2) rsqrt_() log_() sin_() erf_() sign_() trunc_()
    bitwise_not_() log1p_() expm1_() frac_() copysign_(-1.0) maximum(b) float_power_(2) squeeze_() unsqueeze_(0) t_() transpose_(0,-1)
    index_fill_(0,L.tensor([0]),1) index_add_(0,L.tensor([0]),b) scatter_(0,L.tensor([[0]]),1) cumsum_(0) tril_() fill_diagonal_(1)
    requires_grad_() detach_() leaky_relu_(0.1) swapaxes_(0,-1) put_(L.tensor([0]),L.tensor([1]))
""".split()
METHODS = """
    sum({d}) sum() sum({d},True) sum({d},keepdim=True) sum(dim={d}) sum({d},dtype=L.float64) sum(dtype=L.float64) sum(dtype=L.int32)
    sum({d},dtype=L.float16) mean({d}) mean() mean({d},True) mean({d},dtype=L.float64) mean(dtype=L.float64) mean(dtype=L.float32)
    mean({d},True,dtype=L.float64) prod({k}) prod() prod({k},True) prod({k},dtype=L.float64) prod(dtype=L.float64) all() all({d})
    all({k},True) any() any({d}) any({k},keepdim=True) amax({d}) amax({d},True) amin({d}) amin() max({k})[0] max({k})[1] min({k},True)[1]
    max({k},keepdim=True).values min(dim={k}).indices argmax() argmax({k}) argmax({k},True) argmax(keepdim=True) argmin({k})
    argmin({k},keepdim=True) max() min() var() var({d}) var({d},False) var({d},correction=0) var({d},correction=2,keepdim=True) var(False)
    var(unbiased=False) var({d},True,True) std({d},False) std({d},unbiased=False,keepdim=True) std() std(correction=0) norm() norm(1)
    norm(2,{k}) norm(p=1,dim={d}) norm(3,{k},True) norm('fro') norm(float('inf'),{k}) norm(0) norm(-1,{k}) norm(2,{k},dtype=L.float64)
    norm('nuc') norm('fro',(0,1)) logsumexp({d}) logsumexp({k},True) median() median({k})[0] median({k},True)[1] nanmedian({k})[0]
    nansum({d}) nansum() nanmean({d}) nansum({d},dtype=L.float64) count_nonzero() count_nonzero({k}) count_nonzero({d}) cumsum({k})
    cumsum({k},dtype=L.float64) cumsum(dim={k}) cumprod({k}) cumprod({k},dtype=L.float64) cummax({k})[0] cummax({k})[1] cummin({k})[1]
    logcumsumexp({k}) softmax({k}) softmax({k},dtype=L.float64) log_softmax({k}) log_softmax({k},L.float64) argsort({k}) argsort({k},True)
    argsort(descending=True,dim={k}) sort({k})[1] sort({k},True)[0] sort(descending=True)[1] sort(stable=True,dim={k})[1]
    sort(dim={k},descending=True)[0] topk(1)[1] topk(1,{k})[0] topk(1,{k},False)[1] topk(k=1,dim={k},largest=False)[0] kthvalue(1,{k})[0]
    mode({k})[0] aminmax(dim={k})[0] quantile(0.5,{k}) unique() unique(dim=0) nonzero() trace() diff() diff(dim={k}) flip({k}) flip((0,))
    roll(1,{k}) roll((1,),({k},)) roll(-1) tril() tril(-1) triu(1) tril(diagonal=1) std({d}) trapezoid() bincount() histc(3) dist(a)
    renorm(2,{k},1.0) cov() corrcoef() squeeze() squeeze({k}) squeeze((0,-1)) unsqueeze({k}) repeat_interleave(2,{k}) repeat_interleave(2)
    repeat(2,1) tile((2,)) expand(2,-1,-1) expand(-1,3) diagonal() diag() diag_embed() rot90() fliplr() flipud() movedim(0,-1)
    moveaxis((0,1),(1,0)) permute(1,0) permute((-1,0)) transpose(0,{k}) swapdims(0,{k}) mT T H mH adjoint() t() ravel() flatten()
    flatten(0,{k}) unflatten(0,(-1,1)) reshape(-1) reshape((-1,)) reshape(-1,1) reshape(1,-1) view(-1) view(1,-1) view(*a.shape[::-1])
    reshape(a.shape[::-1]) view(L.uint8) view(L.float32) view_as(a) reshape_as(a) expand_as(a) split(1)[0] split(2,{k})[-1]
    split([1],{k})[0] split(1,dim={k})[-1] split(split_size=2)[0] chunk(2)[1] chunk(2,{k})[0] chunk(3,dim={k})[-1] unbind()[0]
    unbind({k})[-1] unbind(dim={k})[0] select({k},0) select({k},-1) select(dim=0,index=0) narrow({k},0,1) narrow(dim=0,start=0,length=1)
    narrow({k},-1,1) tensor_split(2,{k})[1] hsplit(1)[0] unfold({k},1,1) index_select({k},L.tensor([0]))
    index_select(dim={k},index=L.tensor([0,0])) take_along_dim(L.tensor([[0]]),{k}) gather({k},a.long()*0) gather({k},L.zeros(1,1).long())
    take(L.tensor([0])) masked_select(a>0) scatter({k},L.tensor([[0]]),1) index_fill({k},L.tensor([0]),1) index_add({k},L.tensor([0]),a)
    put(L.tensor([0]),L.tensor([1])) nan_to_num() isclose(a) allclose(a) equal(a) lerp(a,0.5) item() tolist() numel() size() size({k})
    element_size() dim() is_floating_point() is_complex() long() is_signed() __getitem__(0) __getitem__(-1) __getitem__(slice(1,None))
    __getitem__(slice(None,None,2)) __getitem__((slice(None),0)) __getitem__((slice(None),slice(1,None))) __getitem__((...,0))
    __getitem__((...,slice(0,1))) __getitem__((...,None)) __getitem__((None,)) __getitem__(None) __getitem__((slice(None),None))
    __getitem__([0]) __getitem__([0,-1]) __getitem__((slice(None),[0])) __getitem__(L.tensor([0,0])) __getitem__(L.tensor(0))
    __getitem__((slice(None),L.tensor([0]))) __getitem__(True) __getitem__(a>0) __getitem__((a>0)) __getitem__((slice(None),slice(None)))
    __getitem__(()) __getitem__((slice(0,-1),...)) __getitem__((slice(-1,None),slice(None))) __getitem__((0,0)) __getitem__(np.array([0]))
    __getitem__((slice(None),slice(None,None,-1)))
""".split()
TWO = """
    a+b a-b a*b a/b a//b a%b a**b a&b a|b a^b a<<b a>>b a==(b) a<b a>=b maximum(a,b) minimum(a,b) fmod(a,b) remainder(a,b) atan2(a,b)
    where(a>0,a,b) where(b>0,a,b) a.masked_fill(b>0,1) a.masked_fill(b>0,L.tensor(1)) a.type_as(b) a.to(b) a.to(b.dtype) lerp(a,b,0.5)
    lerp(a,b,b) add(a,b,alpha=2) sub(a,b,alpha=2) L.rsub(a,b,alpha=2) div(a,b,rounding_mode='floor') div(a,b,rounding_mode='trunc')
    logical_and(a,b) logical_or(a,b) logical_xor(a,b) copysign(a,b) heaviside(a,b) xlogy(a,b) hypot(a,b) logaddexp(a,b) fmax(a,b) fmin(a,b)
    clamp(a,b) clamp(a,max=b) clamp(a,b,b+1) isclose(a,b) ldexp(a,b) gcd(a,b) nextafter(a,b) addcmul(a,b,b) addcmul(a,b,a,value=2)
    addcdiv(a,b,b) float_power(a,b) true_divide(a,b) floor_divide(a,b) bitwise_and(a,b) eq(a,b) allclose(a,b) equal(a,b) max(a,b) min(a,b)
    dist(a,b) cat([a,b]) cat([a,b],-1) cat((a,b),dim=-1) stack([a,b]) hstack([a,b]) vstack([a,b]) outer(a.flatten(),b.flatten()) kron(a,b)
    einsum('ij,ij->i',a,b) einsum('ij,ij',a,b) einsum('ij,kj->ik',[a,b]) tensordot(a,b,2) cdist(a,b) a.expand_as(b) a.reshape_as(b)
    broadcast_tensors(a,b)[0] a@b.mT a.mT@b matmul(a,b.T) mm(a,b.t()) a.mm(b.T) a@b[0] a[0]@b.T a[0]@b[0] mv(a,b[0]) dot(a[0],b[0])
    bmm(a[None],b.T[None]) a[None]@b.T a@b.T[None] addmm(a.sum(),a,b.T) addmm(a,a,b.T) addmv(a[:,0],a,b[0])
    baddbmm(a[None],a[None],b.T[None]) inner(a,b) vdot(a[0],b[0]) chain_matmul(a,b.T) linalg.multi_dot([a,b.T]) F.linear(a,b)
    F.linear(a,b,b[:,0]) F.linear(a[0],b) F.linear(a[None],b) F.linear(a,b[0]) F.linear(a,b,b.sum()) F.linear(input=a,weight=b)
    F.bilinear(a,a,b[None]) F.mse_loss(a,b) F.mse_loss(a,b,reduction='sum') F.mse_loss(a,b,reduction='none') F.mse_loss(a,b,weight=b.abs())
    F.mse_loss(a,b,None,None,'sum') F.mse_loss(a,b,reduction='x') F.mse_loss(a,b,size_average=False) F.l1_loss(a,b)
    F.l1_loss(a,b,weight=b.abs()) F.smooth_l1_loss(a,b,beta=0.5) F.smooth_l1_loss(a,b,'sum') F.smooth_l1_loss(a,b,reduction='none',beta=0.0)
    F.huber_loss(a,b,delta=0.5) F.huber_loss(a,b,'sum',0.5) F.huber_loss(a,b,weight=b.abs()) F.binary_cross_entropy(a.sigmoid(),b.sigmoid())
    F.binary_cross_entropy(a.sigmoid(),b.sigmoid(),b.abs()) F.binary_cross_entropy(a.sigmoid(),b.sigmoid(),weight=b.abs(),reduction='sum')
    F.binary_cross_entropy_with_logits(a,b.sigmoid()) F.binary_cross_entropy_with_logits(a,b.sigmoid(),weight=b.abs())
    F.binary_cross_entropy_with_logits(a,b.sigmoid(),pos_weight=b[0].abs())
    F.binary_cross_entropy_with_logits(a,b.sigmoid(),reduction='sum',pos_weight=b[0].abs()) F.kl_div(a,b.softmax(-1),reduction='sum')
    F.kl_div(a,b,log_target=True,reduction='batchmean') F.kl_div(a,b.softmax(-1)) F.cosine_similarity(a,b) F.cosine_similarity(a,b,dim=-1)
    F.cosine_embedding_loss(a,b,L.tensor(1)) F.poisson_nll_loss(a,b) F.gaussian_nll_loss(a,b,b.abs()) F.margin_ranking_loss(a,b,b.sign())
    F.hinge_embedding_loss(a,b.sign()) F.soft_margin_loss(a,b.sign()) F.triplet_margin_loss(a,b,b+1) F.pairwise_distance(a,b)
    F.cross_entropy(a,b.softmax(-1)) F.cross_entropy(a,b.long().abs()[:,0]%a.shape[1])
    F.cross_entropy(a,b.long().abs()[:,0]%a.shape[1],a[0].detach().abs())
    F.cross_entropy(a,b.long()[:,0]%a.shape[1],reduction='sum',label_smoothing=0.1)
    F.cross_entropy(a,b.long()[:,0]%a.shape[1],ignore_index=1,reduction='none') F.cross_entropy(a,b.long()[:,0]%a.shape[1],None,None,0)
    F.cross_entropy(a,b.long()[:,0]%a.shape[1],None,False) F.cross_entropy(a,b.long()[:,0]%a.shape[1],size_average=False)
    F.cross_entropy(a,b.long()[:,0]%a.shape[1],reduce=False) F.nll_loss(a.log_softmax(-1),b.long()[:,0]%a.shape[1])
    F.nll_loss(a.log_softmax(-1),b.long()[:,0]%a.shape[1],ignore_index=0) F.linear_cross_entropy(a,b,b.long()[:,0]%a.shape[0])
    F.multi_margin_loss(a,b.long()[:,0]%a.shape[1]) F.multilabel_soft_margin_loss(a,b.sigmoid())
    F.ctc_loss(a[None],b.long(),L.tensor([1]),L.tensor([1])) F.layer_norm(a,(a.shape[-1],),b[0]) F.layer_norm(a,a.shape[-1:],b[0],b[0])
    F.layer_norm(a,(a.shape[-1],),None,b[0]) F.layer_norm(a,[a.shape[-1]],eps=0.5) F.layer_norm(a,a.shape)
    F.rms_norm(a,(a.shape[-1],),b[0],0.1) F.rms_norm(a,a.shape,b) F.group_norm(a,1) F.group_norm(a,1,b[0]) F.instance_norm(a[None])
    F.batch_norm(a,None,None,training=True) F.batch_norm(a,b[0].detach().abs(),b[0].detach().abs()) F.normalize(a) F.normalize(a,1)
    F.normalize(a,2,0) F.normalize(a,p=1,dim=-1,eps=1.0) F.normalize(a,2.0,-1,1.0) F.softmax(a,-1) F.softmax(a,dim=0)
    F.softmax(a,-1,3,L.float64) F.log_softmax(a,-1,dtype=L.float64) F.softmin(a,-1) F.glu(a) F.glu(a,0) F.pad(a,(1,1))
    F.pad(a,(1,1,0,2),value=1.5) F.pad(a,(-1,0)) F.pad(a,(1,1),'constant',2) F.pad(a[None],(1,1),mode='reflect')
    F.pad(a[None],(0,0,1,1),mode='circular') F.one_hot(a.long().abs()) F.embedding(a.long()%b.shape[0],b)
    F.embedding(a.long()%b.shape[0],b,0) F.embedding(a.long()%b.shape[0],b,None,1.0) F.embedding(a.long()%b.shape[0],b,None,None,2.0,True)
    F.embedding_bag(a.long()%b.shape[0],b) F.scaled_dot_product_attention(a[None],b[None],b[None])
    F.scaled_dot_product_attention(a[None],a[None],b[None],is_causal=True) F.scaled_dot_product_attention(a[None],b[None],b[None],scale=2.0)
    F.scaled_dot_product_attention(a[None],b[None],b[None],None,0.0,True)
    F.scaled_dot_product_attention(a[None,None],b[None,None],b[None,None],attn_mask=L.tensor([[True]]))
    F.scaled_dot_product_attention(a[None,None],b[None,None],b[None,None],attn_mask=(a@b.T)) F.conv1d(a[None],b[:,:,None])
    F.conv1d(a[None],b.T[:,:,None]) F.max_pool1d(a[None],1) F.interpolate(a[None],scale_factor=2) F.unfold(a[None,None],1)
    F.avg_pool1d(a[None],1)
""".split()
RANDOM = """
    F.dropout(a,0.5) F.alpha_dropout(a,0.5) F.dropout1d(a,0.5) F.rrelu(-a,training=True) F.gumbel_softmax(a)
    F.scaled_dot_product_attention(a,a,a,dropout_p=0.5) F.scaled_dot_product_attention(a,a,a,None,0.5)
    F.fractional_max_pool2d(a,2,output_size=2) a.bernoulli(0.5) L.rand_like(a) L.randn_like(a) L.randint_like(a,5) L.normal(a,1.0)
    L.poisson(a) L.binomial(a.round(),a/24) (a*1).random_(5) (a*1).normal_() (a*1).uniform_() (a*1).exponential_() (a*1).cauchy_()
    (a*1).geometric_(0.5) (a*1).bernoulli_(0.5) L.multinomial(a[0]+1,2) L.nn.init.xavier_normal_(a*1) L.svd_lowrank(a[0],2)[0]
    L.pca_lowrank(a[0],2)[0] F.dropout(a*1,0.5,inplace=True)
""".split()
# Expressions whose options or values once gave another result; each one is drawn several times.
FOUND = """
    F.embedding(a.long()%b.shape[0],b) F.embedding(a.long()%b.shape[0],b,0) F.cross_entropy(a,b.long()[:,0]%a.shape[1],None,False)
    F.cross_entropy(a,b.long()[:,0]%a.shape[1]) F.cross_entropy(a,b.long()[:,0]%a.shape[1],reduce=False) F.mse_loss(a,b,weight=b.abs())
    F.l1_loss(a,b,weight=b.abs()) F.huber_loss(a,b,weight=b.abs(),reduction="sum") F.mse_loss(a,b,reduction="x") F.mse_loss(a,b[:1])
    a.mean(0) a.mean(-1,True) a.any(()) a.all(()) a.norm("nuc") a.sum(dtype=L.int32) a.sum(0,dtype=L.int64) a.nansum(0) a[a>0] a.amax(0)
    (a*1) a.abs() a.clamp_min(0)
""".split()
NAMES = {name: getattr(mytorch, name) for name in dir(mytorch) if not name.startswith("_")}
NAMES |= {"L": mytorch, "F": F, "np": np, "max": mytorch.max, "min": mytorch.min, "abs": mytorch.abs}


def expression(draw):
    """Returns the text of an expression."""
    kind = draw.integers(5)
    if kind == 0:
        return str(draw.choice(ONE))
    if kind == 1:
        return f"(lambda t: (t, t.{draw.choice(CHANGES)})[{draw.integers(2)}])(a*1)"
    if kind == 4:
        return str(draw.choice(TWO))
    text = str(draw.choice(METHODS)).replace("{d}", str(draw.choice(DIMS)))
    return "a." + text.replace("{k}", str(draw.choice(["0", "-1", "1"])))


def values(draw, shape, dtype):
    """Returns a tensor of small numbers, in which one number can be infinite, NaN or a zero."""
    if dtype in ("bool", "uint8"):
        raw = draw.integers(0, 2 if dtype == "bool" else 4, shape)
    elif "int" in dtype:
        raw = draw.integers(-3, 4, shape)
    else:
        kind = draw.integers(4)
        raw = np.array(draw.normal(size=shape) if kind else draw.integers(-2, 3, shape).astype(float))
        if kind == 3 and raw.size:
            raw.reshape(-1)[draw.integers(raw.size)] = draw.choice([np.nan, np.inf, -np.inf, -0.0, 0.0])
    return mytorch.from_numpy(np.array(raw)).to(getattr(mytorch, dtype))


def placed(draw, mesh, x):
    """Returns placements; Partial only with sums and extremes that the dtype has."""
    allowed = (
        ("sum", "avg", "max", "min")
        if x.is_floating_point()
        else ("sum",)
        if x.is_complex()
        else ()
        if x.dtype is mytorch.bool
        else ("sum", "max", "min")
    )
    found = placements_of(draw, mesh, x.ndim)
    return [p if not p.is_partial() or p.reduce_op in allowed else Replicate() for p in found]


def distributed(x, mesh, placements):
    """(leaf, tensor) with the placements; a partial sum is computed from a leaf."""
    first = [Replicate() if p.is_partial() else p for p in placements]
    leaf = distribute_tensor(x.detach().clone().requires_grad_(x.requires_grad), mesh, first, src_data_rank=None)
    return leaf, leaf if first == placements else leaf.redistribute(placements=placements)


def difference(found, wanted):
    """Returns the description of a difference between a tensor, or another value, and the one of plain tensors."""
    if not isinstance(wanted, mytorch.Tensor):
        close = found == wanted or (type(wanted) in (float, complex) and np.allclose(found, wanted, equal_nan=True))
        return None if close else f"{found}, not {wanted}"
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    for t in (found, whole):
        if (tuple(t.shape), t.dtype) != (tuple(wanted.shape), wanted.dtype):
            return f"{t.dtype} {tuple(t.shape)}, not {wanted.dtype} {tuple(wanted.shape)}"
    if whole.requires_grad != wanted.requires_grad:
        return f"requires_grad is {whole.requires_grad}"
    kind = mytorch.complex128 if wanted.is_complex() else mytorch.float64
    x, y = (np.asarray(t.detach().to(kind).resolve_conj()) for t in (whole, wanted))
    tolerance = {mytorch.float16: 4e-3, mytorch.bfloat16: 3e-2}.get(wanted.dtype, 2e-4)
    wrong = ~np.isclose(x, y, tolerance, tolerance / 4, equal_nan=True)
    return f"{x[wrong][:6]}, not {y[wrong][:6]}" if wrong.any() else None


def flat(value):
    return [x for item in value for x in flat(item)] if isinstance(value, (list, tuple)) else [value]


def evaluated(text, a, b):
    """(results, error)"""
    try:
        return flat(eval(text, NAMES, {"a": a, "b": b})), None
    except Exception as error:
        return [], error


def differentiated(tensors, draw):
    """Returns the tensors that are differentiated, and gradients of them."""
    chosen = [i for i, t in enumerate(tensors) if isinstance(t, mytorch.Tensor) and t.requires_grad]
    return chosen, [mytorch.from_numpy(draw.normal(size=tuple(tensors[i].shape))).to(tensors[i].dtype) for i in chosen]


def one_expression(draw, text=None):
    """None, or the description of a difference."""
    text, mesh = text or expression(draw), MESHES[draw.integers(len(MESHES))]
    ndim = 2 if text in FOUND else draw.choice([0, 1, 2, 2, 2, 3])
    shape = tuple(int(draw.choice([0, 1, 2, 3, 4, 5, 7])) for _ in range(ndim))
    other = tuple(1 if draw.random() < 0.4 else k for k in shape[draw.integers(0, len(shape) + 1) :])
    dtype = str(draw.choice(DTYPES))
    a = values(draw, shape, dtype)
    b = values(
        draw, other if draw.random() < 0.3 else shape, dtype if draw.random() < 0.6 else str(draw.choice(DTYPES))
    )
    records = bool(draw.integers(2))
    for t in (a, b):
        t.requires_grad_(records and (t.is_floating_point() or t.is_complex()))
    where = [placed(draw, mesh, t) for t in (a, b)]
    told = f"{text} of {a.dtype} {shape} {where[0]}, {b.dtype} {tuple(b.shape)} {where[1]}, mesh {tuple(mesh.shape)}"
    wanted, problem = evaluated(text, a, b)
    if "ZeroDivision" in str(problem) or "should be between" in str(
        problem
    ):  # only the ranks with such elements raise it
        return None
    chosen, grads = differentiated(wanted, draw)
    no_backward = None
    if chosen:
        try:
            mytorch.autograd.backward([wanted[i] for i in chosen], grads)
        except Exception as error:
            no_backward = error
    made = [distributed(t, mesh, p) for t, p in zip((a, b), where, strict=True)]
    found, error = evaluated(text, made[0][1], made[1][1])
    if error is not None:
        known = any(word in str(error) for word in REFUSED) or isinstance(error, NotImplementedError)
        return None if known or problem is not None else f"{told}: {type(error).__name__} {error}"
    if problem is not None:
        return f"{told}: no error, a plain tensor has {type(problem).__name__} {problem}"
    COUNTS[0] += 1
    fault = next((d for d in map(difference, found, wanted) if d), None)
    if fault or len(found) != len(wanted):
        return f"{told}: {fault}"
    try:
        outputs = [found[i].full_tensor() if isinstance(found[i], DTensor) else found[i] for i in chosen]
        if outputs:
            mytorch.autograd.backward(outputs, grads)
    except Exception as error:
        return None if no_backward is not None else f"{told}: backward raises {type(error).__name__} {error}"
    if no_backward is not None:
        return f"{told}: backward without {no_backward!r}"
    for t, (leaf, _) in zip((a, b), made, strict=True):
        fault = (t.grad is None) != (leaf.grad is None) and f"{leaf.grad}, not {t.grad}"
        fault = fault or (t.grad is not None and difference(leaf.grad, mytorch.Tensor._of(t.grad)))
        if fault:
            return f"{told}: gradient: {fault}"
    return None


MESHES, COUNTS = [], [0]


def one_random_expression(draw):
    """None, or the description of a result whose copies differ."""
    text, mesh = str(draw.choice(RANDOM)), MESHES[draw.integers(len(MESHES))]
    leaf = mytorch.arange(24.0).reshape(1, 4, 6)
    where = placed(draw, mesh, leaf)
    mytorch.manual_seed(dist.get_rank())
    found, _ = evaluated(text, distributed(leaf, mesh, where)[1], None)
    mytorch.manual_seed(0)
    for d in found:
        if not isinstance(d, DTensor):
            continue
        for i, p in enumerate(d.placements):
            copies = [None] * mesh.size(i)
            dist.all_gather_object(copies, d.to_local().tolist(), mesh.get_group(i))
            if p.is_replicate() and any(c != copies[0] for c in copies):
                return f"{text} of {where}: the copies {d.placements} differ"
    return None


def check_generated_arguments_of_dtensors():
    MESHES[:], COUNTS[0] = meshes(), 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        faults = checks.sweep(one_expression, 250, 0)
        for i, text in enumerate(FOUND):
            faults += checks.sweep(lambda draw, text=text: one_expression(draw, text), 6, i)
        faults += checks.sweep(one_random_expression, 60, 1)
    assert not faults, "\n".join(faults[:5])
    assert COUNTS[0] > 150, COUNTS


if __name__ == "__main__":  # dtensor_arguments.py COUNT SEED: a longer run
    dist.init_process_group()
    MESHES[:] = meshes()
    warnings.simplefilter("ignore")
    longer = checks.sweep(one_expression, int(sys.argv[1]), int(sys.argv[2]))
    if dist.get_rank() == 0:
        print(f"{len(longer)} faults", *longer[:20], sep="\n- ")
    dist.destroy_process_group()
