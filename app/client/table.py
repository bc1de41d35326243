"""Samples in text files: a table with or without named columns, as the client specification takes it."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import ShapeError

MOST_BYTES: Final = 1 << 28  # of a file
_MISSING: Final = ("", "?", "na", "nan", "null")


class Table:
    """Cells [samples, columns]: float64, or object where a column holds text. `columns` are the names, None without a header."""

    def __init__(self, cells: NDArray[Any], columns: tuple[str, ...] | None) -> None:
        self._cells = cells
        self.columns = columns

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, rows: slice) -> Table:
        return Table(self._cells[rows], self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cells.shape

    @property
    def ndim(self) -> int:
        return self._cells.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._cells, dtype=dtype, copy=copy)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Returns arrays [samples, ..] by name from a .npz file (`numpy.savez`): the samples of a model of several inputs.

    Raises:
        ShapeError: no such file, or arrays of something else than numbers.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ShapeError(f"{path}: expected at most {MOST_BYTES >> 20} MiB; score it in several files")
    try:
        with np.load(path, allow_pickle=False) as file:
            _check_size(path, file)
            arrays = {name: file[name] for name in file.files}
    except (
        ValueError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        AttributeError,
        TypeError,
        NotImplementedError,
    ) as error:
        raise ShapeError(
            f"{path}: expected a .npz file of arrays of numbers; it holds something else or is damaged"
        ) from error
    wrong = [name for name, array in arrays.items() if array.dtype.kind not in "biuf" or array.ndim == 0]
    if wrong or not arrays:
        what = f"'{wrong[0]}' is none" if wrong else "it has none"
        raise ShapeError(f"{path}: expected arrays of numbers [samples, ..] by name; {what}")
    return arrays


def _check_size(path: Path, file: Any) -> None:
    """Checks that what a compressed file unfolds to is bounded."""
    if sum(member.file_size for member in file.zip.infolist()) > MOST_BYTES:
        raise ShapeError(f"{path}: expected at most {MOST_BYTES >> 20} MiB of numbers; score it in several files")


def read_samples(path: Path, header: bool | None = None) -> Table:
    """Reads a .npy file of numbers, or text with commas, semicolons or tabs and a first line of names if there are any.

    Empty cells and "?" are missing values (NaN).

    Args:
        header: whether the first line has names; None: it has when no cell of it is a number.

    Raises:
        ShapeError: no samples, lines of different lengths, a file that is no table; names the line. Without `header` also a first line that
            may be either: of text above columns of nothing but text, or of the numbers 0, 1, 2, ..
    """
    if path.stat().st_size > MOST_BYTES:
        raise ShapeError(f"{path}: expected at most {MOST_BYTES >> 20} MiB; score it in several files")
    if path.suffix == ".npy":
        try:
            return Table(np.load(path, allow_pickle=False), None)
        except (ValueError, EOFError, OverflowError, MemoryError) as error:
            raise ShapeError(
                f"{path}: expected a .npy file of numbers; it holds something else or is damaged"
            ) from error
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(_lines(path, stream.read()))
    except UnicodeDecodeError as error:
        raise ShapeError(f"{path}: expected text in UTF-8 (or a .npy file); it holds something else") from error
    if not lines:
        raise ShapeError(f"{path}: expected at least one sample, got an empty file")
    if header is None:
        header = _has_names(path, lines)
    names = tuple(cell.strip() for cell in lines[0][1]) if header else None
    rows = lines[1:] if header else lines
    if not rows:
        raise ShapeError(f"{path}: expected at least one sample after the line of names, got none")
    width = len(lines[0][1])
    for number, cells in rows:
        if len(cells) != width:
            raise ShapeError(
                f"{path}, line {number}: expected {width} columns as in line {lines[0][0]}, got {len(cells)}"
            )
    return Table(_typed([cells for _, cells in rows]), names)


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields numbered lines that hold something."""
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ShapeError(f"{path}, line {reader.line_num}: {error}") from error


def _has_names(path: Path, lines: list[tuple[int, list[str]]]) -> bool:
    """Raises ShapeError where either guess could lose a sample, or make one of a line of names."""
    first, others = [cell.strip() for cell in lines[0][1]], [cells for _, cells in lines[1:]]
    counts = [str(number) for number in range(len(first))]
    if len(first) > 1 and first == counts and others:
        raise ShapeError(
            f"{path}, line {lines[0][0]}: the cells 0, 1, 2, .. may be names of columns or a sample; say --header or --no-header"
        )
    if any(_is_number(cell) for cell in first):
        return False
    if others and not any(_is_number(cell) for cells in others for cell in cells):
        raise ShapeError(
            f"{path}, line {lines[0][0]}: all cells of the file are text, so that this may be names of columns or a sample; say --header or "
            "--no-header"
        )
    return True


def _typed(rows: list[list[str]]) -> NDArray[Any]:
    """Returns columns of numbers as numbers; any other column as text."""
    columns = [_column(column) for column in zip(*rows, strict=True)]
    if all(column.dtype.kind == "f" for column in columns):
        return np.stack(columns, axis=1)
    cells = np.empty((len(rows), len(columns)), dtype=object)
    for i, column in enumerate(columns):
        cells[:, i] = column
    return cells


def _column(cells: tuple[str, ...]) -> NDArray[Any]:
    stripped = [cell.strip() for cell in cells]
    try:
        return np.array([float("nan") if cell.lower() in _MISSING else float(cell) for cell in stripped])
    except ValueError:
        return np.array(stripped, dtype=object)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
