"""The compiler from an ONNX file to a compiled model, and the calibration of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from cloakwork.models.calibration import Calibration, observe
from cloakwork.models.compile.network import clear_errors, compile_network
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import PREPARING, RESTRUCTURING, OnStep, begin, stages
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.noise_limits import AUTO
from cloakwork.models.onnx_import.context import Rounding
from cloakwork.models.onnx_import.importer import is_table_model, load_onnx
from cloakwork.models.onnx_ml.compile_onnx_ml import compile_onnx_ml
from cloakwork.models.options import Options


def compile_file(
    model: onnx.ModelProto | str | Path | bytes,
    samples: Any = None,
    options: Options | None = None,
    on_step: OnStep | None = None,
) -> CompiledModel:
    """Compile an ONNX model, whatever it holds. Args, Raises, Warns: see `cloakwork.compile`."""
    options = options or Options()
    proto = load_onnx(model)
    with clear_errors():
        if is_table_model(proto):
            return compile_onnx_ml(proto, samples, options, on_step)
        return compile_network(proto, samples, NetworkOptions.from_options(options), on_step)


@clear_errors()
def calibrate(
    model: onnx.ModelProto | str | Path,
    samples: Any,
    *,
    exact: bool = False,
    outputs: Sequence[str] | None = None,
    rounding: Rounding = "real",
) -> Calibration:
    """Record what typical inputs show of an ONNX model: small enough to travel with it, and `cloakwork.compile` takes it instead of them.

    Args:
        samples: as `cloakwork.compile` takes them.
        exact: for exact precision, which orders pools and activations differently.
        outputs, rounding: as `cloakwork.compile` is going to get them.
    """
    options = NetworkOptions(outputs=outputs, precision="exact" if exact else AUTO, rounding=rounding)
    compilation = begin(load_onnx(model), samples, options)
    for _, each in stages(compilation, (*PREPARING, *RESTRUCTURING)):
        compilation = each
    return observe(compilation.graph, compilation.entered(samples))
