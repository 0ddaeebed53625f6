"""The table of times: which ops are counted, ranges, shapes, and what is refused."""

import json

import pytest

import mytorch
from mytorch import profiler
from mytorch.profiler import ProfilerActivity, profile, record_function


def test_ops_and_ranges_are_counted():
    x = mytorch.randn(4, 4, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found, record_function("block"):
        for _ in range(3):
            y = (x @ x).exp() + x
        y[:2].exp()
        y.sum().backward()
    z = x.exp()
    assert z.requires_grad
    assert x.grad.shape == (4, 4)
    calls = {e.key: e.count for e in found.key_averages()}
    assert (calls["matmul"], calls["exp"], calls["add"], calls["sum"], calls["block"]) == (3, 4, 3, 1, 1)
    shapes = {e.input_shapes: e.count for e in found.key_averages(group_by_input_shape=True) if e.key == "exp"}
    assert shapes == {((4, 4),): 3, ((2, 4),): 1}
    lines = found.key_averages().table(sort_by="cpu_time_total", row_limit=2).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("block")
    with pytest.raises(ValueError, match="sort_by"):
        found.table(sort_by="color")


def test_what_is_not_measured_is_refused():
    with pytest.raises(NotImplementedError, match="CUDA"):
        profile(activities=[ProfilerActivity.CUDA])
    with pytest.raises(NotImplementedError, match="with_stack"):
        profile(with_stack=True)
    with mytorch.autograd.profiler.profile(enabled=False) as found:
        mytorch.ones(2) + 1
    assert found.key_averages() == []
    assert profiler.record_function("f")(lambda: 3)() == 3


def test_chrome_trace_has_every_call(tmp_path):
    with mytorch.profiler.profile() as p, mytorch.profiler.record_function("whole"):
        mytorch.ones(2).exp().exp()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events].count("exp") == 2
    whole = next(e for e in events if e["name"] == "whole")
    assert all(whole["ts"] <= e["ts"] and e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] + 1 for e in events)
