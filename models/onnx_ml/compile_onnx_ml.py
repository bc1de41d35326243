"""The way in: a model of tables from an ONNX file becomes a CompiledModel, by what it is: trees, a linear model or a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import onnx

from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import InputStep
from cloakwork.models.compile.labels import after_network, threshold_of, with_exact_profile, with_score_of_each
from cloakwork.models.compile.network import compile_network
from cloakwork.models.compile.options import Options
from cloakwork.models.compile.pipeline import OnStep
from cloakwork.models.compile.scaled_columns import ScaledColumns
from cloakwork.models.compile.tables import imported_answers, judged
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.feature_ranges import OPTION
from cloakwork.models.criteria.tree_comparisons import TreeComparisons
from cloakwork.models.errors import CompileError, some
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_import.importer import load_onnx
from cloakwork.models.onnx_ml.importer import Network, import_onnx_ml
from cloakwork.models.original.table import judge_table
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble

ARGMAX: Final = "encrypted_argmax"


def compile_onnx_ml(
    model: onnx.ModelProto | str | Path,
    calibration: Any = None,
    options: Options | None = None,
    on_step: OnStep | None = None,
) -> CompiledModel:
    """Args:
    calibration: samples, needed by linear models (unless `feature_ranges` has all features) and networks, and by trees for their public grid.
    options: of `compile_onnx`; what this kind of model would ignore is refused.
    on_step: see `compile_onnx`; trees and linear models are one step.
    """
    options = options or Options()
    try:
        steps, found = import_onnx_ml(load_onnx(model))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, ArithmeticError) as error:
        line = " ".join(str(error).split())[:200]
        raise CompileError(f"model: its tables are not valid ONNX-ML ({line}); export it again") from error
    said = None
    if calibration is not None and not isinstance(calibration, Calibration):
        clear, after = (found.model, found.after) if isinstance(found, Network) else (found, ())
        said = judge_table(load_onnx(model), imported_answers(clear, steps, after), calibration)
    compiled = _compiled(found, steps, calibration, options, on_step)
    if said is None:
        return compiled
    least = 0.0 if options.allow_loss else options.accuracy or 0.0
    return judged(compiled, "model", [(said.samples, said.labels)], least)


def _compiled(
    found: TreeEnsemble | LinearModel | Network,
    steps: tuple[InputStep, ...],
    calibration: Any,
    options: Options,
    on_step: OnStep | None,
) -> CompiledModel:
    if isinstance(found, Network):
        return _compile_network(found, steps, calibration, options, on_step)
    if isinstance(found, TreeEnsemble):
        if isinstance(calibration, Calibration):
            raise CompileError(
                "calibration: trees take samples of a table [samples, columns], not the ranges of a network"
            )
        taken = _taken(options, "trees", ("accuracy", "candidates", "structured_keys", "trees", OPTION, ARGMAX))
        taken |= _with_any_accuracy(taken)
        comparisons: TreeComparisons = taken.pop("trees", None) or TreeComparisons()
        if OPTION in taken and comparisons.feature_ranges is not None:
            raise CompileError(f"{OPTION}: given twice, beside trees and within; leave one of them out")
        compiled = compile_ensemble(
            found, preprocessing=steps, calibration=calibration, **{**comparisons.to_options(), **taken}
        )
    else:
        taken = _taken(options, "linear models", ("accuracy", "margin", "structured_keys", OPTION, ARGMAX))
        taken |= _with_any_accuracy(taken)
        compiled = compile_linear(found, calibration, preprocessing=steps, **taken)
    if on_step is not None:
        on_step("compile_ensemble" if isinstance(found, TreeEnsemble) else "compile_linear", compiled.program.graph)
    return compiled


def _with_any_accuracy(taken: dict[str, Any]) -> dict[str, Any]:
    """None, not checked, is 0 here."""
    return {"accuracy": taken["accuracy"] or 0.0} if "accuracy" in taken else {}


def _taken(options: Options, kind: str, taken: tuple[str, ...]) -> dict[str, Any]:
    """CompileError for options that were given and that this kind of model does not take."""
    given = options.given()
    ignored = [name for name in given if name not in taken]
    if ignored:
        raise CompileError(
            f"{', '.join(ignored)}: {kind} have no such option, they are exact; expected none but {some(taken)}, "
            "or those of compile_estimator"
        )
    return given


def _compile_network(
    network: Network, steps: tuple[InputStep, ...], calibration: Any, options: Options, on_step: OnStep | None
) -> CompiledModel:
    if options.outputs is not None:
        raise CompileError("outputs: a model of tables has one answer; leave the option out")
    options = with_exact_profile(options)
    model = network.model
    if options.encrypted_argmax:
        model = with_score_of_each(model, threshold_of(network.after))
    columns = ScaledColumns.of(model, steps, calibration, options.feature_ranges, rounded=not options.is_exact)
    compiled = compile_network(columns.model, columns.samples, replace(options, feature_ranges=columns.ranges), on_step)
    program = replace(
        compiled.program,
        input_steps=(*columns.steps, *compiled.program.input_steps),
        output_steps=after_network(compiled.program, network.after),
    )
    return replace(compiled, program=program)
