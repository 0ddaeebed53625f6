"""Sample text from a model that train_gpt2.py has trained, or from a Hugging Face directory.

    python inference_gpt2.py work_dir/gpt2-small-shakespeare/ --temperature 0.8 --topk 15 --prompt "ROMEO:"

Text appears as it is made. The newest checkpoint of the project is taken unless --checkpoint_dir names one.
"""

import json
import sys
import time
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
    add("path_to_project_dir", help="work_dir/<project>, a checkpoint in it, or a Hugging Face directory")
    add(
        "--adapter",
        help="directory of a LoRA adapter, as train_gpt2.py --lora_r or PEFT writes it, for a Hugging Face directory",
    )
    add("--checkpoint_dir", help="name or path of a checkpoint; by default the newest")
    add(
        "--prompt", "--start", dest="prompt", help="text to continue, by default a line break; FILE:path takes a file's"
    )
    add("--max_tokens_gen", type=int, help="tokens to make; by default as many as the context has room for")
    add("--num_samples", type=int, default=1, help="how many continuations")
    add(
        "--temperature",
        type=float,
        default=1.0,
        help="below 1 bolder in what is likely, above 1 wilder; 0 the likeliest",
    )
    add("--topk", type=int, help="draw among so many of the likeliest tokens")
    add("--topp", type=float, help="draw among the likeliest tokens that together reach this probability")
    add("--minp", type=float, help="draw among the tokens at least so many times as likely as the likeliest")
    add("--repetition_penalty", type=float, default=1.0, help="above 1 discourages tokens that have occurred")
    add("--seed", type=int, help="makes the text repeatable")
    add("--device", type=usable_device, default="cpu", help='"cpu", "cuda" or "cuda:N"')
    add("--fused", action="store_true", help="use fused kernels wherever there are any; by default where they pay")
    add("--disable_cache", action="store_true", help="compute all positions anew for each token")
    precision = p.add_mutually_exclusive_group()
    precision.add_argument("--fp32", action="store_true", help="compute in float32, the default")
    precision.add_argument("--fp16", action="store_true", help="compute in float16")
    precision.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    add("--compute_tok_per_sec", action="store_true", help="print the speed at the end")
    args = p.parse_args(argv)
    for name, good, wanted in (
        ("topk", args.topk is None or args.topk >= 1, "at least 1"),
        ("topp", args.topp is None or 0 < args.topp <= 1, "above 0 and at most 1"),
        ("minp", args.minp is None or 0 <= args.minp <= 1, "from 0 to 1"),
        ("temperature", args.temperature >= 0, "at least 0"),
        ("repetition_penalty", args.repetition_penalty > 0, "above 0"),
        ("num_samples", args.num_samples >= 1, "at least 1"),
        ("max_tokens_gen", args.max_tokens_gen is None or args.max_tokens_gen >= 1, "at least 1"),
    ):
        if not good:
            p.error(f"--{name} is {getattr(args, name)}; expected {wanted}")
    return args


def find_project(path):
    """(project directory, checkpoint or None): `path` may be either, or a project whose runs have folders."""
    if not path.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")
    if is_complete(path):
        return path.parent, path
    if (path / "model_meta.json").is_file():
        return path, None
    runs = [run for run in path.iterdir() if (run / "model_meta.json").is_file() and newest_checkpoint(run)]
    if runs:
        return max(runs, key=lambda run: saved_at(newest_checkpoint(run))), None
    raise FileNotFoundError(f"{path} holds no model_meta.json; expected a directory that train_gpt2.py has written.")


def find_checkpoint(project, wanted):
    """The checkpoint directory that `wanted` names, or the newest."""
    if wanted is None:
        found = newest_checkpoint(project)
        if found is None:
            raise FileNotFoundError(f"There is no complete checkpoint in {project}.")
        return found
    for path in (Path(wanted), project / wanted):
        if (path / "model.safetensors").is_file():
            return path
    raise FileNotFoundError(f"There is no checkpoint {wanted}, neither as a path nor in {project}.")


def beside_weights(name, checkpoint, project):
    """The file of this name in the checkpoint, or in its project, where runs of before kept it."""
    for folder in (checkpoint, project):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{checkpoint / name} is missing.")


def load(args):
    """The model, its tokenizer, and the directory that it is from."""
    path = Path(args.path_to_project_dir)
    fused = args.fused or None
    if (path / "config.json").is_file():
        model, source = from_pretrained(path, fused=fused), path
        has_own = (path / "tokenizer.json").is_file()
        tokenizer = load_tokenizer(path / "tokenizer.json") if has_own else GPT2Tokenizer()
        if args.adapter:
            lora.merge(lora.load_adapter(model, args.adapter))
    elif args.adapter:
        raise ValueError(
            f"--adapter is for the model that it was trained on, a Hugging Face directory; {path} is none."
        )
    else:
        project, checkpoint = find_project(path)
        checkpoint = find_checkpoint(project, args.checkpoint_dir) if checkpoint is None else checkpoint
        meta = json.loads(beside_weights("model_meta.json", checkpoint, project).read_text())
        kind = GPT2 if meta.get("architecture", "gpt2") == "gpt2" else Llama
        model = kind(kind.config_class.from_dict({**meta["model"], "fused": fused}))
        if (training := meta.get("training", {})).get("lora_r"):
            lora.inject(model, training["lora_target_modules"], training["lora_r"], training["lora_alpha"])
        try:
            model.load_state_dict(load_safetensors(checkpoint / "model.safetensors"))
        except RuntimeError:
            raise ValueError(
                f"{checkpoint} holds another model than {project / 'model_meta.json'} describes."
            ) from None
        lora.merge(model)
        tokenizer = load_tokenizer(beside_weights("tokenizer.json", checkpoint, project))
        source = checkpoint
    dtype = mytorch.float16 if args.fp16 else mytorch.bfloat16 if args.bf16 else mytorch.float32
    return fuse_(model).to(args.device, dtype).eval(), tokenizer, source


def read_prompt(given, tokenizer):
    """The text to continue, and its tokens.

    Raises:
        ValueError: it is empty, or the tokenizer has no token for a character of it.
    """
    if given is None:
        try:
            return "\n", tokenizer.encode("\n")
        except ValueError:  # a vocabulary of characters without line breaks
            return tokenizer.decode([0]), [0]
    text = given
    if given.startswith("FILE:"):
        path = Path(given.removeprefix("FILE:"))
        if not path.is_file():
            raise FileNotFoundError(f"--prompt {given}: there is no such file.")
        text = path.read_text(encoding="utf-8")
    tokens = tokenizer.encode(text)
    if not tokens:
        raise ValueError("the prompt is empty; give at least one character.")
    return text, tokens


class Printer:
    """Prints tokens as they come; bytes of one character that are split over tokens wait for each other."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.before, self.pending = (
            [],
            [],
        )  # what was printed last tells how the next tokens begin: with a space, or not

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
    made, began = 0, time.perf_counter()
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
            made += 1
    print()
    if args.compute_tok_per_sec:
        seconds = time.perf_counter() - began
        print(f"Tokens/Sec: {made / seconds:.1f} ({made} tokens in {seconds:.2f} s)")
    return 0


if __name__ == "__main__":
    run_script(main)
