"""A kernel as an object, for modules that contain several kernels."""


class Kernel:
    """A kernel of an op: `accepts`, `forward`, `vjp` or `formulas`, and optionally `is_faster`, `residuals` and `LEAST`.

    kernels/registry.py and ops/dispatch/op.py read these attributes from an object like this, or from a module.
    """

    def __init__(self, **functions):
        self.__dict__.update(functions)
