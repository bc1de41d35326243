"""The documents: links, files, commands, targets and sources that they name exist, and the README's example prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import typer.main

from cloakwork.app.cli.main import app

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/**/*.md")])
PACKAGES = ("fhe_core", "models", "training", "api", "app")
FOLDERS = (*PACKAGES, "tests", "docs", "web", "website", "release")
SOURCES = (".py", ".pyi", ".cpp", ".hpp", ".def", ".cu", ".cuh")
FILE_NAME = r"[\w./-]*\w\.(?:py|pyi|cpp|hpp|def|cu|cuh|md|sh|cmake|ipynb)"
EXAMPLES = {
    "cloakwork/__init__.py",
    "fhe_core/x.py",
    "web/dist",
    "api/page",
}  # named as such, said not to exist, or made by a build


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(document: Path):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if ":" not in target and not (document.parent / target).exists()]
    assert missing == []


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_to_sections_lead_to_headings(document: Path):
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))
    pages = [(document.parent / page if page else document, anchor) for page, anchor in links]
    assert [f"{page.name}#{anchor}" for page, anchor in pages if anchor not in anchors(page)] == []


def files_of_the_repository() -> list[Path]:
    """Of the folders that hold sources and documents, and of the top; paths from there."""
    files = [path.relative_to(REPOSITORY) for path in REPOSITORY.iterdir() if path.is_file()]
    for folder in FOLDERS:
        for place, folders, names in os.walk(REPOSITORY / folder):
            folders[:] = [each for each in folders if each not in ("node_modules", "dist")]
            files += [Path(place, name).relative_to(REPOSITORY) for name in names]
    return files


FILES = files_of_the_repository()
# Every file and folder by the ends of its path: cpu/keyswitch.cpp may be named so, or keyswitch.cpp.
KNOWN = {
    "/".join(path.parts[i:j]) for path in FILES for j in range(1, len(path.parts) + 1) for i in range(j)
} | EXAMPLES


def unknown_files(text: str) -> list[str]:
    names = re.findall(rf"(?<![\w./{{}}<>*~$-]){FILE_NAME}(?![\w(/])", text)
    return [name for name in names if name.removeprefix("./") not in KNOWN]


@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)  # the changelog names what has gone
def test_files_that_documents_name_exist(document: Path):
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    quoted = re.findall(r"`([^`\n]+)`", text)
    assert [name for words in quoted for name in unknown_files(words)] == []
    folders = [
        word for words in quoted for word in words.split() if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w/-]*", word)
    ]
    assert [name for name in folders if name.rstrip("/") not in KNOWN] == []


def test_files_that_sources_name_exist():
    sources = [path for path in FILES if path.suffix in SOURCES and path.parts[0] in PACKAGES]
    assert len(sources) > 300
    unknown = {str(path): unknown_files((REPOSITORY / path).read_text(encoding="utf-8")) for path in sources}
    assert {path: names for path, names in unknown.items() if names} == {}


def test_make_targets_that_documents_name_exist():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    named = set(re.findall(r"`make ([a-z][a-z-]*)", text))
    assert {"test", "lint", "demo"} <= named <= targets


def test_commands_that_documents_name_exist():
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    quoted = {
        "test",
        "parameter",
        "threshold",
        "expansion",
    }  # texts that are hashed: "cloakwork test vector", "cloakwork parameter set"
    named = set()
    for document in DOCUMENTS:
        code = re.findall(r"```.*?```|`[^`\n]+`", document.read_text(encoding="utf-8"), flags=re.DOTALL)
        named |= set(re.findall(r"^`?cloakwork ([a-z][a-z-]*)", "\n".join(code), flags=re.MULTILINE)) - quoted
    assert {"demo", "serve"} <= named <= commands


def test_the_citation_is_of_this_project():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_pictures_have_text_that_is_read_aloud():
    pictures = sorted((REPOSITORY / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        names = [element.tag.split("}")[1] for element in root.iter()]
        assert root.get("role") == "img" and {"title", "desc", "text"} <= set(names)
        assert "image" not in names and "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8")


BIBLIOGRAPHY = REPOSITORY / "docs" / "bibliography.md"
KEY = r"\[([A-Z][A-Za-z+]+\d{1,4})\]"
CODE = ("fhe_core", "models", "training", "api", "app", "web/src")
SUFFIXES = {".py", ".cpp", ".hpp", ".def", ".cu", ".cuh", ".ts"}


def bibliography() -> dict[str, list[str]]:
    """By key: the files that its row names."""
    rows = re.findall(rf"^\| {KEY} \|[^|]*\|([^|]*)\|", BIBLIOGRAPHY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len({key for key, _ in rows}) == len(rows)
    return {key: re.findall(r"`([^`]+)`", files) for key, files in rows}


def code_files() -> list[Path]:
    return [path for folder in CODE for path in sorted((REPOSITORY / folder).rglob("*")) if path.suffix in SUFFIXES]


def cited_in(path: Path) -> set[str]:
    return set(re.findall(KEY, path.read_text(encoding="utf-8")))


def is_named(path: Path, names: list[str]) -> bool:
    return any(path.as_posix().endswith("/" + name) for name in names)


def test_keys_of_sources_are_in_the_bibliography():
    cited = set().union(*(cited_in(path) for path in [*code_files(), *DOCUMENTS]))
    assert sorted(cited - set(bibliography())) == []


def test_files_that_the_bibliography_names_cite_the_entry():
    citing = {path: cited_in(path) for path in [*code_files(), *DOCUMENTS] if path != BIBLIOGRAPHY}
    for key, names in bibliography().items():
        assert names, key
        for name in names:
            assert any(key in keys for path, keys in citing.items() if is_named(path, [name])), f"{key}: {name}"


def test_files_that_cite_an_entry_are_named_in_the_bibliography():
    entries = bibliography()
    missing = [(key, path.name) for path in code_files() for key in cited_in(path) if not is_named(path, entries[key])]
    assert missing == []


def test_source_lines_have_a_key():
    texts = {path: path.read_text(encoding="utf-8") for path in code_files()}
    lines = [(path.name, line) for path, text in texts.items() for line in re.findall(r"\bSource: .*", text)]
    assert lines
    assert [line for line in lines if not re.search(KEY, line[1])] == []


def readme_examples() -> list[str]:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_example(example: str, folder: Path) -> str:
    result = subprocess.run([sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_readme_example_prints_what_it_says(tmp_path: Path):
    example = readme_examples()[0]
    assert len([line for line in example.splitlines() if line.strip()]) < 10
    promised = re.search(r"# (\[.*\])$", example.rstrip())
    assert promised is not None
    assert run_example(example, tmp_path) == promised.group(1)


def test_the_readme_example_from_a_module_to_an_encrypted_prediction(tmp_path: Path):
    pytest.importorskip("torch")
    example = readme_examples()[1]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    printed = run_example(example, tmp_path)
    assert "bits of security" in printed
    last = printed[printed.rindex("[[") :]
    assert len(re.findall(r"-?\d+\.\d*(?:e-?\d+)?", last)) == 6
