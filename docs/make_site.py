"""Add generated pages to the site: the API reference, source files, and documents from the root folder.

This module is a hook of mkdocs.yml. It also replaces links to files without a page by plain text.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

SOURCE = re.compile(r"`(mytorch/[\w/]+\.py)`")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
DOCUMENTS = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_config(config):
    """Adds the pages of the reference, and the gallery if it exists, to the navigation."""
    sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # the library itself, and make_reference.py
    import make_reference

    reference = ["reference/index.md", *make_reference.navigation()]
    next(part for part in config.nav if "Reference" in part)["Reference"] = reference
    if (ROOT / "docs" / "gallery.md").exists():
        config.nav.insert(2, {"Gallery": "gallery.md"})
    from mytorch.version import __version__

    config.copyright = f"mytorch {__version__}"
    return config


def on_files(files, config):
    """Adds the generated pages: the reference, notebooks, source files, CONTRIBUTING.md and CHANGELOG.md."""
    import make_notebooks
    import make_reference

    made = {f"reference/{name}": text for name, text in make_reference.pages().items()}
    made.update((f"source/{name}.md", source_page(name)) for name in {*core(), *make_reference.sources()})
    for page, name in DOCUMENTS.items():
        made[page] = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    made.update(make_notebooks.pages())
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def core():
    """Returns the files of the core, which reading.md lists."""
    return dict.fromkeys(SOURCE.findall((ROOT / "docs" / "reading.md").read_text(encoding="utf-8")))


def source_page(name):
    """Returns a page with a source file. The search ignores it, and each line has an anchor."""
    code = (ROOT / name).read_text(encoding="utf-8")
    return f'---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n# {name}\n\n````python linenums="1"\n{code}\n````\n'


def on_page_markdown(markdown, page, config, files):
    """Turns names of source files into links to their pages, and links to files without a page into text."""
    here = posixpath.dirname(page.file.src_uri)

    def to_source(match):
        target = f"source/{match[1]}.md"
        return (
            f"[{match[0]}]({posixpath.relpath(target, here or '.')})" if files.get_file_from_path(target) else match[0]
        )

    def to_page(match):
        target = match[2].partition("#")[0]
        if not target or "://" in target:
            return match[0]
        found = files.get_file_from_path(posixpath.normpath(posixpath.join(here, target)))
        if found is None:
            return match[1]
        named = (
            match[1].removeprefix("docs/") == target and found.page is not None
        )  # replace the name of a file by the title of its page
        return f"[{found.page.title}]({match[2]})" if named else match[0]

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.S | re.M)
    return "".join(p if i % 2 else SOURCE.sub(to_source, LINK.sub(to_page, p)) for i, p in enumerate(parts))
