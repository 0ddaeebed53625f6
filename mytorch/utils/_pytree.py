"""Nested dicts, lists and tuples as trees: flatten a tree to its leaves, rebuild it, and map functions over it."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

from ..arrays.array import Size

_Kind = namedtuple("_Kind", "flatten_fn unflatten_fn")
_kinds = {}


class TreeSpec:
    """The structure of a tree.

    Attributes:
        type: type of the container; None for a leaf.
        context: data to rebuild the container, such as the keys of a dict.
        children_specs: a TreeSpec for each child.
        num_leaves: number of leaves.
    """

    __slots__ = ("children_specs", "context", "num_leaves", "type")

    def __init__(self, type, context, children_specs):
        self.type = type
        self.context = context
        self.children_specs = children_specs
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in children_specs)

    def is_leaf(self):
        """Returns True for the structure of a single leaf."""
        return self.type is None

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self):
        return hash((self.type, self.num_leaves))

    def __repr__(self):
        return "*" if self.is_leaf() else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    __slots__ = ()

    def __init__(self):
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, flatten_with_keys_fn=None):
    """Registers a class as a container of trees.

    Args:
        cls: the class.
        flatten_fn: `flatten_fn(object) -> (list of children, context)`.
        unflatten_fn: `unflatten_fn(children, context) -> object`.
        serialized_type_name: for compatibility with PyTorch.
        flatten_with_keys_fn: for compatibility with PyTorch.

    Raises:
        ValueError: the class is already registered.
    """
    if cls in _kinds:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _kinds[cls] = _Kind(flatten_fn, unflatten_fn)


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Registers a dataclass as a container of trees, with its fields as children. Fields that are None are no children.

    Args:
        cls: the dataclass.
        field_names: names of the children (default: all fields of the constructor).
        drop_field_names: names of fields that are not part of the tree, which need a default (default: none).
        serialized_type_name: for compatibility with PyTorch.

    Raises:
        ValueError: `cls` is not a dataclass or is already registered, or the names are not those of its fields.
    """
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"register_dataclass: field_names must be specified only for dataclasses, got {cls}.")
    own = [f.name for f in dataclasses.fields(cls) if f.init]
    dropped = drop_field_names or []
    names = [n for n in own if n not in dropped] if field_names is None else list(field_names)
    if {*names, *dropped} != {*own}:
        raise ValueError(f"register_dataclass: expected the fields {own}, got {names} and {dropped} that are dropped.")

    def flatten(x):
        given = [n for n in names if getattr(x, n) is not None]
        return [getattr(x, n) for n in given], given

    def unflatten(children, given):
        return cls(**{**dict.fromkeys(names), **dict(zip(given, children, strict=True))})

    register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name)


for _cls in (dict, OrderedDict):
    register_pytree_node(
        _cls, lambda d: (list(d.values()), list(d)), lambda c, keys, cls=_cls: cls(zip(keys, c, strict=True))
    )
register_pytree_node(list, lambda x: (list(x), None), lambda c, _: list(c))
for _sequence in (tuple, Size):
    register_pytree_node(_sequence, lambda x: (list(x), None), lambda c, _: tuple(c))
register_pytree_node(deque, lambda x: (list(x), x.maxlen), lambda c, n: deque(c, maxlen=n))
register_pytree_node(
    defaultdict,
    lambda d: (list(d.values()), (d.default_factory, list(d))),
    lambda c, context: defaultdict(context[0], zip(context[1], c, strict=True)),
)
_NAMED = _Kind(lambda x: (list(x), type(x)), lambda c, cls: cls(*c))


def _kind_of(x):
    found = _kinds.get(type(x))
    return _NAMED if found is None and isinstance(x, tuple) and hasattr(x, "_fields") else found


def tree_flatten(tree, is_leaf=None):
    """Returns (list of leaves, TreeSpec). A container for which `is_leaf(x)` is True is a leaf, and so is None."""
    leaves = []
    return leaves, _spec_of(tree, leaves, is_leaf)


def _spec_of(x, leaves, is_leaf):  # not a nested function, since a recursive closure is a reference cycle
    kind = None if is_leaf is not None and is_leaf(x) else _kind_of(x)
    if kind is None:
        leaves.append(x)
        return _LEAF
    children, context = kind.flatten_fn(x)
    specs = [_spec_of(c, leaves, is_leaf) for c in children]
    return TreeSpec(namedtuple if kind is _NAMED else type(x), context, specs)


def tree_unflatten(leaves, treespec):
    """Builds a tree from its leaves.

    Args:
        treespec: structure of the tree.

    Raises:
        ValueError: the number of leaves does not match the structure.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
            f"has {treespec.num_leaves} items ({treespec})."
        )
    return _build(treespec, iter(leaves))


def _build(spec, rest):
    if spec.is_leaf():
        return next(rest)
    kind = _NAMED if spec.type is namedtuple else _kinds[spec.type]
    return kind.unflatten_fn([_build(c, rest) for c in spec.children_specs], spec.context)


def tree_leaves(tree, is_leaf=None):
    """Returns the leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree, is_leaf=None):
    """Returns the TreeSpec of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """Applies a function to each leaf of a tree and returns the tree of the results.

    Args:
        func: function of a leaf, and of the leaves at the same position of further trees.
        rests: further trees of the same structure.
        is_leaf: function that returns True for containers that are leaves.

    Raises:
        ValueError: structures differ.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for other in rests:
        found, like = tree_flatten(other, is_leaf)
        if like != spec:
            raise ValueError(f"tree_map: the trees differ in structure: {spec} and {like}.")
        columns.append(found)
    return tree_unflatten([func(*row) for row in zip(*columns, strict=True)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls a function for each leaf of a tree. Returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types, func, tree, is_leaf=None):
    """Applies a function to leaves of certain types. Other leaves do not change.

    Args:
        type_or_types: a type, a tuple of types, or a function that returns True for leaves to change.
        func: function of a leaf.
        is_leaf: function that returns True for containers that are leaves.
    """
    wanted = type_or_types if callable(type_or_types) and not isinstance(type_or_types, type) else None
    pick = wanted or (lambda x: isinstance(x, type_or_types))
    return tree_map(lambda x: func(x) if pick(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Returns True if `pred` is true for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Returns True if `pred` is true for at least one leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


# Private names of PyTorch that packages use to register containers.
_register_pytree_node, SUPPORTED_NODES, PyTree = register_pytree_node, _kinds, Any


def _get_node_type(tree):
    return type(tree) if type(tree) in _kinds or _kind_of(tree) is None else namedtuple


def _dict_flatten(d):
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d):
    return list(d.items()), list(d)


def _dict_unflatten(values, context):
    return dict(zip(context, values, strict=True))
