"""`torch.torch_version`: a version that compares with texts and tuples."""

import re

_PARTS = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:[.\-_]?(a|alpha|b|beta|rc|c|pre|preview)[.\-_]?(\d*))?([.\-_]?dev\d*)?(?:\+([\w.]+))?"
)
_RANKS = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "rc": 2, "c": 2, "pre": 2, "preview": 2}


def _key(version):
    """Returns a value that orders versions as PEP 440 does."""
    if isinstance(version, (tuple, list)):
        version = ".".join(str(part) for part in version)
    found = _PARTS.fullmatch(str(version).strip().lower())
    if found is None:
        raise ValueError(f"TorchVersion: expected a version such as 2.13.0, got {version!r}.")
    release = [int(part) for part in found[1].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    if found[2]:
        stage = _RANKS[found[2]], int(found[3] or 0)
    else:
        stage = (-1, 0) if found[4] else (3, 0)
    local = (
        tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in re.split(r"[._-]", found[5])) if found[5] else ()
    )
    return release, stage, not found[4], local


def _comparison(name):
    def compare(self, other):
        try:
            return getattr(_key(self), name)(_key(other))
        except ValueError:
            return getattr(str, name)(self, str(other))

    compare.__name__ = compare.__qualname__ = name
    return compare


class TorchVersion(str):
    """A text with a version. It compares by version with other texts, and with tuples such as (2, 13)."""

    __hash__ = str.__hash__
    __lt__, __le__, __gt__, __ge__, __eq__ = map(_comparison, "__lt__ __le__ __gt__ __ge__ __eq__".split())
