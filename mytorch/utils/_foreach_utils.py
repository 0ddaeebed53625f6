"""`torch.utils._foreach_utils`: functions for packages that implement gradient clipping."""

from collections import defaultdict


def _get_foreach_kernels_supported_devices():
    return ["cpu", "cuda"]


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """Group the tensors by the device and dtype of the first list: {(device, dtype): (lists, indices)}."""
    groups = defaultdict(lambda: ([[] for _ in tensorlistlist], []))
    for i, row in enumerate(zip(*tensorlistlist, strict=True)):
        lists, indices = groups[row[0].device, row[0].dtype]
        for chosen, tensor in zip(lists, row, strict=True):
            chosen.append(tensor)
        indices.append(i)
    return groups


def _device_has_foreach_support(device):
    return device.type in _get_foreach_kernels_supported_devices()
