"""Generate text with a model from train_gpt2.py, a Hugging Face directory or a GGUF file.

    python inference_gpt2.py work_dir/gpt2-small-shakespeare/ --temperature 0.8 --topk 15 --prompt "ROMEO:"

Prints the text token by token. Uses the newest checkpoint of the project unless --checkpoint_dir names another one.
"""

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import mytorch
from mytorch.accelerate.training_state import is_complete, newest_checkpoint, saved_at
from mytorch.cli.arguments import ArgumentParser, run_script, usable_device
from mytorch.models import GPT2, Llama, from_pretrained, fuse_, lora
from mytorch.models.tokenizer import GPT2Tokenizer, load_tokenizer
from mytorch.serialization import load_safetensors


def parse(argv=None):
    p = ArgumentParser(description=__doc__.splitlines()[0])
    add = p.add_argument
    places = "folder of a project of train_gpt2.py, a checkpoint, a Hugging Face directory, or a GGUF file"
    add("path_to_project_dir", help=places)
    add(
        "--adapter",
        help="directory of a LoRA adapter from train_gpt2.py --lora_r or PEFT; requires its base model (default: none)",
    )
    add("--checkpoint_dir", help="name or path of a checkpoint (default: the newest)")
    prompt = "text to continue, or FILE:path for the text in a file (default: a line break)"
    add("--prompt", "--start", dest="prompt", help=prompt)
    add("--max_tokens_gen", type=int, help="number of tokens to generate (default: the rest of the context)")
    add("--num_samples", type=int, default=1, help="number of texts to generate")
    temperature = "sampling temperature; lower is more deterministic, 0 is greedy"
    add("--temperature", type=float, default=1.0, help=temperature)
    add("--topk", type=int, help="top-k sampling: number of most likely tokens to sample from (default: all)")
    add("--topp", type=float, help="top-p sampling: total probability of the tokens to sample from (default: 1)")
    minp = "min-p sampling: minimum probability, as a fraction of the largest one (default: 0)"
    add("--minp", type=float, help=minp)
    add("--repetition_penalty", type=float, default=1.0, help="penalty for repeated tokens; 1 disables it")
    add("--seed", type=int, help="random seed (default: random)")
    add("--device", type=usable_device, default="cpu", help='device: "cpu", "cuda" or "cuda:N"')
    fused = "use a fused kernel for each op that has one (default: where the kernel is faster)"
    add("--fused", action="store_true", help=fused)
    add("--disable_cache", action="store_true", help="recompute all positions for each token, without a KV cache")
    precision = p.add_mutually_exclusive_group()
    precision.add_argument("--fp32", action="store_true", help="float32 computation (default)")
    precision.add_argument("--fp16", action="store_true", help="float16 computation")
    precision.add_argument("--bf16", action="store_true", help="bfloat16 computation")
    add("--compute_tok_per_sec", action="store_true", help="print the speed in tokens per second at the end")
    args = p.parse_args(argv)
    for name, valid, rule in (
        ("topk", args.topk is None or args.topk >= 1, "at least 1"),
        ("topp", args.topp is None or 0 < args.topp <= 1, "above 0 and at most 1"),
        ("minp", args.minp is None or 0 <= args.minp <= 1, "from 0 to 1"),
        ("temperature", args.temperature >= 0, "at least 0"),
        ("repetition_penalty", args.repetition_penalty > 0, "above 0"),
        ("num_samples", args.num_samples >= 1, "at least 1"),
        ("max_tokens_gen", args.max_tokens_gen is None or args.max_tokens_gen >= 1, "at least 1"),
    ):
        if not valid:
            p.error(f"--{name}: expected {rule}, got {getattr(args, name)}")
    return args


def find_project(path):
    """Returns the directory of a run, and the checkpoint or None.

    Args:
        path: a checkpoint, a run, or a project that contains runs, of which the newest is used.

    Raises:
        FileNotFoundError: if there is no checkpoint in `path`.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"path_to_project_dir: expected a directory, got {path}, which does not exist.")
    if is_complete(path):
        return path.parent, path
    if (path / "model_meta.json").is_file():
        return path, None
    runs = [run for run in path.iterdir() if (run / "model_meta.json").is_file() and newest_checkpoint(run)]
    if runs:
        return max(runs, key=lambda run: saved_at(newest_checkpoint(run))), None
    text = f"expected a directory that train_gpt2.py has written, got {path}, which contains no model_meta.json"
    raise FileNotFoundError(f"path_to_project_dir: {text}.")


def find_checkpoint(project, name):
    """Returns the directory of the checkpoint with a name or path, or of the newest checkpoint if `name` is None.

    Raises:
        FileNotFoundError: if there is no such checkpoint.
    """
    if name is None:
        newest = newest_checkpoint(project)
        if newest is None:
            raise FileNotFoundError(f"path_to_project_dir: expected a complete checkpoint in {project}, got none.")
        return newest
    for path in (Path(name), project / name):
        if (path / "model.safetensors").is_file():
            return path
    text = f"expected a path or the name of a checkpoint in {project}, got {name}"
    raise FileNotFoundError(f"--checkpoint_dir: {text}.")


def find_file(name, checkpoint, project):
    """Returns the path of a file in the checkpoint, or in its project, where older runs stored the file.

    Raises:
        FileNotFoundError: if both lack the file.
    """
    for folder in (checkpoint, project):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"--checkpoint_dir: expected the file {name} in {checkpoint}, got none.")


def load(args):
    """Returns the model, its tokenizer, and the directory from which they were loaded."""
    path = Path(args.path_to_project_dir)
    fused = args.fused or None
    is_gguf = path.suffix == ".gguf"
    if is_gguf and not path.is_file():
        raise FileNotFoundError(f"path_to_project_dir: expected a GGUF file, got {path}, which does not exist.")
    if is_gguf or (path / "config.json").is_file():
        if args.checkpoint_dir:
            raise ValueError(f"--checkpoint_dir: expected a folder of train_gpt2.py with checkpoints, got {path}.")
        model, source = from_pretrained(path, fused=fused), path
        file = path / "tokenizer.json"
        tokenizer = model.tokenizer if is_gguf else load_tokenizer(file) if file.is_file() else GPT2Tokenizer()
        if tokenizer is None:
            why = "Run `pip install tokenizers`" if find_spec("tokenizers") is None else "It accepts tokens only"
            raise ValueError(f"path_to_project_dir: expected a file with a tokenizer, got {path}. {why}.")
        if args.adapter:
            lora.merge(lora.load_adapter(model, args.adapter))
    elif args.adapter:
        text = (
            f"expected path_to_project_dir to be the Hugging Face directory or GGUF file of the base model, got {path}"
        )
        raise ValueError(f"--adapter: {text}.")
    else:
        project, checkpoint = find_project(path)
        checkpoint = find_checkpoint(project, args.checkpoint_dir) if checkpoint is None else checkpoint
        meta = json.loads(find_file("model_meta.json", checkpoint, project).read_text())
        kind = GPT2 if meta.get("architecture", "gpt2") == "gpt2" else Llama
        model = kind(kind.config_class.from_dict({**meta["model"], "fused": fused}))
        if (training := meta.get("training", {})).get("lora_r"):
            lora.inject(model, training["lora_target_modules"], training["lora_r"], training["lora_alpha"])
        try:
            model.load_state_dict(load_safetensors(checkpoint / "model.safetensors"))
        except RuntimeError:
            text = f"expected the model that {project / 'model_meta.json'} describes, got another one in {checkpoint}"
            raise ValueError(f"--checkpoint_dir: {text}.") from None
        lora.merge(model)
        tokenizer = load_tokenizer(find_file("tokenizer.json", checkpoint, project))
        source = checkpoint
    dtype = mytorch.float16 if args.fp16 else mytorch.bfloat16 if args.bf16 else mytorch.float32
    return fuse_(model).to(args.device, dtype).eval(), tokenizer, source


def read_prompt(prompt, tokenizer):
    """Returns the text to continue and its tokens.

    Args:
        prompt: a text, "FILE:" and a path, or None for a line break.
        tokenizer: the tokenizer of the model.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the text is empty, or the tokenizer has no token for one of its characters.
    """
    if prompt is None:
        try:
            return "\n", tokenizer.encode("\n")
        except ValueError:  # a character vocabulary without line breaks
            return tokenizer.decode([0]), [0]
    text = prompt
    if prompt.startswith("FILE:"):
        path = Path(prompt.removeprefix("FILE:"))
        if not path.is_file():
            raise FileNotFoundError(f"--prompt: expected FILE: and the path of a file, got {prompt}.")
        text = path.read_text(encoding="utf-8")
    tokens = tokenizer.encode(text)
    if not tokens:
        raise ValueError("--prompt: expected at least one character, got an empty text.")
    return text, tokens


class Printer:
    """Prints tokens one by one. Waits for the next token if a token ends within the bytes of a character."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.before, self.pending = [], []  # the tokens before decide whether the next text begins with a space

    def __call__(self, token, last=False):
        self.pending.append(token)
        text = self.tokenizer.decode(self.before + self.pending)[len(self.tokenizer.decode(self.before)) :]
        if text.endswith("\ufffd") and self.tokenizer.kind != "char" and not last and len(self.pending) < 4:
            return
        self.before, self.pending = self.pending, []
        sys.stdout.write(text)
        sys.stdout.flush()


def main(argv=None):
    args = parse(argv)
    model, tokenizer, source = load(args)
    text, prompt = read_prompt(args.prompt, tokenizer)
    print(f"Sampling from {source}", file=sys.stderr)
    context = model.config.context_length
    count = args.max_tokens_gen if args.max_tokens_gen is not None else max(context - len(prompt), 1)
    start = mytorch.tensor([prompt], device=args.device)
    generator = mytorch.Generator(start.device)
    if args.seed is None:
        generator.seed()
    else:
        generator.manual_seed(args.seed)
    count_generated, start_time = 0, time.perf_counter()
    for sample in range(args.num_samples):
        if sample:
            print("\n" + "-" * 15)
        sys.stdout.write(text)
        show = Printer(tokenizer)
        tokens = model.stream(
            start,
            count,
            temperature=args.temperature,
            top_k=args.topk,
            top_p=args.topp,
            min_p=args.minp,
            repetition_penalty=args.repetition_penalty,
            generator=generator,
            use_cache=not args.disable_cache,
            vocab_size=tokenizer.vocab_size,
        )
        for i, token in enumerate(tokens, 1):
            show(int(token), last=i == count)
            count_generated += 1
    print()
    if args.compute_tok_per_sec:
        seconds = time.perf_counter() - start_time
        print(f"Tokens/Sec: {count_generated / seconds:.1f} ({count_generated} tokens in {seconds:.2f} s)")
    return 0


if __name__ == "__main__":
    run_script(main)
