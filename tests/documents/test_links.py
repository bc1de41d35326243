"""Links, files, make targets and sources that documents name exist: text against text, without an engine (`make check`)."""

from __future__ import annotations

import os
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/**/*.md")])
PACKAGES = ("fhe_core", "models", "training", "api", "app")
FOLDERS = (*PACKAGES, "tests", "docs", "web", "tools")
SOURCES = (".py", ".pyi", ".cpp", ".hpp", ".def", ".cu", ".cuh")
FILE_NAME = r"[\w./-]*\w\.(?:py|pyi|cpp|hpp|def|cu|cuh|md|sh|cmake|ipynb)"
EXAMPLES = {
    "cloakwork/__init__.py",
    "fhe_core/x.py",
    "web/dist",
    "api/page",
}  # named as such, said not to exist, or made by a build


def name_of(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose_of(document: Path) -> str:
    return re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)


# --- Links ---------------------------------------------------------------------------------------------------------------------------


def test_relative_links_lead_somewhere() -> None:
    links = [
        (document, target)
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(document))
        if ":" not in target
    ]
    assert len(links) > 300
    missing = [f"{name_of(page)}: {target}" for page, target in links if not (page.parent / target).exists()]
    assert missing == []


@cache
def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_to_sections_lead_to_headings() -> None:
    links = [
        (document, document.parent / page if page else document, anchor)
        for document in DOCUMENTS
        for page, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text_of(document))
    ]
    assert len(links) > 50
    broken = [f"{name_of(page)}: {to.name}#{anchor}" for page, to, anchor in links if anchor not in anchors(to)]
    assert broken == []


# --- Files and make targets ----------------------------------------------------------------------------------------------------------


def files_of_the_repository() -> list[Path]:
    """Of the folders that hold sources and documents, and of the top; paths from there."""
    files = [path.relative_to(REPOSITORY) for path in REPOSITORY.iterdir() if path.is_file()]
    for folder in FOLDERS:
        for place, folders, names in os.walk(REPOSITORY / folder):
            folders[:] = [each for each in folders if each not in ("node_modules", "dist")]
            files += [Path(place, name).relative_to(REPOSITORY) for name in names]
    return files


@cache
def known_files() -> set[str]:
    """Every file and folder by the ends of its path: cpu/keyswitch.cpp may be named so, or keyswitch.cpp."""
    paths = [path.parts for path in files_of_the_repository()]
    return {"/".join(parts[i:j]) for parts in paths for j in range(1, len(parts) + 1) for i in range(j)} | EXAMPLES


def unknown_files(text: str) -> list[str]:
    names = re.findall(rf"(?<![\w./{{}}<>*~$-]){FILE_NAME}(?![\w(/])", text)
    return [name for name in names if name.removeprefix("./") not in known_files()]


def test_files_that_documents_name_exist() -> None:
    unknown, any_folder = [], re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w/-]*")
    for document in DOCUMENTS:
        if document.name == "CHANGELOG.md":  # which names what has gone
            continue
        quoted = re.findall(r"`([^`\n]+)`", prose_of(document))
        unknown += [f"{name_of(document)}: {name}" for words in quoted for name in unknown_files(words)]
        folders = [word for words in quoted for word in words.split() if any_folder.fullmatch(word)]
        unknown += [f"{name_of(document)}: {each}" for each in folders if each.rstrip("/") not in known_files()]
    assert unknown == []


def test_files_that_sources_name_exist() -> None:
    sources = [path for path in files_of_the_repository() if path.suffix in SOURCES and path.parts[0] in PACKAGES]
    assert len(sources) > 300
    unknown = {str(path): unknown_files(text_of(REPOSITORY / path)) for path in sources}
    assert {path: names for path, names in unknown.items() if names} == {}


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(REPOSITORY / "Makefile"), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z][a-z-]*)", "\n".join(map(text_of, DOCUMENTS))))
    assert {"check", "test", "demo"} <= named <= targets


# --- What else documents repeat ------------------------------------------------------------------------------------------------------


def test_the_citation_is_of_this_project() -> None:
    project = tomllib.loads(text_of(REPOSITORY / "pyproject.toml"))["project"]
    citation = text_of(REPOSITORY / "CITATION.cff")
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_pictures_have_text_that_is_read_aloud() -> None:
    pictures = sorted((REPOSITORY / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        names = [element.tag.split("}")[1] for element in root.iter()]
        assert root.get("role") == "img" and {"title", "desc", "text"} <= set(names)
        assert "image" not in names and "prefers-color-scheme: dark" in text_of(picture)


# --- Sources: keys of the bibliography -----------------------------------------------------------------------------------------------

BIBLIOGRAPHY = REPOSITORY / "docs" / "reference" / "bibliography.md"
KEY = r"\[([A-Z][A-Za-z+]+\d{1,4})\]"
CODE = ("fhe_core", "models", "training", "api", "app", "web/src")
SUFFIXES = {".py", ".cpp", ".hpp", ".def", ".cu", ".cuh", ".ts"}


def bibliography() -> dict[str, list[str]]:
    """By key: the files that its row names."""
    rows = re.findall(rf"^\| {KEY} \|[^|]*\|([^|]*)\|", text_of(BIBLIOGRAPHY), flags=re.MULTILINE)
    assert len({key for key, _ in rows}) == len(rows)
    return {key: re.findall(r"`([^`]+)`", files) for key, files in rows}


@cache
def code_files() -> list[Path]:
    return [path for folder in CODE for path in sorted((REPOSITORY / folder).rglob("*")) if path.suffix in SUFFIXES]


def cited_in(path: Path) -> set[str]:
    return set(re.findall(KEY, text_of(path)))


def is_named(path: Path, names: list[str]) -> bool:
    return any(path.as_posix().endswith("/" + name) for name in names)


def test_keys_of_sources_are_in_the_bibliography() -> None:
    cited = set().union(*(cited_in(path) for path in [*code_files(), *DOCUMENTS]))
    assert sorted(cited - set(bibliography())) == []


def test_files_that_the_bibliography_names_cite_the_entry() -> None:
    citing = {path: cited_in(path) for path in [*code_files(), *DOCUMENTS] if path != BIBLIOGRAPHY}
    for key, names in bibliography().items():
        assert names, key
        for name in names:
            assert any(key in keys for path, keys in citing.items() if is_named(path, [name])), f"{key}: {name}"


def test_files_that_cite_an_entry_are_named_in_the_bibliography() -> None:
    entries = bibliography()
    missing = [(key, path.name) for path in code_files() for key in cited_in(path) if not is_named(path, entries[key])]
    assert missing == []


def test_source_lines_have_a_key() -> None:
    lines = [(path.name, line) for path in code_files() for line in re.findall(r"\bSource: .*", text_of(path))]
    assert lines
    assert [line for line in lines if not re.search(KEY, line[1])] == []
