"""Fourier transforms, with `torch.fft`'s names."""

from .dispatch.out import takes_out
from .ops import fft as _fft

_NAMES = (
    "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft "
    "rfft2 rfftfreq rfftn"
)
__all__ = _NAMES.split()
globals().update({name: takes_out(getattr(_fft, name)) for name in __all__})
