"""Code that recipes share: data, seed, training, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloakwork.training.export import pools, ranges_json, trained_options, write
from cloakwork.training.fit import Progress, Schedule, fit, scores
from cloakwork.training.mnist_data import load_mnist
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch

CPU_THREADS = 2  # sums are cut among threads, so that their number decides the last bits of the weights
_PIXELS = 784


@dataclass(frozen=True)
class Recipe:
    name: str
    parameter_set: str  # whose noise is injected
    build: Callable[[LookupNoise], torch.nn.Sequential]
    schedule: Schedule
    description: str
    compile: Mapping[str, Any] | None = (
        None  # options of `cloakwork.compile`; None: those that give back the integers as trained
    )


@dataclass(frozen=True)
class Trained:
    """Accuracies on the test images: in clear, and with the noise that was injected while training."""

    model: torch.nn.Module
    path: Path
    accuracy_clear: float
    accuracy_noisy: float
    compile: Mapping[str, Any]
    ranges: str | None  # learned ranges as JSON, for the compiler; None: calibrate with training images
    seed: int
    epochs: int
    data: str = "mnist"  # or "cifar10": what it was trained with
    keeps_program: bool = False  # the zoo has the compiled program, calibrated with images, instead of ONNX and ranges


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds training inside the block, so that it repeats exactly on the same machine."""
    before = torch.get_num_threads()
    torch.manual_seed(seed)
    torch.set_num_threads(CPU_THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_recipe(
    recipe: Recipe, path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None
) -> Trained:
    """Writes the ONNX file; Args as in `cloakwork.training.recipes.train`."""
    schedule = replace(recipe.schedule, epochs=epochs or recipe.schedule.epochs)
    images, labels = load_mnist("train")
    with seeded(schedule.seed):
        model = recipe.build(LookupNoise.of(recipe.parameter_set))
        fit(model, images, labels, schedule, device, progress)
    write(model, path, recipe.name, [_PIXELS])
    test, truth = load_mnist("test")
    clear, noisy = (float((scores(model, test, noise).argmax(axis=1) == truth).mean()) for noise in (False, True))
    return Trained(
        model,
        path,
        clear,
        noisy,
        trained_options(model) if recipe.compile is None else recipe.compile,
        None if pools(model) else ranges_json(model),
        schedule.seed,
        schedule.epochs,
    )
