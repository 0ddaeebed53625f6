"""Saving the position of a DataLoader's iteration, and resuming from it.

An order cannot be saved, but it can be drawn again. First, the generators get the states that they had when the
iteration began. Then the same number of indices is drawn, and the indices of yielded batches are skipped. The order may
depend on the global generators of mytorch, NumPy and Python, and on generators of the loader or its samplers. The global
generators then return to their previous states, since they belong to the program.

A stream has no indices. Its reader reads past the batches that were yielded.
"""

import random
from itertools import islice

import numpy as np

from ....ops.random import Generator, default_generator
from ..._pytree import tree_map
from ..dataset import IterableDataset
from ..sampler import Sampler

GLOBAL_GENERATORS = {"mytorch": default_generator, "numpy": np.random, "python": random}
_KINDS = (Generator, np.random.Generator, np.random.RandomState, random.Random)


class Progress:
    """The state of one iteration: the source of its order, and the tasks that are done.

    Args:
        loader: the DataLoader.
        base_seed: seed of the workers, if they have one; otherwise the iteration begins by drawing one.
    """

    def __init__(self, loader, base_seed=None):
        self.sources, self.epochs = sources_of(loader)
        self.is_stream = loader._is_stream
        self.base_seed = base_seed
        self.start = self._now()
        self.handed = [0] * max(loader.num_workers, 1)  # batches of each worker
        self.finish()

    def sent(self, number):
        """Records that task `number` was sent."""
        self.drawn = max(self.drawn, number + 1)
        self.open.add(number)

    def done(self, number, worker=0):
        """Records that the batch of task `number` was yielded."""
        self.open.discard(number)
        self.handed[worker] += 1
        self.turn = (worker + 1) % len(self.handed)

    def finish(self):
        """Records the end of the iteration. The next iteration begins with the current states of the generators."""
        self.begun = False
        self.drawn = 0  # indices drawn from the sampler
        self.open = set()  # the numbers of batches that were not yielded
        self.handed = [0] * len(self.handed)
        self.turn = 0  # the worker that a stream's next batch comes from

    def state_dict(self):
        """Returns the state as plain data: dicts, lists, numbers and strings."""
        return {
            "begun": self.begun,
            "start": self.start if self.begun else self._now(),
            "base_seed": self.base_seed,
            "drawn": self.drawn,
            "pending": sorted(self.open),
            "handed": list(self.handed),
            "turn": self.turn,
        }

    def check(self, saved):
        """Checks that a state fits the loader.

        Raises:
            ValueError: the state is invalid, only one of both has a generator, or the workers of a stream differ.
        """
        if not isinstance(saved, dict) or saved.keys() != self.state_dict().keys() or not self._is_plain(saved):
            raise ValueError(
                f"DataLoader.load_state_dict: expected a result of DataLoader.state_dict, got {saved!r:.200}."
            )
        had = "generator" in saved["start"]["generators"]
        if had != ("generator" in self.sources):
            raise ValueError(
                f"DataLoader.load_state_dict: expected the state of a loader {'without' if had else 'with'} a generator, "
                f"got the state of a loader {'with' if had else 'without'} a generator."
            )
        if self.is_stream and saved["begun"] and len(saved["handed"]) != len(self.handed):
            raise ValueError(
                "DataLoader.load_state_dict: expected the same number of workers for a stream, "
                f"{len(saved['handed'])}, got {len(self.handed)}."
            )

    def _is_plain(self, saved):
        """Returns True if the values of a state have the right types, which a damaged file may change."""
        start, lists = saved["start"], [saved["pending"], saved["handed"], [saved["drawn"], saved["turn"]]]
        dicts = isinstance(start, dict) and all(isinstance(start.get(key), dict) for key in self.start)
        whole = all(isinstance(values, list) and all(type(n) is int and n >= 0 for n in values) for values in lists)
        return dicts and whole and GLOBAL_GENERATORS.keys() <= start["generators"].keys()

    def set_epochs(self, saved):
        """Sets the epoch of samplers that count epochs."""
        for path, epoch in saved["start"]["epochs"].items():
            sampler = self.epochs.get(path)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            elif sampler is not None:
                sampler.epoch = epoch

    def draw_again(self, saved, draw_order, look_ahead):
        """Resumes from `saved`: returns an iterator over the (number, index) of the remaining tasks.

        Args:
            saved: the saved state.
            draw_order: function that begins to draw and returns an iterator over indices.
            look_ahead: function that returns a list of the first indices of the iterator.

        Raises:
            ValueError: the order is shorter than the saved order.
        """
        then = saved["start"]["generators"]
        before = states_of(GLOBAL_GENERATORS)
        if not saved["begun"]:  # generators that the program has restored continue from their state
            before = {name: state for name, state in before.items() if state != then[name]}
        self._set(then)
        order = draw_order()
        drawn = list(islice(order, saved["drawn"]))
        now = states_of(GLOBAL_GENERATORS)
        if not drawn and any(now[name] != before[name] for name in before):
            drawn = look_ahead(order)  # much is drawn only with the first index
        self._set(before)
        if len(drawn) < saved["drawn"]:
            raise ValueError(
                f"DataLoader.load_state_dict: {saved['drawn']} batches of the epoch had "
                f"been begun, but the sampler gives {len(drawn)} only."
            )
        self.start = saved["start"]
        if self.is_stream:
            self.handed, self.turn = list(saved["handed"]), saved["turn"]
            return enumerate(order)
        self.handed[0] = sum(saved["handed"])  # by whom does not matter, and there may be more or fewer workers now
        self.drawn = saved["drawn"]
        self.open = set(saved["pending"])
        return self._left(drawn, order)

    def _left(self, drawn, order):
        done = set(range(self.drawn)) - self.open
        for number, index in enumerate(drawn):
            if number not in done:
                yield number, index
        yield from enumerate(order, len(drawn))

    def _now(self):
        epochs = {path: sampler.epoch for path, sampler in self.epochs.items()}
        return {"generators": states_of(self.sources), "epochs": epochs}

    def _set(self, states):
        for path, state in states.items():
            if path in self.sources:  # some samplers make theirs when they are iterated
                set_state(self.sources[path], state)


def sources_of(loader):
    """Returns {path: object} of the generators that may determine an order, and of the samplers with an epoch."""
    sources, epochs = dict(GLOBAL_GENERATORS), {}
    seen = {id(default_generator), id(np.random.mtrand._rand), id(random._inst)}

    def visit(path, x):
        _visit(path, x, seen, sources, epochs)

    if loader._is_stream:  # it is its own order
        visit("dataset", loader.dataset)
    seen.add(id(loader.dataset))
    visit("generator", loader.generator)
    visit("sampler", loader._index_sampler)
    return sources, epochs


def _visit(path, x, seen, sources, epochs):
    """Visits x and its attributes if x is a generator or a sampler."""
    if id(x) in seen:
        return
    seen.add(id(x))
    if isinstance(x, _KINDS) and not isinstance(x, random.SystemRandom):
        sources[path] = x
    elif _is_sampler(x):
        if isinstance(getattr(x, "epoch", None), int):
            epochs[path] = x
        for name, value in vars(x).items():
            _visit(f"{path}.{name}", value, seen, sources, epochs)
    elif isinstance(x, (list, tuple)) and x and (isinstance(x[0], _KINDS) or _is_sampler(x[0])):
        for i, item in enumerate(x):
            _visit(f"{path}.{i}", item, seen, sources, epochs)


def _is_sampler(x):
    """Returns True for a sampler, a stream, or another iterable object that is not a container."""
    iterable = hasattr(type(x), "__iter__") and not hasattr(type(x), "__getitem__")
    return isinstance(x, (Sampler, IterableDataset)) or (iterable and hasattr(x, "__dict__"))


def states_of(sources):
    """Returns the states of generators: {path: state}."""
    return {path: _state(source) for path, source in sources.items()}


def _state(source):
    """Returns the state of a generator as plain data."""
    if isinstance(source, Generator):
        return source.get_state().numpy().tobytes().hex()
    if isinstance(source, np.random.Generator):
        return _plain(source.bit_generator.state)
    if source is random or isinstance(source, random.Random):
        version, words, spare = source.getstate()
        return [version, list(words), spare]
    return _plain(source.get_state(legacy=False))


def set_state(source, state):
    """Sets the state of a generator to a result of `_state`."""
    if isinstance(source, Generator):
        source.set_state(np.frombuffer(bytes.fromhex(state), np.uint8))
    elif isinstance(source, np.random.Generator):
        source.bit_generator.state = _arrays(state)
    elif source is random or isinstance(source, random.Random):
        version, words, spare = state
        source.setstate((version, tuple(words), spare))
    else:
        source.set_state(_arrays(state))


def _plain(state):
    """Returns a state of NumPy's generators with arrays as hexadecimal text."""

    def plain(x):
        if isinstance(x, np.ndarray):
            return {"dtype": x.dtype.str, "hex": x.tobytes().hex()}
        return x.item() if isinstance(x, np.generic) else x

    return tree_map(plain, state)


def _arrays(x):
    """Converts the result of `_plain` back to arrays."""
    if not isinstance(x, dict):
        return x
    if x.keys() == {"dtype", "hex"}:
        return np.frombuffer(bytes.fromhex(x["hex"]), x["dtype"]).copy()
    return {key: _arrays(value) for key, value in x.items()}
