"""Discrete Fourier transforms, as in `torch.fft`."""

from .base.arguments import described as _described
from .dispatch.bind import found_by_pickle
from .dispatch.out import takes_out
from .ops import fft as _fft

_NAMES = (
    "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft "
    "rfft2 rfftfreq rfftn"
)
__all__ = _NAMES.split()
globals().update(
    {name: found_by_pickle(_described(takes_out(getattr(_fft, name))), name, __name__) for name in __all__}
)
