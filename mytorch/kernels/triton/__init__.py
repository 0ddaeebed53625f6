"""Kernels for NVIDIA GPUs, compiled by Triton: forward and backward over raw CuPy arrays.

Each module has its kernels (`@triton.jit`), functions that start them on raw arrays, and last what the records of `ops`
look for (`accepts`, `pays`, `forward`, `vjp`, `residuals`: see kernels/registry.py), in the module itself or, where it
serves several ops, in a `Kernel` for each. `kernels/launch.py` starts them; `softmax.py` is the one to read first. All of
them compute in float32 whatever the arrays' dtype, take any size (a row that is longer than a block is processed in a
loop), and run in Triton's interpreter on NumPy arrays.

In the names of arguments, `x_ptr` points to the array x, `stride_xn` are the elements from one row n of it to the next, and
capitals are fixed when a kernel is compiled.
"""
