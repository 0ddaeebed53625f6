"""`mytorchrun chat train`: a tokenizer, pretraining on a book, mid-training on book and conversations, fine-tuning on answers."""

import random
import time

import numpy as np

import mytorch
from mytorch.models import Llama, LlamaConfig, fuse_
from mytorch.models.chat import BEGIN, SPECIAL, render, reply
from mytorch.models.llama import NANOCHAT
from mytorch.models.tokenizer import FastTokenizer
from mytorch.nn.utils import clip_grad_norm_

from . import data

CONVERSATIONS = 4000


class Optimizers:
    """Muon for the matrices within the blocks, AdamW for the embedding and the head; the last two fifths of the steps slow down.

    Args:
        model: what is trained.
        steps: how many.
        scale: of all learning rates.
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
        """One update, after `done` of them."""
        share = min(1.0, (self.steps - done) / (0.4 * self.steps))
        for optimizer, rates in zip(self.all, self.full, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad()


class Stage:
    """One of the trainings: a name, how many steps, and what makes a batch of (inputs, targets)."""

    def __init__(self, name, steps, batch, scale=1.0):
        self.name, self.steps, self.batch, self.scale = name, steps, batch, scale

    def train(self, model, say):
        """Train; returns the mean loss of the last tenth of the steps."""
        optimizers, losses, began, tokens = Optimizers(model, self.steps, self.scale), [], time.perf_counter(), 0
        model.train()
        for i in range(self.steps):
            x, y = self.batch()
            loss = model(mytorch.from_numpy(x).to(model.device), mytorch.from_numpy(y).to(model.device))
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizers.step(i)
            losses.append(loss.item())
            tokens += x.size
            if (i + 1) % max(1, self.steps // 8) == 0 or i + 1 == self.steps:
                rate = tokens / (time.perf_counter() - began)
                say(f"{self.name:12} step {i + 1:5} of {self.steps}  loss {losses[-1]:6.3f}  {rate:8,.0f} tokens/s")
        return float(np.mean(losses[-max(1, self.steps // 10) :]))


def blocks(tokens, rows, length, chooser):
    """A function that makes batches of random pieces of a sequence."""

    def batch():
        starts = chooser.integers(0, len(tokens) - length, rows)
        pieces = tokens[starts[:, None] + np.arange(length + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    return batch


def answers(rendered, rows, length, chooser):
    """A function that makes batches of whole conversations, of whose tokens those count that the assistant says."""

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


def mixed(one, other):
    """A function that makes batches of two others by turns."""
    turn = [0]

    def batch():
        turn[0] += 1
        return (one, other)[turn[0] % 2]()

    return batch


def score(model, kept, most=12):
    """{kind: (answered rightly, asked)} of questions that were not learnt from, some of each kind."""
    found, chooser = {}, random.Random(1)
    for kind, pairs in kept.items():
        asked = chooser.sample(pairs, min(most, len(pairs)))
        said = ["".join(reply(model, [{"role": "user", "content": q}], 32, temperature=0)) for q, _ in asked]
        found[kind] = sum(a == s for (_, a), s in zip(asked, said, strict=True)), len(asked)
    return found


def train(args, say=print):
    """Everything, from the text to a model that answers, which lies in args.folder after each stage. Returns the model."""
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
            f"--text {args.text}: its {len(book)} tokens are fewer than a context of {args.context} needs."
        )
    say(f"tokenizer    {tokenizer.vocab_size} tokens from {name}: {len(text):,} characters, {len(book):,} tokens")
    config = LlamaConfig.sized(
        args.size, vocab_size=tokenizer.vocab_size, context_length=args.context, num_kv_heads=None, **NANOCHAT
    )
    model = fuse_(Llama(config)).to(args.device)
    model.tokenizer = tokenizer
    say(f"model        {model.num_parameters():,} parameters on {args.device}")
    shape = args.batch_size, args.context, chooser
    reading, talking = blocks(book, *shape), blocks(together, *shape)
    for stage in (
        Stage("pretraining", args.steps, reading),
        Stage("mid-training", max(1, args.steps // 2), mixed(reading, talking), 0.5),
        Stage("fine-tuning", max(1, args.steps // 2), answers(rendered, *shape), 0.25),
    ):
        stage.train(model, say)
        model.save_pretrained(args.folder)
    model.eval()
    right = score(model, kept)
    said = ", ".join(f"{kind} {good} of {count}" for kind, (good, count) in right.items())
    say(f"questions in words that were not learnt from, answered rightly: {said}")
    return model
