"""The texts of the project keep the rules of style in CONTRIBUTING.md; `python tests/prose.py PATH` lists each place."""

import pytest

from tests import prose
from tests.loops import loop

FILES = prose.tracked()


@loop
@pytest.mark.parametrize("folder", sorted({path.rpartition("/")[0] for path in FILES}))
def test_style(folder):
    found = [
        f"{path}:{text.line}: {rule}: {excerpt}"
        for path in FILES
        if path.rpartition("/")[0] == folder and path != "tests/prose.py"
        for text in prose.texts(path)
        for rule, excerpt in prose.problems(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("write: is in, is defined in, is next to", "The file lies in the folder."),
        ("write: again", "The page is made anew."),
        ("write: any user, any value, no object", "Whoever calls it waits."),
        ("write: American spelling", "The colour is normalised."),
        (prose.LONG_RULE, "word " * (prose.LONGEST + 1) + "."),
    ],
)
def test_rules_find_bad_sentences(rule, sentence):
    text = prose.Text("docs", "page.md", 1, sentence)
    assert rule.removeprefix("write: ") in {found.removeprefix("write: ") for found, _ in prose.problems(text)}


def test_code_and_terms_are_exempt():
    page = "Call `what_is(x)`.\n\n```python\nwhoever = 1\n```\n\nThe in-place variant; PyTorch's own code."
    assert not [p for text in prose.markdown("page.md", page) for p in prose.problems(text)]


def test_docstrings_messages_and_comments_are_read():
    source = '''
def f(p):
    """Returns p.

    Args:
        p: whoever.

    Example:
        >>> whoever()
    """
    # made anew
    raise ValueError(f"{p}, made anew")
'''
    found = [text.kind for text in prose.python("f.py", source) for _ in prose.problems(text)]
    assert sorted(found) == ["comments", "docstrings", "messages"]
