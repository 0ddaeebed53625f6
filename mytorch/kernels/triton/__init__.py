"""Kernels for NVIDIA GPUs, compiled by Triton: forward and backward over raw CuPy arrays.

Each module contains its kernels (`@triton.jit`), functions that launch them on raw arrays, and at the end the functions that the
records of `ops` need (`accepts`, `is_faster`, `forward`, `vjp`, `residuals`: see kernels/registry.py). They are in the module itself
or, if the module serves several ops, in one `Kernel` per op. `kernels/launch.py` launches the kernels. Read `softmax.py` first.
All kernels compute in float32 for any dtype of the arrays, support any size (a row that is longer than a block is processed in
a loop), and run in Triton's interpreter on NumPy arrays.

Naming of arguments: `x_ptr` points to the array x, `stride_xn` is the number of elements from one row n of x to the next, and
names in capitals are compile-time constants.
"""
