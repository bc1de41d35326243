"""Parquet files with a column of ciphertext objects: read by row groups, answered in parts, put together at the end.

The result of a table has its rows and other columns, `results` (binary) in place of the ciphertexts and `error` (text): one of the two is null.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloakwork.app.batch.errors import BatchError
from cloakwork.app.batch.pieces import part_name, result_name
from cloakwork.app.batch.store import Store

RESULTS: Final = "results"
ERROR: Final = "error"
SAMPLES: Final = "samples"  # of parts alone


@dataclass
class RowResults:
    """Results of some rows, in order: ciphertexts or the reasons why there is none, and the samples of each."""

    results: list[bytes | None] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def add(self, result: bytes | None, error: str | None, samples: int) -> None:
        self.results.append(result)
        self.errors.append(error)
        self.samples.append(samples)

    def to_bytes(self) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        stream = io.BytesIO()
        columns = {RESULTS: pa.array(self.results, pa.binary()), ERROR: pa.array(self.errors, pa.string())}
        samples = pa.array(self.samples, pa.int64())
        pq.write_table(pa.table({**columns, SAMPLES: samples}), stream, use_dictionary=False)
        return stream.getvalue()


@dataclass
class TableSummary:
    """Summary of a finished table: SHA-256 of every row's result in order, rows that have none with their reasons, and samples answered."""

    digests: list[bytes] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    samples: int = 0
    rows: int = 0

    def add(self, result: bytes | None, error: str | None, samples: int) -> None:
        if result is None:
            self.failures.append((self.rows, error or "no reason was kept"))
        else:
            self.digests.append(hashlib.sha256(result).digest())
            self.samples += samples
        self.rows += 1


class Table:
    """A Parquet file of a store. BatchError: it is none, or has not the column."""

    def __init__(self, store: Store, name: str, column: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        stream = store.reader(name)
        try:
            self._file: Any = pq.ParquetFile(stream)
            self._column = self._checked(column)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BatchError(
                f"{name}: expected a Parquet file; it is damaged or of another kind ({str(error)[:120]})"
            ) from None
        self.name, self.column = name, column
        self._held: tuple[int, Any] = (-1, None)

    def _checked(self, column: str) -> int:
        """Returns the number of the column among the file's."""
        import pyarrow as pa

        schema = self._file.schema_arrow
        if column not in schema.names:
            raise BatchError(
                f"expected a column '{column}' of ciphertexts, got {', '.join(schema.names)}; name it with --column"
            )
        if not (pa.types.is_binary(schema.field(column).type) or pa.types.is_large_binary(schema.field(column).type)):
            raise BatchError(f"column '{column}': expected binary, got {schema.field(column).type}")
        taken = {RESULTS, ERROR} & (set(schema.names) - {column})
        if taken:
            raise BatchError(f"columns {', '.join(sorted(taken))}: the results have columns of that name; rename them")
        paths = [self._file.schema.column(i).path for i in range(len(self._file.schema))]
        return paths.index(column)

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Rows and bytes of the column for each row group."""
        metadata = self._file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        return [(group.num_rows, group.column(self._column).total_uncompressed_size) for group in groups]

    def first_object(self) -> bytes | None:
        """Returns the object of the first row that has one, among the first few."""
        for batch in self._file.iter_batches(batch_size=16, columns=[self.column]):
            return next((value for value in batch.column(0).to_pylist() if value is not None), None)
        return None

    def objects(self, group: int, first: int, count: int) -> Iterator[bytes | None]:
        """Yields the objects of some rows of a row group, which stays in memory until another is asked for."""
        if self._held[0] != group:
            self._held = (group, self._file.read_row_group(group, columns=[self.column]).column(0))
        for value in self._held[1].slice(first, count):
            yield value.as_py()

    def finish(self, target: Store, rows_per_part: int) -> TableSummary:
        """Writes the result of the table from its parts."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        others = [name for name in self._file.schema_arrow.names if name != self.column]
        schema = pa.schema([self._file.schema_arrow.field(name) for name in others])
        schema = schema.append(pa.field(RESULTS, pa.binary())).append(pa.field(ERROR, pa.string()))
        summary = TableSummary()
        with tempfile.TemporaryDirectory(prefix="cloakwork-") as folder:
            path = Path(folder) / "table"
            with pq.ParquetWriter(path, schema) as writer:
                for group, (rows, _) in enumerate(self.groups):
                    parts = [_part(target, self.name, group, first) for first in range(0, rows, rows_per_part)]
                    results = pa.concat_tables(parts)
                    table = self._file.read_row_group(group, columns=others)
                    for name in (RESULTS, ERROR):
                        table = table.append_column(name, results.column(name))
                    writer.write_table(table)
                    _add(summary, results)
            target.write(result_name(self.name), path)
        return summary


def finished_table(store: Store, name: str) -> TableSummary:
    """Returns the summary of a result that is there. BatchError: it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cloakwork.app.batch.headers import result_samples

    summary = TableSummary()
    try:
        for batch in pq.ParquetFile(store.reader(name)).iter_batches(batch_size=64, columns=[RESULTS, ERROR]):
            for result, error in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                summary.add(result, error, 0 if result is None else result_samples(result))
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise BatchError(f"{name}: expected a table of results ({str(error)[:120]})") from None
    return summary


def _part(store: Store, table: str, group: int, first: int) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(io.BytesIO(store.read(part_name(table, group, first))))


def _add(summary: TableSummary, part: Any) -> None:
    for name_result, name_error, samples in zip(
        part.column(RESULTS), part.column(ERROR), part.column(SAMPLES), strict=True
    ):
        summary.add(name_result.as_py(), name_error.as_py(), samples.as_py())
