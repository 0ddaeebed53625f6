"""What the chat's model learns from: a book, and conversations made by rule, some of whose questions are kept for a test."""

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
    """(a text, its name): that of a file; or Moby-Dick, where the repository is; or else this package's own source."""
    if path is not None:
        return Path(path).read_text(encoding="utf-8"), str(path)
    book = PACKAGE.parent / "examples" / "moby_dick.txt.gz"
    if book.is_file():
        return gzip.decompress(book.read_bytes()).decode(), "Melville's Moby-Dick"
    files = sorted(PACKAGE.glob("*/*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files), "mytorch's own source"


def _opposites():
    return {**OPPOSITES, **{b: a for a, b in OPPOSITES.items()}}


def questions():
    """All questions of each kind with their answers: {kind: [(several wordings, answer), …]}."""
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
    """(questions to learn from, questions kept back), both {kind: [(wording, answer), …]}.

    Kept back is one wording of every second question that has several: its answer is learnt, the way of asking from others.
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
    """Yield conversations of one to three exchanges, each a list of messages; of the many sums there are more."""
    chooser, kinds = random.Random(seed), [*learnt, "sums", "sums"]
    for _ in range(count):
        messages = []
        for _ in range(chooser.choice((1, 1, 2, 3))):
            question, answer = chooser.choice(learnt[chooser.choice(kinds)])
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        yield messages
