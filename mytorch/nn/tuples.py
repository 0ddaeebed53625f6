"""Helpers of layers for arguments that are one number or several, and for names in state dicts."""

from collections.abc import Iterable
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n, name="parse"):
    """Returns a function that converts a number to a tuple of n equal numbers, and a sequence to a tuple."""

    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix from the names in a state dict, in place. Wrappers add prefixes such as "module.".

    Args:
        state_dict: state dict of a wrapped model. The names in its metadata change as well.
        prefix: the prefix, with its final dot.

    Example:
        >>> from mytorch.nn.tuples import consume_prefix_in_state_dict_if_present
        >>> state = {"module.weight": 1, "bias": 2}
        >>> consume_prefix_in_state_dict_if_present(state, "module.")
        >>> sorted(state)
        ['bias', 'weight']
    """
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key and (key.startswith(prefix) or key == prefix.rstrip(".")):
                metadata[key[len(prefix) :]] = metadata.pop(key)
