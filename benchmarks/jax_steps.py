"""Five steps of `benchmarks/cpu/steps.py` in JAX, for `benchmarks/compile.py`. Requires JAX only.

Each function returns a step without arguments. A step computes the loss, the gradients and the update in one compiled function.
"""

import math

import jax
import jax.numpy as jnp
from jax import nn, random


def linear(key, inputs, outputs):
    """Returns the parameters of a linear layer with PyTorch's initialization."""
    bound = 1 / math.sqrt(inputs)
    a, b = random.split(key)
    return random.uniform(a, (inputs, outputs), minval=-bound, maxval=bound), random.uniform(
        b, (outputs,), minval=-bound, maxval=bound
    )


def apply(layer, x):
    """Returns the output of a linear layer."""
    return x @ layer[0] + layer[1]


def cross_entropy(logits, targets):
    """Returns the mean cross-entropy."""
    return -jnp.take_along_axis(nn.log_softmax(logits), targets[:, None], 1).mean()


def training(loss, params, *batch, decay=0.0, draws=False):
    """Returns a training step with Adam. With `decay`, Adam becomes AdamW."""

    def update(params, m, v, count, key, *batch):
        inner, key = random.split(key)
        g = jax.grad(loss)(params, *batch, *([inner] if draws else []))
        count += 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        rate = 1e-3 / (1 - 0.9**count)
        params = jax.tree.map(
            lambda p, m, v: p * (1 - 1e-3 * decay) - rate * m / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8), params, m, v
        )
        return params, m, v, count, key

    compiled = jax.jit(update, donate_argnums=(0, 1, 2, 3, 4))
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0), random.key(1)]

    def step():
        state[:] = compiled(*state, *batch)
        jax.block_until_ready(state)

    return step


def mlp_tiny():
    """Returns a step of an MLP with 16 hidden units."""
    keys = random.split(random.key(0), 4)
    params = [linear(keys[0], 4, 16), linear(keys[1], 16, 1)]

    def loss(params, x, y):
        return ((apply(params[1], jnp.tanh(apply(params[0], x))) - y) ** 2).mean()

    return training(loss, params, random.normal(keys[2], (8, 4)), random.normal(keys[3], (8, 1)))


def mlp_mnist():
    """Returns a step of an MLP for digits."""
    keys = random.split(random.key(0), 5)
    params = [linear(k, a, b) for k, a, b in zip(keys, (784, 512, 256), (512, 256, 10), strict=False)]

    def loss(params, x, y):
        x = nn.relu(apply(params[0], x))
        return cross_entropy(apply(params[2], nn.relu(apply(params[1], x))), y)

    return training(loss, params, random.normal(keys[3], (32, 784)), random.randint(keys[4], (32,), 0, 10))


def vae_mlp():
    """Returns a step of a variational autoencoder."""
    keys = random.split(random.key(0), 5)
    params = [linear(k, a, b) for k, a, b in zip(keys, (784, 400, 20, 400), (400, 40, 400, 784), strict=False)]

    def loss(params, x, key):
        mu, logvar = jnp.split(apply(params[1], nn.relu(apply(params[0], x))), 2, 1)
        z = mu + random.normal(key, mu.shape) * jnp.exp(0.5 * logvar)
        logits = apply(params[3], nn.relu(apply(params[2], z)))
        entropy = (jnp.maximum(logits, 0) - logits * x + jnp.log1p(jnp.exp(-jnp.abs(logits)))).sum()
        return entropy - 0.5 * (1 + logvar - mu**2 - jnp.exp(logvar)).sum()

    return training(loss, params, random.uniform(keys[4], (128, 784)), draws=True)


def manual_attention():
    """Returns forward and backward of attention from matrix products and softmax."""
    q, k, v = (random.normal(key, (8, 4, 128, 32)) for key in random.split(random.key(0), 3))
    future = jnp.triu(jnp.ones((128, 128)), 1).astype(bool)

    def loss(q, k, v):
        scores = jnp.where(future, -jnp.inf, q @ jnp.swapaxes(k, -2, -1) * 32**-0.5)
        return (nn.softmax(scores) @ v).sum()

    compiled = jax.jit(jax.grad(loss, (0, 1, 2)))
    return lambda: jax.block_until_ready(compiled(q, k, v))


def gpt_0p8m(batch=12, context=64, width=128, layers=4, heads=4, vocab=65):
    """Returns a step of a GPT with 0.8M parameters."""
    keys = iter(random.split(random.key(0), 4 * layers + 4))
    norm = (jnp.ones(width), jnp.zeros(width))
    params = {
        "token": random.normal(next(keys), (vocab, width)),
        "position": random.normal(next(keys), (context, width)),
        "norm": norm,
        "blocks": [
            {
                "n1": jax.tree.map(jnp.copy, norm),
                "n2": jax.tree.map(jnp.copy, norm),
                "qkv": linear(next(keys), width, 3 * width),
                "proj": linear(next(keys), width, width),
                "up": linear(next(keys), width, 4 * width),
                "down": linear(next(keys), 4 * width, width),
            }
            for _ in range(layers)
        ],
    }

    def layer_norm(p, x):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[0] + p[1]

    def block(p, x):
        q, k, v = (
            a.reshape(batch, context, heads, width // heads)
            for a in jnp.split(apply(p["qkv"], layer_norm(p["n1"], x)), 3, 2)
        )
        y = nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, context, width)
        x = x + apply(p["proj"], y)
        return x + apply(p["down"], nn.gelu(apply(p["up"], layer_norm(p["n2"], x)), approximate=False))

    def loss(params, x, y):
        h = params["token"][x] + params["position"]
        for p in params["blocks"]:
            h = block(p, h)
        logits = layer_norm(params["norm"], h) @ params["token"].T
        return cross_entropy(logits.reshape(-1, vocab), y.reshape(-1))

    x, y = (random.randint(next(keys), (batch, context), 0, vocab) for _ in range(2))
    return training(loss, params, x, y, decay=0.01)


STEPS = {f.__name__: f for f in (mlp_tiny, mlp_mnist, vae_mlp, manual_attention, gpt_0p8m)}
