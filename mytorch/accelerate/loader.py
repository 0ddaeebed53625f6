"""A DataLoader whose batches arrive on the process's device."""

from ..tensor import Tensor


def send_to(x, device):
    """Tensors in nested containers, moved to a device; all else as it is."""
    if isinstance(x, Tensor):
        return x if x.device is device else x.to(device)
    if isinstance(x, dict):
        return type(x)((key, send_to(value, device)) for key, value in x.items())
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*[send_to(item, device) for item in x])
    if isinstance(x, (list, tuple)):
        return type(x)([send_to(item, device) for item in x])
    return x


class AcceleratedLoader:
    """Iterates over a DataLoader's batches, moved to a device; all else is the loader's own.

    Attributes:
        remainder: items of the epoch's last batch that are padding for other processes; 0 for one process.
    """

    remainder = 0

    def __init__(self, loader, device):
        self.loader = loader
        self.device = device

    def __iter__(self):
        for batch in self.loader:
            yield send_to(batch, self.device)

    def __len__(self):
        return len(self.loader)

    def __getattr__(self, name):
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


class SkippingLoader:
    """A loader without its first `count` batches, for one epoch that goes on in the middle."""

    def __init__(self, loader, count):
        self.loader = loader
        self.count = count

    def __iter__(self):
        for i, batch in enumerate(self.loader):
            if i >= self.count:
                yield batch

    def __len__(self):
        return max(len(self.loader) - self.count, 0)
