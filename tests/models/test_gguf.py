"""GGUF files: written here, number by number, after the specification."""

import struct

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, Llama, from_pretrained, quantize_
from mytorch.models.gguf_format import GGUFFile
from mytorch.ops.quantized_linear import dequantize

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "BF16": 30}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    items = [value(item) for item in v]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(v)) + b"".join(i[4:] for i in items)


def stored(x, kind):
    """x as GGUF stores it, block by block, in plain Python."""
    if kind == "BF16":
        return (x.view("uint32") >> 16).astype("<u2").tobytes()
    if kind in ("F32", "F16"):
        return x.astype("<f4" if kind == "F32" else "<f2").tobytes()
    out = b""
    for block in x.reshape(-1, 32):
        furthest = block[abs(block).argmax()]
        scale = np.float16(furthest / -8 if kind == "Q4_0" else abs(furthest) / 127)
        codes = np.round(block / np.float32(scale)) if scale else np.zeros(32)
        if kind == "Q8_0":
            out += scale.tobytes() + codes.astype("int8").tobytes()
        else:
            codes = np.clip(codes + 8, 0, 15).astype(int)
            out += scale.tobytes() + bytes(int(a | b << 4) for a, b in zip(codes[:16], codes[16:], strict=True))
    return out


def write(path, metadata, tensors, kind="F32", version=3):
    """tensors: arrays, or (shape, type's number, bytes); vectors are stored as float32, as llama.cpp does."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(k) + value(v) for k, v in metadata.items())
    data = b""
    for name, x in tensors.items():
        if not isinstance(x, tuple):
            of = kind if x.ndim > 1 else "F32"
            x = x.shape, TYPES[of], stored(np.ascontiguousarray(x), of)
        shape, number, raw = x
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", number, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


LLAMA = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate"}  # fmt: skip
MLP = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}


def permuted(w, heads):
    """As llama.cpp's convert_hf_to_gguf does with the queries and keys of a Llama."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama_file(path, model, kind="F32", arch="llama", **more):
    c = model.config
    own = {name: p.numpy() for name, p in model.state_dict().items()}
    tensors = {}
    for theirs, ours in LLAMA.items():
        tensors[f"{theirs}.weight"] = own[f"{ours}.weight"]
    if c.tie_embeddings:
        del tensors["output.weight"]
    for i in range(c.num_layers):
        for theirs, ours in BLOCK.items():
            for last in ("weight", "bias"):
                w = own.get(f"model.layers.{i}.{ours}.{last}")
                if w is not None and arch == "llama" and theirs in ("attn_q", "attn_k"):
                    w = permuted(w, c.num_heads if theirs == "attn_q" else c.kv_heads)
                if w is not None:
                    tensors[f"blk.{i}.{theirs}.{last}"] = w
        for theirs, ours in MLP.items():
            if c.num_experts:
                each = [own[f"model.layers.{i}.mlp.experts.{e}.{ours}.weight"] for e in range(c.num_experts)]
                tensors[f"blk.{i}.{theirs}_exps.weight"] = np.stack(each)
            else:
                tensors[f"blk.{i}.{theirs}.weight"] = own[f"model.layers.{i}.mlp.{ours}.weight"]
    said = {"context_length": c.context_length, "embedding_length": c.embed_dim, "block_count": c.num_layers, "feed_forward_length": c.hidden,
            "attention.head_count": c.num_heads, "attention.head_count_kv": c.kv_heads, "rope.freq_base": c.rope_theta,
            "attention.key_length": c.head, "attention.layer_norm_rms_epsilon": c.rms_norm_eps}  # fmt: skip
    if c.num_experts:
        said.update({"expert_count": c.num_experts, "expert_used_count": c.experts_per_token})
    metadata = {"general.architecture": arch, **{f"{arch}.{key}": v for key, v in said.items()}, **more}
    return write(path, metadata, tensors, kind)


SHAPE = {"vocab_size": 37, "context_length": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32}
KINDS = {
    "llama": {},
    "qwen2": {"qkv_bias": True, "tie_embeddings": True},
    "qwen3": {"qk_norm": True, "head_dim": 16},
    "mixtral": {"num_experts": 3},
}


@pytest.fixture
def tokens():
    return mytorch.randint(0, 37, (2, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_each_kind_keeps_its_logits(tmp_path, tokens, kind):
    model = Llama(**SHAPE, rope_theta=5000.0, **KINDS[kind]).eval()
    for p in model.parameters():
        p.data.add_(0.02 * mytorch.randn(*p.shape))
    path = llama_file(tmp_path / "m.gguf", model, arch=kind if kind.startswith("qwen") else "llama")
    found = from_pretrained(path)
    np.testing.assert_allclose(found(tokens).detach().numpy(), model(tokens).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert found.config.tie_embeddings == model.config.tie_embeddings


def test_gpt2_keeps_its_logits(tmp_path, tokens):
    model = GPT2(
        vocab_size=37, context_length=16, num_layers=2, num_heads=2, embed_dim=8, use_bias=True, activation="gelu_tanh"
    ).eval()
    names = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "ln_1": "attn_norm", "lm_head": "output",
             "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}  # fmt: skip
    tensors = {}
    for name, p in model.state_dict().items():
        stem, _, last = name.rpartition(".")
        _, is_block, inner = stem.partition("transformer.h.")
        number, _, stem = inner.partition(".") if is_block else ("", "", stem)
        tensors[(f"blk.{number}." if is_block else "") + f"{names[stem]}.{last}"] = p.numpy()
    said = {"context_length": 16, "embedding_length": 8, "block_count": 2, "feed_forward_length": 32, "attention.head_count": 2,
            "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    path = write(
        tmp_path / "m.gguf", {"general.architecture": "gpt2", **{f"gpt2.{k}": v for k, v in said.items()}}, tensors
    )
    np.testing.assert_allclose(
        from_pretrained(path)(tokens).detach().numpy(), model(tokens).detach().numpy(), atol=1e-5
    )


@pytest.mark.parametrize(("kind", "off"), [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 8e-3), ("Q4_0", 0.14)])
def test_numbers_are_those_that_were_stored(rng, tmp_path, kind, off):
    x = rng.standard_normal((5, 64)).astype("float32")
    found = GGUFFile(write(tmp_path / "x.gguf", {"general.name": "x"}, {"x": x}, kind)).read("x")
    assert (found.dtype, found.shape) == (np.float32, (5, 64))
    assert 0 < abs(found - x).max() <= off * abs(x).max()


def _half(block, at):
    return struct.unpack_from("<e", block, at)[0]


def _q5_0(b):
    bits = int.from_bytes(b[2:6], "little")
    for j in range(32):
        yield _half(b, 0) * ((b[6 + j % 16] >> j // 16 * 4 & 15 | (bits >> j & 1) << 4) - 16)


def _q5_1(b):
    bits = int.from_bytes(b[4:8], "little")
    for j in range(32):
        yield _half(b, 0) * (b[8 + j % 16] >> j // 16 * 4 & 15 | (bits >> j & 1) << 4) + _half(b, 2)


def _q2_k(b):
    for j in range(256):
        scale, code = b[j // 16], b[16 + j // 128 * 32 + j % 32] >> j % 128 // 32 * 2 & 3
        yield _half(b, 80) * (scale & 15) * code - _half(b, 82) * (scale >> 4)


def _q3_k(b):
    for j in range(256):
        i = j // 16
        scale = (b[96 + i % 8] >> i // 8 * 4 & 15) | (b[104 + i % 4] >> i // 4 * 2 & 3) << 4
        code = b[32 + j // 128 * 32 + j % 32] >> j % 128 // 32 * 2 & 3
        yield _half(b, 108) * (scale - 32) * (code - (0 if b[j % 32] >> j // 32 & 1 else 4))


def _four_or_five(b, at, bits):
    q = b[4:16]
    for j in range(256):
        i = j // 32
        if i < 4:
            s, m = q[i] & 63, q[i + 4] & 63
        else:
            s, m = q[i + 4] & 15 | q[i - 4] >> 6 << 4, q[i + 4] >> 4 | q[i] >> 6 << 4
        above = 0 if bits is None else (b[bits + j % 32] >> i & 1) << 4
        yield _half(b, 0) * s * (b[at + i // 2 * 32 + j % 32] >> i % 2 * 4 & 15 | above) - _half(b, 2) * m


def _q6_k(b):
    for j in range(256):
        n, part, i = j // 128, j % 128 // 32, j % 32
        low = b[64 * n + part % 2 * 32 + i] >> part // 2 * 4 & 15
        high = b[128 + 32 * n + i] >> 2 * part & 3
        yield _half(b, 208) * ((b[192 + j // 16] ^ 128) - 128) * ((low | high << 4) - 32)


BLOCKS = {  # the type's number, bytes of a block, offsets of its halves, its numbers one at a time as in ggml's dequantize_row_…
    "Q5_0": (6, 22, (0,), _q5_0), "Q5_1": (7, 24, (0, 2), _q5_1), "Q2_K": (10, 84, (80, 82), _q2_k), "Q3_K": (11, 110, (108,), _q3_k),
    "Q4_K": (12, 144, (0, 2), lambda b: _four_or_five(b, 16, None)), "Q5_K": (13, 176, (0, 2), lambda b: _four_or_five(b, 48, 16)),
    "Q6_K": (14, 210, (208,), _q6_k),
}  # fmt: skip


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_read_number_by_number(rng, tmp_path, kind):
    number, size, halves, read = BLOCKS[kind]
    raw = rng.integers(0, 256, (3, size), dtype=np.uint8)
    for at in halves:
        raw[:, at : at + 2] = rng.standard_normal((3, 1)).astype("<f2").view(np.uint8)
    expected = np.array([list(read(block.tobytes())) for block in raw])
    path = write(tmp_path / "x.gguf", {"a": 1}, {"x": (expected.shape, number, raw.tobytes())})
    found = GGUFFile(path)
    assert found.tensors["x"].kind == kind
    np.testing.assert_allclose(found.read("x"), expected, rtol=1e-5, atol=1e-5 * abs(expected).max())


def test_a_file_of_4_bits_loses_nothing_when_it_is_rounded_again(tmp_path, tokens):
    model = Llama(**SHAPE).eval()
    found = from_pretrained(llama_file(tmp_path / "m.gguf", model, "Q4_0"))
    weight = found.model.layers[1].mlp.up_proj.weight.detach().numpy()
    layer = quantize_(found, "int4", group_size=32).model.layers[1].mlp.up_proj
    again = dequantize(np, layer.weight.numpy(), layer.scale.numpy(), None, 32, 32)
    np.testing.assert_allclose(again, weight, rtol=1e-6, atol=1e-9)


def test_llama_3s_stretched_positions_are_found_or_refused(tmp_path, tokens):
    from mytorch.models.rotary import frequencies

    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = Llama(**{**SHAPE, "embed_dim": 64}, rope_theta=500000.0, rope_scaling=scaling).eval()
    path = llama_file(tmp_path / "m.gguf", model)
    plain = Llama(**{**SHAPE, "embed_dim": 64}, rope_theta=500000.0)
    factors = (frequencies(plain.config) / frequencies(model.config)).numpy()
    good = GGUFFile(path)
    tensors = {name: good.read(name) for name in good.tensors}
    for right in (True, False):
        write(path, good.metadata, {**tensors, "rope_freqs.weight": factors if right else factors**2})
        if right:
            assert from_pretrained(path).config.rope_scaling == scaling
        else:
            with pytest.raises(ValueError, match="rope_freqs do not match Llama 3"):
                from_pretrained(path)


def test_yarns_stretched_positions_are_found(tmp_path, tokens):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    model = Llama(**SHAPE, rope_scaling=scaling).eval()
    said = {"type": "yarn", "factor": 4.0, "original_context_length": 8}
    found = from_pretrained(
        llama_file(tmp_path / "m.gguf", model, **{f"llama.rope.scaling.{key}": v for key, v in said.items()})
    )
    assert found.config.rope_scaling == scaling
    np.testing.assert_allclose(found(tokens).detach().numpy(), model(tokens).detach().numpy(), rtol=1e-5, atol=1e-5)


def spm(path, model):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "ab", "▁a", "▁ab", "abab"]
    scores = [0.0] * 259 + [-9.0, -8.0, -7.0, -1.0, -2.0, -1.5, -3.0]
    types = [2, 3, 3, *[6] * 256, *[1] * 7]
    words = {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "bos_token_id": 1}
    return llama_file(path, model, **{f"tokenizer.ggml.{k}": v for k, v in words.items()})


def test_sentence_pieces_are_joined_by_their_scores(tmp_path):
    pytest.importorskip("tokenizers")
    model = Llama(**{**SHAPE, "vocab_size": 266})
    tokenizer = from_pretrained(spm(tmp_path / "m.gguf", model)).tokenizer
    assert tokenizer.encode("ab abab é") == [1, 264, 264, 262, 259, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode(tokenizer.encode("ab abab é")) == "ab abab é"


@pytest.mark.parametrize("cut", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_pairs_are_those_of_the_tokenizer_that_was_written(tmp_path, cut):
    tokenizers = pytest.importorskip("tokenizers")
    from mytorch.models.tokenizer import FastTokenizer

    trained = FastTokenizer.train(["the cat sat on the mat; the cat's hat 1999"] * 9, 300, special_tokens=["<|end|>"])
    described = trained.to_dict()["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].get)
    merges = [" ".join(pair) for pair in described["merges"]]
    model = Llama(**{**SHAPE, "vocab_size": len(tokens)})
    words = {
        "model": "gpt2",
        "pre": cut,
        "tokens": tokens,
        "merges": merges,
        "token_type": [3] + [1] * (len(tokens) - 1),
    }
    path = llama_file(tmp_path / "m.gguf", model, **{f"tokenizer.ggml.{k}": v for k, v in words.items()})
    found = from_pretrained(path)
    assert found.tokenizer.encode("the cat's hat<|end|>") == trained.encode("the cat's hat<|end|>")
    assert found.tokenizer.decode(found.tokenizer.encode("x 鲸\n\n 12345")) == "x 鲸\n\n 12345"
    assert isinstance(found.generate("the", 3, temperature=0), str)
    assert tokenizers.__version__


def test_hostile_and_damaged_files_are_refused(tmp_path):
    path = llama_file(tmp_path / "m.gguf", Llama(**SHAPE))
    good, bad = path.read_bytes(), tmp_path / "bad.gguf"

    def refused(content, words):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            from_pretrained(bad)

    refused(b"", "header is truncated")
    refused(b"GGML" + good[4:], "at the start")
    refused(good[:4] + struct.pack("<I", 9) + good[8:], "version 2 or 3 .*got 9")
    refused(good[:8] + struct.pack("<Q", 1 << 60) + good[16:], "declares .* entries")
    refused(good[:16] + struct.pack("<Q", 1 << 60) + good[24:], "declares .* entries")
    refused(good[:24] + struct.pack("<Q", 1 << 62) + good[32:], "declares .* bytes")
    refused(good[:-40], "exceeds the")
    for end in range(0, 2000, 7):
        bad.write_bytes(good[:end])
        with pytest.raises(ValueError):
            GGUFFile(bad)
    for shape in ((1 << 40, 1 << 40), (0, 4)):
        write(bad, {"general.architecture": "llama"}, {"x": (shape, 0, b"1234")})
        with pytest.raises(ValueError, match="exceeds the|has the invalid shape"):
            GGUFFile(bad)
    write(bad, {"a": 1}, {"x": ((4,), 99, b"1234")})
    with pytest.raises(ValueError, match="got 99 for x"):
        GGUFFile(bad)
    metadata, tensors = GGUFFile(path).metadata, {n: GGUFFile(path).read(n) for n in GGUFFile(path).tensors}
    for key, wrong, words in (
        ("general.architecture", "bert", "expected an architecture"),
        ("llama.block_count", 1 << 30, "in the file"),
        ("llama.feed_forward_length", 1 << 30, "of shape"),
        ("llama.attention.head_count", "four", "'four'"),
        ("llama.embedding_length", [1, 2], "\\[1, 2\\]"),
        ("llama.rope.scaling.type", "longrope", "expected rope.scaling.type linear or yarn"),
    ):
        write(bad, {**metadata, key: wrong}, tensors)
        with pytest.raises(ValueError, match=words):
            from_pretrained(bad)
    write(bad, metadata, {n: t for n, t in tensors.items() if "0.ffn_up" not in n})
    with pytest.raises(RuntimeError, match="ffn_up|up_proj"):
        from_pretrained(bad)
