"""The server's half: a table of integers and the scores of encrypted queries against all of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.arrays import Progress
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2, LevelledEvaluator
from cloakwork.fhe_core.levelled.inner_products import InnerProductTable, products_noise
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import PLAINTEXT_LIMIT, LevelledParameters
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import AccuracyWarning, CompileError
from cloakwork.models.neighbours.client import Integers, Metric, NeighbourClient, Weights, nearest_rows, scaled

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
        integers: [rows, features].
        offsets: [rows], added to <w, x> or 2 <w, x>.
        bits: of the integers, with sign.
        agreement: share of rows of the table (400 at most) whose other rows decide for them as unrounded distances would; of a regressor, within
            a hundredth of the values' spread.
    """

    client: NeighbourClient
    integers: Integers
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
    ) -> NeighbourIndex:
        """Quantises a table, as finely as some set has room for.

        Args:
            table: [rows, features], finite.
            target: [rows] labels or values.
            bits: of features, 2 to 12; None: 8, or as many as decide as unrounded distances do.

        Raises:
            CompileError: other shapes, numbers that are not finite, or no set for so many features or bits.
        """
        rows = np.asarray(table, dtype=np.float64)
        targets = np.asarray(target)
        if rows.ndim != 2 or 0 in rows.shape or targets.shape != rows.shape[:1]:
            raise CompileError(
                f"table, target: expected shapes [rows, features] and [rows], got {list(rows.shape)} and {list(targets.shape)}"
            )
        if not np.isfinite(rows).all():
            raise CompileError("table: expected finite numbers, found one that is not")
        if not 1 <= n_neighbors <= len(rows):
            raise CompileError(f"n_neighbors: expected 1 to {len(rows)}, as the table has rows, got {n_neighbors}")
        if metric not in ("euclidean", "cosine") or weights not in ("uniform", "distance"):
            raise CompileError(
                f"metric, weights: expected euclidean or cosine, uniform or distance, got '{metric}', '{weights}'"
            )
        if bits is not None and not 2 <= bits <= MOST_BITS:
            raise CompileError(f"bits: expected 2 to {MOST_BITS}, got {bits}")
        classes = np.unique(targets) if classify else None
        centre = (rows.max(axis=0) + rows.min(axis=0)) / 2 if metric == "euclidean" else np.zeros(rows.shape[1])
        if np.array_equal(rows, np.rint(rows)):
            centre = np.floor(centre)  # whole numbers stay whole
        moved = scaled(rows, centre, metric)
        best: NeighbourIndex | None = None
        for tried, sets in _TRIED if bits is None else ((bits, _SMALL + _LARGE),):
            made = _quantised(moved, metric, tried)
            if (found := _set_for(made, sets)) is None:
                continue
            parameters, level, answer_level = found
            client = NeighbourClient(
                parameters=parameters, level=level, answer_level=answer_level, rows=len(rows), centre=centre, step=made.step,
                limit=made.limit, metric=metric, target=targets, classes=classes, n_neighbors=n_neighbors, weights=weights,
                score_offset=made.middle,
            )  # fmt: skip
            index = cls(client, made.integers, made.offsets, tried, _agreement(client, moved, made))
            if best is None or index.agreement > best.agreement:
                best = index
            if best.agreement >= GOOD_AGREEMENT:
                break
        if best is None:
            raise CompileError(
                f"no set has room for scores of {rows.shape[1]} features of {2 if bits is None else bits} bits: take fewer bits or fewer "
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

    def scorer(self, keys: LevelledEvaluationKeys, threads: int = 1, device: str = "cpu") -> NeighbourScorer:
        return NeighbourScorer(self, keys, threads, device)

    # --- in clear ---

    def scores(self, queries: Integers) -> Integers:
        """[samples, rows] of quantised queries: what encrypted ones decrypt to."""
        factor = 2 if self.client.metric == "euclidean" else 1
        return factor * (queries @ self.integers.T) + self.offsets

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
        self, index: NeighbourIndex, keys: LevelledEvaluationKeys, threads: int = 1, device: str = "cpu"
    ) -> None:
        client = index.client
        factor = 2 if client.metric == "euclidean" else 1
        self._evaluator = LevelledEvaluator(client.parameters, keys, device=device, threads=threads)
        offsets = index.offsets - client.score_offset
        self._table = InnerProductTable(
            self._evaluator, factor * index.integers, offsets, level=client.level, answer_level=client.answer_level
        )

    def score(
        self, query: SeededLevelledCiphertexts | LevelledCiphertexts, progress: Progress = None
    ) -> LevelledCiphertexts:
        """The scores of all rows, a ciphertext for each N of them."""
        return self.score_all([query], progress)[0]

    def score_all(
        self, queries: Sequence[SeededLevelledCiphertexts | LevelledCiphertexts], progress: Progress = None
    ) -> list[LevelledCiphertexts]:
        """Of several queries of this key at once, which on a device is faster (`queries_at_once`)."""
        full = [each.expand() if isinstance(each, SeededLevelledCiphertexts) else each for each in queries]
        return [each.to_host() for each in self._table.products_of_all(full, progress)]


def queries_at_once(device: str) -> int:
    """A good number of queries to score together."""
    return 1 if device == "cpu" else _QUERIES_ON_DEVICE


@dataclass(frozen=True, eq=False)
class _Quantised:
    integers: Integers
    offsets: Integers
    step: float
    limit: int
    middle: int
    span: int  # scores are within middle +- span
    factor: int


def _quantised(moved: Reals, metric: Metric, bits: int) -> _Quantised:
    limit = (1 << (bits - 1)) - 1
    largest = float(np.abs(moved).max())
    step = largest / limit if largest > 0 else 1.0
    if largest <= limit and np.array_equal(moved, np.rint(moved)):
        step = 1.0  # whole numbers that fit are not rounded
    integers = np.rint(moved / step).astype(np.int64)
    limit = max(1, int(np.abs(integers).max()))
    factor = 2 if metric == "euclidean" else 1
    squares, offsets = (integers**2).sum(axis=1), row_offsets(integers, metric)
    # |<w, x>| of queries within the limit; of cosines also by the lengths of both
    reach = factor * limit * np.abs(integers).sum(axis=1)
    if metric == "cosine":
        longest = 1 / step + math.sqrt(moved.shape[1]) / 2  # of a query of length 1, rounded
        reach = np.minimum(reach, np.ceil(np.sqrt(squares) * longest).astype(np.int64))
    low, high = int((offsets - reach).min()), int((offsets + reach).max())
    middle = (low + high) // 2
    return _Quantised(integers, offsets, step, limit, middle, max(high - middle, middle - low), factor)


def row_offsets(integers: Integers, metric: Metric) -> Integers:
    """What is added to the inner products of every row, [rows]."""
    squares: Integers = (integers**2).sum(axis=1)
    return -squares if metric == "euclidean" else np.zeros_like(squares)


def _set_for(made: _Quantised, sets: Sequence[tuple[str, int, int]]) -> tuple[LevelledParameters, int, int] | None:
    """The first with room, and its levels."""
    modulus = 2 * made.span + 1
    if modulus >= PLAINTEXT_LIMIT:
        return None
    weights = made.factor * np.abs(made.integers)
    for name, level, answer_level in sets:
        parameters = LevelledParameters.of(name, max(modulus, 3))
        size = parameters.polynomial_size
        if weights.shape[1] > size:
            continue
        starts = np.arange(0, len(weights), size)
        norm1 = np.add.reduceat(weights.sum(axis=1), starts).max()
        norm2 = np.add.reduceat((weights**2).sum(axis=1), starts).max()
        noise = products_noise(
            parameters, (level, answer_level), weights.shape[1], float(norm1), math.sqrt(float(norm2))
        )
        if failure_log2(noise, parameters, answer_level) <= FAILURE_LOG2:
            return parameters, level, answer_level
    return None


def _agreement(client: NeighbourClient, moved: Reals, made: _Quantised) -> float:
    """Each row against all others, by integers and by what they round."""
    if len(moved) <= client.n_neighbors:
        return 1.0
    judged = np.unique(np.linspace(0, len(moved) - 1, _JUDGED_ROWS).astype(int))
    decided = []
    for table, offsets in ((made.integers, made.offsets), (moved, None)):
        lengths = np.square(table).sum(axis=1) if client.metric == "euclidean" else 0
        rows = np.empty((len(judged), client.n_neighbors), dtype=np.int64)
        for i, row in enumerate(judged):
            scores = made.factor * (table @ table[row]) + (offsets if offsets is not None else -lengths)
            scores[row] = scores.min() - 1  # itself
            rows[i] = nearest_rows(scores, client.n_neighbors)
        decided.append(client.of_rows(rows, np.ones(rows.shape)))
    if client.classes is not None:
        return float((decided[0] == decided[1]).mean())
    spread = float(np.std(client.target)) or 1.0
    return float((np.abs(decided[0] - decided[1]) <= 0.01 * spread).mean())
