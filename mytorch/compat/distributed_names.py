"""Internal functions of `torch.distributed.distributed_c10d` that packages call."""

from ..distributed.process_group import default_group, get_global_rank, resolve

_get_default_group, _get_global_rank = default_group, get_global_rank


def _rank_not_in_group(group):
    """Return True if this process is outside the group."""
    return resolve(group) is None
