"""Compiled functions: `mytorch.compile` and `mytorch.compile_step`.

The Python code of a compiled function runs in each call. While it runs, `loss.backward()` and the update of a parameter group are
regions (`regions.py`). A backward pass outside of the function is a region, too, if it starts from a result of the function.
"""

import copy
import dataclasses
import functools
import sys
import types
import weakref
from contextvars import ContextVar

from ..arrays import capturing, hooks
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..autograd.node import Leaf
from .arrays import Untraceable, current_tape
from .regions import Backward, Update, checks

MOST = 8  # regions of one kind with one first operation; further forms run eagerly
RESULTS = 100  # objects among the results of a call in which tensors are looked for
NEAR = 50  # edges next to the roots of a backward pass among which results of compiled functions are looked for
PAUSE = 100  # calls without a comparison after a region ran eagerly, so that it costs nothing
stance = ["default"]  # see `set_stance`
_all = weakref.WeakSet()
_active = ContextVar("mytorch_compiled", default=None)  # the regions of the compiled function that runs
_made = weakref.WeakKeyDictionary()  # edge of a result -> the regions of the compiled function


class Regions:
    """The regions of a compiled function.

    Attributes:
        known: {what a region starts with: regions}.
        reasons: {reason: kind of region} for the parts that run eagerly.
        called: True after the first call of the function.
    """

    def __init__(self, limit=None):
        self.limit = MOST if limit is None else limit
        hooks.run_backward, hooks.update_group = _run_backward, _update_group
        self.reset()
        _all.add(self)

    def reset(self):
        """Deletes all regions."""
        self.known, self.reasons, self.paused, self.called = {}, {}, {}, False

    @property
    def programs(self):
        """The regions that are programs."""
        return [region for known in self.known.values() for region in known if region.program is not None]

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
        known = self.known.setdefault(key, [])
        for i, region in enumerate(known):
            found = form(region)
            if found is not None:
                if region.reason is not None:
                    return self.pause(key)
                if i:  # the next call compares with it first
                    self.known[key] = [region, *known[:i], *known[i + 1 :]]
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


class Compiled:
    """A function that `compile` returned. Call it like the function.

    Programs may give it any attributes, as they do with functions, so it defines no public ones.
    """

    def __init__(self, function, limit=None):
        functools.update_wrapper(self, function)  # sets `__wrapped__`
        self._mt_regions = Regions(limit)

    def __get__(self, owner, cls=None):
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args, **kwargs):
        if _active.get() is not None or stance[0] == "force_eager":
            return self.__wrapped__(*args, **kwargs)
        regions = self._mt_regions
        regions.called = True
        token = _active.set(regions)
        try:
            result = self.__wrapped__(*args, **kwargs)
        finally:
            _active.reset(token)
        if result is not None:
            _note(result, regions)
        return result

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        function = copy.deepcopy(self.__wrapped__, memo)
        return self if function is self.__wrapped__ else function  # else a method of a copied object

    def __reduce__(self):
        found = vars(sys.modules.get(self.__module__, types)).get(self.__qualname__)
        return self.__qualname__ if found is self else (_same, (self.__wrapped__,))

    def reset(self):
        """Deletes all programs."""
        self._mt_regions.reset()


def _same(function):
    return function


def _note(result, regions):
    """Notes that the results of a function, in nested containers, belong to its regions. Runs no code of the program."""
    found = [result]
    for x in found:
        kind = type(x)
        if issubclass(kind, Tensor):
            if x._mt_edge is not None and type(x._mt_edge) is not Leaf:
                _made[x._mt_edge] = regions
        elif len(found) < RESULTS:
            if issubclass(kind, (tuple, list)):
                found += (tuple if issubclass(kind, tuple) else list).__iter__(x)
            elif issubclass(kind, dict):
                found += dict.values(x)
            elif dataclasses.is_dataclass(kind):
                found += getattr(x, "__dict__", {}).values()


def _compiled_by(roots):
    """Returns the regions that a backward pass belongs to, or None."""
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
            key, lambda region: region.match(roots), lambda: Backward(roots, compiled.known[key])
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
