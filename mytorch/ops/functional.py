"""The functions of `mytorch.nn.functional` that are defined here, without the layers: each imports its file on first use."""

from importlib import import_module

from ..arrays.arguments import described
from .dispatch.bind import found_by_pickle, public_function

NAMES = {  # module of ops -> names
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
_SHOWN = "nn.functional"  # where programs and pickle find the functions; nothing is imported from there
_HOMES = {name: home for home, names in NAMES.items() for name in names.split()}


def __getattr__(name):
    """Returns a function of a module of ops; for an op, its fast path. Pickle finds it in `nn.functional`."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    definition = getattr(import_module(f".{_HOMES[name]}", __package__), name)
    function = found_by_pickle(described(public_function(definition)), name, f"mytorch.{_SHOWN}")
    globals()[name] = function
    return function


def __dir__():
    return sorted({*globals(), *_HOMES})
