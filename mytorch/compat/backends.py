"""Settings of PyTorch's backends: `cuda.matmul.allow_tf32` works, the others are accepted."""

import sys
from types import ModuleType

from ..base import config
from .names import set_float32_matmul_precision


def _attention_switches():
    """`enable_flash_sdp` and the like, which store their setting: there is one attention here."""
    told = {}
    switches = {}
    for word in ("flash", "mem_efficient", "math", "cudnn"):
        switches[f"enable_{word}_sdp"] = lambda enabled, word=word: told.__setitem__(word, bool(enabled))
        switches[f"{word}_sdp_enabled"] = lambda word=word: told.get(word, True)
    return switches


class _Settings(ModuleType):
    """A module of settings, such as `backends.cudnn`, which programs import by its path."""

    def __init__(self, name, **settings):
        super().__init__(f"mytorch.backends.{name}", "Settings of PyTorch's.")
        vars(self).update(settings)
        sys.modules[self.__name__] = self


class _Products(_Settings):
    """`backends.cuda.matmul`."""

    @property
    def allow_tf32(self):
        """Whether a GPU may multiply float32 in TF32; another view of `set_float32_matmul_precision`."""
        return config.float32_matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value):
        set_float32_matmul_precision("high" if value else "highest")


__path__ = []  # so that the import system takes it for a package
cudnn = _Settings(
    "cudnn", benchmark=False, deterministic=True, enabled=False, allow_tf32=False, is_available=lambda: False,
    version=lambda: None,
)  # fmt: skip


def _preferred(backend=None):
    """Accepted: the CPU has LAPACK, a GPU what CuPy calls."""
    return backend


cuda = _Settings(
    "cuda",
    preferred_linalg_library=_preferred,
    matmul=_Products("cuda.matmul"),
    is_built=lambda: False,
    **_attention_switches(),
)
mps = _Settings("mps", is_available=lambda: False, is_built=lambda: False)
mkldnn = _Settings("mkldnn", enabled=False, is_available=lambda: False)
