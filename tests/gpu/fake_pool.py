"""A fake of the default memory pool of CuPy: used bytes, limit, hooks and out-of-memory errors.

Sizes are rounded up to 512 bytes as CuPy rounds them. The pool has no fragmentation, so its size is the peak use since
`free_all_blocks`. Like CuPy, it compares this size with its limit.
"""

import contextlib
import threading
import weakref
from collections import defaultdict

TOTAL = 1 << 37  # bytes of each GPU
_used, _held, _limit = defaultdict(int), defaultdict(int), defaultdict(int)  # by device
_alive = {}  # id of an array that owns memory -> (a reference that forgets it, its block)
_lock = threading.RLock()
current = lambda: 0  # the current device; set by fake_cupy  # noqa: E731


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited}).")


class MemoryHook:
    """Base class of hooks, as in CuPy: an active hook is called for every allocation of the thread."""

    name = "MemoryHook"

    def __enter__(self):
        if self.name in _hooks():
            raise KeyError(f"memory hook {self.name} already exists")
        _hooks()[self.name] = self
        return self

    def __exit__(self, *error):
        del _hooks()[self.name]

    def alloc_preprocess(self, **event):
        pass

    alloc_postprocess = malloc_preprocess = malloc_postprocess = free_preprocess = free_postprocess = alloc_preprocess


_thread = threading.local()


def _hooks():
    return _thread.__dict__.setdefault("hooks", {})


def _tell(what, **event):
    for hook in list(_hooks().values()):
        getattr(hook, what)(**event)


def allocate(a):
    """Allocates memory for a NumPy array that owns its memory, until the array is deleted."""
    if a.nbytes and id(a) not in _alive:
        block, key = _allocator(a.nbytes), id(a)
        _alive[key] = weakref.ref(a, lambda _: _alive.pop(key)), block


class Block:
    """Memory of the default pool; counted out when it dies.

    Raises:
        OutOfMemoryError: it does not fit.
    """

    def __init__(self, nbytes):
        device, size = current(), -(-nbytes // 512) * 512
        self.event = {"device_id": device, "mem_size": size}
        _tell("malloc_preprocess", size=nbytes, **self.event)
        with _lock:
            held = max(_held[device], _used[device] + size)
            fits = held == _held[device] or held <= (_limit[device] or TOTAL)
            if fits and held > _held[device]:
                _tell("alloc_preprocess", device_id=device, mem_size=held - _held[device])
                _tell("alloc_postprocess", device_id=device, mem_size=held - _held[device], mem_ptr=id(self))
            if fits:
                _used[device] += size
                _held[device] = held
        self.event.update(mem_ptr=id(self) if fits else 0, pmem_id=id(self) if fits else 0)
        _tell("malloc_postprocess", size=nbytes, **self.event)
        if not fits:
            raise OutOfMemoryError(size, _held[device], _limit[device])

    def __del__(self):
        if self.event["mem_ptr"]:
            with _lock:
                _used[self.event["device_id"]] -= self.event["mem_size"]
            _tell("free_preprocess", **self.event)
            _tell("free_postprocess", **self.event)


_allocator = Block


def get_allocator():
    return _allocator


def set_allocator(allocator=None):
    global _allocator
    _allocator = allocator or Block


@contextlib.contextmanager
def using_allocator(allocator=None):
    before = _allocator
    set_allocator(allocator)
    try:
        yield
    finally:
        set_allocator(before)


class PoolBlock:
    """Memory of another pool."""

    def __init__(self, pool, nbytes):
        self.pool, self.size = pool, -(-nbytes // 512) * 512
        pool.used += self.size
        pool.held = max(pool.held, pool.used)

    def __del__(self):
        self.pool.used -= self.size


class MemoryPool:
    """A pool that arrays can be allocated from, with `using_allocator(pool.malloc)`."""

    def __init__(self, allocator=None):
        self.used = self.held = 0

    def malloc(self, size):
        return PoolBlock(self, size)

    def used_bytes(self):
        return self.used

    def total_bytes(self):
        return self.held

    def free_bytes(self):
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self):
        return int(self.free_bytes() > 0)

    def get_limit(self):
        return 0

    def free_all_blocks(self, stream=None):
        self.held = self.used


class DefaultPool(MemoryPool):
    def malloc(self, size):
        return Block(size)

    def used_bytes(self):
        return _used[current()]

    def total_bytes(self):
        return _held[current()]

    def get_limit(self):
        return _limit[current()]

    def set_limit(self, size=None, fraction=None):
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        if size is None and not 0 <= (fraction or 0) <= 1:
            raise ValueError(f"memory limit fraction out of range: {fraction}")
        _limit[current()] = int((fraction or 0) * TOTAL) if size is None else size

    def free_all_blocks(self, stream=None):
        _held[current()] = _used[current()]


def mem_get_info():
    return TOTAL - _held[current()], TOTAL
