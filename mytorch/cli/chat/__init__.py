"""`mytorchrun chat`: train a small chat model and talk to it, without downloads.

    mytorchrun chat train     tokenizer, pretraining, mid-training, fine-tuning: minutes on a CPU
    mytorchrun chat talk      chat in the terminal; also with any model of train_gpt2.py
    mytorchrun chat serve     chat in a web page on this computer

The pipeline follows nanochat (Karpathy, 2025) at a size for a laptop: a Llama model, Muon and AdamW. The model directory
has Hugging Face's format.
"""

import sys
from pathlib import Path

from ..arguments import ArgumentParser, count, usable_device


def _load(args):
    """Load the model in args.folder: a model of `chat train`, a run of train_gpt2.py, a Hugging Face directory or a GGUF file.

    Raises:
        FileNotFoundError: if the folder contains no model.
        ValueError: if the model has no tokenizer.
    """
    from mytorch.models import from_pretrained, fuse_
    from mytorch.models.run_files import is_run
    from mytorch.models.tokenizer import load_tokenizer

    folder = Path(args.folder)
    if not (folder.is_file() or is_run(folder) or (folder / "config.json").is_file()):
        raise FileNotFoundError(f"expected a model in {folder}, found none. Run `mytorchrun chat train` first.")
    model = fuse_(from_pretrained(folder))
    if model.tokenizer is None:
        if (folder / "tokenizer.json").is_file():
            load_tokenizer(folder / "tokenizer.json")  # raises, with the reason
        raise ValueError(f"expected a model with a tokenizer in {folder}, found none.")
    return model.to(args.device)


def _can_chat(model):
    from mytorch.models.chat import SPECIAL

    return set(SPECIAL) <= set(getattr(model.tokenizer, "special", ()))


def _train(args):
    from .training import train

    folder = Path(args.folder)
    if (folder / "config.json").is_file() and not (args.overwrite or args.resume):
        raise FileExistsError(f"{folder} already contains a model. Use --overwrite to replace it, or another --folder.")
    train(args)
    print(
        f"\nThe model is in {folder}. To talk to it, run\n  mytorchrun chat talk --folder {folder}\n  mytorchrun chat serve --folder {folder}"
    )
    return 0


def _talk(args):
    from mytorch.models.chat import reply

    model, messages = _load(args), []
    if not (chats := _can_chat(model)):
        print("This model wasn't trained on conversations, so it continues your text. Type a beginning; Ctrl-D exits.")
    else:
        print("Ask a question. An empty line starts a new conversation; Ctrl-D exits.")
    temperature = args.temperature if args.temperature is not None else 0.3 if chats else 0.8
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            print()
            return 0
        if not question:
            messages = []
            continue
        messages, answer = [*messages, {"role": "user", "content": question}], ""
        try:
            if chats:
                pieces = reply(model, messages, temperature=temperature)
            else:
                model.tokenizer.encode(question)  # raises for unknown characters, before anything is printed
                sys.stdout.write(question)
                pieces = model.stream(question, 200, temperature=temperature)
            for piece in pieces:
                answer += piece
                sys.stdout.write(piece)
                sys.stdout.flush()
        except ValueError as error:
            messages = messages[:-1]
            print(error)
            continue
        print()
        messages += [{"role": "assistant", "content": answer}]


def _serve(args):
    from .server import make_server

    model = _load(args)
    if not _can_chat(model):
        raise ValueError(
            f"expected a chat model in {args.folder}, found another model. Run `mytorchrun chat train` first, or use `chat talk`."
        )
    server = make_server(model, args.port, 0.3 if args.temperature is None else args.temperature)
    print(f"{server.url} (press Ctrl-C to stop)", flush=True)
    server.serve_until_interrupted()
    return 0


def main(argv=None):
    """Run the command of the command line, and return its exit code."""
    parser = ArgumentParser(prog="mytorchrun chat", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="train | talk | serve")
    for name, run, description in (
        ("train", _train, "Train a small chat model: tokenizer, pretraining, mid-training and fine-tuning."),
        ("talk", _talk, "Talk to the trained model in the terminal."),
        ("serve", _serve, "Serve a web page for talking to the trained model."),
    ):
        p = commands.add_parser(name, description=description, help=description)
        p.set_defaults(run=run)
        p.add_argument("--folder", default="work_dir/chat", help="folder of the model")
        if name != "train":
            p.add_argument(
                "path",
                nargs="?",
                help="the same without a flag: a folder of `chat train`, of train_gpt2.py or of Hugging Face, or a GGUF file",
            )
        p.add_argument("--device", type=usable_device, default="cpu", help='device: "cpu", "cuda" or "cuda:N"')
        if name == "train":
            p.add_argument(
                "--text", help="UTF-8 text file for pretraining (default: Moby-Dick in examples/ of the repository)"
            )
            p.add_argument(
                "--size", choices=("demo", "small", "base"), default="demo", help="model size: layers, heads and width"
            )
            p.add_argument(
                "--steps",
                type=count,
                default=300,
                help="number of pretraining steps; each other stage has half as many steps",
            )
            p.add_argument("--batch_size", type=count, default=16, help="number of sequences per step")
            p.add_argument("--context", type=count, default=128, help="sequence length in tokens")
            p.add_argument("--vocab_size", type=count, default=1024, help="maximum vocabulary size in tokens")
            p.add_argument("--seed", type=int, default=0, help="random seed for weights and batches")
            p.add_argument("--resume", action="store_true", help="continue an interrupted training of the folder")
            p.add_argument("--overwrite", action="store_true", help="replace an existing model in the folder")
        else:
            p.add_argument(
                "--temperature",
                type=float,
                help="sampling temperature; 0 is greedy decoding (default: 0.3, for other texts 0.8)",
            )
        if name == "serve":
            p.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1; 0 selects a free port")
    args = parser.parse_args(argv)
    args.folder = getattr(args, "path", None) or args.folder
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except (OSError, ValueError, ImportError, UnicodeDecodeError) as error:
        print(f"mytorchrun chat: {error}", file=sys.stderr)
        return 1
