"""Nearest neighbours: the query is encrypted, the table of training samples is the server's, in clear (docs/howto/levelled.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import neighbors

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.modes import How
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.options import Options, on_device
from cloakwork.training.estimators.originals import adopted
from cloakwork.training.original import compared_answers

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

_BETWEEN, _SEED = 400, 20261130  # points
_OWN = ("index_", "_key")  # what fitting, cloning and pickling drop


def between(table: NDArray[Any]) -> Reals:
    """Returns points between random pairs of rows [points, features]: queries that no row answers by itself."""
    rng = np.random.default_rng(_SEED)
    first, second = table[rng.integers(len(table), size=(2, _BETWEEN))].astype(np.float64)
    return np.asarray(first + rng.random((_BETWEEN, 1)) / 2 * (second - first))


class _Neighbours:
    """Mixin before the original class."""

    @classmethod
    def from_sklearn(cls, fitted: Any) -> Self:
        """Returns the same fitted estimator with the methods of this class; it shares what was fitted."""
        return adopted(cls, fitted, _OWN)

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803 (scikit-learn's name)
        for name in _OWN:
            vars(self).pop(name, None)
        return super().fit(X, y)  # type: ignore[misc]

    def compile(
        self,
        X: Any = None,  # noqa: N803
        options: Options | None = None,
        **named: Any,
    ) -> NeighbourIndex:
        """Quantise the training samples into the server's table.

        Args:
            X: typical samples, on which the table is compared with this estimator itself; None: points between its training samples.
            options: of `cloakwork.compile`, or by name: `accuracy`, `input_bits`, `cells` and `probes`.

        Warns:
            AccuracyWarning: the samples are too few to show the accuracy.

        Raises:
            AccuracyError: less is kept.
            CompileError: not fitted; weights that are a function, another metric than euclidean and cosine, several outputs, sparse samples.
        """
        chosen = Options.of(options, named)
        chosen.check("neighbours")
        table = getattr(self, "_fit_X", None)
        if table is None:
            raise CompileError(f"{type(self).__name__}: compile needs a fitted estimator; call fit first")
        metric = self.effective_metric_  # type: ignore[attr-defined]
        weights = self.weights  # type: ignore[attr-defined]
        if (
            metric not in ("euclidean", "cosine")
            or weights not in ("uniform", "distance")
            or not isinstance(table, np.ndarray)
        ):
            raise CompileError(
                f"{type(self).__name__}: expected dense samples, metric euclidean or cosine and weights uniform or distance, got "
                f"{type(table).__name__}, {metric}, {weights}"
            )
        targets = np.asarray(self._y)  # type: ignore[attr-defined]
        if targets.ndim != 1:
            raise CompileError(f"{type(self).__name__}: expected one output, got {targets.shape[1]}")
        classes = getattr(self, "classes_", None)
        index = NeighbourIndex.build(
            table,
            targets if classes is None else classes[targets],
            n_neighbors=self.n_neighbors,  # type: ignore[attr-defined]
            weights=weights,
            metric=metric,
            classify=classes is not None,
            input_bits=chosen.input_bits,
            cells=chosen.cells,
            probes=chosen.probes,
        )
        samples = between(table) if X is None else X
        original = compared_answers(self, samples, super().predict, index.predict, chosen.accuracy)  # type: ignore[misc]
        self.index_ = on_device(replace(index, original=original), chosen)
        return self.index_

    def predict(
        self,
        X: Any,  # noqa: N803
        *,
        how: How = "clear",
        key: LevelledClientKey | None = None,
        threads: int = 1,
        device: str | None = None,
    ) -> NDArray[Any]:
        """Returns labels, or values of a regressor.

        Args:
            how: "clear" by the compiled table where there is one; "simulate" the same, as nothing is approximate; "encrypted" with encrypted queries.
            key: for "encrypted"; made on the first call and kept in this process when it is not given.
            device: that scores, "cpu", "cuda" or "cuda:N".
        """
        index: NeighbourIndex | None = getattr(self, "index_", None)
        if index is None:
            if how == "clear":
                predictions: NDArray[Any] = super().predict(X)  # type: ignore[misc]
                return predictions
            raise CompileError(f"{type(self).__name__}: how='{how}' needs a compiled table; call compile() after fit")
        if how == "encrypted" and key is None:
            key = self._kept_key(index)
        return index.predict(np.asarray(X), how, key=key, threads=threads, device=device)

    def _kept_key(self, index: NeighbourIndex) -> LevelledClientKey:
        if getattr(self, "_key", None) is None:
            from cloakwork.fhe_core.levelled.client import (
                LevelledClientKey,
            )  # the secret side, only where it is asked for

            self._key = LevelledClientKey.generate(index.client.parameters)
        return self._key

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _OWN} if isinstance(state, dict) else state


class KNeighborsClassifier(_Neighbours, neighbors.KNeighborsClassifier):
    """The labels of the nearest samples; `predict_proba` and `kneighbors` are the original's, in clear."""


class KNeighborsRegressor(_Neighbours, neighbors.KNeighborsRegressor):
    """The mean of the nearest samples' values."""
