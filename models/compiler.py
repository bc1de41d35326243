"""The way in: `compile_onnx` and `calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.calibration import Calibration, observe
from cloakwork.models.compile.network import clear_errors, compile_network
from cloakwork.models.compile.options import DEFAULT_ACCURACY, ExactSettings, NetworkOptions
from cloakwork.models.compile.pipeline import PREPARING, RESTRUCTURING, OnStep, begin, stages
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.feature_ranges import FeatureRanges
from cloakwork.models.criteria.noise_limits import AUTO, PROFILES, Profile
from cloakwork.models.criteria.tree_comparisons import TreeComparisons
from cloakwork.models.criteria.verdicts import Task
from cloakwork.models.errors import CompileError
from cloakwork.models.onnx_import.context import Rounding
from cloakwork.models.onnx_import.importer import is_table_model, load_onnx
from cloakwork.models.onnx_ml.compile_onnx_ml import compile_onnx_ml
from cloakwork.models.options import Options

__all__ = ["PROFILES", "CompiledModel", "ExactSettings", "TreeComparisons", "calibrate", "compile_file", "compile_onnx"]


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
    structured_keys: bool = False,
    trees: TreeComparisons | None = None,
    feature_ranges: FeatureRanges | None = None,
    encrypted_argmax: bool = False,
    common_mask: bool = False,
    rounding: Rounding = "real",
    on_step: OnStep | None = None,
) -> CompiledModel:
    """Compiles an ONNX model. Trees of ONNX-ML take `candidates` and `trees`, linear models `accuracy` and `margin`, both `structured_keys`,
    `feature_ranges` and `encrypted_argmax`; other options are refused for them.

    Args:
        calibration: typical inputs [samples, ..], or what was observed of them; they set the range of every value. A model whose
            quantisers say the ranges (QDQ or QOperator) needs none. Of several inputs a dict of arrays by name, or a tuple of arrays in the
            model's order. Trees take the public grid of every feature from them.
        outputs: names of the outputs that are wanted; None: all. Of several `predict` gives a dict of arrays by name.
        profile: how much noise a look-up may see: "auto" what the accuracy allows; "fast" 2 %, "balanced" 1 %, or a number, in per cent of the
            half torus (one standard deviation); "exact" or "exact_64": look-ups on integers that fail with a probability of at most 2^-128
            or 2^-64; or such profiles by the names of layers, with "*" for the others.
        accuracy: least share of the calibration samples on which the encrypted model, simulated, decides as the clear one; for regression
            1 - root mean square error / spread of the clear values, the least of any number: 0.97 allows 3 % of the spread (6 % of more than
            eight numbers together); for embeddings 1 - the error of the cosines between samples. It has to hold at the lower end of a 95 %
            confidence interval, for every one of several outputs. The cheapest program that does is taken; of networks of integers, where no
            approximate one does, one with as few exact layers as it takes. None: not checked, as it is not without calibration samples.
        allow_loss: when no program reaches the accuracy, the best one and an AccuracyWarning instead of an AccuracyError.
        task: "classification", "regression" or "embedding", or one of them by the names of outputs; None: seen from the model's last steps and
            outputs.
        weight_bits: least bits of the largest weight of every layer, 2 .. 8; layers get as many as the noise allows, up to 8, exact ones just
            these. None: what the accuracy asks for, and 5 where it is not checked.
        margin: part of the calibrated half range that is kept free on either side; None: ranges end where tails fitted to the calibration
            data have one value in ten thousand beyond them.
        candidates: parameter sets to choose from, or their names; None: all shipped ones of the profile's kind.
        exact: how the exact profiles round; see ExactSettings.
        structured_keys: sets whose small key is block-binary may be taken too (`.._block`): faster, and resting on more than LWE
            (docs/reference/parameters.md). Whoever encrypts for the program has to agree as well.
        trees: how trees of ONNX-ML compare features with thresholds, and the grid that clients know; see `compile_ensemble`.
        feature_ranges: lowest and highest value of features, by name or number ("feature 3" or 3 where columns have no names; channels of images), in
            place of what the calibration samples show: no client is told anything of these. Of several inputs by their names, one range each.
        encrypted_argmax: of classifiers: the client decrypts the label and no score; see `compile_ensemble`. Of a network the number of the class, an
            integer; its profile is "exact", or "exact_64", and its output the scores of all classes, with a Softmax or ArgMax or without.
        common_mask: of networks: sets of two samples to a ciphertext (`.._cm2`) and no others: batches take less time and memory, a batch of one more
            (docs/reference/parameters.md).
        rounding: of quantised networks (QDQ, QOperator): "real" as their real numbers round; "onnxruntime" bit for bit as ONNX Runtime's integer
            kernels do, one step off in some values in a million. Outputs with more scales than a client gets are looked up.
        on_step: called with the name of every step of the compiler, and the graph after it.

    Raises:
        UnsupportedOperatorError, NoParameterSetError, PrecisionOverflowError, AccuracyError, CompileError.

    Warns:
        AccuracyWarning: with allow_loss, less accurate than was asked for; too few samples to show it; or values are not kept as decisions are, or
            the other way round, and the model does not say which matter.
    """
    options = NetworkOptions(
        outputs,
        profile,
        accuracy,
        allow_loss,
        task,
        weight_bits,
        margin,
        candidates,
        exact,
        structured_keys,
        feature_ranges,
        encrypted_argmax,
        common_mask,
        rounding,
    )
    model = load_onnx(model)
    with clear_errors():
        if is_table_model(model):
            return compile_onnx_ml(model, calibration, _of_table(options, trees), on_step)
        if trees is not None:
            raise CompileError("trees: the model is a network and has none; leave the option out")
        return compile_network(model, calibration, options, on_step)


def _of_table(options: NetworkOptions, trees: TreeComparisons | None) -> Options:
    exact, trees = options.exact or ExactSettings(), trees or TreeComparisons()
    if options.feature_ranges is not None and trees.feature_ranges is not None:
        raise CompileError("feature_ranges: given twice, beside trees and within; leave one of them out")
    return Options(
        accuracy=options.accuracy or 0.0,
        allow_loss=options.allow_loss,
        task=options.task,
        outputs=options.outputs,
        precision=options.profile,
        weight_bits=options.weight_bits,
        input_bits=exact.input_bits,
        activation_bits=exact.activation_bits,
        accumulator_bits=exact.rounded_bits,
        accumulator_ranges=exact.ranges,
        rounding=options.rounding,
        margin=options.margin,
        grid=trees.grid,
        grid_bits=trees.grid_bits,
        tell="labels" if options.encrypted_argmax else "scores",
        thresholds=trees.comparisons,
        ranges=options.feature_ranges if options.feature_ranges is not None else trees.feature_ranges,
        sets=options.candidates,
        structured=options.structured_keys,
        bodies=2 if options.common_mask else 1,
    )


def compile_file(
    model: onnx.ModelProto | str | Path | bytes,
    samples: Any = None,
    options: Options | None = None,
    on_step: OnStep | None = None,
) -> CompiledModel:
    """Compiles an ONNX model, whatever it holds. Args, Raises, Warns: see `cloakwork.compile`; on_step: see `compile_onnx`."""
    options = options or Options()
    proto = load_onnx(model)
    with clear_errors():
        if is_table_model(proto):
            return compile_onnx_ml(proto, samples, options, on_step)
        options.check("network")
        return compile_network(proto, samples, options.of_network(), on_step)


@clear_errors()
def calibrate(
    model: onnx.ModelProto | str | Path,
    samples: Any,
    *,
    exact: bool = False,
    outputs: Sequence[str] | None = None,
    rounding: Rounding = "real",
) -> Calibration:
    """Records what typical inputs show of an ONNX model: in place of them for `compile_onnx`, small enough to travel with the model.

    Args:
        samples: as `compile_onnx` takes them.
        exact: for the exact profiles, which order pools and activations differently.
        outputs, rounding: as `compile_onnx` is going to get them.
    """
    options = NetworkOptions(outputs=outputs, profile="exact" if exact else AUTO, rounding=rounding)
    options.check()
    found = begin(load_onnx(model), samples, options)
    for _, each in stages(found, (*PREPARING, *RESTRUCTURING)):
        found = each
    return observe(found.graph, found.entered(samples))
