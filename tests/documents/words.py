"""Checks the English of documents, docstrings and help texts (`make check`): `python tests/documents/words.py` prints file:line: says -> say.

It needs nothing but Python. What it looks for is in `RULES` and `LIMITS`; a new rule is a line there.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

REPOSITORY: Final = Path(__file__).resolve().parents[2]

PROSE: Final = "prose"  # sentences of documents
EMPTY_NAMES: Final = frozenset(
    ["asked", "found", "made", "own", "said", "told", "wanted", "wishes"]
)  # of locals and arguments

SUMMARY: Final = "summary"  # the first line of a docstring of a public function or method that is no property
VERDICT: Final = "verdict"  # the same, if the function does not return bool
PRIVATE: Final = "private"  # of any other function, and of properties
TITLE: Final = "title"  # of a class or a module
HELP: Final = "help"  # texts of options and commands
MESSAGE: Final = "message"  # texts of exceptions
DOCSTRINGS: Final = frozenset({SUMMARY, VERDICT, PRIVATE, TITLE})
EVERYWHERE: Final = DOCSTRINGS | {PROSE, HELP, MESSAGE}


@dataclass(frozen=True)
class Rule:
    """A phrase that is not English enough, where it may not stand, and what to say instead."""

    says: str  # a regular expression
    say: str
    where: frozenset[str] = EVERYWHERE


_QUESTIONS: Final = "What|Where|How|Which|Whose|Who|Whoever"
_ARTICLES: Final = "The|A|An|One|All|Each|Every|Some|Those|These|It|Its|They|This|That|So|None|Nothing"
_PREPOSITIONS: Final = "By|For|With|Without|As|In|On|To|From|At|Between|Before|After|Until|When|While|Under|Over|Within"

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
    Rule(r"\bfile is made up\b", "is not valid"),
    Rule(r"\bmade up\b", "is not valid", frozenset({MESSAGE})),
    Rule(r"\b(?:are|is) passed over\b", "skipped"),
    Rule(r"\bto whom it\b", "name the person or the program"),
    Rule(r"\bat most so\b", "at most n"),
    Rule(r"^Of ", "begin with a verb or a noun: Returns the .. of .., The .. of ..", frozenset({SUMMARY, TITLE, HELP})),
    Rule(rf"^(?:{_QUESTIONS}) ", "begin with a verb: Returns .., Checks ..", frozenset({SUMMARY})),
    Rule(rf"^(?:{_QUESTIONS}|Whether|Why) ", "name the thing: The .. of .., A check that ..", frozenset({TITLE})),
    Rule(r"^(?:What|Where|How|Whose|Who) ", "begin with a verb or a noun", frozenset({HELP})),
    Rule(r"^Whether ", "begin with a verb; 'Whether' only for what returns bool", frozenset({VERDICT})),
    Rule(rf"^(?:{_ARTICLES}|{_PREPOSITIONS}) ", "begin with a verb: Returns the .., Makes a ..", frozenset({SUMMARY})),
    Rule(r"^\[", "begin with a verb: Returns [..]", frozenset({SUMMARY})),
    Rule(rf"^(?:{_PREPOSITIONS}) ", "name the thing: The .. of .., Options of ..", frozenset({TITLE})),
)


@dataclass(frozen=True)
class Limits:
    sentence: int = 40  # words
    block: int = 120  # words of a paragraph, an item, a cell
    documents: int = 75_000  # words of docs/ together
    readme: int = 6 * 1024  # bytes
    release: int = 10  # items of a release in CHANGELOG.md


LIMITS: Final = Limits()

ROOMS: Final = ("api", "app", "cloakwork", "fhe_core", "models", "training")  # whose docstrings are read
DIGESTED: Final = "fhe_core/tools"  # not read: stored measurements have digests of this text
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
    parts: list[str] = []
    begun, fenced = 0, False
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


def in_readme(path: Path, text: str) -> Iterator[Finding]:
    """Yields what pages are checked for, and the size."""
    yield from in_page(path, text)
    if (count := len(text.encode())) > LIMITS.readme:
        yield Finding(path, 1, f"{count} bytes", f"at most {LIMITS.readme}")


def in_changelog(path: Path, text: str) -> Iterator[Finding]:
    """Yields releases with too many items."""
    for release in re.finditer(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE):
        if (count := len(re.findall(r"^- ", release[2], re.MULTILINE))) > LIMITS.release:
            line = text.count("\n", 0, release.start()) + 1
            yield Finding(path, line, f"{count} items of {release[1]}", f"at most {LIMITS.release}")


# --- Sources -------------------------------------------------------------------------------------------------------------------------

_PROPERTIES: Final = frozenset({"property", "cached_property", "setter"})
_HELP: Final = re.compile(r"""\bhelp=(?:\(\s*)?f?(["'])(?P<text>(?:(?!\1).)*)\1""")


_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def in_source(path: Path, text: str) -> Iterator[Finding]:
    """Yields phrases of the first lines of docstrings, of modules, classes and functions, and of the texts of exceptions; names that say nothing."""
    tree = ast.parse(text)
    fields = {
        part.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
        if name in EMPTY_NAMES and node not in fields:  # names of fields are in files too
            yield Finding(path, node.lineno, name, "what it is: program, rows, ciphertexts, ..")
        if isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from phrases(path, part.lineno, part.value, MESSAGE)
        if isinstance(node, _Documented) and (docstring := ast.get_docstring(node, clean=False)):
            begun = len(docstring) - len(docstring.lstrip())
            line = node.body[0].lineno + docstring.count("\n", 0, begun)
            yield from phrases(path, line, docstring[begun:].splitlines()[0], *_kinds(node))


def _kinds(node: _Documented) -> list[str]:
    if isinstance(node, ast.Module | ast.ClassDef):
        return [TITLE]
    is_property = any(ast.unparse(each).rpartition(".")[2] in _PROPERTIES for each in node.decorator_list)
    if node.name.startswith("_") or is_property:
        return [PRIVATE]
    return [SUMMARY] if "bool" in ast.unparse(node.returns or ast.Constant(None)) else [SUMMARY, VERDICT]


def in_options(path: Path, text: str) -> Iterator[Finding]:
    """Yields phrases of help texts: those of options, and summaries of commands."""
    for match in _HELP.finditer(text):
        yield from phrases(path, text.count("\n", 0, match.start()) + 1, match["text"], HELP)


# --- All of it -----------------------------------------------------------------------------------------------------------------------


def findings(root: Path) -> Iterator[Finding]:
    """Yields what every check finds in the repository."""
    pages = sorted(root.glob("docs/**/*.md"))
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for page, text in texts.items():
        yield from in_page(page.relative_to(root), text)
    if (count := sum(map(words, texts.values()))) > LIMITS.documents:
        yield Finding(Path("docs"), 1, f"{count} words", f"at most {LIMITS.documents}")
    yield from in_readme(Path("README.md"), (root / "README.md").read_text(encoding="utf-8"))
    yield from in_changelog(Path("CHANGELOG.md"), (root / "CHANGELOG.md").read_text(encoding="utf-8"))
    for room in ROOMS:
        for source in sorted((root / room).rglob("*.py")):  # links of cloakwork/ are not followed
            if not source.is_relative_to(root / DIGESTED):
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
