"""`torch.utils.tensorboard.summary`: the functions of the package tensorboardX that build summaries."""

from tensorboardX.summary import *  # noqa: F403
