"""Every example runs for a few steps, prints a plausible result, and saves an image."""

import contextlib
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.packages.environment import needs_packages, run_with_packages
from tests.vision.test_datasets import write_mnist

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

RUNS = {  # arguments, pattern of the result, condition on the result (for scikit-learn's digits)
    "xor": ("--steps 200", r"accuracy (\S+)", lambda a: a == 1.0),
    "graph": ("--save {text}.svg", r": (\d+) boxes", lambda count: count == 9),
    "fuse_and_export": ("--steps 60", r"accuracy (\S+)", lambda a: a > 0.95),
    "custom_function": ("--steps 200", r"accuracy (\S+)", lambda a: a > 0.8),
    "custom_kernel": ("--repeats 1 --most 1000", r"differs from the reference by (\S+)", lambda error: error < 1e-6),
    "sparse_graph": ("--nodes 700 --epochs 40", r"accuracy (\S+)", lambda a: a > 0.4),
    "graph_convolution": ("--steps 40", r"accuracy (\S+)", lambda a: a > 0.85),
    "neural_ode": ("--steps 4 --points 40 --length 3", r"mean error (\S+)", lambda error: error < 3),
    "mixed_precision": ("--steps 20", r"accuracy (\S+)", lambda a: a > 0.3),
    "diffusion": ("--steps 40 --times 10", r"has its label: (\S+)", lambda share: 0 <= share <= 1),
    "ppo": ("--rounds 2 --epochs 1", r"100 games (\S+) of", lambda length: 8 < length <= 200),
    "toy2d": ("--steps 200 --kind diag", r"accuracy (\S+)", lambda a: a > 0.9),
    "mnist_classifier": ("--epochs 3", r"accuracy (\S+)", lambda a: a > 0.8),
    "mnist.cnn.train": ("--epochs 3 --truncate_test 200", r"accuracy (\S+)", lambda a: a > 0.8),
    "mnist.vit.train": (
        "--epochs 2 --truncate_train 300 --truncate_test 100 --embed 16 --num_heads 2 --num_layers 1 --patch_size 4 --batch_size 32",
        r"accuracy (\S+)",
        lambda a: 0.0 <= a <= 1.0,
    ),
    "autoencoder": ("--epochs 3", r"test loss (\S+)", lambda loss: loss < 0.06),
    "conv_autoencoder": ("--epochs 8", r"test loss (\S+)", lambda loss: loss < 0.07),
    "vae": ("--epochs 2", r"test loss (\S+)", lambda loss: loss < 35),
    "dcgan": ("--epochs 1", r"to real digits: (\S+)", lambda distance: 0 < distance < 8),
    "reinforce": ("--steps 4 --count 8", r"100 games (\S+) of", lambda length: 8 < length <= 200),
    "char_rnn": ("--steps 40 --width 32 --text {text}", r"validation loss (\S+)", lambda loss: loss < 3.0),
    "llama": (
        "--steps 30 --width 32 --layers 2 --context 32 --text {text}",
        r"validation loss (\S+)",
        lambda loss: loss < 3.2,
    ),
    "moe": (
        "--steps 30 --width 32 --layers 2 --context 32 --text {text}",
        r"validation loss (\S+)",
        lambda loss: loss < 3.2,
    ),
    "lora": (
        "--steps 20 --width 32 --layers 1 --context 32 --tune_steps 10 --batch_size 4 --text {text}",
        r"on Python (\S+),",
        lambda loss: loss < 4,
    ),
}
PROGRAMS_FOR_PYTORCH = {  # which use torchvision or torchaudio
    "detector": ("--steps 120", r"found: (\S+),", lambda share: share > 0.2),
    "keyword_spotting": ("--epochs 3 --count 240", r"accuracy (\S+)", lambda a: a > 0.6),
}


def run(*command, cwd=ROOT):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=env, timeout=120
    )


def test_every_example_is_run_here_and_listed():
    files = {p.relative_to(EXAMPLES) for p in EXAMPLES.rglob("*.py") if 'if __name__ == "__main__":' in p.read_text()}
    names = {".".join(p.with_suffix("").parts) for p in files}
    assert names - {"ddp_mnist"} == {*RUNS, *PROGRAMS_FOR_PYTORCH}  # that one needs a launcher
    listed = (EXAMPLES / "README.md").read_text()
    assert [str(p) for p in sorted(files) if f"`{p.as_posix()}" not in listed] == []


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    return path


@pytest.mark.parametrize("name", RUNS)
def test_example(name, text, tmp_path, capsys, monkeypatch):
    """The example reaches the expected result and saves a valid image."""
    arguments, pattern, good = RUNS[name]
    path = tmp_path / "x.png"
    if name not in ("graph", "fuse_and_export", "sparse_graph") and find_spec("matplotlib"):
        arguments += f" --save {path}"
    monkeypatch.setattr(sys, "argv", [name, *arguments.format(text=text).split()])
    import_module(f"examples.{name}").main()
    said = capsys.readouterr().out
    result = float(re.findall(pattern, said)[-1])
    assert good(result) or "synthetic digits" in said, said
    if "--save" in arguments and name != "graph":
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") > 200


@needs_packages
@pytest.mark.parametrize("name", PROGRAMS_FOR_PYTORCH)
def test_programs_for_pytorch(name, tmp_path):
    arguments, pattern, good = PROGRAMS_FOR_PYTORCH[name]
    option, path = ("--wav", tmp_path / "right.wav") if name == "keyword_spotting" else ("--save", tmp_path / "x.png")
    target = path.parent if option == "--wav" else path
    said = run_with_packages("-m", "mytorch", "-m", f"examples.{name}", *arguments.split(), option, target, cwd=ROOT)
    assert good(float(re.findall(pattern, said)[-1])), said
    assert path.read_bytes()[:4] in (b"\x89PNG", b"RIFF")


def test_examples_run_as_scripts(tmp_path):
    done = run(str(EXAMPLES / "xor.py"), "--steps", "1", cwd=tmp_path)
    assert "accuracy" in done.stdout, done.stderr
    done = run(str(EXAMPLES / "mnist" / "cnn" / "train.py"), "--help", cwd=tmp_path)
    assert "--truncate_train" in done.stdout, done.stderr


def test_digits_come_from_a_folder_or_are_drawn(tmp_path, rng):
    write_mnist(tmp_path, rng, sizes=(64, 32))
    done = run("-m", "examples.mnist.cnn.train", "--epochs", "1", "--data", str(tmp_path))
    assert "epoch 1" in done.stdout, done.stderr
    assert "data:" not in done.stdout
    done = run("-m", "examples.mnist.cnn.train", "--data", str(tmp_path / "nowhere"))
    assert "MNIST is not in" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    code = "import sys; sys.modules['sklearn.datasets'] = None; from examples.data import digit_tensors; print(digit_tensors()[0][0][0].shape)"
    done = run("-c", code)
    assert "synthetic digits" in done.stdout, done.stderr
    assert "(1, 28, 28)" in done.stdout.replace("[", "(").replace("]", ")")


@pytest.mark.parametrize("name", RUNS)
def test_help_shows_every_default(name, capsys, monkeypatch):
    module = import_module(f"examples.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit):
        module.main()
    words = " ".join(capsys.readouterr().out.split())
    flags = re.findall(r"(?:^| )(--\w+) (?=[A-Z{])", words.partition("options:")[2])
    assert flags
    for flag, then in zip(flags, [*flags[1:], None], strict=True):
        own = words.rpartition(f" {flag} ")[2].partition(f" {then} ")[0] if then else words.rpartition(f" {flag} ")[2]
        optional = flag in ("--text", "--data", "--save", "--truncate_train", "--truncate_test", "--patch_size")
        assert "(default: " in own or optional, (flag, own)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "xor --device tpu",
            "argument --device: expected a device of this machine, got tpu. Expected one of cpu, cuda",
        ),
        ("xor --steps 0", "argument --steps: expected at least 1, got 0; see --help."),
        ("llama --lr -1", "argument --lr: expected a number above 0, got -1; see --help."),
        ("llama --text /nope", "--text /nope: cannot read the file as UTF-8 text"),
        (
            "vae --save /nope/x.png",
            "argument --save: expected a file in an existing folder, got /nope/x.png. Create /nope first; see --help.",
        ),
        ("toy2d --kind spiral --points 7", "expected an even size for a spiral with two arms, got 7"),
        ("toy2d --colour red", "unrecognized arguments: --colour red; see --help."),
    ],
)
def test_errors_are_one_line(arguments, sentence):
    name, *rest = arguments.split()
    done = run("-m", f"examples.{name}", *rest)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sentence in done.stderr


@pytest.mark.parametrize("kind", ["spiral", "circle"])
def test_toy2d_shades_the_square_of_all_points(kind):
    import mytorch
    from examples.pictures import answers, bounds
    from examples.toy2d import letters
    from mytorch.vision.datasets import Toy2D

    data = Toy2D(kind, 100)
    low, high = bounds(data.points)
    assert low < data.points.min().item()
    assert data.points.max().item() < high

    def right(points):
        return points[:, :1] - 0.5

    assert (
        answers(right, data.points, 40)[:, -1].min().item() > 0.5 > answers(right, data.points, 40)[:, 0].max().item()
    )
    rows = [row.split(" ") for row in letters(right, data).splitlines()]
    assert {row[0] for row in rows} <= {".", "x", "o"}
    cells = ((data.points - low) * (20 / (high - low))).long()
    assert sum(cell in "xo" for row in rows for cell in row) == len(mytorch.unique(cells, dim=0))


def test_the_training_is_an_animation(tmp_path, capsys, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.gif"
    monkeypatch.setattr(sys, "argv", ["toy2d", "--steps", "6", "--save", str(path)])
    import_module("examples.toy2d").main()
    with image.open(path) as film:
        assert film.n_frames > 5


def checked_notebook(name):
    """Checks that a notebook is valid and contains the outputs of a run; returns its code cells and the printed text."""
    book = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    for cell in book["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            wanted |= {"execution_count", "outputs"}
        assert set(cell) == wanted
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kept = [output for cell in code for output in cell["outputs"]]
    assert any("data" in output for output in kept), "something is drawn"
    with contextlib.suppress(ImportError):
        import nbformat

        nbformat.validate(nbformat.from_dict(book))
    return code, "".join(line for output in kept for line in output.get("text", ()))


@pytest.mark.parametrize("name", ["autograd.ipynb", "digits.ipynb"])
def test_short_notebook(name):
    """The code runs from top to bottom, and its output has the form of the stored output."""
    if name == "digits.ipynb":
        pytest.importorskip("sklearn")
        pytest.importorskip("matplotlib")
    _, text = checked_notebook(name)
    program = f"""
import json, sys
sys.path.insert(0, {str(ROOT / "docs")!r})
from run_notebook import run
book = json.load(open({name!r}, encoding="utf-8"))
run(book, lambda source: source.replace("EPOCHS = 8", "EPOCHS = 1").replace("range(501)", "range(101)"))
print("".join(line for c in book["cells"] for o in c.get("outputs", ()) for line in o.get("text", ())))
"""
    done = run("-c", program, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    if name == "autograd.ipynb":
        assert done.stdout.count("True") == text.count("True") == 3
        assert "by hand" in done.stdout
        assert "[0.0, 1.0, 1.0, 0.0]" in text
    else:
        assert "digits to learn from" in done.stdout
        assert "epoch 8  loss 0." in text


def test_notebook():
    """Its code runs from top to bottom, and docs/run_notebook.py fills it in."""
    _, text = checked_notebook("tiny_gpt2.ipynb")
    assert "step 500  loss" in text
    assert "The whale " in text
    program = f"""
import json, sys
sys.path.insert(0, {str(ROOT / "docs")!r})
from run_notebook import run
book = json.load(open("tiny_gpt2.ipynb", encoding="utf-8"))
small = {{"STEPS = 500": "STEPS = 60", "width=96": "width=16", "400))": "5))", "text = read_text()": "text = 'The whale, ' * 400"}}
def change(source):
    for old, new in small.items():
        source = source.replace(old, new)
    return source
run(book, change)
print("".join(line for c in book["cells"] for o in c.get("outputs", ()) for line in o.get("text", ())))
"""
    done = run("-c", program, cwd=EXAMPLES)
    assert "equal to the library's: True" in done.stdout, done.stderr
    assert "validation loss" in done.stdout, done.stderr
