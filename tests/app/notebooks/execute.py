"""Runs notebooks from top to bottom and keeps what they show: python tests/app/notebooks/execute.py [NAME ..]

What would differ from run to run without saying anything is left out: warnings, progress bars, times of cells, what the machine is called.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[3] / "app" / "notebooks"
TIMEOUT_SECONDS = 300
_KEPT_METADATA = ("kernelspec", "language_info")
_KEPT_DATA = ("image/png", "text/plain", "text/html")


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """In a process of its own, with `folder` as the current one."""
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources=resources).execute()


def strip(notebook: nbformat.NotebookNode) -> None:
    """Outputs stay; what is noise goes."""
    kept = {name: notebook.metadata[name] for name in _KEPT_METADATA if name in notebook.metadata}
    kept["language_info"] = {"name": "python"}
    notebook.metadata = nbformat.from_dict(kept)
    for number, cell in enumerate(notebook.cells):
        cell["id"], cell.metadata = f"cell-{number:02}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [_stripped(each) for each in cell.outputs if each.get("name") != "stderr"]


def _stripped(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if "data" in output:
        output["data"] = {kind: value for kind, value in output["data"].items() if kind in _KEPT_DATA}
        if "image/png" in output["data"]:
            output["data"].pop("text/plain", None)  # the object's address
        output["metadata"] = {}
    return output


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path, began = FOLDER / f"{name}.ipynb", time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        strip(notebook)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        print(f"{name}: {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e3:.0f} kB", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
