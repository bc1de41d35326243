"""Estimators compiled for many encrypted samples at once (docs/howto/levelled.md): what linear ones share with support vector machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.batches.model import BatchModel
from cloakwork.models.client_steps import Stage
from cloakwork.models.errors import CompileError, some
from cloakwork.models.modes import How
from cloakwork.models.options import Options, on_device
from cloakwork.training.batch_compiler import compile_estimator_batch, generate_keys
from cloakwork.training.estimators.originals import adopted

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN: Final = ("batch_", "_batch_keys")  # what fitting, cloning and pickling drop
_OPTIONS: Final = {"threads", "device"}


def batched(
    estimator: Any, samples: Any, output: Stage, how: Any, keys: Any, args: Sequence[Any], options: dict[str, Any]
) -> NDArray[Any]:
    """Returns labels, probabilities or scores by the model of an estimator that was compiled for samples at once."""
    batch: BatchModel = estimator.batch_
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if args or set(given) - _OPTIONS:
        strange = some(sorted(set(given) - _OPTIONS)) or f"{len(args)} more arguments"
        raise CompileError(
            f"{type(estimator).__name__}: expected threads and device for a compiled batch, got {strange}"
        )
    if how == "encrypted" and keys is None:
        if not hasattr(estimator, "_batch_keys"):
            estimator._batch_keys = generate_keys(batch)
        keys = estimator._batch_keys
    predictions = batch.predict(samples, how, key=keys, output=output, **given)
    return (
        predictions[:, 0] if output == "scores" and predictions.ndim == 2 and predictions.shape[1] == 1 else predictions
    )


class BatchEstimator:
    """Mixin before the original class of estimators that have no program of look-ups."""

    @classmethod
    def from_sklearn(cls, fitted: Any) -> Self:
        """Returns the same fitted estimator with the methods of this class; it shares what was fitted."""
        return adopted(cls, fitted, OWN)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803 (scikit-learn's name)
        for name in OWN:
            vars(self).pop(name, None)
        return super().fit(X, y, sample_weight)  # type: ignore[misc]

    def compile(self, X: Any, options: Options | None = None, **named: Any) -> BatchModel:  # noqa: N803
        """Makes a model of encrypted samples of what was fitted.

        Args:
            X: typical samples, such as the training data: they set the range of every feature.
            options: of `cloakwork.compile`, or by name: `batch` is how many samples are scored at once, by default one.

        Raises:
            CompileError: not fitted, no samples.
            UnsupportedOperatorError: another kernel than linear, poly and rbf.
        """
        for name in OWN:
            vars(self).pop(name, None)
        chosen = Options.of(options, named)
        self.batch_ = on_device(compile_estimator_batch(self, X, chosen), chosen)
        return self.batch_

    def predict(
        self,
        X: Any,  # noqa: N803
        *,
        how: How = "clear",
        key: Any = None,
        threads: int = 1,
        device: str = "cpu",
    ) -> NDArray[Any]:
        """Returns labels of classifiers, values of regressors.

        Args:
            how: "clear" by the compiled model where there is one; "simulate" the same, as nothing is approximate; "encrypted" really encrypted.
            key: for "encrypted", of `generate_keys`; made on the first call and kept in this process when it is not given.
            threads, device: of the server: "cpu", "cuda" or "cuda:N".
        """
        return self._scored("predict", X, "labels", how, key, {"threads": threads, "device": device})

    def _scored(
        self, method: str, samples: Any, output: Stage, how: How, key: Any, options: dict[str, Any]
    ) -> NDArray[Any]:
        if hasattr(self, "batch_"):
            return batched(self, samples, output, how, key, (), options)
        if how != "clear":
            raise CompileError(
                f"{type(self).__name__}: how='{how}' needs a compiled model; call compile(X, batch=..) after fit"
            )
        return np.asarray(getattr(super(), method)(samples))

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in OWN} if isinstance(state, dict) else state


class BatchClassifier(BatchEstimator):
    """A classifier of batches with `decision_function`."""

    def decision_function(
        self,
        X: Any,  # noqa: N803
        *,
        how: How = "clear",
        key: Any = None,
        threads: int = 1,
        device: str = "cpu",
    ) -> NDArray[Any]:
        """Returns [samples] for two classes, else [samples, classes] or [samples, pairs of classes]; arguments as of `predict`."""
        return self._scored("decision_function", X, "scores", how, key, {"threads": threads, "device": device})
