"""`compile_estimator_batch` compiles a fitted linear model or support vector machine of scikit-learn, for many encrypted samples at once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.arrays import Reals, dense
from cloakwork.models.batches.build import compile_batch
from cloakwork.models.batches.kernels import Model
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.client_steps import Columns, run_input_steps
from cloakwork.models.errors import AccuracyWarning, CompileError, UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.options import Options
from cloakwork.training.importers.estimator import feature_names, import_part
from cloakwork.training.importers.kernels import CLASSIFIERS, REGRESSORS, kernel_part
from cloakwork.training.importers.nodes import check_own_methods, unwrapped
from cloakwork.training.importers.preprocessing import split_pipeline
from cloakwork.training.original import compared_batch

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.levelled.client import LevelledClientKey


def compile_estimator_batch(estimator: Any, samples: Any, options: Options | None = None, **named: Any) -> BatchModel:
    """Read the numbers of a fitted estimator and compile them; scales and projections before it become part of it, other steps the client's.

    Args:
        samples: typical samples [samples, columns], such as the training data.
        options: of `cloakwork.compile`, or by name: `batch` is how many samples are scored at once.

    Warns:
        AccuracyWarning: the samples are too few to show the accuracy.

    Raises:
        AccuracyError: less is kept.
        CompileError: not fitted, no samples.
        ImportFaultError: the imported model says something else than the estimator.
        UnsupportedOperatorError: an estimator that is neither linear nor a support vector machine, or a step without a counterpart.
    """
    options = Options.of(options, named)
    given, samples = samples, dense(samples)
    if samples is None or len(samples) == 0:
        raise CompileError("samples: expected typical samples, such as the training data, got none")
    steps, last = split_pipeline(unwrapped(estimator))
    machine = kernel_part(last) if _machine(last) else None
    steps = steps or (Columns(_columns(last), feature_names(last)),)
    model: Model
    if machine is not None:
        model, after = machine.model, machine.after
    else:
        part = import_part(last)
        if not isinstance(part.model, LinearModel):
            raise UnsupportedOperatorError(
                f"{type(last).__name__}: batches are of linear models and support vector machines; leave batch= out"
            )
        model, after, steps = part.model, None, (*steps, *part.steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)  # the estimator itself is asked below
        batch = compile_batch(model, samples, options, after=after, preprocessing=steps)

    def scores(rows: Any) -> Reals:
        return model.scores(run_input_steps(steps, dense(rows)))

    return compared_batch(estimator, batch, scores, given, options.accuracy)


def generate_keys(model: BatchModel) -> tuple[ClientKey] | tuple[LevelledClientKey, ...]:
    """Returns fresh keys of a client for a model."""
    from cloakwork.fhe_core.client import ClientKey  # the secret side, only where it is asked for
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

    parameters = model.key_parameters
    levelled = [each for each in parameters if isinstance(each, LevelledParameters)]
    return tuple(map(LevelledClientKey.generate, levelled)) if levelled else (ClientKey.generate(parameters[0]),)


def _machine(estimator: Any) -> bool:
    known = [cls for cls in type(estimator).__mro__ if cls.__module__.startswith("sklearn.svm")]
    machine = next((cls for cls in known if cls.__name__ in (*CLASSIFIERS, *REGRESSORS)), None)
    if machine is None:
        return False
    check_own_methods(estimator, machine)
    if not hasattr(estimator, "support_"):
        raise CompileError(
            f"{type(estimator).__name__}: expected a fitted estimator; call fit(X, y) before it is compiled"
        )
    return True


def _columns(estimator: Any) -> int:
    columns = getattr(estimator, "n_features_in_", None)
    if columns is None:
        raise CompileError(
            f"{type(estimator).__name__}: expected a fitted estimator; call fit(X, y) before it is compiled"
        )
    return int(np.int64(columns))
