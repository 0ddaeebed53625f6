import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.accelerate import AcceleratedLoader, AcceleratedOptimizer, AcceleratedScheduler, Accelerator
from mytorch.optim.lr_scheduler import CosineLRScheduler, StepLR
from mytorch.utils.data import DataLoader, TensorDataset


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 1))


def data(n=32):
    x = mytorch.randn(n, 4)
    return TensorDataset(x, x.sum(dim=1, keepdim=True))


def loss_of(model, batch):
    x, y = batch
    return nn.functional.mse_loss(model(x), y) if hasattr(nn.functional, "mse_loss") else (model(x) - y).square().mean()


def test_it_is_reached_by_every_promised_path():
    from mytorch import Accelerator as a
    from mytorch.accelerate import Accelerator as b

    assert a is b is mytorch.Accelerator


def test_who_and_where():
    accelerator = Accelerator(cpu=True)
    assert accelerator.device == mytorch.device("cpu")
    assert accelerator.num_processes == 1
    assert accelerator.rank == accelerator.process_index == accelerator.local_process_index == 0
    assert accelerator.is_main_process
    assert accelerator.is_main_process() is True
    assert accelerator.is_local_main_process()
    assert accelerator.is_last_process
    assert not accelerator.use_distributed
    assert accelerator.mixed_precision == "no"


def test_more_processes_than_were_started_are_refused():
    with pytest.raises(RuntimeError, match=r"num_gpus=2\), got 1"):
        Accelerator(num_gpus=2)


@pytest.mark.parametrize(
    ("given", "name"), [(False, "no"), (None, "no"), ("no", "no"), (True, "fp16"), ("fp16", "fp16"), ("bf16", "bf16")]
)
def test_mixed_precision_spellings(given, name):
    accelerator = Accelerator(mixed_precision=given)
    assert accelerator.mixed_precision == name
    assert (accelerator.scaler is not None) == (name == "fp16")


def test_the_launchers_precision_wins(monkeypatch):
    monkeypatch.setenv("MYTORCHRUN_MIXED_PRECISION", "bf16")
    assert Accelerator().mixed_precision == "bf16"
    monkeypatch.setenv("MYTORCHRUN_MIXED_PRECISION", "no")
    assert Accelerator(mixed_precision="fp16").mixed_precision == "fp16"


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="got 'fp8'"):
        Accelerator(mixed_precision="fp8")
    with pytest.raises(ValueError, match="gradient_accumulation_steps of at least 1, got 0"):
        Accelerator(gradient_accumulation_steps=0)


def test_prepare_keeps_the_order_and_returns_other_objects_unchanged():
    accelerator = Accelerator()
    model = net()
    optimizer = mytorch.optim.AdamW(model.parameters())
    loader = DataLoader(data())
    scheduler = CosineLRScheduler(optimizer, 1e-3, 1e-4, 10, 2)
    a, b, c, d, e = accelerator.prepare(loader, "text", optimizer, scheduler, model)
    assert type(a) is AcceleratedLoader
    assert b == "text"
    assert type(c) is AcceleratedOptimizer
    assert type(d) is AcceleratedScheduler
    assert e is model
    assert accelerator.prepare(model) is model
    assert accelerator.prepare(c) is c
    assert len(accelerator._models) == len(accelerator._optimizers) == 1
    assert c.param_groups is optimizer.param_groups
    assert len(a) == len(loader)
    assert d.get_last_lr() == scheduler.get_last_lr()


def test_wrapped_attributes_can_be_set():
    accelerator = Accelerator()
    optimizer = mytorch.optim.SGD(net().parameters(), lr=0.1)
    scheduler = CosineLRScheduler(optimizer, 1e-3, 1e-4, 10, 2)
    _, wrapped = accelerator.prepare(optimizer, scheduler)
    wrapped.step_count = 7
    assert scheduler.step_count == 7


def train(model, accelerator, batches, steps=None, lr=0.05):
    optimizer = mytorch.optim.SGD(model.parameters(), lr=lr)
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        accelerator.backward(loss_of(model, batch))
        accelerator.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().numpy().copy() for p in model.parameters()]


def test_accumulated_steps_are_those_of_whole_batches():
    x, y = data(32).tensors
    mytorch.manual_seed(1)
    whole = train(net().eval(), Accelerator(), [(x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)])
    mytorch.manual_seed(1)
    parts = [(x[i : i + 2], y[i : i + 2]) for i in range(0, 32, 2)]
    accumulated = train(net().eval(), Accelerator(gradient_accumulation_steps=4), parts)
    for a, b in zip(whole, accumulated, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_optimizer_and_schedule_wait_for_the_whole_step():
    accelerator = Accelerator(gradient_accumulation_steps=3)
    model = net()
    inner = mytorch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, scheduler = accelerator.prepare(model, inner, StepLR(inner, 1, 0.5))
    before = model[0].weight.detach().clone()
    batch = data(4).tensors
    for i in range(1, 7):
        accelerator.backward(loss_of(model, batch))
        norm = accelerator.clip_grad_norm_(1.0)
        optimizer.step()
        scheduler.step()
        done = i % 3 == 0
        assert accelerator.sync_grad is accelerator.sync_gradients is done
        assert (model[0].weight != before).any() == (i >= 3)
        assert inner.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 ** (i // 3))
        optimizer.zero_grad()
        assert (model[0].weight.grad is None) == done
        assert (norm is None) == (i < 3)
    assert norm is accelerator.grad_norm


def test_accumulation_steps_can_be_set_later():
    accelerator = Accelerator()
    accelerator.gradient_accumulation_steps = 2
    p = nn.Parameter(mytorch.ones(()))
    accelerator.backward(p * 4)
    assert p.grad.item() == 2
    assert not accelerator.sync_grad


def test_accumulate_and_no_sync_are_there_for_other_programs():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(net(), mytorch.optim.SGD([nn.Parameter(mytorch.ones(1))], lr=0.1))
    for i in range(2):
        with accelerator.accumulate(model), accelerator.no_sync(model):
            accelerator.backward(loss_of(model, data(2).tensors))
            optimizer.step()
        assert accelerator.sync_gradients is (i == 1)


def test_clip_takes_the_norm_alone_or_parameters_and_norm():
    accelerator = Accelerator()
    model = accelerator.prepare(net())
    accelerator.backward(loss_of(model, data(4).tensors) * 1e3)
    expected = math.sqrt(sum(float((p.grad * p.grad).sum()) for p in model.parameters()))
    assert accelerator.clip_grad_norm_(1.0).item() == pytest.approx(expected, rel=1e-5)
    assert accelerator.clip_grad_norm_(model.parameters(), 0.5).item() == pytest.approx(1.0, rel=1e-4)
    assert accelerator.clip_grad_norm_(list(model.parameters()), max_norm=9.0).item() == pytest.approx(0.5, rel=1e-4)
    accelerator.clip_grad_value_(model.parameters(), 1e-3)
    assert max(float(p.grad.abs().max()) for p in model.parameters()) == pytest.approx(1e-3)


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_tied_weights_share_master_copy(precision):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(mytorch.zeros(3))
            self.embedding = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(self.embedding(x) + self.bias)

    mytorch.manual_seed(0)
    accelerator = Accelerator(mixed_precision=precision, scaler_options={"init_scale": 256.0})
    model = Tied()
    model, optimizer = accelerator.prepare(model, mytorch.optim.SGD(model.parameters(), lr=0.5))
    assert [name for name, _ in model.named_parameters()] == ["bias", "embedding.weight", "head.bias"]
    before = [p.detach().clone() for p in model.parameters()]
    accelerator.backward(nn.functional.cross_entropy(model(mytorch.tensor([0, 1, 4])), mytorch.tensor([1, 2, 3])))
    grads = [mytorch.tensor(np.asarray(p.grad)) for p in model.parameters()]
    accelerator.clip_grad_norm_(1e6)
    optimizer.step()
    for p, old, g in zip(model.parameters(), before, grads, strict=True):
        scale = 256.0 if precision == "fp16" else 1.0
        np.testing.assert_allclose(np.asarray(p.data), np.asarray((old - 0.5 * g / scale).data), rtol=1e-5, atol=1e-6)
    assert model.head.weight is model.embedding.weight


# -- mixed precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_trains_float32_parameters_from_half_products(precision):
    mytorch.manual_seed(3)
    model = net().eval()
    seen = []
    model[0].register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    accelerator = Accelerator(mixed_precision=precision, scaler_options={"init_scale": 256.0})
    batch = data(16).tensors
    before = loss_of(model, batch).item()
    seen.clear()
    parameters = train(model, accelerator, [batch] * 30)
    assert seen[0] is (mytorch.float16 if precision == "fp16" else mytorch.bfloat16)
    assert model(batch[0]).dtype is mytorch.float32
    assert all(p.dtype == np.float32 for p in parameters)
    assert loss_of(model, batch).item() < before * 0.7


def test_outputs_in_containers_become_float32():
    class Many(nn.Module):
        def forward(self, x):
            y = x @ x
            return {"a": y, "b": [y, (y, 1)]}

    out = Accelerator(mixed_precision="bf16").prepare(Many())(mytorch.ones(2, 2))
    assert out["a"].dtype is out["b"][0].dtype is out["b"][1][0].dtype is mytorch.float32
    assert out["b"][1][1] == 1


def test_unwrapped_the_model_has_its_own_forward_again():
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(nn.Linear(2, 2))
    assert accelerator.prepare(model) is model
    assert accelerator.unwrap_model(model, keep_fp32_wrapper=False) is model
    assert "forward" not in model.__dict__


def test_overflow_skips_optimizer_and_schedule_and_shrinks_the_scale():
    accelerator = Accelerator(mixed_precision="fp16", scaler_options={"init_scale": 1024.0})
    model = net()
    inner = mytorch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, scheduler = accelerator.prepare(model, inner, StepLR(inner, 1, 0.5))
    before = model[0].weight.detach().clone()
    for factor, skipped, scale in ((math.inf, True, 512.0), (1.0, False, 512.0)):
        accelerator.backward(loss_of(model, data(4).tensors) * factor)
        accelerator.clip_grad_norm_(1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        assert accelerator.optimizer_step_was_skipped is optimizer.step_was_skipped is skipped
        assert (model[0].weight == before).all() == skipped
        assert inner.param_groups[0]["lr"] == (0.1 if skipped else 0.05)
        assert accelerator.scaler.get_scale() == scale


def test_the_norm_is_that_of_unscaled_gradients():
    mytorch.manual_seed(2)
    model = net().eval()
    batch = data(8).tensors
    plain = Accelerator()
    plain.prepare(model, mytorch.optim.SGD(model.parameters(), lr=0.1))
    plain.backward(loss_of(model, batch))
    expected = plain.clip_grad_norm_(1e9).item()
    model.zero_grad()
    scaled = Accelerator(mixed_precision="fp16", scaler_options={"init_scale": 4096.0})
    scaled.prepare(model, mytorch.optim.SGD(model.parameters(), lr=0.1))
    scaled.backward(loss_of(model, batch))
    assert scaled.clip_grad_norm_(1e9).item() == pytest.approx(expected, rel=0.02)


def test_two_optimizers_share_one_scale():
    accelerator = Accelerator(mixed_precision="fp16", scaler_options={"init_scale": 64.0, "growth_interval": 1})
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    a, b, first, second = accelerator.prepare(
        a, b, mytorch.optim.SGD(a.parameters(), lr=0.1), mytorch.optim.SGD(b.parameters(), lr=0.1)
    )
    for step in range(1, 4):
        accelerator.backward((a(mytorch.ones(3, 2)) + b(mytorch.ones(3, 2))).mean())
        accelerator.clip_grad_norm_(1.0)
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
        assert accelerator.scaler.get_scale() == 64.0 * 2**step


# -- gathering and telling -------------------------------------------------------------------------


def test_a_gathered_scalar_is_a_float_and_a_batch_itself():
    accelerator = Accelerator()
    value = accelerator.gather_for_metrics(mytorch.tensor(2.5, requires_grad=True))
    assert type(value) is float
    assert value == 2.5
    assert accelerator.gather_for_metrics(3) == 3.0
    x = mytorch.randn(4, 2)
    a, b = accelerator.gather_for_metrics((x, x.argmax(dim=-1)))
    assert (a == x).all()
    assert b.shape == (4,)
    assert (accelerator.reduce(x, "mean", scale=2.0) == x * 2).all()
    assert accelerator.gather({"x": x})["x"].shape == x.shape


def test_batches_are_moved_through_containers():
    loader = Accelerator().prepare(DataLoader([{"x": mytorch.ones(2), "name": "a"} for _ in range(4)], batch_size=2))
    batch = next(iter(loader))
    assert batch["x"].shape == (2, 2)
    assert batch["name"] == ["a", "a"]
    assert loader.batch_size == 2


def test_small_helpers_do_their_part():
    accelerator = Accelerator()
    with accelerator.main_process_first(), accelerator.split_between_processes([1, 2]) as share:
        assert share == [1, 2]
    assert accelerator.on_main_process(lambda: 5)() == 5
    accelerator.set_trigger()
    assert accelerator.check_trigger()
    assert not accelerator.check_trigger()
    x = mytorch.ones(2)
    assert accelerator.pad_across_processes(x) is x
    assert accelerator.free_memory(1, 2) == [None, None]
    accelerator.wait_for_everyone()


def test_first_batches_can_be_skipped():
    loader = DataLoader(mytorch.arange(10), batch_size=2)
    accelerator = Accelerator()
    rest = accelerator.skip_first_batches(accelerator.prepare(loader), 3)
    assert [b.tolist() for b in rest] == [[6, 7], [8, 9]]
    assert len(rest) == 2


def test_print_and_env_write_to_the_standard_output(capsys):
    accelerator = Accelerator(gradient_accumulation_steps=2)
    accelerator.print("a", 1, sep="-", end="!\n")
    accelerator.env()
    out = capsys.readouterr().out
    assert out.startswith("a-1!\n")
    assert "Launch Configuration:" in out
    assert "gradient accumulation steps: 2" in out


@pytest.mark.cpu_only
def test_without_wandb_metrics_go_to_a_file_with_a_warning(tmp_path, monkeypatch, capsys):
    import json
    from importlib import util

    real = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "wandb" else real(name))
    accelerator = Accelerator(log_wandb=True, project_dir=tmp_path)
    with pytest.raises(RuntimeError, match="Call init_tracker"):
        accelerator.log({"loss": 1})
    accelerator.init_tracker("project", "run", {"lr": 0.1, "device": accelerator.device})
    assert "wandb is not installed" in capsys.readouterr().out
    accelerator.log({"loss": mytorch.tensor(1.5), "bad": math.nan}, step=3)
    accelerator.end_training()
    first, second = (json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines())
    assert first["config"] == {"lr": 0.1, "device": "cpu"}
    assert second["step"] == 3
    assert second["loss"] == 1.5
    assert second["bad"] == "nan"


def test_wandb_is_used_where_it_is_installed(tmp_path, monkeypatch):
    import sys
    from importlib import util
    from types import ModuleType

    calls = []

    class Run:
        def log(self, values, step):
            calls.append((values, step))

        def finish(self):
            calls.append("finished")

    fake = ModuleType("wandb")
    fake.init = lambda **kwargs: calls.append(kwargs) or Run()
    real = util.find_spec
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(util, "find_spec", lambda name: True if name == "wandb" else real(name))
    accelerator = Accelerator(log_wandb=True, project_dir=tmp_path)
    accelerator.init_trackers("project", {"a": 1}, {"wandb": {"name": "run"}})
    accelerator.log({"loss": mytorch.tensor(0.5)}, step=1)
    assert accelerator.get_tracker("wandb").name == "wandb"
    accelerator.end_training()
    assert calls[0]["project"] == "project"
    assert calls[0]["name"] == "run"
    assert calls[1:] == [({"loss": 0.5}, 1), "finished"]


def test_without_log_wandb_log_does_nothing():
    accelerator = Accelerator()
    accelerator.init_tracker("project")
    accelerator.log({"loss": 1}, step=1)
    assert accelerator.get_tracker() is None


def test_the_last_batch_of_a_loader_completes_a_step_in_an_accumulate_block():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model = nn.Linear(2, 1)
    optimizer = mytorch.optim.SGD(model.parameters(), lr=0.1)
    data = mytorch.utils.data.TensorDataset(mytorch.randn(6, 2))
    loader = mytorch.utils.data.DataLoader(data, batch_size=1)
    model, optimizer, loader, other = accelerator.prepare(model, optimizer, loader, mytorch.utils.data.DataLoader(data))
    complete = []
    for _ in range(2):
        for (x,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).sum())
                optimizer.step()
                optimizer.zero_grad()
            complete.append(bool(accelerator.sync_gradients))
            list(other)  # an evaluation in between changes nothing
    assert complete == [False, False, False, True, False, True] * 2


def test_the_table_grows_columns_and_goes_on_where_it_was(tmp_path):
    from mytorch.accelerate.tracking import Table

    table = Table(tmp_path / "run.csv")
    table.add({"step": 0, "time": 1.0, "loss": 0.5})
    table.add({"step": 1, "time": 2.0, "loss": 0.25, "parts": {"a": 1}})
    again = Table(tmp_path / "run.csv")
    again.add({"step": 2, "time": 3.0, "parts": [1, 2]})
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert lines == ["step,time,loss,parts", "0,1.0,0.5,", '1,2.0,0.25,"{""a"": 1}"', '2,3.0,,"[1, 2]"']


def test_repr_of_the_state_contains_rank_and_device():
    assert repr(Accelerator(cpu=True).state) == (
        "Distributed environment: NO\nNum processes: 1\nProcess index: 0\nLocal process index: 0\nDevice: cpu\n"
    )


def test_log_with_names_trackers(tmp_path):
    class Own:
        name = "own"

        def __init__(self):
            self.seen = []

        def log(self, values, step=None):
            self.seen.append((values, step))

        def finish(self):
            self.seen.append("end")

    own = Own()
    accelerator = Accelerator(cpu=True, log_with=["jsonl", own], project_dir=tmp_path)
    accelerator.init_trackers("project", {"lr": 0.1})
    accelerator.log({"loss": 2.0}, step=3)
    assert accelerator.get_tracker("own") is own
    accelerator.end_training()
    assert own.seen == [({"loss": 2.0}, 3), "end"]
    assert '"loss": 2.0' in (tmp_path / "project.jsonl").read_text()
    with pytest.raises(ValueError, match="expected log_with to be wandb, tensorboard, jsonl or a tracker, got 'paper'"):
        Accelerator(log_with="paper")


def test_utilities_have_hugging_faces_names(caplog):
    import logging

    from mytorch.accelerate import notebook_launcher
    from mytorch.accelerate.logging import get_logger
    from mytorch.accelerate.utils import gather_object, set_seed, tqdm

    draws = []
    for _ in range(2):
        set_seed(3)
        draws.append((random.random(), np.random.rand(), mytorch.rand(1).item()))
    assert draws[0] == draws[1]
    assert gather_object(["a"]) == ["a"]
    assert list(tqdm(range(3))) == [0, 1, 2]
    with caplog.at_level(logging.INFO):
        get_logger("day").info("said %d", 1, main_process_only=True)
    assert [(r.message, r.filename) for r in caplog.records] == [("said 1", "test_accelerator.py")]
    seen = []
    notebook_launcher(lambda x: seen.append((x, Accelerator(cpu=True).mixed_precision)), (1,), mixed_precision="bf16")
    assert seen == [(1, "bf16")]
    with pytest.raises(RuntimeError, match="mytorchrun launch --nproc_per_node 2"):
        notebook_launcher(print, num_processes=2)


def test_import_accelerate_finds_mytorch_under_install_as_torch(tmp_path):
    program = (
        "import mytorch; mytorch.install_as_torch(); import accelerate; from accelerate.utils import set_seed; "
        "from accelerate.logging import get_logger; assert accelerate.Accelerator is mytorch.Accelerator"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(mytorch.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path, env=environment)
