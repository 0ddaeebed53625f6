"""Recurrent layers and cells: RNN, LSTM, GRU, as PyTorch's, packed sequences included."""

import math
from typing import Any

from .._tensor import Tensor
from ..base.errors import warn
from ..dispatch.precision import in_precision
from ..ops.creation import empty, zeros
from ..ops.movement import cat, stack
from ..ops.rnn import gru_layer, lstm_layer, rnn_layer
from . import functional as F
from . import init
from .common_types import Device, DType
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, pad_packed_sequence, repack

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


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
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater "
                f"than 1, but got dropout={dropout} and num_layers={num_layers}"
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
        rows, out = self.gates * hidden_size, proj_size or hidden_size
        for layer, suffix in self._suffixes():
            columns = input_size if layer == 0 else out * (2 if bidirectional else 1)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, out)}
            shapes.update({"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {})
            shapes.update({"weight_hr": (proj_size, hidden_size)} if proj_size else {})
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_{suffix}", Parameter(empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: weights need no special layout here."""

    def _suffixes(self):
        """(layer, end of its parameters' names) for each layer and direction."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, f"l{layer}{direction}") for layer in range(self.num_layers) for direction in directions]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        names += ["weight_hr"] if self.proj_size else []
        return [[getattr(self, f"{name}_{suffix}") for name in names] for _, suffix in self._suffixes()]

    def _get(self, name, suffix):
        return getattr(self, f"{name}_{suffix}") if self.bias or not name.startswith("bias") else None

    def _start(self, hx, index, batch, like):
        """The initial states of one layer and direction, as a tuple."""
        if hx is None:
            sizes = [self.proj_size or self.hidden_size, *([self.hidden_size] if self.mode == "LSTM" else [])]
            return tuple(zeros(batch, n, dtype=like.dtype, device=like.device) for n in sizes)
        return tuple(h[index] for h in _as_tuple(hx))

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

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """(output, final state): output (T, N, D * H) of the last layer, states (layers * D, N, H).

        Raises:
            RuntimeError: an input or state of another size than the layer was made for.
        """
        output: Any
        if isinstance(input, PackedSequence):
            x, _ = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
            x, states = self._run_layers(x, _reorder(hx, input.sorted_indices), tuple(input.batch_sizes.tolist()))
            output, states = repack(x, input), _reorder(states, input.unsorted_indices)
        elif input.ndim == 2:
            x, hx = input.unsqueeze(1), None if hx is None else tuple(h.unsqueeze(1) for h in _as_tuple(hx))
            x, states = self._run_layers(x, hx, (1,) * x.shape[0])
            output, states = x.squeeze(1), tuple(s.squeeze(1) for s in states)
        elif input.ndim == 3:
            x = input.transpose(0, 1) if self.batch_first else input
            x, states = self._run_layers(x, hx, (x.shape[1],) * x.shape[0])
            output = x.transpose(0, 1) if self.batch_first else x
        else:
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        return output, states if self.mode == "LSTM" else states[0]

    def _run_layers(self, x, hx, sizes):
        """All layers over x (T, N, C) of `sizes` sequences at each step: (outputs of the last, final states)."""
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        directions = 2 if self.bidirectional else 1
        states = self.num_layers * directions
        for h in () if hx is None else _as_tuple(hx):
            if h.shape[0] != states or h.shape[1] != x.shape[1]:
                raise RuntimeError(f"Expected hidden size ({states}, {x.shape[1]}, …), got {list(h.shape)}")
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
        return x, tuple(stack(each, 0) for each in zip(*finals, strict=True))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        return text + "".join(f", {n}={v}" for n, d in usual.items() if (v := getattr(self, n)) != d)


def _reorder(hx, order):
    return hx if hx is None or order is None else tuple(h.index_select(1, order) for h in _as_tuple(hx))


def _as_tuple(hx):
    return hx if isinstance(hx, tuple) else (hx,)


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity="relu". Source: Elman, 1990.

    Args:
        input_size, hidden_size: of x and of h. num_layers: stacked on each other. bias: learn them.
        batch_first: (B, T, C) instead of (T, B, C). dropout: between layers, while training. bidirectional: also from
            the end.
        nonlinearity: "tanh" or "relu".
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: DType = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = f"RNN_{nonlinearity.upper()}"
        options = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__(mode, input_size, hidden_size, *options)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory: c = f c + i tanh(g), h = o tanh(c), with gates i, f, o = sigmoid(…) of x and h.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as RNNBase's.
        proj_size: project the hidden state to this size.

    Shape: (T, N, input_size) to (T, N, hidden_size), and states (h, c), each (num_layers, N, hidden_size).

    Source: Hochreiter and Schmidhuber, 1997.

    Example:
        >>> out, (h, c) = nn.LSTM(4, 6, num_layers=2)(mytorch.zeros(5, 3, 4))
        >>> tuple(out.shape), tuple(h.shape), tuple(c.shape)
        ((5, 3, 6), (2, 3, 6), (2, 3, 6))
    """

    gates = 4

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        options = (num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__("LSTM", input_size, hidden_size, *options)


class GRU(RNNBase):
    """Gated recurrent units: h = n + z (h - n), with n = tanh(W x + r (U h)) and gates r, z = sigmoid(…) of x and h.

    Args:
        input_size, hidden_size: of x and of h. num_layers: stacked on each other. bias: learn them.
        batch_first: (B, T, C) instead of (T, B, C). dropout: between layers, while training. bidirectional: also from
            the end.

    Source: Cho et al., 2014.

    Example:
        >>> out, h = nn.GRU(4, 6, bidirectional=True)(mytorch.zeros(5, 3, 4))
        >>> tuple(out.shape), tuple(h.shape)
        ((5, 3, 12), (2, 3, 6))
    """

    gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        options = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__("GRU", input_size, hidden_size, *options)


class RNNCellBase(Module):
    """One step of a recurrent layer.

    Args:
        input_size: features of the input.
        hidden_size: features of the state.
        bias: whether to add a learnt bias.
        device: of the parameters.
        dtype: of the parameters.
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None, dtype: DType = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self.gates * hidden_size
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        for name, shape in shapes.items():
            wanted = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(empty(*shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
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

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of an RNN.

    Args:
        input_size, hidden_size: of x and of h. bias: learn them. nonlinearity: "tanh" or "relu".
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Device = None,
        dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    @in_precision("half", inside=True)
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        a, b = self._gates(input, self._zeros(input) if hx is None else hx)
        return (a + b).tanh() if self.nonlinearity == "tanh" else (a + b).relu()

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else "")


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) from (h, c).

    Args:
        input_size, hidden_size: of x and of h. bias: learn them.
    """

    gates = 4

    @in_precision("half", inside=True)
    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        a, b = self._gates(input, h)
        i, f, g, o = (a + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(RNNCellBase):
    """One step of a GRU.

    Args:
        input_size, hidden_size: of x and of h. bias: learn them.
    """

    gates = 3

    @in_precision("half", inside=True)
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = self._zeros(input) if hx is None else hx
        a, b = self._gates(input, h)
        (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
        r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
        n = (an + r * bn).tanh()
        return n + z * (h - n)
