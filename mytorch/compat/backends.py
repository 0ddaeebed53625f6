"""Settings of PyTorch's backends.

`cuda.matmul.allow_tf32` and `allow_tf32`, `enabled` and `deterministic` of `cudnn` have an effect; others are only stored.
"""

import contextlib
import importlib
import sys
from types import ModuleType

from ..arrays import config
from ..arrays.errors import warn
from .names import set_float32_matmul_precision


def _attention_switches():
    """Return functions such as `enable_flash_sdp`, which store a setting without effect."""
    told = {}
    switches = {}
    for word in ("flash", "mem_efficient", "math", "cudnn"):
        switches[f"enable_{word}_sdp"] = lambda enabled, word=word: told.__setitem__(word, bool(enabled))
        switches[f"{word}_sdp_enabled"] = lambda word=word: told.get(word, True)
    return switches


@contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Selects the implementations of attention. Deprecated: use `nn.attention.sdpa_kernel`."""
    from ..nn.attention import SDPBackend, sdpa_kernel

    warn("sdp_kernel() is deprecated. Use nn.attention.sdpa_kernel.", FutureWarning)
    given = zip(
        (enable_flash, enable_mem_efficient, enable_math, enable_cudnn),
        (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION),
        strict=True,
    )
    with sdpa_kernel([backend for enabled, backend in given if enabled]):
        yield


class _Settings(ModuleType):
    """A module of settings, such as `backends.cudnn`, for imports by path."""

    def __init__(self, name, **settings):
        super().__init__(f"mytorch.backends.{name}", "Settings of a PyTorch backend.")
        vars(self).update(settings)
        sys.modules[self.__name__] = self

    @contextlib.contextmanager
    def _within(self, **settings):
        """Apply settings within a context or a decorated function."""
        before = {key: getattr(self, key) for key in settings}
        try:
            for key, value in settings.items():
                setattr(self, key, value)
            yield
        finally:
            for key, value in before.items():
                setattr(self, key, value)


def _flags(module, **defaults):
    """Add PyTorch's `flags` to a module: a context with settings. The other settings have their defaults in it."""
    for key, value in defaults.items():
        if not hasattr(module, key):
            setattr(module, key, value)
    module.flags = lambda **given: module._within(**{**defaults, **given})


def _choice(*words):
    """Return a function that stores one of the given words and returns the choice."""
    chosen = [words[0]]

    def choose(backend=None):
        if backend is not None:
            if backend not in words:
                raise RuntimeError(f"Unknown input value {backend!r}. Choose from: {', '.join(words)}.")
            chosen[0] = backend
        return chosen[0]

    return choose


class _Products(_Settings):
    """`backends.cuda.matmul`."""

    @property
    def allow_tf32(self):
        """True if a GPU may multiply float32 matrices in TF32; equivalent to `set_float32_matmul_precision`."""
        return config.float32_matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value):
        set_float32_matmul_precision("high" if value else "highest")


def _switch(name, doc):
    """Return a property that reads and sets a bool of arrays/config.py."""
    return property(lambda self: getattr(config, name), lambda self, value: setattr(config, name, bool(value)), doc=doc)


class _Convolutions(_Settings):
    """`backends.cudnn`."""

    allow_tf32 = _switch("convolution_tf32", "True if a GPU may convolve float32 arrays in TF32 (default).")
    enabled = _switch("cudnn_enabled", "True if cuDNN may compute convolutions on a GPU (default).")
    deterministic = _switch("cudnn_deterministic", "True if cuDNN must add in a specified order; False by default.")

    def is_available(self):
        """Return True if there is a GPU, and cuDNN is installed and usable."""
        return _cudnn() is not None

    def version(self):
        """Return the version of cuDNN as an int, such as 91900; None if it is not usable."""
        library = _cudnn()
        return library and library.backend_version()


def _cudnn():
    """Return cuDNN's frontend, or None."""
    if not importlib.import_module("mytorch.cuda").is_available():
        return None
    cudnn = importlib.import_module("mytorch.kernels.cudnn")
    return None if cudnn.why_not() else cudnn.library()


__path__ = []  # marks the module as a package for imports
# The code of array functions is NumPy's, on all processors.
cpu = _Settings("cpu", get_cpu_capability=lambda: "DEFAULT")
cudnn = _Convolutions("cudnn", benchmark=False)
_flags(cudnn, enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True)
cuda = _Settings(
    "cuda", matmul=_Products("cuda.matmul"), is_built=lambda: False,
    preferred_linalg_library=_choice("default", "cusolver", "magma"),
    preferred_blas_library=_choice("default", "cublas", "cublaslt"), sdp_kernel=sdp_kernel, **_attention_switches(),
)  # fmt: skip
mps = _Settings("mps", is_available=lambda: False, is_built=lambda: False)
mkldnn = _Settings("mkldnn", enabled=False, is_available=lambda: False)
_flags(mkldnn, enabled=False, deterministic=False, allow_tf32=True)
mkl, openmp = (_Settings(name, is_available=lambda: False) for name in ("mkl", "openmp"))
quantized = _Settings("quantized", engine="none", supported_engines=["none"])  # there are no quantized tensors
opt_einsum = _Settings("opt_einsum", enabled=False, strategy=None, is_available=lambda: False)
_fast_path = [True]
mha = _Settings(
    "mha",
    get_fastpath_enabled=lambda: _fast_path[0],
    set_fastpath_enabled=lambda value: _fast_path.__setitem__(0, value),
)
# A context in which PyTorch permits assignments to settings. They are always permitted here.
__allow_nonbracketed_mutation = contextlib.nullcontext
