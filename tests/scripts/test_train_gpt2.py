"""train_gpt2.py and inference_gpt2.py, run as a user runs them."""

import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import accelerate
from mytorch.accelerate.training_state import is_complete
from mytorch.models import GPT2, GPT2Config, Llama, from_pretrained, lora, save_gguf
from mytorch.models.tokenizer import CharTokenizer, load_tokenizer, save_tokenizer
from mytorch.utils.data.tokens import write_tokens

ROOT = Path(__file__).parent.parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


train_gpt2 = script("train_gpt2")
inference_gpt2 = script("inference_gpt2")


@pytest.fixture
def data(tmp_path):
    text = "the cat sat on the mat, and the dog sat on the log. " * 60
    tokenizer = CharTokenizer.from_text(text)
    tokens = np.array(tokenizer.encode(text))
    folder = tmp_path / "data"
    write_tokens(folder / "train.bin", tokens[:2500], tokenizer.vocab_size)
    write_tokens(folder / "val.bin", tokens[2500:], tokenizer.vocab_size)
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    return folder


def flags(data, **changes):
    options = {
        "project_name": "p",
        "working_directory": data.parent / "work",
        "path_to_data": data,
        "model_size": "demo",
        "context_length": 16,
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
        "train_iterations": 20,
        "warmup_steps": 2,
        "eval_interval": 10,
        "eval_iterations": 2,
        "log_iter": 5,
        "max_lr": 3e-3,
        **changes,
    }
    out = []
    for name, value in options.items():
        if value is True:
            out.append(f"--{name}")
        elif value not in (None, False):
            out += [f"--{name}", str(value)]
    return out


def train(data, **changes):
    return train_gpt2.main(flags(data, **changes))


def weights(folder):
    return {name: t.numpy() for name, t in mytorch.load(folder / "model.safetensors").items()}


def assert_same_weights(a, b):
    first, second = weights(a), weights(b)
    assert set(first) == set(second)
    for name, w in first.items():
        np.testing.assert_array_equal(w, second[name], err_msg=name)


def test_a_run_learns_and_writes_its_files(data, capsys):
    assert train(data, train_iterations=60) == 0
    out = capsys.readouterr().out
    work = data.parent / "work" / "p"
    assert {p.name for p in work.iterdir()} >= {"final_checkpoint", "log.jsonl", "model_meta.json", "tokenizer.json"}
    assert (work / "loss.png").is_file() == (importlib.util.find_spec("matplotlib") is not None)
    assert re.search(r"^Total Trainable Parameters: [\d,]+$", out, re.M)
    line = r"^Iter: +5 \| Loss: +[\d.]+ \| LR: +2\.\d\de-03 \| GradNorm: +[\d.]+ \| Toks/Sec: +\d+$"
    assert re.search(line, out, re.M)  # without MFU, since the peak of a CPU is unknown
    assert train(data, project_name="mfu", train_iterations=5, peak_tflops=0.5) == 0
    assert re.search(r" \| MFU: +[\d.]+%$", capsys.readouterr().out, re.M)
    for sentence in ("Evaluating!", "Validation Loss:", "Completed Training!!!"):
        assert sentence in out
    records = [json.loads(text) for text in (work / "log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in records if "loss" in r]
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 0.5
    assert [r["iteration"] for r in records if "validation_loss" in r] == [10, 20, 30, 40, 50, 60]
    assert not [p for p in work.rglob("*") if p.suffix == ".pkl"]
    meta = json.loads((work / "model_meta.json").read_text())
    assert GPT2Config.from_dict(meta["model"]).context_length == 16


def test_resuming_is_exact_to_the_last_bit(data):
    options = {"dropout_p": 0.1, "use_bias": True, "num_workers": 0}
    assert train(data, **options) == 0
    assert train(data, **options, project_name="q", checkpoint_iterations=12) == 0
    work = data.parent / "work"
    assert is_complete(work / "q" / "checkpoint_12")
    for i, name in enumerate(("checkpoint_12", "checkpoint_12/", str(work / "q" / "checkpoint_12") + "/")):
        assert train(data, **options, project_name="q", resume_from_checkpoint=name) == 0
        assert_same_weights(work / "p" / "final_checkpoint", work / "q" / "final_checkpoint")
        if i == 0:
            (a, b) = ([json.loads(x) for x in (work / n / "log.jsonl").read_text().splitlines()] for n in "pq")
            for record in a + b:
                record.pop("tokens_per_second", None)
                record.pop("mfu", None)
            assert a == b


def test_mixed_precision_resumes_exactly_and_keeps_its_scale(data):
    options = {"mixed_precision": "bf16", "train_iterations": 6, "eval_interval": 6}
    assert train(data, **options) == 0
    assert train(data, **options, project_name="q", checkpoint_iterations=3) == 0
    assert train(data, **options, project_name="q", resume_from_checkpoint="checkpoint_3") == 0
    work = data.parent / "work"
    assert_same_weights(work / "p" / "final_checkpoint", work / "q" / "final_checkpoint")
    assert train(data, train_iterations=2, eval_interval=2, mixed_precision="fp16", project_name="r") == 0
    assert (work / "r" / "final_checkpoint" / "mp_config.bin").is_file()


def test_workers_accumulation_and_checkpointing_change_no_weight(data):
    short = {"train_iterations": 5, "eval_interval": 5}
    assert train(data, **short) == 0
    work = data.parent / "work"
    assert train(data, **short, project_name="workers", num_workers=2) == 0
    assert_same_weights(work / "p" / "final_checkpoint", work / "workers" / "final_checkpoint")
    assert train(data, **short, project_name="recompute", enable_gradient_checkpointing=True) == 0
    first, second = weights(work / "p" / "final_checkpoint"), weights(work / "recompute" / "final_checkpoint")
    for name, w in first.items():
        np.testing.assert_allclose(w, second[name], rtol=1e-3, atol=1e-5)


def test_only_the_newest_checkpoint_is_kept_unless_asked(data):
    short = {"train_iterations": 6, "eval_interval": 6, "checkpoint_iterations": 2}
    train(data, **short)
    train(data, **short, project_name="all", always_save_checkpoint=True)
    work = data.parent / "work"
    assert sorted(p.name for p in (work / "p").glob("checkpoint_*")) == ["checkpoint_4"]
    assert sorted(p.name for p in (work / "all").glob("checkpoint_*")) == ["checkpoint_2", "checkpoint_4"]


def test_each_run_name_has_a_folder(data):
    train(data, train_iterations=2, run_name="first")
    assert (data.parent / "work" / "p" / "first" / "final_checkpoint").is_dir()
    assert inference_gpt2.find_project(data.parent / "work" / "p")[0].name == "first"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 0), (signal.SIGTERM, 2)])
def test_an_interrupted_run_leaves_a_checkpoint_that_continues_exactly(data, number, workers):
    work = data.parent / "work"
    options = {"train_iterations": 90, "eval_interval": 90, "log_iter": 1, "num_workers": workers, "device": "cpu"}
    command = [sys.executable, "-u", str(ROOT / "train_gpt2.py"), *flags(data, **options)]
    # The number of threads of this process: products are rounded differently for another one.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MYTORCH_NUM_THREADS": str(mytorch.get_num_threads())}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        for line in process.stdout:
            if line.startswith("Iter:     10 "):
                process.send_signal(number)
                break
        rest = process.stdout.read()
        assert process.wait(60) == 128 + number, rest
    assert "--resume_from_checkpoint latest" in rest
    (left,) = work.joinpath("p").glob("checkpoint_*")
    assert is_complete(left)
    assert 10 <= int(left.name.removeprefix("checkpoint_")) < 90
    assert train(data, **options, resume_from_checkpoint="latest") == 0
    assert train(data, **options, project_name="whole") == 0
    assert_same_weights(work / "p" / "final_checkpoint", work / "whole" / "final_checkpoint")


def interrupt_at(monkeypatch, backward):
    """Sends SIGINT during the backward pass with a number, counted from 1."""
    original, count = accelerate.Accelerator.backward, [0]

    def counting(self, loss):
        count[0] += 1
        if count[0] == backward:
            signal.raise_signal(signal.SIGINT)
        original(self, loss)

    monkeypatch.setattr(accelerate.Accelerator, "backward", counting)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4])
def test_an_interruption_drops_the_unfinished_step(data, monkeypatch, capsys, micro_batch):
    """The resumed run continues from the start of the step, bit for bit, with dropout and in every micro-batch."""
    work = data.parent / "work"
    options = {
        "train_iterations": 6,
        "eval_interval": 50,
        "gradient_accumulation_steps": 4,
        "dropout_p": 0.2,
        "log_iter": 1,
    }
    assert train(data, **options, project_name="whole") == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2 * 4 + micro_batch)
        assert train(data, **options) == 128 + signal.SIGINT
    done = 3 if micro_batch == 4 else 2  # after the last micro-batch, the step is complete
    assert f"Interrupted after {done} iterations." in capsys.readouterr().out
    assert [path.name for path in (work / "p").iterdir() if is_complete(path)] == [f"checkpoint_{done}"]
    assert train(data, **options, resume_from_checkpoint="latest") == 0
    assert_same_weights(work / "p" / "final_checkpoint", work / "whole" / "final_checkpoint")


def test_before_the_first_step_there_is_nothing_to_save(data, monkeypatch, capsys):
    interrupt_at(monkeypatch, 1)
    assert train(data) == 128 + signal.SIGINT
    assert "there is nothing to save" in capsys.readouterr().out
    assert not list((data.parent / "work" / "p").glob("*checkpoint*"))


def test_a_run_of_days_on_a_cpu_needs_yes(data, monkeypatch, capsys):
    """The estimate counts the remaining iterations, and comes before the model is made."""
    options = {"model_size": "base", "device": "cpu", "batch_size": 256, "gradient_accumulation_steps": 16}
    monkeypatch.setattr(train_gpt2, "fuse_", None)  # no model is made
    with pytest.raises(SystemExit) as stop:
        train(data, **options, train_iterations=150000)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert re.search(r"expected a run of at most a day on a CPU, got about [\d,]+ days. Use --yes", err)
    assert "hours; --model_size demo" in out
    with pytest.raises(TypeError, match="NoneType"):
        train(data, **options, train_iterations=150000, yes=True)
    monkeypatch.undo()
    capsys.readouterr()
    monkeypatch.setattr(accelerate.runs, "CPU_SPEED", 3000.0)
    with pytest.raises(SystemExit):
        train(data, train_iterations=6, checkpoint_iterations=3)
    assert train(data, train_iterations=6, checkpoint_iterations=3, yes=True, always_save_checkpoint=True) == 0
    hours = re.findall(r"this takes about ([\d,]+) hours", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        train(data, train_iterations=9, resume_from_checkpoint="checkpoint_3")
    again = re.findall(r"this takes about ([\d,]+) hours", capsys.readouterr().out)
    assert again == hours[:1] == hours[1:]  # six iterations are left in both


def test_data_is_checked_before_the_model_is_made(data, monkeypatch):
    monkeypatch.setattr(train_gpt2, "make_model", None)
    with pytest.raises(ValueError, match="expected more than 10000 tokens for a context of 10000"):
        train(data, context_length=10000)
    (data / "val.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"val\.bin"):
        train(data)


# -- a run belongs to itself -------------------------------------------------------------------------


def test_resuming_with_other_batches_and_accumulation_sees_each_sample_once(data, capsys):
    """The position in the data is counted in samples, and the accumulation starts again."""
    options = {
        "train_iterations": 5,
        "eval_interval": 100,
        "checkpoint_iterations": 3,
        "gradient_accumulation_steps": 1,
    }
    assert train(data, **options, batch_size=4) == 0
    work = data.parent / "work" / "p"
    seen = []
    read = train_gpt2.RandomBlocks.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            train_gpt2.RandomBlocks, "__getitem__",
            lambda self, i: seen.append((self.first + i * self.batch_size, self.batch_size, len(self))) or read(self, i),
        )  # fmt: skip
        again = {**options, "gradient_accumulation_steps": 2, "batch_size": 6, "resume_from_checkpoint": "checkpoint_3"}
        assert train(data, **again) == 0
    assert [(first, size) for first, size, n in seen if n != 2] == [(12, 3), (15, 3), (18, 3), (21, 3)]
    out = capsys.readouterr().out
    assert "Resuming with --gradient_accumulation_steps 2; the checkpoint had 1." in out
    assert "Resuming with --batch_size 6; the checkpoint had 4." in out
    state = mytorch.load(work / "final_checkpoint" / "custom_checkpoint_0.bin")
    assert state == {"iteration": 5, "samples": 24}
    before = mytorch.load(work / "checkpoint_3" / "model.safetensors")["lm_head.weight"]
    assert (before != mytorch.load(work / "final_checkpoint" / "model.safetensors")["lm_head.weight"]).any()  # it steps


def test_samples_do_not_depend_on_batches(data):
    path = data / "train.bin"
    whole = train_gpt2.RandomBlocks(path, 16, 24, 1, seed=3)[0][0]
    for size in (1, 3, 8):
        parts = train_gpt2.RandomBlocks(path, 16, size, 24, seed=3)
        np.testing.assert_array_equal(np.concatenate([parts[i][0] for i in range(24 // size)]), whole)
    np.testing.assert_array_equal(train_gpt2.RandomBlocks(path, 16, 5, 1, seed=3, first=7)[0][0], whole[7:12])


def test_a_finished_project_is_not_overwritten(data):
    short = {"train_iterations": 2, "eval_interval": 100, "log_iter": 1}
    assert train(data, **short) == 0
    work = data.parent / "work" / "p"
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    with pytest.raises(
        FileExistsError, match=r"--resume_from_checkpoint latest .* --overwrite .* another --project_name"
    ):
        train(data, **short, use_bias=True)
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert train(data, **short, use_bias=True, overwrite=True) == 0
    assert "transformer.ln_f.bias" in weights(work / "final_checkpoint")


def test_a_checkpoint_holds_its_model_tokenizer_and_options(data, capsys):
    short = {"train_iterations": 2, "eval_interval": 100, "max_lr": 2e-3, "weight_decay": 0.05}
    assert train(data, **short, run_name="other") == 0
    checkpoint = data.parent / "work" / "p" / "other" / "final_checkpoint"
    meta = json.loads((checkpoint / "model_meta.json").read_text())
    assert GPT2Config.from_dict(meta["model"]).embed_dim == 128
    assert (meta["training"]["max_lr"], meta["training"]["weight_decay"]) == (2e-3, 0.05)
    assert (checkpoint / "tokenizer.json").read_bytes() == (data / "tokenizer.json").read_bytes()
    for name in ("model_meta.json", "tokenizer.json"):
        (checkpoint.parent / name).unlink()  # the checkpoint is enough for sampling, and for resuming
    assert sample(capsys, checkpoint, "--prompt", "the", "--max_tokens_gen", 2).startswith("the")
    command = ["--resume_from_checkpoint", str(checkpoint), "--working_directory", str(data.parent / "work")]
    assert train_gpt2.main([*command, "--train_iterations", "3", "--project_name", "goes_on"]) == 0
    meta = json.loads((data.parent / "work" / "goes_on" / "final_checkpoint" / "model_meta.json").read_text())
    assert (meta["training"]["max_lr"], meta["training"]["train_iterations"]) == (2e-3, 3)
    with pytest.raises(SystemExit):
        train_gpt2.main([*command, "--model_size", "small"])
    assert "--model_size: expected the checkpoint's value demo, got small" in capsys.readouterr().err


def test_flags_override_the_checkpoint_with_a_message(data, capsys):
    short = {"train_iterations": 4, "eval_interval": 100, "checkpoint_iterations": 2, "log_iter": 1, "warmup_steps": 1}
    assert train(data, **short) == 0
    changes = {"max_lr": 1e-5, "min_lr": 1e-6, "train_iterations": 6, "resume_from_checkpoint": "checkpoint_2"}
    capsys.readouterr()
    assert train(data, **{**short, **changes}) == 0
    out = capsys.readouterr().out
    assert "Resuming with --max_lr 1e-05; the checkpoint had 0.003." in out
    assert "Resuming with --train_iterations 6; the checkpoint had 4." in out
    assert "--log_iter" not in out
    log = data.parent / "work" / "p" / "log.jsonl"
    rates = {r["iteration"]: r["lr"] for r in map(json.loads, log.read_text().splitlines()) if "lr" in r}
    assert max(rates[i] for i in (3, 4, 5, 6)) <= 1e-5
    assert rates[6] < rates[4]


def test_resuming_past_the_end_writes_nothing(data, capsys):
    short = {"train_iterations": 3, "eval_interval": 100}
    assert train(data, **short) == 0
    work = data.parent / "work" / "p"
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    assert train(data, **{**short, "train_iterations": 2}, resume_from_checkpoint="latest") == 0
    assert "has 3 iterations, --train_iterations is 2" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(data, monkeypatch):
    options = {"train_iterations": 8, "eval_interval": 100, "checkpoint_iterations": 2}
    step = train_gpt2.Trainer.step

    def diverging(self, batches):
        if self.iteration == 4:
            with mytorch.no_grad():
                self.model.lm_head.weight.fill_(float("nan"))
        return step(self, batches)

    monkeypatch.setattr(train_gpt2.Trainer, "step", diverging)
    with pytest.raises(
        FloatingPointError, match=r"is nan after iteration 5: .*Resume from .*checkpoint_4 with .*--max_lr"
    ):
        train(data, **options)
    work = data.parent / "work" / "p"
    assert [path.name for path in work.iterdir() if is_complete(path)] == ["checkpoint_4"]
    assert all(np.isfinite(w).all() for w in weights(work / "checkpoint_4").values())


def test_a_second_interrupt_ends_the_run_with_a_line(data):
    """The first interrupt finishes the micro-batch, and the second quits without saving."""
    slow = "import time, train_gpt2; step = train_gpt2.Trainer.step; "
    slow += (
        "train_gpt2.Trainer.step = lambda self, b: (print('stepping', flush=True), time.sleep(30), step(self, b))[2]; "
    )
    slow += "train_gpt2.run_script(train_gpt2.main)"
    with subprocess.Popen(
        [sys.executable, "-c", slow, *flags(data, device="cpu")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        for line in process.stdout:
            if line.startswith("stepping"):
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        said = [process.stderr.readline() for _ in range(2)]
        assert said[1] == "Stopping after this micro-batch; Ctrl-C again quits without saving.\n"
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
        assert process.returncode == 130
    assert "Traceback" not in rest
    assert not list((data.parent / "work" / "p").glob("*checkpoint*"))


def test_user_errors_are_one_line(data, capsys):
    wrong = {
        "--devise cuda": "unrecognized arguments: --devise cuda; see --help",
        "--device tpu": "Expected one of cpu, cuda",
        "--device meta": "got 'meta'",
    }
    if not mytorch.cuda.is_available():
        wrong["--device cuda"] = "device 'cuda' can't be used"
    for script, first in ((train_gpt2, flags(data)), (inference_gpt2, [str(data)])):
        for words, sentence in wrong.items():
            with pytest.raises(SystemExit) as stop:
                script.main([*first, *words.split()])
            err = capsys.readouterr().err
            assert stop.value.code == 2
            assert sentence in err
            assert len(err.splitlines()) == 1
    with pytest.raises(SystemExit):
        inference_gpt2.main([str(data), "--topk", "0"])
    assert "--topk: expected at least 1, got 0" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="--prompt: expected FILE: and the path of a file, got FILE:"):
        inference_gpt2.read_prompt("FILE:", None)


def test_help_shows_defaults_but_no_none(capsys):
    for script in (train_gpt2, inference_gpt2):
        with pytest.raises(SystemExit):
            script.parse(["--help"])
        out = " ".join(capsys.readouterr().out.split())
        assert "(default: None)" not in out
        assert "(default: 1" in out


# -- flags -----------------------------------------------------------------------------------------


def parsed(*argv):
    args, parser = train_gpt2.parse(["--path_to_data", "x", *argv])
    train_gpt2.settle_batches(args, 1, parser.error)
    return args


def test_defaults_are_the_documented_ones():
    args = parsed()
    expected = {
        "project_name": "GPT2Trainer", "run_name": None, "working_directory": "work_dir", "checkpoint_iterations": 10000,
        "always_save_checkpoint": False, "resume_from_checkpoint": None, "context_length": 1024, "model_size": "base",
        "dropout_p": 0.0, "use_bias": False, "fused": False, "train_iterations": 150000, "eval_interval": 2000,
        "eval_iterations": 200, "batch_size": 256, "gradient_accumulation_steps": 16, "max_lr": 6e-4, "min_lr": 6e-5,
        "warmup_steps": 2000, "weight_decay": 0.1, "max_grad_norm": 1.0, "beta1": 0.9, "beta2": 0.95, "log_iter": 100,
        "mixed_precision": "no", "micro_batch_size": 16,
    }  # fmt: skip
    assert {name: getattr(args, name) for name in expected} == expected


def test_batch_size_follows_from_the_flags():
    args = parsed("--batch_size", "32", "--gradient_accumulation_steps", "4")
    assert (args.micro_batch_size, args.batch_size) == (8, 32)
    args = parsed("--batch_size_per_gpu", "5", "--gradient_accumulation_steps", "4")
    assert (args.micro_batch_size, args.batch_size) == (5, 20)
    args = parsed("--batch_size_per_gpu", "8", "--tokens_per_batch", "491520", "--context_length", "1024")
    assert (args.gradient_accumulation_steps, args.batch_size) == (60, 480)
    assert parsed("--mixed_precision").mixed_precision == "fp16"
    assert parsed("--mixed_precision", "bf16").mixed_precision == "bf16"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--batch_size", "10", "--gradient_accumulation_steps", "4"],
            "--batch_size: expected a multiple of --gradient_accumulation_steps 4, got 10",
        ),
        (["--batch_size", "0"], "--batch_size: expected at least 1, got 0"),
        (["--batch_size_per_gpu", "-1"], "--batch_size_per_gpu: expected at least 1, got -1"),
        (["--model_size", "huge"], "invalid choice: 'huge'"),
    ],
)
def test_bad_flags_end_with_a_sentence(capsys, argv, sentence):
    with pytest.raises(SystemExit) as stop:
        parsed(*argv)
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_more_warm_up_than_iterations_is_refused(data, capsys):
    with pytest.raises(SystemExit):
        train(data, warmup_steps=21)
    assert "--warmup_steps: expected at most 20 iterations, got 21" in capsys.readouterr().err


def test_a_last_learning_rate_above_the_first_is_refused(data, capsys):
    with pytest.raises(SystemExit):
        train(data, max_lr=1e-5, min_lr=6e-5)
    assert "--min_lr: expected at most --max_lr 1e-05, got 6e-05; see --help" in capsys.readouterr().err


def test_chinchilla_sets_the_iterations(data, capsys, monkeypatch):
    stopped = []
    monkeypatch.setattr(train_gpt2, "CosineLRScheduler", lambda *args: stopped.append(args) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(data, use_chinchilla=True)
    parameters = int(re.search(r"Parameters: ([\d,]+)", capsys.readouterr().out)[1].replace(",", ""))
    assert stopped[0][3] == -(-20 * parameters // (4 * 16))


def test_flags_of_the_model_reach_it(data, monkeypatch):
    seen = []
    monkeypatch.setattr(train_gpt2, "GPT2", lambda config: seen.append(config) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(
            data, fused=True, use_bias=True, dropout_p=0.25, enable_gradient_checkpointing=True, activation="gelu_tanh"
        )
    (config,) = seen
    assert (config.fused, config.use_bias, config.dropout_p) == (True, True, 0.25)
    assert config.gradient_checkpointing
    assert config.activation == "gelu_tanh"
    assert config.vocab_size == 15


def test_missing_data_and_checkpoints_are_named(data, tmp_path):
    def failing(*argv):
        command = [sys.executable, str(ROOT / "train_gpt2.py"), *map(str, argv)]
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert found.returncode == 1
        assert "Traceback" not in found.stderr
        return found.stderr

    assert "expected a token file at" in failing("--path_to_data", tmp_path / "none")
    assert "expected a checkpoint in" in failing(*flags(data, resume_from_checkpoint="latest"))
    with pytest.raises(FileNotFoundError, match="expected a complete checkpoint checkpoint_7"):
        train(data, resume_from_checkpoint="checkpoint_7")
    with pytest.raises(ValueError, match=r"expected more than 4000 tokens for a context of 4000"):
        train(data, context_length=4000)


def test_batches_are_blocks_of_the_file_with_targets_one_token_on(data):
    blocks = train_gpt2.RandomBlocks(data / "train.bin", 16, 8, 100, seed=1)
    x, y = blocks[3]
    assert x.shape == y.shape == (8, 16)
    assert x.dtype == np.int64
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    np.testing.assert_array_equal(blocks[3][0], x)
    assert (blocks[4][0] != x).any()
    text = np.array(blocks.tokens)
    assert all(any((text[s : s + 16] == row).all() for s in range(len(text) - 16)) for row in x)
    starts = {tuple(row) for i in range(100) for row in blocks[i][0]}
    assert len(starts) > 40
    with pytest.raises(IndexError):
        blocks[100]


def test_reading_a_batch_costs_little_of_a_step(data):
    blocks = train_gpt2.RandomBlocks(data / "train.bin", 16, 12, 1000, seed=1)
    began = time.perf_counter()
    for i in range(200):
        blocks[i]
    assert (time.perf_counter() - began) / 200 < 1e-3


# -- inference_gpt2.py -----------------------------------------------------------------------------


@pytest.fixture
def project(data):
    assert train(data, train_iterations=40, eval_interval=40) == 0
    return data.parent / "work" / "p"


def sample(capsys, *argv):
    capsys.readouterr()
    assert inference_gpt2.main([str(a) for a in argv]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("architecture", ["llama", "qwen", "mistral", "moe", "nanochat"])
def test_every_architecture_learns_resumes_and_is_sampled(data, capsys, architecture):
    assert train(data, architecture=architecture, train_iterations=6, eval_interval=3, checkpoint_iterations=3) == 0
    log = [json.loads(line) for line in (data.parent / "work" / "p" / "log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in log if "loss" in record]
    assert losses[-1] < math.log(15)
    assert not any("mfu" in record for record in log)  # a CPU has none without --peak_tflops
    flags_of_more = ["--resume_from_checkpoint", "latest", "--train_iterations", "7"]
    where = ["--project_name", "p", "--working_directory", str(data.parent / "work")]
    assert train_gpt2.main([*where, *flags_of_more]) == 0
    text = [sample(capsys, data.parent / "work" / "p", "--seed", 1, *more) for more in ((), ("--disable_cache",))]
    assert text[0] == text[1]
    assert len(text[0]) > 10


def test_a_gguf_file_is_sampled_like_its_run(project, tmp_path, capsys):
    save_gguf(from_pretrained(project), tmp_path / "m.gguf", "F32")
    flags = ["--temperature", 0, "--max_tokens_gen", 20]
    assert sample(capsys, tmp_path / "m.gguf", *flags) == sample(capsys, project, *flags)
    with pytest.raises(ValueError, match="--checkpoint_dir: expected a folder of train_gpt2.py with checkpoints"):
        sample(capsys, tmp_path / "m.gguf", "--checkpoint_dir", "final_checkpoint")
    model = GPT2(vocab_size=15, context_length=24, num_layers=1, num_heads=2, embed_dim=8)
    save_gguf(model, tmp_path / "m.gguf")
    with pytest.raises(ValueError, match="expected a file with a tokenizer"):
        sample(capsys, tmp_path / "m.gguf")
    with pytest.raises(FileNotFoundError, match="expected a GGUF file, got .*, which does not exist"):
        sample(capsys, tmp_path / "none.gguf")


@pytest.mark.parametrize("kind", [GPT2, Llama])
def test_fine_tuning_starts_from_a_directory_and_writes_one(data, tmp_path, capsys, kind):
    model = kind(vocab_size=15, context_length=24, num_layers=1, num_heads=2, embed_dim=8, dropout_p=0.0)
    model.save_pretrained(tmp_path / "hf")
    shape = {"model_size": None, "context_length": None, "init_from": tmp_path / "hf"}
    assert (
        train(
            data,
            **shape,
            train_iterations=3,
            checkpoint_iterations=2,
            always_save_checkpoint=True,
            max_lr=1e-9,
            min_lr=1e-9,
        )
        == 0
    )
    work = data.parent / "work" / "p"
    found = from_pretrained(work / "hugging_face")
    assert found.config.context_length == 24
    assert type(found) is kind
    for name, weight in model.state_dict().items():
        np.testing.assert_allclose(found.state_dict()[name].numpy(), weight.numpy(), atol=1e-6)
    (tmp_path / "hf" / "config.json").unlink()  # resuming does not need it
    more = [
        "--resume_from_checkpoint",
        "checkpoint_2",
        "--train_iterations",
        "4",
        "--project_name",
        "p",
        "--working_directory",
        str(work.parent),
    ]
    assert train_gpt2.main(more) == 0
    assert sample(capsys, work, "--seed", 1, "--max_tokens_gen", 5)
    with pytest.raises(SystemExit):
        train(data, init_from=tmp_path / "hf")
    assert "expected no value with --init_from" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [GPT2, Llama])
def test_lora_trains_its_matrices_only_and_saves_an_adapter(data, tmp_path, capsys, kind):
    model = kind(vocab_size=15, context_length=24, num_layers=2, num_heads=2, embed_dim=8)
    model.tokenizer = load_tokenizer(data / "tokenizer.json")
    model.save_pretrained(tmp_path / "hf")
    options = {"train_iterations": 4, "checkpoint_iterations": 2, "always_save_checkpoint": True, "max_lr": 1.0, "lora_r": 3}  # fmt: skip
    assert train(data, model_size=None, context_length=None, init_from=tmp_path / "hf", **options) == 0
    count = 2 * 3 * (8 + 24) if kind is GPT2 else 2 * 2 * 3 * (8 + 8)
    assert f"Total Trainable Parameters: {count:,}\n" in capsys.readouterr().out
    work = data.parent / "work" / "p"
    found = lora.merge(lora.load_adapter(from_pretrained(tmp_path / "hf"), work / "adapter"))
    before = model.state_dict()
    changed = {name for name, w in found.state_dict().items() if not (w == before[name]).all()}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in changed} == (
        {"c_attn"} if kind is GPT2 else {"q_proj", "v_proj"}
    )

    def logits(*flags):
        sampler, *_ = inference_gpt2.load(inference_gpt2.parse([str(flag) for flag in flags]))
        return sampler(mytorch.arange(15)[None]).detach().numpy()

    adapted = logits(tmp_path / "hf", "--adapter", work / "adapter")
    np.testing.assert_allclose(adapted, logits(work), rtol=0, atol=1e-6)
    assert abs(adapted - logits(tmp_path / "hf")).max() > 1e-4
    assert sample(capsys, tmp_path / "hf", "--adapter", work / "adapter", "--max_tokens_gen", 2)
    with pytest.raises(ValueError, match="--adapter: expected path_to_project_dir to be the Hugging Face directory"):
        sample(capsys, work, "--adapter", work / "adapter")
    place = ["--project_name", "p", "--working_directory", str(work.parent)]
    weights = (work / "adapter" / "adapter_model.safetensors").read_bytes()
    assert train_gpt2.main(["--resume_from_checkpoint", "checkpoint_2", *place]) == 0
    assert (work / "adapter" / "adapter_model.safetensors").read_bytes() == weights
    for wrong in ({"lora_r": 2}, {"lora_alpha": 2.0, "init_from": tmp_path / "hf"}):
        with pytest.raises(SystemExit):
            train(data, model_size=None, **wrong)
        assert "--lora_r requires --init_from" in capsys.readouterr().err


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen", "mistral", "moe", "nanochat"])
def test_a_trained_model_can_be_taken_out(data, architecture):
    """The run, its checkpoints and its Hugging Face directory are the same model, with the same parameters and the tokenizer."""
    options = {"architecture": architecture, "train_iterations": 2, "eval_interval": 50, "checkpoint_iterations": 1}
    assert train(data, **options) == 0
    run = data.parent / "work" / "p"
    expected = weights(run / "final_checkpoint")
    tokens = mytorch.arange(10)[None] % 16
    logits = []
    for path in (run, run / "final_checkpoint", run / "hugging_face"):
        model = from_pretrained(path).eval()
        assert type(model) is (GPT2 if architecture == "gpt2" else Llama)
        found = model.state_dict()
        assert {name: value.shape for name, value in found.items()} == {n: w.shape for n, w in expected.items()}
        assert all(np.array_equal(found[name].numpy(), w) for name, w in expected.items())
        assert model.tokenizer.chars == load_tokenizer(data / "tokenizer.json").chars
        logits.append(model(tokens).tolist())
    assert logits[0] == logits[1] == logits[2]
    before, found = weights(run / "checkpoint_1"), from_pretrained(run / "checkpoint_1").state_dict()
    assert all(np.array_equal(found[n].numpy(), w) for n, w in before.items())


def test_a_run_can_be_the_start_of_another(data, tmp_path):
    assert train(data, train_iterations=2, no_export=True) == 0
    run = data.parent / "work" / "p"
    assert not (run / "hugging_face").exists()
    options = {
        "architecture": None,
        "model_size": None,
        "init_from": run,
        "train_iterations": 1,
        "max_lr": 1e-30,
        "min_lr": 1e-30,
    }
    assert train(data, **options, warmup_steps=1, project_name="second") == 0
    mine, expected = (weights(folder / "final_checkpoint") for folder in (data.parent / "work" / "second", run))
    assert all(np.allclose(mine[name], expected[name], atol=1e-6) for name in expected)
    save_tokenizer(CharTokenizer("xyz"), data / "tokenizer.json")
    with pytest.raises(ValueError, match="expected data with the tokenizer of"):
        train(data, **options, warmup_steps=1, project_name="third")
    empty = tmp_path / "empty"
    empty.mkdir()
    (run / "model_meta.json").rename(empty / "model_meta.json")
    with pytest.raises(FileNotFoundError, match=r"expected a checkpoint with model\.safetensors in the run"):
        from_pretrained(empty)


def test_fine_tuning_refuses_data_of_another_vocabulary_and_longer_sequences(data, tmp_path):
    for size, context, words in (
        (200, 8, "--context_length: expected at most 8"),
        (5, 32, "expected at most 5 tokens"),
    ):
        GPT2(vocab_size=size, context_length=context, num_layers=1, num_heads=1, embed_dim=8).save_pretrained(
            tmp_path / "hf"
        )
        with pytest.raises(ValueError, match=words):
            train(data, init_from=tmp_path / "hf", model_size=None)


def test_flops_for_a_token_are_counted_as_nanogpt_counts():
    model = GPT2(GPT2Config(vocab_size=11, context_length=8, num_layers=2, num_heads=2, embed_dim=4))
    assert model.flops_per_token() == 6 * (model.num_parameters() - 8 * 4) + 12 * 2 * 4 * 8
    assert accelerate.peak_flops(mytorch.device("cpu"), tflops=2.5) == 2.5e12
    assert accelerate.peak_flops(mytorch.device("cpu")) is None


@pytest.mark.filterwarnings("ignore:fused=True")  # where Numba is missing
def test_sampling_is_repeatable_with_a_seed_and_the_cache_changes_nothing(project, capsys):
    options = ["--prompt", "the ", "--max_tokens_gen", 40, "--seed", 1, "--temperature", 0.8, "--topk", 15]
    text = sample(capsys, f"{project}/", *options)
    assert text.startswith("the ")
    assert len(text) == len("the ") + 40 + 1
    assert sample(capsys, project, *options) == text
    assert sample(capsys, project, *options, "--disable_cache") == text
    assert sample(capsys, project, *options, "--fused") == text
    assert sample(capsys, project, *options[:4], "--seed", 2) != text


def test_every_inference_flag_does_its_part(project, capsys):
    text = sample(capsys, project, "--start", "the", "--num_samples", 2, "--topp", 0.9, "--repetition_penalty", 1.1, "--fp16",
                  "--compute_tok_per_sec", "--device", "cpu")  # fmt: skip
    first, second = text.split("\n---------------\n")
    assert first.startswith("the")
    assert second.startswith("the")
    assert re.search(r"^Tokens/Sec: [\d.]+ \(26 tokens in [\d.]+ s\)$", text, re.M)
    greedy = sample(capsys, project, "--temperature", 0, "--max_tokens_gen", 5, "--bf16")
    assert greedy == sample(capsys, project, "--temperature", 0, "--max_tokens_gen", 5, "--fp32")
    prompt = project / "prompt.txt"
    prompt.write_text("the dog")
    assert sample(capsys, project, "--prompt", f"FILE:{prompt}", "--max_tokens_gen", 1).startswith("the dog")


def test_the_newest_checkpoint_is_found_or_the_named_one(data, project):
    assert inference_gpt2.find_checkpoint(project, None).name == "final_checkpoint"
    train(data, train_iterations=45, eval_interval=45, checkpoint_iterations=42, resume_from_checkpoint="latest")
    assert inference_gpt2.find_checkpoint(project, "checkpoint_42") == project / "checkpoint_42"
    assert inference_gpt2.find_project(project / "checkpoint_42") == (project, project / "checkpoint_42")
    with pytest.raises(
        FileNotFoundError, match="--checkpoint_dir: expected a path or the name of a checkpoint in .*, got nothing"
    ):
        inference_gpt2.find_checkpoint(project, "nothing")
    with pytest.raises(FileNotFoundError, match="path_to_project_dir: expected a directory, got"):
        inference_gpt2.find_project(project / "none")
    with pytest.raises(FileNotFoundError, match=r"contains no model_meta\.json"):
        inference_gpt2.find_project(data)


def test_an_unknown_character_in_the_prompt_ends_with_a_sentence(project):
    command = [sys.executable, str(ROOT / "inference_gpt2.py"), str(project), "--prompt", "Ω"]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert found.returncode == 1
    assert found.stderr.startswith("inference_gpt2.py: CharTokenizer.encode: expected the 15 characters")


def test_a_hugging_face_directory_is_sampled_from(tmp_path, capsys, monkeypatch):
    class Words:
        kind, vocab_size = "gpt2", 20

        def encode(self, text):
            return [1, 2]

        def decode(self, tokens):
            return "".join(f" {t}" for t in tokens)

    monkeypatch.setattr(inference_gpt2, "GPT2Tokenizer", Words)
    model = GPT2(GPT2Config(vocab_size=32, context_length=8, num_layers=1, num_heads=1, embed_dim=8))
    model.save_pretrained(tmp_path / "hf")
    text = sample(capsys, tmp_path / "hf", "--prompt", "a", "--max_tokens_gen", 30, "--seed", 0)
    numbers = [int(t) for t in text[1:].split()]
    assert len(numbers) == 30
    assert max(numbers) < 20


def test_partial_characters_are_printed_when_complete(capsys):
    class Bytes:
        kind = "gpt2"

        def decode(self, tokens):
            return bytes(tokens).decode(errors="replace")

    show = inference_gpt2.Printer(Bytes())
    for i, byte in enumerate("aé…".encode()):
        show(byte, last=i == 5)
    assert capsys.readouterr().out == "aé…"
