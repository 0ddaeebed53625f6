"""How far an iteration of a loader has come, and coming there again.

An order can't be saved, but it can be drawn again: what it may be drawn from is put into the state that it had when the
iteration began, as many indices as had been drawn are drawn, and those handed out are left out. It may be drawn from
the global generators (ours, NumPy's, Python's) and from any that the loader or its samplers hold. The global ones then
go back to where they were, since they are the program's.

A stream has no indices; whoever reads it reads past the batches that were handed out.
"""

import random
from itertools import islice

import numpy as np

from ....base.pytree import tree_map
from ....ops.random import Generator, default_generator
from ..dataset import IterableDataset
from ..sampler import Sampler

GLOBAL_GENERATORS = {"mytorch": default_generator, "numpy": np.random, "python": random}
_KINDS = (Generator, np.random.Generator, np.random.RandomState, random.Random)


class Progress:
    """One iteration: where its order comes from, and which of its tasks are done.

    Args:
        loader: the DataLoader.
        base_seed: of the workers, if they have one; else the iteration begins by drawing one.
    """

    def __init__(self, loader, base_seed=None):
        self.sources, self.epochs = sources_of(loader)
        self.is_stream = loader._is_stream
        self.base_seed = base_seed
        self.start = self._now()
        self.handed = [0] * max(loader.num_workers, 1)  # batches of each worker
        self.finish()

    def sent(self, number):
        """Task `number` is under way."""
        self.drawn = max(self.drawn, number + 1)
        self.open.add(number)

    def done(self, number, worker=0):
        """The batch of task `number` was handed out."""
        self.open.discard(number)
        self.handed[worker] += 1
        self.turn = (worker + 1) % len(self.handed)

    def finish(self):
        """The iteration is over; the next one begins where the generators are now."""
        self.begun = False
        self.drawn = 0  # indices drawn from the sampler
        self.open = set()  # the numbers of those that were not handed out
        self.handed = [0] * len(self.handed)
        self.turn = 0  # the worker that a stream's next batch comes from

    def state_dict(self):
        """All of it as plain data: dicts, lists, numbers and strings."""
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
        """Refuse a state of a loader made in another way.

        Raises:
            ValueError: it is no such state, only one has a generator, or a stream's workers differ.
        """
        if not isinstance(saved, dict) or saved.keys() != self.state_dict().keys():
            raise ValueError("DataLoader.load_state_dict: expected what DataLoader.state_dict returned.")
        had = "generator" in saved["start"]["generators"]
        if had != ("generator" in self.sources):
            raise ValueError(
                "DataLoader.load_state_dict: the state is of a loader "
                f"{'with' if had else 'without'} a generator, this one is not."
            )
        if self.is_stream and saved["begun"] and len(saved["handed"]) != len(self.handed):
            raise ValueError(
                "DataLoader.load_state_dict: a stream is resumed with as many workers as it had, "
                f"{len(saved['handed'])}, not {len(self.handed)}."
            )

    def set_epochs(self, saved):
        """Give samplers that count epochs the epoch of the state."""
        for path, epoch in saved["start"]["epochs"].items():
            sampler = self.epochs.get(path)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            elif sampler is not None:
                sampler.epoch = epoch

    def draw_again(self, saved, draw_order, look_ahead):
        """Begin where `saved` was: an iterator over the (number, index) of the tasks that are left.

        Args:
            draw_order: begins to draw; it returns an iterator over indices.
            look_ahead: takes the first indices of it; it returns a list of them.

        Raises:
            ValueError: the order is shorter than it was.
        """
        then = saved["start"]["generators"]
        before = states_of(GLOBAL_GENERATORS)
        if not saved["begun"]:  # those that the program has put back itself go on from there
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
    """By path: the generators that an order may be drawn from, and the samplers with an epoch."""
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
    """Enter x, and what lies in it, if it is a generator or a sampler."""
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
    """A sampler or a stream, or another iterable object that is no container."""
    iterable = hasattr(type(x), "__iter__") and not hasattr(type(x), "__getitem__")
    return isinstance(x, (Sampler, IterableDataset)) or (iterable and hasattr(x, "__dict__"))


def states_of(sources):
    """Returns the states of generators: {path: state}."""
    return {path: _state(source) for path, source in sources.items()}


def _state(source):
    """The state of a generator as plain data."""
    if isinstance(source, Generator):
        return source.get_state().numpy().tobytes().hex()
    if isinstance(source, np.random.Generator):
        return _plain(source.bit_generator.state)
    if source is random or isinstance(source, random.Random):
        version, words, spare = source.getstate()
        return [version, list(words), spare]
    return _plain(source.get_state(legacy=False))


def set_state(source, state):
    """Put a generator into a state that `_state` gave."""
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
    """A state of NumPy's with hexadecimal text for arrays."""

    def plain(x):
        if isinstance(x, np.ndarray):
            return {"dtype": x.dtype.str, "hex": x.tobytes().hex()}
        return x.item() if isinstance(x, np.generic) else x

    return tree_map(plain, state)


def _arrays(x):
    """What `_plain` made of arrays, as arrays again."""
    if not isinstance(x, dict):
        return x
    if x.keys() == {"dtype", "hex"}:
        return np.frombuffer(bytes.fromhex(x["hex"]), x["dtype"]).copy()
    return {key: _arrays(value) for key, value in x.items()}
