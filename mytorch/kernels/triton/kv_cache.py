"""Appending to a KV cache: one launch copies new keys and values into the cache.

The time of a generation step is limited by launches, and this launch occurs in each layer.

Grid: one program for each ROWS new positions of all heads. Nothing is computed.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch, power_of_2
from .common import one_dtype, strides_of


@triton.jit
def _append(k_ptr, v_ptr, keys_ptr, values_ptr, count, heads, length, rows, at, width_k, width_v,
            stride_kb, stride_kh, stride_kt, stride_vb, stride_vh, stride_vt,
            ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Copies k_ptr, v_ptr (B, H, T, D), contiguous in D, to positions `at` … of keys_ptr, values_ptr (B, H, rows, D)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    t = (row % length).to(tl.int64)  # int64, because t * stride may exceed 32 bits
    head = row // length
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    # Row of the cache: `rows` positions per head, of which T from `at` on are written.
    target_row = head.to(tl.int64) * rows + at + t
    inside = (row < count) & (cols < width_k)
    k = tl.load(k_ptr + b * stride_kb + h * stride_kh + t * stride_kt + cols, mask=inside, other=0.0)
    tl.store(keys_ptr + target_row * width_k + cols, k, mask=inside)
    inside = (row < count) & (cols < width_v)
    v = tl.load(v_ptr + b * stride_vb + h * stride_vh + t * stride_vt + cols, mask=inside, other=0.0)
    tl.store(values_ptr + target_row * width_v + cols, v, mask=inside)


def accepts(k, v, keys, values):
    """Accepts floats of one dtype with contiguous rows, and contiguous caches."""
    in_rows = all(x.strides[3] == x.itemsize for x in (k, v))
    return one_dtype(k, v, keys, values) and in_rows and keys.flags.c_contiguous and values.flags.c_contiguous


def append(k, v, keys, values, at):
    """keys[:, :, at : at + T] = k and values[…] = v, for (B, H, T, D)."""
    B, H, T, D = k.shape
    block = power_of_2(max(D, v.shape[3], 16))
    per_program = max(1, 1024 // block)
    launch(
        _append, (cdiv(B * H * T, per_program),), k, v, keys, values, B * H * T, H, T, keys.shape[2], at, D, v.shape[3],
        *strides_of(k)[:3], *strides_of(v)[:3], ROWS=per_program, BLOCK=block, num_warps=4,
    )  # fmt: skip
