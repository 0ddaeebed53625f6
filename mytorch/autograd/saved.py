"""Hooks on saved arrays: `pack` runs when an op saves an array, and `unpack` when backward needs it."""

from ..arrays import is_raw, memory_owner
from .node import copy_before_change


class Packed:
    """The result of `pack` for one saved array."""

    __slots__ = ("hooks", "value")

    def __init__(self, value, hooks):
        self.value = value
        self.hooks = hooks


class PackedValues:
    """The saved values of a node, as a sequence that unpacks them at each access."""

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
    """Runs the pack hook on each saved array of a node, converted to a Tensor by `wrap`.

    As in PyTorch, the versions of these arrays are not checked in backward.
    """
    if node.saved:
        counters = [counter for counter, _ in node.versions]
        node.saved = PackedValues(tuple(packed(value, hooks, wrap, counters) for value in node.saved))
        node.versions = ()


def packed(value, hooks, wrap, counters):
    """Packs the arrays of a saved value, also in tuples and lists. `counters` are the version counters of the saved arrays."""
    if is_raw(value):
        tensor = wrap(value)
        kept = hooks[0](tensor)
        # A hook may keep the tensor, or a view of it. If the array is changed in place, they keep the values before the change.
        for array in {tensor._mt_data, getattr(kept, "_mt_data", tensor._mt_data)}:
            if memory_owner(array._array) is memory_owner(value):
                for counter in counters:
                    if type(counter) is list:
                        copy_before_change(counter, array)
        return Packed(kept, hooks)
    if type(value) in (tuple, list) and any(map(is_raw, value)):
        return type(value)(packed(item, hooks, wrap, counters) for item in value)
    return value


def unpacked(value):
    """Unpacks the arrays of a saved value."""
    # At each access and not once: a hook that moved arrays to disk or to another device wants only the ones in use back.
    if type(value) is Packed:
        tensor = value.hooks[1](value.value)
        inner = getattr(tensor, "_mt_data", None)
        if inner is None:
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(tensor).__name__}"
            )
        return inner._array
    if type(value) in (tuple, list) and any(type(item) is Packed for item in value):
        return type(value)(map(unpacked, value))
    return value
