"""Lists and dicts that cannot be changed. The arguments of nodes are stored in them, so that users of nodes stay correct."""


def _refuse(self, *args, **kwargs):
    raise NotImplementedError(
        f"{type(self).__name__}: expected no change of the arguments of a node, got a change in place. Assign new "
        "arguments to `node.args` or `node.kwargs`."
    )


class immutable_list(list):
    """A list that raises an error for each change."""

    append = extend = insert = pop = remove = clear = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dict that raises an error for each change."""

    update = pop = popitem = clear = setdefault = __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return immutable_dict, (dict(self),)
