"""`SummaryWriter`, which writes events for TensorBoard with the package tensorboardX, without PyTorch."""


def __getattr__(name):
    if name != "SummaryWriter":
        raise AttributeError(f"module 'mytorch.utils.tensorboard' has no attribute {name!r}")
    from .writer import SummaryWriter

    return SummaryWriter
