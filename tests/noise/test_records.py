"""What makes stored numbers stale, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
import records
from records import changes, code_text, differences, load, origin, row_digest, save

from cloakwork.fhe_core import _engine, noise

SOURCE = '''
"""Measures."""

COUNT = 3  # samples


def model(params):
    return params.variance


def measure(laboratory):
    """The errors."""
    # Each of them.
    return laboratory.errors(COUNT)
'''


def test_code_changes_with_what_is_measured_and_not_with_words() -> None:
    assert code_text(SOURCE) == ("COUNT = 3  # samples\ndef measure(laboratory):\n    return laboratory.errors(COUNT)")
    same = SOURCE.replace("The errors.", "All errors.\n\n    Of a stage.").replace("# Each", "# Every one")
    assert code_text(same.replace("params.variance", "2 * params.variance")) == code_text(SOURCE)
    assert code_text(SOURCE.replace("COUNT = 3", "COUNT = 4")) != code_text(SOURCE)
    assert code_text(SOURCE.replace("errors(COUNT)", "errors(COUNT + 1)")) != code_text(SOURCE)


def test_a_changed_prediction_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = origin("toy")
    assert changes(before, origin("toy")) == []
    monkeypatch.setattr(noise, "keyswitch_constant_variance", lambda _: 0.0)  # a term of the rounding
    lines = changes(before, origin("toy"))
    assert any(line.startswith("the noise model changed: keyswitch rounding: stored ") for line in lines)
    assert not any("row" in line or "vectors" in line for line in lines)


def test_a_changed_row_or_other_vectors_are_named() -> None:
    before = origin("toy")
    assert changes({**before, "row": "0"}, before) == ["the row of the parameter table changed"]
    assert changes({**before, "vectors": "0"}, before)[0].startswith("the vectors of tests/vectors")
    assert changes(None, before) == ["it is not stored"]


def test_a_row_is_known_by_its_values_its_name_and_its_norm() -> None:
    class Row:
        """A row of the table with other values."""

        def __init__(self, **values: Any) -> None:
            self.values = values

        def __getattr__(self, field: str) -> Any:
            return self.values.get(field, getattr(_engine.parameter_set("toy"), field))

    assert row_digest(Row()) == row_digest(_engine.parameter_set("toy"))  # type: ignore[arg-type]
    others = [Row(lwe_sigma=1.0), Row(name="toy_again"), Row(max_weight_norm=7.0), Row(keyswitch_gadget=(2, 4))]
    assert len({row_digest(row) for row in [Row(), *others]}) == 5  # type: ignore[arg-type]


def test_numbers_may_differ_by_the_order_of_a_sum_only() -> None:
    stage = {"samples": 4, "mean": 1e-12, "variance": 1.0, "largest": 2.0}
    facts: dict[str, Any] = {"stages": {"fresh": stage}, "chained": [stage], "correlations": {"1": 1e-12}}

    def with_stage(**values: float) -> dict[str, Any]:
        return {**facts, "stages": {"fresh": {**stage, **values}}}

    assert differences(facts, with_stage(mean=-1e-12, variance=1 + 1e-12)) == []
    assert differences(facts, with_stage(variance=1 + 1e-7)) == ["stages, fresh, variance: stored 1.0, now 1.0000001"]
    assert differences(facts, with_stage(samples=5)) == ["stages, fresh, samples: stored 4, now 5"]
    assert differences(facts, with_stage(mean=1e-6)) == ["stages, fresh, mean: stored 1e-12, now 1e-06"]
    assert differences(facts, {**facts, "correlations": {"1": 1e-3}}) == ["correlations, 1: stored 1e-12, now 0.001"]
    assert differences(facts, {**facts, "chained": []})
    assert differences(facts, {"chained": [stage]}) == ["stages: only stored", "correlations: only stored"]


def test_what_is_saved_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(records, "FILE", tmp_path / "measured.json")
    assert load() == {}
    record = {
        **origin("toy"),
        "facts": {"stages": {"fresh": {"samples": 4, "mean": -1.5e-12}}, "chained": [{"mean": 0.0}]},
    }
    save({"toy_gate": record, "toy": record, "no set any more": record})
    assert load() == {"toy": record, "toy_gate": record}
    assert list(load()) == ["toy", "toy_gate"]  # in the order of the sets
