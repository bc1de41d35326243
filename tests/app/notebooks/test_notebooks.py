"""The notebooks are committed with what they show, and no more; tests/documents/test_pages.py runs them."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.documents.pages import NOTEBOOKS

MOST_CHARACTERS = 1_000_000


def pictures(notebook: Any) -> list[str]:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_what_it_shows_and_no_more(path: Path):
    """`tests/app/notebooks/execute.py` writes them so."""
    import nbformat  # two seconds, which every worker would pay

    from tests.app.notebooks.execute import strip

    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = printed(notebook)
    assert pictures(notebook) and ("bits of security" in shown or "bytes to send" in shown)
    text = path.read_text(encoding="utf-8")
    strip(notebook)
    assert text == nbformat.writes(notebook) + "\n"
    assert len(text) < MOST_CHARACTERS
    assert not re.search(r"/(root|home|tmp|work)/", text)


def test_a_binder_installs_what_exists():
    """`.binder` and `make notebooks` name the same extras, all of them ours; the script is one that bash reads."""
    root = Path(__file__).resolve().parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    script = (root / ".binder" / "postBuild").read_text(encoding="utf-8")
    (named,) = re.findall(r"'\.\[([a-z,]+)\]'", script)
    assert set(named.split(",")) <= set(extras)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert f"foreach name,{named.replace(',', ' ')}," in makefile
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=30).returncode == 0
    assert os.access(root / ".binder" / "postBuild", os.X_OK)
