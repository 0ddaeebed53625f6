"""`torch.hub`, as far as it goes without PyTorch's repositories of models: files by their address, and local `hubconf.py`s."""

import importlib.util
import os
import re
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from ..files.writing import atomic_file

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the sum in a file's name
_chosen = []


def get_dir():
    """Where files are kept: what `set_dir` said, `$TORCH_HOME/hub`, or `~/.cache/mytorch/hub`."""
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "mytorch")
    return _chosen[-1] if _chosen else os.path.join(os.path.expanduser(home), "hub")


def set_dir(d):
    """Keep files in `d`."""
    _chosen.append(os.path.expanduser(d))


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Download `url` to the path `dst`, which is there only once it is complete.

    Args:
        url: where it is.
        dst: the path to write.
        hash_prefix: first hexadecimal digits of its SHA-256.
        progress: show a bar.

    Raises:
        RuntimeError: its SHA-256 does not begin with hash_prefix.
    """
    import hashlib  # rarely used

    dst, digest = os.path.expanduser(dst), hashlib.sha256()
    with atomic_file(dst) as file, urllib.request.urlopen(url) as source:
        while chunk := source.read(1 << 20):
            file.write(chunk)
            digest.update(chunk)
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=True
):
    """What `load` finds in the file at `url`, which is downloaded unless it lies in `model_dir` (`get_dir()/checkpoints`).

    Args:
        url: where it is.
        model_dir: folder to keep it in.
        map_location: as in `load`.
        progress: show a bar while downloading.
        check_hash: the file's name ends in -HASH, which must fit.
        file_name: name to keep it under.
        weights_only: as in `load`.
    """
    from ..serialization import load as load_file  # what few programs use is imported when it is asked for

    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.exists():
        prefix = path.stem.rpartition("-")[2] if check_hash and "-" in path.stem else None
        download_url_to_file(url, path, prefix, progress)
    return load_file(path, map_location=map_location, weights_only=weights_only)


def _entries(repo_or_dir, source):
    if source != "local":
        raise NotImplementedError(
            f"torch.hub: {repo_or_dir!r} is a repository of PyTorch code on {source}, which mytorch does not download and run; "
            "clone it and give its folder with source='local'."
        )
    spec = importlib.util.spec_from_file_location("hubconf", os.path.join(repo_or_dir, "hubconf.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_")}


def load(repo_or_dir, model, *args, source="github", **kwargs):
    """The entry `model` of the `hubconf.py` in a local folder, called with the arguments.

    Raises:
        NotImplementedError: source is not "local".
    """
    return _entries(repo_or_dir, source)[model](*args, **kwargs)


def list(github, source="github", **kwargs):
    """The names of the entries of the `hubconf.py` in a local folder."""
    return [*_entries(github, source)]


def help(github, model, source="github", **kwargs):
    """The docstring of an entry of the `hubconf.py` in a local folder."""
    return _entries(github, source)[model].__doc__
