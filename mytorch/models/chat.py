"""Conversations as tokens, and a model's part in them: special tokens say where each one's words begin and end.

Source: the form is nanochat's (Karpathy, 2025).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .generation import pieces

BEGIN = "<|bos|>"
MARKS = {"user": ("<|user_start|>", "<|user_end|>"), "assistant": ("<|assistant_start|>", "<|assistant_end|>")}
SPECIAL = [BEGIN, *MARKS["user"], *MARKS["assistant"]]


def check(messages: Any) -> None:
    """Refuse what is no conversation that waits for an answer.

    Raises:
        ValueError: with what is wrong.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages: a list of at least one message is expected")
    for i, message in enumerate(messages):
        role = "assistant" if i % 2 else "user"
        if not isinstance(message, dict) or message.get("role") != role or not isinstance(message.get("content"), str):
            raise ValueError(
                f'messages[{i}]: {{"role": "{role}", "content": "…"}} is expected; user and assistant take turns'
            )
    if len(messages) % 2 == 0:
        raise ValueError("messages: the last one is the assistant's; a user's is expected")
    if not messages[-1]["content"].strip():
        raise ValueError(f"messages[{len(messages) - 1}]: its content is empty")


def render(tokenizer: Any, messages: Sequence[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """The tokens of a conversation, and which of them the assistant says (its end mark, too), which is what is learnt.

    Args:
        tokenizer: a FastTokenizer with SPECIAL. What messages say is text, also if it looks like a mark.
        messages: dicts of "role" and "content".
    """
    tokens, said = [tokenizer.special[BEGIN]], [False]
    for message in messages:
        first, last = (tokenizer.special[mark] for mark in MARKS[message["role"]])
        words = [*tokenizer.encode(message["content"], special=False), last]
        tokens += [first, *words]
        said += [False] + [message["role"] == "assistant"] * len(words)
    return tokens, said


def reply(model: Any, messages: list[dict[str, str]], max_new_tokens: int = 128, **options: Any) -> Iterator[str]:
    """Yield a model's answer to a conversation in pieces of text; the oldest exchanges are left out if it gets too long.

    Args:
        model: with a tokenizer that has SPECIAL.
        messages: dicts of "role" and "content"; user and assistant take turns, a user's is the last.
        max_new_tokens: the answer's at most.
        **options: of `mytorch.models.stream`, such as temperature.

    Raises:
        ValueError: it is no conversation that waits for an answer, or its last message alone is too long.
    """
    check(messages)
    tokenizer, context = model.tokenizer, model.config.context_length
    start, end = (tokenizer.special[mark] for mark in MARKS["assistant"])
    least = min(16, context // 4)  # room for an answer
    for first in range(0, len(messages), 2):
        tokens = [*render(tokenizer, messages[first:])[0], start]
        if len(tokens) + least <= context:
            break
    else:
        raise ValueError(
            f"the message has {len(tokens)} tokens; with an answer it doesn't fit in the model's {context}"
        )
    options = {"vocab_size": tokenizer.vocab_size, **options}
    yield from pieces(model, tokens, min(max_new_tokens, context - len(tokens)), stop=[end], **options)
