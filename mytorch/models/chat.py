"""Conversations as tokens, and a model's answers. Special tokens mark the start and the end of each message.

Source: the format follows nanochat (Karpathy, 2025).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .generation import pieces

BEGIN = "<|bos|>"
MARKS = {"user": ("<|user_start|>", "<|user_end|>"), "assistant": ("<|assistant_start|>", "<|assistant_end|>")}
SPECIAL = [BEGIN, *MARKS["user"], *MARKS["assistant"]]


def check(messages: Any) -> None:
    """Checks that messages form a conversation that ends with a user's message.

    Args:
        messages: list of dicts with "role" and "content".

    Raises:
        ValueError: if a message is invalid.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"messages: expected a list of at least one message, got {messages!r}.")
    for i, message in enumerate(messages):
        role = "assistant" if i % 2 else "user"
        if not isinstance(message, dict) or message.get("role") != role or not isinstance(message.get("content"), str):
            raise ValueError(
                f'messages[{i}]: expected {{"role": "{role}", "content": "…"}}, because user and assistant alternate, got '
                f"{message!r}."
            )
    if len(messages) % 2 == 0:
        raise ValueError("messages: expected a last message with role 'user', got 'assistant'.")
    if not messages[-1]["content"].strip():
        raise ValueError(f"messages[{len(messages) - 1}]: expected a text in content, got an empty one.")


def render(tokenizer: Any, messages: Sequence[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """Converts a conversation to tokens, with a flag for each token of the assistant, including its end token.

    Args:
        tokenizer: a FastTokenizer with the tokens SPECIAL. Contents are always plain text, never special tokens.
        messages: dicts with "role" and "content".
    """
    tokens, said = [tokenizer.special[BEGIN]], [False]
    for message in messages:
        first, last = (tokenizer.special[mark] for mark in MARKS[message["role"]])
        words = [*tokenizer.encode(message["content"], special=False), last]
        tokens += [first, *words]
        said += [False] + [message["role"] == "assistant"] * len(words)
    return tokens, said


def reply(model: Any, messages: list[dict[str, str]], max_new_tokens: int = 128, **options: Any) -> Iterator[str]:
    """Yields a model's answer to a conversation in pieces of text. The oldest exchanges are dropped if the context is full.

    Args:
        model: model with a tokenizer that contains SPECIAL.
        messages: dicts with "role" and "content". User and assistant alternate; the last message has role "user".
        max_new_tokens: maximum length of the answer.
        **options: options of `mytorch.models.stream`, such as temperature.

    Raises:
        ValueError: if the conversation is invalid, or its last message alone exceeds the context.
    """
    check(messages)
    tokenizer, context = model.tokenizer, model.config.context_length
    start, end = (tokenizer.special[mark] for mark in MARKS["assistant"])
    least = min(16, context // 4)  # tokens reserved for an answer
    for first in range(0, len(messages), 2):
        tokens = [*render(tokenizer, messages[first:])[0], start]
        if len(tokens) + least <= context:
            break
    else:
        raise ValueError(
            f"reply: expected a message of at most {context - least} tokens, got {len(tokens)}; it doesn't fit in the context."
        )
    options = {"vocab_size": tokenizer.vocab_size, **options}
    yield from pieces(model, tokens, min(max_new_tokens, context - len(tokens)), stop=[end], **options)
