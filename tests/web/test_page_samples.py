"""The page's samples are those of the zoo and its drawn digits those of Python. Run as a script it writes web/page/samples.json."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.app.cli.shared import sample_digits
from cloakwork.models import zoo

WEB = Path(__file__).parents[2] / "web"
FILE = WEB / "page" / "samples.json"
TABLES = {
    "iris-tree": "Iris: which species?",
    "breast-cancer-forest": "Breast cancer: is the tumour malignant?",
    "wine-boosting": "Wine: which cultivar?",
}
WINE = (
    "alcohol", "malic acid", "ash", "alkalinity of ash", "magnesium", "phenols", "flavonoids", "non-flavonoid phenols",
    "proanthocyanins", "colour intensity", "hue", "OD280/OD315 of diluted wines", "proline",
)  # fmt: skip


def table(name: str) -> dict[str, Any]:
    """Of the held-out samples: each column's range, and the first sample of each class that the model gets right."""
    card, samples = zoo.card(name), zoo.held_out(name)
    classes = [each.replace("_", " ") for each in card.facts["classes"]]
    first = [int(np.flatnonzero((samples.y == label) & (samples.clear == label))[0]) for label in range(len(classes))]
    names = card.facts["feature_names"] if name != "wine-boosting" else WINE
    ranges = zip(names, samples.x.min(axis=0), samples.x.max(axis=0), strict=True)
    return {
        "title": TABLES[name],
        "source": card.facts["source"],
        "classes": classes,
        "features": [{"name": each, "low": low, "high": high} for each, low, high in ranges],
        "examples": [{"class": classes[i], "values": samples.x[row].tolist()} for i, row in enumerate(first)],
    }


def lines(digit: int) -> list[list[list[float]]]:
    strokes = [sample_digits._smooth(np.asarray(stroke, np.float64)) for stroke in sample_digits.STROKES[digit]]
    return [np.round(stroke, 2).tolist() for stroke in strokes]


def expected() -> dict[str, Any]:
    digits = [lines(digit) for digit in sample_digits.STROKES]
    return {"tables": {name: table(name) for name in TABLES}, "digits": digits}


def test_samples_are_those_of_the_zoo():
    assert json.loads(FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(expected()))


def test_a_drawn_digit_is_the_image_that_python_makes_of_it(tmp_path: Path):
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    if shutil.which("node") is None or not esbuild.exists():
        pytest.skip("web/node_modules is not there: run 'make web'")
    module = tmp_path / "digit_image.mjs"
    digits = f"{json.dumps(expected()['digits'])}.map((strokes) => [...digitImage(strokes)])"
    script = f"import {{ digitImage }} from '{module}'; console.log(JSON.stringify({digits}))"
    subprocess.run([esbuild, WEB / "page" / "digit_image.ts", f"--outfile={module}", "--log-level=error"], check=True)
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    images = [sample_digits.draw(strokes).ravel() for strokes in sample_digits.STROKES.values()]
    np.testing.assert_allclose(np.array(json.loads(done.stdout)), images, atol=0.03)  # points are rounded to 0.01


if __name__ == "__main__":
    FILE.write_text(json.dumps(expected(), separators=(",", ":")) + "\n", encoding="utf-8")
