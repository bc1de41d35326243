"""Comparison of a card's recipe, run again, with the file of the zoo: `python -m cloakwork.training.reproduction FOLDER NAME ..`.

FOLDER holds what the recipe wrote. Both files are measured alike, on the same samples; one line of JSON for each model says how they differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.training.image_data import load_images

Figures = dict[str, float]
Answers = NDArray[Any]


def compare(name: str, folder: Path) -> dict[str, Any]:
    """Returns figures of the zoo's file, as measured now, and of the reproduced one; whether bytes, and for which share of the samples answers, are
    the same.

    Raises:
        FileNotFoundError: the recipe has not been run with this folder.
    """
    card = zoo.card(name)
    path = folder / f"{name}{zoo.PROGRAM}"
    models = {"zoo": zoo.load_model(name), "reproduced": CompiledModel.load(path)}
    if "samples" in card.facts:
        figures, answers = _of_tables(models, name, folder)
    else:
        figures, answers = _of_images(models, card.data, int(card.facts.get("simulated_seeds", 1)))
    return {
        "model": name,
        "same_bytes": path.read_bytes() == zoo.program_bytes(name),
        "same_answers": _share(answers["zoo"] == answers["reproduced"]),
        **{which: {**figures[which], "bootstraps": model.program.bootstraps} for which, model in models.items()},
    }


def _of_images(
    models: Mapping[str, CompiledModel], data: str, seeds: int
) -> tuple[dict[str, Figures], dict[str, Answers]]:
    """On the test images of a data set; under noise the mean over the seeds 1, 2, .. *Clear* is what the program says without noise."""
    images, labels = load_images(data, "test")
    figures, answers = {}, {}
    for which, model in models.items():
        clear = answers[which] = model.predict(images).argmax(axis=1)
        drawn = [model.predict(images, how="simulate", seed=seed).argmax(axis=1) for seed in range(1, seeds + 1)]
        figures[which] = {
            "accuracy_clear": _share(clear == labels),
            "accuracy_simulated": _share(*(simulated == labels for simulated in drawn)),
            "agreement": _share(*(simulated == clear for simulated in drawn)),
        }
    return figures, answers


def _of_tables(
    models: Mapping[str, CompiledModel], name: str, folder: Path
) -> tuple[dict[str, Figures], dict[str, Answers]]:
    """On the samples that the zoo holds. In clear is what the estimator said before it was compiled, as each card has it."""
    samples = zoo.held_out(name)
    answers = {which: np.asarray(model.predict(samples.x)) for which, model in models.items()}
    cards = {"zoo": zoo.FOLDER, "reproduced": folder}
    figures: dict[str, Figures] = {
        which: {
            "accuracy_clear": json.loads((cards[which] / f"{name}.json").read_text(encoding="utf-8"))["accuracy_clear"],
            "accuracy_quantised": float((answers[which] == samples.y).mean()),
        }
        for which in models
    }
    return figures, answers


def _share(*chosen: NDArray[np.bool_]) -> float:
    return round(float(np.mean(chosen)), 4)


def main(folder: str, *names: str) -> None:
    for name in names:
        sys.stdout.write(f"{json.dumps(compare(name, Path(folder)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
