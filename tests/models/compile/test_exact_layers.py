"""Networks of integers of which some layers are exact: as many as the accuracy asks for, or those that were named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")
pytest.importorskip("torch", reason="the networks are trained with PyTorch")

from integer_networks import Format, answers, output_scale, quantise, trained_dense

import cloakwork as cw
from cloakwork.models.approximate.statistics import statistics
from cloakwork.models.compile import pipeline
from cloakwork.models.compile.compilation import Compilation
from cloakwork.models.compile.exact import by_worth, layered_programs
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import PREPARING, RANGES, RESTRUCTURING, begin, stages
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyError, AccuracyWarning
from cloakwork.models.report import report_text
from cloakwork.models.runtime.interpreter import simulate

pytestmark = pytest.mark.tier("all")  # a network is trained and compiled several times

TOY = ["toy_fine"]
LAYERS = ["dense0_quant", "dense1_quant", "dense2_quant"]
WIDTHS = (12, 8, 6)


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return load_digits().data.astype(np.float32)


@pytest.fixture(scope="module")
def proto(table: np.ndarray) -> onnx.ModelProto:
    labels = load_digits().target
    trained = trained_dense(table[:900], labels[:900], WIDTHS, epochs=20)
    return quantise(trained, table[:200], Format(operators=True))


@pytest.fixture(scope="module")
def compilation(proto: onnx.ModelProto, table: np.ndarray) -> Compilation:
    found = begin(proto, table[:300], NetworkOptions(precision="exact", sets=TOY, task="regression"))
    for _, each in stages(found, (*PREPARING, *RESTRUCTURING, *RANGES)):
        found = each
    return found


def lookups(model: CompiledModel) -> list[int]:
    """Of each layer, in order."""
    return [sum(parts.values()) for parts in model.report()["bootstraps_by_part"].values()]


def wrong(proto: onnx.ModelProto, found: np.ndarray, x: np.ndarray) -> np.ndarray:
    """How many steps of the output's integers each of them is off."""
    steps: np.ndarray = np.rint(np.abs(found - answers(proto, x)) / output_scale(proto))
    return steps


@pytest.mark.tier("release")
def test_programs_have_more_and_more_exact_layers(compilation: Compilation, table: np.ndarray) -> None:
    """Each costs more look-ups and errs less than the one before, and the last one hardly at all, on other samples."""
    programs = list(layered_programs(compilation))
    counts = [program.bootstraps for program in programs]
    assert counts[0] == sum(WIDTHS)
    assert counts == sorted(set(counts))
    assert len(counts) == 4  # none, one, two and three
    assert compilation.reference is not None
    outputs = [simulate(program, compilation.entered(table[300:900]), seed=15) for program in programs]
    errors = [float(np.square(y - outputs[-1]).mean()) for y in outputs[:-1]]
    assert errors[0] > errors[1] > errors[2] > 0


def test_layers_are_ordered_by_what_the_output_feels_of_them(compilation: Compilation) -> None:
    """A layer on which the output hangs a hundred times as much goes first; one whose look-ups round to nothing is not among them."""
    graph, stats = compilation.graph, statistics(compilation.graph, compilation.samples)
    assert sorted(by_worth(graph, stats)) == LAYERS
    for number, lookup in enumerate(graph.lookups):
        heavier = stats.sensitivity.copy()
        heavier[lookup.first_wire : lookup.first_wire + lookup.size] *= 100
        assert by_worth(graph, type(stats)(heavier, stats.values))[0] == LAYERS[number]


def test_an_accuracy_that_no_approximate_program_has(proto: onnx.ModelProto, table: np.ndarray, tmp_path: Path) -> None:
    """The cheap program where it is enough; else exact layers, with the integers of the kernels but for ties of float32."""
    x, other = table[:300], table[300:900]
    cheap = cw.compile(proto, x, sets=TOY, task="regression")
    assert lookups(cheap) == list(WIDTHS)
    found = cw.compile(proto, x, sets=TOY, task="regression", accuracy=1 - 1e-7)
    assert min(found_of / of for found_of, of in zip(lookups(found), WIDTHS, strict=True)) > 5
    off = wrong(proto, found.predict(other, "simulate", seed=16), other)
    assert off.max() <= 1 and (off > 0).mean() < 0.003
    assert (wrong(proto, cheap.predict(other, "simulate", seed=16), other) > 0).mean() > 0.05
    found.save(tmp_path / "digits.cwm")
    loaded = CompiledModel.load(tmp_path / "digits.cwm")
    encrypted = loaded.predict(other[:3], "encrypted")
    np.testing.assert_allclose(encrypted, found.predict(other[:3]), atol=1e-6)


def test_layers_that_are_named_are_approximate(proto: onnx.ModelProto, table: np.ndarray) -> None:
    """One look-up for each of their numbers; the report says what of them is exact, and encrypted answers are about the kernels'."""
    profile = {"*": "exact", "dense0_quant": "balanced", "dense2_quant": "balanced"}
    made = cw.compile(proto, table[:300], precision=profile, sets=TOY, accuracy=0)
    first, second, third = lookups(made)
    assert (first, third) == (WIDTHS[0], WIDTHS[2]) and second > 5 * WIDTHS[1]
    found = made.report()
    approximate = [each["name"] for each in found["layers"] if each["bootstraps"] and each["failure_log2"] is None]
    assert approximate == ["dense0_quant", "dense2_quant"]
    assert found["failure_log2"] <= -128 and found["wrap_log2"] <= -128
    assert "approximate, so a step or more off: dense0_quant, dense2_quant" in report_text(made.program).splitlines()
    x = table[900:906]
    encrypted, simulated = made.predict(x, "encrypted"), made.predict(table[900:], "simulate", seed=17)
    assert wrong(proto, encrypted, x).max() <= wrong(proto, simulated, table[900:]).max() <= 12


def test_what_is_refused_is_refused_as_before(proto: onnx.ModelProto, table: np.ndarray) -> None:
    """No exact program under the sets that were given."""
    with pytest.raises(AccuracyError, match="under the best set, 'toy_raised'"):
        cw.compile(proto, table[:300], sets=["toy_raised"], accuracy=1.0, task="regression")
    with pytest.warns(AccuracyWarning, match="under the best set, 'toy_raised'"):
        cw.compile(proto, table[:300], sets=["toy_raised"], accuracy=1.0, task="regression", allow_loss=True)


def test_large_networks_are_refused_at_once(
    proto: onnx.ModelProto, table: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying exact layers takes minutes for a thousand numbers: past a limit it has to be asked for."""
    monkeypatch.setattr(pipeline, "_MOST_LAYERED", sum(WIDTHS) - 1)
    with pytest.raises(AccuracyError, match="under the best set, 'toy_fine'"):
        cw.compile(proto, table[:300], sets=TOY, task="regression", accuracy=1 - 1e-7)
