"""Compiled functions: `mytorch.compile` and `mytorch.compile_step`.

The Python code of a compiled function runs in each call. While it runs, `loss.backward()` and the update of a parameter group are
regions (`regions.py`). A backward pass outside of the function is a region, too, if it starts from a result of the function.
"""

import copy
import functools
import types
import weakref
from contextvars import ContextVar

from ..arrays import capturing, hooks
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..autograd.node import Leaf
from ..utils._pytree import tree_flatten
from .arrays import Untraceable, current_tape
from .regions import Backward, Update, checks

MOST = 8  # regions of one kind with one first operation; further forms run eagerly
NEAR = 50  # edges next to the roots of a backward pass among which results of compiled functions are looked for
PAUSE = 100  # calls without a comparison after a region ran eagerly, so that it costs nothing
stance = ["default"]  # see `set_stance`
_all = weakref.WeakSet()
_active = ContextVar("mytorch_compiled", default=None)  # the compiled function that runs
_made = weakref.WeakKeyDictionary()  # edge of a result -> the compiled function


class Compiled:
    """A function that `compile` returned. Call it like the function.

    Attributes:
        function: the function.
        regions: {what a region starts with: regions}.
        reasons: {reason: kind of region} for the parts that run eagerly.
    """

    def __init__(self, function, limit=None):
        functools.update_wrapper(self, function)
        self.function = function
        self.limit = MOST if limit is None else limit
        self.regions, self.reasons, self.paused = {}, {}, {}
        self.calls = 0
        hooks.run_backward, hooks.update_group = _run_backward, _update_group
        _all.add(self)

    def __get__(self, owner, cls=None):
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args, **kwargs):
        if _active.get() is not None or stance[0] == "force_eager":
            return self.function(*args, **kwargs)
        self.calls += 1
        token = _active.set(self)
        try:
            result = self.function(*args, **kwargs)
        finally:
            _active.reset(token)
        if result is not None:
            for out in (result,) if type(result) is Tensor else tree_flatten(result)[0]:
                edge = out._mt_edge if isinstance(out, Tensor) else None
                if edge is not None and type(edge) is not Leaf:
                    _made[edge] = self
        return result

    @property
    def programs(self):
        """The regions that are programs."""
        return [region for known in self.regions.values() for region in known if region.program is not None]

    def region(self, key, form, create):
        """Returns the region that `form` accepts, and what it returned; (None, None) if the region must run eagerly.

        Args:
            key: what the region starts with.
            form: function from a region to what its method `match` returns.
            create: function that creates another region.
        """
        if self.paused.get(key):
            self.paused[key] -= 1
            return None, None
        known = self.regions.setdefault(key, [])
        for i, region in enumerate(known):
            found = form(region)
            if found is not None:
                if region.reason is not None:
                    return self.pause(key)
                if i:  # the next call compares with it first
                    self.regions[key] = [region, *known[:i], *known[i + 1 :]]
                return region, found
        if known and stance[0] == "eager_on_recompile":
            return None, None
        if known and stance[0] == "fail_on_recompile":
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile'. "
                f"{known[0].what} has another form than before."
            )
        if len(known) >= self.limit:
            raise Untraceable(f"it has {self.limit} forms")
        region = create()
        known.append(region)
        return region, form(region)

    def pause(self, key, reason=None, what=None):
        """Lets the next calls of a region run eagerly. Returns (None, None)."""
        if reason is not None:
            self.reasons[reason] = what
        self.paused[key] = 0 if checks() else PAUSE
        return None, None

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.function, memo)

    def __reduce__(self):
        return _same, (self.function,)

    def reset(self):
        """Deletes all regions."""
        self.regions, self.reasons, self.paused, self.calls = {}, {}, {}, 0


def _same(function):
    return function


def _compiled_by(roots):
    """Returns the compiled function that a backward pass belongs to, or None."""
    found = _active.get()
    if found is not None or not _made:
        return found
    edges = [edge for edge, _ in roots]
    seen = set(edges)
    for edge in edges:
        found = _made.get(edge)
        if found is not None or len(seen) > NEAR:
            return found
        new = [parent for parent in edge.parents if parent is not None and parent not in seen]
        seen.update(new)
        edges += new
    return None


def _run_backward(roots, keep_graph):
    """Runs backward for `autograd/walk.py`; returns False if it must run eagerly."""
    compiled = _compiled_by(roots)
    mode = get_mode()
    if (
        compiled is None
        or stance[0] == "force_eager"
        or mode.profile is not None
        or mode.anomaly
        or mode.interpreter is not None
        or current_tape() is not None
    ):
        return False
    key = "backward", getattr(roots[0][0], "plan", None)
    try:
        region, found = compiled.region(
            key, lambda region: region.match(roots), lambda: Backward(roots, compiled.regions[key])
        )
    except Untraceable as error:
        region, found = compiled.pause(key, str(error), "backward")
    if region is None or found is None:
        return False
    region.run(roots, *found, keep_graph)
    return True


def _update_group(optimizer, group):
    """Updates a parameter group for `optim/optimizer.py`; returns False if it must run eagerly."""
    compiled = _active.get()
    if compiled is None or capturing.is_recording():
        return False
    key = "update", type(optimizer).update, len(group["params"])
    try:
        region, found = compiled.region(
            key, lambda region: region.match(optimizer, group), lambda: Update(optimizer, group)
        )
    except Untraceable as error:
        region, found = compiled.pause(key, str(error), f"{type(optimizer).__name__}.step")
    if region is None or found is None:
        return False
    region.run(optimizer, group, *found)
    return True


def is_active():
    """Returns True while a compiled function runs."""
    return _active.get() is not None
