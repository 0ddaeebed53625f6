"""Convert the notebooks of examples/ into pages of the site, with their outputs and images."""

import base64
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("autograd", "digits", "tiny_gpt2")


def pages():
    """Returns the pages and the images: {path below docs/: text or bytes}."""
    made = {}
    for name in NOTEBOOKS:
        book = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8"))
        made.update(page(name, book))
    return made


def page(name, book):
    """Converts one notebook: {path: text or bytes}, with the images in files next to the page."""
    parts, files = [], {}
    for cell in book["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                content, suffix = base64.b64decode("".join(data["image/png"])), "png"
            elif "image/svg+xml" in data:
                content, suffix = "".join(data["image/svg+xml"]), "svg"
            else:
                text = "".join(output.get("text", data.get("text/plain", ()))).rstrip()
                parts.append(f'```text title="Output"\n{text}\n```')
                continue
            file = f"{name}_{len(files) + 1}.{suffix}"
            files[f"notebooks/{file}"] = content
            parts.append(f"![Output of the code above]({file})")
    note = f"!!! note\n    This page shows the notebook `examples/{name}.ipynb` with the output of a run."
    text = "\n\n".join(parts) + "\n"
    text = re.sub(r"\A(# .*\n)", lambda match: f"{match[1]}\n{note}\n", text)  # below the title
    return {f"notebooks/{name}.md": text, **files}
