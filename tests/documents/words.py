"""Checks the English of documents, docstrings and help texts (`make check`): `python tests/documents/words.py` prints file:line: says -> say.

It needs nothing but Python. What it looks for is in `RULES` and `LIMITS`; a new rule is a line there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]

PROSE: Final = "prose"  # sentences of documents
SUMMARY: Final = "summary"  # the first line of a docstring of a public function or method
VERDICT: Final = "verdict"  # the same, if the function does not return bool
HELP: Final = "help"  # texts of options and commands
EVERYWHERE: Final = frozenset({PROSE, SUMMARY, VERDICT, HELP})
CODE: Final = frozenset({SUMMARY, VERDICT, HELP})


@dataclass(frozen=True)
class Rule:
    """A phrase that is not English enough, where it may not stand, and what to say instead."""

    says: str  # a regular expression
    say: str
    where: frozenset[str] = EVERYWHERE


RULES: Final = (
    Rule(r"\bwithout a word\b", "silently"),
    Rule(r"\bso many\b(?! \w+ (?:as|that)\b)(?! as\b)", "a number: count, n, 'as many as ..'"),
    Rule(r"\btold so far\b", "leakage so far"),
    Rule(r"\bby itself alone\b", "alone"),
    Rule(r"\bfor who (?:names|asks|has|wants)\b", "opt-in; only when named"),
    Rule(r"^How an? .* is\.", "Show the status of .."),
    Rule(r"^Of the keys\.", "Parameter set of the keys."),
    Rule(r"\bSeen from the model\b", "Inferred from the model by default"),
    Rule(r"\bas in clear\b(?= on)", "as the clear model"),
    Rule(r"\bis made up\b", "is not valid"),
    Rule(r"\b(?:are|is) passed over\b", "skipped"),
    Rule(r"\bto whom it\b", "name the person or the program"),
    Rule(r"\bat most so\b", "at most n"),
    Rule(r"^Of ", "begin with a verb: Returns the .. of ..", frozenset({SUMMARY, HELP})),
    Rule(r"^(?:What|Where|How|Which|Whose|Who) ", "begin with a verb: Returns .., Checks ..", frozenset({SUMMARY})),
    Rule(r"^(?:What|Where|How|Whose|Who) ", "begin with a verb or a noun", frozenset({HELP})),
    Rule(r"^Whether ", "begin with a verb; 'Whether' only for what returns bool", frozenset({VERDICT})),
)


@dataclass(frozen=True)
class Limits:
    sentence: int = 40  # words
    block: int = 120  # words of a paragraph, an item, a cell
    documents: int = 75_000  # words of docs/ together
    readme: int = 6 * 1024  # bytes
    release: int = 10  # items of a release in CHANGELOG.md


LIMITS: Final = Limits()

ROOMS: Final = ("api", "fhe_core", "models")  # whose docstrings are read
OPTIONS: Final = "app/cli"  # whose help texts are read


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    says: str
    say: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says} -> {self.say}"


def phrases(path: Path, line: int, text: str, *kinds: str) -> Iterator[Finding]:
    """Yields what the rules for these kinds of text find in one."""
    for rule in RULES:
        if rule.where & set(kinds) and (match := re.search(rule.says, text)):
            yield Finding(path, line, match[0].strip(), rule.say)


def words(text: str) -> int:
    """Counts words: what stands between blanks and has a letter or a digit."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


# --- Documents -----------------------------------------------------------------------------------------------------------------------

_FENCE: Final = re.compile(r"^\s*```")
_ITEM: Final = re.compile(r"^\s*(?:[-*+]|\d+\.) ")
_ENDS: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(\d])")
_LINK: Final = re.compile(r"\]\([^)\s]*\)")


@dataclass(frozen=True)
class Block:
    """A paragraph, a heading, an item of a list or a cell of a table."""

    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    """Yields the blocks of a page, without code."""
    begun, parts, fenced = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if _FENCE.match(line):
            fenced, line = not fenced, ""
        elif fenced or (line.startswith("    ") and not parts):
            continue
        table = line.lstrip().startswith("|")
        if parts and (not line.strip() or table or _ITEM.match(line) or line.startswith("#")):
            yield Block(begun, " ".join(parts))
            parts = []
        if table:
            yield from (Block(number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line) if cell.strip(" |-:"))
        elif line.strip():
            begun = begun if parts else number
            parts.append(_ITEM.sub("", line).strip())


def sentences(text: str) -> list[str]:
    """Cuts a block at full stops, colons and semicolons before a new beginning."""
    return _ENDS.split(_LINK.sub("]", text))


def in_page(path: Path, text: str) -> Iterator[Finding]:
    """Yields phrases, long sentences and long blocks of a page."""
    for block in blocks(text):
        yield from phrases(path, block.line, block.text, PROSE)
        if (count := words(block.text)) > LIMITS.block:
            yield Finding(path, block.line, f"a block of {count} words", f"at most {LIMITS.block}")
        for sentence in sentences(block.text):
            if (count := words(sentence)) > LIMITS.sentence:
                said = f"a sentence of {count} words, '{sentence[:40]}..'"
                yield Finding(path, block.line, said, f"at most {LIMITS.sentence}")


def in_changelog(path: Path, text: str) -> Iterator[Finding]:
    """Yields releases with too many items."""
    for release in re.finditer(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE):
        if (count := len(re.findall(r"^- ", release[2], re.MULTILINE))) > LIMITS.release:
            line = text.count("\n", 0, release.start()) + 1
            yield Finding(path, line, f"{count} items of {release[1]}", f"at most {LIMITS.release}")


# --- Sources -------------------------------------------------------------------------------------------------------------------------

_FUNCTION: Final = re.compile(
    r"^ *(?:async )?def (?P<name>\w+)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?: -> (?P<result>[^\n]+?))?:(?: *#[^\n]*)?\n"
    r' +r?"""(?P<summary>[^\n]*?)(?:"""|$)',
    re.MULTILINE,
)
_HELP: Final = re.compile(r"""\bhelp=(?:\(\s*)?f?(["'])(?P<text>(?:(?!\1).)*)\1""")


def in_source(path: Path, text: str) -> Iterator[Finding]:
    """Yields phrases of the summaries of public functions."""
    for match in _FUNCTION.finditer(text):
        if not match["name"].startswith("_"):
            kinds = [SUMMARY] if "bool" in (match["result"] or "") else [SUMMARY, VERDICT]
            yield from phrases(path, text.count("\n", 0, match.start("summary")) + 1, match["summary"], *kinds)


def in_options(path: Path, text: str) -> Iterator[Finding]:
    """Yields phrases of help texts: those of options, and summaries of commands."""
    for match in _HELP.finditer(text):
        yield from phrases(path, text.count("\n", 0, match.start()) + 1, match["text"], HELP)


# --- All of it -----------------------------------------------------------------------------------------------------------------------


def findings(root: Path) -> Iterator[Finding]:
    pages = sorted(root.glob("docs/**/*.md"))
    texts = {page: page.read_text(encoding="utf-8") for page in (root / "README.md", *pages)}
    for page, text in texts.items():
        yield from in_page(page.relative_to(root), text)
    if (count := sum(words(texts[page]) for page in pages)) > LIMITS.documents:
        yield Finding(Path("docs"), 1, f"{count} words", f"at most {LIMITS.documents}")
    yield from in_changelog(Path("CHANGELOG.md"), (root / "CHANGELOG.md").read_text(encoding="utf-8"))
    for room in ROOMS:
        for source in sorted((root / room).rglob("*.py")):
            yield from in_source(source.relative_to(root), source.read_text(encoding="utf-8"))
    for source in sorted((root / OPTIONS).rglob("*.py")):
        yield from in_options(source.relative_to(root), source.read_text(encoding="utf-8"))


def main() -> int:
    found = list(findings(REPOSITORY))
    for each in found:
        sys.stdout.write(f"{each}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
