"""Malicious and damaged files: each is rejected, or read correctly, within bounded time and memory.

A case is made by a function of a random generator, so each kind has any number of cases:
`CASES=1000 python -m pytest tests/test_hostile_files.py`.
"""

import gzip
import io
import json
import os
import pickle
import pickletools
import resource
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

import mytorch
from mytorch.files.archive import RefusedError
from mytorch.serialization import OtherFileError, load_safetensors, read_safetensors, save_state_dict, set_load_limit
from tests.loops import loop

CASES = int(os.environ.get("CASES", "6"))
SECONDS = 3.0  # of the processor
LIMIT = 16 << 20  # instead of 256 MiB, so that the cases need not be larger than that
MEMORY = 128 << 20  # the limit, including the memory of Python itself
STORAGE = b"(S'storage'\nctorch\n%sStorage\nS'%s'\nS'cpu'\nI%d\ntQ"


def archive(pickled, entries=(), compress=zipfile.ZIP_STORED):
    """A file in PyTorch's format with this pickle and these (name, bytes)."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compress) as out:
        out.writestr("archive/data.pkl", pickled)
        for name, content in entries:
            out.writestr(f"archive/{name}", content)
    return file.getvalue()


def tensors(content, data=b"", **metadata):
    """A safetensors file with this header, a dict or bytes."""
    if isinstance(content, dict):
        content = json.dumps({"__metadata__": metadata, **content} if metadata else content).encode()
    return len(content).to_bytes(8, "little") + content + data


def entry(shape, start, stop, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def doubled(times):
    """Returns the opcodes of a tuple (t, t) that is nested to the given depth."""
    return b"K\x01" + b"2\x86" * times


def rebuilt(size, stride, storage=STORAGE % (b"Float", b"0", 1)):
    """Returns the opcodes of a tensor, without opcodes such as DUP and REDUCE."""
    numbers = [b"(" + b"".join(b"L%dL\n" % n for n in part) + b"t" for part in (size, stride)]
    return b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage[1:] + b"K\x00" + b"".join(numbers) + b"\x89}tR"


# -- generators of cases in PyTorch's format ----------------------------------------------------------------------


def key_of_a_dict(r):
    return archive(b"\x80\x02}" + doubled(r.integers(35, 60)) + b"K\x01s.")


def keys_of_a_dict(r):
    return archive(b"\x80\x02}(" + doubled(r.integers(35, 60)) + b"K\x01u.")


def key_of_a_marked_dict(r):
    return archive(b"\x80\x02(" + doubled(r.integers(35, 60)) + b"K\x01d.")


def key_of_a_counter(r):
    return archive(b"\x80\x02ccollections\nCounter\n(]" + doubled(r.integers(35, 60)) + b"atR.")


def key_of_an_ordered_dict(r):
    return archive(b"\x80\x02ccollections\nOrderedDict\n(](" + doubled(r.integers(35, 60)) + b"K\x01tatR.")


def member_of_a_set(r):
    kind = [b"set", b"frozenset"][r.integers(2)]
    return archive(b"\x80\x02c__builtin__\n" + kind + b"\n(]" + doubled(r.integers(35, 60)) + b"atR.")


def member_of_a_set_by_opcode(r):
    wrapped = [b"\x80\x04\x8f(%s\x90.", b"\x80\x04(%s\x91."][r.integers(2)]
    return archive(wrapped % doubled(r.integers(35, 60)))


def persistent_id(r):
    return archive(b"\x80\x02" + doubled(r.integers(35, 60)) + b"Q.")


def storage_key(r):
    storage = b"(S'storage'\nctorch\nFloatStorage\n" + doubled(r.integers(35, 60)) + b"S'cpu'\nI1\ntQ."
    return archive(storage, [("data/0", b"\0\0\0\0")])


def name_of_a_dtype(r):
    return archive(b"\x80\x02cnumpy\ndtype\n(" + doubled(r.integers(35, 60)) + b"tR.")


def deep_rebuilding(r):
    n = int(r.integers(2000, 50000))
    call = b"ctorch._tensor\n_rebuild_from_type_v2\nq\x00q\x01(h\x00N)Nt"
    return archive(b"\x80\x02" + call + b"q\x010" + b"(h\x00Nh\x01Ntq\x010" * n + b"h\x00h\x01R.")


def colliding_keys(r):
    keys = [i * ((1 << 61) - 1) for i in range(1, int(r.integers(20000, 40000)))]
    return archive(b"\x80\x02}(" + b"".join(pickle.dumps(key, 2)[2:-1] + b"N" for key in keys) + b"u.")


def bytearray_of_a_size(r):
    return archive(b"\x80\x02c__builtin__\nbytearray\n(L%dL\ntR." % r.integers(10**9, 10**10))


def bytearray8(r):
    return archive(b"\x80\x05\x96" + struct.pack("<Q", r.integers(10**9, 2**62)) + b"abc.")


def bytes8(r):
    return archive(
        b"\x80\x04" + [b"\x8e", b"\x8d"][r.integers(2)] + struct.pack("<Q", r.integers(10**9, 2**62)) + b"abc."
    )


def copies_of_text(r):
    n = int(r.integers(2000, 4000))
    text = pickle.dumps("x" * 1000000, 2)[2:-1]
    body = (
        b"\x80\x02c_codecs\nencode\nq\x07" + b"0" + text + b"q\x08" + b"0](" + b"h\x07h\x08U\x06latin1\x86R" * n + b"e."
    )
    return archive(body)


def copies_of_an_array(r):
    n = int(r.integers(2000, 4000))
    raw = pickle.dumps(b"x" * 1000000, 3)[2:-1]
    one = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR(K\x01J@B\x0f\x00\x85h\x09\x89h\x08tb"
    dtype = b"cnumpy\ndtype\n(U\x02u1\x89\x88tRq\x09" + b"0"
    return archive(b"\x80\x03" + raw + b"q\x08" + b"0" + dtype + b"](" + one * n + b"e.")


def copies_of_a_set(r):
    n = int(r.integers(2000, 4000))
    items = pickle.dumps(list(range(20000)), 2)[2:-1]
    return archive(
        b"\x80\x02c__builtin__\nset\nq\x07"
        + b"0"
        + items
        + b"r\0\x01\0\0"
        + b"0]("
        + b"h\x07j\0\x01\0\0\x85R" * n
        + b"e."
    )


def many_empty_containers(r):
    return archive(b"\x80\x04(" + [b"]", b"}", b"\x8f"][r.integers(3)] * int(r.integers(10**6, 2 * 10**6)) + b"t.")


def packed_storage(r):
    n = int(r.integers(1 << 24, 1 << 25)) * 4
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        out.writestr("archive/data.pkl", rebuilt([1], [1], STORAGE % (b"Float", b"0", n // 4)) + b".")
        with out.open("archive/data/0", "w", force_zip64=True) as part:
            for _ in range(n >> 20):
                part.write(bytes(1 << 20))
            part.write(bytes(n % (1 << 20)))
    return file.getvalue()


def packed_pickle(r):
    return archive(b"\x80\x02" + b"N0" * int(r.integers(1 << 24, 3 << 23)) + b"N.", compress=zipfile.ZIP_DEFLATED)


def declared_size(r):
    content = archive(b"\x80\x02N.", compress=zipfile.ZIP_DEFLATED)
    at = content.index(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", int(r.integers(1 << 30, 1 << 32))) + content[at + 28 :]


def entries_over_the_same_bytes(r):
    n, size = int(r.integers(500, 3000)), 1 << 20
    content = archive(b"\x80\x02N.", [("data/0", bytes(size))])
    at = content.index(b"PK\x01\x02", size)
    one = content[content.index(b"PK\x01\x02", at + 4) : content.rindex(b"PK\x05\x06")]
    many = b"".join(one.replace(b"data/0", b"data/%x" % (i % 16)) for i in range(n))
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, n + 1, n + 1, len(many) + at - at, at, 0)
    first = content[at : content.index(b"PK\x01\x02", at + 4)]
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, n + 1, n + 1, len(first + many), at, 0)
    return content[:at] + first + many + end


def reaching_beyond(r):
    size, stride = [int(r.integers(2, 10**9))], [int(r.integers(1, 10**9))]
    return archive(b"\x80\x02" + rebuilt(size, stride) + b".", [("data/0", bytes(4))])


def lying_about_elements(r):
    storage = STORAGE % (b"Float", b"0", int(r.integers(2, 10**12)))
    return archive(b"\x80\x02" + rebuilt([1], [1], storage) + b".", [("data/0", bytes(4))])


def negated_expansion(r):
    n = int(r.integers(20000, 100000))
    pickled = rebuilt([n, n], [0, 0])
    return archive(b"\x80\x02" + pickled[: -len(b"tR")] + b"}S'neg'\nI01\nstR.", [("data/0", bytes(4))])


def attributes_of_a_dict(r):
    name = [b"items", b"__class__", b"keys", b"__setitem__"][r.integers(4)]
    attribute = b"}U%c%sK\x01s" % (len(name), name)
    return archive(
        b"\x80\x02ccollections\nOrderedDict\n)R" + [attribute, b"N" + attribute + b"\x86"][r.integers(2)] + b"b."
    )


def items_into_a_tensor(r):
    how = [b"K\x00K\x01s", b"(K\x00K\x01u", b"K\x01a", b"(K\x01e", b"(K\x01\x90"][r.integers(5)]
    return archive(b"\x80\x04" + rebuilt([1], [1]) + how + b".", [("data/0", bytes(4))])


def random_opcodes(r):
    codes = np.frombuffer(bytes(op.code.encode("latin1")[0] for op in pickletools.opcodes), np.uint8)
    body = bytes(r.choice(codes, int(r.integers(3, 60))))
    return archive(b"\x80\x04(K\x01K\x02]}q\x00" + body + b".")


def code(r):
    names = [
        b"os\nsystem",
        b"builtins\neval",
        b"builtins\ngetattr",
        b"numpy\nload",
        b"subprocess\nPopen",
        b"mytorch\nload",
    ]
    return archive(b"\x80\x02c" + names[r.integers(len(names))] + b"\n(S'exit 1'\ntR.")


# -- cases of safetensors -----------------------------------------------------------------------------------------


def spans_that_overlap(r):
    n = int(r.integers(2, 50))
    return tensors({f"t{i}": entry([4], 4 * i, 4 * i + 16) for i in range(n)}, bytes(4 * n + 12))


def the_same_span(r):
    return tensors({f"t{i}": entry([1024], 0, 4096) for i in range(int(r.integers(2, 3000)))}, bytes(4096))


def a_hole(r):
    gap = int(r.integers(1, 100))
    return tensors({"a": entry([1], 0, 4), "b": entry([1], 4 + gap, 8 + gap)}, bytes(8 + gap))


def trailing_bytes(r):
    return tensors({"a": entry([1], 0, 4)}, bytes(4 + int(r.integers(1, 100))))


def a_hole_at_the_start(r):
    return tensors({"a": entry([1], 4, 8)}, bytes(8))


def a_strange_shape(r):
    shape = [[2.0], [True], [-1], ["1"], [2**62, 0, 2**62], [1] * 70, [[1]], None, [2**70, 0]][r.integers(9)]
    nbytes = {2.0: 8, True: 4}.get(shape[0] if shape and not isinstance(shape[0], list) else None, 4) if shape else 4
    nbytes = 0 if shape and 0 in shape else nbytes
    return tensors({"a": {**entry([1], 0, nbytes), "shape": shape}}, bytes(nbytes))


def strange_offsets(r):
    offsets = [[0.0, 4.0], [False, 4], [0], [0, 4, 4], None, "04", [-4, 0], [4, 0], [0, 2**70]][r.integers(9)]
    return tensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": offsets}}, bytes(4))


def deep_header(r):
    n = int(r.integers(5000, 200000))
    return tensors(b'{"a":' + b"[" * n + b"]" * n + b"}")


def twice_the_same_name(r):
    return tensors(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},' * 2
        + b'"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}',
        bytes(4),
    )


def strange_metadata(r):
    meta = [{"a": 1}, [1], "text", {"a": {}}, {"a": None}][r.integers(5)]
    return tensors({"__metadata__": meta, "t": entry([1], 0, 4)}, bytes(4))


def huge_header(r):
    return int(r.integers(10**8, 2**62)).to_bytes(8, "little") + b"{" + bytes(100)


def strange_tree(r):
    trees = [
        '{"$number":["V",5000000000]}', '{"$number":["S5000000000",1]}', '{"$number":[["f8"],1]}', '{"$number":1}',
        '{"$bytes":5000000000}', '{"$bytes":"0g"}', '{"$complex":[1,2,3]}', '{"$size":5}', '{"$dtype":"object"}',
        '{"$device":"nowhere"}', '{"$tensor":"none"}', '{"$tensor":[]}', '{"$dict":[[[],1]]}', '{"$dict":5}', '{"$what":1}',
        "[" * 5000 + "]" * 5000, "{", '{"$set":[[1]]}', '{"$float":"x"}', '{"$ordered":[1]}',
    ]  # fmt: skip
    return tensors({"t": entry([1], 0, 4)}, bytes(4), format="mytorch", tree=trees[r.integers(len(trees))])


ZIPS = [
    key_of_a_dict, keys_of_a_dict, key_of_a_marked_dict, key_of_a_counter, key_of_an_ordered_dict, member_of_a_set,
    member_of_a_set_by_opcode, persistent_id, storage_key, name_of_a_dtype, deep_rebuilding, colliding_keys,
    bytearray_of_a_size, bytearray8, bytes8, copies_of_text, copies_of_an_array, copies_of_a_set, many_empty_containers,
    declared_size, entries_over_the_same_bytes, reaching_beyond, lying_about_elements, negated_expansion,
    items_into_a_tensor, code, packed_storage, packed_pickle,
]  # fmt: skip
SAFETENSORS = [
    spans_that_overlap, the_same_span, a_hole, trailing_bytes, a_hole_at_the_start, a_strange_shape, strange_offsets,
    deep_header, twice_the_same_name, strange_metadata, huge_header, strange_tree,
]  # fmt: skip
HEAVY = {many_empty_containers, copies_of_text, copies_of_an_array, copies_of_a_set, packed_storage, packed_pickle}


@pytest.fixture(autouse=True)
def limit():
    set_load_limit(LIMIT)
    yield
    set_load_limit(None)


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


def refused(content):
    """Returns True if `load` rejects the content with an error of the library, within the time limit."""
    start = time.process_time()
    with pytest.raises((ValueError, RuntimeError)) as caught:
        mytorch.load(io.BytesIO(content))
    assert time.process_time() - start < SECONDS
    assert type(caught.value) in (ValueError, RuntimeError, RefusedError, OtherFileError)
    assert str(caught.value).startswith("load: ")
    assert len(str(caught.value)) < 1000


@loop
@pytest.mark.parametrize("case", ZIPS + SAFETENSORS, ids=lambda f: f.__name__)
def test_hostile_files_are_refused_in_bounded_time(case):
    for seed in range(1 if case in HEAVY else CASES):
        refused(case(np.random.default_rng(seed)))


def test_random_pickles_are_read_or_refused():
    for seed in range(CASES * 50):
        try:
            mytorch.load(io.BytesIO(random_opcodes(np.random.default_rng(seed))))
        except (ValueError, RuntimeError) as error:
            assert type(error) in (ValueError, RuntimeError, RefusedError, OtherFileError), error  # noqa: PT017
            assert str(error).startswith("load: "), error  # noqa: PT017
    content = attributes_of_a_dict
    for seed in range(CASES):
        try:
            found = mytorch.load(io.BytesIO(content(np.random.default_rng(seed))))
            assert list(found.items()) == []
        except (ValueError, RuntimeError) as error:
            assert "refused" in str(error)  # noqa: PT017


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_hostile_files_are_refused_in_bounded_memory(tmp_path):
    program = """
import resource, sys, numpy as np
sys.path.insert(0, {root!r})
from tests import test_hostile_files as t
import mytorch
t.set_load_limit(t.LIMIT)
for case in t.ZIPS + t.SAFETENSORS:
    content = case(np.random.default_rng(1))
    limit = t.resident() + t.MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, -1))
    try:
        mytorch.load(t.io.BytesIO(content))
    except (ValueError, RuntimeError):
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))
print("all refused")
"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = {**os.environ, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program.format(root=root)], env=env, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.endswith("all refused\n"), done.stderr


def test_the_limit_can_be_raised_and_lowered():
    content = copies_of_a_set(np.random.default_rng(0))
    small = archive(pickle.dumps({"a": {1, 2, 3}}, 2))
    refused(content)
    set_load_limit(100)
    with pytest.raises(RuntimeError, match="increase the limit with mytorch.serialization.set_load_limit"):
        mytorch.load(io.BytesIO(small))
    set_load_limit(None)
    assert mytorch.load(io.BytesIO(small)) == {"a": {1, 2, 3}}
    with pytest.raises(ValueError, match="expected a number of bytes"):
        set_load_limit(-1)


# -- honest files that look like the hostile ones -----------------------------------------------------------------


@pytest.mark.parametrize("writer", ["mytorch", "torch"])
def test_an_expanded_view_stays_a_view(writer):
    library = mytorch if writer == "mytorch" else pytest.importorskip("torch")
    file = io.BytesIO()
    x = library.randn(3)
    library.save([x, x[1].expand(30000, 30000), x.expand(5, 3)], file)
    assert len(file.getvalue()) < 5000
    plain, view, rows = mytorch.load(io.BytesIO(file.getvalue()))
    assert tuple(view.shape) == (30000, 30000)
    assert view.stride() == (0, 0)
    assert view[29999, 7].item() == x[1].item()
    assert rows.tolist() == x.expand(5, 3).tolist()
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        view.add_(1)
    plain.zero_()
    assert view[0, 0].item() == 0
    assert rows.sum().item() == 0


def test_honest_keys_and_containers_are_read():
    obj = {("a", (1, 2.5)): 1, frozenset({(1, 2)}): {3, (4, 5)}, 2**63: None, True: b"x", 1.5: bytearray(b"yz" * 1000)}
    for protocol in (2, 4, 5):
        assert mytorch.load(io.BytesIO(archive(pickle.dumps(obj, protocol)))) == obj


@pytest.mark.parametrize("case", SAFETENSORS[:-1], ids=lambda f: f.__name__)
def test_safetensors_are_as_strict_as_their_own_package(case):
    package = pytest.importorskip("safetensors.numpy")
    for seed in range(CASES):
        content = case(np.random.default_rng(seed))
        if case not in (twice_the_same_name, deep_header):  # their package's JSON reader takes a name twice
            with pytest.raises(Exception):  # noqa: B017, PT011
                package.load(content)
        with pytest.raises(ValueError, match="load: "):
            read_safetensors(content)


def test_metadata_invents_no_tensors(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(tensors({"pt": entry([1], 0, 4), "b": entry([2], 4, 12)}, bytes(12), format="pt", b="pt"))
    assert set(load_safetensors(path)) == {"pt", "b"}
    assert set(mytorch.load(path)) == {"pt", "b"}
    assert tuple(load_safetensors(path)["b"].shape) == (2,)
    t = mytorch.ones(3)
    save_state_dict({"x": t, "y": t}, path)
    state = load_safetensors(path)
    assert state["x"] is state["y"]


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_damaged_files_raise_clear_errors_or_are_read(tmp_path, kind):
    """Truncated, flipped, zeroed and shuffled files raise one of two kinds of errors, or return an object."""
    path = tmp_path / f"x.{kind}"
    mytorch.save({"a": mytorch.arange(50), "b": [1, (2.5, "text")], "c": mytorch.ones(3, 4).t(), 1: {2}}, path)
    whole, r = path.read_bytes(), np.random.default_rng(0)
    for i in range(CASES * 50):
        content = bytearray(whole)
        if i % 4 == 0:
            content = content[: r.integers(len(whole))]
            with pytest.raises((ValueError, RuntimeError)):
                mytorch.load(io.BytesIO(bytes(content)))
            continue
        for _ in range(r.integers(1, 4)):
            at = int(r.integers(len(whole)))
            content[at : at + i % 3] = bytes(r.integers(0, 256, i % 3, np.uint8))
        try:
            mytorch.load(io.BytesIO(bytes(content)))
        except (ValueError, RuntimeError) as error:
            assert type(error) in (ValueError, RuntimeError, RefusedError, OtherFileError), repr(error)  # noqa: PT017


def test_a_packed_idx_file_is_read_only_up_to_its_shape(tmp_path):
    from mytorch.vision.datasets.mnist import read_idx

    path = tmp_path / "x.gz"
    header = struct.pack(">4B2I", 0, 0, 8, 2, 3, 4)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + bytes(12))
    assert read_idx(path).shape == (3, 4)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(40):
            file.write(bytes(1 << 21))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="expected 12 bytes"):
        read_idx(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(">4B2I", 0, 0, 14, 2, 1 << 30, 1 << 31))
    with pytest.raises((ValueError, RuntimeError), match=r"refused|needs"):
        read_idx(path)
    path.write_bytes(b"\x1f\x8b not gzip")
    with pytest.raises(ValueError, match="is damaged"):
        read_idx(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipes_are_refused(tmp_path):
    from mytorch.models.gguf_format import GGUFFile
    from mytorch.models.tokenizer import load_tokenizer

    path = tmp_path / "x.pt"
    os.mkfifo(path)
    for read in (mytorch.load, lambda p: mytorch.load(p, mmap=True), load_safetensors, GGUFFile, load_tokenizer):
        with pytest.raises(ValueError, match=r"expected a regular file, got .*x\.pt, which is a pipe"):
            read(path)


def test_the_error_for_a_damaged_device_names_the_file(tmp_path):
    whole, path = io.BytesIO(), tmp_path / "x.pt"
    mytorch.save({"a": mytorch.ones(2)}, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as damaged:
        for name in source.namelist():
            damaged.writestr(name, source.read(name).replace(b"cpu", b"cqu"))
    with pytest.raises(ValueError, match=r"x\.pt is damaged.*cqu"):
        mytorch.load(path)
    assert mytorch.load(path, map_location="cpu")["a"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="^Expected one of cpu"):  # an error of the caller
        mytorch.load(path, map_location="cqu")
