"""The way in: a model of tables from an ONNX file becomes a CompiledModel, by what it is: trees, a linear model or a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import InputStep
from cloakwork.models.compile.labels import after_network, threshold_of, with_exact_precision, with_score_of_each
from cloakwork.models.compile.network import compile_network
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import OnStep
from cloakwork.models.compile.scaled_columns import ScaledColumns
from cloakwork.models.compile.tables import imported_answers, judged
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_import.faults import UNFORESEEN, failed_file
from cloakwork.models.onnx_import.importer import load_onnx
from cloakwork.models.onnx_ml.importer import Network, import_onnx_ml
from cloakwork.models.options import Options
from cloakwork.models.original.table import judge_table
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble


def compile_onnx_ml(
    model: onnx.ModelProto | str | Path,
    samples: Any = None,
    options: Options | None = None,
    on_step: OnStep | None = None,
) -> CompiledModel:
    """Compile a model of tables.

    Args:
        samples: needed by linear models (unless `ranges` has all features) and networks, and by trees for their public grid.
        on_step: as of `cloakwork.compile`; trees and linear models are one step.
    """
    options = options or Options()
    proto = load_onnx(model)
    try:
        steps, imported = import_onnx_ml(proto)
    except UNFORESEEN as error:
        raise failed_file(proto, error) from error
    original_answers = None
    if samples is not None and not isinstance(samples, Calibration):
        clear, after = (imported.model, imported.after) if isinstance(imported, Network) else (imported, ())
        original_answers = judge_table(proto, imported_answers(clear, steps, after), samples)
    compiled = _compiled(imported, steps, samples, options, on_step)
    if original_answers is None:
        return compiled
    least = 0.0 if options.allow_loss else options.accuracy
    return judged(compiled, "model", [(original_answers.samples, original_answers.labels)], least)


def _compiled(
    imported: TreeEnsemble | LinearModel | Network,
    steps: tuple[InputStep, ...],
    samples: Any,
    options: Options,
    on_step: OnStep | None,
) -> CompiledModel:
    if isinstance(imported, Network):
        return _compile_network(imported, steps, samples, options, on_step)
    if isinstance(imported, TreeEnsemble):
        if isinstance(samples, Calibration):
            raise CompileError("samples: trees take samples of a table [samples, columns], not the ranges of a network")
        compiled = compile_ensemble(imported, samples, options, preprocessing=steps)
    else:
        compiled = compile_linear(imported, samples, options, preprocessing=steps)
    if on_step is not None:
        on_step("compile_ensemble" if isinstance(imported, TreeEnsemble) else "compile_linear", compiled.program.graph)
    return compiled


def _compile_network(
    network: Network, steps: tuple[InputStep, ...], samples: Any, given: Options, on_step: OnStep | None
) -> CompiledModel:
    if given.outputs is not None:
        raise CompileError("outputs: a model of tables has one answer; leave the option out")
    options = with_exact_precision(NetworkOptions.from_options(given))
    model = network.model
    if options.tell == "labels":
        model = with_score_of_each(model, threshold_of(network.after))
    columns = ScaledColumns.of(model, steps, samples, options.ranges, rounded=not options.is_exact)
    compiled = compile_network(columns.model, columns.samples, replace(options, ranges=columns.ranges), on_step)
    program = replace(
        compiled.program,
        input_steps=(*columns.steps, *compiled.program.input_steps),
        output_steps=after_network(compiled.program, network.after),
    )
    return replace(compiled, program=program)
