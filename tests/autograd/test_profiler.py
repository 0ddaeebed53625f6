"""Profiles compared with torch.profiler: counts, nesting, links, groups, memory and errors."""

import gzip
import importlib
import json
import re
from functools import partial

import pytest

import mytorch
from mytorch import profiler
from mytorch.autograd.walk import Walk
from mytorch.kernels.registry import Kernels
from mytorch.profiler import ProfilerActivity, profile, record_function
from mytorch.profiler.memory import CATEGORIES
from mytorch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cpu_only  # it counts the CPU's memory
EVERYTHING = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_modules": True}


def trained(L, measure, steps=1):
    """A small network's steps under a profile of either library, after which its parameters and gradients are alive."""
    L.manual_seed(0)
    model = L.nn.Sequential(L.nn.Linear(8, 16), L.nn.ReLU(), L.nn.Linear(16, 4))
    optimizer = L.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = L.randn(5, 8)
    with measure as found:
        for _ in range(steps):
            with L.profiler.record_function("block"):
                loss = model(x).sum()
            loss.backward()
            optimizer.step()
    return found, model, optimizer, x


@pytest.fixture(scope="module")
def both():
    mine = trained(mytorch, profile(activities=[ProfilerActivity.CPU], **EVERYTHING))
    options = {**EVERYTHING, "with_stack": False}
    return mine, trained(torch, torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options))


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
    shapes = {str(e.input_shapes): e.count for e in found.key_averages(group_by_input_shape=True) if e.key == "exp"}
    assert shapes == {"[[4, 4]]": 3, "[[2, 4]]": 1}
    assert found.key_averages().table(sort_by="cpu_time_total", row_limit=1).splitlines()[3].strip().startswith("block")
    with pytest.raises(ValueError, match="sort_by"):
        found.table(sort_by="color")


def test_events_have_pytorchs_names_counts_parents_and_links(both):
    (mine, *_), (theirs, *_) = both
    own, others = mine.events(), theirs.events()
    for name in (
        "block",
        "SumBackward0",
        "ReluBackward0",
        "torch::autograd::AccumulateGrad",
        "Optimizer.step#SGD.step",
    ):
        assert sum(e.name == name for e in own) == sum(e.name == name for e in others), name
    assert [e.name for e in own if e.name.endswith("Backward0")] == [
        "SumBackward0", "AddmmBackward0", "ReluBackward0", "AddmmBackward0",
    ]  # fmt: skip
    names = {e.sequence_nr: e.name for e in own if e.sequence_nr >= 0 and e.scope == 0}
    for event in own:
        if event.name.endswith("Backward0"):
            own_name = event.name.removesuffix("Backward0").lower()
            assert names[event.sequence_nr] == {"addmm": "linear"}.get(own_name, own_name)
    (relu,) = (e for e in own if e.name == "relu")
    assert relu.input_shapes == next(e.input_shapes for e in others if e.name == "aten::relu") == [[5, 16]]
    assert [relu.cpu_parent.name, relu.cpu_parent.cpu_parent.name] == [
        "nn.Module: Sequential.1",
        "nn.Module: Sequential",
    ]
    assert relu.module == next(e.module for e in own if e.name == "ReluBackward0") == "Sequential.1"
    fields = [
        f
        for f in dir(others[0])
        if f.startswith(("cpu", "self_", "input_s", "stack", "scope", "seq", "time", "is_user"))
    ]
    assert [
        f for f in fields if not hasattr(own[0], f) and not f.endswith(("percent", "_str")) and "cuda" not in f
    ] == []
    averages = [f for f in dir(theirs.key_averages()[0]) if f.startswith(("cpu_t", "self_", "count", "key", "input_s"))]
    assert [
        f
        for f in averages
        if not hasattr(mine.key_averages()[0], f) and not f.endswith(("percent", "_str")) and "cuda" not in f
    ] == []


def test_self_times_and_bytes_add_up_to_the_totals(both):
    events = both[0][0].events()
    for event in events:
        within = event.cpu_children
        assert event.cpu_time_total >= sum(e.cpu_time_total for e in within)
        assert event.cpu_memory_usage == event.self_cpu_memory_usage + sum(e.cpu_memory_usage for e in within)
        assert all(event.start <= e.start and e.end <= event.end for e in within)
    roots = sum(e.cpu_time_total for e in events if e.cpu_parent is None)
    assert events.self_cpu_time_total == pytest.approx(roots)
    assert both[0][0].total_average().count == len(events)


def test_results_count_as_many_bytes_as_in_pytorch(both):
    (mine, *_), (theirs, *_) = both
    names = {"linear": "aten::linear", "relu": "aten::relu", "sum": "aten::sum"}
    for own, other in names.items():
        taken = [e.cpu_memory_usage for e in mine.events() if e.name == own]
        assert taken == [e.cpu_memory_usage for e in theirs.events() if e.name == other][: len(taken)], own


def test_the_memory_timeline_has_pytorchs_categories(both, tmp_path):
    mine = both[0][0]
    for name in ("own.json", "own.json.gz", "own.svg", "own.html"):
        mine.export_memory_timeline(tmp_path / name)
    times, sizes = json.loads((tmp_path / "own.json").read_text())
    assert json.loads(gzip.open(tmp_path / "own.json.gz", "rt").read()) == [times, sizes]
    assert len(times) == len(sizes)
    assert times == sorted(times)
    with_stack = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **EVERYTHING)
    measured = trained(torch, with_stack)[0]
    with pytest.warns(FutureWarning):
        measured.export_memory_timeline(str(tmp_path / "their.json"), device="cpu")
    their = json.loads((tmp_path / "their.json").read_text())[1]
    places = {name: i + 1 for i, name in enumerate(CATEGORIES)}
    for name in ("PARAMETER", "INPUT", "GRADIENT", "OPTIMIZER_STATE"):
        assert max(row[places[name]] for row in sizes) == max(row[places[name]] for row in their), name
    assert max(row[places["ACTIVATION"]] for row in sizes) == 4 * 5 * 16 * 2  # relu saves only its result
    assert sizes[-1][places["ACTIVATION"]] <= 4  # the loss
    svg = (tmp_path / "own.svg").read_text()
    assert svg.startswith("<svg")
    assert "optimizer state" in svg
    assert svg in (tmp_path / "own.html").read_text()
    with pytest.raises(ValueError, match=r"expected a file name ending in .* got .*own\.png"):
        mine.export_memory_timeline(tmp_path / "own.png")
    with pytest.raises(ValueError, match="profile_memory=True"):
        profile().export_memory_timeline(tmp_path / "own.json")


def test_the_trace_has_every_call_and_arrows_from_forward_to_backward(both, tmp_path):
    mine = both[0][0]
    mine.add_metadata_json("run", "[1]")
    mine.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["run"] == [1]
    calls = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(calls) == len(mine.events())
    block = next(e for e in calls if e["name"] == "block")
    relu = next(e for e in calls if e["name"] == "relu")
    assert block["cat"] == "user_annotation"
    assert block["ts"] <= relu["ts"] <= relu["ts"] + relu["dur"] <= block["ts"] + block["dur"]
    assert relu["args"]["Input Dims"] == [[5, 16]]
    arrows = {kind: [e["id"] for e in trace["traceEvents"] if e["ph"] == kind] for kind in "sf"}
    assert sorted(arrows["s"]) == sorted(arrows["f"])
    assert len(arrows["s"]) == 4
    assert any(e["name"] == "[memory]" for e in trace["traceEvents"])
    profiler.tensorboard_trace_handler(str(tmp_path / "new"), use_gzip=True)(mine)
    (file,) = (tmp_path / "new").iterdir()
    assert json.loads(gzip.open(file, "rt").read())["traceEvents"] == trace["traceEvents"]


def test_stacks_group_and_are_written_for_flame_graphs(tmp_path):
    x = mytorch.randn(3, requires_grad=True)

    def one():
        return x.exp()

    def two():
        return x.exp()

    with profile(with_stack=True) as found:
        (one() + two()).sum().backward()
    rows = [e for e in found.key_averages(group_by_stack_n=1) if e.key == "exp"]
    assert [len(e.stack) for e in rows] == [1, 1]
    assert [e.stack[0].rpartition(" ")[2] for e in rows] == ["one", "two"]
    forward = {e.sequence_nr: e.stack for e in found.events() if e.name == "exp"}
    backward = {e.sequence_nr: e.stack for e in found.events() if e.name == "ExpBackward0"}
    assert forward == backward
    lines = [line for stack in forward.values() for line in stack]
    assert not [line for line in lines if re.match(r"mytorch/(arrays|autograd|kernels|ops)/", line)]
    found.export_stacks(str(tmp_path / "stacks.txt"))
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert any(line.rpartition(" ")[0].endswith(":_one") and int(line.rpartition(" ")[2]) > 0 for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        found.export_stacks(str(tmp_path / "stacks.txt"), "colour")
    with pytest.raises(ValueError, match="with_stack=True"):
        profile().export_stacks(str(tmp_path / "stacks.txt"))


def test_profile_names_the_kernel_or_the_reason_for_its_absence():
    pytest.importorskip("numba")
    large, small = mytorch.randn(64, 64, requires_grad=True), mytorch.randn(2, 3)
    with profile() as found:
        y = large.softmax(-1, fused=True)
        y.sum().backward()
        small.softmax(-1)
        large.softmax(-1, fused=False)
        mytorch.nn.functional.softmax(small.double().long().float(), -1)
        large.exp()
    told = [(e.name, list(e.fused)) for e in found.events() if e.fused]
    assert told[0] == ("softmax", ["numba.softmax"])
    assert ("SoftmaxBackward0", ["numba.softmax"]) in told
    assert ("softmax", ["no: fused=False"]) in told
    assert any(name == "softmax" and reasons[0].startswith("no: fewer than") for name, reasons in told)
    assert "numba.softmax" in found.key_averages().table()


def test_a_schedule_records_its_cycles():
    """tests/test_packages.py compares the recorded steps with PyTorch. PyTorch's profiler crashes if it starts this often."""
    ready = []

    def names(p):
        return [e.name for e in p.events()]

    options = profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=options, on_trace_ready=lambda p: ready.append(names(p))) as p:
        for _ in range(12):
            mytorch.ones(3).exp()
            p.step()
    assert p.step_num == 12
    assert ready == [
        ["ProfilerStep#3", "exp", "ProfilerStep#4", "exp"],
        ["ProfilerStep#7", "exp", "ProfilerStep#8", "exp"],
    ]


def test_events_of_all_cycles_are_kept_where_asked():
    for keep, count in ((False, 1), (True, 3)):
        one = profiler.schedule(wait=1, warmup=0, active=1)
        with profile(schedule=one, acc_events=keep) as p:
            for _ in range(6):
                mytorch.ones(2).exp()
                p.step()
        assert sum(e.name == "exp" for e in p.events()) == count


def test_nothing_is_left_behind():
    """After a profile, also one that an exception has left, ops, backward, kernels and modules go their plain ways."""
    model, find = mytorch.nn.Linear(2, 2), Kernels.find
    hooked = mytorch.nn.module._hooked_globally[0]

    class Bad(mytorch.nn.Module):
        def forward(self, x):
            return model(x) @ mytorch.ones(7, 7)

    with profile(**EVERYTHING) as found:
        assert Kernels.find is not find
        with pytest.raises(RuntimeError):
            Bad()(mytorch.ones(1, 2))
        model(mytorch.ones(1, 2)).exp().sum().backward()
    assert Kernels.find is find
    assert mytorch.nn.module._hooked_globally[0] == hooked
    assert [e.module for e in found.events() if e.name == "exp"] == [""]
    assert all(e.end for e in found.events())
    count = len(found.events())
    model(mytorch.ones(1, 2)).sum().backward()
    assert len(found.events()) == count
    assert Walk.__subclasses__()[0].__name__ == "_MeasuredWalk"


def test_second_derivatives_and_checkpoints_are_measured():
    x = mytorch.randn(3, requires_grad=True)
    with profile(profile_memory=True) as found:
        (g,) = mytorch.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
        g.sum().backward()
        mytorch.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False).sum().backward()
    names = [e.name for e in found.events()]
    assert names.count("MulBackward0") >= 2
    assert names.count("sin") == 2  # once more in backward
    assert x.grad is not None


def test_unsupported_options_are_rejected(monkeypatch):
    monkeypatch.setattr(profiler.cuda, "is_available", lambda: True)
    with pytest.raises(NotImplementedError, match="CUDA"):
        profile(activities=[ProfilerActivity.CUDA])
    monkeypatch.setattr(profiler.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.raises(NotImplementedError, match="use_mtia"):
        profile(use_mtia=True)
    with mytorch.profiler.autograd_profiler.profile(enabled=False) as found:
        mytorch.ones(2) + 1
    assert found.key_averages() == []
    assert profiler.record_function("f")(lambda: 3)() == 3


def test_a_table_is_printed_as_pytorchs():
    with profile() as found:
        mytorch.ones(200, 200).exp()
    lines = str(found.key_averages()).splitlines()
    heads = ("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")
    assert all(head in lines[1] for head in heads)
    assert "CPU Mem" not in lines[1]  # not asked for
    assert lines[-1].startswith("Self CPU time total: ")
    with profile() as found:
        pass
    assert str(found.key_averages()) == ""


def test_flops_are_counted(torch):
    found = []
    for lib in (mytorch, torch):
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU], with_flops=True) as p:
            lib.ones(3, 4) @ lib.ones(4, 5)
            lib.nn.functional.conv2d(lib.ones(2, 3, 8, 8), lib.ones(4, 3, 3, 3))
        found.append({e.key.removeprefix("aten::"): e.flops for e in p.key_averages() if e.flops})
    mine, theirs = found
    assert mine["matmul"] == theirs["mm"] == 2 * 3 * 4 * 5
    assert mine["convolution"] == theirs["conv2d"]
    with mytorch.profiler.profile(with_flops=True) as p:
        mytorch.ones(30, 40) @ mytorch.ones(40, 50)
    assert "Total KFLOPs" in p.key_averages().table()
    assert "120.000" in p.key_averages().table()


COUNTED = {  # what PyTorch counts on a CPU, too
    "linear": (lambda L: L.nn.Linear(8, 16), (2, 5, 8)),
    "layers": (lambda L: L.nn.Sequential(L.nn.Linear(8, 16, bias=False), L.nn.ReLU(), L.nn.Linear(16, 4)), (5, 8)),
    "conv1d": (lambda L: L.nn.Conv1d(3, 8, 5), (2, 3, 20)),
    "conv2d": (
        lambda L: L.nn.Sequential(L.nn.Conv2d(3, 8, 3, padding=1), L.nn.Conv2d(8, 4, 3, stride=2)),
        (2, 3, 9, 9),
    ),
    "conv3d": (lambda L: L.nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 5, 6, 5)),
    "transposed": (lambda L: L.nn.ConvTranspose2d(3, 8, 3, stride=2), (2, 3, 9, 9)),
    "bmm": (lambda L: lambda x: x @ x.transpose(1, 2), (2, 5, 8)),
    "einsum": (lambda L: lambda x: L.einsum("bij,bkj->bik", x, x), (2, 5, 8)),
    "baddbmm": (lambda L: lambda x: L.baddbmm(x, x, x), (2, 5, 5)),
    "addmm": (lambda L: lambda x: L.addmm(x, x, x), (5, 5)),
}


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("backward", [False, True])
def test_flop_counter(name, backward, torch):
    counts = []
    for lib in (mytorch, torch):
        counter = importlib.import_module(lib.__name__ + ".utils.flop_counter").FlopCounterMode(display=False)
        run, shape = COUNTED[name]
        run, x = run(lib), lib.ones(shape, requires_grad=True)
        with counter:
            out = run(x).sum()
            if backward:
                out.backward()
        assert sum(counter.flop_counts["Global"].values()) == counter.get_total_flops()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_a_profile_has_the_ops_of_all_kinds_of_checkpoints():
    model = mytorch.nn.Sequential(mytorch.nn.Linear(4, 4), mytorch.nn.GELU(), mytorch.nn.Linear(4, 2)).double()
    contexts = partial(create_selective_checkpoint_contexts, [mytorch.nn.functional.linear])
    found = []
    for options in ({}, {"debug": True}, {"context_fn": contexts}, {"debug": True, "context_fn": contexts}):
        model.zero_grad()
        with profile() as measured:
            checkpoint(
                model, mytorch.randn(3, 4, dtype=mytorch.float64, requires_grad=True), use_reentrant=False, **options
            ).pow(2).sum().backward()
        found.append({event.key: event.count for event in measured.key_averages()})
    assert (found[0]["linear"], found[0]["gelu"]) == (4, 2)
    assert found == [found[0]] * 4
