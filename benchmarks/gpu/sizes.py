"""How much each section of gpu_check.py does; tests/gpu/benchmarks_with_fake_cupy.py makes all of it small before a section is imported."""

DEVICE = "cuda"  # PyTorch's; the CPU in the rehearsal
ROWS, WIDTH, CLASSES = 32768, 768, 50304
HEADS, LONG = (32, 12, 1024, 64), (4, 16, 4096, 128)
LOSSES = 16384  # rows
CONV, GROUPED = (128, 64, 56, 56), (32, 128, 56, 56)
SQUARE, BATCHED = 8192, (384, 1024, 64)
TIME_STEPS, STEPS = 4.0, 5  # seconds of training steps, steps between two waits
REPEATS, HOST_CALLS, CASES = 9, 1000, None  # launches timed, calls for the CPU's time, cases of each check
WASTE = 1 << 31  # bytes written between launches
PARITY = (20, 4)  # steps and batch of the section `parity`
STARTS, LOST = 6, 77  # how often a process is started that keeps losing the card; the exit code that says so
BASE, SMALL = {"size": "base"}, {"size": "small", "vocab_size": 65, "context_length": 256}
MODELS = {  # name -> (config, batch, half precision or None)
    "GPT-2 124M bf16 B32xT1024": (BASE, 32, "bfloat16"),
    "GPT-2 small bf16 B32xT256": (SMALL, 32, "bfloat16"),
}
TANH = {
    "GPT-2 124M, GELU by tanh, bf16 B32xT1024": ({**BASE, "activation": "gelu_tanh"}, 32, "bfloat16")
}  # in the products
MORE_MODELS = {"GPT-2 124M fp16 B32xT1024": (BASE, 32, "float16"), "GPT-2 124M fp32 B8xT1024": (BASE, 8, None)}


def parameters():
    """The shapes of GPT-2 124M's parameters."""
    matrices = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    return [(CLASSES, WIDTH), (1024, WIDTH), *12 * [*matrices, (WIDTH,), (WIDTH,)]]
