"""Files of datasets: MD5 sums and downloads."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterable

from ...files.writing import atomic_file

TIMEOUT = 30.0  # seconds without a response


def md5_of(path: str | os.PathLike) -> str:
    """Returns the MD5 sum of a file, in hexadecimal.

    Args:
        path: path of the file.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_integrity(path: str | os.PathLike, md5: str | None = None) -> bool:
    """Returns True if a file exists and has the MD5 sum.

    Args:
        path: path of the file.
        md5: expected sum; None accepts any file.
    """
    return os.path.isfile(path) and (md5 is None or md5_of(path) == md5)


def require_sum(path: str | os.PathLike, md5: str | None) -> None:
    """Raises an error if the file has another MD5 sum.

    Args:
        path: path of the file.
        md5: expected sum; None accepts any file.

    Raises:
        RuntimeError: if the file has another sum, because it is damaged or a different file.
    """
    found = md5_of(path)
    if md5 is not None and found != md5:
        raise RuntimeError(
            f"{path} is damaged or a different file: expected MD5 sum {md5}, got {found}. Delete it and download it again."
        )


def download(urls: Iterable[str], path: str | os.PathLike, md5: str | None = None) -> None:
    """Downloads a file from the first URL that provides it with the right MD5 sum.

    The file is written under a temporary name and renamed, so an interrupted download leaves no partial file. An existing
    file with the right sum is kept.

    Args:
        urls: URLs to try in order.
        path: path of the file.
        md5: expected sum; None accepts any file.

    Raises:
        RuntimeError: if no URL works; the message contains every reason.
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
        f"{os.path.basename(path)} could not be downloaded. Check the network, or save the file as {path}.\n  "
        + "\n  ".join(reasons)
    )


def _fetch(url, file):
    request = urllib.request.Request(url, headers={"User-Agent": "mytorch"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        while block := answer.read(1 << 20):
            file.write(block)
