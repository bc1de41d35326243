"""`cloakwork demo iris|wine|..`: small tables, really encrypted, scored by a process without the key."""

from __future__ import annotations

import json

import pytest

from cloakwork.app.cli.demo.tabular import MODELS
from cloakwork.models import zoo

pytestmark = pytest.mark.os_entropy
KEYS = {
    "model", "samples", "device", "accuracy_clear", "accuracy_quantised", "accuracy_encrypted", "agreement", "seconds_per_sample",
    "seconds_first_sample", "upload_bytes", "ciphertext_bytes", "bootstraps_per_sample", "p_fail_log2", "security_bits",
}  # fmt: skip


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("name", "samples", "most_bootstraps"), [("iris", 50, 10), ("digits", 20, 0), ("wine", 2, 100)]
)
def test_encrypted_answers_are_those_of_the_compiled_model(call, name, samples, most_bootstraps):
    result = call("demo", name, "--samples", str(samples), "--device", "cpu", "--threads", "1", "--json", "-")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    record = json.loads(result.stdout)
    assert record.keys() >= KEYS
    assert (record["model"], record["samples"], record["device"]) == (MODELS[name][0], samples, "cpu")
    assert record["agreement"] == 1.0
    assert record["accuracy_encrypted"] == record["accuracy_quantised"]
    assert record["bootstraps_per_sample"] <= most_bootstraps
    assert record["upload_bytes"] <= 40e6 and record["ciphertext_bytes"] <= 20_000
    assert record["p_fail_log2"] <= -100 and record["security_bits"] >= 128
    assert record["seconds_first_sample"] > 0 and record["seconds_per_sample"] > 0


@pytest.mark.tier("all")
def test_people_see_a_table(call):
    result = call("demo", "iris", "--samples", "3", "--show", "2")
    assert result.returncode == 0, result.stderr
    assert "3 samples of iris; model iris-tree: decision tree" in result.stdout
    assert "100.0 % of the answers are those of the compiled model in clear" in " ".join(result.stdout.split())


def test_wrong_calls(call):
    assert call("demo", "iris", "--samples", "0").returncode == 2
    assert call("demo", "iris", "--device", "abacus").returncode in (1, 2)


@pytest.mark.parametrize("model_name", [model for model, _ in MODELS.values()])
def test_the_card_tells_the_accuracy_on_all_held_out_samples(model_name):
    samples, card = zoo.held_out(model_name), zoo.card(model_name)
    assert len(samples.x) == card.facts["samples"]
    assert (samples.clear == samples.y).mean() == pytest.approx(card.facts["accuracy_clear"])
    quantised = zoo.load_model(model_name).predict(samples.x)
    assert (quantised == samples.y).mean() == pytest.approx(card.facts["accuracy_quantised"])
    assert (quantised == samples.clear).mean() >= 0.98
