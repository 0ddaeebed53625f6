"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes in which the rare ones are grouped."""

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .._tensor import Tensor
from ..base.dtypes import int64
from ..ops.creation import zeros
from ..ops.movement import cat
from . import functional as F
from .common_types import Device, DType
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-probability of each target, and the mean negative of them, with classes sorted by falling frequency.

    The head gives the probabilities of the classes below cutoffs[0] and of one cluster for each further span of
    classes; a cluster's tail, of a width that shrinks by div_value from cluster to cluster, those within it.

    Args:
        in_features: size of the input.
        n_classes: of targets, 0 to n_classes - 1.
        cutoffs: where clusters begin, increasing, between 1 and n_classes - 1.
        div_value: how much narrower each cluster's projection is.
        head_bias: whether the head has a bias.

    Shape: (N, in_features) and (N,), or (in_features,) and (), to a tuple (output (N,) or (), loss ()).

    Source: Grave et al., Efficient softmax approximation for GPUs, 2016.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        whole = all(int(c) == c for c in cutoffs)
        if not whole or cutoffs != sorted(set(cutoffs)) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value "
                "is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // (div_value ** (i + 1)))
            narrow = Linear(in_features, width, bias=False, **options)
            self.tail.append(Sequential(narrow, Linear(width, high - low, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Reinitialise all weights."""
        self.head.reset_parameters()
        for layer in (layer for cluster in self.tail for layer in cluster.children()):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if target_.ndim == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
        elif target_.ndim != 0:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        d = target_.ndim
        if input_.ndim != d + 1:
            raise RuntimeError(
                f"{d}D target tensor expects {d + 1}D input tensors, but found inputs with size {input_.shape}"
            )
        single = target_.ndim == 0
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        n = target.shape[0]
        used = 0
        output = input.new_zeros(n)
        heads = zeros(n, dtype=int64, device=target.device)  # the column of the head for each row
        for i, (low, high) in enumerate(pairwise([0, *self.cutoffs])):
            mask = (target >= low) & (target < high)
            rows = mask.nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            used += rows.numel()
            if i == 0:
                heads[rows] = target[mask].to(int64)
                continue
            heads[rows] = self.shortlist_size + i - 1
            logits = self.tail[i - 1](input.index_select(0, rows))
            within = F.log_softmax(logits, dim=1).gather(1, (target[mask] - low).to(int64).unsqueeze(1)).squeeze(1)
            output = output.index_add(0, rows, within)
        if used != n:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        output = output + F.log_softmax(self.head(input), dim=1).gather(1, heads.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _all_log_probs(self, input, head):
        head = F.log_softmax(head, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            column = self.shortlist_size + i
            parts.append(F.log_softmax(tail(input), dim=1) + head[:, column : column + 1])
        return cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (N, in_features) to (N, n_classes)."""
        return self._all_log_probs(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row; the tails are computed only for rows that may lie in them."""
        head = self.head(input)
        output = head.argmax(dim=1)
        rare = output >= self.shortlist_size
        if rare.any():
            output[rare] = self._all_log_probs(input[rare], head[rare]).argmax(dim=1)
        return output
