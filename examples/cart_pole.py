"""The cart-pole game of the reinforcement learning examples."""

import math

import mytorch


class CartPole:
    """Simulates several carts with poles in parallel. An action pushes a cart to the left (0) or to the right (1).

    A state is (position, speed, angle, angular speed) in meters, seconds and radians. A step lasts 0.02 seconds. The game
    ends if the angle reaches 12 degrees or the cart is 2.4 m from the center.

    Source: Barto, Sutton and Anderson, 1983.
    """

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TIME = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, count):
        self.states = mytorch.rand(count, 4) * 0.1 - 0.05

    def step(self, actions):
        """Pushes every cart; returns a bool tensor (count,), True for the games that continue."""
        _, speed, angle, turning = self.states.unbind(-1)
        push = (actions * 2 - 1) * self.FORCE  # action 0 or 1 -> force to the left or to the right
        mass, sin, cos = self.CART + self.POLE, angle.sin(), angle.cos()
        push = (push + self.POLE * self.HALF_LENGTH * turning**2 * sin) / mass
        # accelerations of the angle and of the cart, from the equations of motion
        angular = (self.GRAVITY * sin - cos * push) / (self.HALF_LENGTH * (4 / 3 - self.POLE * cos**2 / mass))
        linear = push - self.POLE * self.HALF_LENGTH * angular * cos / mass
        # one Euler step
        changes = mytorch.stack([speed, linear, turning, angular], -1)
        self.states = self.states + self.TIME * changes
        return (self.states[:, 0].abs() < 2.4) & (self.states[:, 2].abs() < math.radians(12))
