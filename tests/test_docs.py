"""The documents: relative links lead somewhere, and the README's example prints what it says."""

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
