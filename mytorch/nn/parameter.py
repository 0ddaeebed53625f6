"""Parameter and Buffer, which are defined in `mytorch/_parameter.py` because files contain them, too."""

from .._parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, is_lazy  # noqa: F401

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]
