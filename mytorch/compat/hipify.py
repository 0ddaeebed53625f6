"""`torch.utils.hipify.hipify_python`: the prefix tree of PyTorch's translator from CUDA to HIP. There is no translator here."""

import re

from .stubs import refusal


class Trie:
    """A set of words, and a regular expression that matches them.

    Example:
        >>> from mytorch.compat.hipify import Trie
        >>> trie = Trie()
        >>> for word in ("app", "apple", "ban"):
        ...     trie.add(word)
        >>> trie.search("app"), trie.search("ap"), trie.export_to_regex()
        (True, False, '(?:app(?:le)?|ban)')
    """

    def __init__(self):
        self._words = set()

    def add(self, word):
        """Adds a word."""
        self._words.add(word)

    def search(self, word):
        """Returns True if the set contains a word."""
        return word in self._words

    def dump(self):
        """Returns the words as a sorted list."""
        return sorted(self._words)

    def quote(self, char):
        """Returns a character as a regular expression.

        Args:
            char: the character.
        """
        return re.escape(char)

    def export_to_regex(self):
        """Returns a regular expression that matches exactly the words."""
        return self._pattern(self._words)

    def _pattern(self, words):
        """Returns a regular expression for words with common prefixes written once; "" if only the empty word is left."""
        ends = {}
        for word in words - {""}:
            ends.setdefault(word[0], set()).add(word[1:])
        if not ends:
            return ""
        single = sorted(char for char, rest in ends.items() if rest == {""})
        choices = [self.quote(char) + self._pattern(rest) for char, rest in sorted(ends.items()) if rest != {""}]
        only_characters = not choices
        if single:
            listed = "".join(map(self.quote, single))
            choices.append(f"[{listed}]" if len(single) > 1 else listed)
        found = choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
        if "" not in words:
            return found
        return f"{found}?" if only_characters else f"(?:{found})?"


def hipify(*args, **kwargs):
    """Raises an error, because the library has no translator from CUDA to HIP.

    Raises:
        NotImplementedError: always.
    """
    raise refusal("torch.utils.hipify.hipify_python.hipify", "C++ extensions")
