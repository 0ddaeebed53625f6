"""The game that the examples of reinforcement learning play."""

import math

import mytorch


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
