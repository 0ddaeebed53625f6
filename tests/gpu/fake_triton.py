"""Corrects Triton's interpreter: a conversion to bfloat16 rounds to the nearest number, as on a GPU. The interpreter truncates."""

import ml_dtypes
import numpy as np


def install():
    """Replaces the conversion of the interpreter."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast = InterpreterBuilder.cast_impl

    def rounded(self, source, target):
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            return TensorHandle(source.data.astype(ml_dtypes.bfloat16).view(np.uint16), target.scalar)
        return cast(self, source, target)

    InterpreterBuilder.cast_impl = rounded
