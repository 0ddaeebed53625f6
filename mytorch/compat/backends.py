"""Settings of PyTorch's backends: `cuda.matmul.allow_tf32` works, the others are accepted."""

from types import SimpleNamespace

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


class _Products(SimpleNamespace):
    """`backends.cuda.matmul`."""

    @property
    def allow_tf32(self):
        """Whether a GPU may multiply float32 in TF32; another view of `set_float32_matmul_precision`."""
        return config.float32_matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value):
        set_float32_matmul_precision("high" if value else "highest")


cudnn = SimpleNamespace(
    benchmark=False, deterministic=True, enabled=False, allow_tf32=False, is_available=lambda: False
)
cuda = SimpleNamespace(matmul=_Products(), is_built=lambda: False, **_attention_switches())
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
mkldnn = SimpleNamespace(enabled=False, is_available=lambda: False)
