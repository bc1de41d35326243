"""The notebooks as pages: text as it is, code with what it printed and drew when they were run last."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
NOTEBOOKS: Final = tuple(sorted((ROOT / "app" / "notebooks").glob("*.ipynb")))
_PICTURES: Final = {"image/svg+xml": "svg", "image/png": "png"}
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def notebook_pages() -> Iterator[tuple[str, str | bytes]]:
    """Pages and pictures, by path in the site."""
    for path in NOTEBOOKS:
        yield from _files(path)


def _files(path: Path) -> Iterator[tuple[str, str | bytes]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    pictures = 0
    for cell in cells:
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
        if cell["cell_type"] != "code" or not text:
            continue
        parts.append(_fenced(text, "python"))
        for output in cell["outputs"]:
            kind = next((kind for kind in _PICTURES if kind in output.get("data", {})), None)
            if kind is None:
                parts.append(_printed(output))
                continue
            name = f"{path.stem}-{pictures}.{_PICTURES[kind]}"
            pictures += 1
            data = "".join(output["data"][kind])
            yield f"notebooks/{name}", data if kind == "image/svg+xml" else base64.b64decode(data)
            parts.append(f"![What the cell draws]({name})")
    where = f"A notebook, with its output: `app/notebooks/{path.name}` of the repository."
    head, _, rest = "\n\n".join(part for part in parts if part).partition("\n")
    yield f"notebooks/{path.stem}.md", f"{head}\n\n*{where}*\n{rest}\n"


def _printed(output: Any) -> str:
    data = output.get("data", {})
    text = _COLOURS.sub("", "".join(output.get("text", data.get("text/plain", "")))).rstrip()
    return _fenced(text, "text") if text else ""


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"
