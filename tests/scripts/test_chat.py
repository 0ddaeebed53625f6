"""`mytorchrun chat`, and conversations as tokens."""

import http.client
import io
import json
import threading

import pytest

import mytorch
from mytorch import cli
from mytorch.models import Llama, from_pretrained
from mytorch.models.chat import BEGIN, MARKS, SPECIAL, check, render, reply
from mytorch.models.tokenizer import FastTokenizer

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.xdist_group("chat")  # one process makes the model, once


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that `mytorchrun chat train` has made in a few steps."""
    from mytorch.cli.chat import training

    at = tmp_path_factory.mktemp("chat")
    (at / "book.txt").write_text("Call me Ishmael. Some years ago, never mind how long precisely. " * 30)
    flags = "--steps 4 --batch_size 2 --context 48 --vocab_size 300"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CONVERSATIONS", 40)
        patch.setattr(training, "score", lambda *given: {"sums": (0, 1)})
        code = cli.main(
            ["chat", "train", "--folder", str(at / "model"), "--text", str(at / "book.txt"), *flags.split()]
        )
    assert code == 0
    return at / "model"


@pytest.fixture(scope="module")
def tokenizer():
    return FastTokenizer.train(["some words to learn"], 300, SPECIAL)


def test_a_conversation_is_marked_and_only_the_assistants_tokens_are_targets(tokenizer):
    talk = [user("a<|bos|>"), assistant("bc"), user("d"), assistant("")]
    tokens, said = render(tokenizer, talk)
    marks = {tokenizer.special[mark]: mark for mark in SPECIAL}
    words = [marks.get(t) or tokenizer.decode([t]) for t in tokens]
    u, a = MARKS["user"], MARKS["assistant"]
    assert words == [BEGIN, u[0], *"a<|bos|>", u[1], a[0], *"bc", a[1], u[0], "d", u[1], a[0], a[1]]
    assert [w for w, s in zip(words, said, strict=True) if s] == ["b", "c", a[1], a[1]]


@pytest.mark.parametrize(("messages", "sentence"), [
    ([], "at least one message"), ("hi", "at least one message"), ([assistant("a")], r"messages\[0\]"), ([user("a"), user("b")], r"messages\[1\]"),
    ([user("a"), assistant("b")], "got 'assistant'"), ([user(1)], r"messages\[0\]"), ([user(" ")], "got an empty one"), (["a"], r"messages\[0\]"),
])  # fmt: skip
def test_invalid_conversations_are_rejected(messages, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(messages)


def test_a_reply_ends_at_its_mark_and_old_exchanges_are_left_out(tokenizer, monkeypatch):
    model = Llama(vocab_size=tokenizer.vocab_size, context_length=24, num_layers=1, num_heads=2, embed_dim=8).eval()
    model.tokenizer = tokenizer
    talk = [user("abcdefgh"), assistant("ijkl"), user("mn")]
    short = "".join(reply(model, talk, 9, temperature=0))
    assert short == "".join(reply(model, talk[2:], 9, temperature=0))
    with mytorch.no_grad():
        model.lm_head.weight.zero_()
    monkeypatch.setattr("mytorch.models.chat.MARKS", {**MARKS, "assistant": (MARKS["assistant"][0], BEGIN)})
    assert (
        "".join(reply(model, talk[2:], 9, temperature=0)) == ""
    )  # all are equally likely: the first token is taken, which ends it
    with pytest.raises(ValueError, match="doesn't fit in the context"):
        next(reply(model, [user("x" * 50)]))


def test_training_saves_a_hugging_face_model(folder):
    said = json.loads((folder / "config.json").read_text())
    assert (said["model_type"], said["final_logit_softcapping"]) == ("nanochat", 15.0)
    assert {t["content"] for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]} == set(SPECIAL)


def test_held_out_questions_are_not_trained_on():
    from mytorch.cli.chat import data

    learnt, kept = data.split()
    for kind, pairs in kept.items():
        assert not set(pairs) & set(learnt[kind])
        assert {answer for _, answer in pairs} <= {answer for _, answer in learnt[kind]}
    assert sum(map(len, kept.values())) > 60
    talk = next(data.conversations(learnt, 1))
    assert all(m["role"] == ("assistant" if i % 2 else "user") for i, m in enumerate(talk))


def test_fine_tuning_counts_only_the_assistants_tokens(tokenizer):
    import numpy as np

    from mytorch.cli.chat.training import answers

    rendered = [render(tokenizer, [user("ab"), assistant("cd")]), render(tokenizer, [user("a"), assistant("b" * 30)])]
    x, y = answers(rendered, 8, 20, np.random.default_rng(0))()
    assert x.shape == y.shape == (8, 20)
    for row, target in zip(x, y, strict=True):
        tokens, said = rendered[0] if row[2] == rendered[0][0][2] and row[3] == rendered[0][0][3] else rendered[1]
        expected = [t if s else -100 for t, s in zip(tokens[1:21], said[1:21], strict=True)]
        assert target.tolist() == expected + [-100] * (20 - len(expected))


def test_the_terminal_answers_and_starts_again(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n\nHello\n"))
    assert cli.main(["chat", "talk", "--folder", str(folder), "--temperature", "0"]) == 0
    answer = "".join(reply(from_pretrained(folder), [user("Hello")], temperature=0))
    _, _, said = capsys.readouterr().out.partition("Ctrl-D exits.\n")
    assert said == f"> {answer}\n> > {answer}\n> \n"


def test_user_errors_are_one_line(folder, tmp_path, capsys):
    for flags, words in (
        (["talk", "--folder", str(tmp_path)], "expected a model in"),
        (["train", "--folder", str(folder)], "Use --overwrite to replace it"),
        (["train", "--folder", str(tmp_path), "--text", str(tmp_path / "none")], "No such file"),
        (["serve", "--folder", str(folder), "--port", "70000"], "a number from 0 to 65535"),
    ):
        assert cli.main(["chat", *flags]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


@pytest.fixture(scope="module")
def server(folder):
    from mytorch.cli.chat.server import make_server

    made = make_server(from_pretrained(folder), 0, 0.0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.request(
        method, path, body, {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def test_the_page_and_its_answers_in_pieces(server):
    status, headers, page = ask(server, "GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"fetch(" in page
    status, headers, content = ask(server, "POST", "/chat", json.dumps({"messages": [user("Hello")], "max_tokens": 8}))
    lines = [json.loads(line) for line in content.splitlines()]
    assert (status, headers["Content-Type"], lines[-1]) == (200, "application/x-ndjson", {"done": True})
    told = "".join(line["text"] for line in lines[:-1])
    assert told == "".join(reply(server.model, [user("Hello")], 8, temperature=0.0))


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "words"), [
    ("GET", "/other", None, {}, 404, "expected GET /"), ("GET", "/chat", None, {}, 405, "POST /chat"), ("POST", "/", "{}", {}, 404, "POST /chat"),
    ("POST", "/chat", "{", {}, 400, "expected JSON"), ("POST", "/chat", "[" * 9000, {}, 400, "expected JSON"), ("POST", "/chat", "[]", {}, 400, "a JSON object"),
    ("POST", "/chat", "{}", {}, 400, "at least one message"), ("POST", "/chat", '{"x": 1}', {}, 400, "got x"),
    ("POST", "/chat", json.dumps({"messages": [user("a")], "temperature": 9}), {}, 400, "from 0 to 2"),
    ("POST", "/chat", json.dumps({"messages": [user("a")], "max_tokens": True}), {}, 400, "max_tokens"),
    ("POST", "/chat", json.dumps({"messages": [user("a " * 400)]}), {}, 400, "doesn't fit"),
    ("POST", "/chat", "{}", {"Content_Type": "text/plain"}, 415, "application/json"),
    ("POST", "/chat", "x" * 70000, {}, 413, "at most 65536"), ("POST", "/chat", "{}", {"Content_Length": "-1"}, 411, "Content-Length"),
    ("POST", "/chat", "{}", {"Host": "evil.example"}, 403, "got 'evil.example'"),
])  # fmt: skip
def test_bad_requests_are_answered_with_an_error(server, method, path, body, headers, status, words):
    found, answered, content = ask(server, method, path, body, **headers)
    assert (found, answered["Content-Type"]) == (status, "application/json")
    assert words in json.loads(content)["error"]


def test_the_server_is_for_this_computer_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_an_interrupted_training_saves_the_model(tmp_path, monkeypatch, capsys):
    import signal

    from mytorch.cli.chat import training

    (tmp_path / "book.txt").write_text("Call me Ishmael. Some years ago, never mind how long precisely. " * 30)
    monkeypatch.setattr(training, "CONVERSATIONS", 40)
    clip = training.clip_grad_norm_
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)  # in the middle of a step
        return clip(*arguments)

    monkeypatch.setattr(training, "clip_grad_norm_", interrupted)
    flags = "--steps 40 --batch_size 2 --context 48 --vocab_size 300"
    arguments = ["--folder", str(tmp_path / "model"), "--text", str(tmp_path / "book.txt"), *flags.split()]
    assert cli.main(["chat", "train", *arguments]) == 130
    out = capsys.readouterr().out
    assert "stopped after step 3 of 40" in out
    assert "the model is saved in" in out
    assert from_pretrained(tmp_path / "model").config.context_length == 48


@pytest.mark.parametrize("at", [2, 4, 5, 7])
def test_training_resumes_bit_for_bit(at, tmp_path, monkeypatch, capsys):
    import signal

    from mytorch.cli.chat import training

    (tmp_path / "book.txt").write_text("Call me Ishmael. Some years ago, never mind how long precisely. " * 30)
    monkeypatch.setattr(training, "CONVERSATIONS", 40)
    monkeypatch.setattr(training, "score", lambda *given: {"sums": (0, 1)})
    clip, calls = training.clip_grad_norm_, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return clip(*arguments)

    flags = f"--steps 4 --batch_size 2 --context 48 --vocab_size 300 --text {tmp_path / 'book.txt'}".split()
    whole, parts = ["--folder", str(tmp_path / "whole")], ["--folder", str(tmp_path / "parts")]
    assert cli.main(["chat", "train", *whole, *flags]) == 0
    monkeypatch.setattr(training, "clip_grad_norm_", interrupted)
    assert cli.main(["chat", "train", *parts, *flags]) == 130
    assert "--resume continues training" in capsys.readouterr().out
    assert cli.main(["chat", "train", *parts, *flags, "--seed", "1", "--resume"]) == 1
    assert "expected --seed 0 as before, got 1" in capsys.readouterr().err
    assert cli.main(["chat", "train", *parts, *flags, "--resume"]) == 0
    models = [from_pretrained(tmp_path / name) for name in ("whole", "parts")]
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert mytorch.equal(a, b)
    assert cli.main(["chat", "train", *parts, *flags, "--resume"]) == 1
    assert "expected the state of an interrupted training" in capsys.readouterr().err


def test_an_installed_package_asks_for_a_text(tmp_path, monkeypatch):
    from mytorch.cli.chat import data

    monkeypatch.setattr(data, "PACKAGE", tmp_path / "site-packages" / "mytorch")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="--text: expected a text file"):
        data.read_book()


def test_other_models_continue_a_text(tmp_path, monkeypatch, capsys):
    from mytorch.models import GPT2
    from mytorch.models.tokenizer import CharTokenizer

    model = GPT2(vocab_size=5, context_length=16, num_layers=1, num_heads=1, embed_dim=8).eval()
    model.save_pretrained(tmp_path / "silent")
    model.tokenizer = CharTokenizer("abc d")
    model.save_pretrained(tmp_path / "m")
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n\nx\n"))
    assert cli.main(["chat", "talk", str(tmp_path / "m"), "--temperature", "0"]) == 0
    said = capsys.readouterr().out.partition("Ctrl-D exits.\n")[2]
    expected = model.generate("ab", 200, temperature=0)
    assert said.startswith(f"> {expected}\n> > CharTokenizer.encode: expected the 5 characters")
    assert cli.main(["chat", "serve", str(tmp_path / "m")]) == 1
    assert "or use `chat talk`" in capsys.readouterr().err
    assert cli.main(["chat", "talk", str(tmp_path / "silent")]) == 1
    assert "expected a model with a tokenizer in" in capsys.readouterr().err
