"""A kernel as an object, for modules that hold several."""


class Kernel:
    """A kernel of an op, in a module that holds several: `accepts`, `forward`, `vjp`, and where they are needed `pays` and
    `residuals` and `LEAST`, as kernels/registry.py and dispatch/op.py look for them in a module."""

    def __init__(self, **functions):
        self.__dict__.update(functions)
