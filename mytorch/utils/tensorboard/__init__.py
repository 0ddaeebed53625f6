"""`SummaryWriter`, through the package tensorboardX: events that TensorBoard shows, without PyTorch."""


def __getattr__(name):
    if name != "SummaryWriter":
        raise AttributeError(f"module 'mytorch.utils.tensorboard' has no attribute {name!r}")
    from .writer import SummaryWriter

    return SummaryWriter
