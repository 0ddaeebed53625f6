"""`torch.hub`: files by URL, and local `hubconf.py` files. PyTorch's model repositories are not supported."""

import importlib.util
import os
import re
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from tqdm import tqdm  # noqa: F401 (`utils.model_zoo` has it)

from ..arrays.errors import warn
from ..files.writing import atomic_file

TIMEOUT = 60  # seconds without a byte after which a download fails
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # SHA-256 in a file's name
_chosen = []


def _get_torch_home():
    """Return the folder of downloaded files: `$TORCH_HOME`, or `~/.cache/mytorch`."""
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "mytorch")
    return os.path.expanduser(home)


def get_dir():
    """Returns the cache folder: the value of `set_dir`, `$TORCH_HOME/hub`, or `~/.cache/mytorch/hub`."""
    return _chosen[-1] if _chosen else os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    """Sets the cache folder to `d`."""
    _chosen.append(os.path.expanduser(d))


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to an unencrypted protocol."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise OSError(f"{req.full_url} redirects to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Downloads a file. An interrupted download leaves no partial file at `dst`.

    Args:
        url: URL of the file.
        dst: path to write.
        hash_prefix: first hexadecimal digits of the SHA-256.
        progress: show a progress bar.

    Raises:
        OSError: if the download fails, or no byte arrives for 60 seconds.
        RuntimeError: if the SHA-256 does not start with hash_prefix.
    """
    import hashlib  # rarely used

    dst, digest = os.path.expanduser(dst), hashlib.sha256()
    opener = urllib.request.build_opener(_Redirect)
    with atomic_file(dst) as file, opener.open(url, timeout=TIMEOUT) as source:
        while chunk := source.read(1 << 20):
            file.write(chunk)
            digest.update(chunk)
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=True
):
    """Loads the file at a URL, which is downloaded if it is missing in `model_dir` (`get_dir()/checkpoints`).

    Args:
        url: URL of the file.
        model_dir: folder of the file.
        map_location: see `load`.
        progress: show a progress bar.
        check_hash: compare the SHA-256 with the hash in the file name (name-HASH.ext). A name without a hash gives a warning.
        file_name: name of the local file.
        weights_only: see `load`.
    """
    from ..files.serialization import load as load_file  # imported on first use

    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.exists():
        prefix = None
        if check_hash:
            match = HASH_REGEX.search(path.name)
            prefix = match[1] if match else None
            if not prefix:
                warn(
                    f"load_state_dict_from_url: check_hash=True has no effect, because the name {path.name} has no hash."
                )
        download_url_to_file(url, path, prefix, progress)
    return load_file(path, map_location=map_location, weights_only=weights_only)


def _entries(repo_or_dir, source):
    if source != "local":
        raise NotImplementedError(
            f"torch.hub: expected source='local', got {source!r} for {repo_or_dir!r}; mytorch does not download and run PyTorch "
            "code. Clone the repository and pass its folder with source='local'."
        )
    spec = importlib.util.spec_from_file_location("hubconf", os.path.join(repo_or_dir, "hubconf.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_")}


def load(repo_or_dir, model, *args, source="github", **kwargs):
    """Calls the entry `model` of the `hubconf.py` in a local folder.

    Raises:
        NotImplementedError: if source is not "local".
    """
    return _entries(repo_or_dir, source)[model](*args, **kwargs)


def list(github, source="github", **kwargs):
    """Returns the names of the entries of the `hubconf.py` in a local folder."""
    return [*_entries(github, source)]


def help(github, model, source="github", **kwargs):
    """Returns the docstring of an entry of the `hubconf.py` in a local folder."""
    return _entries(github, source)[model].__doc__
