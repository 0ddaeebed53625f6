"""`torch.library`: operators that a package defines are the Python functions behind them."""

from ..autograd.function import Function


class CustomOpDef:
    """What `custom_op` makes of a function: it is called as that, and its other implementations are noted.

    A gradient registered with `register_autograd` is used where an input needs one.
    """

    def __init__(self, name, function):
        self._name, self._function = name, function
        self._call = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    def register_autograd(self, backward, /, *, setup_context=None):
        """Use `backward(ctx, *grads)` as the gradient; `setup_context(ctx, inputs, output)` saves what it needs."""
        self._call = _differentiable(self._function, backward, setup_context)

    def register_kernel(self, device_types, func=None, /):
        """Note an implementation for other devices; the function itself runs on all."""
        return (lambda f: f) if func is None else func

    register_fake = register_vmap = register_torch_dispatch = lambda self, func=None, /: func


def _differentiable(function, gradient, setup_context):
    """A function with a gradient of its own, of which `setup_context` may save something."""

    class Custom(Function):
        @staticmethod
        def forward(ctx, *args):
            out = function(*args)
            if setup_context is not None:
                setup_context(ctx, args, out)
            return out

        backward = staticmethod(gradient)

    return Custom.apply


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make an operator of a function; also as a decorator.

    Args:
        name: "namespace::name".
        fn: the function.
        mutates_args: inputs that it changes.
        device_types, schema, tags: accepted; the function runs on every device.
    """
    return (lambda f: CustomOpDef(name, f)) if fn is None else CustomOpDef(name, fn)


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """As `custom_op`."""
    return custom_op(name, fn, mutates_args=mutates_args)


def _noted(*args, **kwargs):
    """Accepted; returns the function that is registered, or a decorator that does."""
    functions = [a for a in args if callable(a) and not isinstance(a, CustomOpDef)]
    return functions[-1] if functions else lambda f: f


register_fake = impl_abstract = register_kernel = register_vmap = impl = register_torch_dispatch = wrap_triton = _noted


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Give an operator that `custom_op` made its gradient."""
    if isinstance(op, CustomOpDef):
        op.register_autograd(backward, setup_context=setup_context)


def define(qualname, schema=None, *, lib=None, tags=()):
    """Accepted."""


class Library:
    """A namespace of operators; what is defined in it is noted."""

    def __init__(self, ns, kind, dispatch_key=""):
        self.ns, self.kind = ns, kind

    def define(self, schema, alias_analysis="", *, tags=()):
        """The operator's name."""
        return schema.partition("(")[0]

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False):
        """Accepted."""

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        """Accepted."""

    _register_fake = impl
