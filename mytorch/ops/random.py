"""Random numbers: generators, and functions that draw tensors.

On the CPU, the generator is the Mersenne Twister, as in PyTorch. All draws use its words in the same way and order as PyTorch. So
`manual_seed(0); randn(3, 4)` gives PyTorch's numbers, and with equal seeds, a model starts from PyTorch's weights and drops
the same elements. Draws with a logarithm or a cosine are equal up to rounding.

On a GPU, numbers come from Philox (`arrays/philox.py`). They depend on the seed and an offset in the GPU's memory, and on the
number of the draw. These three numbers are the state of a generator.
"""

import ctypes
import math
import operator
import os
import struct
from functools import cache, cached_property

import numpy as np

from ..arrays import (
    CPU,
    META,
    as_device,
    assign,
    capturing,
    device_count,
    device_guard,
    device_of,
    dtypes,
    hollow,
    is_raw,
    numpy_ns,
    on,
    philox,
    rejection,
)
from ..arrays.array import on_input_device
from ..arrays.devices import KINDS
from ..arrays.errors import kind, warn
from ..arrays.memory_format import axes_in_memory, in_order, preserve_format
from ..arrays.meta import meta_ns
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import get_mode
from ..kernels.registry import RANDOM
from ..kernels.threads import split
from .creation import check_layout, empty_like, finish, like, size_and_pin
from .dispatch.bind import public
from .dispatch.errors import broadcast
from .dispatch.inplace import check_writable, named_constant, record_fill, torch_name_of
from .dispatch.layouts import other_layout
from .dispatch.out import write_out
from .dispatch.refused import refuses
from .dispatch.unwrap import raw_of, to_cpu
from .elementwise import named
from .movement import as_shape

_FIRST_SEED = 67280421310721  # PyTorch's default seed of a new Generator
_TWO24 = np.float32(1 / (1 << 24))  # 2^-24: step of uniform float32 numbers
_FEW, _HALF = 256, np.uint64(32)  # number of words below which `_raw` is faster; bits of half a word
_MANY = 1 << 13  # number of words from which a compiled loop draws them
_MASK53 = (1 << 53) - 1
_LOW53 = np.uint64(_MASK53)
_TWO53 = 1 / (1 << 53)  # step of uniform float64 numbers
# A state of PyTorch: seed, words that are left, whether the generator was seeded, position, and the 624 words of the Mersenne Twister,
# 8 bytes each. The end has an unused normal number at "normal_y" and whether there is one.
_CPU_STATE = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("words", "<u8", 624),
        ("normal_x", "<f8"),
        ("normal_y", "<f8"),
    ]
    + [
        ("normal_rho", "<f8"),
        ("has_normal", "<i4"),
        ("", "<i4"),
        ("float_normal", "<f4"),
        ("has_float_normal", "?"),
        ("", "V3"),
    ]
)
_OLD_STATE = struct.Struct("<Qqd")  # seed, position, unused normal number; then the words, 4 bytes each
_GPU_STATE = struct.Struct("<Qqq")  # seed, offset, draws
_CUDA_STATE = struct.Struct("<Qq")  # a state of PyTorch on a GPU: seed and offset


class Generator:
    """A source of random numbers on one device.

    Args:
        device: "cpu" or a GPU.
    """

    def __init__(self, device="cpu"):
        self.device = as_device(device)
        self._seed = _FIRST_SEED
        self._cached_normal = None  # the second number of the last pair of scalar normals
        self._device_state = None  # seed and offset in the device's memory
        self._reset()

    def _reset(self):
        if self.device.type == "cpu":
            self.__dict__.pop("_source", None)
        self._cached_normal = self._state_in_memory = None
        self._offset = self._subsequence = 0
        if self._device_state is not None or self.device.type != "cpu":
            self.set_philox_state(self.philox_state)

    @cached_property  # NumPy imports its random numbers when they are first used
    def _source(self):
        source = np.random.RandomState(np.random.MT19937())
        source.seed(self._seed & 0xFFFFFFFF)
        return self.__dict__.setdefault("_source", source)  # threads that draw at the same time share one

    @property
    def xp(self):
        """The array namespace of the device."""
        return on(self.device)[0]

    @property
    def philox_state(self):
        """(seed, offset, number of draws): the state of a Philox generator. Reading it does not synchronize with the GPU."""
        return self._seed, self._offset, self._subsequence

    def set_philox_state(self, state):
        """Continues from a `philox_state`. Seed and offset are written to the same memory, because captured graphs read it.

        Args:
            state: a tuple (seed, offset, number of draws).
        """
        seed, offset, _ = state
        if self._device_state is None:
            self._device_state = _memory_for_state(self.device)
        if self._state_in_memory != (seed, offset):
            with on(self.device)[1]:
                # The memory is int64; seeds from 2^63 on are stored in two's complement.
                self._device_state[0] = seed - (1 << 64) if seed >> 63 else seed
                self._device_state[1] = offset
            self._state_in_memory = seed, offset
        self._seed, self._offset, self._subsequence = state

    def next_subsequence(self):
        """Returns the arguments of one Philox draw: seed and offset, int64 (2,) in device memory, and the number of the draw.

        It neither allocates nor copies, so it may be called while a CUDA graph is captured.
        """
        if self._device_state is None:  # the CPU generator has no such memory until it is needed
            self.set_philox_state(self.philox_state)
        self._subsequence += 1
        if self._subsequence >> 31:  # the number has 31 bits; continue at an offset that `advance` does not reach
            self._subsequence = 0
            self._increase_offset(1 << 31)
        capturing.note_draw(self)
        return self._device_state, self._subsequence

    def advance(self):
        """Increments the offset in device memory. In a captured graph, each replay increments it, so each draws new numbers."""
        if self._device_state is None:
            self.set_philox_state(self.philox_state)
        self._increase_offset(1)

    def start_step(self):
        """Increments the offset and resets the number of draws, so that a step draws the same numbers eagerly and in a replay."""
        self.advance()
        self._subsequence = 0

    def set_subsequence(self, subsequence):
        """Sets the number of draws, after a replay has made the draws before.

        Args:
            subsequence: number of draws since the last increment of the offset.
        """
        self._subsequence = subsequence

    def _increase_offset(self, step):
        with on(self.device)[1]:
            offset = self._device_state[1:]
            offset += step
        if capturing.is_recording():
            capturing.current.advanced.add(self)
            capturing.current.before_replay(lambda: self._offset_was_increased(step))
        else:
            self._offset_was_increased(step)

    def _offset_was_increased(self, step):
        self._offset += step
        self._state_in_memory = self._seed, self._offset

    def manual_seed(self, seed):
        """Restarts from `seed`, an int (negative seeds count from 2**64). Returns self.

        Raises:
            RuntimeError: the seed has more than 64 bits.
        """
        seed = int(seed)
        if not -(1 << 63) <= seed < (1 << 64):
            raise RuntimeError(f"Overflow when unpacking long long: seed {seed} is outside [-2**63, 2**64).")
        self._seed = seed % (1 << 64)
        self._reset()
        return self

    def seed(self):
        """Restarts from a random seed of the operating system, and returns the seed."""
        fresh = int.from_bytes(os.urandom(8), "little") & _MASK53
        self.manual_seed(fresh)
        return fresh

    def initial_seed(self):
        """Returns the seed of the last start."""
        return self._seed

    def get_state(self):
        """Returns the state as a uint8 tensor, for `set_state`. On a CPU, it has the 5,056 bytes of PyTorch, which accepts it, too."""
        if self.device.type != "cpu":
            # Read from the GPU, since a captured graph may have incremented it.
            offset = int(to_cpu(self._device_state)[1])
            raw = _GPU_STATE.pack(self._seed, offset, self._subsequence)
        else:
            raw = self._cpu_state()
        return Tensor._wrap(np.frombuffer(raw, np.uint8).copy())

    def _cpu_state(self):
        _, key, position, _, _ = self._source.get_state()
        state = np.zeros((), _CPU_STATE)
        state["seed"], state["seeded"], state["words"] = self._seed, 1, key
        state["left"], state["next"] = 625 - position, position
        # NumPy has one position for "all words used" and "just seeded", where PyTorch has 624 and 0. Seeding sets the first word to
        # the seed and the second one as here.
        first = self._seed & 0xFFFFFFFF
        if position == 624 and key[0] == first and key[1] == (1812433253 * (first ^ (first >> 30)) + 1) & 0xFFFFFFFF:
            state["next"] = 0
        if self._cached_normal is not None:
            state["normal_y"], state["has_normal"] = self._cached_normal, 1
        return state.tobytes()

    def set_state(self, state):
        """Continues from a state that `get_state` returned, here or in PyTorch.

        Args:
            state: a uint8 tensor from `get_state`. A CPU accepts the 5,056 bytes of PyTorch and the 2,520 bytes of earlier versions, a GPU
                also PyTorch's 16 bytes.

        Raises:
            TypeError: the state is not a uint8 tensor.
            RuntimeError: the state has the wrong size, or it is not a state of a generator.
        """
        values = to_cpu(raw_of(state)) if is_tensor(state) else state
        if not isinstance(values, np.ndarray):
            raise TypeError(f"expected a torch.ByteTensor, but got {kind(state)}")
        if values.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        raw = values.tobytes()
        if self.device.type != "cpu":
            self._set_gpu_state(raw)
        elif len(raw) == _CPU_STATE.itemsize:
            self._set_cpu_state(np.frombuffer(raw, _CPU_STATE)[0])
        elif len(raw) == _OLD_STATE.size + 4 * 624:
            seed, position, spare = _OLD_STATE.unpack(raw[:24])
            self._continue(seed, np.frombuffer(raw[24:], "<u4"), position, None if math.isnan(spare) else spare)
        else:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {_CPU_STATE.itemsize} but found the input RNG state size to be {len(raw)}"
            )
        return self

    def _set_gpu_state(self, raw):
        if len(raw) not in (_GPU_STATE.size, _CUDA_STATE.size):
            raise RuntimeError(
                f"set_state: expected the {_GPU_STATE.size} bytes of a GPU's Generator.get_state() or the {_CUDA_STATE.size} bytes of "
                f"PyTorch, got {len(raw)}."
            )
        seed, offset, draws = _GPU_STATE.unpack(raw) if len(raw) == _GPU_STATE.size else (*_CUDA_STATE.unpack(raw), 0)
        if offset < 0 or not 0 <= draws < 1 << 31:
            raise RuntimeError(
                f"set_state: expected an offset and a number of draws from 0 on, got {offset} and {draws}."
            )
        self._state_in_memory = None
        self.set_philox_state((seed, offset, draws))

    def _set_cpu_state(self, state):
        left, position = int(state["left"]), int(state["next"])
        if left == 1 and position == 0:  # just seeded
            position = 624
        if state["seeded"] != 1 or left + position != 625 or (state["words"] >> np.uint64(32)).any():
            raise RuntimeError("Invalid mt19937 state")
        spare = float(state["normal_y"]) if state["has_normal"] else None
        self._continue(int(state["seed"]), state["words"].astype(np.uint32), position, spare)

    def _continue(self, seed, words, position, spare):
        if not 1 <= position <= 624 or (spare is not None and not math.isfinite(spare)):
            raise RuntimeError("Invalid mt19937 state")
        self._seed, self._cached_normal = seed, spare
        self._source.set_state(("MT19937", words, position, 0, 0.0))

    def position(self):
        """Returns the state, for `set_position`, without synchronizing with a GPU."""
        return self.get_state() if self.device.type == "cpu" else None, self.philox_state

    def set_position(self, position):
        """Continues from a `position`, so that the same numbers are drawn again."""
        state, philox_state = position
        if state is not None:
            self.set_state(state)
        self.set_philox_state(philox_state)

    def clone_state(self):
        """Returns an independent generator with the same state."""
        return Generator(self.device).set_state(self.get_state())

    # -- draws, on raw arrays ---------------------------------------------------------------------------

    def words(self, n):
        """Returns n random 32-bit integers (CPU).

        Args:
            n: number of integers.
        """
        if n < _FEW:
            return self._raw(n).astype(np.uint32)
        compiled = RANDOM.allowed("cpu") if n >= _MANY and _state_is_in_memory() else None
        if compiled is None:
            return self._source.randint(0, 1 << 32, size=n, dtype=np.uint32)
        out = np.empty(n, np.uint32)
        with self._source._bit_generator.lock:
            compiled.words(_state_in_memory(self._source._bit_generator), out)
        return out

    def _raw(self, n):
        """Returns n 32-bit integers as uint64 (CPU), without the checks of `randint`, which dominate for small n."""
        return self._source._bit_generator.random_raw(n)

    def words64(self, n):
        """Returns n random 64-bit integers (CPU). The first of two 32-bit integers is the high half.

        Args:
            n: number of integers.
        """
        if n < _FEW:
            halves = self._raw(2 * n)
            return (halves[0::2] << _HALF) | halves[1::2]
        if _draws_high_half_first():
            return self._source.randint(0, 1 << 64, size=n, dtype=np.uint64)
        pairs = self.words(2 * n).astype(np.uint64)
        return (pairs[0::2] << _HALF) | pairs[1::2]

    def uniform(self, shape, numpy_dtype, low=0.0, high=1.0):
        """Returns uniform numbers in [low, high); for complex dtypes, both parts are uniform.

        Args:
            shape: shape of the result, a tuple of integers.
            numpy_dtype: NumPy dtype of the result.
            low: lower bound, included (default: 0).
            high: upper bound, excluded (default: 1).
        """
        if np.dtype(numpy_dtype).kind == "c":
            return self._pairs(self.uniform, shape, numpy_dtype, low, high)
        if self.device.type != "cpu":
            return self._floats_by_kernel("uniform", shape, numpy_dtype, low, high)
        n = math.prod(shape)
        if numpy_dtype == np.float64:
            # PyTorch: the low 53 bits of a 64-bit word, times 2^-53.
            unit = (self.words64(n) & _LOW53).astype(np.float64)
            unit *= _TWO53
            return _scaled(unit, low, high).reshape(shape)
        # PyTorch: the low 24 bits of a 32-bit word, times 2^-24.
        unit = (self.words(n) & np.uint32((1 << 24) - 1)).astype(np.float32)
        unit *= _TWO24
        unit = _scaled(unit, low, high).astype(numpy_dtype, copy=False)
        if numpy_dtype != np.float32:
            unit[unit == unit.dtype.type(high)] = low  # half precision may round up to high
        return unit.reshape(shape)

    def _pairs(self, draw, shape, numpy_dtype, *parameters):
        """Returns complex numbers whose parts are two real draws."""
        real = np.float64 if np.dtype(numpy_dtype).itemsize == 16 else np.float32
        return draw((*shape, 2), real, *parameters).view(numpy_dtype).reshape(shape)

    def _by_kernel(self, name, *arguments):
        """Draws on a GPU with a kernel or with array functions, which give the same numbers."""
        state, call = self.next_subsequence()
        xp, context = on(self.device)
        with context:
            return getattr(RANDOM.allowed(self.device.type) or philox, name)(xp, state, call, *arguments)

    def _floats_by_kernel(self, name, shape, numpy_dtype, *arguments):
        kind = np.dtype(numpy_dtype)
        if kind.kind in "fV":
            return self._by_kernel(name, shape, kind, *arguments)
        return self._by_kernel(name, shape, np.dtype(np.float32), *arguments).astype(kind)

    def library(self):
        """Returns NumPy's or CuPy's generator, for distributions that are not implemented here.

        On a GPU, each call returns a new generator, seeded by the next draw. So its numbers depend only on the seed and the number of draws.
        """
        if self.device.type == "cpu":
            return self._source
        capturing.refuse(
            "a draw from CuPy's generator (Poisson, binomial, gamma)", "each replay would give the same numbers."
        )
        _, call = self.next_subsequence()
        xp, context = on(self.device)
        with context:
            return xp.random.Generator(xp.random.Philox4x3210(philox.seed_of(self._seed, call)))

    def normal(self, shape, numpy_dtype, mean=0.0, std=1.0, serial=False):
        """Returns normal numbers. For complex dtypes, each part has half the variance.

        Args:
            shape: shape of the result, a tuple of integers.
            numpy_dtype: NumPy dtype of the result.
            mean: mean of the numbers (default: 0).
            std: standard deviation of the numbers (default: 1).
            serial: draw one by one with `serial_normal`, also large shapes (default: False).
        """
        if np.dtype(numpy_dtype).kind == "c":
            return self._pairs(self.normal, shape, numpy_dtype, mean, std / math.sqrt(2.0))
        if self.device.type != "cpu":
            return self._floats_by_kernel("normal", shape, numpy_dtype, mean, std)
        n = math.prod(shape)
        # PyTorch draws small tensors one by one, and large ones in blocks of 16.
        if n < 16 or serial:
            return (self.serial_normal(n) * std + mean).astype(numpy_dtype).reshape(shape)
        compute = np.float64 if numpy_dtype == np.float64 else np.float32
        remainder = n % 16
        unit = self.uniform((n if np.dtype(numpy_dtype).itemsize > 2 else n - remainder,), compute)
        out = np.empty(n, compute)
        _box_muller(unit[: n - remainder], out[: n - remainder], mean, std)
        if remainder:  # PyTorch draws the last 16 numbers again if n is not a multiple of 16
            _box_muller(self.uniform((16,), compute), out[n - 16 :], mean, std)
        return out.astype(numpy_dtype, copy=False).reshape(shape)

    def serial_normal(self, n):
        """Returns n normal numbers, float64, drawn in pairs. The unused half of a pair is kept for the next call (CPU).

        Args:
            n: number of numbers.
        """
        old = [] if self._cached_normal is None else [self._cached_normal]
        # Box and Muller: each pair of uniforms gives a cosine and a sine.
        pairs = (n - len(old) + 1) // 2 if n else 0
        if n < 16:
            numbers, words = old, self._raw(4 * pairs).tolist()
            for i in range(0, len(words), 4):
                u1, u2 = (((words[j] << 32 | words[j + 1]) & _MASK53) * _TWO53 for j in (i, i + 2))
                radius, theta = math.sqrt(-2.0 * math.log(1.0 - u2)), 2.0 * math.pi * u1
                numbers += [radius * math.cos(theta), radius * math.sin(theta)]
            numbers = np.array(numbers)
        else:
            u = self.uniform((pairs, 2), np.float64)
            radius, theta = np.sqrt(-2.0 * np.log(1.0 - u[:, 1])), 2.0 * math.pi * u[:, 0]
            numbers = np.concatenate([old, np.stack([radius * np.cos(theta), radius * np.sin(theta)], 1).ravel()])
        if n:
            self._cached_normal = float(numbers[n]) if len(numbers) > n else None
        return numbers[:n]

    def bernoulli(self, shape, p):
        """Returns a bool array; each element is True with probability `p`.

        Args:
            shape: shape of the result, a tuple of integers.
            p: probability of True, a number.
        """
        if self.device.type != "cpu":
            return self.uniform(shape, np.float32) < p
        limit = math.ceil(p * (1 << 53))  # equals uniform(float64) < p, without converting to floats
        return ((self.words64(math.prod(shape)) & _LOW53) < np.uint64(limit)).reshape(shape)

    def exponential(self, shape):
        """Returns exponential numbers of rate 1, float64.

        Args:
            shape: shape of the result, a tuple of integers.
        """
        return -self.xp.log(1.0 - self.uniform(shape, np.float64))  # 1 - u is exact and never 0

    def rejecting(self, name, expected, *arguments):
        """Draws with a function of `arrays/rejection.py`, which uses a varying number of words (CPU).

        Args:
            name: name of the function.
            expected: expected number of float64 uniforms.
            arguments: float64 arrays of one size.
        """
        n, count = len(arguments[0]), int(1.1 * expected) + 64
        compiled = RANDOM.allowed("cpu") if n >= 1 << 11 else None
        start, spare = self._source.get_state(), math.nan if self._cached_normal is None else self._cached_normal
        # Draw 10 % more uniforms than expected, then rewind and skip exactly the used ones. If they were too few, retry with
        # twice as many.
        while True:
            u, out = self.uniform((count,), np.float64), np.empty(n)
            if compiled:
                used, left = getattr(compiled, name)(*arguments, u, spare, out)
            else:
                values = [0.0] * n
                used, left = getattr(rejection, name)(*(a.tolist() for a in arguments), u.tolist(), spare, values)
                out[:] = values
            self._source.set_state(start)
            if used >= 0:
                self.words(2 * used)
                self._cached_normal = None if math.isnan(left) else left
                return out
            count *= 2

    def integers(self, low, high, shape):
        """Returns integers in [low, high), int64.

        Args:
            low: lower bound, included.
            high: upper bound, excluded.
            shape: shape of the result, a tuple of integers.
        """
        if self.device.type != "cpu":
            return self._by_kernel("integers", shape, low, high - low)
        n, span = math.prod(shape), high - low
        if span >= 1 << 28:  # PyTorch uses 64-bit words from this span on
            words = self.words64(n)
            numbers = words if span >= 1 << 64 else words % np.uint64(span)
        else:
            numbers = self.words(n)
            quotient = numbers // np.uint32(span)  # NumPy vectorizes the division, but not the remainder
            quotient *= np.uint32(span)
            numbers -= quotient
        numbers = numbers.astype(np.int64)
        if low:
            numbers += low
        return numbers.reshape(shape)

    def permutation(self, n):
        """Returns the numbers 0 … n-1 in random order, int64.

        Args:
            n: number of integers.
        """
        if self.device.type != "cpu":
            xp, context = on(self.device)
            # On a GPU: sort random 64-bit keys.
            keys = self._by_kernel("integers", (n,), -(1 << 63), 1 << 64)
            with context:
                return xp.argsort(keys).astype(np.int64, copy=False)
        compiled = RANDOM.allowed("cpu") if n >= 1 << 12 else None
        if compiled:
            order = np.arange(n)
            compiled.permute(order, self.words(n - 1))
            return order
        order = list(range(n))
        if n > 1:
            # Fisher-Yates shuffle in PyTorch's order: swap i with i + (word mod remaining).
            remaining = np.arange(n, 1, -1, dtype=np.uint32)
            for i, step in enumerate((self.words(n - 1) % remaining).tolist()):
                j = i + step
                order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)


def _state_in_memory(bit_generator):
    """Returns NumPy's memory of a Mersenne Twister as an array: its 624 words, and the position of the next one."""
    memory = ctypes.c_uint32 * 625
    return np.frombuffer(memory.from_address(bit_generator.ctypes.state_address), np.uint32)


@cache
def _state_is_in_memory():
    """Returns True if NumPy stores the state of a Mersenne Twister as `_state_in_memory` reads it."""
    source = np.random.RandomState(5)
    source.randint(0, 1 << 32, size=9, dtype=np.uint32)
    _, words, position, *_ = source.get_state()
    return np.array_equal(_state_in_memory(source._bit_generator), [*words, position])


@cache
def _draws_high_half_first():
    """Returns True if NumPy combines two words to 64 bits in PyTorch's order, which depends on NumPy's C compiler."""
    words, halves = (np.random.RandomState(0).randint(0, 1 << bits, 64 // bits, f"u{bits // 8}") for bits in (64, 32))
    return int(words[0]) == int(halves[0]) << 32 | int(halves[1])


def _scaled(unit, low, high):
    """Scales uniform numbers from [0, 1) to [low, high) in place.

    As in PyTorch, a number is rounded once, after the product and the sum. Numbers that are rounded up to high become low.
    """
    if low == 0.0 and high == 1.0:
        return unit
    low, high = unit.dtype.type(low), unit.dtype.type(high)
    for start in range(0, len(unit), 1 << 15):
        block = unit[start : start + (1 << 15)]
        if unit.dtype == np.float64:
            block[...] = _multiplied_and_added(block, high - low, low)
        else:
            block[...] = block.astype(np.float64) * np.float64(high - low) + np.float64(low)
        block[block == high] = low
    return unit


def _multiplied_and_added(x, factor, term):
    """Returns x * factor + term in float64, rounded once.

    Args:
        x: array of multiples of 2^-53 in [0, 1).
        factor: a number.
        term: a number.

    The errors of the product and of the sum are numbers of float64, too: Dekker (1971), "A floating-point technique for extending
    the available precision".
    """
    if term == 0:
        return x * factor
    fraction, exponent = np.frexp(factor)
    term = np.ldexp(term, -exponent)
    upper = np.floor(x * (1 << 26)) / (1 << 26)  # two parts of at most 27 bits each, of x and of the factor
    lower = x - upper
    upper_factor = np.floor(fraction * (1 << 26)) / (1 << 26)
    lower_factor = fraction - upper_factor
    product = x * fraction
    error = ((upper * upper_factor - product) + upper * lower_factor + lower * upper_factor) + lower * lower_factor
    total = product + term
    added = total - product
    error += (product - (total - added)) + (term - added)
    return np.ldexp(total + error, exponent)


def _box_muller(unit, out, mean, std):
    """Computes normal from uniform numbers in PyTorch's order: blocks of 16, cosines in the first 8."""
    dtype = unit.dtype.type
    eight = f"V{8 * unit.itemsize}"  # NumPy copies eight numbers at once if they are one element
    size = 1 << 15  # blocks that fit into the cache
    for start in range(0, len(unit), size):
        u, blocks = (x[start : start + size].view(eight).reshape(-1, 2) for x in (unit, out))
        radius, theta = (np.ascontiguousarray(u[:, half]).view(unit.dtype) for half in (0, 1))
        numpy_ns.log(np.subtract(dtype(1), radius, out=radius), out=radius)
        np.sqrt(np.multiply(radius, dtype(-2), out=radius), out=radius)
        np.multiply(theta, dtype(2 * math.pi), out=theta)
        part = numpy_ns.cos(theta)
        blocks[:, 0] = np.multiply(radius, part, out=part).view(eight)
        blocks[:, 1] = np.multiply(radius, numpy_ns.sin(theta, out=theta), out=theta).view(eight)
    if std != 1.0:
        out *= dtype(std)
    if mean != 0.0:
        out += dtype(mean)


def _memory_for_state(device):
    """Returns int64 (2,) on a device.

    Raises:
        CaptureError: a CUDA graph is being captured. Its replays would initialize the state each time.
    """
    xp, context = on(device)
    if device.type != "cpu":
        capturing.refuse("the first use of a GPU's generator", "draw from it once before.")
    with context:
        return xp.empty(2, np.int64)


class _NoNumbers:
    """Generator of the meta device: draws have a shape but no numbers."""

    device = META
    xp = meta_ns

    def position(self):
        """Returns None: there is no state."""

    def set_position(self, position):
        """Does nothing."""

    def library(self):
        """Returns itself, in the place of CuPy's generator."""
        return self

    def __getattr__(self, name):
        def draw(*args, dtype=np.int64, **_):
            shape = next((a for a in args if isinstance(a, (tuple, list))), args[:1])
            return hollow(shape, next((a for a in args if isinstance(a, (np.dtype, type))), dtype))

        return draw


default_generator = Generator()
default_generator.seed()
_gpu_generators = {}


def generator_for(target, generator=None):
    """Returns `generator`, or the default generator of a device. Each function that draws calls it first.

    Raises:
        RuntimeError: the generator is for another device.
    """
    if generator is None:
        generator = _default_generator(target)
    elif generator.device.type != target.type:
        raise RuntimeError(f"Expected a '{target.type}' device type for generator but found '{generator.device.type}'")
    elif generator.device != target:
        raise RuntimeError(f"Expected a '{target}' device for generator but found '{generator.device}'")
    interpreter = get_mode().interpreter
    if interpreter is not None:
        interpreter.draw(generator)
    return generator


def _default_generator(target):
    if target is CPU:
        return default_generator
    if target is META:
        return _NoNumbers()
    key = target.index if target.type == "cuda" else target.type
    if key not in _gpu_generators:
        _gpu_generators[key] = Generator(target).manual_seed(default_generator.initial_seed())
    return _gpu_generators[key]


def gpu_states():
    """Returns the states of the used default generators of GPUs, by the index of the GPU or the name of a registered device."""
    return {key: generator.get_state() for key, generator in _gpu_generators.items()}


def set_gpu_states(states):
    """Restores the result of `gpu_states`. GPUs that do not exist are skipped."""
    for key, state in states.items():
        if key in KINDS if isinstance(key, str) else key < device_count():
            _default_generator(as_device(key)).set_state(state)


def manual_seed(seed):
    """Seeds the default generators of all devices, and returns the CPU generator.

    Args:
        seed: an integer from -2^63 to 2^64 - 1. Negative seeds count from 2^64.

    Example:
        >>> _ = mytorch.manual_seed(0)
        >>> x = mytorch.rand(2)
        >>> _ = mytorch.manual_seed(0)
        >>> mytorch.equal(mytorch.rand(2), x)
        True
    """
    for generator in _gpu_generators.values():
        generator.manual_seed(seed)
    return default_generator.manual_seed(seed)


def seed():
    """Seeds the default generators from the operating system, and returns the seed."""
    fresh = default_generator.seed()
    manual_seed(fresh)
    return fresh


def initial_seed():
    """Returns the seed of the default generator's last start."""
    return default_generator.initial_seed()


def get_rng_state():
    """Returns the state of the CPU generator as a uint8 tensor, in PyTorch's format."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Restores a state that `get_rng_state` returned, here or in PyTorch.

    Args:
        new_state: a uint8 tensor from `get_rng_state`.

    Raises:
        TypeError: the state is not a uint8 tensor.
        RuntimeError: the state has the wrong size, or it is not a state of a generator.

    Example:
        >>> state = mytorch.get_rng_state()
        >>> x = mytorch.rand(2)
        >>> mytorch.set_rng_state(state)
        >>> mytorch.equal(mytorch.rand(2), x)
        True
    """
    default_generator.set_state(new_state)


def positions(devices=None):
    """Returns the states of the default generators of the CPU and of GPUs (all by default), without synchronizing with a GPU."""
    indices = None if devices is None else [as_device(d).index for d in devices]
    return get_rng_state(), indices, {g: g.philox_state for g in (default_generator, *_gpu_generators.values())}


def set_positions(found):
    """Restores the result of `positions`, so that the same numbers are drawn again."""
    state, indices, known = found
    set_rng_state(state)
    start = default_generator.initial_seed(), 0, 0
    for generator in (default_generator, *_gpu_generators.values()):
        if generator is default_generator or indices is None or generator.device.index in indices:
            generator.set_philox_state(known.get(generator, start))  # a generator that did not exist yet starts at 0


def _source(device, generator):
    """Returns `generator`, or the default generator of a device."""
    return generator_for(as_device(device) if device is not None or generator is None else generator.device, generator)


def _draws(name, text, example):
    """Returns the functions `name` and `name_like`, which draw with a method of the generator."""
    method = {"rand": "uniform", "randn": "normal"}[name]

    @named(name, text=text, example=example)
    def of_size(*size, generator=None, out=None, dtype=None, device=None, requires_grad=False, **named):
        """Draws {text}, in a tensor of a given size.

        Args:
            size: shape, as separate integers or as one tuple.
            dtype: dtype of the result (default: the default floating-point dtype).
            device: device of the result (default: the default device).

        Example:
            >>> _ = mytorch.manual_seed(0)
            >>> mytorch.{name}(3)
            {example}
        """
        shape, pin = size_and_pin(name, size, named)
        d = dtypes.as_dtype(dtype) if dtype is not None else dtypes.default_dtype() if out is None else out.dtype
        if d.category < dtypes.FLOAT:
            raise NotImplementedError(f'"{name}" is not implemented for {d.name}. Use randint.')
        if (
            out is not None and out.numel() == math.prod(shape) and not out.is_contiguous()
        ):  # filled in the order of memory
            finish(np.empty(shape, d.numpy), False, out, dtype=dtype)
            return getattr(out, method + "_")(generator=generator)
        return finish(getattr(_source(device, generator), method)(shape, d.numpy), requires_grad, out, pin, dtype)

    @named(name + "_like", text=text)
    def of_input(
        input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None, generator=None,
        pin_memory=False,
    ):  # fmt: skip
        """Draws {text}, with the size, dtype and device of another tensor.

        Args:
            input: the other tensor.
            dtype: dtype of the result (default: the dtype of `input`).
            device: device of the result (default: the device of `input`).

        Example:
            >>> mytorch.{name}(tensor([1.0, 2.0])).shape
            mytorch.Size([2])
        """
        options = {"requires_grad": requires_grad, "generator": generator, "pin_memory": pin_memory}
        if (other := other_layout(name + "_like", input)) is not None:
            return other(input, dtype=dtype, layout=layout, device=device, memory_format=memory_format, **options)
        check_layout(layout)
        if memory_format not in (None, preserve_format) or not input.is_contiguous():
            out = empty_like(input, memory_format=memory_format, pin_memory=pin_memory, **like(input, dtype, device))
            return getattr(out, method + "_")(generator=generator).requires_grad_(requires_grad)
        return of_size(tuple(input.shape), **options, **like(input, dtype, device))

    return public(method=False)(of_size), public(method=False)(of_input)


rand, rand_like = _draws("rand", "uniform numbers in [0, 1)", "tensor([0.49626 0.76822 0.08848])")
randn, randn_like = _draws("randn", "normal numbers with mean 0 and variance 1", "tensor([ 1.54100 -0.29343 -2.17879])")


@public(method=False)
def randint(
    low=0, high=None, size=None, *, generator=None, out=None, dtype=None, device=None, requires_grad=False, **named
):
    """Draws random integers from [low, high).

    Args:
        low: lower bound (default: 0). A single bound is `high`.
        high: upper bound, which is excluded.
        size: shape of the result.
        dtype: dtype of the result (default: int64).
        device: device of the result (default: the default device).

    Raises:
        RuntimeError: the range is empty.

    Example:
        >>> _ = mytorch.manual_seed(0)
        >>> mytorch.randint(10, (3,)).tolist()
        [4, 9, 3]
    """
    if size is None and high is not None and isinstance(high, (tuple, list)):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if "size" not in named and "shape" not in named and size is None:
        raise TypeError("randint(): missing the argument 'size'.")
    shape, pin = size_and_pin("randint", () if size is None else (size,), named)
    _check_range(low, high, dtypes.int64 if dtype is None else dtypes.as_dtype(dtype))
    numbers = _source(device, generator).integers(int(low), int(high), shape)
    return finish(numbers.astype(dtypes.as_numpy(dtype or dtypes.int64), copy=False), requires_grad, out, pin, dtype)


@public(method=False)
def randperm(
    n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Returns the integers from 0 to n - 1 in random order.

    Args:
        n: number of integers.
        dtype: dtype of the result (default: int64).
        device: device of the result (default: the default device).

    Example:
        >>> _ = mytorch.manual_seed(0)
        >>> mytorch.randperm(4).tolist()
        [0, 1, 3, 2]
    """
    check_layout(layout)
    n = operator.index(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    kind = dtypes.as_dtype(dtype or (dtypes.int64 if out is None else out.dtype))
    if kind.is_complex:
        raise NotImplementedError(f"\"randperm\" not implemented for '{dtypes.word_of(kind)}'. Cast the result.")
    largest = (2 / dtypes.finfo(kind).eps if kind.is_floating_point else np.iinfo(kind.numpy).max) + 1
    if n > largest:
        raise RuntimeError(f"randperm: expected n <= {largest:.0f} for {kind}, got {n}. Use dtype=torch.int64.")
    if out is not None:
        out.resize_(n)
    numbers = _source(device, generator).permutation(n)
    return finish(
        numbers.astype(dtypes.as_numpy(dtype or dtypes.int64), copy=False), requires_grad, out, pin_memory, dtype
    )


@public(method=False)
def randint_like(input, low, high=None, *, dtype=None, device=None, requires_grad=False, memory_format=None, **named):
    """Draws random integers from [low, high), with the size, dtype and device of another tensor.

    Args:
        input: the other tensor.
        low: lower bound. A single bound is `high`.
        high: upper bound, which is excluded.

    Example:
        >>> mytorch.randint_like(mytorch.zeros(2, 3), 0, 10).shape
        mytorch.Size([2, 3])
    """
    low, high = (0, low) if high is None else (low, high)
    if (other := other_layout("randint_like", input)) is not None:
        options = {"dtype": dtype, "device": device, "memory_format": memory_format, **named}
        return other(input, low, high, requires_grad=requires_grad, **options)
    if memory_format not in (None, preserve_format) or not input.is_contiguous():
        out = empty_like(input, memory_format=memory_format, **like(input, dtype, device))
        return out.random_(low, high).requires_grad_(requires_grad)
    return randint(low, high, tuple(input.shape), requires_grad=requires_grad, **like(input, dtype, device), **named)


def _fill(self, raw, name, number=0):
    """Writes a draw into a tensor in place. PyTorch's name of the node ends in `number`."""
    check_writable(self, name)
    assign(self._mt_data._array, raw)
    return record_fill(self, torch_name_of(name, number))


def _drawn(self, generator):
    array = self._mt_data
    return array._array, generator_for(array.device, generator)


def _in_memory_order(raw, source, draw):
    """Returns draw(shape) with the numbers in the order of raw's memory, as PyTorch fills a transposed tensor on the CPU."""
    axes = axes_in_memory(raw, None) if source.device is CPU else None
    return draw(raw.shape) if axes is None else in_order(lambda _, shape, __: draw(shape), axes)(None, raw.shape, None)


def _filled(self, generator, name, draw, number=0):
    """Fills a tensor in place with draw(source, shape, dtype)."""
    check_writable(self, name)  # a refused call draws nothing
    raw, source = _drawn(self, generator)
    numbers = _in_memory_order(raw, source, lambda shape: draw(source, shape, raw.dtype))
    with device_guard(raw):
        return _fill(self, numbers.astype(raw.dtype, copy=False), name, number)


@public(function=False, inplace=False, spellings={"from": "from_"})
def uniform_(self, from_=0.0, to=1.0, *, generator=None):
    """Fills the tensor with uniform numbers from [from, to), in place.

    Args:
        from_: lower bound (default: 0.0).
        to: upper bound (default: 1.0).
    """
    low = from_
    if not self.dtype.is_floating_point and not self.dtype.is_complex:
        raise NotImplementedError(f"\"check_uniform_bounds\" not implemented for '{self.dtype.name}'")
    if not low <= to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}")
    if to - low > dtypes.finfo(self.dtype).max:
        raise RuntimeError(
            f"uniform_ expects to-from <= the largest {self.dtype.name}, but found to={to} and from={low}"
        )
    return _filled(self, generator, "uniform_", lambda source, shape, dtype: source.uniform(shape, dtype, low, to))


@public(function=False, inplace=False)
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Fills the tensor with normal numbers, in place.

    Args:
        mean: mean of the distribution (default: 0.0).
        std: standard deviation of the distribution (default: 1.0).
    """
    serial = not self.is_contiguous()
    return _filled(
        self, generator, "normal_", lambda source, *kind: source.normal(*kind, float(mean), float(std), serial=serial)
    )


_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _limits(dtype):
    """Returns (smallest, largest int64 that a dtype can represent, limit up to which all integers are exact)."""
    if dtype is dtypes.bool_:
        return 0, 1, 1
    if dtype.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if dtype.category == dtypes.INT:
        info = dtypes.iinfo(dtype)
        return info.min, info.max, info.max
    largest = dtypes.finfo(dtype).max
    return max(-largest, -(1 << 63)), min(largest, (1 << 63) - 1), 1 << _MANTISSA[dtype.name]


def _check_range(low, high, dtype):
    """Checks a range [low, high) of integers for a dtype. Warns if the dtype rounds some of them.

    Raises:
        RuntimeError: the range is empty, or exceeds the range of the dtype.
    """
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    smallest, largest, exact = _limits(dtype)
    for word, value in (("from", low), ("to - 1", high - 1)):
        if not smallest <= value <= largest:
            raise RuntimeError(f"{word} is out of bounds for {dtype.name}")
        if dtype.is_floating_point and not -exact <= value <= exact:
            warn(
                f"{word} is out of bounds [-{exact}, {exact}]. Due to precision limitations {dtype.name} can support discrete "
                "uniform distribution only within this range. This warning will become an error in a later version."
            )


@public(function=False, inplace=False, spellings={"from": "from_"})
@refuses("c")
def random_(self, from_=None, to=..., *, generator=None):
    """Fills the tensor with integers from [from, to), in place.

    Args:
        from_: lower bound (default: 0). A single bound is `to`.
        to: upper bound, which is excluded (default: all integers that the dtype represents exactly).

    Raises:
        RuntimeError: the range is empty, or exceeds the range of the dtype.
    """
    raw, source = _drawn(self, generator)
    dtype, number = self.dtype, 2 if from_ is None else 1 if to is ... else 0
    if to is ... and from_ is not None:
        from_, to = 0, from_
    if to is None and from_ is not None:
        to = _limits(dtype)[2] + 1
        _check_range(from_, from_ + 1, dtype)
    if to is None or to is ...:
        low, high = 0, _limits(dtype)[2] + 1
        if source.device is CPU and dtype in (dtypes.int32, dtypes.int64):
            words = source.words64(raw.size) if dtype is dtypes.int64 else source.words(raw.size)
            found = (words & words.dtype.type(dtypes.iinfo(dtype).max)).astype(raw.dtype)
            return _fill(self, _in_memory_order(raw, source, lambda shape: found.reshape(shape)), "random_", number)
    else:
        low, high = int(from_), int(to)
        _check_range(low, high, dtype)
    return _filled(self, generator, "random_", lambda source, shape, _: source.integers(low, high, shape), number)


@public(function=False, inplace=False)
@on_input_device
def bernoulli_(self, p=0.5, *, generator=None):
    """Fills the tensor with 1, with probability p, and 0 otherwise, in place.

    Args:
        p: probability, a number or a tensor (default: 0.5).
    """
    if not is_tensor(p):
        _chances(p)
        return _filled(self, generator, "bernoulli_", lambda source, shape, _: source.bernoulli(shape, p), 2)
    raw, source = _drawn(self, generator)
    chance = source.xp.broadcast_to(_chances(p), raw.shape)
    drawn = _in_memory_order(raw, source, lambda shape: source.uniform(shape, _unit_dtype(chance)))
    return _fill(self, drawn < chance, "bernoulli_", 1)


def _chances(p):
    """Returns a probability, or a tensor's raw probabilities. They are checked on the CPU only, since a GPU would have to synchronize.

    Raises:
        RuntimeError: a probability is not between 0 and 1.
    """
    raw = raw_of(p) if is_tensor(p) else p
    on_cpu = not is_raw(raw) or device_of(raw) is CPU
    if on_cpu and not np.all((raw >= 0) & (raw <= 1)):
        raise RuntimeError("bernoulli: expected probabilities p with p >= 0 && p <= 1")
    return raw


def _unit_dtype(chance):
    """Returns the dtype of uniform numbers that are compared with probabilities."""
    return np.float64 if chance.dtype == np.float64 else np.float32


@on_input_device
def bernoulli_mask(like, shape, p):
    """Returns a raw dropout mask: 0 with probability p, otherwise 1 / (1 - p), with like's dtype and device.

    Args:
        like: the tensor.
        shape: shape of the mask, whose elements are drawn in row-major order. None stands for the shape of `like`, and for its order
            in memory.
        p: probability of 0.
    """
    array = like._mt_data._array
    source = generator_for(like._mt_data.device)
    if p >= 1.0:
        return source.xp.zeros(array.shape if shape is None else shape, array.dtype)
    if shape is None:
        kept = _in_memory_order(array, source, lambda shape: source.bernoulli(shape, 1.0 - p))
    else:
        kept = source.bernoulli(shape, 1.0 - p)
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    return kept.astype(array.dtype) * (dtype(1.0) / dtype(1.0 - p)).astype(array.dtype)


@on_input_device
def rrelu_slopes(input, lower, upper, generator=None):
    """Returns uniform slopes in [lower, upper) where input is not positive, otherwise 1. Only those slopes are drawn."""
    raw, source = _drawn(input, generator)
    if source.device is not CPU:
        return Tensor._wrap(source.uniform(raw.shape, raw.dtype, lower, upper))
    slopes = np.ones(raw.shape, raw.dtype)
    drawn = raw <= 0  # np.asarray would drop the class that vmap reads
    slopes[drawn] = source.uniform((int(drawn.sum()),), np.float64, lower, upper)
    return Tensor._wrap(slopes)


@public(inplace=False)
@refuses("bic")
@on_input_device
def bernoulli(input, p=None, *, generator=None, out=None):
    """Draws 1 with the given probabilities, and 0 otherwise, in the dtype of `input`.

    Args:
        input: probabilities.
        p: one probability, which replaces the probabilities in `input` (default: None).
        out: tensor of any dtype that receives the result.

    Example:
        >>> mytorch.bernoulli(tensor([0.0, 1.0, 1.0])).tolist()
        [0.0, 1.0, 1.0]
    """
    raw, source = _drawn(input, generator)
    if p is not None and not is_tensor(p):
        _chances(p)
        drawn = source.bernoulli(raw.shape, p)
    else:
        chance = _chances(input if p is None else p)
        drawn = source.xp.asarray(source.uniform(raw.shape, _unit_dtype(chance)) < chance)
    if out is not None:
        return write_out(Tensor._wrap(drawn.astype(raw_of(out).dtype)), out, "bernoulli")
    return named_constant(input, Tensor._wrap(drawn.astype(raw.dtype, order="C")), "BernoulliBackward0")


@public(inplace=False)
@on_input_device
def multinomial(input, num_samples=1, replacement=False, *, generator=None):
    """Draws indices with probabilities proportional to weights.

    Use it to sample tokens or classes from weights, which need not sum to 1.

    Args:
        input: weights, (K,) or (B, K). They need not sum to 1.
        num_samples: number of draws for each row (default: 1).
        replacement: if True, an index can be drawn again (default: False).

    Returns:
        An int64 tensor (num_samples,) or (B, num_samples).

    Raises:
        RuntimeError: negative, infinite or NaN weights, a row of zeros, or more draws without replacement than there are
            nonzero weights.

    Example:
        >>> mytorch.multinomial(tensor([[0.0, 1.0], [3.0, 0.0]]), 2, replacement=True).tolist()
        [[1, 1], [0, 0]]
    """
    raw, source = _drawn(input, generator)
    if raw.ndim not in (1, 2) or raw.dtype.kind not in "fV":
        raise RuntimeError(f"multinomial expects a 1-d or 2-d tensor of floats, got {raw.ndim}-d {raw.dtype}.")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    xp = source.xp
    weights = raw[None] if raw.ndim == 1 else raw
    compute = np.float64 if raw.dtype == np.float64 else np.float32
    if source.device is CPU:
        wide = weights.astype(compute, copy=False)
        largest = np.maximum.reduce(wide, -1, initial=0)
        # NaN is neither small nor nonnegative.
        if not (np.maximum.reduce(largest, initial=0) < math.inf and np.minimum.reduce(wide, None, initial=0) >= 0):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if np.minimum.reduce(largest, initial=math.inf) <= 0:  # a row of zeros
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if not replacement and num_samples > (weights > 0).sum(-1).min(initial=weights.shape[1]):
            raise RuntimeError(
                "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample)"
            )
    if replacement and num_samples > 1:
        points = source.uniform((len(weights), num_samples), np.float64)
        samples = _chosen(source, weights.astype(compute, copy=False), points)
    else:  # the largest weight / exponential (Efraimidis and Spirakis, 2006), in input's dtype
        dtype = raw.dtype
        races = weights / _in_memory_order(weights, source, source.exponential).astype(dtype)
        if num_samples == 1:
            samples = races.argmax(-1)[:, None]
        else:
            samples = xp.argsort(-races.astype(np.float64), axis=-1, kind="stable")[:, :num_samples]
    samples = samples.astype(np.int64)
    return Tensor._wrap(samples[0] if raw.ndim == 1 else samples)


def _chosen(source, weights, points):
    """Returns samples by inverse transform: the number of cumulative probabilities below each point, which is less than 1."""
    size = weights.size + points.size
    compiled = RANDOM.allowed("cpu") if source.device is CPU and size >= 1 << 11 else None
    if compiled is not None:
        samples = np.empty(points.shape, np.int64)
        split(compiled.choose, size, (np.ascontiguousarray(weights), points, samples))
        return samples
    # On a CPU, each sum is rounded to the dtype of the weights, as in PyTorch; `xp.cumsum` rounds once and so moves a few edges.
    xp = source.xp
    accumulate = np.add.accumulate if source.device is CPU else xp.cumsum
    edges = accumulate(weights, axis=-1)
    edges /= edges[:, -1:]
    edges[:, -1] = 1.0
    if edges.size * points.shape[1] < 1 << 16:
        samples = (points[:, :, None] > edges[:, None, :]).sum(-1)
    else:
        samples = _search_rows(xp, edges, points)
    return xp.minimum(samples, weights.shape[1] - 1)


def _search_rows(xp, edges, points):
    """Returns the number of each row's ascending edges below its points, by one binary search for all rows."""
    n, row, count = edges.shape[1], xp.arange(len(edges))[:, None], xp.zeros(points.shape, np.int64)
    step = 1 << n.bit_length()
    while step := step >> 1:
        # Add a power of two to the count if the edge at the new count is still below the point.
        candidate = count + step
        count += step * ((candidate <= n) & (edges[row, xp.minimum(candidate, n) - 1] < points))
    return count


@public(method=False)
def normal(
    mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, out=None
):
    """Draws normal numbers with given means and standard deviations.

    Args:
        mean: mean, a number or a tensor (default: 0.0).
        std: standard deviation, a number or a tensor (default: 1.0).
        size: shape of the result, if neither is a tensor.

    Raises:
        RuntimeError: a standard deviation is negative.

    Example:
        >>> mytorch.normal(tensor([1.0, 2.0]), 0.0).tolist()
        [1.0, 2.0]
    """
    check_layout(layout)
    given = next((t for t in (mean, std) if isinstance(t, Tensor)), None)
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if isinstance(std, Tensor) and std.device.type == "cpu" and not (raw_of(std) >= 0).all():
        raise RuntimeError("normal expects all elements of std >= 0.0")
    if given is not None and (size, dtype, layout, device, requires_grad) != (None, None, None, None, False):
        raise TypeError(
            "normal: expected only mean, std, generator and out with a tensor, got size, dtype, layout, device or requires_grad. "
            "The result has the shape, dtype and device of the tensor."
        )
    if given is None:
        d = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
        raw = _source(device, generator).normal(as_shape((size,)), d.numpy, mean, std)
    else:
        shape = broadcast(*(getattr(t, "shape", ()) for t in (mean, std)))
        draw = randn(shape, generator=generator, dtype=given.dtype, device=given.device)
        raw = raw_of((draw * std + mean).to(given.dtype))
    result = finish(raw, requires_grad, out)
    parameters = [isinstance(p, Tensor) for p in (mean, std)]
    name = torch_name_of("normal", parameters[0] + 2 * parameters[1])  # 1: a tensor of means, 2: of deviations, 3: both
    for parameter, is_parameter in zip((std, mean), parameters[::-1], strict=True) if out is None else ():
        result = named_constant(parameter, result, name) if is_parameter else result
    return result


# -- other distributions ------------------------------------------------------------------------------------------


@public(function=False, inplace=False)
@on_input_device
def exponential_(self, lambd=1.0, *, generator=None):
    """Fill in place with exponential numbers of the given rate.

    Raises:
        RuntimeError: a rate that is not positive.
    """
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _filled(self, generator, "exponential_", lambda source, shape, _: source.exponential(shape) / float(lambd))


@public(function=False, inplace=False)
@on_input_device
def geometric_(self, p, *, generator=None):
    """Fill in place with the number of trials up to the first success of probability p.

    Raises:
        RuntimeError: p is not between 0 and 1.
    """
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")

    def draw(source, shape, _):
        u = source.xp.maximum(source.uniform(shape, np.float64), 1e-300)
        return source.xp.ceil(source.xp.log(u) / math.log1p(-p)).clip(1, None)

    return _filled(self, generator, "geometric_", draw)


@public(function=False, inplace=False)
@on_input_device
def cauchy_(self, median=0.0, sigma=1.0, *, generator=None):
    """Fills the tensor with Cauchy numbers, in place.

    Args:
        median: median of the distribution (default: 0.0).
        sigma: half width at half maximum (default: 1.0).

    Raises:
        RuntimeError: `sigma` is not positive.
    """
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")

    def draw(source, shape, _):
        return float(median) + float(sigma) * source.xp.tan(math.pi * (source.uniform(shape, np.float64) - 0.5))

    return _filled(self, generator, "cauchy_", draw)


@public(function=False, inplace=False)
@on_input_device
def log_normal_(self, mean=1.0, std=2.0, *, generator=None):
    """Fills the tensor with the exponentials of normal numbers, in place.

    Args:
        mean: mean of the normal distribution (default: 1.0).
        std: standard deviation of the normal distribution (default: 2.0).
    """

    def draw(source, shape, dtype):
        if source.device is CPU:
            return np.exp(source.normal(shape, np.float64, float(mean), float(std), serial=True))
        return source.xp.exp(source.normal(shape, dtype, float(mean), float(std)))

    return _filled(self, generator, "log_normal_", draw)


def _rejecting(source, name, expected, *arguments):
    """Draws one number per element with a loop of `arrays/rejection.py`, see `Generator.rejecting`."""
    flat = [a.astype(np.float64).ravel() for a in arguments]
    return source.rejecting(name, float(np.sum(expected)), *flat).reshape(arguments[0].shape)


@on_input_device
def standard_gamma(shape_parameter, generator=None):
    """Returns gamma numbers with the given shape parameters and rate 1, as a raw array."""
    raw, source = _drawn(shape_parameter, generator)
    if source.device is not CPU:
        return source.library().standard_gamma(raw.astype(np.float64)).astype(raw.dtype)
    a = raw if raw.dtype == np.float64 else raw.astype(np.float32)
    one = a.dtype.type(1)
    small = a < one
    # Marsaglia and Tsang need shapes of at least 1: smaller ones are raised by 1 and corrected by uniform^(1/a).
    d = np.where(a == 0, 0, (a + small) - np.float32(1) / np.float32(3)).astype(np.float64)
    with np.errstate(all="ignore"):
        c, power = 1.0 / np.sqrt(9.0 * d), np.where(small, one / a, 0)
    out = _rejecting(source, "gamma", 2.2 * a.size + small.sum(), d, c, power)
    return np.maximum(out, np.finfo(a.dtype).tiny).astype(raw.dtype)


@public(inplace=False, method=False)
@refuses("bic")
@on_input_device
def poisson(input, generator=None):
    """Poisson numbers of the given rates."""
    raw, source = _drawn(input, generator)
    if source.device is not CPU:
        drawn = source.xp.asarray(source.library().poisson(raw.astype(np.float64)))
    elif (raw < 0).any():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    else:
        expected = np.where(raw < 10, np.nan_to_num(raw) + 1, 3)
        drawn = _rejecting(source, "poisson", expected, raw)
    return named_constant(input, Tensor._wrap(drawn.astype(raw.dtype)), "PoissonBackward0")


@public(inplace=False, method=False)
@on_input_device
def binomial(count, prob, generator=None):
    """The number of successes in `count` trials of probability `prob`, for each pair.

    Args:
        count: trials.
        prob: probability of success, of count's shape.
    """
    raw, source = _drawn(count, generator)
    if source.device is not CPU:
        drawn = source.library().binomial(raw.astype(np.int64), raw_of(prob).astype(np.float64))
        return Tensor._wrap(source.xp.asarray(drawn).astype(raw.dtype))
    n, p = np.broadcast_arrays(raw, raw_of(prob))
    compute = np.float64 if np.float64 in (n.dtype, p.dtype) or n.dtype.kind not in "fV" else np.float32
    n, p = n.astype(compute), p.astype(compute)
    # By symmetry, draw with p <= 1/2 and count the failures otherwise.
    q = np.where(p > 0.5, 1 - p, p)
    with np.errstate(all="ignore"):
        product = n * q
        sd = np.sqrt(product * (1 - q))
    expected = np.where(product < 10, np.nan_to_num(product) + 1, 4)
    drawn = _rejecting(source, "binomial", expected, n, q, product, sd)
    drawn = np.where(p > 0.5, n - drawn, drawn)
    return Tensor._wrap(np.where(np.isnan(p), np.nan, drawn).astype(raw.dtype))
