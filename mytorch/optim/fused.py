"""Updates all parameters of a group at once: on a GPU, one kernel launch replaces hundreds.

The kernels are in `kernels/triton/multi.py`. Parameters that they do not support (half-precision moments, arrays
with gaps, no Triton) are updated one at a time. An optimizer gets the group from `FusedGroup.of` and passes it to the
`launch` method of its update rule.

A small array in device memory holds the other inputs of a step: learning rate, step number, and whether gradients
overflowed. Usually each step writes it again. In three cases it stays in device memory: with `capturable=True`, within a
step that is captured into a CUDA graph, and if a GradScaler leaves its found_inf on the GPU. Then the kernels count the
steps, `state["step"]` of the parameters is a view of the count, and only the learning rate comes from the CPU.
"""

import numpy as np

from ..arrays import capturing, xp_of
from ..kernels import registry
from .options import number
from .state import count_step, kept, raw_grad, zeros_for


class DeviceState:
    """Holds the numbers of a step in device memory.

    Attributes:
        state: the array that the kernels read, see `multi.new_state`.
        step: an Array that shares the memory of the step count.
    """

    def __init__(self, kernels, xp, lr, step):
        self.kernels = kernels
        self.state = kernels.new_state(xp, lr=lr, step=step)
        self.step = kept(kernels.one(self.state, kernels.STEP).reshape(()))
        self.lr = lr
        self.guarded = False

    def set_lr(self, lr):
        """Writes the learning rate if it changed."""
        if lr != self.lr:
            self.kernels.one(self.state, self.kernels.LR).fill(lr)
            self.lr = lr

    def set_found_inf(self, found):
        """Copies a GradScaler's found_inf, float32 (1,) in device memory. None means that no gradient overflowed."""
        own = self.kernels.one(self.state, self.kernels.FOUND_INF)
        if found is not None:
            own[...] = found
        elif self.guarded:
            own.fill(0.0)
        self.guarded = found is not None


class FusedGroup:
    """A group of parameters that one kernel launch can update.

    Parameters and moments are float32. Gradients have one dtype, and the layout of their parameters.

    Attributes:
        kernels: the module of the kernels.
        params: the parameters that have a gradient.
        raws: their raw arrays.
        grads: the raw arrays of their gradients.
    """

    def __init__(self, optimizer, group, kernels, params, raws, grads):
        self.optimizer, self.group, self.kernels = optimizer, group, kernels
        self.params, self.raws, self.grads = params, raws, grads
        self.xp = xp_of(raws[0])

    @classmethod
    def of(cls, optimizer, group):
        """Returns the FusedGroup of a group, or None if its parameters must be updated one at a time."""
        if not group["params"] or registry.device_type(group["params"][0]._mt_data._array) != "cuda":
            return None
        params = [p for p in group["params"] if p.grad is not None]
        raws, grads = [p._mt_data._array for p in params], [raw_grad(p) for p in params]
        kernels = registry.multi_tensor(raws, group.get("fused"))
        if kernels is None or registry.multi_tensor(grads, group.get("fused")) is None:
            return None
        pairs = zip(grads, raws, strict=True)
        if raws[0].dtype != np.float32 or any(g.shape != r.shape or not kernels.match(g, r) for g, r in pairs):
            if group.get("fused"):
                optimizer.kernels.warn(
                    "the kernel takes float32 parameters and gradients of their shapes and layouts only"
                )
            return None
        return cls(optimizer, group, kernels, params, raws, grads)

    def table(self, members, *columns):
        """Returns the kernels' table of the members' parameters, gradients and further columns."""
        return self.kernels.table_of(
            self.xp, [self.raws[i] for i in members], [self.grads[i] for i in members], *columns
        )

    def moments(self, name, members):
        """Returns the raw arrays of a state value, initially zeros."""
        states = [self.optimizer.state[self.params[i]] for i in members]
        if any(name not in state for state in states):
            self._refuse_first()
        found = [zeros_for(state, name, self.raws[i]) for state, i in zip(states, members, strict=True)]
        for n, (state, i) in enumerate(zip(states, members, strict=True)):
            if not self.kernels.match(
                found[n], self.raws[i]
            ):  # from a file, or from before the parameter got another layout
                placed = self.xp.empty_like(self.raws[i])
                placed[...] = found[n]
                found[n], state[name] = placed, kept(placed)
        return found

    def finish(self):
        """Marks the parameters as changed."""
        for p in self.params:
            p._mt_data._bump()

    # -- the numbers of a step -----------------------------------------------------------------------------------

    @property
    def stays(self):
        """True if the numbers of the step stay in device memory."""
        optimizer = self.optimizer
        return (
            bool(optimizer._device_states)
            or self.group.get("capturable")
            or capturing.is_preparing()
            or optimizer._found_inf is not None
        )

    def by_step(self):
        """Groups parameters by their number of finished steps, and raises that number by one.

        Yields:
            (device state, indices of the parameters).
        """
        optimizer, lr = self.optimizer, number(self.group["lr"])
        states = [optimizer.state[p] for p in self.params]
        if not self.stays:
            for step, members in _alike(count_step(state) for state in states):
                yield self.kernels.new_state(self.xp, lr=lr, step=step), members
            return
        known = [optimizer._device_states.get(id(state.get("step"))) for state in states]
        ages = [
            float(number(state.get("step", 0))) if shared is None else shared
            for shared, state in zip(known, states, strict=True)
        ]
        for age, members in _alike(ages):
            shared = age if isinstance(age, DeviceState) else self._new_device_state(lr, age)
            for i in members:
                states[i]["step"] = shared.step
            optimizer._device_states[id(shared.step)] = shared
            self._prepare(id(shared.step), shared, lr)
            self.kernels.count(shared.state)
            yield shared.state, members

    def by_start(self, name):
        """Groups parameters for update rules that do not count steps.

        The step number is 2 if a parameter has the state value `name`, otherwise 1. With name None it is 2.

        Yields:
            (device state, indices of the parameters).
        """
        optimizer, lr = self.optimizer, number(self.group["lr"])
        for started, members in _alike(name is None or name in optimizer.state[p] for p in self.params):
            if not self.stays:
                yield self.kernels.new_state(self.xp, lr=lr, step=1 + started), members
                continue
            if not started:
                self._refuse_first()
            key = (id(self.group), started)
            if key not in optimizer._device_states:
                for also in (False, True):
                    optimizer._device_states[id(self.group), also] = self._new_device_state(lr, 1 + also)
            self._prepare(key, optimizer._device_states[key], lr)
            yield optimizer._device_states[key].state, members

    def _new_device_state(self, lr, step):
        self._refuse_first()
        return DeviceState(self.kernels, self.xp, lr, step)

    def _refuse_first(self):
        capturing.refuse(
            f"the first step of {type(self.optimizer).__name__}",
            "it creates the optimizer's state. Run one step before the capture.",
        )

    def _prepare(self, key, shared, lr):
        """Updates a DeviceState. During capture, repeats this before each replay."""
        shared.set_found_inf(self.optimizer._found_inf)
        if not capturing.is_recording():
            shared.set_lr(lr)
            return
        optimizer, group, params, raws = self.optimizer, self.group, self.params, self.raws
        fixed = [name for name in optimizer.defaults if name != "lr"]
        values = [group[name] for name in fixed]

        def update():
            if optimizer._device_states.get(key) is not shared:
                raise capturing.Stale("the optimizer's state was replaced.")
            if any(p._mt_data._array is not raw for p, raw in zip(params, raws, strict=True)):
                raise capturing.Stale("a parameter was moved to other memory.")
            if [group[name] for name in fixed] != values:
                raise capturing.Stale("an option of the optimizer was changed.")
            shared.set_lr(number(group["lr"]))
            for p in params:
                p._mt_data._bump()

        capturing.current.before_replay(update)


def _alike(keys):
    """Returns (key, indices) for each different key."""
    found = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return found.items()
