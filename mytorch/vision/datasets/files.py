"""Files of datasets: their sums, and getting them from where they are kept."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterable

from ...files.writing import atomic_file

TIMEOUT = 30.0  # seconds without an answer


def md5_of(path: str | os.PathLike) -> str:
    """The MD5 sum of a file, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_integrity(path: str | os.PathLike, md5: str | None = None) -> bool:
    """Whether a file is there and, if a sum is given, has it."""
    return os.path.isfile(path) and (md5 is None or md5_of(path) == md5)


def require_sum(path: str | os.PathLike, md5: str | None) -> None:
    """Raise unless the file has the sum.

    Raises:
        RuntimeError: it has another: the file is damaged or another one.
    """
    found = md5_of(path)
    if md5 is not None and found != md5:
        raise RuntimeError(
            f"{path} is damaged or not the file expected: its MD5 sum is {found}, not {md5}; remove it and get it again."
        )


def download(urls: Iterable[str], path: str | os.PathLike, md5: str | None = None) -> None:
    """Write to `path` what the first url that answers with the right sum gives.

    It is written under a temporary name and renamed, so `path` holds a whole file or none. Nothing is
    done if it is there already with the right sum.

    Args:
        urls: where it may be, tried in turn.
        path: the file to write.
        md5: the sum it must have.

    Raises:
        RuntimeError: none did; the message has every reason.
    """
    if check_integrity(path, md5):
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    reasons = []
    for url in urls:
        try:
            with atomic_file(path) as file:
                _fetch(url, file)
                file.flush()
                require_sum(file.name, md5)
            return
        except (OSError, urllib.error.URLError, RuntimeError) as error:
            reasons.append(f"{url}: {error}")
    raise RuntimeError(
        f"{os.path.basename(path)} could not be downloaded; check the network, or put the file at {path} yourself.\n  "
        + "\n  ".join(reasons)
    )


def _fetch(url, file):
    request = urllib.request.Request(url, headers={"User-Agent": "mytorch"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        while block := answer.read(1 << 20):
            file.write(block)
