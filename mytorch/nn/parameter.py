"""Parameter and Buffer. They are defined in `mytorch/arrays/parameter.py`, because serialization also needs them."""

from ..arrays.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, is_lazy  # noqa: F401

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]
