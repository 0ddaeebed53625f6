"""Kernels for NVIDIA GPUs, compiled by Triton: forward and backward over raw CuPy arrays.

Each module contains its kernels (`@triton.jit`) and functions that launch them on raw arrays. At its end are the functions that
the ops require (`accepts`, `is_faster`, `forward`, `vjp`, `residuals`: see kernels/registry.py). If the module serves several
ops, each op has a `Kernel` with these functions. `kernels/launch.py` launches the kernels. Read `softmax.py` first.

All kernels compute in float32 for any dtype of the arrays and support any size. A row that is longer than a block is processed
in a loop. All kernels also run in Triton's interpreter on NumPy arrays.

Naming of arguments: `x_ptr` points to the array x. `stride_xn` is the number of elements from one row n of x to the next. Names
in capitals are compile-time constants.
"""
