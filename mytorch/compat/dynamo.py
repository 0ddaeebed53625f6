"""Names of `torch._dynamo` that also have an effect in programs that run eagerly."""

from .overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """A context in which `x[i]` accepts tensors as indices, also in a function that `vmap` runs. mytorch always accepts them."""


class set_stance:
    """Accepts PyTorch's settings of recompilation, as a function, a context or a decorator. They have no effect.

    Args:
        stance: name of the setting.
        skip_guard_eval_unsafe: ignored.
        force_backend: ignored.
    """

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        names = (
            "default eager_on_recompile eager_then_compile aot_eager_then_compile fail_on_recompile force_eager".split()
        )
        if stance not in names:
            raise ValueError(f"set_stance: expected stance in {names}, got {stance!r}. Pass one of these names.")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, function):
        return function
