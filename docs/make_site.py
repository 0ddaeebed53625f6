"""What mkdocs is given besides the pages of this folder (a hook of mkdocs.yml): the API reference, the sources of the core, and
the root's own documents; links to what no page shows become plain text.
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
    """Complete the navigation: the reference's pages, and the gallery where it has been made."""
    sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # the library itself, and make_reference.py
    import make_reference

    modules = [{title: f"reference/{path}.md"} for path, title in make_reference.titles().items()]
    next(part for part in config.nav if "Reference" in part)["Reference"] = ["reference/index.md", *modules]
    if (ROOT / "docs" / "gallery.md").exists():
        config.nav.insert(2, {"Gallery": "gallery.md"})
    return config


def on_files(files, config):
    """Add the pages that are made: the reference, the files that reading.md lists, CONTRIBUTING.md and CHANGELOG.md."""
    import make_reference

    made = {f"reference/{name}": text for name, text in make_reference.pages().items()}
    made.update((f"source/{name}.md", source_page(name)) for name in core())
    for page, name in DOCUMENTS.items():
        made[page] = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def core():
    """The files of the core, as reading.md lists them."""
    return dict.fromkeys(SOURCE.findall((ROOT / "docs" / "reading.md").read_text(encoding="utf-8")))


def source_page(name):
    """A source file as a page, which the search leaves out."""
    code = (ROOT / name).read_text(encoding="utf-8")
    return f'---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n# {name}\n\n````python linenums="1"\n{code}\n````\n'


def on_page_markdown(markdown, page, config, files):
    """Names of the core's files lead to their pages; links to files that have no page are text."""
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
        )  # a file's name: the page's title says more
        return f"[{found.page.title}]({match[2]})" if named else match[0]

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.S | re.M)
    return "".join(p if i % 2 else SOURCE.sub(to_source, LINK.sub(to_page, p)) for i, p in enumerate(parts))
