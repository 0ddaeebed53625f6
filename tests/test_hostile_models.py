"""Hostile model files, caches, servers and downloads: a clear error in bounded time and memory."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, Llama, from_pretrained, gpt2_files, llama_files
from mytorch.models.llama import NANOCHAT
from mytorch.models.tokenizer import load_tokenizer
from tests.models.test_gguf import write

pytestmark = pytest.mark.cpu_only
ROOT = Path(__file__).resolve().parents[1]
CASES = int(os.environ.get("CASES", "3"))
SMALL = {"vocab_size": 8, "context_length": 16, "num_layers": 1, "num_heads": 2, "embed_dim": 8, "hidden_dim": 8}


def run(program, *arguments, gigabytes=4, seconds=60, **environment):
    """Run a program in a process with an address space limit. Return its output and errors."""
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({gigabytes} << 30,) * 2)\n" + program
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", limited, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


LOAD = """
import sys, time
from mytorch.models import from_pretrained
for path in sys.argv[1:]:
    start = time.process_time()
    try:
        from_pretrained(path)
    except (ValueError, RuntimeError) as error:
        assert type(error) in (ValueError, RuntimeError), repr(error)
        print(path.rpartition("/")[2], type(error).__name__, str(error).replace("\\n", " "), sep="|")
    else:
        print(path.rpartition("/")[2], "loaded", "", sep="|")
    assert time.process_time() - start < 5, (path, time.process_time() - start)
"""


def metadata(**changes):
    said = {
        "context_length": 16, "embedding_length": 8, "block_count": 1, "feed_forward_length": 8, "attention.head_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    said.update(changes)
    return {"general.architecture": "llama", **{f"llama.{k}": v for k, v in said.items() if v is not None}}


def block(i):
    x, v = np.zeros((8, 8), np.float32), np.zeros(8, np.float32)
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {f"blk.{i}.{name}.weight": x for name in names} | {f"blk.{i}.{n}_norm.weight": v for n in ("attn", "ffn")}


OUTSIDE = {name: np.zeros((8, 8), np.float32) for name in ("token_embd.weight", "output.weight")} | {
    "output_norm.weight": np.zeros(8, np.float32)
}


def tokenizer(tokens, **changes):
    said = {"model": "llama", "tokens": tokens, "scores": [-float(i) for i in range(len(tokens))], **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in said.items()}


TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "d"]


def shared_region(path, count):
    """Write `count` tensors that all have the same 1 MiB of data."""
    path = write(path, metadata(), {**OUTSIDE, **block(0), "blk.0.big.weight": np.zeros((512, 512), np.float32)})
    content = path.read_bytes()
    name = b"blk.0.big.weight"
    at = content.index(name) - 8
    entry = content[at : at + 8 + len(name) + 4 + 16 + 12]
    copies = b"".join(entry.replace(name, b"blk.%04d.x.weight" % i).replace(struct.pack("<Q", 16), struct.pack("<Q", 17), 1) for i in range(count))  # fmt: skip
    head = (
        content[:8] + struct.pack("<Q", struct.unpack("<Q", content[8:16])[0] + count) + content[16 : at + len(entry)]
    )
    head += copies
    start = at + len(entry) + -(at + len(entry)) % 32
    path.write_bytes(head + b"\0" * (-len(head) % 32) + content[start:])


def hostile_gguf(folder):
    """Write the files; return {name: pattern of the error, or "loaded"}."""
    expected = {}

    def add(name, pattern, said, tensors):
        write(folder / f"{name}.gguf", said, tensors)
        expected[f"{name}.gguf"] = pattern

    for count in (300_000, 2_000_000_000):
        add(
            f"layers_{count}",
            "has no weight model.layers.0",
            metadata(block_count=count),
            {**OUTSIDE, **block(count - 1)},
        )
    shared_region(folder / "shared.gguf", 6000)
    expected["shared.gguf"] = "overlap"
    names = {f"blk.{i}.ffn_up.weight": np.zeros((8, 8), np.float32) for i in range(2000)}
    add("names", "model has no weight", metadata(), {**names, **OUTSIDE, **block(0)})
    add("extra", "model has no weight", metadata(), {**OUTSIDE, **block(0), "strange.weight": np.zeros(4, np.float32)})
    experts = {f"blk.0.ffn_{n}_exps.weight": ((200_000, 1, 1), 0, bytes(800_000)) for n in ("gate", "up", "down")}
    width = metadata(feed_forward_length=1, expert_count=200_000)
    add("experts", "expected ffn_gate|of shape|at most 100,000", width, {**OUTSIDE, **block(0), **experts})
    add(
        "letters",
        "at most 512 characters",
        {**metadata(), **tokenizer([*TOKENS[:7], "x" * 100_000])},
        {**OUTSIDE, **block(0)},
    )
    nested = ["x" * n for n in range(1, 2001)]
    add("nested", "at most 512 characters", {**metadata(), **tokenizer(nested)}, {**OUTSIDE, **block(0)})
    letters = [chr(0x4E00 + k) * n for k in range(20) for n in range(1, 512)]
    add("many_pairs", "at most 2,000,000 pairs", {**metadata(), **tokenizer(letters)}, {**OUTSIDE, **block(0)})
    for key, value in (
        ("rope.freq_base", 0.0), ("rope.freq_base", -1.0), ("rope.freq_base", float("nan")),
        ("attention.layer_norm_rms_epsilon", float("nan")), ("attention.layer_norm_rms_epsilon", -1.0),
        ("attention.layer_norm_rms_epsilon", float("inf")),
    ):  # fmt: skip
        add(f"{key}_{value}", f"llama.{key}", metadata(**{key: value}), {**OUTSIDE, **block(0)})
    for key, value in (
        ("tokens", [1, 2, 3]), ("token_type", 3), ("token_type", ["a"]), ("scores", ["a"] * 8), ("scores", [float("nan")] * 8),
        ("bos_token_id", 10**6), ("unknown_token_id", 10**6), ("bos_token_id", "a"), ("add_bos_token", "yes"),
    ):  # fmt: skip
        said = {**metadata(), **tokenizer(TOKENS), f"tokenizer.ggml.{key}": value}
        add(f"lie_{key}_{len(expected)}", f"tokenizer.ggml.{key}", said, {**OUTSIDE, **block(0)})
    add("good", "loaded", {**metadata(), **tokenizer(TOKENS, bos_token_id=1)}, {**OUTSIDE, **block(0)})
    return expected


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_hostile_gguf_files_are_refused_in_bounded_time_and_memory(tmp_path):
    pytest.importorskip("tokenizers")
    expected = hostile_gguf(tmp_path)
    out, _ = run(LOAD, *(tmp_path / name for name in expected), seconds=300)
    lines = [line.split("|", 2) for line in out.splitlines()]
    assert [name for name, *_ in lines] == list(expected)
    for name, kind, message in lines:
        assert kind == "loaded" if expected[name] == "loaded" else name in message, (name, kind, message)
        assert any(part in f"{kind} {message}" for part in expected[name].split("|")), (name, message)


def test_negative_token_ids_are_refused(tmp_path):
    pytest.importorskip("tokenizers")
    path = write(tmp_path / "m.gguf", {**metadata(), **tokenizer(TOKENS, bos_token_id=1)}, {**OUTSIDE, **block(0)})
    content = path.read_bytes()
    key = b"tokenizer.ggml.bos_token_id"
    at = content.index(key) + len(key)
    for value, refused in ((-(10**6), True), (-2, True), (-1, False)):
        path.write_bytes(content[:at] + struct.pack("<Ii", 5, value) + content[at + 8 :])
        with pytest.raises(ValueError, match="bos_token_id") if refused else contextlib.nullcontext():
            from_pretrained(path)


GPT2_CHANGES = [
    ("vocab_size", 10**12), ("n_layer", 10**9), ("n_head", -1), ("n_head", 0), ("layer_norm_epsilon", "x"), ("n_positions", 10**12),
    ("n_embd", 10**7), ("n_embd", 8.0), ("n_inner", 10**12), ("use_bias", 1), ("activation_function", [1]), ("resid_pdrop", -1),
    ("layer_norm_epsilon", float("nan")), ("vocab_size", None), ("n_layer", True), ("n_layer", 10**400),
]  # fmt: skip
LLAMA_CHANGES = [
    ("vocab_size", 10**12), ("num_hidden_layers", 10**9), ("rope_scaling", [1]), ("rope_scaling", "x"), ("model_type", []),
    ("rope_scaling", {"rope_type": "linear", "factor": "x"}), ("rope_scaling", {"rope_type": [1], "factor": 2.0}),
    ("rope_scaling", {"rope_type": "dynamic", "factor": float("inf")}), ("intermediate_size", 10**12), ("rope_theta", 0 - 1), ("rope_theta", 0),
    ("head_dim", 10**9), ("num_key_value_heads", "2"), ("tie_word_embeddings", 3), ("rms_norm_eps", -1.0),
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_config_json_is_compared_with_the_weights_before_a_model_is_created(tmp_path, kind):
    model = (
        GPT2(vocab_size=8, context_length=16, num_layers=1, num_heads=2, embed_dim=8)
        if kind == "gpt2"
        else Llama(**SMALL)
    )
    folders = []
    for i, (key, value) in enumerate(GPT2_CHANGES if kind == "gpt2" else LLAMA_CHANGES):
        folders.append(tmp_path / f"{i}")
        model.save_pretrained(folders[-1])
        file = folders[-1] / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    out, _ = run(LOAD, *folders, seconds=300)
    lines = [line.split("|", 2) for line in out.splitlines()]
    assert len(lines) == len(folders)
    for (_, kind_of_error, message), folder in zip(lines, folders, strict=True):
        assert kind_of_error != "loaded", (folder, message)
        assert str(folder) in message, message


@pytest.mark.parametrize("value", [5, None, ["a"], "../x", "a\0b"])
def test_an_index_that_lies_is_refused(tmp_path, value):
    Llama(**SMALL).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": value}}))
    with pytest.raises(ValueError, match=r"index\.json"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"qkv_bias": True, "out_bias": True}, {"qk_norm": True, "tie_embeddings": True}, {"num_experts": 3}, NANOCHAT,
        {"num_kv_heads": 1, "head_dim": 6, "num_layers": 2},
    ],
)  # fmt: skip
def test_the_expected_shapes_are_those_of_the_model(fields):
    model = Llama(**{**SMALL, **fields})
    assert dict(llama_files.shapes(model.config)) == {name: tuple(p.shape) for name, p in model.state_dict().items()}
    for use_bias in (False, True):
        model = GPT2(vocab_size=8, context_length=4, num_layers=2, num_heads=2, embed_dim=8, use_bias=use_bias)
        assert dict(gpt2_files.shapes(model.config)) == {name: tuple(p.shape) for name, p in model.state_dict().items()}


def test_a_failure_in_rust_is_a_value_error(monkeypatch):
    from mytorch.models import tokenizer as module

    class PanicException(BaseException):
        pass

    class Package:
        class Tokenizer:
            @staticmethod
            def from_str(text):
                raise PanicException("index out of range")

    monkeypatch.setattr(module, "_tokenizers", lambda: Package)
    with pytest.raises(ValueError, match="index out of range"):
        module.FastTokenizer("{}")


def bpe(**changes):
    """Return a tokenizer.json with the tokens of `TOKENS`."""
    vocab = {token: i for i, token in enumerate(TOKENS)}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", **changes.pop("model", {})}
    return {"version": "1.0", "added_tokens": [], "model": model, **changes}


def replace(content):
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 20, "pair": []}
PADDING = {
    "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "char", "chars": ["a", "bb"]}, "single characters, got 'bb'"),
        ({"kind": "char", "chars": ["a", ""]}, "single characters"),
        ({"kind": "char", "chars": ["a", "a"]}, "repeated"),
        (bpe(padding={**PADDING, "strategy": {"Fixed": 2**40}}), "padding to at most"),
        (bpe(padding={**PADDING, "pad_to_multiple_of": 2**40}), "padding to at most"),
        (bpe(normalizer={"type": "Sequence", "normalizers": [replace("aa")] * 40}), "normalizer that lengthens"),
        (bpe(decoder={"type": "Sequence", "decoders": [replace("a" * 40)] * 2}), "decoder that lengthens"),
        (
            bpe(post_processor={**TEMPLATE, "special_tokens": {"<s>": {"id": "<s>", "ids": [1] * 2000, "tokens": ["<s>"] * 2000}}}),
            "post_processor that lengthens",
        ),
    ],
)  # fmt: skip
def test_tokenizers_that_lie_or_explode_are_refused(tmp_path, data, message):
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message):
        load_tokenizer(path)


@pytest.mark.parametrize("text", ["a", "zzz"])
def test_errors_of_the_package_tokenizers_are_value_errors(tmp_path, text):
    """The package raises plain Exceptions and PanicExceptions. A large token number takes no memory."""
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(bpe(model={"type": "WordLevel", "vocab": {"a": 2**31}, "unk_token": "?"})))
    tokenizer = load_tokenizer(path)
    if text == "a":
        assert tokenizer.encode(text) == [2**31]
        assert tokenizer.to_dict() == json.loads(path.read_text())
    else:
        with pytest.raises(ValueError, match=r"FastTokenizer\.encode: WordLevel error"):
            tokenizer.encode(text)
    with pytest.raises(ValueError, match=r"FastTokenizer\.decode"):
        tokenizer.decode([-1])


# -- Numba's cache ------------------------------------------------------------------------------------------------

CACHE = """
import warnings
warnings.simplefilter("always")
import mytorch
import mytorch.kernels.numba.pool
from mytorch.kernels.numba.common import exact

@exact
def double(x):
    return 2 * x

print(double(21))
"""


def test_a_damaged_numba_cache_gives_a_warning(tmp_path):
    pytest.importorskip("numba")
    program = tmp_path / "program.py"
    program.write_text(CACHE)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def start():
        done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr[-3000:]
        return done.stderr

    assert "cache" not in start()
    for shorter in (0, 5):
        for file in (tmp_path / "cache").rglob("*.nbc"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 4  # in an instruction, it gives a wrong number or ends the process
            file.write_bytes(content[: len(content) - shorter])
        errors = start()
        assert errors.count("Numba's cache file") >= 2
        assert ".nbc" in errors
        assert "cache" not in start()  # it was repaired


def test_files_of_numbas_cache_have_checksums(tmp_path):
    pytest.importorskip("numba")
    from mytorch.kernels.numba.cache import _Files

    def file(source=(1.5, 100)):
        return _Files(str(tmp_path), "function-1.py311", source)

    key, other = ("signature", "processor", "code"), ("other signature", "processor", "code")
    assert file().load(key) is None
    code = bytes(range(256)) * 20
    file().save(key, code)
    assert file().load(("signature", "other processor", "code")) is None
    assert file().load(("signature", "processor", "other code")) is None
    assert file((1.5, 101)).load(key) is None
    r = np.random.default_rng(0)
    for _ in range(5 * CASES):
        file().save(key, code)
        file().save(other, code[::-1])
        assert (file().load(key), file().load(other)) == (code, code[::-1])
        path = file().path(key)
        whole = path.read_bytes()
        content, kind = bytearray(whole), r.integers(4)
        if kind == 0:
            content = content[: r.integers(len(content))]
        elif kind == 1:
            content[r.integers(len(content))] ^= 1 << int(r.integers(8))
        elif kind == 2:  # a block that was not yet written at a power failure
            start = int(r.integers(len(content))) // 512 * 512
            content[start : start + 512] = bytes(len(content[start : start + 512]))
        else:
            content = r.bytes(len(content))
        path.write_bytes(content)
        try:
            result = file().load(key)
        except Exception:  # pickle raises any kind of error
            result = None
        assert result in (None, code)  # None: damaged, or of another version
    assert len(list(tmp_path.iterdir())) == 2


def test_kernels_are_not_used_without_a_compiler():
    pytest.importorskip("numba")
    program = "import mytorch; print(mytorch.ones(300).exp().sum().item())"
    out, errors = run(program, NUMBA_DISABLE_JIT="1")
    assert (out, errors) == ("815.484619140625\n", "")
    program = "import mytorch; mytorch.nn.LayerNorm(300, fused=True)(mytorch.ones(300, 300))"
    _, errors = run(program, NUMBA_DISABLE_JIT="1")
    assert "NUMBA_DISABLE_JIT is set" in errors


# -- servers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    from mytorch.playground.server import Handler, serve

    monkeypatch.setattr(Handler, "timeout", 2)
    server = serve(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def page(server):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.request("GET", "/")
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def stalled(server, start=b""):
    """Return a connection that declares a body and does not send it."""
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=120)
    host = f"127.0.0.1:{server.server_port}".encode()
    connection.sendall(b"POST /train HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 100\r\n\r\n" + start)
    return connection


def test_a_stalled_body_does_not_stop_the_playground(server):
    connections = [stalled(server) for _ in range(3)]
    assert page(server)[0].status == 200
    # One byte every half second is not enough: there is one deadline for the whole request.
    began, slow = time.monotonic(), connections[0]
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 20:
            slow.sendall(b" ")
            slow.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                if slow.recv(1) == b"":
                    break
    assert time.monotonic() - began < 15
    for connection in connections:
        connection.close()


def test_connections_beyond_the_limit_are_closed(server):
    from mytorch.cli.local_server import MOST_CONNECTIONS

    before = threading.active_count()
    connections = [socket.create_connection(("127.0.0.1", server.server_port), timeout=120) for _ in range(100)]
    time.sleep(0.3)
    assert threading.active_count() - before <= MOST_CONNECTIONS
    for connection in connections:
        connection.close()
    for _ in range(100):  # the threads end
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            if page(server)[0].status == 200:
                return
    pytest.fail("the server does not respond after its connections were closed")


def test_a_reset_connection_prints_no_traceback(server, capfd):
    for request in (b"GET /nowhere HTTP/1.1\r\n\r\n", b"POST /train HTTP/1.1\r\nContent-Le", b""):
        for _ in range(5):
            connection = socket.create_connection(("127.0.0.1", server.server_port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request)
            connection.close()  # sends a reset
    assert page(server)[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("file", ["mytorch/playground/page.html", "mytorch/cli/chat/page.html"])
def test_the_pages_have_a_content_security_policy(file):
    from mytorch.cli.local_server import content_policy

    content = (ROOT / file).read_bytes()
    policy = content_policy(content)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    text = content.decode()
    assert text.count("<script") == text.count("<script>") == policy.count("'sha256-") == 1
    assert not [word for word in ("onclick=", "onload=", "javascript:", "eval(") if word in text]


def test_the_playground_sends_its_policy(server):
    answer, content = page(server)
    from mytorch.cli.local_server import content_policy

    assert answer.headers["Content-Security-Policy"] == content_policy(content)


# -- torch.hub ----------------------------------------------------------------------------------------------------


def test_downloads_check_the_hash_in_the_name(tmp_path, recwarn):
    import hashlib

    from mytorch.compat import hub

    source = tmp_path / "source.pt"
    mytorch.save({"a": mytorch.ones(2)}, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    url = source.as_uri()
    for name in (f"m-{digest[:8]}.pt", f"m-{digest[:8]}.tar.pt"):
        assert list(hub.load_state_dict_from_url(url, tmp_path / "d", check_hash=True, file_name=name)) == ["a"]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(url, tmp_path / "d", check_hash=True, file_name="m-0123abcd.pt")
    with pytest.warns(UserWarning, match="check_hash=True has no effect"):
        hub.load_state_dict_from_url(url, tmp_path / "d", check_hash=True, file_name="plain.pt")


def test_a_download_that_stalls_fails(tmp_path, monkeypatch):
    from mytorch.compat import hub

    monkeypatch.setattr(hub, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/m.pt"
        with pytest.raises(OSError, match="timed out"):
            hub.download_url_to_file(url, tmp_path / "m.pt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start", 5), ("start", {}), ("start", {"generators": 1, "epochs": {}}), ("drawn", -1), ("drawn", "x"), ("pending", 5),
        ("pending", ["a"]), ("handed", None), ("turn", 1.5),
    ],
)  # fmt: skip
def test_a_damaged_loader_state_is_refused(key, value):
    loader = mytorch.utils.data.DataLoader(mytorch.utils.data.TensorDataset(mytorch.arange(8)), batch_size=2)
    next(iter(loader))
    with pytest.raises(ValueError, match=r"DataLoader\.load_state_dict"):
        loader.load_state_dict({**loader.state_dict(), key: value})


ENVIRONMENT = """
import mytorch
from mytorch import nn
mytorch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.LayerNorm(30), nn.Dropout(0.1), nn.Linear(30, 5))
optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = mytorch.randn(64, 20), mytorch.randint(0, 5, (64,))
for _ in range(5):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("%.6f" % loss.item())
"""


def test_odd_environments_change_nothing(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ENVIRONMENT)
    results = []
    for flags, environment in (
        ((), dict(os.environ)),
        (("-OO", "-bb", "-X", "dev", "-W", "error"), {"LC_ALL": "xx_YY", "TMPDIR": str(tmp_path / "missing")}),
    ):
        command = [sys.executable, *flags, str(program)]
        env = {**environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        results.append((done.returncode, done.stdout, done.stderr))
    assert results[0] == results[1]
    assert results[0][0] == 0
