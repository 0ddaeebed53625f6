"""Recurrent layers and cells: RNN, LSTM and GRU. They also accept packed sequences."""

import math
from typing import Any

from ..arrays import config
from ..arrays.dtypes import float32, promote_types
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..ops.creation import empty, zeros
from ..ops.dispatch.precision import in_precision
from ..ops.movement import cat, stack
from ..ops.rnn import gru_layer, lstm_layer, rnn_layer
from . import functional as F
from . import init
from .common_types import Device, DType
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, pad_packed_sequence, repack

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


class _Recurrent(Module):
    """The base class of recurrent layers and cells."""

    hidden_size: int

    def reset_parameters(self) -> None:
        """Draws all parameters uniformly from ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)


class RNNBase(_Recurrent):
    """The base class of RNN, LSTM and GRU.

    The parameters of layer k are named weight_ih_lk, weight_hh_lk, bias_ih_lk and bias_hh_lk. The names of the backward
    direction end in "_reverse".

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        input_size: size of each input vector.
        hidden_size: size of the hidden state.
        num_layers: number of layers. Each layer reads the output of the layer below (default: 1).
        bias: if True, has the learnable vectors b_ih and b_hh (default: True).
        batch_first: if True, input and output have the shape (N, T, C) instead of (T, N, C) (default: False).
        dropout: probability of dropout on the output of each layer except the last, during training (default: 0.0).
        bidirectional: if True, adds a second direction that reads the sequence from its end (default: False).
        proj_size: size of the projected hidden state of an LSTM, 0 for no projection (default: 0).
    """

    gates = 1

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= dropout <= 1:
            meaning = "representing the probability of an element being zeroed"
            raise ValueError(f"dropout should be a number in range [0, 1] {meaning}, got {dropout}")
        if dropout > 0 and num_layers == 1:
            warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater "
                f"than 1, but got dropout={dropout} and num_layers={num_layers}"
            )
        if input_size <= 0:
            raise ValueError(f"input_size must be greater than zero, got {input_size}")
        if hidden_size <= 0:
            raise ValueError(f"hidden_size must be greater than zero, got {hidden_size}")
        if num_layers <= 0:
            raise ValueError(f"num_layers must be greater than zero, got {num_layers}")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if proj_size >= hidden_size > 0 and proj_size:
            raise ValueError(f"proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}")
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
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

    def flatten_parameters(self) -> None:
        """Does nothing. PyTorch rearranges the weights for cuDNN here."""

    def _suffixes(self):
        """Returns (layer, end of the names of its parameters) for each layer and direction."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, f"l{layer}{direction}") for layer in range(self.num_layers) for direction in directions]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self):
        """The names of the parameters of each layer and direction."""
        names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        names += ["weight_hr"] if self.proj_size else []
        return [[f"{name}_{suffix}" for name in names] for _, suffix in self._suffixes()]

    @property
    def _flat_weights_names(self):
        """The names of all parameters."""
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        """All parameters."""
        return [getattr(self, name) for name in self._flat_weights_names]

    def _get(self, name, suffix):
        return getattr(self, f"{name}_{suffix}") if self.bias or not name.startswith("bias") else None

    def _state_sizes(self):
        return (self.proj_size or self.hidden_size, *([self.hidden_size] if self.mode == "LSTM" else []))

    def _start(self, hx, index, batch, like):
        """Returns the initial states of one layer and direction, as a tuple."""
        if hx is None:
            return tuple(zeros(batch, n, dtype=like.dtype, device=like.device) for n in self._state_sizes())
        return tuple(h[index] for h in _as_tuple(hx))

    def _run(self, x, state, suffix, sizes, reverse, packed):
        """Runs one direction of one layer. Returns (outputs, final states)."""
        w_ih, w_hh = self._get("weight_ih", suffix), self._get("weight_hh", suffix)
        b_ih, b_hh = self._get("bias_ih", suffix), self._get("bias_hh", suffix)
        if self.mode == "GRU":
            # The reset gate multiplies b_hn, so that b_hh cannot be added to b_ih.
            hidden_bias = b_hh if b_hh is not None else zeros(w_hh.shape[0], dtype=x.dtype, device=x.device)
            gates = F.linear(x, w_ih, b_ih)
            out, h = gru_layer(gates, *state, w_hh, hidden_bias, sizes=sizes, reverse=reverse)
            out, h = _rounded((out, h), promote_types(gates.dtype, state[0].dtype))
            return out, (h,)
        # The part of the input in all gates, for all steps in one matrix multiplication: (T, N, gates * H).
        gates = F.linear(x, w_ih, None if b_ih is None else b_ih + b_hh)
        if self.mode == "LSTM":
            projection = getattr(self, f"weight_hr_{suffix}") if self.proj_size else None
            out, h, c = lstm_layer(gates, *state, w_hh, projection, sizes=sizes, reverse=reverse)
            # PyTorch's library for CPUs rounds c, too. Without it, for packed sequences and projections, c keeps its dtype.
            cell = promote_types(gates.dtype, state[1].dtype) if packed or self.proj_size else gates.dtype
            out, h = _rounded((out, h), gates.dtype if self.proj_size else cell)
            return out, (h, *_rounded((c,), cell))
        out, h = rnn_layer(gates, *state, w_hh, sizes=sizes, reverse=reverse, relu=self.mode == "RNN_RELU")
        out, h = _rounded((out, h), gates.dtype)
        return out, (h,)

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Returns (output, final state).

        Args:
            input: (T, N, input_size), (N, T, input_size) if `batch_first`, (T, input_size), or a `PackedSequence`.
            hx: initial state, (num_layers * directions, N, hidden_size). For LSTM, the tuple (h, c), where h has the size
                `proj_size` if that is positive. By default, zeros.

        Raises:
            ValueError: the input does not have 2 or 3 dimensions.
            RuntimeError: the size of the input or of a state does not match the layer.
        """
        if self.mode == "LSTM" and isinstance(hx, Tensor):
            raise RuntimeError(
                "LSTM: expected the initial state to be a tuple (h, c), got a tensor. Pass both tensors."
            )
        output: Any
        if hx is not None and (self.mode == "LSTM") is not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            if self.mode == "LSTM":
                got = f"{len(hx)} states" if isinstance(hx, (tuple, list)) else "a Tensor"
                raise RuntimeError(f"lstm expects two hidden states: a tuple (h, c), got {got}.")
            if isinstance(hx, tuple):
                raise TypeError(f"{type(self).__name__}: expected hx to be a Tensor, got a tuple.")
        if isinstance(hx, list) and self.mode != "LSTM":
            raise TypeError(f"{type(self).__name__}: expected hx to be a Tensor, got a list.")
        if isinstance(input, PackedSequence):
            # Pad, run all sequences in one batch, and pack again. `batch_sizes` limits each step to active sequences.
            x, _ = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
            x, states = self._run_layers(
                x, _reorder(hx, input.sorted_indices), tuple(input.batch_sizes.tolist()), input
            )
            output, states = repack(x, input), _reorder(states, input.unsorted_indices)
        elif input.ndim == 2:
            # Add a batch of size 1.
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

    def _run_layers(self, x, hx, sizes, packed=None):
        """Runs all layers. Returns (outputs of the last layer, final states).

        Args:
            x: (T, N, C).
            hx: initial states, or `None`.
            sizes: number of sequences that reach each step.
            packed: the `PackedSequence` that `x` was made from, or `None`.
        """
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{type(self).__name__}: input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                f"got {x.shape[-1]}"
            )
        wanted = self.weight_ih_l0.dtype
        if config.pytorch_mode and x.dtype is not wanted and get_mode().autocast is None:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({wanted}). Convert one with to()."
            )
        directions = 2 if self.bidirectional else 1
        states = self.num_layers * directions
        for h, size in zip(() if hx is None else _as_tuple(hx), self._state_sizes(), strict=False):
            if h.shape != (states, x.shape[1], size):
                raise RuntimeError(
                    f"{type(self).__name__}: Expected hidden size {(states, x.shape[1], size)}, got {list(h.shape)}"
                )
        finals = []
        for layer in range(self.num_layers):
            outs = []
            for d in range(directions):
                suffix = f"l{layer}" + ("_reverse" if d else "")
                state = self._start(hx, layer * directions + d, x.shape[1], x)
                out, final = self._run(x, state, suffix, sizes, bool(d), packed is not None)
                outs.append(out)
                finals.append(final)
            x = outs[0] if directions == 1 else cat(outs, 2)  # (T, N, directions * H)
            if self.dropout and layer < self.num_layers - 1:
                # Packed, without padding, so that the same random numbers are drawn as in PyTorch.
                data = F.dropout(x if packed is None else repack(x, packed).data, self.dropout, self.training)
                x = data if packed is None else pad_packed_sequence(PackedSequence(data, packed.batch_sizes))[0]
        return x, tuple(stack(each, 0) for each in zip(*finals, strict=True))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        return text + "".join(f", {n}={v}" for n, d in defaults.items() if (v := getattr(self, n)) != d)


def _rounded(results, dtype):
    """Rounds the results of autocast on a CPU, which are float32, to the dtype of PyTorch's results."""
    return tuple(r.to(dtype) if dtype.itemsize == 2 and r.dtype is float32 else r for r in results)


def _reorder(hx, order):
    return hx if hx is None or order is None else tuple(h.index_select(1, order) for h in _as_tuple(hx))


def _as_tuple(hx):
    return tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)


class RNN(RNNBase):
    """Applies a recurrent network with tanh or ReLU to a sequence.

        h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)

    Use it for short sequences or for teaching. Over more than about 20 steps its gradients vanish; `LSTM` and `GRU`
    keep them.

    Args:
        nonlinearity: "tanh" or "relu" (default: "tanh").

    Shape:
        Input: (T, N, input_size) or (T, input_size).
        Output: (T, N, D * hidden_size) and the final state (D * num_layers, N, hidden_size), where D is 2 if
            `bidirectional` and 1 otherwise.

    Source: Elman, 1990.

    Example:
        >>> out, h = nn.RNN(4, 6)(mytorch.zeros(5, 3, 4))
        >>> tuple(out.shape), tuple(h.shape)
        ((5, 3, 6), (1, 3, 6))

    See also: `nn.RNNCell`, `nn.LSTM`, `nn.GRU`, `nn.utils.rnn.pack_padded_sequence`.
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
    """Applies a long short-term memory network to a sequence.

        i = sigmoid(W_ii x + b_ii + W_hi h + b_hi)      input gate
        f = sigmoid(W_if x + b_if + W_hf h + b_hf)      forget gate
        g = tanh(W_ig x + b_ig + W_hg h + b_hg)         candidate
        o = sigmoid(W_io x + b_io + W_ho h + b_ho)      output gate
        c' = f * c + i * g
        h' = o * tanh(c')

    Here x is the input, h and c the previous states, and h' and c' the next states.

    Use it for sequences of up to some hundred steps, or in streams, where a transformer would need the whole past.

    Shape:
        Input: (T, N, input_size) or (T, input_size).
        Output: (T, N, D * H) and the final states h, (D * num_layers, N, H), and c, (D * num_layers, N, hidden_size). H
            is `proj_size` if that is positive, and `hidden_size` otherwise. D is 2 if `bidirectional` and 1 otherwise.

    Source: Hochreiter and Schmidhuber, 1997.

    Example:
        >>> out, (h, c) = nn.LSTM(4, 6, num_layers=2)(mytorch.zeros(5, 3, 4))
        >>> tuple(out.shape), tuple(h.shape), tuple(c.shape)
        ((5, 3, 6), (2, 3, 6), (2, 3, 6))

    See also: `nn.LSTMCell`, `nn.GRU`, `nn.utils.rnn.pack_padded_sequence`.
    """

    gates = 4

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        options = (num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__("LSTM", input_size, hidden_size, *options)


class GRU(RNNBase):
    """Applies a network of gated recurrent units to a sequence.

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)           reset gate
        z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)           update gate
        n = tanh(W_in x + b_in + r * (W_hn h + b_hn))        candidate
        h' = (1 - z) * n + z * h

    Here x is the input, h the previous state, and h' the next state.

    Use it in place of `LSTM` with a quarter fewer parameters and usually similar results.

    Shape:
        Input: (T, N, input_size) or (T, input_size).
        Output: (T, N, D * hidden_size) and the final state (D * num_layers, N, hidden_size), where D is 2 if
            `bidirectional` and 1 otherwise.

    Source: Cho et al., 2014.

    Example:
        >>> out, h = nn.GRU(4, 6, bidirectional=True)(mytorch.zeros(5, 3, 4))
        >>> tuple(out.shape), tuple(h.shape)
        ((5, 3, 12), (2, 3, 6))

    See also: `nn.GRUCell`, `nn.LSTM`, `nn.utils.rnn.pack_padded_sequence`.
    """

    gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        options = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__("GRU", input_size, hidden_size, *options)


class RNNCellBase(_Recurrent):
    """The base class of the recurrent cells.

    Args:
        input_size: size of each input vector.
        hidden_size: size of the hidden state.
        bias: if True, has the learnable vectors b_ih and b_hh (default: True).
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
        sizes = (rows, input_size), (rows, hidden_size), (rows,), (rows,)
        shapes = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), sizes, strict=True))
        for name, shape in shapes.items():
            present = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(empty(*shape, device=device, dtype=dtype)) if present else None)
        self.reset_parameters()

    def _zeros(self, input):
        return zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype, device=input.device)

    def _gates(self, input, h):
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        if h.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected hidden to be 1D or 2D, got {h.ndim}D instead")
        if h.shape != (*input.shape[:-1], self.hidden_size):
            sizes = [*input.shape[:-1], self.hidden_size]
            raise RuntimeError(f"{type(self).__name__}: expected a state of shape {sizes}, got {list(h.shape)}.")
        return F.linear(input, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """Applies one step of a recurrent network with tanh or ReLU.

        h' = tanh(W_ih x + b_ih + W_hh h + b_hh)

    Args:
        nonlinearity: "tanh" or "relu" (default: "tanh").

    Shape:
        Input: (N, input_size) or (input_size,), and optionally the state (N, hidden_size) or (hidden_size,).
        Output: the next state, (N, hidden_size) or (hidden_size,).

    Example:
        >>> cell = nn.RNNCell(4, 6)
        >>> tuple(cell(mytorch.zeros(3, 4)).shape)
        (3, 6)

    See also: `nn.RNN`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Device = None,
        dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}. Select from 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity

    @in_precision("half", inside=True)
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        a, b = self._gates(input, self._zeros(input) if hx is None else hx)
        return (a + b).tanh() if self.nonlinearity == "tanh" else (a + b).relu()

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else "")


class LSTMCell(RNNCellBase):
    """Applies one step of a long short-term memory network.

        i, f, o = sigmoid(W_ih x + b_ih + W_hh h + b_hh)      with the rows of each gate
        g = tanh(W_ih x + b_ih + W_hh h + b_hh)               with the rows of the candidate
        c' = f * c + i * g
        h' = o * tanh(c')

    Use it when each step needs your own code, such as feeding back a sample; `LSTM` runs a whole sequence much faster.

    Shape:
        Input: (N, input_size) or (input_size,), and optionally the states (h, c) of shape (N, hidden_size) or
            (hidden_size,).
        Output: the next states (h', c').

    Example:
        >>> h, c = nn.LSTMCell(4, 6)(mytorch.zeros(3, 4))
        >>> tuple(h.shape), tuple(c.shape)
        ((3, 6), (3, 6))

    See also: `nn.LSTM`.
    """

    gates = 4

    @in_precision("half", inside=True)
    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if isinstance(hx, Tensor):
            raise TypeError("lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor")
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        a, b = self._gates(input, h)
        if c.shape != h.shape:
            raise RuntimeError(f"LSTMCell: expected a state c of shape {list(h.shape)}, got {list(c.shape)}.")
        i, f, g, o = (a + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(RNNCellBase):
    """Applies one step of a network of gated recurrent units.

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
        z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
        n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        h' = (1 - z) * n + z * h

    Use it when each step needs your own code, such as attention in a decoder; `GRU` runs a whole sequence much faster.

    Shape:
        Input: (N, input_size) or (input_size,), and optionally the state (N, hidden_size) or (hidden_size,).
        Output: the next state, (N, hidden_size) or (hidden_size,).

    Example:
        >>> cell = nn.GRUCell(4, 6)
        >>> tuple(cell(mytorch.zeros(3, 4)).shape)
        (3, 6)

    See also: `nn.GRU`.
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
