"""`torch.compiler`: everything stays eager, so that what turns compiling off, or asks for it, has nothing to do."""

from .jit import ignore

allow_in_graph = assume_constant_result = disable = substitute_in_graph = ignore


def is_compiling():
    """False."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset():
    """Nothing: there are no compiled functions to forget."""


cudagraph_mark_step_begin = reset


def list_backends(exclude_tags=()):
    """The compilers that `mytorch.compile` may choose among: none."""
    return []
