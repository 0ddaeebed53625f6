"""Balance a pole on a cart with proximal policy optimization (PPO). Source: Schulman et al., 2017.

python -m examples.ppo --save progress.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

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
    """Plays `count` games for at most `limit` steps.

    Returns:
        [states, actions, log probabilities, values, alive], each (steps, count, …), and the values of the final states,
        which are 0 for games that ended. `alive` is True for the games that had not ended before the step.
    """
    game, alive = CartPole(count), mytorch.ones(count, dtype=mytorch.bool)
    steps = []
    while len(steps) < limit and alive.any():
        choice = Categorical(logits=policy(game.states))
        actions = choice.sample()
        steps.append((game.states, actions, choice.log_prob(actions), value(game.states)[:, 0], alive))
        alive = alive & game.step(actions)
    return [mytorch.stack(part) for part in zip(*steps, strict=True)], value(game.states)[:, 0] * alive


def advantages(values, alive, last, discount, trace):
    """Computes generalized advantage estimates (steps, count) with a reward of 1 per step. Source: Schulman et al., 2016."""
    result, advantage, following, standing = [], mytorch.zeros_like(last), last, (last != 0).float()
    for value, now in zip(values.flip(0), alive.float().flip(0), strict=True):
        # temporal difference error: reward + discounted next value - value
        surprise = now * (standing + discount * following * standing - value)
        advantage = surprise + discount * trace * standing * advantage
        result.append(advantage)
        following, standing = value, now
    return mytorch.stack(result).flip(0)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=count, default=25, help="number of rounds of playing and learning")
    parser.add_argument("--epochs", type=count, default=8, help="number of epochs per round")
    parser.add_argument("--count", type=count, default=16, help="number of games played in parallel")
    parser.add_argument("--limit", type=count, default=200, help="maximum number of steps per game")
    parser.add_argument("--discount", type=positive, default=0.99, help="discount factor of future rewards")
    parser.add_argument("--trace", type=positive, default=0.95, help="lambda of the advantage estimates")
    parser.add_argument("--clip", type=positive, default=0.2, help="maximum change of the probability ratio")
    parser.add_argument("--lr", type=positive, default=5e-3, help="learning rate")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="image file for the progress (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    policy, value = network(2), network(1)
    optimizer = mytorch.optim.Adam([*policy.parameters(), *value.parameters()], lr=args.lr)
    lengths = []
    for round in range(1, args.rounds + 1):
        (states, actions, old, values, alive), last = play(policy, value, args.count, args.limit)
        advantage = advantages(values, alive, last, args.discount, args.trace)
        returns = (advantage + values)[alive]
        # keep the steps of running games only
        states, actions, old, advantage = states[alive], actions[alive], old[alive], advantage[alive]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        for _ in range(args.epochs):
            for batch in mytorch.randperm(len(states)).split(512):
                choice = Categorical(logits=policy(states[batch]))
                # probability of the action, relative to the policy that played
                ratio = (choice.log_prob(actions[batch]) - old[batch]).exp()
                clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                # clipping removes the incentive to move the ratio far from 1
                gain = mytorch.minimum(ratio * advantage[batch], clipped * advantage[batch]).mean()
                value_loss = F.smooth_l1_loss(value(states[batch])[:, 0], returns[batch])
                # the entropy term keeps the policy random enough to explore
                loss = -gain + 0.5 * value_loss - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        lengths.append(alive.sum(0).float().mean().item())
        if round % 5 == 0:
            print(f"round {round}  mean length {lengths[-1]:.1f}")

    if args.save:
        save_curves(args.save, {f"mean of {args.count} games": lengths}, "round", "steps per game")
    (*_, alive), _ = play(policy, value, 100, args.limit)
    print(f"mean length of 100 games {alive.sum(0).float().mean().item():.1f} of {args.limit}")


if __name__ == "__main__":
    run_script(main)
