"""The preparation scripts and the files they write."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.models.tokenizer import RARE, CharTokenizer, GPT2Tokenizer, load_tokenizer, save_tokenizer
from mytorch.utils.data.tokens import (
    HEADER_BYTES,
    RandomBlocks,
    TokenFileError,
    TokenWriter,
    read_header,
    read_tokens,
    write_tokens,
)

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The quick brown fox jumps over the lazy dog.\n" * 40


def run(script, *args, **env):
    return subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )


def test_prepare_text_round_trip(tmp_path):
    source = tmp_path / "book.txt"
    source.write_text(TEXT)
    done = run("prepare_data/prepare_text.py", "--input_file", source, "--path_to_save", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer.json")
    train, val = read_tokens(tmp_path / "out" / "train.bin"), read_tokens(tmp_path / "out" / "val.bin")
    assert tokenizer.decode([*train, *val]) == TEXT
    assert train.dtype == np.uint16
    assert sorted(os.listdir(tmp_path / "out")) == ["tokenizer.json", "train.bin", "val.bin"]


def test_prepare_shakespeare_from_a_local_copy(tmp_path):
    source = tmp_path / "input.txt"
    source.write_text(TEXT)
    done = run(
        "prepare_data/prepare_shakespeare.py",
        "--input_file",
        source,
        "--path_to_save",
        tmp_path / "out",
        "--test_split_pct",
        0.2,
    )
    assert done.returncode == 0, done.stderr
    assert "vocab size" in done.stdout
    assert read_header(tmp_path / "out" / "val.bin")[1] == len(TEXT) - int(len(TEXT) * 0.8)


def test_shakespeare_without_network_is_one_sentence(tmp_path):
    proxy = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = run("prepare_data/prepare_shakespeare.py", "--path_to_save", tmp_path / "out", **proxy)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "--input_file" in done.stderr
    assert not (tmp_path / "out").exists()


def test_shakespeare_is_downloaded_with_the_standard_library(tmp_path):
    program = (
        "import io, sys, urllib.request; sys.modules['requests'] = None; sys.path.insert(0, sys.argv.pop(1)); "
        f"urllib.request.urlopen = lambda url, timeout: io.BytesIO({TEXT!r}.encode()); "
        "import prepare_shakespeare; prepare_shakespeare.main()"
    )
    command = [sys.executable, "-c", program, str(ROOT / "prepare_data"), "--path_to_save", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read_header(tmp_path / "out" / "train.bin")[1] == int(len(TEXT) * 0.9)


def test_shakespeare_with_gpt2_tokens_has_a_script_and_its_defaults():
    done = run("prepare_data/prepare_shakespeare_gpt2.py", "--help")
    out = " ".join(done.stdout.split())
    assert "(default: data/shakespeare_gpt2)" in out
    assert "(default: 0.05)" in out
    assert "(default: gpt2)" in out


def test_help_of_preparation_shows_defaults_and_a_wrong_flag_is_one_line():
    done = run("prepare_data/prepare_text.py", "--help")
    assert "(default: 0.1)" in done.stdout
    done = run("prepare_data/prepare_text.py", "--nonsense")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "see --help" in done.stderr


FAKE_PYTHON = """#!/usr/bin/env bash
case "$*" in *is_available*) exit 1 ;; "-c "*) exit 0 ;; esac
echo "$@"
"""


def dry_run(tmp_path, *arguments):
    """Runs train_gpt2.sh with prepared data and a fake Python that prints its arguments."""
    fake = tmp_path / "environment" / "bin" / "python"
    fake.parent.mkdir(parents=True, exist_ok=True)
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    for name in ("demo", "shakespeare"):
        (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
        for file in ("train.bin", "val.bin"):
            (tmp_path / "data" / name / file).touch()
    env = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "environment")}
    command = ["bash", str(ROOT / "train_gpt2.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)


def test_the_demo_samples_what_it_trained(tmp_path):
    done = dry_run(tmp_path, "demo", "--", "--project_name", "dd", "--run_name=r")
    assert done.returncode == 0, done.stderr
    assert "inference_gpt2.py work_dir/dd/r/ --device cpu" in done.stdout
    assert "inference_gpt2.py work_dir/gpt2-demo/ " in dry_run(tmp_path, "demo").stdout


def test_shakespeare_on_a_cpu_warns_and_offers_a_small_recipe(tmp_path):
    done = dry_run(tmp_path, "shakespeare", "--disable_dlpack")
    assert "takes hours on a CPU" in done.stderr
    assert "bash train_gpt2.sh shakespeare --cpu" in done.stderr
    assert "--model_size small" in done.stdout
    assert "--dropout_p 0.0" in done.stdout
    done = dry_run(tmp_path, "shakespeare", "--cpu", "--overwrite")
    assert done.stderr == ""
    assert "--model_size demo --context_length 64 --batch_size 12" in done.stdout
    assert "--device cpu --overwrite" in done.stdout


def test_missing_and_empty_files(tmp_path):
    done = run("prepare_data/prepare_text.py", "--input_file", tmp_path / "none.txt")
    assert done.returncode == 1
    assert "--input_file: expected a file, got" in done.stderr
    (tmp_path / "empty.txt").write_text("  \n")
    done = run("prepare_data/prepare_text.py", "--input_file", tmp_path / "empty.txt")
    assert done.returncode == 1
    assert "which is empty" in done.stderr


def test_demo_corpus_is_a_book_in_the_repository(tmp_path):
    done = run("prepare_data/prepare_demo.py", "--path_to_save", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    tokenizer = load_tokenizer(tmp_path / "demo" / "tokenizer.json")
    text = tokenizer.decode(read_tokens(tmp_path / "demo" / "train.bin"))
    assert text.startswith("CHAPTER 1. Loomings.\n\nCall me Ishmael. Some years ago")
    assert max(map(len, text.splitlines())) <= 72


def test_openwebtext_from_local_files(tmp_path):
    pytest.importorskip("datasets")
    if "TIKTOKEN_CACHE_DIR" not in os.environ:
        pytest.skip("GPT-2's encoding is downloaded on first use; TIKTOKEN_CACHE_DIR names a copy")
    rows = [{"text": f"Document number {i}."} for i in range(6)]
    (tmp_path / "docs.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    done = run("prepare_data/prepare_owt.py", "--dataset_path", tmp_path / "docs.jsonl", "--path_to_save", tmp_path / "out",
               "--num_proc", 2, "--test_split_pct", 0.3, HF_HOME=str(tmp_path / "hf"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    tokens = read_tokens(tmp_path / "out" / "train.bin")
    assert (tokens == GPT2Tokenizer.end_of_text).sum() == 4


def test_openwebtext_refuses_a_folder_without_documents(tmp_path):
    pytest.importorskip("datasets")
    if "TIKTOKEN_CACHE_DIR" not in os.environ:
        pytest.skip("GPT-2's encoding is downloaded on first use; TIKTOKEN_CACHE_DIR names a copy")
    done = run("prepare_data/prepare_owt.py", "--dataset_path", tmp_path, "--path_to_save", tmp_path / "out")
    assert done.returncode == 1
    assert "which has none" in done.stderr


def test_invalid_token_files_are_refused_with_a_reason(tmp_path):
    good = tmp_path / "good.bin"
    write_tokens(good, np.arange(100), 100)
    data = good.read_bytes()
    for name, content, reason in (
        ("short.bin", data[:10], "The header has 32 bytes"),
        ("foreign.bin", b"x" * 200, "begins with"),
        ("cut.bin", data[:-4], "truncated"),
        ("long.bin", data + b"12", "longer than its header"),
        ("later.bin", data[:8] + b"\x09" + data[9:], "got version 9"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TokenFileError, match=reason):
            read_tokens(tmp_path / name)


def test_writing_is_atomic(tmp_path):
    path = tmp_path / "t.bin"
    write_tokens(path, [1, 2, 3], 10)
    with pytest.raises(RuntimeError, match="stop"), TokenWriter(path, 10) as writer:  # noqa: PT012
        writer.write([4])
        raise RuntimeError("stop")
    assert read_tokens(path).tolist() == [1, 2, 3]
    assert os.listdir(tmp_path) == ["t.bin"]
    with pytest.raises(ValueError, match="expected tokens from 0 to 9"), TokenWriter(path, 10) as writer:
        writer.write([10])


def test_large_vocabularies_take_four_bytes(tmp_path):
    write_tokens(tmp_path / "t.bin", [70_000], 100_000)
    assert read_tokens(tmp_path / "t.bin").tolist() == [70_000]
    assert (tmp_path / "t.bin").stat().st_size == HEADER_BYTES + 4


def test_blocks_resume(tmp_path):
    write_tokens(tmp_path / "t.bin", np.arange(1000) % 50, 50)
    whole = RandomBlocks(tmp_path / "t.bin", 8, batch_size=4, length=3, seed=1)
    x, y = whole[0]
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    rest = RandomBlocks(tmp_path / "t.bin", 8, batch_size=2, length=4, seed=1, first=4)
    np.testing.assert_array_equal(whole[1][0], np.concatenate([rest[0][0], rest[1][0]]))
    with pytest.raises(ValueError, match="shorter context"):
        RandomBlocks(tmp_path / "t.bin", 1000, batch_size=4, length=3, seed=1)


def test_tokenizers(tmp_path):
    tokenizer = CharTokenizer.from_text("aaabbbc", min_count=2)
    assert tokenizer.chars == ["a", "b", RARE]
    assert tokenizer.decode(tokenizer.encode("abz")) == "ab" + RARE
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path / "tokenizer.json").chars == tokenizer.chars
    with pytest.raises(ValueError, match="of the vocabulary, got 'x'"):
        CharTokenizer(["a"]).encode("x")
    (tmp_path / "bad.json").write_text('{"kind": "other"}')
    with pytest.raises(ValueError, match="expected kind"):
        load_tokenizer(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "got no target"),
        (["mars"], "got mars"),
        (["text"], "expected a text file, got none"),
        (["text", "--cpu"], "expected a text file, got --cpu"),
        (["demo", "--minutes", "3"], "--minutes: expected the target text, got demo"),
        (["demo", "--nonsense"], "got --nonsense. Put flags of train_gpt2.py after --"),
        (["owt"], "expected prepared data"),
    ],
)
def test_train_script_refuses_and_explains(arguments, words, tmp_path):
    done = dry_run(tmp_path, *arguments)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_train_script_resumes_with_the_printed_flag(tmp_path):
    done = dry_run(tmp_path, "demo", "--resume_from_checkpoint", "latest")
    assert done.returncode == 0, done.stderr
    assert "--resume_from_checkpoint latest" in done.stdout


def test_a_finished_demo_is_sampled_without_training(tmp_path):
    checkpoint = tmp_path / "work_dir" / "gpt2-demo" / "final_checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "accelerator.json").touch()
    done = dry_run(tmp_path, "demo")
    assert "train_gpt2.py --working_directory" not in done.stdout
    assert "inference_gpt2.py work_dir/gpt2-demo/" in done.stdout
    assert "To train it again, add --overwrite" in done.stdout
    for flag in ("--overwrite", "--cpu"):  # with a flag, train_gpt2.py decides
        assert "train_gpt2.py --working_directory" in dry_run(tmp_path, "demo", flag).stdout


BOOK = "It was a dark night; the wind was cold, and the 3 men by the fire said nothing. " * 60


def plan(folder, text, *flags, name="book", minutes="0.05"):
    """Runs plan_text.py as train_gpt2.sh does. Returns the finished process and the words of the plan."""
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    done = run(
        "prepare_data/plan_text.py", "--input_file", path, "--path_to_save", folder / "data", "--run", folder / "run", "--device",
        "cpu", *(["--minutes", minutes] if minutes else []), *flags,
    )  # fmt: skip
    plan = folder / "data" / "plan.txt"
    return done, plan.read_text().splitlines() if plan.is_file() else []


def test_a_text_is_planned_once(tmp_path):
    """The same text keeps its plan. Another text, and another time, need --overwrite."""
    done, words = plan(tmp_path, BOOK)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"Plan: 0\.8M parameters, a context of 64 tokens, and \d+ iterations of 768 tokens .* on this CPU", done.stdout
    )
    assert words[words.index("--context_length") + 1] == "64"  # a larger one needs a longer text
    iterations = int(words[words.index("--train_iterations") + 1])
    assert 20 <= iterations <= 40 * len(BOOK) / 768
    again, same = plan(tmp_path, BOOK, minutes=None)
    assert (again.returncode, same) == (0, words)
    assert "Plan: 0.8M parameters" in again.stdout
    for text, minutes, sentence in (
        (BOOK + "!", "0.05", "got another text. Use --overwrite"),
        (BOOK, "3", "expected 0.05 as in"),
    ):
        other, same = plan(tmp_path, text, minutes=minutes)
        assert (other.returncode, same) == (1, words)
        assert sentence in other.stderr
        assert len(other.stderr.splitlines()) == 1
    checkpoint = tmp_path / "run" / "checkpoint_7"
    mytorch.accelerate.Accelerator(cpu=True).save_state(checkpoint)
    assert plan(tmp_path, BOOK)[0].returncode == 11
    checkpoint.rename(checkpoint.with_name("final_checkpoint"))
    assert plan(tmp_path, BOOK)[0].returncode == 10
    replaced, words = plan(tmp_path, BOOK + "!", "--overwrite")
    assert replaced.returncode == 0, replaced.stderr


@pytest.mark.parametrize(
    ("text", "flags", "sentence"),
    [
        ("Too short.", {}, "expected a text of at least 2,000 characters, got 10"),
        (BOOK, {"minutes": "0"}, "--minutes: expected a number above 0"),
        (BOOK, {"minutes": "nan"}, "--minutes: expected a number above 0"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(tmp_path, text, flags, sentence):
    done, words = plan(tmp_path, text, **flags)
    assert (done.returncode, words) == (1, [])
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_own_text_end_to_end(tmp_path):
    """The command trains, samples, and samples only when it is given again."""
    (tmp_path / "my book.txt").write_text(BOOK)
    env = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(ROOT)}

    def command(*flags):
        words = ["bash", str(ROOT / "train_gpt2.sh"), "text", "my book.txt", "--cpu", *flags]
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300)

    first = command("--minutes", "0.05", "--", "--log_iter", "10")
    assert first.returncode == 0, first.stderr
    for sentence in (
        "Plan: 0.8M parameters",
        "Completed Training!!!",
        "To generate more text, run:",
        "--minutes 60 --overwrite",
    ):
        assert sentence in first.stdout
    assert "Sampling from work_dir/text-my book" in first.stderr
    second = command()
    assert second.returncode == 0, second.stderr
    assert "is complete. To train it again, add --overwrite" in second.stdout
    assert "Iter:" not in second.stdout
    (tmp_path / "my book.txt").write_text(BOOK + "!")
    third = command()
    assert third.returncode == 1
    assert "got another text. Use --overwrite" in third.stderr


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1", "utf-16-le"])
def test_encodings_and_byte_order_marks(tmp_path, encoding):
    text = "Caf\u00e9 na\u00efve. " * 40
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    (tmp_path / "a.txt").write_bytes((mark + text).encode(encoding))
    flags = [] if encoding == "utf-8-sig" else ["--encoding", encoding]
    command = ["prepare_data/prepare_text.py", "--input_file", tmp_path / "a.txt", "--path_to_save", tmp_path / "data"]
    if flags and encoding != "utf-16-le":
        refused = run(*command)
        assert refused.returncode == 1
        assert "Name its encoding, such as --encoding latin-1" in refused.stderr
    assert run(*command, *flags).returncode == 0
    assert load_tokenizer(tmp_path / "data" / "tokenizer.json").chars == sorted(set(text))


def test_unknown_encodings_and_tokenizers_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    command = ["prepare_data/prepare_text.py", "--input_file", tmp_path / "a.txt", "--path_to_save", tmp_path / "data"]
    unknown = run(*command, "--encoding", "utf-9")
    assert "--encoding: expected an encoding that Python knows" in unknown.stderr
    unknown = run(*command, "--encoding", "latin-1", "--tokenizer", "words")
    assert "--tokenizer: expected char, bpe, gpt2, or the path of a tokenizer.json" in unknown.stderr


def test_the_script_runs_under_sh(tmp_path):
    """`sh train_gpt2.sh` continues in bash."""
    dry_run(tmp_path, "demo")
    env = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "environment")}
    done = subprocess.run(
        ["sh", str(ROOT / "train_gpt2.sh"), "demo"], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "train_gpt2.py --working_directory work_dir" in done.stdout
    assert "To generate more text" in done.stdout


MAKES_ENVIRONMENT = """
. {root}/.ci/python.sh
[() {{ case "$*" in "-w {clone} ]") return {writable} ;; *) builtin [ "$@" ;; esac; }}  # root may write anywhere
find_python {clone} "{extra}" a_module_that_is_nowhere
echo "$PYTHON"
"""


@pytest.mark.parametrize(("writable", "extra", "said"), [(0, "", "about 100 MB"), (1, "test", "PyTorch, transformers")])
def test_messages_before_a_new_environment(tmp_path, writable, extra, said):
    """A new environment is announced first. If the checkout is not writable, the environment is in ~/.cache."""
    (tmp_path / "clone").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "mytorch"):
        (tmp_path / "clone" / name).touch()
    base = tmp_path / "bin" / "python3"
    base.parent.mkdir()
    base.write_text(
        '#!/usr/bin/env bash\ncase "$*" in *a_module*|*"import pip"*) exit 1 ;; '
        '"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;; "-m pip"*) echo "pip: $*" >&2 ;; esac\n'
    )
    base.chmod(0o755)
    program = MAKES_ENVIRONMENT.format(root=ROOT, clone=tmp_path / "clone", writable=writable, extra=extra)
    env = {"PATH": f"{base.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, env=env, timeout=60)
    folder = tmp_path / ".cache" / "mytorch" / "venv" if writable else tmp_path / "clone" / ".venv"
    assert done.stdout.strip() == str(folder / "bin" / "python"), done.stderr
    before, _, pip = done.stderr.partition("pip: ")
    assert f"Making a virtual environment in {folder}" in before
    assert said in before
    assert (f"{tmp_path / 'clone'}" in pip) == (not writable)
