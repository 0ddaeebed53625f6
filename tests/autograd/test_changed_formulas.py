"""A new gradient formula of an op applies to all later calls, also if the op was called and recorded before."""

import numpy as np
import pytest

import mytorch
from mytorch.ops.dispatch.op import op

OPS = {
    "one input": (lambda xp, a: a * 2.0, "a"),
    "one input and an attribute": (lambda xp, a, *, scale=2.0: a * scale, "a"),
    "two inputs": (lambda xp, a, b: a * b, "ab"),
    "two inputs and an attribute": (lambda xp, a, b, *, scale=2.0: a * b * scale, "ab"),
    "three inputs": (lambda xp, a, b, c: a * b + c, "abc"),
    "four inputs": (lambda xp, a, b, c, d: a * b + c * d, "abcd"),
}


@pytest.mark.parametrize("way", ["grad", "vjp"])
@pytest.mark.parametrize("kernel", [False, True], ids=["reference", "kernel"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", OPS)
def test_formulas_that_change_after_a_call(name, dtype, kernel, way, rng):
    forward, inputs = OPS[name]
    made = op(dtype="same", name="changed")(forward)
    if kernel:
        made.register_kernel(cpu=f"{__name__}:accepting")
        accepting.forward = forward

    def declare(factor):
        if way == "grad":
            made.grad(**{n: lambda g: g * factor for n in inputs})
        else:
            made.vjp(lambda g: (g * factor,) * len(inputs))

    for factor in (2.0, -4.0, 8.0):
        declare(factor)
        tensors = [mytorch.tensor(rng.standard_normal(5)).to(getattr(mytorch, dtype)).requires_grad_() for _ in inputs]
        upstream = mytorch.tensor(rng.standard_normal(5)).to(getattr(mytorch, dtype))
        for out in (made(*tensors), made(*tensors, fused=kernel and tensors[0].is_cpu)):
            grads = mytorch.autograd.grad(out, tensors, upstream)
            for g in grads:
                np.testing.assert_array_equal(g.float().numpy(), (upstream * factor).float().numpy())


class Kernel:
    def accepts(self, *inputs, **attrs):
        return True


accepting = Kernel()
