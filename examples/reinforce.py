"""Balance a pole on a cart with REINFORCE. Source: Williams, 1992.

python -m examples.reinforce
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


def play(policy, count, limit):
    """Plays `count` games for at most `limit` steps.

    Returns:
        The log probabilities of the actions and a bool tensor, both (steps, count). The tensor is True for games that had
        not ended before the step.
    """
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
    parser.add_argument("--steps", type=count, default=80, help="number of policy updates")
    parser.add_argument("--count", type=count, default=32, help="number of games played in parallel")
    parser.add_argument("--limit", type=count, default=200, help="maximum number of steps per game")
    parser.add_argument("--discount", type=positive, default=0.98, help="discount factor of future rewards")
    parser.add_argument("--lr", type=positive, default=1e-2, help="learning rate")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="image file for the progress (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = mytorch.optim.Adam(policy.parameters(), lr=args.lr)
    lengths = []
    for step in range(1, args.steps + 1):
        log_probs, alive = play(policy, args.count, args.limit)
        rewards, total, returns = alive.float(), mytorch.zeros(args.count), []
        for reward in rewards.flip(0):  # from the last step to the first
            total = reward + args.discount * total
            returns.append(total)
        returns = mytorch.stack(returns).flip(0)  # (steps, count): discounted rewards after each action
        valid = returns[alive]
        advantage = (returns - valid.mean()) / (valid.std() + 1e-6)
        # increase the probability of actions with above-average rewards
        loss = -(log_probs * advantage)[alive].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lengths.append(alive.sum(0).float().mean().item())
        if step % 10 == 0:
            print(f"step {step}  mean length {lengths[-1]:.1f}")

    if args.save:
        save_curves(args.save, {f"mean of {args.count} games": lengths}, ylabel="steps per game")
    with mytorch.no_grad():
        _, alive = play(policy, 100, args.limit)
    print(f"mean length of 100 games {alive.sum(0).float().mean().item():.1f} of {args.limit}")


if __name__ == "__main__":
    run_script(main)
