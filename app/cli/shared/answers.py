"""Answers of models as text and files: an array, or arrays by the names of several outputs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import FailureError


def by_output(answers: Any, shown: Callable[[NDArray[Any]], Any]) -> Any:
    """Returns `shown` of the array, or of each one by name."""
    if isinstance(answers, dict):
        return {name: shown(array) for name, array in answers.items()}
    return shown(answers)


def save_answers(path: Path, answers: Any) -> None:
    """Saves a .npy file; of several outputs a .npz file of arrays by name."""
    check_answers_path(path, isinstance(answers, dict))
    plain = by_output(answers, lambda array: array if array.dtype.kind != "O" else array.astype(str))
    with path.open("wb") as stream:
        if not isinstance(plain, dict):
            np.save(stream, plain, allow_pickle=False)
            return
        with zipfile.ZipFile(stream, "w") as archive:  # numpy.savez takes names as keywords: not any name of an output
            for name, array in plain.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def check_answers_path(path: Path, several: bool) -> None:
    """Raises FailureError for a suffix that does not fit the number of outputs."""
    if several and path.suffix != ".npz":
        raise FailureError(f"{path}: the model has several outputs; expected a .npz file to write them to by name")
    if not several and path.suffix == ".npz":
        raise FailureError(f"{path}: the model has one output; expected a file of another kind, .npy for example")
