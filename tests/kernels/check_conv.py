"""Convolutions in Triton's interpreter against float64."""

import itertools
import re

import numpy as np
import pytest

from mytorch.kernels.triton import conv
from mytorch.kernels.triton.conv import conv_transpose, convolution

from .cases import COMPILE_ONLY, DTYPES, near, rand, xp


def reference(x, w, g, stride, padding, dilation, groups):
    """The convolution, and the gradients of x and w, tap by tap."""
    n, c, h, wd = x.shape
    o, per, kh, kw = w.shape
    wide = np.zeros((n, c, h + 2 * padding[0], wd + 2 * padding[1]))
    wide[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + wd] = x
    out_h = (wide.shape[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    out_w = (wide.shape[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out, gx, gw = np.zeros((n, o, out_h, out_w)), np.zeros_like(wide), np.zeros_like(w)
    g = np.broadcast_to(0.0, out.shape) if g is None else g
    for r, s, q in itertools.product(range(kh), range(kw), range(groups)):
        ys = slice(r * dilation[0], r * dilation[0] + (out_h - 1) * stride[0] + 1, stride[0])
        xs = slice(s * dilation[1], s * dilation[1] + (out_w - 1) * stride[1] + 1, stride[1])
        ins, outs = slice(q * per, (q + 1) * per), slice(q * (o // groups), (q + 1) * (o // groups))
        tap = wide[:, ins, ys, xs]
        out[:, outs] += np.einsum("nchw,oc->nohw", tap, w[outs, :, r, s])
        gx[:, ins, ys, xs] += np.einsum("nohw,oc->nchw", g[:, outs], w[outs, :, r, s])
        gw[outs, :, r, s] += np.einsum("nohw,nchw->oc", g[:, outs], tap)
    return out, gx[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + wd], gw


CASES = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 9, 11), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 4, 10, 7), (6, 2, 3, 2), (2, 3), (2, 0), (2, 1), 2),
    ((1, 1, 5, 5), (1, 1, 5, 5), (1, 1), (0, 0), (1, 1), 1),
    ((3, 4, 6, 6), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((2, 3, 17), (70, 3, 4), (2,), (1,), (2,), 1),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups"), CASES)
def test_convolution(x_shape, w_shape, stride, padding, dilation, groups, dtype):
    x, x64 = rand(*x_shape, dtype=dtype)
    w, w64 = rand(*w_shape, dtype=dtype)
    b, b64 = rand(w_shape[0], dtype=dtype)
    flat = len(x_shape) == 3
    geometry = [stride, padding, dilation, groups]
    x2, w2 = x64, w64
    if flat:  # a height of 1
        geometry = [(1, *stride), (0, *padding), (1, *dilation), groups]
        x2, w2 = x64[:, :, None], w64[:, :, None]
    out64, _, _ = reference(x2, w2, None, *geometry)
    g, g64 = rand(*out64.shape, dtype=dtype)
    _, gx, gw = reference(x2, w2, g64, *geometry)

    def drop(a):
        return a[:, :, 0] if flat else a

    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    near(convolution.forward(xp, x, w, b, **options), drop(out64 + b64.reshape(1, -1, 1, 1)))
    got = convolution.vjp(drop(g), x, w, b, [x.shape, w.shape, b.shape], *options.values(), (True,) * 3, xp)
    near(got[0], drop(gx))
    near(got[1], drop(gw))
    near(got[2], g64.sum((0, 2, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups", "extra"), [
    ((2, 6, 5, 4), (6, 5, 3, 3), (2, 1), (1, 1), (1, 1), 1, (1, 0)),
    ((2, 6, 3, 5), (6, 2, 3, 2), (2, 3), (2, 0), (2, 1), 2, (1, 2)),
    ((1, 3, 1, 1), (3, 1, 5, 5), (1, 1), (0, 0), (1, 1), 1, (0, 0)),
])  # fmt: skip
def test_transposed_convolution(x_shape, w_shape, stride, padding, dilation, groups, extra, dtype):
    x, x64 = rand(*x_shape, dtype=dtype)
    w, w64 = rand(*w_shape, dtype=dtype)
    b, b64 = rand(w_shape[1] * groups, dtype=dtype)
    sides = zip(x_shape[2:], w_shape[2:], stride, padding, dilation, extra, strict=True)
    shape = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in sides)
    up, up64 = rand(x_shape[0], w_shape[1] * groups, *shape, dtype=dtype)
    geometry = (stride, padding, dilation, groups)
    whole, _, _ = reference(up64, w64, None, *geometry)  # the convolution whose input's gradient this is
    wide = np.zeros(whole.shape)
    wide[:, :, : x_shape[2], : x_shape[3]] = x64
    _, out64, gw64 = reference(up64, w64, wide, *geometry)
    options = dict(zip(("stride", "padding", "dilation", "groups"), geometry, strict=True))
    near(conv_transpose.forward(xp, x, w, b, shape=shape, **options), out64 + b64.reshape(1, -1, 1, 1))
    got = conv_transpose.vjp(up, x, w, b, [x.shape, w.shape, b.shape], *geometry, (True,) * 3, xp)
    near(got[0], whole[:, :, : x_shape[2], : x_shape[3]])
    near(got[1], gw64)
    near(got[2], up64.sum((0, 2, 3)))


@pytest.mark.skipif(not COMPILE_ONLY, reason="looks at compiled kernels")
def test_neighboring_threads_read_neighboring_positions():
    """Of each tile that is read from an image, 32 threads read 32 positions, also with a width that is no multiple of 16."""
    from .compile_only import COMPILED

    before = len(COMPILED)
    x, w = rand(2, 16, 9, 55, dtype="bf16")[0], rand(64, 16, 3, 3, dtype="bf16")[0]
    g = conv.run_forward(xp, x, w, None, (1, 1), (1, 1), (1, 1), 1)
    conv.run_input(xp, g, w, (9, 55), (1, 1), (1, 1), (1, 1), 1)
    conv.run_weight(xp, g, x, (3, 3), (1, 1), (1, 1), (1, 1), 1)
    found = 0
    for name, compiled in list(COMPILED.values())[before:]:
        text = compiled.asm["ttgir"]
        layouts = dict(re.findall(r"^(#blocked\d*) = #ttg.blocked<(.*)>$", text, re.MULTILINE))
        for shape, layout in re.findall(
            r"tt\.load %[ab]_\d+, .*: tensor<(\d+x\d+)x!tt\.ptr<bf16>, (#blocked\d*)>", text
        ):
            found += 1
            assert "threadsPerWarp = [32, 1]" in layouts[layout], (name, shape, layouts[layout])
    assert found >= 3, found
