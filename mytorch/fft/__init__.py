"""Discrete Fourier transforms, as in `torch.fft`."""

from ..arrays.arguments import described as _described
from ..ops import fft as _fft
from ..ops.dispatch.bind import found_by_pickle
from ..ops.dispatch.out import takes_out

_NAMES = (
    "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft "
    "rfft2 rfftfreq rfftn"
)
__all__ = _NAMES.split()
globals().update(
    {name: found_by_pickle(_described(takes_out(getattr(_fft, name))), name, __name__) for name in __all__}
)
