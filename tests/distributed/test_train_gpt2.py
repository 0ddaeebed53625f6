"""train_gpt2.py under the launcher equals one process with the same data, and can be interrupted and resumed."""

import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch.accelerate.training_state import newest_checkpoint
from mytorch.models import GPT2, from_pretrained, lora
from mytorch.models.tokenizer import CharTokenizer, save_tokenizer
from mytorch.utils.data.tokens import read_vocab_size, write_tokens

from .launching import PROGRAMS, ROOT, environment, launch, needs_mpi


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


def flags(data, name, **changes):
    options = {
        "project_name": name, "working_directory": data.parent / "work", "path_to_data": data, "model_size": "demo",
        "context_length": 16, "batch_size": 8, "gradient_accumulation_steps": 2, "train_iterations": 12, "warmup_steps": 2,
        "eval_interval": 6, "eval_iterations": 2, "log_iter": 1, "max_lr": 3e-3, **changes,
    }  # fmt: skip
    return [str(word) for key, value in options.items() for word in (f"--{key}", value)]


def folder(data, name):
    return data.parent / "work" / name


def losses(data, name):
    records = [json.loads(line) for line in (folder(data, name) / "log.jsonl").read_text().splitlines()]
    return {r["iteration"]: r["loss"] for r in records if "loss" in r}


def weights(path):
    return {name: np.asarray(t.data) for name, t in mytorch.load(path / "model.safetensors").items()}


def test_two_ranks_match_one_process_which_goes_on_with_their_checkpoint(data):
    options = {"checkpoint_iterations": 7}
    alone = {"batch_size": 16, "gradient_accumulation_steps": 4}
    two = launch(2, ROOT / "train_gpt2.py", *flags(data, "two", **options))
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("Completed Training!!!") == 1
    one = launch(1, ROOT / "train_gpt2.py", *flags(data, "one", **alone))
    assert one.returncode == 0, one.stderr
    a, b = losses(data, "two"), losses(data, "one")
    assert list(a) == list(b) == list(range(1, 13))
    assert max(abs(a[i] - b[i]) for i in a) < 1e-4  # float32
    mine, single = (weights(folder(data, n) / "final_checkpoint") for n in ("two", "one"))
    assert max(abs(mine[n] - single[n]).max() for n in mine) < 1e-3
    resumed = flags(data, "two", **options, **alone, resume_from_checkpoint="checkpoint_7")
    one = launch(1, ROOT / "train_gpt2.py", *resumed)
    assert one.returncode == 0, one.stderr
    after = losses(data, "two")
    assert list(after) == list(a)
    assert after != a  # the steps from 8 on were made again, in another order of sums
    assert max(abs(after[i] - a[i]) for i in after) < 1e-4  # float32


def test_an_interrupted_run_goes_on_to_the_same_weights(data):
    needs_mpi()
    options = {"train_iterations": 40, "eval_interval": 1000, "dropout_p": 0.1}
    assert launch(2, ROOT / "train_gpt2.py", *flags(data, "whole", **options)).returncode == 0
    command = [
        sys.executable,
        "-m",
        "mytorch.distributed.run",
        "--cpu",
        "--nproc_per_node",
        "2",
        ROOT / "train_gpt2.py",
    ]
    for _ in range(5):  # on a busy machine, the run can end before the signal arrives
        shutil.rmtree(folder(data, "cut"), ignore_errors=True)
        process = subprocess.Popen(
            [*command, *flags(data, "cut", **options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        for line in process.stdout:
            if "Iter:      5" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        if process.returncode:
            break
    assert process.returncode == 130, err
    assert re.search(r"Interrupted after \d+ iterations", out)
    assert newest_checkpoint(folder(data, "cut")) is not None
    again = launch(2, ROOT / "train_gpt2.py", *flags(data, "cut", resume_from_checkpoint="latest", **options))
    assert again.returncode == 0, again.stderr
    assert losses(data, "cut") == losses(data, "whole")
    mine, whole = (weights(folder(data, n) / "final_checkpoint") for n in ("cut", "whole"))
    assert all(np.array_equal(mine[n], whole[n]) for n in whole)


@pytest.mark.parametrize("sharded", [False, True])
def test_an_interruption_drops_the_unfinished_step_of_all_ranks(data, sharded):
    """One rank gets the signal between two micro-batches. The resumed run equals an uninterrupted one bit for bit."""
    options = {"train_iterations": 5, "eval_interval": 1000, "dropout_p": 0.2, "gradient_accumulation_steps": 4}
    shard = ["--shard"] if sharded else []
    whole = launch(2, ROOT / "train_gpt2.py", *shard, *flags(data, "whole", **options))
    assert whole.returncode == 0, whole.stderr
    cut = launch(2, PROGRAMS / "dropped_step.py", *shard, *flags(data, "cut", **options), CUT="10")
    assert cut.returncode == 130, cut.stderr
    assert "Interrupted after 2 iterations" in cut.stdout
    again = launch(2, ROOT / "train_gpt2.py", *shard, *flags(data, "cut", resume_from_checkpoint="latest", **options))
    assert again.returncode == 0, again.stderr
    assert losses(data, "cut") == losses(data, "whole")
    mine, expected = (weights(folder(data, n) / "final_checkpoint") for n in ("cut", "whole"))
    assert all(np.array_equal(mine[n], expected[n]) for n in expected)


def test_a_sharded_run_fine_tunes_and_goes_on_with_another_number_of_ranks(data):
    """Two ranks save their parts of a pretrained model, and one continues. The final weights are whole."""
    base = data.parent / "base"
    vocabulary = read_vocab_size(data)
    GPT2(vocab_size=vocabulary, context_length=16, num_layers=2, num_heads=2, embed_dim=16).save_pretrained(base)
    options = {"init_from": base, "checkpoint_iterations": 3, "eval_interval": 100, "train_iterations": 6}

    def run(ranks, name, **changes):
        words = flags(data, name, gradient_accumulation_steps=1, **options | changes)
        at = words.index("--model_size")
        done = launch(ranks, ROOT / "train_gpt2.py", "--shard", *words[:at], *words[at + 2 :])
        assert done.returncode == 0, done.stderr

    run(2, "two", batch_size=4)
    parts = [path.name for path in sorted((folder(data, "two") / "checkpoint_3").glob("*.safetensors"))]
    assert parts == ["rank_0.safetensors", "rank_1.safetensors"]
    before = losses(data, "two")
    whole = weights(folder(data, "two") / "final_checkpoint")
    tuned = from_pretrained(folder(data, "two") / "hugging_face").state_dict()
    assert all(np.array_equal(tuned[name].numpy(), value) for name, value in whole.items())
    run(1, "two", batch_size=8, resume_from_checkpoint="checkpoint_3")
    after = losses(data, "two")
    assert list(after) == list(before) == list(range(1, 7))
    assert max(abs(after[i] - before[i]) for i in after) < 1e-4  # float32
    run(2, "lora", batch_size=4, lora_r=2)
    adapted = lora.load_adapter(from_pretrained(base), folder(data, "lora") / "adapter").state_dict()
    whole = weights(folder(data, "lora") / "final_checkpoint")
    assert all(np.array_equal(adapted[name].numpy(), value) for name, value in whole.items())
    assert any("lora_B" in name and abs(value).max() > 0 for name, value in whole.items())
