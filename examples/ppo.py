"""Balance a pole on a cart by proximal policy optimization: several steps on each game. Source: Schulman et al., 2017.

python -m examples.ppo --save progress.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.cart_pole import CartPole
from examples.pictures import save_curves
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.distributions import Categorical
from mytorch.nn import functional as F


def network(outputs):
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, outputs))


@mytorch.no_grad()
def play(policy, value, count, limit):
    """Games until they end or `limit`: (states, actions, log probabilities, values, who stood before), each (steps, count, …),
    and the values of the states after the last push, 0 where the pole fell."""
    game, alive = CartPole(count), mytorch.ones(count, dtype=mytorch.bool)
    steps = []
    while len(steps) < limit and alive.any():
        choice = Categorical(logits=policy(game.states))
        actions = choice.sample()
        steps.append((game.states, actions, choice.log_prob(actions), value(game.states)[:, 0], alive))
        alive = alive & game.step(actions)
    return [mytorch.stack(part) for part in zip(*steps, strict=True)], value(game.states)[:, 0] * alive


def advantages(values, alive, last, discount, trace):
    """Generalized advantage estimates, (steps, count), where each push that is survived is worth 1. Source: Schulman et al., 2016."""
    result, advantage, following, standing = [], mytorch.zeros_like(last), last, (last != 0).float()
    for value, now in zip(values.flip(0), alive.float().flip(0), strict=True):
        surprise = now * (standing + discount * following * standing - value)
        advantage = surprise + discount * trace * standing * advantage
        result.append(advantage)
        following, standing = value, now
    return mytorch.stack(result).flip(0)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=count, default=25, help="of games, and learning from them")
    parser.add_argument("--epochs", type=count, default=8, help="how often each game is learnt from")
    parser.add_argument("--count", type=count, default=16, help="poles at once")
    parser.add_argument("--limit", type=count, default=200, help="a game ends after so many pushes")
    parser.add_argument("--discount", type=positive, default=0.99)
    parser.add_argument("--trace", type=positive, default=0.95, help="lambda of the advantages")
    parser.add_argument("--clip", type=positive, default=0.2, help="how far a probability may move at once")
    parser.add_argument("--lr", type=positive, default=5e-3)
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a picture of the progress (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    policy, value = network(2), network(1)
    optimizer = mytorch.optim.Adam([*policy.parameters(), *value.parameters()], lr=args.lr)
    lengths = []
    for round in range(1, args.rounds + 1):
        (states, actions, old, values, alive), last = play(policy, value, args.count, args.limit)
        advantage = advantages(values, alive, last, args.discount, args.trace)
        returns = (advantage + values)[alive]
        states, actions, old, advantage = states[alive], actions[alive], old[alive], advantage[alive]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        for _ in range(args.epochs):
            for batch in mytorch.randperm(len(states)).split(512):
                choice = Categorical(logits=policy(states[batch]))
                ratio = (choice.log_prob(actions[batch]) - old[batch]).exp()
                clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                gain = mytorch.minimum(ratio * advantage[batch], clipped * advantage[batch]).mean()
                value_loss = F.smooth_l1_loss(value(states[batch])[:, 0], returns[batch])
                loss = -gain + 0.5 * value_loss - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        lengths.append(alive.sum(0).float().mean().item())
        if round % 5 == 0:
            print(f"round {round}  mean length {lengths[-1]:.1f}")

    if args.save:
        save_curves(args.save, {f"mean of {args.count} games": lengths}, "round", "pushes that the pole stands")
    (*_, alive), _ = play(policy, value, 100, args.limit)
    print(f"mean length of 100 games {alive.sum(0).float().mean().item():.1f} of {args.limit}")


if __name__ == "__main__":
    run_script(main)
