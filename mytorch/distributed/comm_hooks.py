"""Communication hooks: `model.register_comm_hook(None, fp16_compress_hook)` halves the bytes sent."""

from collections.abc import Callable
from typing import Any

from ..arrays import dtypes
from .collectives import ReduceOp, all_reduce
from .process_group import Group, member_of
from .reducer import GradBucket
from .work import Future

Hook = Callable[[Any, GradBucket], Future]


def allreduce_hook(process_group: Group, bucket: GradBucket) -> Future:
    """Averages the buckets, as without a hook."""
    return _reduced(process_group, bucket.buffer(), ReduceOp.AVG)


def _reduced(process_group, buffer, op):
    work = all_reduce(buffer, op, member_of(process_group), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(process_group, bucket, dtype):
    buffer = bucket.buffer()
    small = buffer.to(dtype) / member_of(process_group).size()  # divide first, to keep the sum in range
    return _reduced(process_group, small, ReduceOp.SUM).then(lambda future: future.value().to(buffer.dtype))


def fp16_compress_hook(process_group: Group, bucket: GradBucket) -> Future:
    """Sends gradients in float16 and converts the averages back to their dtype."""
    return _compressed(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: Group, bucket: GradBucket) -> Future:
    """Sends gradients in bfloat16 and converts the averages back to their dtype."""
    return _compressed(process_group, bucket, dtypes.bfloat16)


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that calls `hook` with the bucket in float16."""
    return _wrapper(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that calls `hook` with the bucket in bfloat16."""
    return _wrapper(hook, dtypes.bfloat16)


class _HalfBucket:
    """A bucket converted to half precision."""

    def __init__(self, bucket, dtype):
        self._bucket = bucket
        self._half = bucket.buffer().to(dtype)

    def buffer(self):
        return self._half

    def set_buffer(self, buffer):
        self._half = buffer

    def __getattr__(self, name):
        return getattr(self._bucket, name)


def _wrapper(hook, dtype):
    def wrapped(state, bucket):
        full = bucket.buffer().dtype
        future = hook(state, _HalfBucket(bucket, dtype))

        def widen(done):
            value = done.value()
            return (value[0] if isinstance(value, (list, tuple)) else value).to(full)

        return future.then(widen)

    return wrapped
