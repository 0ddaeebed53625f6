"""Histograms of a model's weights and gradients, for any logger."""

from typing import Any

from ..autograd.mode import no_grad

BINS = 32


class Watch:
    """Writes histograms; the result of `watch`.

    The writer is TensorBoard's SummaryWriter (`add_histogram`), an Accelerator or one of its trackers (`log`), or a function
    of (name, values, step).
    """

    def __init__(self, model, writer, every, gradients):
        self.model, self.writer, self.every, self.gradients = model, writer, every, gradients
        self.calls = 0

    @no_grad()
    def log(self, step: int) -> bool:
        """Writes the histograms if it is time.

        Args:
            step: number of the step.

        Returns:
            True if the histograms were written.
        """
        self.calls += 1
        if (self.calls - 1) % self.every:
            return False
        found = {}
        for name, p in self.model.named_parameters():
            found[f"weights/{name}"] = p
            if self.gradients and p.grad is not None:
                found[f"gradients/{name}"] = p.grad
        if hasattr(self.writer, "add_histogram"):
            for name, values in found.items():
                self.writer.add_histogram(name, values, step)
        elif hasattr(self.writer, "log"):
            self.writer.log({name: histogram(values) for name, values in found.items()}, step=step)
        else:
            for name, values in found.items():
                self.writer(name, values, step)
        return True


def histogram(values: Any, bins: int = BINS) -> dict[str, Any]:
    """Returns {"low", "high", "counts", "mean", "std", "not_finite"} of a tensor's numbers, as JSON values.

    Args:
        values: the tensor.
        bins: number of bins.

    Example:
        >>> mytorch.tools.watching.histogram(tensor([0.0, 1.0, 1.0, float("nan")]), bins=2)["counts"]
        [1, 2]
    """
    values = values.reshape(-1).float()
    finite = values[values.isfinite()]
    left = values.numel() - finite.numel()
    if not finite.numel():
        return {"low": 0.0, "high": 0.0, "counts": [0] * bins, "mean": 0.0, "std": 0.0, "not_finite": left}
    low, high = finite.min().item(), finite.max().item()
    counts = [int(c) for c in finite.histc(bins, low, high).tolist()]
    mean, std = finite.mean().item(), finite.std(correction=0).item()
    return {"low": low, "high": high, "counts": counts, "mean": mean, "std": std, "not_finite": left}


def watch(model: Any, writer: Any, every: int = 100, gradients: bool = True) -> Watch:
    """Logs histograms of a model's weights and gradients. Call `.log(step)` after each backward.

    Args:
        writer: a SummaryWriter, an Accelerator, one of its trackers, a run of wandb, or a function of (name, values, step).
        every: number of `log` calls per histogram.
        gradients: include gradients.

    Raises:
        ValueError: if every is less than 1.
        TypeError: if the writer is not supported.

    Example:
        >>> seen = []
        >>> w = mytorch.utils.watch(nn.Linear(2, 1), lambda name, values, step: seen.append(name), every=2)
        >>> [w.log(step) for step in range(3)], seen[:2]
        ([True, False, True], ['weights/weight', 'weights/bias'])
    """
    if every < 1:
        raise ValueError(f"watch: expected every to be at least 1, got {every}.")
    if not (hasattr(writer, "add_histogram") or hasattr(writer, "log") or callable(writer)):
        raise TypeError(
            f"watch: expected a writer with add_histogram or log, or a function, got {type(writer).__name__}."
        )
    return Watch(model, writer, every, gradients)


__all__ = ["Watch", "histogram", "watch"]
