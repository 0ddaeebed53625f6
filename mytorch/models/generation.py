"""Making text: the rules that pick the next token, and the loop around them.

`model` is any causal language model: called with integers (B, T), `cache=` and `last_only=True` it gives
logits (B, 1, V), and it has `new_cache`, `config.context_length`, `train` and `eval`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from .._array import on_input_device
from ..backend import on, xp_of
from ..base.dtypes import int64
from ..graph.mode import no_grad
from ..nn import Module
from ..ops.random import Generator, multinomial
from ..tensor import Tensor


@on_input_device
def pick(
    logits: Tensor,
    seen=None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    generator: Generator | None = None,
    vocab_size: int | None = None,
) -> Tensor:
    """The next token of each row of `logits` (B, V), drawn or, at temperature 0, the likeliest: int64 (B,).

    Args:
        seen: raw integers (B, T), the tokens whose repetition is discouraged.
        temperature: logits are divided by it; below 1 sharpens, above 1 flattens.
        top_k: draw among the k likeliest only.
        top_p: draw among the likeliest whose probabilities together reach top_p.
        repetition_penalty: logits of seen tokens are divided by it if positive, else multiplied.
        generator: where the random numbers come from.
        vocab_size: how many of the V are tokens; the others only fill the table up.

    Source: top_p: Holtzman et al., 2020; penalty: Keskar et al., CTRL, 2019.
    """
    raw = logits._data._array
    xp = xp_of(raw)
    scores = raw[:, :vocab_size].astype("float32")  # a copy, and half precision is too coarse for sums
    if repetition_penalty != 1.0 and seen is not None:
        rows = xp.arange(scores.shape[0])[:, None]
        of_seen = scores[rows, seen]
        scores[rows, seen] = xp.where(of_seen > 0, of_seen / repetition_penalty, of_seen * repetition_penalty)
    if temperature == 0:
        return Tensor._wrap(scores.argmax(axis=-1).astype("int64"))
    if temperature != 1.0:
        scores /= temperature
    size = scores.shape[-1]
    if top_k is not None and top_k < size:
        floor = xp.partition(scores, size - top_k, axis=-1)[:, size - top_k, None]
        scores[scores < floor] = -xp.inf
    scores -= scores.max(axis=-1, keepdims=True)
    p = xp.exp(scores, out=scores)
    p /= p.sum(axis=-1, keepdims=True)
    if top_p is not None and top_p < 1.0:
        ordered = xp.sort(p, axis=-1)[:, ::-1]
        before = xp.cumsum(ordered, axis=-1) - ordered  # of the likelier ones; 0 for the first, so one remains
        kept = xp.where(before < top_p, ordered, xp.inf).min(axis=-1, keepdims=True)
        p[p < kept] = 0
    return multinomial(Tensor._wrap(p), 1, generator=generator).reshape(-1)


def _check(max_new_tokens, temperature, top_k, top_p, repetition_penalty):
    for name, value, holds, expected in (
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 0, "0 or more"),
        ("temperature", temperature, temperature >= 0, "0 (the likeliest token) or more"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1, or None for all tokens"),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1, "a number above 0 and at most 1"),
        ("repetition_penalty", repetition_penalty, repetition_penalty > 0, "a positive number"),
    ):
        if not holds:
            raise ValueError(f"generate: {name} is {value}; expected {expected}.")


@no_grad()
def stream(
    model: Module,
    input: Tensor,
    max_new_tokens: int,
    *,
    stop: int | Iterable[int] | None = None,
    seed: int | None = None,
    use_cache: bool = True,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    generator: Generator | None = None,
    vocab_size: int | None = None,
) -> Iterator[Tensor]:
    """Yield the next token of each sequence, int64 (B,), as they are made.

    Past the model's context the oldest tokens are dropped, as in nanoGPT; positions then shift, so the cache
    is of no more use and each token costs a whole pass.

    Args:
        model: see the module's docstring. It is in eval mode while the generator is open.
        input: integers (B, T) or (T,), at least one token.
        max_new_tokens: how many to make.
        temperature, top_k, top_p, repetition_penalty, vocab_size: see `pick`.
        stop: a token, or several; a sequence that has made one repeats it, and when all have, it ends.
        seed: makes the result repeatable; generator: instead, a Generator to draw from.
        use_cache: keep keys and values of earlier positions instead of computing them again.

    Raises:
        ValueError: an option outside its range, or an empty input.
    """
    _check(max_new_tokens, temperature, top_k, top_p, repetition_penalty)
    prompt = input if input.ndim == 2 else input.reshape(1, -1)
    B, T = prompt.shape
    if T == 0:
        raise ValueError("generate: the input is empty; give at least one token, such as a line break.")
    if seed is not None and generator is None:
        generator = Generator(prompt.device).manual_seed(seed)
    stops = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    context = model.config.context_length
    xp, there = on(prompt.device)
    with there:
        tokens = xp.empty((B, T + max_new_tokens), "int64")
        done = xp.zeros(B, bool)
        tokens[:, :T] = prompt._data._array
    cache = model.new_cache(B, min(T + max_new_tokens, context)) if use_cache else None
    was_training = model.training
    model.eval()
    try:
        for n in range(T, T + max_new_tokens):
            with there:
                if cache is not None and n <= context:
                    logits = model(Tensor._wrap(tokens[:, cache.length : n]), cache=cache, last_only=True)
                else:
                    logits = model(Tensor._wrap(tokens[:, max(0, n - context) : n]), last_only=True)
                new = pick(
                    logits[:, -1], tokens[:, :n], temperature, top_k, top_p, repetition_penalty, generator, vocab_size
                )._data._array
                if stops:
                    new = xp.where(done, tokens[:, n - 1], new)
                    done |= xp.isin(new, xp.asarray(stops))
                tokens[:, n] = new
                finished = stops and bool(done.all())
            yield Tensor._wrap(new)
            if finished:
                return
    finally:
        model.train(was_training)


@on_input_device
def generate(model: Module, input: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
    """`input` (B, T) and its continuation, int64 (B, T + new); the options are those of `stream`.

    Args:
        model: a language model, (B, T) to logits (B, T, V).
        input: int64 (B, T).
        max_new_tokens: at most so many are added.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=8)
        >>> mytorch.models.generate(model, tensor([[1, 2]]), 3, temperature=0).shape
        mytorch.Size([1, 5])
    """
    prompt = input if input.ndim == 2 else input.reshape(1, -1)
    xp = xp_of(prompt._data._array)
    columns = [prompt.to(int64)._data._array]
    columns += [new._data._array[:, None] for new in stream(model, prompt, max_new_tokens, **options)]
    return Tensor._wrap(xp.concatenate(columns, axis=1))
