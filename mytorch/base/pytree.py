"""Nested dicts, lists and tuples as trees: flatten one to its leaves, put it together again, map a function over it."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

_Kind = namedtuple("_Kind", "flatten_fn unflatten_fn")
_kinds = {}


class TreeSpec:
    """How a tree was nested.

    Attributes:
        type: of the container; None for a leaf.
        context: what is needed to make it again, such as a dict's keys.
        children_specs: a TreeSpec for each child.
    """

    __slots__ = ("children_specs", "context", "num_leaves", "type")

    def __init__(self, type, context, children_specs):
        self.type = type
        self.context = context
        self.children_specs = children_specs
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in children_specs)

    def is_leaf(self):
        """Whether it stands for a single leaf."""
        return self.type is None

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self):
        return hash((self.type, self.num_leaves))

    def __repr__(self):
        return "*" if self.is_leaf() else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """That of a leaf."""

    __slots__ = ()

    def __init__(self):
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, flatten_with_keys_fn=None):
    """Let trees be nested in a class too.

    Args:
        flatten_fn: object -> (list of children, context). unflatten_fn: (children, context) -> object.

    Raises:
        ValueError: the class is registered already.
    """
    if cls in _kinds:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _kinds[cls] = _Kind(flatten_fn, unflatten_fn)


for _cls in (dict, OrderedDict):
    register_pytree_node(
        _cls, lambda d: (list(d.values()), list(d)), lambda c, keys, cls=_cls: cls(zip(keys, c, strict=True))
    )
register_pytree_node(list, lambda x: (list(x), None), lambda c, _: list(c))
register_pytree_node(tuple, lambda x: (list(x), None), lambda c, _: tuple(c))
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
    """(list of leaves, TreeSpec). `is_leaf(x)` may call a container a leaf; None is one too."""
    leaves = []
    return leaves, _spec_of(tree, leaves, is_leaf)


def _spec_of(x, leaves, is_leaf):  # no function within the other one: calling itself, it would be a cycle
    kind = None if is_leaf is not None and is_leaf(x) else _kind_of(x)
    if kind is None:
        leaves.append(x)
        return _LEAF
    children, context = kind.flatten_fn(x)
    specs = [_spec_of(c, leaves, is_leaf) for c in children]
    return TreeSpec(namedtuple if kind is _NAMED else type(x), context, specs)


def tree_unflatten(leaves, treespec):
    """The tree of a TreeSpec with these leaves.

    Raises:
        ValueError: their number differs.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
            f"holds {treespec.num_leaves} items ({treespec})."
        )
    return _build(treespec, iter(leaves))


def _build(spec, rest):
    if spec.is_leaf():
        return next(rest)
    kind = _NAMED if spec.type is namedtuple else _kinds[spec.type]
    return kind.unflatten_fn([_build(c, rest) for c in spec.children_specs], spec.context)


def tree_leaves(tree, is_leaf=None):
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree, is_leaf=None):
    """The TreeSpec of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree with func(leaf, …) in place of each leaf; further trees of the same structure give more arguments.

    Raises:
        ValueError: a structure differs.
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
    """Call func on each leaf for what it does; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types, func, tree, is_leaf=None):
    """As tree_map, for leaves of certain types (or those that a function of them says True to); others stay."""
    wanted = type_or_types if callable(type_or_types) and not isinstance(type_or_types, type) else None
    pick = wanted or (lambda x: isinstance(x, type_or_types))
    return tree_map(lambda x: func(x) if pick(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Whether pred holds for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Whether pred holds for some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


# PyTorch's inner names, which packages that register containers use.
_register_pytree_node, SUPPORTED_NODES, PyTree = register_pytree_node, _kinds, Any


def _get_node_type(tree):
    return type(tree) if type(tree) in _kinds or _kind_of(tree) is None else namedtuple


def _dict_flatten(d):
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d):
    return list(d.items()), list(d)


def _dict_unflatten(values, context):
    return dict(zip(context, values, strict=True))
