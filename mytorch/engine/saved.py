"""Hooks on what the graph saves for backward: `pack` when an op saves an array, `unpack` when backward needs it."""

from ..backend import is_raw


class Packed:
    """What `pack` made of one saved array."""

    __slots__ = ("hooks", "value")

    def __init__(self, value, hooks):
        self.value = value
        self.hooks = hooks


class PackedValues:
    """A node's saved values, unpacked at each access; used like a tuple."""

    __slots__ = ("values",)

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, k):
        return unpacked(self.values[k])

    def __iter__(self):
        return map(unpacked, self.values)


def pack_node(node, hooks, wrap):
    """Run the pack hook on every array that a node saved, as the Tensor that `wrap` makes of it. Versions are not checked then, as in PyTorch."""
    if node.saved:
        node.saved = PackedValues(tuple(packed(value, hooks, wrap) for value in node.saved))
        node.versions = ()


def packed(value, hooks, wrap):
    """A saved value with its arrays, also those in tuples and lists, packed."""
    if is_raw(value):
        return Packed(hooks[0](wrap(value)), hooks)
    if type(value) in (tuple, list) and any(map(is_raw, value)):
        return type(value)(packed(item, hooks, wrap) for item in value)
    return value


def unpacked(value):
    """A saved value with its arrays as they were."""
    if type(value) is Packed:
        tensor = value.hooks[1](value.value)
        inner = getattr(tensor, "_data", None)
        if inner is None:
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(tensor).__name__}"
            )
        return inner._array
    if type(value) in (tuple, list) and any(type(item) is Packed for item in value):
        return type(value)(map(unpacked, value))
    return value
