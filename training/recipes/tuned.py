"""Recipes of ordinary networks: trained with batch normalisation, plainly or with about the noise of a set, then tuned under the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cloakwork.training.fit import Progress, Schedule, fit, scores
from cloakwork.training.image_data import Images, Labels, load_images, spread
from cloakwork.training.noise import LookupNoise
from cloakwork.training.preparation import Prepared, prepare, trained_options
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.recipe import Trained, seeded

_EXAMPLES: Final = 1000  # images from which ranges start


@dataclass(frozen=True)
class Teacher:
    """A network of any cost, trained in clear, that is used in training alone."""

    build: Callable[[], torch.nn.Module]
    schedule: Schedule


@dataclass(frozen=True)
class TunedRecipe:
    """The recipe of a network of the zoo that `prepare` makes ready for a parameter set."""

    name: str
    data: str  # "mnist" or "cifar10"
    parameter_set: str
    build: Callable[[LookupNoise | None], torch.nn.Module]
    schedule: Schedule
    tuning: Schedule  # under the whole simulation
    description: str
    noise_first: bool = (
        True  # the set's noise from the start: networks for noisy sets need it, for quiet ones it costs accuracy
    )
    compile: Mapping[str, Any] | None = None  # options of `cloakwork.compile`; None: the set that it was tuned under
    teacher: Teacher | None = None
    keeps_program: bool = False  # as of `Trained`


def train_tuned_recipe(
    recipe: TunedRecipe, path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None
) -> Trained:
    """Writes the ONNX file; Args as in `cloakwork.training.recipes.train`. Epochs of tuning are a part of epochs, as they are in the recipe, and
    those of a teacher, which count for themselves, are as many as of the first part at most."""
    whole = recipe.schedule.epochs + recipe.tuning.epochs
    tuning = recipe.tuning.epochs if epochs is None else max(1, round(epochs * recipe.tuning.epochs / whole))
    first = recipe.schedule.epochs if epochs is None else max(1, epochs - tuning)
    images, labels = load_images(recipe.data, "train")
    with seeded(recipe.schedule.seed):
        teacher = None
        if recipe.teacher is not None:
            teacher = recipe.teacher.build()
            lessons = replace(recipe.teacher.schedule, epochs=min(first, recipe.teacher.schedule.epochs))
            fit(teacher, images, labels, lessons, device, progress)
        model = recipe.build(LookupNoise.of(recipe.parameter_set) if recipe.noise_first else None)
        fit(model, images, labels, replace(recipe.schedule, epochs=first), device, progress, teacher)
        schedule = replace(recipe.tuning, epochs=tuning)
        prepared = tuned(model, images, labels, recipe.parameter_set, schedule, progress, teacher=teacher)
    prepared.export(path)
    test, truth = load_images(recipe.data, "test")
    clear, noisy = (accuracy(prepared, test, truth, simulated=noise) for noise in (False, True))
    options = trained_options(prepared) if recipe.compile is None else dict(recipe.compile)
    seed, epochs = recipe.schedule.seed, first + tuning
    return Trained(prepared, path, clear, noisy, options, None, seed, epochs, recipe.data, recipe.keeps_program)


def tuned(
    model: torch.nn.Module,
    images: Images,
    labels: Labels,
    parameter_set: str,
    schedule: Schedule,
    progress: Progress = None,
    *,
    teacher: torch.nn.Module | None = None,
    structured: bool = False,
) -> Prepared:
    """Returns the network, trained on under the noise of a set, where it is; in evaluation mode.

    Args:
        teacher: as in `fit`.
        structured: as in `prepare`.
    """
    device = next(model.parameters()).device
    example = torch.as_tensor(spread(images, _EXAMPLES), dtype=torch.float32, device=device)
    prepared = prepare(model.eval(), example, parameter_set=parameter_set, structured=structured)
    fit(prepared, images, labels, schedule, str(device), progress, teacher)
    return prepared


def accuracy(model: torch.nn.Module, images: Images, labels: Labels, *, simulated: bool) -> float:
    """Returns share of right answers."""
    return float((scores(model, images, simulated).argmax(axis=1) == labels).mean())
