"""The way in: `compile_onnx`, and the compiled model with its `predict`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx

from cloakwork.fhe_core.files import PathLike
from cloakwork.fhe_core.parameters import ParameterSet, is_insecure, parameter_set, parameter_sets
from cloakwork.fhe_core.server import Session
from cloakwork.models.accuracy import Task
from cloakwork.models.approximate import approximate_programs
from cloakwork.models.artefact import load_program, save_program
from cloakwork.models.calibration import Calibration, observe
from cloakwork.models.client import ClientSpecification
from cloakwork.models.client_steps import Named, Stage, Tensors, joined, run_output_steps
from cloakwork.models.errors import CompileError
from cloakwork.models.exact import ExactSettings, exact_programs
from cloakwork.models.first_accurate import DEFAULT_ACCURACY, first_accurate
from cloakwork.models.interpreter import interpret
from cloakwork.models.ir import Graph, NotFiniteError, Reals
from cloakwork.models.onnx_import.importer import import_onnx, is_table_model, load_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges
from cloakwork.models.passes.noise_limits import AUTO, PROFILES, Profile, noise_limits, on_layers
from cloakwork.models.prepared import Checked, calibrated, prepared
from cloakwork.models.program import Program
from cloakwork.models.report import report, report_text, save_picture
from cloakwork.models.runtime import Progress, Runtime, samples_at_once, shifted_progress
from cloakwork.models.simulate import simulate

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey

__all__ = ["PROFILES", "CompiledModel", "ExactSettings", "calibrate", "compile_onnx"]


LEAST_BITS: Final = 5  # of the largest weight of every layer, where nothing checks what rounding loses
_HOPELESS: Final = 0.4  # of the outputs' spread: a foreseen error at which a set is not tried
UNCHECKED: Final = "fast"  # what "auto" is with recorded ranges alone
UNSEEN: Final = 0.5  # and without any data: ranges are wide then, and nothing is checked


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model ready for encrypted data, and the real-valued graph that it came from."""

    program: Program
    float_graph: Graph | None = None  # not kept in files

    def save(self, path: PathLike) -> None:
        """One file, see models/artefact.py."""
        save_program(path, self.program)

    @classmethod
    def load(cls, path: PathLike) -> CompiledModel:
        """SerializationError or KeyMismatchError when it is damaged or its parameter set has changed."""
        return cls(load_program(path))

    @cached_property
    def client(self) -> ClientSpecification:
        return ClientSpecification.of(self.program)

    def report(self) -> dict[str, Any]:
        return report(self.program)

    def __str__(self) -> str:
        return report_text(self.program)

    def save_picture(self, path: PathLike) -> None:
        """The graph with shapes, bootstraps and noise, as SVG."""
        save_picture(path, self.program)

    def predict(
        self,
        x: Any,
        fhe: Literal["disable", "simulate", "execute"] = "disable",
        *,
        key: ClientKey | None = None,
        session: Session | None = None,
        seed: int | None = None,
        progress: Progress = None,
        output: Stage = "labels",
    ) -> Any:
        """The model's output for samples [samples, ..]: an array, of a model of several outputs a dict of arrays by name.

        Samples of a model of several inputs are a dict of arrays by name, or a tuple of arrays in the model's order.

        All modes start from the same numbers: the client's steps, values beyond the calibrated range as its end (CalibratedRangeWarning).

        Args:
            fhe: "disable" the quantised model in clear; "simulate" the same with the noise of encryption; "execute" really encrypted.
            key, session: for "execute"; a key is made when there is none, and a session on the CPU from it. Pass both to make them once.
            seed: of the simulated noise.
            output: of models of tables: "scores", "probabilities" (the transformed scores) or "labels" (of regression: the same).
        """
        if fhe == "disable":
            return self.client.finish(interpret(self.program.graph, self.client.inputs(x)), output)
        if fhe == "simulate":
            return self.client.output(simulate(self.program, self.client.phases(x), seed), output)
        if fhe == "execute":
            return self._execute(self.client.phases(x), key, session, progress, output)
        raise CompileError(f"predict: expected fhe to be 'disable', 'simulate' or 'execute', got '{fhe}'")

    def predict_float(self, x: Any) -> Any:
        """The model before quantisation, in clear; samples and result as of `predict`."""
        if self.float_graph is None:
            raise CompileError(
                "predict_float: a loaded program has no real-valued model; compile it from its ONNX file"
            )
        graph = self.float_graph
        values = interpret(graph, Tensors.of(graph.inputs, graph.unused)(x) if graph.inputs else x)
        return Named.of(graph.outputs)(values) if graph.outputs else run_output_steps(graph.client_steps, values)

    def _execute(
        self, phases: Reals, key: ClientKey | None, session: Session | None, progress: Progress, output: Stage
    ) -> Any:
        if key is None:
            from cloakwork.fhe_core.client import ClientKey  # the secret side, only where it is asked for

            if session is not None:
                raise CompileError("predict: got a session without its key, which decrypts the result; pass key=")
            key = ClientKey.generate(self.program.parameters)
        if session is None:
            session = Session(key.evaluation_keys())
        runtime = Runtime(self.program, session)
        size, total = samples_at_once(self.program, session), self.program.bootstraps * len(phases)
        parts = []
        for start in range(0, len(phases), size):
            report = shifted_progress(progress, self.program.bootstraps * start, total)
            encrypted = self.client.encrypt_phases(key, phases[start : start + size])
            parts.append(self.client.decrypt(key, runtime.answer(encrypted, report), output))
        return joined(parts)


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a made-up model leads to in the passes, as CompileError; numbers that overflow are found by the checks between the passes."""
    try:
        with np.errstate(all="ignore"):
            yield
    except NotFiniteError as error:
        raise CompileError(
            f"model: its numbers overflow when its layers are put together ({error}); scale its weights, or train it again"
        ) from error
    except RecursionError as error:
        raise CompileError("model: it is nested too deeply; use shallower trees") from error


@_clear_errors()
def compile_onnx(
    model: onnx.ModelProto | str | Path,
    calibration: Any = None,
    *,
    outputs: Sequence[str] | None = None,
    profile: Profile | Mapping[str, Profile] = AUTO,
    accuracy: float | None = DEFAULT_ACCURACY,
    allow_loss: bool = False,
    task: Task | Mapping[str, Task] | None = None,
    weight_bits: int | None = None,
    margin: float | None = None,
    candidates: Sequence[ParameterSet | str] | None = None,
    exact: ExactSettings | None = None,
) -> CompiledModel:
    """Compiles an ONNX model; trees and linear models of ONNX-ML exactly, without regard to the options.

    Args:
        calibration: typical inputs [samples, ..], or what was observed of them; they set the range of every value. A model whose
            quantisers say the ranges (QDQ or QOperator) needs none. Of several inputs a dict of arrays by name, or a tuple of arrays in the
            model's order.
        outputs: names of the outputs that are wanted; None: all. Of several `predict` gives a dict of arrays by name.
        profile: how much noise a look-up may see: "auto" what the accuracy allows; "fast" 2 %, "balanced" 1 %, or a number, in per cent of the
            half torus (one standard deviation); "exact" or "exact_64": look-ups on integers that fail with a probability of at most 2^-128
            or 2^-64; or such profiles by the names of layers, with "*" for the others.
        accuracy: least share of the calibration samples on which the encrypted model, simulated, decides as the clear one; for regression
            the least share of the outputs' variance that it gets right; every one of several outputs has to reach it. The cheapest program
            that does is taken. None: not checked, as it is not without calibration samples.
        allow_loss: when no program reaches the accuracy, the best one and an AccuracyWarning instead of an AccuracyError.
        task: "classification" or "regression", or one of them by the names of outputs; None: seen from the model's last steps and outputs.
        weight_bits: least bits of the largest weight of every layer, 2 .. 8; layers get as many as the noise allows, up to 8, exact ones just
            these. None: what the accuracy asks for, and 5 where it is not checked.
        margin: part of the calibrated half range that is kept free on either side; None: ranges end where tails fitted to the calibration
            data have one value in ten thousand beyond them.
        candidates: parameter sets to choose from, or their names; None: all shipped ones of the profile's kind.
        exact: how the exact profiles round; see ExactSettings.

    Raises:
        UnsupportedOperatorError, NoParameterSetError, PrecisionOverflowError, AccuracyError, CompileError.
    """
    model = load_onnx(model)
    if is_table_model(model):
        from cloakwork.models.tabular.onnx_ml import compile_onnx_ml  # which returns a CompiledModel

        if outputs is not None:
            raise CompileError("outputs: a model of tables has one answer; leave the option out")
        network = {
            "profile": profile, "accuracy": accuracy, "allow_loss": allow_loss, "weight_bits": weight_bits, "margin": margin,
            "candidates": candidates, "exact": exact, **({} if task is None else {"task": task}),
        }  # fmt: skip
        return compile_onnx_ml(model, calibration, network=network)
    limits = noise_limits(profile)
    _check_options(weight_bits, accuracy)
    imported = import_onnx(model, pools_first=limits.failure_log2 is None, outputs=outputs)
    begun = prepared(imported)
    limits = on_layers(limits, begun.graph)
    ready = calibrated(begun, calibration, None if accuracy is None else Checked(task))
    sets = None if candidates is None else [parameter_set(p) if isinstance(p, str) else p for p in candidates]
    reference = ready.reference
    if limits.failure_log2 is not None:
        settings = exact or ExactSettings()
        bounded = bound_ranges(ready.graph, ready.calibration, margin)
        found = exact_programs(bounded, limits, settings, weight_bits, ready.ends, sets)
    elif profile == AUTO and reference is None:
        unchecked = on_layers(noise_limits(UNSEEN if calibration is None else UNCHECKED), ready.graph)
        found = approximate_programs(ready, margin, unchecked, weight_bits or LEAST_BITS, sets)
    else:
        if profile == AUTO and sets is None:
            sets = [params for params in parameter_sets() if not is_insecure(params)]
        least = weight_bits or (LEAST_BITS if reference is None else 2)
        most = math.inf if reference is None else _HOPELESS**2 * reference.variance
        found = approximate_programs(ready, margin, limits, least, sets, most)
    return CompiledModel(first_accurate(found, reference, accuracy or 0.0, allow_loss), imported)


def _check_options(weight_bits: int | None, accuracy: float | None) -> None:
    if weight_bits is not None and not 2 <= weight_bits <= 8:
        raise CompileError(f"weight_bits: expected 2 to 8, got {weight_bits}")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise CompileError(f"accuracy: expected a share from 0 to 1, or None, got {accuracy}")


@_clear_errors()
def calibrate(
    model: onnx.ModelProto | str | Path, samples: Any, *, exact: bool = False, outputs: Sequence[str] | None = None
) -> Calibration:
    """What typical inputs show of an ONNX model: in place of them for `compile_onnx`, small enough to travel with the model.

    Args:
        samples: as `compile_onnx` takes them.
        exact: for the exact profiles, which order pools and activations differently.
        outputs: as `compile_onnx` is going to get them.
    """
    ready = prepared(import_onnx(model, pools_first=not exact, outputs=outputs))
    return observe(ready.graph, ready.entered(samples))
