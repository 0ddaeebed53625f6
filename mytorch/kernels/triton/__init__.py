"""Kernels for NVIDIA GPUs, compiled by Triton: forward and backward over raw CuPy arrays.

Each module has the functions that `ops/core.py` looks for (`accepts`, `pays`, `forward`, `vjp`) and, below
them, whatever else its kernel can do. `kernels/launch.py` starts them; `softmax.py` is the one to read
first. All of them compute in float32 whatever the arrays' dtype, take any size (a row that is longer than
a block is gone through in a loop), and run in Triton's interpreter on NumPy arrays.
"""
