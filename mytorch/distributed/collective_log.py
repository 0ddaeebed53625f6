"""CollectiveLog: a record of the collective that each rank has entered, used to explain a hang.

All ranks of a machine map one file. Each rank writes to its own ring of slots, which takes about a microsecond. The
log shows which ranks are missing from a collective that timed out. It also shows that two ranks have called different
collectives, or the same collective with different shapes.
"""

import mmap
import os
import tempfile
import time

import numpy as np

RING = 16
_SLOT = np.dtype([("number", "<u8"), ("time", "<f8"), ("what", "S112")])


class CollectiveLog:
    """The log of `size` ranks.

    Args:
        path: file from `CollectiveLog.create`; None keeps a log of this rank only.
        rank: rank of this process.
        ranks: names of the ranks for messages.
    """

    def __init__(self, path, rank, ranks):
        self.rank = rank
        self.ranks = list(ranks)
        self.count = 0
        shape = (len(self.ranks), RING)
        if path is None:
            self.slots = np.zeros(shape, _SLOT)
            self.shared = False
        else:
            with open(path, "r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
            self.slots = np.frombuffer(memory, _SLOT).reshape(shape)
            self.shared = True

    @staticmethod
    def create(size):
        """Create the file for `size` ranks and return its path. The file may be removed once all ranks have mapped it."""
        handle, path = tempfile.mkstemp(prefix="mytorch-collectives-")
        os.write(handle, bytes(size * RING * _SLOT.itemsize))
        os.close(handle)
        return path

    def enter(self, what):
        """Note that this rank enters its next collective.

        Returns:
            Description of the collective for messages.

        Raises:
            ValueError: if another rank has called a different collective.
        """
        self.count += 1
        text = what.encode()[:112]
        slot = self.slots[self.rank, self.count % RING]
        slot["number"] = 0  # marks the slot as incomplete
        slot["what"], slot["time"] = text, time.time()
        slot["number"] = self.count
        if self.shared:
            column = self.slots[:, self.count % RING]
            if ((column["number"] == self.count) & (column["what"] != text)).any():
                # Empty if the other rank is ahead by a whole ring and has overwritten its slot between the two comparisons.
                problem = self.disagreement()
                if problem:
                    raise ValueError(problem)
        return f"{what} (collective {self.count} of rank {self.ranks[self.rank]})"

    def disagreement(self):
        """Return a sentence about a rank that has called a different collective than this one, or an empty string."""
        mine, every = self.slots[self.rank], self.slots
        other = (every["number"] == mine["number"]) & (every["what"] != mine["what"]) & (mine["number"] > 0)
        other &= every["number"] == mine["number"]  # not overwritten between the two comparisons
        if not other.any():
            return ""
        r, i = np.argwhere(other)[0]
        here, there = (slot["what"].decode(errors="replace") for slot in (mine[i], every[r, i]))
        return (
            f"The ranks disagree in collective {mine['number'][i]}: rank {self.ranks[self.rank]} calls {here}, rank "
            f"{self.ranks[r]} {there}. All ranks must call the same collectives, with the same shapes and dtypes, in the same order."
        )

    def missing(self, limit=None, early=False):
        """Return a sentence about the ranks that are behind this one, at most `limit` of them.

        With `early`, before a timeout, the sentence is empty unless the ranks disagree.
        """
        if early or self.disagreement():
            return self.disagreement()
        if not self.shared:
            return "The missing rank is unknown."
        now = time.time()
        last = self.slots["number"].argmax(axis=1)
        sentences = []
        for r in range(len(self.ranks)):
            slot = self.slots[r, last[r]]
            if slot["number"] >= self.count:
                continue
            if slot["number"] == 0:
                sentences.append(f"rank {self.ranks[r]} has not entered any collective")
            else:
                sentences.append(
                    f"rank {self.ranks[r]} is missing: it last called {slot['what'].decode(errors='replace')} "
                    f"(collective {slot['number']}), {now - slot['time']:.1f} s ago"
                )
        return "; ".join(sentences[:limit]) + "." if sentences else "All ranks have entered the collective."
