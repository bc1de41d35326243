"""Samples read from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloakwork.app.client.table import read_samples
from cloakwork.fhe_core.errors import ShapeError


def write(folder: Path, text: str) -> Path:
    path = folder / "samples.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4.5\n",
        "a;b\n1;2\n3;4.5",
        "a\tb\r\n1\t2\r\n\r\n3\t4.5\r\n",
        '\ufeff"a", "b"\n1, 2\n3, 4.5\n',
    ],
)
def test_a_header_gives_the_columns_names(tmp_path: Path, text: str) -> None:
    table = read_samples(write(tmp_path, text))
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(np.asarray(table), [[1, 2], [3, 4.5]])


def test_without_a_header_the_columns_have_no_names(tmp_path: Path) -> None:
    table = read_samples(write(tmp_path, "1,2\n3,?\n"))
    assert table.columns is None
    np.testing.assert_array_equal(np.asarray(table), [[1, 2], [3, np.nan]])
    assert table[1:].shape == (1, 2)


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("red,small\nblue,large\n", ("red", "small"), 1),  # two samples, or one below names
        ("0,1,2\n5.1,3.5,1.4\n", ("0", "1", "2"), 1),  # as pandas writes a frame without names
    ],
)
def test_what_may_be_names_or_a_sample_has_to_be_said(
    tmp_path: Path, text: str, columns: tuple[str, ...], rows: int
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ShapeError, match="--header or --no-header"):
        read_samples(path)
    assert read_samples(path, True).columns == columns and len(read_samples(path, True)) == rows
    assert read_samples(path, False).columns is None and len(read_samples(path, False)) == rows + 1


def test_one_line_of_counted_numbers_is_a_sample(tmp_path: Path) -> None:
    assert np.asarray(read_samples(write(tmp_path, "0,1,2\n"))).tolist() == [[0, 1, 2]]
    assert len(read_samples(write(tmp_path, "0\n1\n"))) == 2


def test_a_column_of_text_stays_text(tmp_path: Path) -> None:
    cells = np.asarray(read_samples(write(tmp_path, "colour,size\nred,1\nblue,2\n")))
    assert cells.tolist() == [["red", 1.0], ["blue", 2.0]]


def test_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    assert read_samples(tmp_path / "x.npy").shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n", "after the line of names"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 columns"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        read_samples(write(tmp_path, text))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ShapeError, match="UTF-8"):
        read_samples(tmp_path / "x.csv")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ShapeError, match="numbers"):
        read_samples(tmp_path / "objects.npy")


def test_columns_of_true_and_false_are_numbers_as_in_pandas(tmp_path: Path) -> None:
    cells = np.asarray(read_samples(write(tmp_path, "plan,senior\nplus,True\nbasic,false\nplus,\n")))
    assert cells[:2, 1].tolist() == [1.0, 0.0] and np.isnan(cells[2, 1])
    mixed = np.asarray(read_samples(write(tmp_path, "a,b\n1,True\n2,maybe\n")))
    assert mixed[:, 1].tolist() == ["True", "maybe"]
