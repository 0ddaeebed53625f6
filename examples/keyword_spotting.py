"""Recognize spoken commands, here synthetic melodies of two tones in noise, from their mel spectrograms.

This is a program for PyTorch and torchaudio, which runs on mytorch without changes:

pip install --no-deps torchaudio==2.11.0
python -m mytorch -m examples.keyword_spotting --epochs 8
"""

import argparse
import math
import wave
from pathlib import Path

import torch
import torchaudio
from torch import nn
from torch.nn import functional as F

RATE = 8000
WORDS = {"up": (400, 800), "down": (800, 400), "left": (400, 400), "right": (800, 800), "stop": (1200, 600)}  # hertz


def recordings(number):
    """Returns waveforms (number, 4000) of half a second, and labels (number,). Voices differ in pitch, tempo and volume."""
    labels = torch.randint(0, len(WORDS), (number,))
    tones = torch.tensor(list(WORDS.values()))[labels] * (0.85 + 0.3 * torch.rand(number, 1))
    change = 0.2 + 0.1 * torch.rand(number, 1)  # second at which the second tone begins
    time = torch.arange(RATE // 2) / RATE
    hertz = torch.where(time < change, tones[:, :1], tones[:, 1:])
    phase = 2 * math.pi * (hertz / RATE).cumsum(-1)
    voice = phase.sin() + 0.5 * (2 * phase).sin() + 0.25 * (3 * phase).sin()
    noise = torch.randn(number, RATE // 2)
    return torchaudio.functional.add_noise(voice, noise, 15 * torch.rand(number)) / 4, labels


def write(path, waveform):
    """Writes a waveform (time,) to a WAV file with 16 bits for each sample."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((waveform.clamp(-1, 1) * 32767).short().numpy().tobytes())


class Spotter(nn.Module):
    """Mel spectrogram in decibels, masks in training, and three convolutions over time."""

    def __init__(self, bands=24, width=32):
        super().__init__()
        self.mel = nn.Sequential(
            torchaudio.transforms.MelSpectrogram(RATE, n_fft=256, n_mels=bands),
            torchaudio.transforms.AmplitudeToDB(top_db=60),
        )
        self.augment = torchaudio.transforms.SpecAugment(1, 6, 1, 4)
        self.layers = nn.Sequential(
            nn.Conv1d(bands, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 3), nn.ReLU(), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(2 * width, len(WORDS)),
        )  # fmt: skip

    def forward(self, waveform):
        x = self.mel(waveform)
        x = (x - x.mean((1, 2), keepdim=True)) / 20
        return self.layers(self.augment(x) if self.training else x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600, help="number of recordings for training")
    parser.add_argument("--epochs", type=int, default=8, help="number of passes over the recordings")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate")
    parser.add_argument("--wav", help="folder for one WAV file of each word (default: none)")
    args = parser.parse_args()

    torch.manual_seed(0)
    waveforms, labels = recordings(args.count)
    others, expected = recordings(200)
    if args.wav:
        Path(args.wav).mkdir(parents=True, exist_ok=True)
        for number, word in enumerate(WORDS):
            index = (labels == number).nonzero()[:1, 0]
            write(Path(args.wav) / f"{word}.wav", waveforms[index[0]])
    model = Spotter()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch in torch.randperm(args.count).split(30):
            loss = F.cross_entropy(model(waveforms[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}  loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        correct = model(others).argmax(1) == expected
    print(f"accuracy {correct.float().mean().item():.2f} on new recordings")


if __name__ == "__main__":
    main()
