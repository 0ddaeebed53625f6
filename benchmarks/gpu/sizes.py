"""Sizes for the sections of gpu_check.py. tests/gpu/benchmarks_with_fake_cupy.py reduces them before a section is imported."""

DEVICE = "cuda"  # device of PyTorch; the CPU with --rehearse
ROWS, WIDTH, CLASSES = 32768, 768, 50304
HEADS, LONG = (32, 12, 1024, 64), (4, 16, 4096, 128)
LOSSES = 16384  # rows
CONV, GROUPED = (128, 64, 56, 56), (32, 128, 56, 56)
IMAGES, NETWORK = (64, 3, 224, 224), "resnet18"  # a network of benchmarks/cpu/convolutions.py
SQUARE, BATCHED = 8192, (384, 1024, 64)
TIME_STEPS, STEPS = 4.0, 5  # seconds of training steps, steps between two synchronizations
REPEATS, HOST_CALLS, CASES = 9, 1000, None  # measured launches, calls for the CPU time, cases of each check
WASTE = 1 << 31  # bytes written between launches
PARITY = (10, 4)  # number of steps and batch size of the section `parity`; `parity-more` runs twice as many
SIDE_BY_SIDE, TESTS = 5, None  # pytest processes at a time in the section `together`, and number of tests (None: all)
STARTS, LOST = 6, 77  # maximum starts of a process that loses the GPU, and its exit code
BASE, SMALL = {"size": "base"}, {"size": "small", "vocab_size": 65, "context_length": 256}
BASE_MODEL = {"GPT-2 124M bf16 B32xT1024": (BASE, 32, "bfloat16")}  # name -> (config, batch, half precision or None)
SMALL_MODEL = {"GPT-2 10.7M bf16 B32xT256": (SMALL, 32, "bfloat16")}
TANH = {
    "GPT-2 124M, GELU by tanh, bf16 B32xT1024": ({**BASE, "activation": "gelu_tanh"}, 32, "bfloat16")
}  # tanh-GELU, fused into the matrix multiplications
MORE_MODELS = {"GPT-2 124M fp16 B32xT1024": (BASE, 32, "float16"), "GPT-2 124M fp32 B8xT1024": (BASE, 8, None)}


SCRIPT = (  # options of train_gpt2.py
    "--model_size", "small", "--context_length", 256, "--batch_size", 32, "--train_iterations", 300, "--eval_interval", 300,
    "--eval_iterations", 10, "--log_iter", 25, "--warmup_steps", 20,
)  # fmt: skip


def parameters():
    """Returns the shapes of the parameters of GPT-2 124M."""
    matrices = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    return [(CLASSES, WIDTH), (1024, WIDTH), *12 * [*matrices, (WIDTH,), (WIDTH,)]]
