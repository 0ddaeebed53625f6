"""Two networks at play: one draws digits, the other tells them from real ones. Source: Goodfellow et al., 2014.

python -m examples.gan --save digits.png
"""

import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.data import default_device, digit_tensors, save_digits
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader


def network(*sizes, last):
    """Linear layers of the given sizes with leaky ReLUs between them, and `last` after them."""
    layers = []
    for n, m in pairwise(sizes):
        layers += [nn.Linear(n, m), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1], last)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device())
    parser.add_argument("--epochs", type=count, default=60)
    parser.add_argument("--batch_size", type=count, default=64)
    parser.add_argument("--lr", type=positive, default=5e-4)
    parser.add_argument("--noise", type=count, default=32, help="how many numbers a digit is drawn from")
    parser.add_argument("--data", help="a folder that MNIST/raw lies in")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a .png to draw new digits into")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    train, _ = digit_tensors(args.data)
    side = train.tensors[0].shape[-1]
    artist = network(args.noise, 128, 256, side * side, last=nn.Tanh()).to(args.device)
    critic = network(side * side, 256, 128, 1, last=nn.Identity()).to(args.device)
    artist_optimizer = mytorch.optim.Adam(artist.parameters(), lr=args.lr, betas=(0.5, 0.999))
    critic_optimizer = mytorch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.999))

    def draw(count):
        return artist(mytorch.randn(count, args.noise, device=args.device))

    def says(answers, real):
        return F.binary_cross_entropy_with_logits(answers, mytorch.full_like(answers, float(real)))

    for epoch in range(1, args.epochs + 1):
        critic_total = artist_total = 0.0
        loader = DataLoader(train, args.batch_size, shuffle=True)
        for x, _ in loader:
            real = x.flatten(1).to(args.device) * 2 - 1  # from -1 to 1, as the artist draws
            loss = says(critic(real), True) + says(critic(draw(len(x)).detach()), False)
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
            critic_total += loss.item()

            loss = says(critic(draw(len(x))), True)  # the artist wins where the critic is deceived
            artist_optimizer.zero_grad()
            loss.backward()
            artist_optimizer.step()
            artist_total += loss.item()
        if epoch % 10 == 0 or epoch == args.epochs:
            print(
                f"epoch {epoch}  critic's loss {critic_total / len(loader):.3f}  artist's loss {artist_total / len(loader):.3f}"
            )

    with mytorch.no_grad():
        fake, real = draw(1000), train.tensors[0][:1000].flatten(1).to(args.device) * 2 - 1
        nearest = mytorch.cdist(fake, real).amin(1).mean().item()
        among = mytorch.cdist(real[:500], real[500:]).amin(1).mean().item()
        deceived = (critic(fake) > 0).float().mean().item()
    print(f"drawn digits are {nearest:.2f} from the nearest real one (real ones from each other: {among:.2f})")
    print(f"the critic takes {deceived:.0%} of them for real")
    if args.save:
        save_digits((fake[:64].reshape(-1, 1, side, side) + 1) / 2, args.save)
        print(f"new digits: {args.save}")


if __name__ == "__main__":
    run_script(main)
