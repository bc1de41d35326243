"""What counts as good as the clear model, from single numbers to compiled networks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.models.criteria.verdicts import (
    agreement,
    closeness,
    cosine,
    decisions,
    held_out,
    judged,
    labels,
    labels_kept,
    samples_for,
    wilson,
)
from cloakwork.models.errors import AccuracyError, AccuracyWarning

NORMAL = np.random.default_rng(1).standard_normal


# --- values ------------------------------------------------------------------------------------------------------------------------


def test_values_are_judged_by_their_error_in_spreads() -> None:
    clear = NORMAL((400, 2)) * [1.0, 500.0] + 7
    found = closeness(clear + [0.02, 5.0] * NORMAL((400, 2)), clear)
    assert found.measure == "closeness" and 0.975 < found.value < 0.985
    assert found.value - 0.004 < found.at_least < found.value and found.doubled == pytest.approx(2 * found.value - 1)
    assert found.holds(0.97) and not found.holds(0.985) and found.leaves_no_doubt(0.97)
    limit = (found.value + found.at_least) / 2  # more samples would show it
    assert not found.holds(limit) and found.reaches(limit) and 400 < found.samples_for(limit) < 2000
    worse = closeness(clear + [0.05, 5.0] * NORMAL((400, 2)), clear)
    assert not worse.holds(0.97) and not worse.reaches(0.97) and worse.holds(0.94)


def test_constants_and_parts_of_a_signal_are_no_quantities() -> None:
    clear = np.concatenate([NORMAL((200, 1)), np.full((200, 1), 3.0)], axis=1)
    assert closeness(clear + np.array([0.0, 1.0]), clear).value == 1
    image = NORMAL((200, 20)) * ([1.0] * 19 + [0.001])
    assert closeness(image + 0.05 * NORMAL((200, 20)), image).value == pytest.approx(0.975, abs=0.002)
    assert closeness((image + 0.01 * NORMAL((200, 20)))[:, 12:], image[:, 12:]).value < 0


def test_ends_that_are_cut_off_are_found() -> None:
    clear = np.sort(NORMAL((1000, 1)), axis=0)
    cut = closeness(np.minimum(clear, 1.6), clear)
    assert cut.where == "a tenth of its values" and not cut.holds(0.97)


def test_an_interval_keeps_its_width() -> None:
    """The middle varies much, the two ends are close: what is little to the spread is much to the interval."""
    middle = NORMAL((500, 1))
    wide, narrow = (middle + half * np.array([[-1.0, 0.0, 1.0]]) for half in (1.0, 0.05))
    error = 0.02 * NORMAL((500, 3))
    assert closeness(wide + error, wide).holds(0.97)
    found = closeness(narrow + error, narrow)
    assert found.where == "the interval between its outer numbers" and not found.holds(0.97)
    assert closeness((narrow + error)[:, :1], narrow[:, :1]).holds(0.97)


# --- decisions ---------------------------------------------------------------------------------------------------------------------


def test_the_lower_end_of_decisions_counts() -> None:
    wanted = np.arange(300) % 2
    changed = np.where(np.arange(300) < 1, 1 - wanted, wanted)
    few, enough = labels_kept(changed[:60], wanted[:60]), labels_kept(changed, wanted)
    assert few.value == pytest.approx(59 / 60) and not few.holds(0.97)
    assert few.reaches(0.97) and few.samples_for(0.97) == 197 and few.differs == 0
    assert enough.holds(0.97) and enough.at_least == pytest.approx(wilson(299 / 300, 300, -1.645))
    assert labels_kept(wanted, wanted).holds(1.0) and not enough.holds(1.0)
    many = labels_kept(np.where(np.arange(300) < 7, 1 - wanted, wanted), wanted)
    assert many.value > 0.97 and not many.reaches(0.97)  # 97.7 %, for certain 95.7 %


def test_so_many_samples_show_an_accuracy() -> None:
    count = samples_for(0.97)
    assert count == 197 and samples_for(1.0) == 0
    assert wilson(0.99, count, -1.645) >= 0.97 > wilson(0.99, count - 1, -1.645)


def test_a_rare_class_is_judged_by_itself() -> None:
    wanted = (np.arange(1000) < 20).astype(np.int64)
    found = wanted.copy()
    found[:6] = 0
    verdict = labels_kept(found, wanted)
    assert verdict.value == 0.994 and verdict.where == "class 1" and not verdict.reaches(0.97)
    moved = np.roll(wanted, 500)  # as many of both classes, elsewhere
    assert not labels_kept(moved, wanted).reaches(0.9)


def test_few_of_a_class_are_tried_with_the_errors_of_others() -> None:
    """None of eight is decided otherwise, but they are close enough to it that others' errors would do it."""
    clear = np.concatenate([np.linspace(0.1, 0.8, 8), np.linspace(-6, -1, 392)])[:, None]
    error = 0.3 * NORMAL(clear.shape)
    error[:8] = 0.0
    found = agreement(clear + error, clear, lambda values: decisions(values, clear))
    assert found.value == 1 and found.rarest < 0.97 and found.holds(0.97) and not found.leaves_no_doubt(0.97)


def test_labels_that_hold_together_are_judged_each() -> None:
    shares = np.random.default_rng(3).uniform(size=(300, 3))
    shares[:, 2] = np.where(shares[:, 2] > 0.5, 0.9, 0.1)
    noisy = shares + np.array([[0.2, 0.0, 0.0]]) * NORMAL((300, 1))
    found = agreement(noisy, shares, lambda values: labels(values, shares))
    assert found.value == ((noisy[:, 0] > 0.5) == (shares[:, 0] > 0.5)).mean() < 0.9
    one = np.eye(3)[np.arange(300) % 3] * 0.9
    assert labels(one, one).tolist() == (np.arange(300) % 3)[:, None].tolist()


def test_unseen_samples_say_when_the_others_flatter() -> None:
    wanted = np.arange(300) % 2
    found = np.where(np.arange(300) < 17, 1 - wanted, wanted)
    unseen = np.arange(300) < 100
    verdict = judged(labels_kept(wanted, wanted), labels_kept(found[unseen], wanted[unseen]))
    assert not verdict.holds(0.97) and verdict.unseen == 100
    like = judged(labels_kept(wanted, wanted), labels_kept(wanted[unseen], wanted[unseen]))
    assert like.at_least == wilson(1.0, 300, -1.645)
    assert held_out(199).sum() == 0 and held_out(300).sum() == 100 and held_out(9000).sum() == 500


# --- embeddings --------------------------------------------------------------------------------------------------------------------


def test_embeddings_are_judged_by_the_cosines_of_pairs() -> None:
    clear = NORMAL((200, 8))
    clear /= np.linalg.norm(clear, axis=1, keepdims=True)
    turned = clear @ np.linalg.qr(NORMAL((8, 8)))[0] * 3.0
    assert cosine(turned, clear).value == 1 and cosine(turned, clear).holds(0.97)
    near, far = (cosine(clear + size * NORMAL(clear.shape), clear) for size in (0.004, 0.04))
    assert near.holds(0.97) and not far.holds(0.97) and far.at_least < far.value < near.value


# --- compiled ----------------------------------------------------------------------------------------------------------------------


def measure_of(compiled: Any) -> str:
    return str(compiled.report()["check"]["measure"])


def one_logit(seed: int, *after: str) -> Any:
    """A network of one number, around zero, and functions of it."""
    proto = mlp(np.random.default_rng(seed), [6, 12, 1])
    last = proto.graph.output[0].name
    for place, operator in enumerate(after):
        proto.graph.node.append(helper.make_node(operator, [last], [f"after{place}"]))
        last = f"after{place}"
    proto.graph.output[0].name = last
    return proto


X = np.random.default_rng(4).uniform(-1, 1, (400, 6))


def test_a_logistic_function_at_the_end_decides() -> None:
    assert measure_of(cw.compile(one_logit(5, "Sigmoid"), X)) == "agreement"
    assert measure_of(cw.compile(one_logit(5, "Sigmoid"), X, task="regression")) == "closeness"
    assert measure_of(cw.compile(one_logit(5, "Exp"), X)) == "closeness"


def moved(by: float, *after: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    """The sums of six numbers, moved, and what comes after: nodes from "n0" on to "y"."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Add", ["s", "b"], ["n0"]), *after]
    return model(nodes, [6], {"w": np.ones((6, 1), np.float32), "b": np.array([by], np.float32), **constants})


def test_decisions_that_are_the_same_for_all_samples_show_nothing() -> None:
    """All samples are of one class: it is judged by its values."""
    last = helper.make_node("Sigmoid", ["n0"], ["y"])
    assert measure_of(cw.compile(moved(0.0, last), X)) == "agreement"
    assert measure_of(cw.compile(moved(9.0, last), X)) == "closeness"
    assert measure_of(cw.compile(moved(9.0, last), X, task="classification")) == "agreement"


def test_values_that_are_the_same_for_all_samples_are_a_warning() -> None:
    ends = {"low": np.float32(0), "high": np.float32(5)}
    last = helper.make_node("Clip", ["n0", "low", "high"], ["y"])
    with pytest.warns(AccuracyWarning, match="has the same values in one number, which may have others"):
        cw.compile(moved(20.0, last, **ends), np.concatenate([X, X]) * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cw.compile(moved(2.0, last, **ends), X)


def test_one_number_may_be_a_logit_or_a_quantity() -> None:
    """Its values have to be right; if only its decisions are, a warning asks what it is for."""
    assert measure_of(cw.compile(one_logit(6), X, accuracy=0.95)) == "closeness"
    w, v = np.array([[1.0, -1.0]] * 6), np.array([[1.0], [-1.0]])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
    ]
    proto = model(nodes, [6], {"w": w.astype(np.float32), "v": v.astype(np.float32)})
    x = np.where(np.arange(400)[:, None] % 2, 1, -1) * np.abs(X)  # two groups far from zero
    with pytest.warns(AccuracyWarning, match=r"keeps its decisions but not its values.*say task='classification'"):
        cw.compile(proto, x, sets=["nn2"])
    with pytest.raises(AccuracyError, match=r"off by .* at most 3 % were asked for \(accuracy=0.97\)"):
        cw.compile(proto, x, sets=["nn2"], task="regression")
    assert measure_of(cw.compile(proto, x, sets=["nn2"], task="classification")) == "agreement"


def test_few_samples_are_a_warning_that_says_how_many_would_do() -> None:
    proto = mlp(np.random.default_rng(8), [4, 8, 2])
    x = np.random.default_rng(9).uniform(-1, 1, (300, 4))
    with pytest.warns(AccuracyWarning, match=r"of 40 samples .*too few samples .*give 197 or more"):
        cw.compile(proto, x[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = cw.compile(proto, x)
    check = compiled.report()["check"]
    assert (check["samples"], check["unseen"]) == (300, 100) and check["value"] >= check["at_least"] >= 0.97
    assert f"at least {100 * check['at_least']:.1f} %" in compiled.details


def test_an_error_shows_a_sample_that_differs() -> None:
    proto, x = mlp(np.random.default_rng(12), [8, 32, 32, 32, 4]), np.random.default_rng(13).uniform(-1, 1, (300, 8))
    with pytest.raises(AccuracyError, match=r"at \w+ [0-9.]+ %.*, sample \d+ is .*, \.\. instead of ") as refused:
        cw.compile(proto, x, precision=5.0, sets=["nn2"], weight_bits=2)
    assert "97 % were asked for" in str(refused.value)


def test_an_embedding_is_seen_by_its_length() -> None:
    x = NORMAL((300, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    turn = np.linalg.qr(NORMAL((4, 4)))[0].astype(np.float32)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [4], {"w": turn})
    found = cw.compile(proto, x)
    assert measure_of(found) == "cosine" and "cosines between pairs" in str(found)
    assert measure_of(cw.compile(proto, x, task="classification", accuracy=0.5)) == "agreement"
    assert (
        measure_of(cw.compile(mlp(np.random.default_rng(3), [4, 6, 3]), x, task="embedding", accuracy=0.5)) == "cosine"
    )
