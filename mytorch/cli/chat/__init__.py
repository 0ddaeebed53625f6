"""`mytorchrun chat`: make a small model that answers questions, and talk with it. Nothing is downloaded.

    mytorchrun chat train     tokenizer, pretraining, mid-training, fine-tuning: minutes on a CPU
    mytorchrun chat talk      in the terminal
    mytorchrun chat serve     in a page of this computer's browser

It is nanochat's pipeline (Karpathy, 2025) at a size for a laptop: a Llama with its options, Muon and AdamW, and a model directory in
Hugging Face's form.
"""

import sys
from pathlib import Path

from ..arguments import ArgumentParser, count, usable_device


def _load(args):
    """The model in args.folder.

    Raises:
        FileNotFoundError: there is none. ValueError: it is not one that chats.
    """
    from mytorch.models import from_pretrained, fuse_
    from mytorch.models.chat import SPECIAL
    from mytorch.models.tokenizer import load_tokenizer

    folder = Path(args.folder)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"There is no model in {folder}; `mytorchrun chat train` makes one.")
    model = fuse_(from_pretrained(folder))
    model.tokenizer = load_tokenizer(folder / "tokenizer.json")  # says what is missing
    if not set(SPECIAL) <= set(getattr(model.tokenizer, "special", ())):
        raise ValueError(f"{folder} holds a model that has not learnt to chat; `mytorchrun chat train` makes one.")
    return model.to(args.device)


def _train(args):
    from .training import train

    folder = Path(args.folder)
    if (folder / "config.json").is_file() and not args.overwrite:
        raise FileExistsError(f"{folder} holds a model already; --overwrite replaces it, --folder takes another place.")
    train(args)
    print(
        f"\nThe model is in {folder}. Talk with it:\n  mytorchrun chat talk --folder {folder}\n  mytorchrun chat serve --folder {folder}"
    )
    return 0


def _talk(args):
    from mytorch.models.chat import reply

    model, messages = _load(args), []
    print("Ask something. An empty line begins anew; Ctrl-D ends.")
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            print()
            return 0
        if not question:
            messages = []
            continue
        answer = ""
        try:
            for piece in reply(model, [*messages, {"role": "user", "content": question}], temperature=args.temperature):
                answer += piece
                sys.stdout.write(piece)
                sys.stdout.flush()
        except ValueError as error:
            print(error)
            continue
        print()
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _serve(args):
    from .server import make_server

    server = make_server(_load(args), args.port, args.temperature)
    print(f"{server.url} (Ctrl-C ends)", flush=True)
    server.serve_until_interrupted()
    return 0


def main(argv=None):
    """Run what the command line asks for."""
    parser = ArgumentParser(prog="mytorchrun chat", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="train | talk | serve")
    for name, run, description in (
        ("train", _train, "Train a small chat model: tokenizer, pretraining, mid-training and fine-tuning."),
        ("talk", _talk, "Talk to the trained model in the terminal."),
        ("serve", _serve, "Serve a web page on which you talk to the trained model."),
    ):
        p = commands.add_parser(name, description=description, help=description)
        p.set_defaults(run=run)
        p.add_argument("--folder", default="work_dir/chat", help="where the model is")
        p.add_argument("--device", type=usable_device, default="cpu", help='"cpu", "cuda" or "cuda:N"')
        if name == "train":
            p.add_argument("--text", help="a UTF-8 file to pretrain on; by default Moby-Dick, or what the package has")
            p.add_argument("--size", choices=("demo", "small", "base"), default="demo", help="layers, heads and width")
            p.add_argument(
                "--steps", type=count, default=300, help="of pretraining; the other stages take half as many"
            )
            p.add_argument("--batch_size", type=count, default=16, help="sequences in a step")
            p.add_argument("--context", type=count, default=128, help="tokens of a sequence")
            p.add_argument("--vocab_size", type=count, default=1024, help="tokens at most")
            p.add_argument("--seed", type=int, default=0, help="of weights and batches")
            p.add_argument("--overwrite", action="store_true", help="replace the model in the folder")
        else:
            p.add_argument("--temperature", type=float, default=0.3, help="0 says what is likeliest")
        if name == "serve":
            p.add_argument("--port", type=int, default=8000, help="of 127.0.0.1; 0 takes one that is free")
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except (OSError, ValueError, ImportError, UnicodeDecodeError) as error:
        print(f"mytorchrun chat: {error}", file=sys.stderr)
        return 1
