"""Recipes: an ordinary network is trained plainly, then tuned under the noise of a set by `prepare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cloakwork.training.fit import Progress, Schedule, fit, scores
from cloakwork.training.image_data import Images, Labels, load_images, spread
from cloakwork.training.preparation import Prepared, prepare, trained_options
from cloakwork.training.pytorch import torch

CPU_THREADS = 2  # sums are cut among threads, so that their number decides the last bits of the weights
_EXAMPLES: Final = 1000  # images from which ranges start


@dataclass(frozen=True)
class Teacher:
    """A network of any cost, trained in clear, that is used in training alone."""

    build: Callable[[], torch.nn.Module]
    schedule: Schedule


@dataclass(frozen=True)
class Trained:
    """Accuracies on the test images: in clear, and with the noise that was simulated while training."""

    model: Prepared
    path: Path
    accuracy_clear: float
    accuracy_noisy: float
    compile: Mapping[str, Any]
    seed: int
    epochs: int
    data: str


@dataclass(frozen=True)
class Recipe:
    """The recipe of a network of the zoo."""

    data: str  # "mnist" or "cifar10"
    parameter_set: str  # that it is tuned for
    build: Callable[[], torch.nn.Module]
    schedule: Schedule
    tuning: Schedule  # under the whole simulation
    description: str
    compile: Mapping[str, Any] | None = None  # options of `cloakwork.compile`; None: the set that it was tuned for
    teacher: Teacher | None = None

    def train(self, path: Path, device: str, epochs: int | None, progress: Progress) -> Trained:
        """Writes the ONNX file; Args as of `cloakwork.training.recipes.train`."""
        whole = self.schedule.epochs + self.tuning.epochs
        epochs = epochs or whole
        first = max(1, round(epochs * self.schedule.epochs / whole))
        last = epochs - first
        images, labels = load_images(self.data, "train")
        with seeded(self.schedule.seed):
            teacher = None
            if self.teacher is not None:
                teacher = self.teacher.build()
                lessons = replace(self.teacher.schedule, epochs=min(first, self.teacher.schedule.epochs))
                fit(teacher, images, labels, lessons, device, progress)
            model = self.build()
            fit(model, images, labels, replace(self.schedule, epochs=first), device, progress, teacher)
            tuning = replace(self.tuning, epochs=last)
            prepared = tuned(model, images, labels, self.parameter_set, tuning, progress, teacher=teacher)
        prepared.export(path)
        test, truth = load_images(self.data, "test")
        clear, noisy = (accuracy(prepared, test, truth, simulated=noise) for noise in (False, True))
        options = trained_options(prepared) if self.compile is None else dict(self.compile)
        return Trained(prepared, path, clear, noisy, options, self.schedule.seed, epochs, self.data)


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
