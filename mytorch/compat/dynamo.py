"""Names of `torch._dynamo` and `torch.fx.experimental` that also have an effect in programs that run eagerly."""


class TransformGetItemToIndex:
    """A context in which `x[i]` accepts tensors as indices, also in a function that `vmap` runs. mytorch always accepts them."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def get_proxy_mode():
    """Returns None, because no tracer runs."""
    return None
