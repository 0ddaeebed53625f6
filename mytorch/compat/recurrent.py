"""`torch.lstm`, `torch.gru`, `torch.rnn_tanh`, `torch.rnn_relu` and their cells: recurrent layers as functions of their weights."""

from ..arrays.tensor import Tensor
from ..nn.module import Module
from ..nn.rnn import RNNBase
from ..nn.utils.rnn import PackedSequence
from ..ops.dispatch.bind import found_by_pickle


class _Layers(RNNBase):
    """Layers that use given weights.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        params: the weights of each layer and direction: weight_ih, weight_hh, then bias_ih, bias_hh, then weight_hr.
        has_biases: True if `params` contains biases.
        num_layers: number of layers.
        dropout: dropout probability between layers.
        train: True to apply dropout.
        bidirectional: True for layers of two directions.
        batch_first: True for inputs of shape (N, T, C).
        proj_size: size of the projected states of an LSTM, or 0.
    """

    def __init__(self, mode, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, proj_size=0):
        Module.__init__(self)
        self.mode, self.bias, self.num_layers, self.dropout = mode, bool(has_biases), num_layers, dropout
        self.bidirectional, self.batch_first, self.proj_size = bool(bidirectional), bool(batch_first), proj_size
        self.training = bool(train)
        self.input_size = params[0].shape[1]
        self.hidden_size = params[0].shape[0] // {"LSTM": 4, "GRU": 3}.get(mode, 1)
        names = self._flat_weights_names
        if len(names) != len(params):
            raise RuntimeError(
                f"{mode.lower()}: expected {len(names)} weights for {num_layers} layers with has_biases={bool(has_biases)} "
                f"and bidirectional={bool(bidirectional)}, got {len(params)}."
            )
        for name, weight in zip(names, params, strict=True):
            self.__dict__[name] = weight  # not registered: the weights belong to the caller


def _layers(mode, name):
    def function(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        sizes = None
        if isinstance(
            has_biases, (list, tuple)
        ):  # of a packed sequence: (data, batch_sizes, hx, params, …), without batch_first
            sizes, hx, params, has_biases, num_layers = hx, params, has_biases, num_layers, dropout
            dropout, train, bidirectional, batch_first = train, bidirectional, batch_first, False
        projected = mode == "LSTM" and hx[0].shape[-1] != hx[1].shape[-1]
        layers = _Layers(
            mode, params, has_biases, num_layers, dropout, train, bidirectional, batch_first,
            hx[0].shape[-1] if projected else 0,
        )  # fmt: skip
        sequence = input if sizes is None else PackedSequence(input, sizes)
        out, state = layers(sequence, tuple(hx) if mode == "LSTM" else hx)
        out = out if sizes is None else out.data
        return (out, *state) if mode == "LSTM" else (out, state)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Applies the layers of `nn.{mode.partition("_")[0]}` with given weights.

    For a packed sequence, pass by position: data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional.

    Args:
        input: (T, N, input_size), or (N, T, input_size) if `batch_first`.
        hx: initial state, (num_layers * directions, N, hidden_size); for LSTM, the tuple (h, c).
        params: the weights of each layer and direction: weight_ih, weight_hh, then bias_ih, bias_hh, then weight_hr.
        has_biases: True if `params` contains biases.
        num_layers: number of layers.
        dropout: dropout probability between layers.
        train: True to apply dropout.
        bidirectional: True for layers of two directions.
        batch_first: True for batches on the first axis.

    Returns:
        (output, final states …).
    """
    return function


def _cell(mode, name):
    def function(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        params = [w_ih, w_hh, *([] if b_ih is None else [b_ih, b_hh])]
        layers = _Layers(mode, params, b_ih is not None, 1, 0.0, False, False, False)
        states = tuple(h.unsqueeze(0) for h in hx) if mode == "LSTM" else hx.unsqueeze(0)
        _, state = layers(input.unsqueeze(0), states)
        return tuple(h.squeeze(0) for h in state) if mode == "LSTM" else state.squeeze(0)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Applies one step of `nn.{mode.partition("_")[0]}Cell` with given weights.

    Args:
        input: (N, input_size).
        hx: state, (N, hidden_size); for LSTM, the tuple (h, c).
        w_ih: weight of the input.
        w_hh: weight of the state.
        b_ih: first bias (default: None).
        b_hh: second bias (default: None).

    Returns:
        The next state.
    """
    function.__annotations__["return"] = tuple[Tensor, Tensor] if mode == "LSTM" else Tensor
    return function


FUNCTIONS = {name: _layers(name.upper(), name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
FUNCTIONS |= {f"{name}_cell": _cell(name.upper(), f"{name}_cell") for name in list(FUNCTIONS)}
TORCH_NAMES = {"mytorch": {name: found_by_pickle(f, name) for name, f in FUNCTIONS.items()}}
