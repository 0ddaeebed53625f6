"""A small Llama on a text: RMS norms, rotary positions, grouped query attention, SwiGLU, a key-value cache.

    python -m examples.llama --text book.txt --steps 2000

Source: Touvron et al., 2023.
"""

import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.data import default_device, read_text, text_batches
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, positive, run_script, usable_device
from mytorch.nn import functional as F
from mytorch.utils.tokenizer import CharTokenizer


class Attention(nn.Module):
    """Causal attention in which several query heads share a key head; positions are angles."""

    def __init__(self, width, heads, key_heads):
        super().__init__()
        self.head = width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * key_heads * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin, cache=None):
        q = self.q(x).unflatten(-1, (-1, self.head)).transpose(1, 2)  # (B, heads, T, head)
        k, v = self.kv(x).unflatten(-1, (-1, self.head)).transpose(1, 2).chunk(2, dim=1)  # (B, key_heads, T, head)
        q, k = F.apply_rotary_pos_embed(q, k, cos, sin)
        if cache is not None:
            k, v = cache.append(k, v)
        first = k.shape[2] == q.shape[2]  # else q is one new position, which sees everything before it
        x = F.scaled_dot_product_attention(q, k, v, is_causal=first, enable_gqa=True)
        return self.out(x.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """Two linear layers, the first one gated by a third. Source: Shazeer, 2020."""

    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """x + attention(norm(x)), then the same with the feed-forward part."""

    def __init__(self, width, heads, key_heads, feed_forward):
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(width), Attention(width, heads, key_heads)
        self.feed_forward_norm, self.feed_forward = nn.RMSNorm(width), feed_forward

    def forward(self, x, cos, sin, cache=None):
        x = x + self.attention(self.attention_norm(x), cos, sin, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class LayerCache:
    """The keys and values (B, key_heads, T, head) of the positions so far."""

    def __init__(self):
        self.k = self.v = None

    def append(self, k, v):
        self.k = k if self.k is None else mytorch.cat([self.k, k], dim=2)
        self.v = v if self.v is None else mytorch.cat([self.v, v], dim=2)
        return self.k, self.v


class Llama(nn.Module):
    """Tokens (B, T) to logits (B, T, V).

    Args:
        feed_forward: makes the feed-forward part of a block; by default SwiGLU, 8/3 as wide.
    """

    def __init__(self, vocab_size, context, width=128, layers=4, heads=4, key_heads=2, feed_forward=None):
        super().__init__()
        feed_forward = feed_forward or (lambda: SwiGLU(width, width * 8 // 3))
        self.context, self.layers = context, layers
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.ModuleList([Block(width, heads, key_heads, feed_forward()) for _ in range(layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        cos, sin = F.precompute_rotary_cos_sin(width // heads, context)
        self.register_buffer("cos", cos[0], persistent=False)  # (context, width // heads)
        self.register_buffer("sin", sin[0], persistent=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, caches=None, start=0):
        here = slice(start, start + tokens.shape[1])
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, self.cos[here], self.sin[here], None if caches is None else caches[i])
        return self.head(self.norm(x))

    @mytorch.no_grad()
    def write(self, tokens, count, temperature):
        """`count` tokens that follow tokens (1, T); each new one goes through the network alone."""
        caches, start, written = [LayerCache() for _ in range(self.layers)], 0, []
        for _ in range(min(count, self.context - tokens.shape[1])):
            logits = self(tokens, caches, start)[:, -1]
            start += tokens.shape[1]
            tokens = mytorch.multinomial(F.softmax(logits / temperature, dim=-1), 1)  # (1, 1)
            written.append(tokens.item())
        return written


def flags(description):
    """A parser with the flags of training on a text."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", type=usable_device, default=default_device())
    parser.add_argument("--text", help="a file to read; by default Moby-Dick")
    parser.add_argument("--steps", type=count, default=300)
    parser.add_argument("--batch_size", type=count, default=16)
    parser.add_argument("--context", type=count, default=128)
    parser.add_argument("--width", type=count, default=128)
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--heads", type=count, default=4)
    parser.add_argument("--key_heads", type=count, default=2)
    parser.add_argument("--lr", type=positive, default=3e-3)
    parser.add_argument("--temperature", type=positive, default=0.7)
    return parser


def fit(args, feed_forward=None, extra_loss=lambda model: 0.0):
    """Train a Llama on a text; print what it writes and its loss on the text's last tenth. Returns the model.

    Args:
        feed_forward: as Llama's.
        extra_loss: added to the loss of each step.
    """
    mytorch.manual_seed(0)
    text = read_text(args.text)
    tokenizer = CharTokenizer.from_text(text)
    tokens = mytorch.tensor(tokenizer.encode(text))
    cut = int(0.9 * len(tokens))
    sizes = (args.context, args.width, args.layers, args.heads, args.key_heads)
    model = Llama(tokenizer.vocab_size, *sizes, feed_forward).to(args.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {args.device}")
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = mytorch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps, pct_start=0.1)

    def loss_of(x, y):
        return F.cross_entropy(model(x.to(args.device)).flatten(0, 1), y.to(args.device).flatten())

    begin = time.perf_counter()
    for step, batch in enumerate(text_batches(tokens[:cut], args.batch_size, args.context, args.steps), 1):
        loss = loss_of(*batch)
        optimizer.zero_grad()
        (loss + extra_loss(model)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            speed = step * args.batch_size * args.context / (time.perf_counter() - begin)
            print(f"step {step}  loss {loss.item():.3f}  {speed:.0f} tokens/s")

    model.eval()
    start = tokens[cut : cut + 16].unsqueeze(0).to(args.device)
    print(f"\n{tokenizer.decode(start[0].tolist() + model.write(start, args.context, args.temperature))}\n")
    with mytorch.no_grad():
        losses = [loss_of(*batch).item() for batch in text_batches(tokens[cut:], args.batch_size, args.context, 10)]
    print(f"validation loss {sum(losses) / len(losses):.3f} (guessing blindly: {math.log(tokenizer.vocab_size):.3f})")
    return model


def main():
    fit(flags(__doc__.splitlines()[0]).parse_args())


if __name__ == "__main__":
    run_script(main)
