"""`mytorchrun chat train`: tokenizer, pretraining on a book, mid-training on book and conversations, and fine-tuning."""

import json
import random
import time
from pathlib import Path

import numpy as np

import mytorch
from mytorch.accelerate.runs import Interrupt
from mytorch.models import Llama, LlamaConfig, fuse_
from mytorch.models.chat import BEGIN, SPECIAL, render, reply
from mytorch.models.llama import NANOCHAT
from mytorch.models.tokenizer import FastTokenizer
from mytorch.nn.utils import clip_grad_norm_

from . import data

CONVERSATIONS = 4000


class Optimizers:
    """Muon for the blocks' matrices and AdamW for embedding and head, with linear decay in the last 40 % of the steps.

    Args:
        model: model to train.
        steps: number of steps.
        scale: factor of all learning rates.
    """

    def __init__(self, model, steps, scale=1.0):
        inner = [p for p in model.model.layers.parameters() if p.ndim == 2]
        options = {"betas": (0.8, 0.95), "eps": 1e-10, "weight_decay": 0.0}
        outer = [
            {"params": [model.model.embed_tokens.weight], "lr": 2e-2 * scale},
            {"params": [model.lm_head.weight], "lr": 4e-3 * scale},
        ]
        self.all = [
            mytorch.optim.Muon(inner, lr=2e-2 * scale, weight_decay=0.0),
            mytorch.optim.AdamW(outer, lr=scale, **options),
        ]
        self.full = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.all]
        self.steps = steps

    def step(self, done):
        """Update the parameters after `done` earlier steps."""
        share = min(1.0, (self.steps - done) / (0.4 * self.steps))
        for optimizer, rates in zip(self.all, self.full, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad()


class Stage:
    """A stage of training: its name, number of steps, and function that returns a batch of (inputs, targets)."""

    def __init__(self, name, steps, batch, scale=1.0):
        self.name, self.steps, self.batch, self.scale = name, steps, batch, scale

    def train(self, model, say, interrupt=None, state=None):
        """Train the model; returns the mean loss of the last tenth of the steps.

        Args:
            say: function that prints a line.
            interrupt: an `Interrupt`, after which the stage ends early and stores its state in `self.state`.
            state: None, or the state from which an interrupted stage continues.
        """
        optimizers, losses, began, tokens = Optimizers(model, self.steps, self.scale), [], time.perf_counter(), 0
        self.state, start = None, 0
        if state is not None:
            start = state["step"]
            for optimizer, saved in zip(optimizers.all, state["optimizers"] or (), strict=bool(state["optimizers"])):
                optimizer.load_state_dict(saved)
        model.train()
        for i in range(start, self.steps):
            x, y = self.batch()
            loss = model(mytorch.from_numpy(x).to(model.device), mytorch.from_numpy(y).to(model.device))
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizers.step(i)
            losses.append(loss.item())
            tokens += x.size
            if interrupt is not None and interrupt.signal is not None:
                say(f"{self.name:12} stopped after step {i + 1} of {self.steps}")
                self.state = {"step": i + 1, "optimizers": [optimizer.state_dict() for optimizer in optimizers.all]}
                break
            if (i + 1) % max(1, self.steps // 8) == 0 or i + 1 == self.steps:
                rate = tokens / (time.perf_counter() - began)
                say(f"{self.name:12} step {i + 1:5} of {self.steps}  loss {losses[-1]:6.3f}  {rate:8,.0f} tokens/s")
        return float(np.mean(losses[-max(1, self.steps // 10) :])) if losses else float("nan")


def blocks(tokens, rows, length, chooser):
    """Return a function that draws batches of random pieces of a sequence."""

    def batch():
        starts = chooser.integers(0, len(tokens) - length, rows)
        pieces = tokens[starts[:, None] + np.arange(length + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    return batch


def answers(rendered, rows, length, chooser):
    """Return a function that draws batches of conversations; only the assistant's tokens count in the loss."""

    def batch():
        some = [rendered[i] for i in chooser.integers(0, len(rendered), rows)]
        longest = min(length, max(len(tokens) for tokens, _ in some) - 1)
        x, y = np.zeros((rows, longest), np.int64), np.full((rows, longest), -100)
        for i, (tokens, said) in enumerate(some):
            row, learnt = np.asarray(tokens[: longest + 1]), np.asarray(said[: longest + 1])
            x[i, : len(row) - 1] = row[:-1]
            y[i, : len(row) - 1] = np.where(learnt[1:], row[1:], -100)
        return x, y

    return batch


def mixed(one, other, done=0):
    """Return a function that alternates between the batches of two functions, after `done` earlier batches."""
    turn = [done]

    def batch():
        turn[0] += 1
        return (one, other)[turn[0] % 2]()

    return batch


def score(model, kept, most=12):
    """Evaluate held-out questions: {kind: (number of correct answers, number of questions)}."""
    found, chooser = {}, random.Random(1)
    for kind, pairs in kept.items():
        asked = chooser.sample(pairs, min(most, len(pairs)))
        said = ["".join(reply(model, [{"role": "user", "content": q}], 32, temperature=0)) for q, _ in asked]
        found[kind] = sum(a == s for (_, a), s in zip(asked, said, strict=True)), len(asked)
    return found


OPTIONS = "text size steps batch_size context vocab_size seed".split()  # these must not change when training resumes


def _read_state(path, options):
    if not path.is_file():
        raise FileNotFoundError(f"--resume: expected the state of an interrupted training in {path}, found none.")
    state = mytorch.load(path)
    for name, value in options.items():
        if state["options"][name] != value:
            raise ValueError(f"--resume: expected --{name} {state['options'][name]} as before, got {value}.")
    return state


def train(args, say=print):
    """Run all stages and return the model, which is saved in args.folder after each stage.

    Ctrl-C finishes the current step, saves the model and the state of training, and raises KeyboardInterrupt. With
    `args.resume`, training continues from that state with the same results as without the interruption.

    Raises:
        FileNotFoundError: `args.resume` is set, and the folder contains no state.
        ValueError: the state belongs to other options.
    """
    path, options = Path(args.folder) / "interrupted.pt", {name: getattr(args, name) for name in OPTIONS}
    state = _read_state(path, options) if args.resume else None
    mytorch.manual_seed(args.seed)
    chooser = np.random.default_rng(args.seed)
    text, name = data.read_book(args.text)
    learnt, kept = data.split()
    talks = list(data.conversations(learnt, CONVERSATIONS, args.seed))
    spoken = [message["content"] for talk in talks for message in talk]
    tokenizer = FastTokenizer.train([text, *spoken], args.vocab_size, SPECIAL)
    book = np.asarray([tokenizer.special[BEGIN], *tokenizer.encode(text, special=False)])
    rendered = [render(tokenizer, talk) for talk in talks]
    together = np.concatenate([tokens for tokens, _ in rendered])
    if len(book) <= args.context:
        raise ValueError(
            f"--text: expected more than {args.context} tokens (--context), got {len(book)} in {args.text}. Use a longer text."
        )
    say(f"tokenizer    {tokenizer.vocab_size} tokens from {name}: {len(text):,} characters, {len(book):,} tokens")
    config = LlamaConfig.sized(
        args.size, vocab_size=tokenizer.vocab_size, context_length=args.context, num_kv_heads=None, **NANOCHAT
    )
    model = fuse_(Llama(config)).to(args.device)
    model.tokenizer = tokenizer
    say(f"model        {model.num_parameters():,} parameters on {args.device}")
    if state is not None:
        model.load_state_dict(state["model"])
        mytorch.set_rng_state(state["generator"])
        chooser.bit_generator.state = json.loads(state["chooser"])
    first, step = (0, 0) if state is None else (state["stage"], state["step"])
    shape = args.batch_size, args.context, chooser
    reading, talking = blocks(book, *shape), blocks(together, *shape)
    with Interrupt() as interrupt:
        stages = (
            Stage("pretraining", args.steps, reading),
            Stage("mid-training", max(1, args.steps // 2), mixed(reading, talking, step if first == 1 else 0), 0.5),
            Stage("fine-tuning", max(1, args.steps // 2), answers(rendered, *shape), 0.25),
        )
        for number, stage in enumerate(stages[first:], first):
            stage.train(model, say, interrupt, state if number == first else None)
            model.save_pretrained(args.folder)
            if interrupt.signal is not None:
                rest = (
                    {"stage": number, **stage.state}
                    if stage.state
                    else {"stage": number + 1, "step": 0, "optimizers": None}
                )
                rest |= {"model": model.state_dict(), "generator": mytorch.get_rng_state(), "options": options}
                mytorch.save({**rest, "chooser": json.dumps(chooser.bit_generator.state)}, path)
                say(
                    f"Interrupted: the model is saved in {args.folder}. The same command with --resume continues training."
                )
                raise KeyboardInterrupt
    path.unlink(missing_ok=True)
    model.eval()
    right = score(model, kept)
    said = ", ".join(f"{kind} {good} of {count}" for kind, (good, count) in right.items())
    say(f"correct answers to held-out questions: {said}")
    return model
