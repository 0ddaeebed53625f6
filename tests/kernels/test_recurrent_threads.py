"""Recurrent layers whose sequences are divided among threads: any number of threads computes the same."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.kernels import rnn, threads

pytestmark = pytest.mark.cpu_only


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lengths", [None, [7, 7, 5, 3, 2, 1, 1], [7, 1, 1, 1, 1, 1, 1]])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_sequences_in_parts(kind, lengths, dtype, monkeypatch):
    monkeypatch.setattr(rnn, "LEAST", 1)
    layer = getattr(nn, kind)(3, 5, num_layers=2, bidirectional=True, dtype=getattr(mytorch, dtype))
    x = mytorch.randn(7, 7, 3, dtype=getattr(mytorch, dtype), requires_grad=True)
    upstream, found = None, []
    count = threads.get_num_threads()
    for n in (1, 2, 3, 7, 16):
        threads.set_num_threads(n)
        given = x if lengths is None else nn.utils.rnn.pack_padded_sequence(x, lengths)
        out, state = layer(given)
        out = out if lengths is None else out.data
        upstream = mytorch.randn_like(out) if upstream is None else upstream
        grads = mytorch.autograd.grad(out, [x, *layer.parameters()], upstream)
        states = state if isinstance(state, tuple) else (state,)
        found.append([t.detach().numpy() for t in (out, *states, *grads)])
    threads.set_num_threads(count)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(b, a, tolerance, tolerance)
