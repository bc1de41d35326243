"""The server's half: a table of integers and the scores of encrypted queries against it, or against cells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.neighbours.cell_products import cell_products_noise
from cloakwork.fhe_core.levelled.neighbours.inner_products import products_noise
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.fhe_core.words import Progress
from cloakwork.models.fresh_keys import fresh_keys
from cloakwork.models.modes import How, check_how
from cloakwork.models.neighbours.building import CellCount, IndexOptions, built
from cloakwork.models.neighbours.cells import UNSEEN
from cloakwork.models.neighbours.client import Integers, Metric, NeighbourClient, Weights
from cloakwork.models.neighbours.index_format import write_index
from cloakwork.models.neighbours.quantise import SmallIntegers, row_ranges, score_factor
from cloakwork.models.neighbours.scorer import NeighbourScorer, PreparedTable, queries_at_once
from cloakwork.models.neighbours.sets import full_answer_bytes
from cloakwork.models.program.facts import OriginalFacts
from cloakwork.models.report import bytes_line, four_lines

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.client import LevelledClientKey


_SCORES_AT_ONCE: Final = 1 << 22  # in clear, as integers of 64 bits


@dataclass(frozen=True, eq=False)
class NeighbourIndex:
    """Rows as integers, and what a client has to know.

    The client learns the score of every row, or the centroids of cells and the scores in those that it asks for; from as many answers as there are
    features the table itself: it is the query that is private, not the table.

    Attributes:
        integers: [rows, features] int16.
        offsets: [rows], added to <w, x> or 2 <w, x>.
        input_bits: of the integers, with sign.
        agreement: share of rows of the table (400 at most) whose other rows decide for them as unrounded distances would; of a regressor, within
            a hundredth of the values' spread.
        original: how it answers as the user's own estimator; None: that was not asked.
    """

    client: NeighbourClient
    integers: SmallIntegers
    offsets: Integers
    input_bits: int
    agreement: float
    original: OriginalFacts | None = None
    device: str = "cpu"  # of predict(how="encrypted"); not kept in files

    @classmethod
    def build(
        cls,
        table: ArrayLike,
        target: ArrayLike,
        *,
        n_neighbors: int = 5,
        weights: Weights = "uniform",
        metric: Metric = "euclidean",
        classify: bool = True,
        input_bits: int | None = None,
        cells: CellCount = None,
        probes: int | None = None,
        progress: Progress = None,
    ) -> NeighbourIndex:
        """Quantises a table, as finely as some set has room for.

        Args:
            table: [rows, features], finite numbers of any dtype; beside it two bytes a number are held.
            target: [rows] labels or values.
            input_bits: of features, 2 to 12; None: 8, or as many as decide as unrounded distances do.
            cells: None: a query's answer has the scores of all rows, 7 bytes each and more. A number: the table is put into at least so many cells
                of rows near each other, and an answer has the rows of a few, at most 100,000 bytes as the query. "auto": cells where the answer
                would be longer than that.
            probes: how many cells a query asks for, a power of two up to 64; None: 8, or 4 where that has no room.
            progress: called with rows done and in all, from the start for every number of bits that is tried and for cells.

        Raises:
            CompileError: other shapes, numbers that are not finite, or no set for so many features or bits; too few cells for the rows.

        Warns:
            AccuracyWarning: integers decide otherwise than unrounded distances, or nearest rows lie in other cells than those that are asked for.
        """
        options = IndexOptions(
            n_neighbors=n_neighbors, weights=weights, metric=metric, classify=classify, input_bits=input_bits, cells=cells, probes=probes
        )  # fmt: skip
        index = built(np.asarray(table), np.asarray(target), options, progress)
        return cls(index.client, index.quantised.integers, index.quantised.offsets, index.bits, index.judged.agreement)

    # --- the server ---

    def scorer(
        self, keys: LevelledEvaluationKeys, threads: int = 1, device: str = "cpu", progress: Progress = None
    ) -> NeighbourScorer:
        """Makes what answers queries under one client's keys, on a device; the table is prepared once for all of them."""
        return NeighbourScorer(self.prepared(threads, device, progress), keys, threads, device)

    def prepared(self, threads: int = 1, device: str = "cpu", progress: Progress = None) -> PreparedTable:
        """Returns the table where it scores, for keys of any client."""
        return PreparedTable(self.client, self.integers, self.offsets, threads, device, progress)

    def save(self, path: PathLike) -> None:
        """Write the index to one file, which `cloakwork.load`, the command line and the service read."""
        write_index(path, self.client, self.integers, self.input_bits, self.agreement, self.original)

    # --- in clear ---

    def scores(self, queries: Integers) -> Integers:
        """Returns [samples, rows] of quantised queries: what encrypted ones decrypt to, `UNSEEN` of rows in cells that they do not ask for."""
        scores = self.exhaustive_scores(queries)
        if self.client.cells is not None:
            for row, query in zip(scores, queries, strict=True):
                row[~self.client.cells.scored(query)] = UNSEEN
        return scores

    def exhaustive_scores(self, queries: Integers) -> Integers:
        """Returns [samples, rows] of quantised queries, whatever cells rows are in."""
        products = np.empty((len(queries), len(self.integers)), dtype=np.int64)
        reals = queries.astype(np.float64)  # products of integers below 2^53 are exact
        for part in row_ranges(self.integers.shape):
            products[:, part] = reals @ self.integers[part].T.astype(np.float64)
        return score_factor(self.client.metric) * products + self.offsets

    def predict(
        self,
        x: ArrayLike,
        how: How = "clear",
        *,
        key: LevelledClientKey | None = None,
        threads: int = 1,
        device: str | None = None,
    ) -> NDArray[Any]:
        """Returns labels or values. "encrypted" encrypts every query, scores it and decrypts the answer, all in this process; "simulate" is as
        "clear", as nothing is approximate.

        Args:
            key: of the client, for "encrypted"; None: one is made.
            device: that scores, "cpu", "cuda" or "cuda:N". None: the one that it was compiled for.
        """
        check_how(how)
        queries = self.client.integers(x, refuse=True)
        if how != "encrypted":
            step = max(1, _SCORES_AT_ONCE // len(self.integers))
            parts = [queries[i : i + step] for i in range(0, len(queries), step)]
            decided = [self.client.decide(self.scores(part), part) for part in parts]
            return np.concatenate(decided) if decided else self.client.target[:0]
        device = device or self.device
        key = fresh_keys([self.client.parameters])[0] if key is None else getattr(key, "only", key)
        scorer = self.scorer(self.client.evaluation_keys(key), threads, device)
        decided, rows, at_once = [self.client.target[:0]], np.asarray(x), queries_at_once(device)
        for first in range(0, len(rows), at_once):
            part = queries[first : first + at_once]
            answers = scorer.score_all([self.client.encrypt(key, sample) for sample in rows[first : first + at_once]])
            scores = [self.client.scores(key, answer, query) for answer, query in zip(answers, part, strict=True)]
            decided.append(self.client.decide(np.stack(scores), part))
        return np.concatenate(decided)

    def __str__(self) -> str:
        report = self.report()
        accuracy = (
            f"as your model: {100 * self.agreement:.1f} % agreement" if self.original is None else self.original.text
        )
        seconds = "seconds for one sample: no forecast; 'cloakwork index query' measures them"
        return four_lines(
            accuracy, seconds, bytes_line(report["query_bytes"], report["answer_bytes"], None), report["client_learns"]
        )

    @property
    def details(self) -> str:
        """The report as text, a line for each fact. `str(index)` has four lines of it."""
        return "\n".join(f"{name}: {value}" for name, value in self.report().items())

    def report(self) -> dict[str, Any]:
        """Reports what it costs and how fine it is."""
        client = self.client
        parameters, features = client.parameters, self.integers.shape[1]
        size = parameters.polynomial_size
        if client.cells is None:
            blocks = -(-client.rows // size)
            query_bytes = 7 * size // 2 * client.level
            answer_bytes = full_answer_bytes(parameters.set.name, client.rows, client.answer_level)
            learned, of_cells = "the score of every row", {}
        else:
            blocks, levels = client.cells.layout.blocks, client.cells.levels
            query_bytes, answer_bytes = levels.query_bytes(parameters), levels.answer_bytes(parameters)
            learned = (
                "centroids of cells, the cell of every row, and the scores of the rows in the cells that it asks for"
            )
            of_cells = {
                "cells": client.cells.layout.cells,
                "probes": client.cells.layout.probes,
                "recall": client.cells.recall,
            }
        return {
            "rows": client.rows,
            "features": features,
            "input_bits": self.input_bits,
            "parameter_set": parameters.set.name,
            "plaintext_modulus": parameters.plaintext_modulus,
            "security_bits": parameters.set.security_bits,
            "query_bytes": query_bytes,
            "answer_bytes": answer_bytes,
            "agreement": self.agreement,
            "original": None if self.original is None else self.original.to_fields(),
            **of_cells,
            "table_bytes": 4 * size * blocks * client.level * features,
            "client_learns": learned,
            "server_learns": "nothing of the query",
        }


# Facts of an index that a service needs: sizes, keys, the client's specification.


def index_facts(index: NeighbourIndex) -> dict[str, Any]:
    """Returns plain JSON, in the words that facts of programs use (`cloakwork.models.repository`)."""
    client, keys = index.client, index.client.key_shape
    cells, features = client.cells, len(client.centre)
    return {
        "parameter_set": client.parameters.set.name,
        "plaintext_modulus": client.parameters.plaintext_modulus,
        "parameter_digest": keys.digest.hex(),
        "security_bits": client.parameters.set.security_bits,
        "structured_secret": False,
        "samples_per_ciphertext": 1,
        "p_fail_log2_per_lookup": None,
        "p_fail_log2_per_program": FAILURE_LOG2,  # at most, of every ciphertext of an answer
        "input_shape": [features],
        "input_numbers": features,
        "output_shape": [client.rows],
        "output_numbers": client.rows,
        "level": client.level,
        "answer_level": client.answer_level,
        "answer_ciphertexts": client.answer_ciphertexts,
        "answer_variances": len(_answer_noise(client).variances),  # that an answer says of its noise
        "dropped_bits": [0, 0] if cells is None else [cells.levels.query_bits, cells.levels.answer_bits],
        # Numbers that a query is expanded into, each by a keyswitch, and products of polynomials.
        "expanded_numbers": features if cells is None else cells.layout.count,
        "products": features * (client.answer_ciphertexts if cells is None else cells.layout.blocks),
        "bootstraps": 0,
        "evaluation_key_bytes": keys.byte_count,
        "expanded_key_bytes": len(keys.numbers) * 2 * client.parameters.switch_key_bytes,
        "largest_batch": 1,
        "client": client.to_json(),
        "report": index.report(),
    }


def _answer_noise(client: NeighbourClient) -> Noise:
    """Returns the answer noise of a table of ones: how many variances there are does not depend on the numbers."""
    if client.cells is None:
        levels = (client.level, client.answer_level)
        return products_noise(client.parameters, levels, len(client.centre), 1.0, 1.0)
    return cell_products_noise(client.cells.layout, client.cells.levels, 1.0, 1.0)[1]
