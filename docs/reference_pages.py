"""Pages of the API reference: their titles, their order in the navigation, and the names on each page."""

# Section of the navigation -> {page: module below `mytorch`, "" for `mytorch` itself}. A page that is not in another table below
# shows all public names of its module.
SECTIONS = {
    "Tensor": ["mytorch.Tensor", "mytorch.dtypes"],
    "mytorch": [
        "mytorch", "mytorch.creation", "mytorch.random_sampling", "mytorch.math", "mytorch.reductions", "mytorch.shapes",
        "mytorch.indexing", "mytorch.matrices",
    ],
    "mytorch.nn": [
        "nn", "nn.containers", "nn.convolution", "nn.pooling", "nn.padding", "nn.activations", "nn.normalization",
        "nn.recurrent", "nn.transformers", "nn.linear_layers", "nn.dropout_layers", "nn.sparse", "nn.distance", "nn.losses",
        "nn.vision_layers", "nn.utilities", "nn.init", "nn.parallel", "nn.attention", "nn.residual",
    ],
    "mytorch.nn.functional": [
        "nn.functional", "nn.functional.convolution", "nn.functional.pooling", "nn.functional.attention",
        "nn.functional.activations", "nn.functional.normalization", "nn.functional.linear_functions",
        "nn.functional.dropout_functions", "nn.functional.sparse", "nn.functional.distance", "nn.functional.losses",
        "nn.functional.vision",
    ],
    "mytorch.nn.utils": [
        "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.prune", "nn.utils.stateless",
    ],
    "mytorch.optim": ["optim", "optim.lr_scheduler", "optim.swa_utils"],
    "mytorch.autograd": [
        "autograd", "autograd.function", "autograd.functional", "autograd.forward_ad", "autograd.graph", "func", "amp",
    ],
    "Mathematics": ["linalg", "fft", "special", "sparse", "nested", "random", "quasirandom", "distributions"],
    "Data and files": ["utils.data", "utils.data.tokens", "serialization", "storage"],
    "Models and vision": [
        "models", "models.lora", "models.chat", "models.tokenizer", "vision.models", "vision.datasets", "vision.transforms",
        "vision.ops", "vision.io", "audio",
    ],
    "Training and devices": [
        "accelerate", "accelerate.runs", "distributed", "distributed.optim", "distributed.device_mesh", "distributed.fsdp",
        "distributed.tensor", "distributed.checkpoint", "cuda", "arrays",
    ],
    "Tools": [
        "fx", "export", "onnx", "utils", "utils.checkpoint", "utils.graph", "utils.views", "utils.benchmark", "profiler", "compiler",
        "ops.dispatch.op",
    ],
}  # fmt: skip

# Themes of the module `mytorch`: page -> (title, summary, files of `mytorch/ops` and other modules, further names).
THEMES = {
    "mytorch.dtypes": (
        "Dtypes and devices",
        "Types of elements, type promotion, devices and memory formats.",
        "arrays.dtypes arrays.devices arrays.memory_format arrays.array",
        "device dtype result_type set_default_tensor_type typename is_conj is_neg is_inference is_same_size is_storage is_complex is_floating_point is_signed is_tensor get_device",
    ),
    "mytorch.creation": (
        "Creation",
        "Tensors from numbers, from other tensors, and from memory.",
        "ops.creation",
        "bartlett_window blackman_window empty_permuted empty_strided from_dlpack from_file frombuffer hamming_window "
        "hann_window kaiser_window fill logspace range scalar_tensor to_dlpack vander complex polar",
    ),
    "mytorch.random_sampling": ("Random sampling", "Random tensors and random number generators.", "ops.random random", ""),
    "mytorch.math": (
        "Elementwise math",
        "Functions that compute each element of the result from the elements at the same position.",
        "ops.elementwise ops.special ops.complex",
        "relu stft istft conj_physical_ is_nonzero",
    ),
    "mytorch.reductions": (
        "Reductions and sorting",
        "Sums, means, extremes, statistics, sorting and searching.",
        "ops.reduction ops.sorting",
        "argsort sort topk histogramdd segment_reduce",
    ),
    "mytorch.shapes": (
        "Shapes and views",
        "Views, reshaping, joining and splitting.",
        "ops.movement ops.shapes",
        "as_strided_copy detach_copy diagonal_copy expand_copy permute_copy select_copy slice_copy split_copy "
        "split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_as_complex_copy "
        "view_as_real_copy view_copy broadcast_shapes narrow_copy resize_as_ split_with_sizes",
    ),
    "mytorch.indexing": (
        "Indexing and scattering",
        "Functions that read from and write to positions given by indices or masks.",
        "ops.indexing ops.scatter",
        "",
    ),
    "mytorch.matrices": (
        "Matrices",
        "Matrix products and decompositions. The module `mytorch.linalg` has further functions.",
        "ops.linalg ops.decompositions",
        "geqrf lu lu_solve lu_unpack ormqr orgqr pca_lowrank pinverse qr svd svd_lowrank triangular_solve cond matrix_exp "
        "matrix_power frobenius_norm nuclear_norm norm_except_dim",
    ),
}  # fmt: skip

# Groups of `nn` and `nn.functional`, as on PyTorch's pages: page -> (title, summary, modules that define the names, further names).
GROUPS = {
    "nn.containers": ("Containers", "The base class of all layers, and layers that contain layers.", "nn.containers nn.module", ""),
    "nn.convolution": (
        "Convolution layers",
        "Convolutions, transposed convolutions, and sliding windows.",
        "nn.conv",
        "Unfold Fold LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    ),
    "nn.pooling": ("Pooling layers", "Maxima and means of windows.", "nn.pool", ""),
    "nn.padding": ("Padding layers", "Layers that extend the last axes of the input.", "nn.padding", ""),
    "nn.activations": ("Activations", "Nonlinear functions, elementwise or along one axis.", "nn.activation nn.adaptive", ""),
    "nn.normalization": (
        "Normalization layers",
        "Layers that normalize their input by its mean and variance, or by its norm.",
        "nn.normalization nn.sync_batch_norm",
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
    ),
    "nn.recurrent": ("Recurrent layers", "RNN, LSTM and GRU: layers for sequences, and cells for single steps.", "nn.rnn", ""),
    "nn.transformers": ("Transformer layers", "Attention, encoders and decoders.", "nn.transformer", ""),
    "nn.linear_layers": ("Linear layers", "Matrix products with learned weights.", "", "Linear Bilinear Identity LazyLinear"),
    "nn.dropout_layers": ("Dropout layers", "Layers that set random elements to zero during training.", "nn.dropout", ""),
    "nn.sparse": ("Sparse layers", "Tables of vectors that are looked up by index.", "nn.embedding", ""),
    "nn.distance": ("Distance functions", "Similarities and distances of vectors.", "", "CosineSimilarity PairwiseDistance"),
    "nn.losses": ("Loss functions", "Losses that compare predictions with targets.", "nn.loss nn.linear_cross_entropy", ""),
    "nn.vision_layers": (
        "Vision and shuffle layers",
        "Layers that change the resolution of images or the order of channels.",
        "nn.vision",
        "",
    ),
    "nn.utilities": ("Utilities", "Parameters, buffers, and layers that change shapes.", "arrays.parameter", "Flatten Unflatten"),
    "nn.functional.convolution": ("Convolution functions", "Convolutions and sliding windows.", "ops.conv", "unfold fold conv_tbc"),
    "nn.functional.pooling": ("Pooling functions", "Maxima and means of windows.", "ops.pool", ""),
    "nn.functional.attention": (
        "Attention functions",
        "Scaled dot-product attention and rotary position embeddings.",
        "ops.attention ops.multihead",
        "apply_rotary_pos_embed precompute_rotary_cos_sin",
    ),
    "nn.functional.activations": (
        "Activation functions",
        "Nonlinear functions, elementwise or along one axis.",
        "ops.activation ops.gated",
        "relu relu_ relu_squared celu_ elu_ hardtanh_ leaky_relu_ rrelu_ selu_ threshold_ gelu_mlp",
    ),
    "nn.functional.normalization": (
        "Normalization functions",
        "Functions that normalize their input by its mean and variance, or by its norm.",
        "ops.normalization",
        "rmsnorm",
    ),
    "nn.functional.linear_functions": (
        "Linear functions",
        "Matrix products with a weight and a bias.",
        "",
        "linear bilinear grouped_mm",
    ),
    "nn.functional.dropout_functions": (
        "Dropout functions",
        "Functions that set random elements to zero.",
        "",
        "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
    ),
    "nn.functional.sparse": ("Sparse functions", "Tables of vectors that are looked up by index.", "ops.embedding", "one_hot"),
    "nn.functional.distance": (
        "Distance functions",
        "Similarities and distances of vectors.",
        "",
        "cosine_similarity pairwise_distance pdist",
    ),
    "nn.functional.losses": (
        "Loss functions",
        "Losses that compare predictions with targets.",
        "ops.loss nn.linear_cross_entropy",
        "",
    ),
    "nn.functional.vision": (
        "Vision functions",
        "Functions that resample, pad and rearrange images.",
        "ops.resample ops.padding",
        "upsample upsample_bilinear upsample_nearest constant_pad_nd",
    ),
}  # fmt: skip

# Introductions of the pages that show a whole module.
ABOUT = {
    "mytorch": "Settings, modes, and functions that are on no other page.",
    "nn": "Neural network layers. A layer is an `nn.Module` that stores parameters and computes its result in `forward`.",
    "nn.init": "Initialization of parameters. Each function fills a tensor in place, without recording, and returns it.",
    "nn.parallel": "Models on several devices. `DistributedDataParallel` averages gradients over processes.",
    "nn.attention": "Selection of the implementation of `nn.functional.scaled_dot_product_attention`.",
    "nn.residual": "Layers that combine a residual addition with the next layer.",
    "nn.functional": "Functions that layers compute. They have no state: parameters are arguments.",
    "nn.utils": "Functions on the parameters and gradients of modules, such as gradient clipping.",
    "nn.utils.rnn": "Batches of sequences of different lengths, padded or packed.",
    "nn.utils.parametrize": "Parametrizations: modules that compute a parameter from other parameters at each use.",
    "nn.utils.parametrizations": "Predefined parametrizations: orthogonal matrices, spectral and weight normalization.",
    "nn.utils.prune": "Pruning: masks that set parts of a parameter to zero.",
    "nn.utils.stateless": "Calls of a module with other parameters and buffers.",
    "optim": "Optimizers. Each step changes parameters by the gradients in their `.grad`.",
    "optim.lr_scheduler": "Learning rate schedules. Call `step()` of the schedule after `step()` of the optimizer.",
    "optim.swa_utils": "Averages of parameters over the training steps.",
    "autograd": "Automatic differentiation: recording of operations, gradients, and checks of gradients.",
    "autograd.functional": "Jacobians, Hessians, and their products with vectors, for functions of tensors.",
    "autograd.forward_ad": "Forward-mode differentiation: tensors that carry a tangent.",
    "autograd.graph": "Nodes and edges of the autograd graph, and hooks on saved tensors and gradients.",
    "func": "Function transforms: gradients, Jacobians, Hessians, vectorization, and modules as functions.",
    "amp": "Mixed precision: `autocast` chooses the dtype of each op, and `GradScaler` scales the loss.",
    "linalg": "Linear algebra: norms, decompositions, solvers and matrix functions.",
    "fft": "Discrete Fourier transforms.",
    "special": "Special functions, with the names of `torch.special`.",
    "random": "Seeds and states of random number generators.",
    "quasirandom": "Sobol sequences: points that fill the unit cube evenly.",
    "distributions": "Probability distributions: samples, log-probabilities, entropies and divergences.",
    "utils.data": "Datasets, samplers, and the loader that makes batches.",
    "utils.data.tokens": "Files of tokens, and batches of tokens for language models.",
    "serialization": "Saving and loading of tensors, state dicts and safetensors files.",
    "storage": "The memory of tensors as objects, with the names of `torch.storage`.",
    "models": "Language models: GPT-2 and Llama, pretrained weights, text generation and quantization.",
    "models.lora": "Fine-tuning with low-rank adapters (LoRA), in the file format of PEFT.",
    "models.chat": "Conversations with a language model: the format of messages, and replies.",
    "models.tokenizer": "Tokenizers, which convert text to token numbers and back. `mytorch.utils.tokenizer` is the same module.",
    "vision.models": "Residual networks, with the names and state dict keys of `torchvision.models`.",
    "vision.datasets": "Image datasets, and small synthetic datasets.",
    "vision.transforms": "Image transforms, with the names of `torchvision.transforms`.",
    "vision.ops": "Operations on boxes and regions, as in `torchvision.ops`.",
    "vision.io": "Reading of images, and writing of PNG files. Requires Pillow.",
    "audio": "Reading and writing of WAV files.",
    "accelerate": "`Accelerator`: the same training loop for one process or several, in full or mixed precision.",
    "accelerate.runs": "Parts of training scripts: interruption, logs, checkpoints, and measurement of speed.",
    "distributed": "Several processes: process groups and collectives, with the names of `torch.distributed`.",
    "distributed.optim": "Optimizers that split their state between processes.",
    "distributed.device_mesh": "Grids of processes: one dimension for each kind of parallelism.",
    "distributed.fsdp": "Sharded models: parameters, gradients and optimizer state are divided between processes.",
    "distributed.tensor": "Tensors that several processes store together, and tensor parallelism.",
    "distributed.checkpoint": "Checkpoints of which each process writes a part, for any number of processes.",
    "sparse": "Sparse tensors: the layouts COO, CSR and CSC, products and gradients. The guide to sparse tensors has examples.",
    "nested": "Nested tensors: batches of tensors of different lengths.",
    "fx": "Graphs of programs: symbolic traces, transformations and generated code.",
    "export": "Exported programs: graphs of models with dynamic sizes.",
    "onnx": "Export of models to ONNX files.",
    "cuda": "GPUs: devices, memory, streams, events and CUDA graphs.",
    "utils.checkpoint": "Activation checkpointing: backward computes activations again instead of storing them.",
    "utils.graph": "Drawings of the autograd graph, as SVG, HTML or Graphviz DOT.",
    "utils.views": "Drawings of the memory layout of tensors.",
    "utils.benchmark": "Timing of small programs.",
    "compiler": "Compilation of functions, modules and training steps on a CPU. The guide to compilation has examples.",
    "profiler": "Time and memory of each op, module and line of a program.",
}  # fmt: skip

# Pages that show only some names of a module: page -> (module, summary, names).
SELECTED = {
    "autograd.function": (
        "autograd.function",
        "Custom operations with a backward pass.",
        "Function once_differentiable NestedIOFunction InplaceFunction",
    ),
    "arrays": (
        "arrays",
        "Registration of other array libraries as devices. The guide to extensions has an example.",
        "register_device",
    ),
    "ops.dispatch.op": ("ops.dispatch.op", "Definition of ops. The guide to extensions has examples.", "op Op"),
    "utils": ("utils", "Summaries of models, drawings of graphs, and live views of training.", "summary watch render"),
}

# Names that modules contain but that are not part of the API.
INTERNAL = {
    "mytorch": "eig lstsq matrix_rank solve symeig max_pool1d_with_indices batch_norm_update_stats grid_sampler_2d grid_sampler_3d "
    "affine_grid_generator",
    "cuda": "generator_for index_of Tensor Generator",
    "nn.functional": "assert_int_or_pair adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices "
    "adaptive_max_pool3d_with_indices fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices "
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
    "nn.utils.rnn": "invert_permutation repack",
    "optim.lr_scheduler": "for_each_group",
    "utils.checkpoint": "noop_context_fn",
    "utils.data.tokens": "read_header",
}
# Further names of Tensor's attributes that are not shown: of the graph's implementation, and of devices that do not exist.
INTERNAL_ATTRIBUTES = "edge is_mkldnn is_mps is_quantized is_nested name output_nr"

# Functions of layers with another name than the layer's in lower case.
FUNCTION_OF_LAYER = {
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "CTCLoss": "ctc_loss",
    "GaussianNLLLoss": "gaussian_nll_loss", "KLDivLoss": "kl_div", "L1Loss": "l1_loss", "LayerNorm": "layer_norm",
    "MSELoss": "mse_loss", "MultiheadAttention": "multi_head_attention_forward", "NLLLoss": "nll_loss",
    "PoissonNLLLoss": "poisson_nll_loss", "RMSNorm": "rms_norm", "Softmax2d": "softmax", "Upsample": "interpolate",
    "CrossEntropyLoss": "cross_entropy", "LeakyReLU": "leaky_relu", "LogSigmoid": "logsigmoid", "LogSoftmax": "log_softmax",
    "GroupNorm": "group_norm", "LocalResponseNorm": "local_response_norm", "ReLUSquared": "relu_squared",
    "ConstantPad1d": "pad", "ConstantPad2d": "pad", "ConstantPad3d": "pad", "EmbeddingBag": "embedding_bag",
    "CosineSimilarity": "cosine_similarity", "PairwiseDistance": "pairwise_distance",
}  # fmt: skip
