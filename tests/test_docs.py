"""The documents: relative links lead somewhere, sources are in the bibliography, and the README's example prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(document: Path):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if ":" not in target and not (document.parent / target).exists()]
    assert missing == []


BIBLIOGRAPHY = REPOSITORY / "docs" / "bibliography.md"
KEY = r"\[([A-Z][A-Za-z+]+\d{1,4})\]"
CODE = ("fhe_core", "models", "training", "api", "app")
SUFFIXES = {".py", ".cpp", ".hpp", ".cu", ".cuh"}


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
