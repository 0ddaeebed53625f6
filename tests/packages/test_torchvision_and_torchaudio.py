"""The unmodified packages torchvision and torchaudio run on mytorch with the results that they have with PyTorch."""

import json

import numpy as np
import pytest

from tests.packages.environment import ROOT, needs_packages, run_with_packages

pytestmark = [pytest.mark.cpu_only, needs_packages]
EXPECTED = json.loads((ROOT / "tests/packages/expected.json").read_text())
# Cases that resize bytes. torchvision computes them in floats or, on processors with AVX2, in integers.
OF_BYTES = ("v2.Resize", "v2.RandomResizedCrop", "v2.ScaleJitter")


def difference(found, expected):
    """Returns the largest difference relative to the largest value of each result, or infinity for other shapes."""
    if [row[0] for row in found] != [row[0] for row in expected]:
        return float("inf")
    worst = 0.0
    for (shape, total, values), (_, wanted_total, wanted) in zip(found, expected, strict=True):
        if wanted:
            scale = max(np.abs(wanted).max(), wanted_total / max(np.prod(shape), 1), 1e-30)
            worst = max(worst, np.abs(np.subtract(values, wanted)).max() / scale)
            worst = max(worst, abs(total - wanted_total) / max(wanted_total, 1e-30))
    return worst


def differing(group):
    found = json.loads(run_with_packages(ROOT / "tests/packages/cases.py", "mytorch", group))[group]
    assert found.keys() == EXPECTED[group].keys()
    worst = {name: difference(found[name], expected) for name, expected in EXPECTED[group].items()}
    return {name: d for name, d in worst.items() if not d <= (0.02 if name.startswith(OF_BYTES) else 1e-4)}


def test_the_environment_has_no_torch():
    code = (
        "import importlib.metadata as m, importlib.util as u\n"
        "names = {d.metadata['Name'].lower() for d in m.distributions()}\n"
        "print(sorted(n for n in names if n.startswith(('torch', 'triton', 'nvidia'))), u.find_spec('torch'))"
    )
    assert run_with_packages("-c", code).strip() == "['torchaudio', 'torchvision'] None"


@pytest.mark.parametrize("group", ["ops", "transforms", "others", "audio"])
def test_results_are_pytorchs(group):
    assert not differing(group)


def test_models_have_torchvisions_outputs():
    """All networks that are not quantized: those of at least 30 million parameters are only constructed, on the meta device."""
    assert len(EXPECTED["models"]) == 109
    assert not differing("models")


def test_versions_and_files_are_the_packages_own():
    code = (
        "import mytorch; mytorch.install_as_torch()\n"
        "import importlib.metadata, torch, torchaudio, torchvision\n"
        "print(torchvision.__version__.split('+')[0], torchaudio.__version__.split('+')[0], importlib.metadata.version('torch'))\n"
        "assert 'site-packages' in torchvision.__file__ and 'site-packages' in torchaudio.__file__\n"
        "assert torch.ops.torchvision._cuda_version() == -1\n"
        "try:\n    torch.ops.load_library('mine/ops.so')\n"
        "except OSError as error:\n    print(error)\n"
        "x = torch.ones(2, 4, device='meta')\n"
        "out = torchvision.ops.roi_align(torch.ones(1, 2, 8, 8, device='meta'), torch.ones(3, 5, device='meta'), 3)\n"
        "print(tuple(out.shape), out.device)\n"
        "try:\n    torchvision.ops.nms(x, x[:, 0], 0.5)\n"
        "except RuntimeError as error:\n    print(error)\n"
        "x = torch.ones(1, 1, 8, 8, requires_grad=True)\n"
        "out = torchvision.ops.roi_align(x, torch.tensor([[0.0, 1, 1, 5, 5]]), 2)\n"
        "g = torch.autograd.grad((out**2).sum(), x, create_graph=True)[0]\n"
        "try:\n    g.sum().backward()\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    lines = run_with_packages("-c", code).splitlines()
    vision, audio, torch = lines[0].split()
    assert (vision, audio.rpartition(".")[0], torch) == ("0.28.0", "2.11", "2.13.0")
    assert "load_library: expected one of torchvision/_C" in lines[1]
    assert lines[2] == "(3, 2, 3, 3) meta"
    assert "get_ctx: expected tensors with values" in lines[3]
    assert "double backwards on roi_align not supported" in lines[4]
