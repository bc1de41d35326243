"""The client's half of nearest neighbours: queries as integers, scores as labels or values."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.levelled.answer_masks import check_masks
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.neighbours.inner_products import packed_query, rows_of
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.unfit import Replaced, finite
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, warn_user
from cloakwork.models.neighbours.cells import UNSEEN, Cells

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

Metric = Literal["euclidean", "cosine"]
Weights = Literal["uniform", "distance"]
FORMAT: Final = "cloakwork neighbours client 1"
FORMAT_OF_CELLS: Final = "cloakwork neighbours client 2"
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NeighbourClient:
    """The client's specification of an index: all that it needs beside its key; public.

    A query q becomes integers x = rint((q - centre) / step), clipped to [-limit, limit]. The server answers with a score for every row w,
    2 <w, x> - |w|^2 of euclidean distances and <w, x> of cosines: the larger, the nearer.

    Attributes:
        level, answer_level: of queries and of answers.
        rows: how many scores an answer has.
        centre: [features].
        target: labels or values of the rows, [rows].
        classes: the distinct labels, sorted; None of a regressor.
    """

    parameters: LevelledParameters
    level: int
    answer_level: int
    rows: int
    centre: Reals
    step: float
    limit: int
    metric: Metric
    target: NDArray[Any]
    classes: NDArray[Any] | None
    n_neighbors: int
    weights: Weights
    score_offset: int  # so that scores lie evenly around zero: answers are these less
    cells: Cells | None = None  # that queries choose among; None: answers have every row

    # --- keys ---

    @property
    def key_shape(self) -> ExpansionKeyShape:
        """Describes the evaluation keys that queries need."""
        if self.cells is None:
            return ExpansionKeyShape.of(self.parameters, len(self.centre))
        return self.cells.layout.key_shape

    def evaluation_keys(self, key: LevelledClientKey) -> LevelledEvaluationKeys:
        """Makes what the server needs of a key, once."""
        return key.evaluation_keys(self.key_shape.automorphisms, products=self.key_shape.products)

    # --- queries ---

    def integers(self, samples: ArrayLike, *, refuse: bool = False) -> Integers:
        """Returns [samples, features] as the server's table is quantised.

        Args:
            refuse: numbers that are not finite, as the owner of the index wants it, who sends nothing: a server would learn of them.

        Raises:
            ShapeError: no array of numbers.
            CompileError: another number of features; with `refuse`, numbers that are not finite.

        Warns:
            CalibratedRangeWarning: some lie beyond what the table holds and count as its end.
            ReplacedValuesWarning: some are not finite, and count as the largest ones, or as 0.
        """
        replaced = Replaced()
        values = np.asarray(samples, dtype=np.float64) if refuse else replaced.numbers(samples)
        if values.ndim != 2 or values.shape[1] != len(self.centre):
            raise CompileError(f"samples: expected shape [samples, {len(self.centre)}], got {list(values.shape)}")
        if refuse and not np.isfinite(values).all():
            raise CompileError("samples: expected finite numbers, found one that is not")
        values = finite(values, replaced)
        with np.errstate(all="ignore"):
            exact = np.nan_to_num(
                np.rint(scaled(values, self.centre, self.metric) / self.step), posinf=np.inf, neginf=-np.inf
            )
        replaced.warn()
        if beyond := int((np.abs(exact) > self.limit).any(axis=1).sum()):
            warn_user(
                f"{beyond} of {len(values)} queries hold values beyond the table's; they count as its end",
                CalibratedRangeWarning,
            )
        integers: Integers = np.clip(exact, -self.limit, self.limit).astype(np.int64)
        return integers

    def encrypt(self, key: Any, x: Any) -> Any:
        """Encrypt one query [features] to be sent, or a list of them for [queries, features].

        Args:
            key: a `cloakwork.Key`, or the engine's key.
        """
        queries = self.integers(np.atleast_2d(np.asarray(x)))
        encrypted = [self.encrypt_integers(getattr(key, "only", key), each) for each in queries]
        return encrypted[0] if np.ndim(x) == 1 else encrypted

    def decrypt(self, key: Any, answer: Any, x: Any = None) -> Any:
        """Decrypt the answer to one query: its label or value; of several queries a list of answers to an array of labels [queries].

        Args:
            key: as of `encrypt`.
            answer: of a server, or its bytes.
            x: the queries, whose cells were asked.

        Raises:
            CompileError: no queries, or an answer of another size.
        """
        if x is None:
            raise CompileError("decrypt: expected the queries that were encrypted, got none")
        queries = self.integers(np.atleast_2d(np.asarray(x)))
        answers = [answer] if np.ndim(x) == 1 else answer
        read = [LevelledCiphertexts.from_bytes(each) if isinstance(each, bytes) else each for each in answers]
        pairs = zip(read, queries, strict=True)
        scores = np.stack([self.scores(getattr(key, "only", key), each, query) for each, query in pairs])
        labels = self.decide(scores, queries)
        return labels[0] if np.ndim(x) == 1 else labels

    def encrypt_integers(self, key: LevelledClientKey, integers: Integers) -> SeededLevelledCiphertexts:
        """Encrypts one of `integers`."""
        if self.cells is None:
            return key.encrypt_seeded(packed_query(self.parameters, integers), self.level)
        packed = self.cells.layout.query(integers, self.cells.places(integers))
        return key.encrypt_seeded(packed, self.level).rounded(self.cells.levels.query_bits)

    # --- answers ---

    @property
    def answer_ciphertexts(self) -> int:
        """Counts the ciphertexts of an answer."""
        return 1 if self.cells is not None else -(-self.rows // self.parameters.polynomial_size)

    def scores(self, key: LevelledClientKey, answer: LevelledCiphertexts, query: Integers | None = None) -> Integers:
        """Reads the scores of every row, [rows]; `UNSEEN` of rows in cells that the query did not ask for.

        Args:
            query: its integers [features], which tell its cells; of a table without cells it is not needed.

        Raises:
            CompileError: no query where there are cells, or an answer of another size.
            SerializationError: masks that no evaluation gives.
        """
        check_masks(answer)
        if self.cells is not None and (query is None or query.shape != self.centre.shape):
            raise CompileError("query: expected the integers of the query, whose cells the answer is of")
        if len(answer) != self.answer_ciphertexts:
            count = "one ciphertext" if self.answer_ciphertexts == 1 else f"{self.answer_ciphertexts} ciphertexts"
            raise CompileError(f"answer: expected {count}, got {len(answer)}")
        decrypted = key.decrypt(answer, signed=True)
        if self.cells is None or query is None:
            return rows_of(decrypted, self.rows) + self.score_offset
        row_scores = self.cells.spread(decrypted[0], query)
        return np.where(row_scores == UNSEEN, row_scores, row_scores + self.score_offset)

    def nearest(self, scores: Integers) -> Integers:
        """Returns numbers of the nearest rows [.., n_neighbors], the nearest first; of equally near ones the first."""
        nearest = [nearest_rows(row, self.n_neighbors) for row in scores.reshape(-1, scores.shape[-1])]
        return np.array(nearest, dtype=np.int64).reshape(*scores.shape[:-1], self.n_neighbors)

    def decide(self, scores: Integers, queries: Integers) -> NDArray[Any]:
        """Returns labels by the largest sum of weights (of equal ones the first), or weighted means of values.

        Args:
            scores: [samples, rows].
            queries: [samples, features], for distances.
        """
        rows = self.nearest(scores)
        return self.of_rows(rows, self._weights(np.take_along_axis(scores, rows, axis=1), queries))

    def of_rows(self, rows: Integers, weight: Reals) -> NDArray[Any]:
        """Decides by these rows, [samples, n_neighbors] each."""
        target = self.target[rows]
        if self.classes is None:
            means: NDArray[Any] = (target * weight).sum(axis=1) / weight.sum(axis=1)
            return means
        number = np.searchsorted(self.classes, target)
        votes = (weight[:, None, :] * (number[:, :, None] == number[:, None, :])).sum(axis=2)  # of each row's label
        first = np.where(votes == votes.max(axis=1, keepdims=True), number, len(self.classes)).min(axis=1)
        labels: NDArray[Any] = self.classes[first]
        return labels

    def _weights(self, scores: Integers, queries: Integers) -> Reals:
        if self.weights == "uniform":
            return np.ones(scores.shape)
        if self.metric == "cosine":
            distance: Reals = np.abs(1 - scores * self.step**2)
        else:
            distance = np.sqrt(np.maximum((queries**2).sum(axis=1)[:, None] - scores, 0).astype(np.float64))
        at = (distance <= 0).astype(float)  # those alone count
        inverse = 1 / np.where(at > 0, 1.0, distance)
        return np.where(at.sum(axis=1, keepdims=True) > 0, at, inverse)

    # --- files ---

    def to_json(self) -> str:
        """Returns the specification as a text, which `from_json` reads: what the index's server gives its clients."""
        return json.dumps(self.to_fields())

    def to_fields(self) -> dict[str, Any]:
        """Returns the fields of `to_json`."""
        return {
            "format": FORMAT if self.cells is None else FORMAT_OF_CELLS,
            "set": self.parameters.set.name,
            "plaintext_modulus": self.parameters.plaintext_modulus,
            "level": self.level,
            "answer_level": self.answer_level,
            "rows": self.rows,
            "centre": self.centre.tolist(),
            "step": self.step,
            "limit": self.limit,
            "metric": self.metric,
            "target": self.target.tolist(),
            "classes": None if self.classes is None else self.classes.tolist(),
            "n_neighbors": self.n_neighbors,
            "weights": self.weights,
            "score_offset": self.score_offset,
        } | ({} if self.cells is None else {"cells": self.cells.fields()})

    @classmethod
    def from_json(cls, text: str | bytes) -> NeighbourClient:
        """Parses a specification. Raises: CompileError: not what `to_json` wrote."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CompileError(f"neighbours: expected a client's specification of this release, {error}") from None
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: Any) -> NeighbourClient:
        """Raises: CompileError: not what `to_fields` returned."""
        try:
            if fields["format"] not in (FORMAT, FORMAT_OF_CELLS):
                raise ValueError("another format")
            parameters = LevelledParameters.of(str(fields["set"]), int(fields["plaintext_modulus"]))
            centre, cells = np.array(fields["centre"], dtype=np.float64), None
            if fields["format"] == FORMAT_OF_CELLS:
                cells = Cells.from_fields(fields["cells"], parameters, centre.size)
            classes = None if fields["classes"] is None else np.array(fields["classes"])
            client = cls(
                parameters=parameters,
                level=int(fields["level"]),
                answer_level=int(fields["answer_level"]),
                rows=int(fields["rows"]),
                centre=centre,
                step=float(fields["step"]),
                limit=int(fields["limit"]),
                metric=fields["metric"],
                target=np.array(fields["target"]),
                classes=classes,
                n_neighbors=int(fields["n_neighbors"]),
                weights=fields["weights"],
                score_offset=int(fields["score_offset"]),
                cells=cells,
            )
            fits = client._is_consistent()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise CompileError(f"neighbours: expected a client's specification of this release, {error}") from None
        if not fits:
            raise CompileError("neighbours: the client's specification is not consistent; it was changed or damaged")
        return client

    def _is_consistent(self) -> bool:
        """Also of what decisions look up: every label is among the classes, values are numbers."""
        return (
            self.metric in ("euclidean", "cosine")
            and self.weights in ("uniform", "distance")
            and self.centre.ndim == 1
            and 1 <= len(self.centre) <= self.parameters.polynomial_size
            and bool(np.isfinite(self.centre).all())
            and self.target.shape == (self.rows,)
            and 1 <= self.n_neighbors <= self.rows
            and 1 <= self.answer_level <= self.level <= self.parameters.levels
            and 0 < self.step < math.inf
            and self.limit > 0
            and self.target.dtype.kind in ("biufU" if self.classes is not None else "biuf")
            and (self.classes is None or np.array_equal(self.classes, np.unique(self.target)))
            and (self.cells is None or self._fits_cells(self.cells))
        )

    def _fits_cells(self, cells: Cells) -> bool:
        levels = (cells.levels.query, cells.levels.answer)
        return (
            len(cells.cell_of) == self.rows
            and levels == (self.level, self.answer_level)
            and self.n_neighbors <= cells.fewest_rows
            and max(-int(cells.centroids.min()), int(cells.centroids.max())) <= self.limit
        )


def nearest_rows(scores: NDArray[Any], count: int) -> Integers:
    """Returns numbers of the largest, the largest first, of equal ones the first. Args: scores: [rows]."""
    least = np.partition(scores, -count)[-count]
    candidates = np.flatnonzero(scores >= least)
    order = np.argsort(-scores[candidates], kind="stable")
    nearest: Integers = candidates[order[:count]]
    return nearest


def scaled(values: Reals, centre: Reals, metric: Metric) -> Reals:
    """Returns samples before division by the step: about the centre, or of length 1 (and zero where all is zero)."""
    if metric == "euclidean":
        return values - centre
    peaks = np.abs(values).max(
        axis=1, keepdims=True, initial=0.0
    )  # squares of what is left are neither too large nor too small
    unit = np.divide(values, peaks, out=np.zeros_like(values), where=peaks > 0)
    normalised: Reals = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1.0)
    return normalised
