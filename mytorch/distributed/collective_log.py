"""CollectiveLog: where the ranks of a group note which collective they have entered, so that a hang has a name.

One file, mapped by all ranks of a machine; each has a ring of slots in it and writes to its own alone. Noting
costs about a microsecond. It tells two things that no message could: which ranks have not come to a collective
that timed out, and that a rank has called another collective, or one of another shape, in the same place.
"""

import mmap
import os
import tempfile
import time

import numpy as np

RING = 16
_SLOT = np.dtype([("number", "<u8"), ("time", "<f8"), ("what", "S112")])


class CollectiveLog:
    """The notes of `size` ranks.

    Args:
        path: the file, of `CollectiveLog.create`; None keeps the notes of this rank alone.
        rank: whose notes are written here.
        ranks: the ranks' names in messages.
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
        """Make the file for a group of so many ranks; returns its path. Whoever has opened it may remove it."""
        handle, path = tempfile.mkstemp(prefix="mytorch-collectives-")
        os.write(handle, bytes(size * RING * _SLOT.itemsize))
        os.close(handle)
        return path

    def enter(self, what):
        """Note that this rank enters its next collective.

        Returns:
            Its name for messages.

        Raises:
            ValueError: another rank has called something else in its place.
        """
        self.count += 1
        text = what.encode()[:112]
        slot = self.slots[self.rank, self.count % RING]
        slot["number"] = 0  # while it is being written, it is nobody's
        slot["what"], slot["time"] = text, time.time()
        slot["number"] = self.count
        if self.shared:
            column = self.slots[:, self.count % RING]
            other = (column["number"] == self.count) & (column["what"] != text)
            if other.any():
                r = int(np.flatnonzero(other)[0])
                raise ValueError(
                    f"The ranks disagree in collective {self.count}: rank {self.ranks[self.rank]} calls {what}, "
                    f"rank {self.ranks[r]} {column['what'][r].decode(errors='replace')}. "
                    "All ranks must call the same collectives, with the same shapes and dtypes, in the same order."
                )
        return f"{what} (collective {self.count} of rank {self.ranks[self.rank]})"

    def missing(self):
        """A sentence about the ranks that are behind this one."""
        if not self.shared:
            return "Which rank is missing is not known here."
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
                    f"rank {self.ranks[r]} is missing: its last one was {slot['what'].decode(errors='replace')} "
                    f"(collective {slot['number']}), {now - slot['time']:.1f} s ago"
                )
        return "; ".join(sentences) + "." if sentences else "All ranks have entered it."
