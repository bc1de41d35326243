"""The notebooks run from top to bottom, and are committed without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from cloakwork.training.cifar10_data import has_cifar10

FOLDER = Path(__file__).resolve().parents[3] / "app" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {
    "cifar10": ["PIL"],
    "compile_your_model": ["torch"],
    "integer_network": ["onnxruntime", "sklearn", "torch"],
    "nearest_neighbours": ["sklearn"],
    "train_your_network": ["torch"],
    "trees": ["sklearn"],
    "two_hospitals": ["sklearn"],
}


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for needed in NEEDS.get(path.stem, []):
        pytest.importorskip(needed)
    if path.stem == "cifar10" and not has_cifar10():
        pytest.skip("no CIFAR-10: set CLOAKWORK_DATA to the folder that holds cifar10/")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("CLOAKWORK_DATA", os.environ.get("CLOAKWORK_DATA", str(tmp_path)))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert "bits of security" in printed(notebook)
    pictures = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs if "image/png" in output.get("data", {})
    ]  # fmt: skip
    assert pictures


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path):
    notebook = nbformat.read(path, as_version=4)
    assert all(
        cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code"
    )
