"""The page's samples are those of the zoo and its drawn digits those of Python. Run as a script it writes web/page/samples.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.app.cli.shared import sample_digits
from cloakwork.app.client.passphrases import weakness
from cloakwork.models import zoo
from cloakwork.models.criteria.feature_ranges import public_ends
from cloakwork.training.cifar10_data import CLASSES
from cloakwork.training.tabular_data import load_tabular

WEB = Path(__file__).parents[2] / "web"
FILE = WEB / "page" / "samples.json"
TABLES = {
    "iris-tree": "Iris: which species?",
    "breast-cancer-forest": "Breast cancer: is the tumour malignant?",
    "wine-boosting": "Wine: which cultivar?",
}
BITMAPS = "digits-logistic"
TEST_IMAGES = 10_000  # of MNIST and of CIFAR-10
WINE = (
    "alcohol", "malic acid", "ash", "alkalinity of ash", "magnesium", "phenols", "flavonoids", "non-flavonoid phenols",
    "proanthocyanins", "colour intensity", "hue", "OD280/OD315 of diluted wines", "proline",
)  # fmt: skip


def whole(name: str) -> np.ndarray:
    """Training and held-out samples of a model's data set."""
    data = load_tabular(zoo.card(name).data)
    return np.concatenate([data.train_x, data.test_x])


def table(name: str) -> dict[str, Any]:
    """Round numbers around each column of the whole data set, and the first held-out sample of each class that the model gets right."""
    card, samples = zoo.card(name), zoo.held_out(name)
    classes = [each.replace("_", " ") for each in card.facts["classes"]]
    right = samples.y == samples.clear
    first = [int(np.flatnonzero(right & (samples.y == each))[0]) for each in zoo.labels_of(card.facts["classes"])]
    names = card.facts["feature_names"] if name != "wine-boosting" else WINE
    x = whole(name)
    low, high = (ends.tolist() for ends in public_ends(x.min(axis=0), x.max(axis=0)))
    return {
        "title": TABLES[name],
        "source": card.facts["source"],
        "classes": classes,
        "features": [{"name": a, "low": b, "high": c} for a, b, c in zip(names, low, high, strict=True)],
        "examples": [{"class": classes[i], "values": samples.x[row].tolist()} for i, row in enumerate(first)],
    }


def lines(digit: int) -> list[list[list[float]]]:
    strokes = [sample_digits._smooth(np.asarray(stroke, np.float64)) for stroke in sample_digits.STROKES[digit]]
    return [np.round(stroke, 2).tolist() for stroke in strokes]


def bitmaps() -> dict[str, Any]:
    """The first held-out digit of each class that the model gets right."""
    samples = zoo.held_out(BITMAPS)
    first = [int(np.flatnonzero((samples.y == digit) & (samples.clear == digit))[0]) for digit in range(10)]
    source = zoo.card(BITMAPS).facts["source"]
    return {"model": BITMAPS, "source": source, "examples": samples.x[first].astype(int).tolist()}


def accuracy(name: str) -> dict[str, Any]:
    """The share of held-out samples that the compiled model gets right, and how many there are."""
    facts = zoo.card(name).facts
    share = facts.get("accuracy_quantised", facts.get("accuracy_simulated"))
    return {"share": round(share, 4), "samples": facts.get("samples", TEST_IMAGES)}


def digest(name: str) -> str:
    return zoo.load_model(name).program.digest.hex()[:16]


def expected() -> dict[str, Any]:
    return {
        "accuracy": {digest(name): accuracy(name) for name in zoo.names()},
        "tables": {name: table(name) for name in TABLES},
        "digits": [lines(digit) for digit in sample_digits.STROKES],
        "bitmaps": bitmaps(),
        "photographs": {"side": 32, "classes": list(CLASSES)},
        # Trained with cross entropy (training/fit.py), without a last step: their scores are logits.
        "logits": [name for name in zoo.names() if zoo.card(name).data in ("mnist", "cifar10")],
    }


def test_samples_are_those_of_the_zoo():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it has the data sets")
    assert json.loads(FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(expected()))


@pytest.mark.parametrize("name", TABLES)
def test_ranges_hold_every_sample_of_the_data_set(name: str):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it has the data sets")
    features, x = json.loads(FILE.read_text(encoding="utf-8"))["tables"][name]["features"], whole(name)
    low, high = (np.array([each[end] for each in features]) for end in ("low", "high"))
    assert ((low <= x) & (x <= high)).all()
    span = x.max(axis=0) - x.min(axis=0)
    assert (high - low <= 1.25 * span).all()  # round numbers, no wide ones
    assert ((low >= 0) == (x.min(axis=0) >= 0)).all()


def test_drawings_and_passphrases_are_stored_as_python_has_them():
    """web/test/page.test.mjs reads the same of the page."""
    path = WEB.parent / "tests" / "vectors" / "steps" / "page.json"
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        given, answer = case["given"][0], case["answer"]
        if case["call"] == "weakness":
            assert weakness(given) == answer
        if case["call"] == "digitImage" and given:
            image = sample_digits.image_of([np.array(line) for line in given])
            np.testing.assert_allclose(image.ravel(), answer, atol=1e-9)


if __name__ == "__main__":
    FILE.write_text(json.dumps(expected(), separators=(",", ":")) + "\n", encoding="utf-8")
