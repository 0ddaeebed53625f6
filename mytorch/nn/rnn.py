"""Recurrent layers and cells: RNN, LSTM, GRU, as PyTorch's, packed sequences included."""

import math

from ..ops.creation import empty, zeros
from ..ops.movement import cat, stack
from ..ops.precision import in_precision
from ..ops.rnn import gru_layer, lstm_layer, rnn_layer
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, pad_packed_sequence, repack


class RNNBase(Module):
    """What RNN, LSTM and GRU share: weights named weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, …

    Args:
        input_size, hidden_size: sizes of the input and of the hidden state.
        num_layers: layers on top of one another.
        bias: whether there are biases.
        batch_first: input is (N, T, …) instead of (T, N, …).
        dropout: between layers, while training.
        bidirectional: a second direction, whose outputs are joined to the first's.
        proj_size: LSTM only: project the hidden state to this size.
    """

    gates = 1

    def __init__(
        self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
        bidirectional=False, proj_size=0, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if proj_size >= hidden_size > 0 and proj_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        made = {"device": device, "dtype": dtype}
        rows, out = self.gates * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            for direction in range(2 if bidirectional else 1):
                suffix = f"l{layer}" + ("_reverse" if direction else "")
                width = input_size if layer == 0 else out * (2 if bidirectional else 1)
                self.register_parameter(f"weight_ih_{suffix}", Parameter(empty(rows, width, **made)))
                self.register_parameter(f"weight_hh_{suffix}", Parameter(empty(rows, out, **made)))
                if bias:
                    self.register_parameter(f"bias_ih_{suffix}", Parameter(empty(rows, **made)))
                    self.register_parameter(f"bias_hh_{suffix}", Parameter(empty(rows, **made)))
                if proj_size:
                    self.register_parameter(f"weight_hr_{suffix}", Parameter(empty(proj_size, hidden_size, **made)))
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform in ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do: weights need no special layout here."""

    @property
    def all_weights(self):
        """The weights of each layer and direction."""
        suffixes = [
            f"l{i}{d}" for i in range(self.num_layers) for d in (("", "_reverse") if self.bidirectional else ("",))
        ]
        names = [
            "weight_ih",
            "weight_hh",
            *(["bias_ih", "bias_hh"] if self.bias else []),
            *(["weight_hr"] if self.proj_size else []),
        ]
        return [[getattr(self, f"{n}_{s}") for n in names] for s in suffixes]

    def _get(self, name, suffix):
        return getattr(self, f"{name}_{suffix}") if self.bias or not name.startswith("bias") else None

    def _start(self, hx, index, batch, like):
        """The initial states of one layer and direction, as a tuple."""
        if hx is None:
            sizes = [self.proj_size or self.hidden_size, *([self.hidden_size] if self.mode == "LSTM" else [])]
            return tuple(zeros(batch, n, dtype=like.dtype, device=like.device) for n in sizes)
        return tuple(h[index] for h in (hx if isinstance(hx, tuple) else (hx,)))

    def _run(self, x, state, suffix, sizes, reverse):
        """One direction of one layer: (outputs, final states)."""
        w_ih, w_hh = self._get("weight_ih", suffix), self._get("weight_hh", suffix)
        b_ih, b_hh = self._get("bias_ih", suffix), self._get("bias_hh", suffix)
        if self.mode == "GRU":
            hidden_bias = b_hh if b_hh is not None else zeros(w_hh.shape[0], dtype=x.dtype, device=x.device)
            out, h = gru_layer(F.linear(x, w_ih, b_ih), *state, w_hh, hidden_bias, sizes=sizes, reverse=reverse)
            return out, (h,)
        gates = F.linear(x, w_ih, None if b_ih is None else b_ih + b_hh)
        if self.mode == "LSTM":
            projection = getattr(self, f"weight_hr_{suffix}") if self.proj_size else None
            out, h, c = lstm_layer(gates, *state, w_hh, projection, sizes=sizes, reverse=reverse)
            return out, (h, c)
        out, h = rnn_layer(gates, *state, w_hh, sizes=sizes, reverse=reverse, relu=self.mode == "RNN_RELU")
        return out, (h,)

    def forward(self, input, hx=None):
        """(output, final state): output (T, N, D * H) of the last layer, states (layers * D, N, H).

        Raises:
            RuntimeError: an input or state of another size than the layer was made for.
        """
        packed = input if isinstance(input, PackedSequence) else None
        if packed is not None:
            x = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))[0]
            sizes = tuple(packed.batch_sizes.tolist())
            hx = _reorder(hx, packed.sorted_indices)
            single = False
        else:
            single = input.ndim == 2
            if input.ndim not in (2, 3):
                raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead")
            x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
            if single and hx is not None:
                hx = tuple(h.unsqueeze(1) for h in hx) if isinstance(hx, tuple) else hx.unsqueeze(1)
            sizes = (x.shape[1],) * x.shape[0]
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        directions = 2 if self.bidirectional else 1
        for h in () if hx is None else hx if isinstance(hx, tuple) else (hx,):
            if h.shape[0] != self.num_layers * directions or h.shape[1] != x.shape[1]:
                raise RuntimeError(
                    f"Expected hidden size ({self.num_layers * directions}, {x.shape[1]}, …), got {list(h.shape)}"
                )
        finals = []
        for layer in range(self.num_layers):
            outs = []
            for d in range(directions):
                suffix = f"l{layer}" + ("_reverse" if d else "")
                state = self._start(hx, layer * directions + d, x.shape[1], x)
                out, final = self._run(x, state, suffix, sizes, bool(d))
                outs.append(out)
                finals.append(final)
            x = outs[0] if directions == 1 else cat(outs, 2)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        states = tuple(stack([f[i] for f in finals], 0) for i in range(len(finals[0])))
        if packed is not None:
            states = tuple(_reorder(s, packed.unsorted_indices) for s in states)
            output = repack(x, packed)
        elif single:
            output, states = x.squeeze(1), tuple(s.squeeze(1) for s in states)
        else:
            output = x.transpose(0, 1) if self.batch_first else x
        return output, states if self.mode == "LSTM" else states[0]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


def _reorder(hx, order):
    if hx is None or order is None:
        return hx
    if isinstance(hx, tuple):
        return tuple(h.index_select(1, order) for h in hx)
    return hx.index_select(1, order)


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity="relu". Source: Elman, 1990."""

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        nonlinearity="tanh",
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        device=None,
        dtype=None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory. Source: Hochreiter and Schmidhuber, 1997."""

    gates = 4

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """Gated recurrent units. Source: Cho et al., 2014."""

    gates = 3

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        device=None,
        dtype=None,
    ):
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class RNNCellBase(Module):
    """One step of a recurrent layer."""

    gates = 1

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        made = {"device": device, "dtype": dtype}
        rows = self.gates * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, **made))
        self.weight_hh = Parameter(empty(rows, hidden_size, **made))
        self.register_parameter("bias_ih", Parameter(empty(rows, **made)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty(rows, **made)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform in ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _zeros(self, input):
        return zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype, device=input.device)

    def _gates(self, input, h):
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        return F.linear(input, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of an RNN."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    @in_precision("half", inside=True)
    def forward(self, input, hx=None):
        a, b = self._gates(input, self._zeros(input) if hx is None else hx)
        return (a + b).tanh() if self.nonlinearity == "tanh" else (a + b).relu()

    def extra_repr(self):
        return super().extra_repr() + (f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else "")


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) from (h, c)."""

    gates = 4

    @in_precision("half", inside=True)
    def forward(self, input, hx=None):
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        a, b = self._gates(input, h)
        i, f, g, o = (a + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    gates = 3

    @in_precision("half", inside=True)
    def forward(self, input, hx=None):
        h = self._zeros(input) if hx is None else hx
        a, b = self._gates(input, h)
        (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
        r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
        n = (an + r * bn).tanh()
        return n + z * (h - n)
