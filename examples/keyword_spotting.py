"""Recognize spoken commands, here synthetic melodies of two tones in noise, from their mel spectrograms.

python -m examples.keyword_spotting --epochs 8
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from mytorch import audio, nn
from mytorch.cli.arguments import ArgumentParser, count, positive, run_script
from mytorch.nn import functional as F

RATE = 8000
WORDS = {"up": (400, 800), "down": (800, 400), "left": (400, 400), "right": (800, 800), "stop": (1200, 600)}  # hertz


def recordings(number):
    """Returns waveforms (number, 4000) of half a second, and labels (number,). Voices differ in pitch, tempo and volume."""
    labels = mytorch.randint(0, len(WORDS), (number,))
    tones = mytorch.tensor(list(WORDS.values()))[labels] * (0.85 + 0.3 * mytorch.rand(number, 1))
    change = 0.2 + 0.1 * mytorch.rand(number, 1)  # second at which the second tone begins
    time = mytorch.arange(RATE // 2) / RATE
    hertz = mytorch.where(time < change, tones[:, :1], tones[:, 1:])
    phase = 2 * math.pi * (hertz / RATE).cumsum(-1)
    voice = phase.sin() + 0.5 * (2 * phase).sin() + 0.25 * (3 * phase).sin()
    noise = mytorch.randn(number, RATE // 2)
    return audio.functional.add_noise(voice, noise, 15 * mytorch.rand(number)) / 4, labels


class Spotter(nn.Module):
    """Mel spectrogram in decibels, masks in training, and three convolutions over time."""

    def __init__(self, bands=24, width=32):
        super().__init__()
        self.mel = nn.Sequential(
            audio.transforms.MelSpectrogram(RATE, n_fft=256, n_mels=bands), audio.transforms.AmplitudeToDB(top_db=60)
        )
        self.augment = audio.transforms.SpecAugment(1, 6, 1, 4)
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
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=count, default=600, help="number of recordings for training")
    parser.add_argument("--epochs", type=count, default=8, help="number of passes over the recordings")
    parser.add_argument("--lr", type=positive, default=0.003, help="learning rate")
    parser.add_argument("--wav", help="folder for one WAV file of each word (default: none)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    waveforms, labels = recordings(args.count)
    others, expected = recordings(200)
    if args.wav:
        Path(args.wav).mkdir(parents=True, exist_ok=True)
        for number, word in enumerate(WORDS):
            index = (labels == number).nonzero()[:1, 0]
            audio.save(Path(args.wav) / f"{word}.wav", waveforms[index], RATE, bits_per_sample=16)
    model = Spotter()
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch in mytorch.randperm(args.count).split(30):
            loss = F.cross_entropy(model(waveforms[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}  loss {loss.item():.4f}")
    model.eval()
    with mytorch.no_grad():
        correct = model(others).argmax(1) == expected
    print(f"accuracy {correct.float().mean().item():.2f} on new recordings")


if __name__ == "__main__":
    run_script(main)
