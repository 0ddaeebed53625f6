"""Functions of large arrays that the library's threads compute in parts: the same bits for any number of threads.

The cases are generated: every elementwise op and its gradient, in-place variants, casts, copies and reductions, with many dtypes, layouts
and broadcast operands. The sizes from which work is divided are reduced, so that the tests take seconds.
"""

import multiprocessing
import os
import sys
import threading
import warnings

import numpy as np
import pytest

import mytorch
from mytorch.arrays import numpy_ns
from mytorch.kernels import parts, threads
from mytorch.ops.dispatch.fast_call import fast_call
from mytorch.ops.dispatch.op import Op
from mytorch.ops.dispatch.record import RECORDS

COUNTS = (1, 2, 3)
LEAST = 600
ELEMENTWISE = sorted(name for name, op in RECORDS.items() if op.elementwise and isinstance(op, Op))
DTYPES = "float32 float64 float16 bfloat16 int64 int32 int8 uint8 bool complex64".split()
SHAPE = (3, 23, 31)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Divides work on few elements, and restores the number of threads."""
    monkeypatch.setattr(parts, "LEAST", LEAST)
    monkeypatch.setattr(parts, "BLOCK", 512)
    monkeypatch.setattr(threads, "pays", lambda *call: True)
    for name in ELEMENTWISE:
        op = RECORDS[name]
        if op.name not in parts.WHOLE:
            monkeypatch.setattr(op, "divided_from", LEAST)
        monkeypatch.setattr(op, "fast_call", fast_call(op))  # reads the size once
    count = threads.get_num_threads()
    yield
    threads.set_num_threads(count)


def numbers(rng, shape, dtype, positive=False):
    """Returns a tensor with special values: zeros of both signs, infinities, NaN, denormal and large numbers."""
    size = int(np.prod(shape))
    if dtype == "bool":
        raw = rng.random(size) < 0.5
    elif "int" in dtype:
        raw = rng.integers(1, 60, size)
    else:
        raw = rng.uniform(0.01, 0.99, size) if positive else 3 * rng.standard_normal(size)
        if size >= 80:
            raw[: 8 * (size // 80) : size // 80] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 88.7, -104.0]
        raw = raw + 1j * rng.standard_normal(size) if dtype == "complex64" else raw
    return mytorch.tensor(raw.reshape(shape)).to(getattr(mytorch, dtype))


def layouts(make, shape):
    """Yields operands of one shape in several layouts: rows, columns, with gaps, channels last, expanded."""
    yield make(shape)
    yield make(shape[::-1]).permute(2, 1, 0)
    yield make((shape[0], shape[1], 2 * shape[2]))[:, :, ::2]
    yield make((shape[0], shape[2], shape[1])).transpose(1, 2)
    yield make((shape[0], 1, shape[2])).expand(*shape)


def bits(result):
    """Returns dtype, shape, strides and bytes of results, or the text of an error."""
    if isinstance(result, Exception):
        return type(result), str(result)
    if isinstance(result, (tuple, list)):
        return [bits(r) for r in result]
    if result is None:
        return None
    raw = result._mt_data._array
    plain = np.array(raw, order="C")
    if raw.dtype.kind in "fcV":
        plain[plain != plain] = np.nan  # the sign of a NaN depends on the instruction that computed it
    return raw.dtype, raw.shape, raw.strides, plain.tobytes()


def outcomes(function, counts=COUNTS):
    """Returns the bits of the results of `function` for each number of threads."""
    found = []
    for count in counts:
        threads.set_num_threads(count)
        try:
            found.append(bits(function()))
        except Exception as error:
            found.append(bits(error))
    return found


def assert_equal(function, what):
    first, *others = outcomes(function)
    assert all(other == first for other in others), what


REQUIRED = {"n": 2, "value": 0.5, "threshold": 0.1}  # attributes without a default


def operands_of(op, rng, dtype, layout, other):
    """Returns the operands of an op and its required attributes. The second operand broadcasts if `other` is a shape."""
    positive = op.name in ("igamma", "igammac", "zeta", "ndtri", "erfinv", "xlogy", "polygamma")
    shapes = [SHAPE, other, SHAPE][: len(op.inputs)]
    made = []
    for i, shape in enumerate(shapes):
        kind = "bool" if op.name == "where" and i == 0 else dtype
        choices = list(layouts(lambda s, kind=kind: numbers(rng, s, kind, positive), SHAPE))
        made.append(choices[layout] if shape == SHAPE else numbers(rng, shape, kind, positive))
    attrs = {name: REQUIRED.get(name, 1) for name, default in op.defaults.items() if not _has_default(default)}
    return made, attrs


def _has_default(default):
    return "empty" not in repr(default)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_ops(name):
    op, rng = RECORDS[name], np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            for layout in range(5 if dtype == "float32" else 2):
                for other in (SHAPE, (31,), (23, 1), (1, 1, 1), ()) if dtype == "float32" else (SHAPE,):
                    given, attrs = operands_of(op, rng, dtype, layout, other)
                    assert_equal(lambda: op(*given, **attrs), (name, dtype, layout, other))
                    if len(op.inputs) == 1:
                        break


def test_the_work_is_divided(monkeypatch):
    """Every elementwise op computes a large result in several parts, except ops of one step and ops with a kernel."""
    divided, run = set(), threads.run

    def watched(function, calls):
        divided.add(current) if len(calls) > 1 else None
        return run(function, calls)

    monkeypatch.setattr(parts.threads, "run", watched)
    threads.set_num_threads(2)
    rng = np.random.default_rng(0)
    for current in ELEMENTWISE:
        op = RECORDS[current]
        for dtype in ("float32", "int64"):
            given, attrs = operands_of(op, rng, dtype, 0, SHAPE)
            outcomes(lambda: op(*given, **attrs), [2])  # noqa: B023
    missing = set(ELEMENTWISE) - divided
    by_kernel = {
        n for n in ELEMENTWISE if RECORDS[n].kernels.of or getattr(np, str(RECORDS[n].xp_name), None) in parts._BY_ROWS
    }
    assert missing <= by_kernel | parts.WHOLE, missing


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if RECORDS[n].is_differentiable])
def test_gradients(name):
    op, rng = RECORDS[name], np.random.default_rng(1)
    for dtype in ("float32", "bfloat16"):
        for layout, other in ((0, SHAPE), (1, SHAPE), (0, (23, 1)), (4, (31,))):
            given, attrs = operands_of(op, rng, dtype, layout, other)
            upstream = numbers(rng, SHAPE, dtype)

            def run(given=given, attrs=attrs, upstream=upstream):
                leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
                out = op(*leaves, **attrs)
                return mytorch.autograd.grad(out, [x for x in leaves if x.requires_grad], upstream, allow_unused=True)

            assert_equal(run, (name, dtype, layout, other))


IN_PLACE = "add_ sub_ mul_ div_ exp_ sqrt_ neg_ abs_ floor_ clamp_ pow_ copy_ relu_ erf_ sin_".split()


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int32"])
def test_in_place(name, dtype):
    rng = np.random.default_rng(2)
    count = {"clamp_": 0}.get(name, 1 if name in ("add_", "sub_", "mul_", "div_", "pow_", "copy_") else 0)
    for layout in range(4):
        for shape in (SHAPE, (31,), ()):
            base, other = numbers(rng, SHAPE, dtype), numbers(rng, shape, dtype)

            def run(base=base, other=other, layout=layout):
                x = list(layouts(lambda s: mytorch.zeros(s, dtype=base.dtype), SHAPE))[layout]
                x.copy_(base)
                arguments = (-1, 1) if name == "clamp_" else (other,) * count
                return getattr(x, name)(*arguments)

            assert_equal(run, (name, dtype, layout, shape))


def test_in_place_with_shared_memory():
    """Operands that share memory with the result are read before they are overwritten."""
    for shift in (-1, 1, 7, 64):
        for function in ("add_", "mul_", "copy_"):

            def run(shift=shift, function=function):
                memory = mytorch.arange(4096.0)
                to, source = memory[64:-64], memory[64 + shift : -64 + shift or None]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    getattr(to, function)(source[: len(to)])
                return memory

            expected = np.arange(4096, dtype=np.float32)
            to, source = expected[64:-64], expected[64 + shift : 4096 - 64 + shift].copy()
            to[...] = {"add_": to + source, "mul_": to * source, "copy_": source}[function]
            for count in COUNTS:
                threads.set_num_threads(count)
                try:
                    result = run()
                except RuntimeError:  # refused, as in PyTorch
                    continue
                np.testing.assert_array_equal(result.numpy(), expected)
    x = mytorch.arange(2000.0).expand(3, 2000)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)


@pytest.mark.parametrize("name", "max min amax amin any all argmax argmin sum prod mean std logsumexp cumsum".split())
def test_reductions(name):
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float16", "int64", "bool"):
        for x in layouts(lambda s, dtype=dtype: numbers(rng, s, dtype), SHAPE):
            for dim in (0, 1, -1):
                for options in ({}, {"keepdim": True}) if name != "cumsum" else ({},):
                    assert_equal(lambda: getattr(mytorch, name)(x, dim, **options), (name, dtype, dim))  # noqa: B023


@pytest.mark.parametrize("name", ["max", "min", "any", "all", "argmax", "argmin"])
def test_reductions_of_the_namespace(name):
    """Over one or several axes, also negative ones, against NumPy."""
    x = np.random.default_rng(4).integers(0, 3, (3, 64, 50)).astype(np.float32)
    for axis in (None, 0, 1, 2, -1, (0, 2), (0, -2), (0, 1, 2)):
        if type(axis) is tuple and name.startswith("arg"):
            continue
        for keepdims in (False, True):
            for count in COUNTS:
                threads.set_num_threads(count)
                result = getattr(numpy_ns, name)(x, axis=axis, keepdims=keepdims)
                np.testing.assert_array_equal(result, getattr(np, name)(x, axis=axis, keepdims=keepdims))


def test_casts_and_copies():
    rng = np.random.default_rng(5)
    for source in DTYPES:
        for x in layouts(lambda s, source=source: numbers(rng, s, source), SHAPE):
            for target in DTYPES:
                if source == "complex64" and target not in ("bool", "complex64"):
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert_equal(lambda: x.to(getattr(mytorch, target), copy=True), (source, target))  # noqa: B023
            assert_equal(x.clone, source)
            assert_equal(x.contiguous, source)


def test_settings_of_errors_reach_the_threads():
    threads.set_num_threads(3)
    x = mytorch.ones(5000)
    x[-1] = 0.0  # in the last part
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        1 / x
    assert np.isinf((1 / x).numpy()[-1])


def test_an_error_in_a_part_is_raised():
    threads.set_num_threads(3)
    divisor = mytorch.ones(5000, dtype=mytorch.int64)
    divisor[-1] = 0
    for _ in range(3):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            mytorch.ones_like(divisor) // divisor
    with pytest.raises(RuntimeError, match="size of tensor"):
        mytorch.ones(5000) + mytorch.ones(4999)


def test_calls_from_threads_and_inside_of_calls():
    threads.set_num_threads(3)
    expected = (mytorch.arange(5000.0) + 1).exp2().numpy()
    found = []

    def work():
        for _ in range(20):
            found.append((mytorch.arange(5000.0) + 1).exp2().numpy())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    threads.run(lambda i: work(), [(i,) for i in range(6)])  # the calls inside run on one thread
    assert len(found) == 200
    assert all(np.array_equal(x, expected) for x in found)


def _in_child(queue):
    queue.put((mytorch.ones(5000) + 1).sum().item())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork():
    threads.set_num_threads(2)
    mytorch.ones(5000) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork with threads
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_child, args=(queue,))
        child.start()
        assert queue.get(timeout=60) == 10000
        child.join(60)


def test_functions_of_programs_get_whole_arrays():
    seen = []

    @mytorch.ops.dispatch.op.op(elementwise=True)
    def twice_here(xp, input):
        seen.append(input.size)
        return input * 2

    RECORDS.pop("twice_here")
    assert twice_here.divided_from == sys.maxsize
    assert seen == []


def test_work_is_divided_again_after_a_call_that_ctrl_c_ended(monkeypatch):
    def inside(i):
        barrier.wait(60)
        return threading.get_ident()

    work = threads._Job.work

    def interrupted(job):
        if threading.current_thread() is threading.main_thread():  # which gets the signal
            raise KeyboardInterrupt
        work(job)

    threads.set_num_threads(2)
    with monkeypatch.context() as changed:
        changed.setattr(threads._Job, "work", interrupted)
        with pytest.raises(KeyboardInterrupt):
            threads.run(lambda i: i, [(0,), (1,)])
    barrier = threading.Barrier(2)  # one thread alone would wait for itself
    assert len(set(threads.run(inside, [(0,), (1,)]))) == 2
