"""Pieces of work: a ciphertext file, some rows of a table, or the last step of a table whose rows are done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

RESERVED: Final = "_cloakwork_"  # names that begin so are ours, and hidden from readers of Parquet folders
PARTS: Final = f"{RESERVED}parts"
TABLE: Final = ".parquet"

Plain: TypeAlias = tuple[str, str, int, int, int]
"""A piece as it travels: kind, name, row group, first row in it, count of rows."""


class PieceKind(StrEnum):
    FILE = "file"
    ROWS = "rows"
    FINISH = "finish"  # of a table


@dataclass(frozen=True)
class Piece:
    """A piece of work. samples: by its header; of rows an estimate from their bytes. attempts: how often its worker was lost."""

    kind: PieceKind
    name: str
    samples: int
    byte_count: int
    group: int = 0
    first: int = 0
    count: int = 0
    attempts: int = 0

    def plain(self) -> Plain:
        return (self.kind.value, self.name, self.group, self.first, self.count)

    def again(self) -> Piece:
        return replace(self, attempts=self.attempts + 1)

    @property
    def part(self) -> str:
        """The object that holds the results of rows until the table is finished."""
        return part_name(self.name, self.group, self.first)


def part_name(table: str, group: int, first: int) -> str:
    return f"{PARTS}/{table}/{group:06d}-{first:012d}{TABLE}"


def is_table(name: str) -> bool:
    return name.endswith(TABLE)


def result_name(name: str) -> str:
    """Names the result of an input: `a.bin` -> `a.bin.results`, `b.parquet` -> `b.results.parquet`"""
    return f"{name.removesuffix(TABLE)}.results{TABLE}" if is_table(name) else f"{name}.results"
