"""The server's half: a table of integers and the scores of encrypted queries against all of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.arrays import Progress, report
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.expanded_keys import ExpandedLevelledKeys
from cloakwork.fhe_core.levelled.inner_products import products_noise
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import PLAINTEXT_LIMIT, LevelledParameters
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import AccuracyWarning, CompileError
from cloakwork.models.neighbours.client import Integers, Metric, NeighbourClient, Weights, nearest_rows
from cloakwork.models.neighbours.prepared import PreparedTable
from cloakwork.models.neighbours.quantise import (
    Quantised,
    ScaledRows,
    SmallIntegers,
    quantised,
    row_ranges,
    score_factor,
)

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

Mode = Literal["disable", "execute"]
# Sets with levels of queries and of answers, in order of preference; for as many bits as the second numbers say.
_SMALL: Final = (("bgv12", 2, 1), ("bgv13", 2, 1), ("bgv13", 3, 1))
_LARGE: Final = (("bgv13", 3, 2), ("bgv13", 4, 2))
_TRIED: Final = (
    (8, _SMALL),
    (7, _SMALL),
    (6, _SMALL),
    (5, _SMALL),
    (10, _LARGE),
    (12, _LARGE),
    (4, _SMALL),
    (3, _SMALL),
    (2, _SMALL),
)
MOST_BITS: Final = 12
GOOD_AGREEMENT: Final = 0.99  # with unrounded distances: below it finer integers are looked for
LEAST_AGREEMENT: Final = 0.97  # below it a warning is given
_JUDGED_ROWS: Final = 400
_QUERIES_ON_DEVICE: Final = 16
_ROWS_AT_ONCE: Final = 1 << 22  # scores in clear, as integers of 64 bits


@dataclass(frozen=True, eq=False)
class NeighbourIndex:
    """Rows as integers, and what a client has to know.

    The client learns the score of every row, and from as many answers as there are features the table itself: it is the query that is
    private, not the table.

    Attributes:
        integers: [rows, features] int16.
        offsets: [rows], added to <w, x> or 2 <w, x>.
        bits: of the integers, with sign.
        agreement: share of rows of the table (400 at most) whose other rows decide for them as unrounded distances would; of a regressor, within
            a hundredth of the values' spread.
    """

    client: NeighbourClient
    integers: SmallIntegers
    offsets: Integers
    bits: int
    agreement: float

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
        bits: int | None = None,
        progress: Progress = None,
    ) -> NeighbourIndex:
        """Quantises a table, as finely as some set has room for.

        Args:
            table: [rows, features], finite numbers of any dtype; beside it two bytes a number are held.
            target: [rows] labels or values.
            bits: of features, 2 to 12; None: 8, or as many as decide as unrounded distances do.
            progress: called with rows done and in all, from the start for every number of bits that is tried.

        Raises:
            CompileError: other shapes, numbers that are not finite, or no set for so many features or bits.
        """
        values, targets = np.asarray(table), np.asarray(target)
        if values.dtype.kind not in "biuf":
            raise CompileError(f"table: expected numbers, got {values.dtype}")
        if values.ndim != 2 or 0 in values.shape or targets.shape != values.shape[:1]:
            raise CompileError(
                f"table, target: expected shapes [rows, features] and [rows], got {list(values.shape)} and {list(targets.shape)}"
            )
        if not 1 <= n_neighbors <= len(values):
            raise CompileError(f"n_neighbors: expected 1 to {len(values)}, as the table has rows, got {n_neighbors}")
        if metric not in ("euclidean", "cosine") or weights not in ("uniform", "distance"):
            raise CompileError(
                f"metric, weights: expected euclidean or cosine, uniform or distance, got '{metric}', '{weights}'"
            )
        if bits is not None and not 2 <= bits <= MOST_BITS:
            raise CompileError(f"bits: expected 2 to {MOST_BITS}, got {bits}")
        classes = np.unique(targets) if classify else None
        rows = ScaledRows.of(values, metric)
        best: NeighbourIndex | None = None
        for tried, sets in _TRIED if bits is None else ((bits, _SMALL + _LARGE),):
            made = quantised(rows, tried, progress)
            if (found := _set_for(made, sets)) is None:
                continue
            parameters, level, answer_level = found
            client = NeighbourClient(
                parameters=parameters, level=level, answer_level=answer_level, rows=len(values), centre=rows.centre, step=made.step,
                limit=made.limit, metric=metric, target=targets, classes=classes, n_neighbors=n_neighbors, weights=weights,
                score_offset=made.middle,
            )  # fmt: skip
            index = cls(client, made.integers, made.offsets, tried, _agreement(client, rows, made, progress))
            if best is None or index.agreement > best.agreement:
                best = index
            if best.agreement >= GOOD_AGREEMENT:
                break
        if best is None:
            raise CompileError(
                f"no set has room for scores of {values.shape[1]} features of {2 if bits is None else bits} bits: take fewer bits or fewer "
                "features (PCA)"
            )
        if best.agreement < LEAST_AGREEMENT:
            warnings.warn(
                AccuracyWarning(
                    f"neighbours by {best.bits} bits a feature decide as unrounded ones in {100 * best.agreement:.1f} % of {_JUDGED_ROWS} rows: "
                    "one step serves all features, so scale them (StandardScaler), or take fewer (PCA)"
                ),
                stacklevel=2,
            )
        return best

    # --- the server ---

    def scorer(
        self, keys: LevelledEvaluationKeys, threads: int = 1, device: str = "cpu", progress: Progress = None
    ) -> NeighbourScorer:
        return NeighbourScorer(self, keys, threads, device, progress)

    def prepared(self, threads: int = 1, device: str = "cpu", progress: Progress = None) -> PreparedTable:
        """The table where it scores, for keys of any client."""
        return PreparedTable(self.client, self.integers, self.offsets, threads, device, progress)

    # --- in clear ---

    def scores(self, queries: Integers) -> Integers:
        """[samples, rows] of quantised queries: what encrypted ones decrypt to."""
        found = np.empty((len(queries), len(self.integers)), dtype=np.int64)
        asked = queries.astype(np.float64)  # products of integers below 2^53 are exact
        for part in row_ranges(self.integers.shape):
            found[:, part] = asked @ self.integers[part].T.astype(np.float64)
        return score_factor(self.client.metric) * found + self.offsets

    def predict(
        self,
        samples: ArrayLike,
        fhe: Mode = "disable",
        *,
        key: LevelledClientKey | None = None,
        threads: int = 1,
        device: str = "cpu",
    ) -> NDArray[Any]:
        """Labels or values; `fhe="execute"` encrypts every query, scores it and decrypts the answer, all in this process.

        Args:
            key: of the client, for "execute".
            device: that scores, "cpu", "cuda" or "cuda:N".
        """
        if fhe not in get_args(Mode):
            raise CompileError(f"fhe: expected 'disable' or 'execute', got '{fhe}'")
        queries = self.client.integers(samples)
        if fhe == "disable":
            step = max(1, _ROWS_AT_ONCE // len(self.integers))
            parts = [queries[i : i + step] for i in range(0, len(queries), step)]
            decided = [self.client.decide(self.scores(part), part) for part in parts]
            return np.concatenate(decided) if decided else self.client.target[:0]
        if key is None:
            raise CompileError(f"fhe: expected 'disable', or 'execute' with a key, got '{fhe}' without one")
        scorer = self.scorer(self.client.evaluation_keys(key), threads, device)
        found, rows, at_once = [], np.asarray(samples), queries_at_once(device)
        for first in range(0, len(rows), at_once):
            asked = [self.client.encrypt(key, sample) for sample in rows[first : first + at_once]]
            found += [self.client.scores(key, answer) for answer in scorer.score_all(asked)]
        return self.client.decide(np.stack(found), queries)

    def report(self) -> dict[str, Any]:
        """What it costs and how fine it is."""
        client = self.client
        size = client.parameters.polynomial_size
        answers = -(-client.rows // size)
        return {
            "rows": client.rows,
            "features": self.integers.shape[1],
            "bits": self.bits,
            "set": client.parameters.set.name,
            "plaintext_modulus": client.parameters.plaintext_modulus,
            "security_bits": client.parameters.set.security_bits,
            "query_bytes": 7 * size // 2 * client.level,
            "answer_bytes": 7 * size * answers * client.answer_level,
            "agreement": self.agreement,
            "table_bytes": 4 * size * answers * client.level * self.integers.shape[1],
            "client_learns": "the score of every row",
            "server_learns": "nothing of the query",
        }


class NeighbourScorer:
    """Scores encrypted queries of one key. The table is prepared once, where it scores."""

    def __init__(
        self,
        index: NeighbourIndex,
        keys: LevelledEvaluationKeys,
        threads: int = 1,
        device: str = "cpu",
        progress: Progress = None,
    ) -> None:
        self._threads = threads
        self._keys = ExpandedLevelledKeys.of(keys, device, threads)
        self._table = index.prepared(threads, device, progress)

    def score(
        self, query: SeededLevelledCiphertexts | LevelledCiphertexts, progress: Progress = None
    ) -> LevelledCiphertexts:
        """The scores of all rows, a ciphertext for each N of them."""
        return self.score_all([query], progress)[0]

    def score_all(
        self, queries: Sequence[SeededLevelledCiphertexts | LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Of several queries of this key at once, which on a device is faster (`queries_at_once`)."""
        return self._table.score_all(self._keys, queries, self._threads, progress)


def queries_at_once(device: str) -> int:
    """A good number of queries to score together."""
    return 1 if device == "cpu" else _QUERIES_ON_DEVICE


def _set_for(made: Quantised, sets: Sequence[tuple[str, int, int]]) -> tuple[LevelledParameters, int, int] | None:
    """The first with room, and its levels."""
    modulus, features = 2 * made.span + 1, made.integers.shape[1]
    if modulus >= PLAINTEXT_LIMIT:
        return None
    for name, level, answer_level in sets:
        parameters = LevelledParameters.of(name, max(modulus, 3))
        size = parameters.polynomial_size
        if features > size:
            continue
        starts = np.arange(0, len(made.integers), size)
        norm1 = made.factor * np.add.reduceat(made.absolute, starts).max()
        norm2 = made.factor * math.sqrt(float(np.add.reduceat(made.squares, starts).max()))
        noise = products_noise(parameters, (level, answer_level), features, float(norm1), norm2)
        if failure_log2(noise, parameters, answer_level) <= FAILURE_LOG2:
            return parameters, level, answer_level
    return None


def _agreement(client: NeighbourClient, rows: ScaledRows, made: Quantised, progress: Progress) -> float:
    """Each row against all others, by integers and by what they round."""
    if len(rows) <= client.n_neighbors:
        return 1.0
    judged = np.unique(np.linspace(0, len(rows) - 1, _JUDGED_ROWS).astype(int))
    by_integers = _Nearest(judged, made.integers[judged].astype(np.float64), client.n_neighbors)
    by_reals = _Nearest(judged, rows.at(judged) / made.step, client.n_neighbors)
    for part in row_ranges(made.integers.shape):
        by_integers.take(part, made.integers[part].astype(np.float64), made.factor, made.offsets[part])
        reals = rows.at(part) / made.step  # of the integers' size, whatever the table's is
        by_reals.take(part, reals, made.factor, -np.square(reals).sum(axis=1) if client.metric == "euclidean" else 0.0)
        report(progress, len(rows) + part.stop, 2 * len(rows))
    decided = [client.of_rows(each.rows, np.ones(each.rows.shape)) for each in (by_integers, by_reals)]
    if client.classes is not None:
        return float((decided[0] == decided[1]).mean())
    spread = float(np.std(client.target)) or 1.0
    return float((np.abs(decided[0] - decided[1]) <= 0.01 * spread).mean())


class _Nearest:
    """The rows nearest to some of them but for themselves, as the table goes by."""

    def __init__(self, judged: NDArray[np.int64], queries: Reals, count: int) -> None:
        self._judged, self._queries, self._count = judged, queries, count
        self._scores = np.empty((len(judged), 0))
        self.rows = np.empty((len(judged), 0), dtype=np.int64)

    def take(self, part: slice, table: Reals, factor: int, offsets: Reals | Integers | float) -> None:
        scores = factor * (self._queries @ table.T) + offsets
        numbers = np.arange(part.start, part.stop)
        own = self._judged - part.start
        inside = (own >= 0) & (own < len(numbers))
        scores[np.flatnonzero(inside), own[inside]] = -np.inf
        scores = np.concatenate([self._scores, scores], axis=1)  # those before come first, as equal ones do
        rows = np.concatenate([self.rows, np.broadcast_to(numbers, (len(own), len(numbers)))], axis=1)
        kept = np.stack([nearest_rows(each, min(self._count, scores.shape[1])) for each in scores])
        self._scores = np.take_along_axis(scores, kept, axis=1)
        self.rows = np.take_along_axis(rows, kept, axis=1)
