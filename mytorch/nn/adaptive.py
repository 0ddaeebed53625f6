"""A softmax over many classes, with clusters of rare classes."""

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..arrays.dtypes import int64
from ..arrays.tensor import Tensor
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
    """Computes the log-probability of each target and the mean loss, fast for many classes with uneven frequencies.

        log p(y) = log p_head(y)                                 if y is in the shortlist
        log p(y) = log p_head(cluster) + log p_cluster(y)        otherwise

    Classes must be sorted by decreasing frequency. The shortlist contains the classes below cutoffs[0]. The other
    cutoffs divide the remaining classes into clusters. The projection of each cluster is narrower than the projection
    of the previous cluster by the factor `div_value`.

    Args:
        in_features: size of the input.
        n_classes: number of classes.
        cutoffs: first class of each cluster, increasing numbers from 1 to n_classes - 1.
        div_value: ratio of the widths of successive projections (default: 4.0).
        head_bias: if True, the head has a bias (default: False).

    Shape:
        Input: (N, in_features) or (in_features,).
        Target: (N,) or (), class indices.
        Output: named tuple of `output`, (N,) or (), the log-probabilities of the targets, and `loss`, ().

    Raises:
        ValueError: `cutoffs` is empty, not increasing, or out of range.

    Source: Grave et al., Efficient softmax approximation for GPUs, 2016.

    Example:
        >>> layer = nn.AdaptiveLogSoftmaxWithLoss(16, n_classes=20, cutoffs=[5, 10])
        >>> output, loss = layer(mytorch.randn(3, 16), tensor([0, 7, 19]))
        >>> tuple(output.shape), loss.ndim
        ((3,), 0)

    See also: `nn.CrossEntropyLoss`.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0, got an empty sequence.")
        integers = all(int(c) == c for c in cutoffs)
        if not integers or cutoffs != sorted(set(cutoffs)) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value "
                f"is between 1 and n_classes-1={n_classes - 1}, got {cutoffs}."
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
            width = int(in_features // (div_value ** (i + 1)))  # rarer classes have narrower projections
            narrow = Linear(in_features, width, bias=False, **options)
            self.tail.append(Sequential(narrow, Linear(width, high - low, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Draws all weights again."""
        self.head.reset_parameters()
        for layer in (layer for cluster in self.tail for layer in cluster.children()):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if target_.ndim == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
        elif target_.ndim != 0:
            raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported, got {target_.ndim}D.")
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
        heads = zeros(n, dtype=int64, device=target.device)  # column of the head for each row
        for i, (low, high) in enumerate(pairwise([0, *self.cutoffs])):  # i = 0 is the shortlist
            mask = (target >= low) & (target < high)
            rows = mask.nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            used += rows.numel()
            if i == 0:
                heads[rows] = target[mask].to(int64)
                continue
            # log p(class) = log p(cluster), added below, + log p(class within the cluster).
            heads[rows] = self.shortlist_size + i - 1
            logits = self.tail[i - 1](input.index_select(0, rows))
            within = F.log_softmax(logits, dim=1).gather(1, (target[mask] - low).to(int64).unsqueeze(1)).squeeze(1)
            output = output.index_add(0, rows, within)
        if used != n:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found."
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
        """Returns the log-probabilities of all classes, (N, n_classes).

        Args:
            input: (N, in_features).
        """
        return self._all_log_probs(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each row, (N,).

        The method computes a cluster only for rows with the cluster as the most probable result of the head.

        Args:
            input: (N, in_features).
        """
        head = self.head(input)
        output = head.argmax(dim=1)
        rare = output >= self.shortlist_size
        if rare.any():
            output[rare] = self._all_log_probs(input[rare], head[rare]).argmax(dim=1)
        return output
