"""Training data of the chat model: a book, and synthetic conversations, with some questions held out for evaluation."""

import gzip
import random
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "England": "London", "Japan": "Tokyo",
    "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo", "Norway": "Oslo", "Peru": "Lima",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "day": "night", "good": "bad", "old": "young", "wet": "dry", "fast": "slow",
    "high": "low", "left": "right", "open": "closed", "light": "dark",
}  # fmt: skip
COLOURS = {"the sky": "blue", "snow": "white", "grass": "green", "blood": "red", "coal": "black", "the sun": "yellow"}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FACTS = {
    "Who are you?": "I am a small language model, trained on this computer with mytorch.",
    "What is your name?": "I have no name. I am a small language model.",
    "What can you do?": "I add small numbers, name capitals, colours and opposites, and talk of whales.",
    "Hello": "Hello! What would you like to know?",
    "Hi!": "Hello! What would you like to know?",
    "Thank you": "You are welcome.",
    "Goodbye": "Goodbye!",
    "How are you?": "I am well, thank you. And you?",
    "Who is the captain of the Pequod?": "Captain Ahab is the captain of the Pequod.",
    "Who is Moby Dick?": "Moby Dick is a white whale.",
    "Who tells the story of Moby Dick?": "Ishmael tells the story.",
    "What does Ahab want?": "Ahab wants to kill the white whale.",
}


def read_book(path=None):
    """Return (text, its name): the given file, or Moby-Dick from the repository or from the folder examples.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    if path is not None:
        return Path(path).read_text(encoding="utf-8"), str(path)
    for folder in (PACKAGE.parent, Path()):
        book = folder / "examples" / "moby_dick.txt.gz"
        if book.is_file():
            return gzip.decompress(book.read_bytes()).decode(), "Melville's Moby-Dick"
    raise FileNotFoundError(
        "--text: expected a text file, because an installed package does not contain the default text. Use --text FILE, or run "
        "the command in a clone of the repository."
    )


def _opposites():
    return {**OPPOSITES, **{b: a for a, b in OPPOSITES.items()}}


def questions():
    """Return all questions of each kind with their answers: {kind: [(several wordings, answer), …]}."""
    both = [(a, b) for a in range(1, 10) for b in range(1, 10)]
    return {
        "sums": [
            ([f"What is {a} + {b}?", f"{a} + {b} = ?", f"How much is {a} plus {b}?"], f"{a} + {b} = {a + b}.") for a, b in both
        ],
        "capitals": [
            ([f"What is the capital of {c}?", f"Which city is the capital of {c}?", f"Name the capital of {c}."],
             f"The capital of {c} is {city}.") for c, city in CAPITALS.items()
        ],
        "opposites": [
            ([f"What is the opposite of {a}?", f"Say the opposite of {a}.", f"Which word is the opposite of {a}?"],
             f"The opposite of {a} is {b}.") for a, b in _opposites().items()
        ],
        "colours": [
            ([f"What colour is {x}?", f"Which colour has {x}?", f"Tell me the colour of {x}."], f"{x[0].upper()}{x[1:]} is {c}.")
            for x, c in COLOURS.items()
        ],
        "days": [
            ([f"Which day comes after {a}?", f"What day follows {a}?", f"Tell me the day after {a}."], f"{b} comes after {a}.")
            for a, b in zip(DAYS, DAYS[1:] + DAYS[:1], strict=True)
        ],
        "facts": [([question], answer) for question, answer in FACTS.items()],
    }  # fmt: skip


def split(seed=0):
    """Return (training questions, held-out questions), both {kind: [(wording, answer), …]}.

    One wording of every second question is held out, if the question has several wordings. The model sees its answer with other wordings.
    """
    chooser, learnt, kept = random.Random(seed), {}, {}
    for kind, entries in questions().items():
        learnt[kind], kept[kind] = [], []
        for i, (wordings, answer) in enumerate(entries):
            out = chooser.choice(wordings) if i % 2 and len(wordings) > 1 else None
            for wording in wordings:
                (kept if wording == out else learnt)[kind].append((wording, answer))
    return learnt, {kind: pairs for kind, pairs in kept.items() if pairs}


def conversations(learnt, count, seed=0):
    """Yield conversations of one to three exchanges, each a list of messages; sums occur more often than other kinds."""
    chooser, kinds = random.Random(seed), [*learnt, "sums", "sums"]
    for _ in range(count):
        messages = []
        for _ in range(chooser.choice((1, 1, 2, 3))):
            question, answer = chooser.choice(learnt[chooser.choice(kinds)])
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        yield messages
