"""Hooks on saved arrays: `pack` runs when an op saves an array, and `unpack` when backward needs it."""

from ..arrays import is_raw, memory_owner
from .mode import get_mode, in_mode
from .node import Leaf, copy_before_change


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


def pack_node(node, hooks, places, of):
    """Runs the pack hook on each saved array of a node.

    As in PyTorch, the versions of these arrays are not checked in backward.

    Args:
        hooks: the functions (pack, unpack).
        places: pairs (raw array, edge) of the inputs and the outputs of the op.
        of: function (raw array, edge, class) that returns a Tensor.
    """
    if node.saved:
        counters = [counter for counter, _ in node.versions]
        node.saved = PackedValues(tuple(packed(value, hooks, places, of, counters, node) for value in node.saved))
        node.versions = ()


def packed(value, hooks, places, of, counters, node=None):
    """Packs the arrays of a saved value, also in tuples and lists; see `pack_node`.

    `counters` are the version counters of the saved arrays.
    """
    if is_raw(value):
        # A hook meets what the program knows: the parameter itself, or a tensor at the same place of the graph.
        edge = next((e for raw, e in places if raw is value and e is not None), None)
        owner = edge.variable if isinstance(edge, Leaf) else None
        owner = owner if owner is not None and owner._mt_data._array is value else None
        tensor = owner if owner is not None else of(value, edge)
        with in_mode(get_mode().no_grad()):
            kept = hooks[0](tensor)
        if owner is not None and getattr(kept, "_mt_data", None) is owner._mt_data:
            kept = tensor = of(value, kept._mt_edge, type(kept))  # another Array, which keeps the values of this moment
        elif kept is tensor and getattr(edge, "node", edge) is node:
            kept = tensor = of(value, None)  # with its edge, the node would refer to itself
        # A hook may keep the tensor, or a view of it. If the array is changed in place, they keep the values before the change.
        for array in {tensor._mt_data, getattr(kept, "_mt_data", tensor._mt_data)}:
            if owner is not None and array is owner._mt_data:
                continue
            if memory_owner(array._array) is memory_owner(value):
                for counter in counters:
                    if type(counter) is list:
                        copy_before_change(counter, array)
        return Packed(kept, hooks)
    if type(value) in (tuple, list) and any(map(is_raw, value)):
        return type(value)(packed(item, hooks, places, of, counters, node) for item in value)
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
