"""Functions of neural networks, usually imported as `F`. They are defined in `mytorch.ops`."""

from .. import _extensions, ops
from ..arrays.arguments import described as _described
from ..ops import multihead
from ..ops.dispatch.bind import found_by_pickle as _found_by_pickle
from ..ops.dispatch.bind import public_function as _public_function
from . import linear_cross_entropy as _losses

__path__: list[str] = []  # for `torch.nn.functional.grad`, which is nn/grad.py
_NAMES = {  # module of ops -> names
    "activation": """
        celu elu gelu glu gumbel_softmax hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax logsigmoid
        masked_softmax mish prelu relu6 rrelu selu sigmoid silu softmax softmin softplus softshrink softsign tanh
        tanhshrink threshold""",
    "attention": "scaled_dot_product_attention",
    "composites": """
        alpha_dropout apply_rotary_pos_embed assert_int_or_pair bilinear celu_ constant_pad_nd conv_tbc dropout dropout1d
        dropout2d dropout3d elu_ feature_alpha_dropout gelu_mlp grouped_mm hardtanh_ leaky_relu_ linear one_hot
        precompute_rotary_cos_sin relu relu_ relu_squared rmsnorm rrelu_ selu_ threshold_ upsample_bilinear
        upsample_nearest""",
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "embedding": "embedding embedding_bag",
    "gated": "geglu reglu swiglu",
    "loss": """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity cross_entropy
        ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss
        multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss pairwise_distance pdist
        poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss""",
    "normalization": """
        add_layer_norm add_rms_norm batch_norm group_norm instance_norm layer_norm local_response_norm normalize rms_norm""",
    "padding": "pad",
    "pool": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
        adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices
        avg_pool1d avg_pool2d avg_pool3d fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool1d_with_indices max_pool2d
        max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d""",
    "resample": """
        affine_grid channel_shuffle fold grid_sample interpolate pixel_shuffle pixel_unshuffle unfold upsample""",
}


def _found(home, name):
    """Returns a function of a module of ops; for an op, its fast path. Pickle finds it."""
    function = getattr(getattr(ops, home), name)
    return _found_by_pickle(_described(_public_function(function)), name, __name__)


_FOUND = {name: _found(home, name) for home, names in _NAMES.items() for name in names.split()}
for _module, _name in ((_losses, "linear_cross_entropy"), (multihead, "multi_head_attention_forward")):
    _FOUND[_name] = _found_by_pickle(_public_function(getattr(_module, _name)), _name, __name__)
globals().update(_FOUND)
__getattr__, __dir__ = _extensions.lazy(__name__)

__all__ = [*_FOUND]
