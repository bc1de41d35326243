"""A network in ONNX becomes a CompiledModel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx

from cloakwork.models.compile.labels import with_exact_precision
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import OnStep, compiled
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import (
    AccuracyWarning,
    CalibratedRangeWarning,
    CompileError,
    NoParameterSetError,
    RoundedIntegersWarning,
    warn_user,
)
from cloakwork.models.graph.ir import NotFiniteError
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Measure, OriginalFacts, Told


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raises CompileError for what an invalid model leads to in the passes; numbers that overflow are found by the checks between the passes."""
    try:
        with np.errstate(all="ignore"):
            yield
    except NotFiniteError as error:
        raise CompileError(
            f"model: its numbers overflow when its layers are put together ({error}); scale its weights, or train it again"
        ) from error
    except RecursionError as error:
        raise CompileError("model: it is nested too deeply; use shallower trees") from error


def compile_network(
    model: onnx.ModelProto, given: Any, options: NetworkOptions, on_step: OnStep | None = None
) -> CompiledModel:
    """Compile a network. Args: given: samples, what was observed of them, or None; others as of `cloakwork.compile`."""
    try:
        compilation = compiled(model, given, with_exact_precision(options), on_step)
    except NoParameterSetError as error:
        if options.bodies == 1:
            raise
        raise NoParameterSetError(f"{error}; or leave bodies out: few sets have two") from error
    assert compilation.program is not None
    for short in (compilation.loss, compilation.doubt):
        if short is not None:
            warn_user(short, AccuracyWarning)
    exact = compilation.program.facts.exact
    if compilation.options.is_exact and exact is not None and exact.results_rounded is not None:
        names = ", ".join(f"'{name}'" for name in exact.results_rounded)
        text = (
            f"results of {names} are rounded to {exact.activation_bits} bits, as no quantiser of the model follows them or no set serves it there: "
            "outputs differ from the model's integers; quantise them in the model, or ask for more activation_bits"
        )
        warn_user(text, RoundedIntegersWarning)
    if compilation.narrowed is not None:
        warn_user(compilation.narrowed, CalibratedRangeWarning)
    return CompiledModel.checked(
        _with_original(compilation.program) if compilation.judged else compilation.program, compilation.imported
    )


def _with_original(program: Program) -> Program:
    """Returns what the check says holds against the user's file as well, which says what the graph says."""
    check = program.facts.check
    if check is None or check.at_least is None:
        return program
    facts = OriginalFacts(_TOLD[check.measure], check.value, check.at_least, check.samples)
    return replace(program, facts=replace(program.facts, original=facts))


_TOLD: Final[Mapping[Measure, Told]] = {
    "agreement": "labels",
    "closeness": "values",
    "cosine": "cosines",
    "determination": "values",
}
