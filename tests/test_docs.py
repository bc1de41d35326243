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


def test_the_readme_example_prints_what_it_says():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) < 10
    promised = re.search(r"# (\[.*\])$", example.rstrip())
    assert promised is not None
    result = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == promised.group(1)
