"""Prepare a text file and plan a training run that fits the text and this machine.

    python prepare_data/plan_text.py --input_file book.txt --path_to_save data/book --run work_dir/text-book --minutes 10

`bash train_gpt2.sh text book.txt` runs this script first. It writes the token files, and plan.txt with the flags of
train_gpt2.py, one word in each line. The next call with the same text reads plan.txt and measures nothing. Exit codes: 0 for a
new run, 10 if the run is complete, and 11 if it was interrupted.
"""

import hashlib
import statistics
import time
from importlib.util import find_spec
from pathlib import Path

from common import ENCODING_HELP, SAVE_HELP, ArgumentParser, fail, make_tokenizer, read_text, write_split

import mytorch
from mytorch.accelerate import newest_checkpoint
from mytorch.accelerate.training_state import is_complete
from mytorch.models import GPT2, run_files
from mytorch.utils.data.tokens import read_tokens, read_vocab_size

COMPLETE, INTERRUPTED = 10, 11
# Model size, context, sequences in a step, learning rate, and the least number of tokens in the text; the best model comes first.
CANDIDATES = (
    ("small", 256, 32, 1e-3, 2_000_000),
    ("small", 128, 16, 1e-3, 1_000_000),
    ("demo", 256, 12, 2e-3, 200_000),
    ("demo", 128, 12, 3e-3, 50_000),
    ("demo", 64, 12, 4e-3, 0),
)
LEAST_TOKENS = 2000  # a tenth is for validation, which needs more tokens than a context
LEAST_STEPS = 2000  # a smaller model learns more than a large one with fewer steps
PASSES = 40  # over the text; more would only memorize it
LARGE = 5_000_000  # characters from which a text gets a byte-pair encoding
TRAINING = 0.85  # part of the time; the rest is for evaluation and the sample


def seconds_per_step(size, context, batch, vocab_size, device):
    """Returns the median time of five training steps, after two that compile kernels and allocate memory."""
    model = GPT2(run_files.config_of("gpt2", size, context, vocab_size=vocab_size)).to(device)
    optimizer = mytorch.optim.AdamW(model.parameters())
    times = []
    for _ in range(7):
        tokens = mytorch.randint(vocab_size, (batch, context + 1), device=device)
        began = time.perf_counter()
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        mytorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def work(size, context, batch, vocab_size):
    """Returns the operations of a step."""
    with mytorch.device("meta"):
        model = GPT2(run_files.config_of("gpt2", size, context, vocab_size=vocab_size))
    return model.flops_per_token(context) * context * batch


def choose(tokens, validation, vocab_size, seconds, device):
    """Returns the best candidate that gets enough steps in the time, and its time for a step."""
    smallest = CANDIDATES[-1][:3]
    speed = work(*smallest, vocab_size) / seconds_per_step(*smallest, vocab_size, device)
    for candidate in CANDIDATES:
        size, context, batch, _, least = candidate
        if tokens < least or validation <= 2 * context:
            continue
        expected = work(size, context, batch, vocab_size) / speed
        # Larger products are faster, so a measurement can be better than the estimate.
        if candidate is CANDIDATES[-1] or seconds / expected >= LEAST_STEPS / 2:
            step = seconds_per_step(size, context, batch, vocab_size, device)
            if candidate is CANDIDATES[-1] or seconds / step >= LEAST_STEPS:
                return candidate, step


def make_plan(tokens, validation, vocab_size, minutes, device):
    """Returns the flags of train_gpt2.py, and the plan as text."""
    (size, context, batch, lr, _), step = choose(tokens, validation, vocab_size, 60 * minutes * TRAINING, device)
    by_time, by_text = int(60 * minutes * TRAINING / step), PASSES * tokens // (batch * context)
    iterations = max(20, min(by_time, by_text))
    passes = iterations * batch * context / tokens
    flags = {
        "model_size": size, "context_length": context, "batch_size": batch, "gradient_accumulation_steps": 1,
        "train_iterations": iterations, "eval_interval": max(1, -(-iterations // 3)), "eval_iterations": 20, "max_lr": lr,
        "min_lr": lr / 10, "warmup_steps": min(100, iterations // 10), "weight_decay": 0.1, "max_grad_norm": 1.0, "beta1": 0.9,
        "beta2": 0.99, "dropout_p": 0.1 if passes > 10 else 0.0, "log_iter": 100,
    }  # fmt: skip
    with mytorch.device("meta"):
        parameters = GPT2(run_files.config_of("gpt2", size, context, vocab_size=vocab_size)).num_parameters()
    expected = iterations * step / TRAINING
    duration = f"{expected / 60:.0f} minutes" if expected >= 90 else f"{max(expected, 1):.0f} seconds"
    text = (
        f"Plan: {parameters / 1e6:.1f}M parameters, a context of {context} tokens, and {iterations:,} iterations of {batch * context:,} "
        f"tokens ({passes:.1f} passes over the text). This takes about {duration} on this {'GPU' if device != 'cpu' else 'CPU'}."
    )
    if by_text < by_time:
        text += f"\nThe text is short for {minutes:g} minutes: more than {PASSES} passes would only memorize it."
    return flags, text


def read_plan(path):
    """Returns the values and the words of plan.txt, or ({}, []) if it does not exist."""
    values, words = {}, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        if line.startswith("# "):
            name, _, value = line[2:].partition(": ")
            values[name] = value
        else:
            words.append(line)
    return values, words


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="text file")
    parser.add_argument("--encoding", default="utf-8", help=ENCODING_HELP)
    parser.add_argument("--path_to_save", required=True, help=SAVE_HELP)
    parser.add_argument("--run", required=True, help="folder of the run")
    parser.add_argument("--minutes", type=float, help="training time in minutes (default: 10)")
    parser.add_argument("--device", help="device of the training (default: a GPU if one is available)")
    parser.add_argument("--overwrite", action="store_true", help="new plan and new data, also for another text")
    args = parser.parse_args()
    if args.minutes is not None and not 0 < args.minutes < float("inf"):
        fail(f"--minutes: expected a number above 0, got {args.minutes:g}.")
    folder, run = Path(args.path_to_save), Path(args.run)
    text = read_text(args.input_file, args.encoding)
    digest = hashlib.sha256(text.encode()).hexdigest()
    values, words = read_plan(folder / "plan.txt")
    if words and not args.overwrite:
        if values.get("text") != digest:
            fail(
                f"{folder}: expected the text of an earlier run, got another text. Use --overwrite to replace its data and run."
            )
        if args.minutes is not None and f"{args.minutes:g}" != values.get("minutes"):
            fail(
                f"--minutes: expected {values.get('minutes')} as in {folder / 'plan.txt'}, got {args.minutes:g}. Use --overwrite to train again."
            )
        if is_complete(run / "final_checkpoint"):
            return COMPLETE
        print(values.get("plan"))
        return INTERRUPTED if newest_checkpoint(run) else 0
    if not words and (folder / "train.bin").is_file() and not args.overwrite:
        fail(f"{folder}: expected a folder without data, got one with train.bin. Use --overwrite to replace the data.")
    if len(text) < LEAST_TOKENS:
        fail(
            f"--input_file: expected a text of at least {LEAST_TOKENS:,} characters, got {len(text):,} in {args.input_file}."
        )
    kind = "bpe" if len(text) > LARGE and find_spec("tokenizers") else "char"
    write_split(text, make_tokenizer(kind, text), folder, 0.1)
    tokens, validation = (len(read_tokens(folder / name)) for name in ("train.bin", "val.bin"))
    device = args.device or ("cuda" if mytorch.cuda.is_available() else "cpu")
    minutes = args.minutes or 10.0
    flags, plan = make_plan(tokens, validation, read_vocab_size(folder), minutes, device)
    print(plan)
    lines = [f"# text: {digest}", f"# minutes: {minutes:g}", f"# plan: {plan.splitlines()[0]}"]
    lines += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    (folder / "plan.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
