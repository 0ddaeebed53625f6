"""The API reference: all modules and attributes have entries, entries link to their source, and internal names are absent."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import mytorch

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("reference")  # one process makes the pages, once


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("make_reference")


@pytest.fixture(scope="module")
def formulas(reference):
    return importlib.import_module("formulas")


@pytest.fixture(scope="module")
def pages(reference):
    return {name.removesuffix(".md"): text for name, text in reference.pages().items()}


MODULES = """nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.prune nn.utils.parametrizations optim optim.lr_scheduler
optim.swa_utils autograd autograd.forward_ad autograd.functional autograd.graph linalg fft special random quasirandom func amp cuda
distributed distributed.optim distributions utils utils.data utils.data.tokens utils.checkpoint vision.models vision.datasets
vision.transforms vision.ops vision.io models models.lora models.chat models.tokenizer accelerate accelerate.runs serialization
storage profiler arrays ops.dispatch.op""".split()  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_a_page(pages, module):
    assert module in pages
    assert f"]({module}.md)" in pages["index"]


def test_each_entry_has_a_docstring_and_a_link_to_its_source(pages):
    for page, text in pages.items():
        for entry in re.split(r"^(?=##+ `)", text, flags=re.M)[1:]:
            head = entry.splitlines()[0]
            body = re.split(r"^##", entry[2:], flags=re.M)[0]
            assert 'Source: <a href="../source/mytorch/' in body, (page, head)
            prose = re.sub(r"```.*?```|<p class=.*", "", body.partition("\n")[2], flags=re.S).strip()
            assert prose, f"{page}: {head} has no docstring"


def test_links_to_sources_are_lines_of_files_with_a_page(reference, pages):
    shown = set(reference.sources())
    for text in pages.values():
        for path, line in re.findall(r'href="\.\./source/([\w/.]+)\.html#__codelineno-0-(\d+)"', text):
            assert path in shown
            assert int(line) <= len((ROOT / path).read_text(encoding="utf-8").splitlines())


def test_an_op_links_to_its_definition(reference):
    path, line = reference.source(mytorch.nn.functional.gelu, "gelu")
    assert path == "mytorch/ops/activation.py"
    assert "gelu" in "".join((ROOT / path).read_text(encoding="utf-8").splitlines()[line - 1 : line + 1])


def test_names_that_are_not_part_of_the_api_are_absent(pages):
    text = "\n".join(pages.values())
    for name in ("assert_int_or_pair", "for_each_group", "symeig", "generator_for"):
        assert not re.search(rf"^##+ `(\w+\.)*{name}`", text, re.M), name
    assert not re.search(r"^##+ `\w+_with_indices`", text, re.M)
    assert "mytorch.arrays.devices" not in text


def test_the_attributes_of_a_tensor_have_entries(pages):
    names = "grad shape dtype device T mT H data grad_fn is_leaf requires_grad ndim itemsize nbytes real imag names is_cuda".split()
    for name in names:
        assert f"### `Tensor.{name}` {{ #mytorch.Tensor.{name} }}" in pages["mytorch.Tensor"], name
        assert inspect.getdoc(getattr(mytorch.Tensor, name)), name


def test_dtypes_and_devices_have_a_page(pages):
    text = pages["mytorch.dtypes"]
    assert "{ #mytorch.dtype }" in text
    assert "{ #mytorch.device }" in text
    for name in ("bfloat16", "complex128", "uint64", "float8_e5m2"):
        assert f"| `mytorch.{name}` |" in text
    assert "| `mytorch.int64` | `mytorch.long` | 8 | signed integer |" in text


def test_each_name_of_mytorch_has_one_entry_or_link(reference, pages):
    shown = "\n".join(pages.values())
    for name in reference.public("mytorch"):
        entries = shown.count(f"{{ #mytorch.{name} }}") + shown.count(f'<span id="mytorch.{name}">')
        assert entries == 1, name


def test_pages_open_fast(pages):
    """A page with hundreds of entries takes seconds to open."""
    assert max(len(re.findall(r"^##+ `", text, re.M)) for text in pages.values()) < 300


def test_groups_start_with_a_table(reference, pages):
    for page in reference.GROUPS:
        assert "| Name | Summary" in pages[page].split("\n## ")[0], page
    assert "<math>" in pages["nn.activations"].split("\n## ")[0]


def test_signatures_have_short_types(reference):
    shown = reference.signature("Linear", mytorch.nn.Linear)
    assert "device=None" in shown
    assert "mytorch." not in shown
    assert "mytorch.arrays" not in str(inspect.signature(mytorch.nn.Linear))


def test_docstrings_become_markdown(reference):
    assert reference.escaped("x_i < 2~3, `a_<b>`") == r"x\_i &lt; 2~3, `a_<b>`"
    assert reference.escaped("**Formulas** of x**2 and **kwargs") == r"**Formulas** of x\*\*2 and \*\*kwargs"
    assert reference.markdown("    def f(x):\n\n        return x") == "```text\ndef f(x):\n\n    return x\n```"
    given = "Sum of x_i * y_i, `a_b` as it is.\n\n    python -m x\n\nArgs:\n    x, y: a\n        pair.\n    *more: others.\n\nExample:\n    >>> 1 < 2\n    True"
    wanted = r"""Sum of x\_i \* y\_i, `a_b` as it is.

```text
python -m x
```

**Args**

* `x, y`: a pair.
* `*more`: others.

```pycon
>>> 1 < 2
True
```"""
    assert reference.markdown(given) == wanted


def test_names_in_backticks_become_links(reference):
    assert reference.code("nn.Linear", "optim") == "[`nn.Linear`](nn.linear_layers.md#mytorch.nn.Linear)"
    assert reference.code("F.relu", "nn.activations").endswith(
        "(nn.functional.activations.md#mytorch.nn.functional.relu)"
    )
    assert reference.code("no_such_name", "nn") == "`no_such_name`"
    assert reference.code("dim", "nn", skip=("dim",)) == "`dim`"


def test_formulas_become_mathml(formulas):
    assert "<mfrac><mi>a</mi><mi>b</mi></mfrac>" in formulas.mathml("y = a / b")
    assert "<msup><mi>W</mi><mi>T</mi></msup>" in formulas.mathml("y = x W^T + b")
    assert "<msqrt>" in formulas.mathml("sqrt(var + eps)")
    assert "<munder><mo>∑</mo><mi>j</mi></munder>" in formulas.mathml("sum_j exp(x_j)")
    assert '<mo class="tall" stretchy="false">⌊</mo><mfrac>' in formulas.mathml("L_out = (L - 1) // stride + 1")
    assert "<mtext>reset gate</mtext>" in formulas.mathml("r = sigmoid(W x)    reset gate")
    for text in (
        "for x in y: z",
        "m = Layer(size=4)",
        "pip install x",
        "x.softmax(-1)",
        ">>> 1 + 1",
        "python -m x --help",
    ):
        assert formulas.mathml(text) is None
