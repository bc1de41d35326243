"""Reads pages of documentation: the blocks of Markdown, the cells of notebooks. Nothing here imports cloakwork."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
MARKDOWN: Final = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
NOTEBOOKS: Final = sorted((REPOSITORY / "app" / "notebooks").glob("*.ipynb"))
PAGES: Final = [*MARKDOWN, *NOTEBOOKS]
SHELL: Final = ("sh", "bash")
LANGUAGES: Final = {"text", "python", "js", "json", "toml", "yaml", "mermaid", *SHELL}

_BLOCK: Final = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_SHOWN: Final = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REASON: Final = re.compile(r'notest="([^"]+)"')
_PROMISE: Final = re.compile(r"^\s*print\(.*\)  # (both )?(\[.*\])$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    words: str  # behind the language
    text: str
    shown: str = ""  # the block of text that follows: what this one prints

    @property
    def reason(self) -> str | None:
        """Why the block does not run here (```sh notest="a cluster")."""
        match = _REASON.fullmatch(self.words)
        return match and match[1]

    @property
    def runs(self) -> bool:
        return self.language in ("python", *SHELL) and self.reason is None

    @property
    def promises(self) -> list[str]:
        """What comments behind `print` say that it prints, if they say it in brackets."""
        return [f"{text} {text}" if both else text for both, text in _PROMISE.findall(self.text)]

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}, line {self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page from top to bottom; of a notebook its cells of code, whose lines count from the first cell."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        return _cells(page, text)
    read = []
    for match in _BLOCK.finditer(text):
        language, _, words = match["info"].partition(" ")
        shown = _SHOWN.match(text, match.end())
        line = text.count("\n", 0, match.start()) + 1
        read.append(Block(page, line, language, words, match["text"], shown[1] if shown else ""))
    return read


def _cells(page: Path, text: str) -> list[Block]:
    cells, line = [], 1
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            cells.append(Block(page, line, "python", "", code))
            line += code.count("\n") + 1
    return cells


def shows_what_it_prints(page: Path) -> bool:
    """Whether every Python block of the page is followed by what it prints, as in the guide."""
    return page.parent.name == "guide"
