"""Learn to balance a pole on a cart from nothing but how long it stood: REINFORCE. Source: Williams, 1992.

python -m examples.policy_gradient
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, positive, run_script
from mytorch.distributions import Categorical


class CartPole:
    """Several carts with poles at once; pushed left (0) or right (1) fifty times a second.

    A state is (place, speed, angle, angular speed) in metres, radians and seconds. A pole has fallen at 12 degrees,
    or when its cart is 2.4 m from the middle. Source: Barto, Sutton and Anderson, 1983.
    """

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TIME = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, count):
        self.states = mytorch.rand(count, 4) * 0.1 - 0.05

    def step(self, actions):
        """Push every cart; returns which poles stand, (count,) bools."""
        _, speed, angle, turning = self.states.unbind(-1)
        push = (actions * 2 - 1) * self.FORCE
        mass, sin, cos = self.CART + self.POLE, angle.sin(), angle.cos()
        push = (push + self.POLE * self.HALF_LENGTH * turning**2 * sin) / mass
        angular = (self.GRAVITY * sin - cos * push) / (self.HALF_LENGTH * (4 / 3 - self.POLE * cos**2 / mass))
        linear = push - self.POLE * self.HALF_LENGTH * angular * cos / mass
        changes = mytorch.stack([speed, linear, turning, angular], -1)
        self.states = self.states + self.TIME * changes
        return (self.states[:, 0].abs() < 2.4) & (self.states[:, 2].abs() < math.radians(12))


def play(policy, count, limit):
    """Let `count` poles stand as long as they can; returns (log probabilities of the actions, which poles stood before
    each), both (steps, count)."""
    game, alive = CartPole(count), mytorch.ones(count, dtype=mytorch.bool)
    log_probs, alives = [], []
    while len(alives) < limit and alive.any():
        choice = Categorical(logits=policy(game.states))
        actions = choice.sample()
        log_probs.append(choice.log_prob(actions))
        alives.append(alive)
        alive = alive & game.step(actions)
    return mytorch.stack(log_probs), mytorch.stack(alives)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=80, help="how often the policy is improved")
    parser.add_argument("--count", type=count, default=32, help="poles at once")
    parser.add_argument("--limit", type=count, default=200, help="a game ends after so many pushes")
    parser.add_argument("--discount", type=positive, default=0.98)
    parser.add_argument("--lr", type=positive, default=1e-2)
    args = parser.parse_args()

    mytorch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = mytorch.optim.Adam(policy.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        log_probs, alive = play(policy, args.count, args.limit)
        rewards, total, returns = alive.float(), mytorch.zeros(args.count), []
        for reward in rewards.flip(0):
            total = reward + args.discount * total
            returns.append(total)
        returns = mytorch.stack(returns).flip(0)  # (steps, count): what each action led to
        seen = returns[alive]
        advantage = (returns - seen.mean()) / (seen.std() + 1e-6)
        loss = -(log_probs * advantage)[alive].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}  mean length {alive.sum(0).float().mean().item():.1f}")

    with mytorch.no_grad():
        _, alive = play(policy, 100, args.limit)
    print(f"mean length of 100 games {alive.sum(0).float().mean().item():.1f} of {args.limit}")


if __name__ == "__main__":
    run_script(main)
