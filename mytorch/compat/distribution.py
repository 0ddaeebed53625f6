"""Package metadata for `importlib.metadata`, of packages that mytorch replaces."""

import importlib.metadata


class Distribution(importlib.metadata.Distribution):
    """A distribution with only a name and a version."""

    def __init__(self, name, version):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        return path
