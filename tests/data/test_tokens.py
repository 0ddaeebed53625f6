"""Files of tokens and random blocks of them, compared with their definitions."""

import numpy as np
import pytest

from mytorch.utils.data import tokens


@pytest.mark.parametrize("vocab_size", [1, 10, 65536, 65537, 1 << 32])
@pytest.mark.parametrize("lengths", [(), (0,), (1,), (3, 0, 4), (33, 7)])
def test_token_files_hold_what_was_written(vocab_size, lengths, tmp_path):
    """The header is compared with its documented bytes, the tokens with what was written in chunks."""
    rng, path = np.random.default_rng(0), tmp_path / "folder" / "t.bin"
    chunks = [rng.integers(0, vocab_size, n, dtype="int64") for n in lengths]
    for chunk in chunks:
        chunk[:1], chunk[-1:] = 0, vocab_size - 1
    with tokens.TokenWriter(path, vocab_size) as writer:
        for chunk in chunks:
            writer.write(chunk)
            assert not path.exists()
        for wrong in ([vocab_size], [-1], [0, -1], [0, vocab_size]):
            with pytest.raises(ValueError, match=f"from 0 to {vocab_size - 1}, got"):
                writer.write(wrong)
    count, itemsize, raw = sum(lengths), 2 if vocab_size <= 65536 else 4, path.read_bytes()
    integers = np.concatenate([np.zeros(0, "int64"), *chunks])
    assert raw[:8] == b"MYTOKENS"
    assert [int(n) for n in np.frombuffer(raw[8:16], "<u4")] == [1, itemsize]
    assert [int(n) for n in np.frombuffer(raw[16:32], "<u8")] == [count, vocab_size]
    assert raw[32:] == integers.astype(f"<u{itemsize}").tobytes()
    assert tokens.read_header(path) == (np.dtype(f"<u{itemsize}"), count, vocab_size)
    read = tokens.read_tokens(path)
    assert read.dtype == np.dtype(f"<u{itemsize}")
    assert read.tolist() == integers.tolist()
    assert not count or not read.flags.writeable


def test_damaged_token_files_are_refused(tmp_path):
    path = tmp_path / "train.bin"
    tokens.write_tokens(path, range(5), 5)
    raw = path.read_bytes()
    damaged = {
        "header has 32 bytes": [raw[:n] for n in (0, 8, 31)],
        "truncated": [raw[:n] for n in (32, 41)],
        "longer than its header": [raw + b"\0", raw + raw],
        "begins with": [b"X" + raw[1:]],
        "format version 1": [raw[:8] + bytes([2]) + raw[9:], raw[:12] + bytes([3]) + raw[13:]],
    }
    for message, files in damaged.items():
        for content in files:
            path.write_bytes(content)
            with pytest.raises(tokens.TokenFileError, match=message):
                tokens.read_tokens(path)
    path.write_bytes(raw)
    with pytest.raises(FileNotFoundError, match=r"val\.bin"):
        tokens.read_vocab_size(tmp_path)
    (tmp_path / "val.bin").write_bytes(raw)
    assert tokens.read_vocab_size(tmp_path) == 5


@pytest.mark.parametrize("block_size", [1, 8, 19])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 7])
def test_random_blocks_depend_on_the_number_of_the_sample_only(block_size, batch_size, tmp_path):
    """Sample j starts at the j-th number of Philox modulo the number of possible positions."""
    path, count = tmp_path / "t.bin", 20
    tokens.write_tokens(path, range(count), count)
    positions = np.random.Philox(key=5).random_raw(60) % (count - block_size)
    for first in (0, 1, 4, 6):
        blocks = tokens.RandomBlocks(
            path, block_size, batch_size, length=5, seed=5, **({"first": first} if first else {})
        )
        pairs = [blocks[i] for i in range(len(blocks))]
        expected = positions[first : first + 5 * batch_size].astype("int64")[:, None] + np.arange(block_size)
        for found, wanted in zip(zip(*pairs, strict=True), (expected, expected + 1), strict=True):
            assert all(a.shape == (batch_size, block_size) and a.dtype == np.int64 for a in found)
            np.testing.assert_array_equal(np.concatenate(found), wanted)
        for i in (-1, 5):
            with pytest.raises(IndexError):
                blocks[i]
    with pytest.raises(ValueError, match="expected more than 20 tokens"):
        tokens.RandomBlocks(path, count, 1, 1, 0)
