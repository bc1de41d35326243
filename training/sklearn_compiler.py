"""`compile_estimator`: a fitted estimator or pipeline of scikit-learn, XGBoost or LightGBM as a compiled model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from cloakwork.models.client_steps import Columns, InputStep, final_steps, run_input_steps
from cloakwork.models.compiler import CompiledModel, compile_onnx
from cloakwork.models.tabular.compile_ensemble import compile_ensemble
from cloakwork.models.tabular.ensemble import TreeEnsemble
from cloakwork.models.tabular.linear_compiler import compile_linear
from cloakwork.models.tabular.linear_model import LinearModel
from cloakwork.training.importers import import_estimator
from cloakwork.training.importers.preprocessing import split_pipeline


def compile_estimator(estimator: Any, calibration: Any, **options: Any) -> CompiledModel:
    """Reads the numbers of a fitted estimator and compiles them; the steps of a pipeline before it become the client's.

    Args:
        calibration: typical samples [samples, columns], such as the training data. Linear models and networks take the ranges of their
            features from them; trees need them only for what else is asked of them. Missing values in it say that some may come.
        options: of `compile_linear`, `compile_ensemble` or `compile_onnx`, whichever the estimator leads to.

    Raises:
        CompileError: not fitted, or an option that the compiler does not have.
        UnsupportedOperatorError: an estimator, a step or an option of it that has no encrypted counterpart.
    """
    steps, last = split_pipeline(estimator)
    features = run_input_steps(steps, calibration) if steps else calibration
    missing = bool(np.isnan(np.asarray(features, dtype=np.float64)).any())
    model = import_estimator(last, missing=missing)
    if isinstance(model, LinearModel):
        return compile_linear(model, calibration, preprocessing=steps or None, **options)
    if isinstance(model, TreeEnsemble):
        return compile_ensemble(model, preprocessing=steps or None, **options)
    return _compile_network(model, last, features, steps, options)


def _compile_network(
    model: onnx.ModelProto, estimator: Any, features: Any, steps: tuple[InputStep, ...], options: dict[str, Any]
) -> CompiledModel:
    labels = getattr(estimator, "classes_", None)
    task = "regression" if labels is None else "classification"
    compiled = compile_onnx(model, np.asarray(features, dtype=np.float64), **{"task": task, **options})
    transform = {"softmax": "softmax", "logistic": "sigmoid"}.get(estimator.out_activation_, "none")
    names = getattr(estimator, "feature_names_in_", None)
    columns = Columns(int(estimator.n_features_in_), None if names is None else tuple(str(name) for name in names))
    inner = compiled.program  # with steps of its own where its profile or the model rounds
    program = replace(
        inner,
        input_steps=(*(steps or (columns,)), *inner.input_steps),
        output_steps=(*inner.output_steps, *final_steps(transform, 1.0, labels)),
    )
    return replace(compiled, program=program)
