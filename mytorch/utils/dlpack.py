"""Exchange of memory with other libraries by DLPack."""


def from_dlpack(ext_tensor):
    """A tensor over the memory of any object that speaks DLPack."""
    from ..compat import from_dlpack

    return from_dlpack(ext_tensor)


def to_dlpack(tensor):
    """A DLPack capsule of a tensor's memory. Prefer handing over the tensor itself."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
