"""Audio with torchaudio's API: spectrograms, mel scales, resampling, filters, augmentation, and WAV files."""

from . import functional, transforms
from .wav import AudioMetaData, info, load, save

__all__ = ["AudioMetaData", "functional", "info", "load", "save", "transforms"]
