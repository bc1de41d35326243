"""Accuracy against look-ups: networks for images, trained, tuned under parameter sets, and evaluated in clear and with the simulated noise.

PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m vision_tradeoff OUT --device cuda
PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m vision_tradeoff OUT vgg-56 mnist-10-24 --set nn1 --set nn2

Each network and set is a line of JSON in OUT/results.jsonl and an ONNX file OUT/NETWORK-SET.onnx as soon as it is there. CIFAR-10 is a JPEG copy.
What counts in the end is the simulation of the compiled program; `noisy` here is training's own estimate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.training.fit import Schedule, fit, scores
from cloakwork.training.image_data import load_images
from cloakwork.training.recipes import cifar10, mnist
from cloakwork.training.recipes.networks import Shape, lookups, network
from cloakwork.training.recipes.recipe import Teacher, accuracy, tuned

_SECONDS_KEPT: Final = 5.0  # of the budget, for what is under way


@dataclass(frozen=True)
class Variant:
    """Args: teacher: of both parts."""

    name: str
    data: str
    build: Callable[[], torch.nn.Module]
    schedule: Schedule
    tuning: Schedule
    sets: tuple[str, ...]
    teacher: Teacher | None = None


def _cifar10(name: str, shape: Shape, *sets: str) -> Variant:
    recipe = cifar10.RECIPES["cifar10-resnet" if shape.residual else "cifar10-vgg"]
    return Variant(name, "cifar10", partial(network, shape), recipe.schedule, recipe.tuning, sets, recipe.teacher)


def _mnist(first: int, second: int, *sets: str) -> Variant:
    recipe, build = mnist.RECIPES["mnist-strided"], partial(mnist.strided, (first, second))
    return Variant(f"mnist-{first}-{second}", "mnist", build, recipe.schedule, recipe.tuning, sets)


VARIANTS: Final = (
    _cifar10("resnet8-44", cifar10.strided(44, (1, 1, 1), 2), "nn05", "nn1"),
    _cifar10("vgg-56", cifar10.vgg(56, 2), "nn1", "nn05", "nn2"),
    _cifar10("resnet12-64", cifar10.strided(64, (1, 2, 2), 2), "nn05", "nn1"),
    _mnist(10, 24, "nn2", "nn1"),
    _mnist(6, 16, "nn1", "nn05"),
    _cifar10("vgg-96", cifar10.vgg(96, 2), "nn1", "nn2"),
    _cifar10("resnet12-80", cifar10.strided(80, (1, 2, 2), 2), "nn05"),
    _cifar10("resnet14-64", cifar10.strided(64, (2, 2, 2), 2), "nn1"),
    _cifar10("resnet20", cifar10.resnet20(), "nn1"),
    _cifar10("resnet8-28x4", cifar10.strided(28, (1, 1, 1), 4), "nn05"),
    _cifar10("resnet8-28x4-late", cifar10.strided(28, (0, 2, 1), 4), "nn05"),
    _cifar10("vgg-32x4", cifar10.vgg(32, 4), "nn05"),
    _cifar10("resnet12-24x4", cifar10.strided(24, (1, 2, 2), 4), "nn05"),
    _cifar10("resnet12-32x4", cifar10.strided(32, (1, 2, 2), 4), "nn05"),
    _cifar10("resnet8-64", cifar10.strided(64, (1, 1, 1), 2), "nn1", "nn05"),
    _cifar10("vgg-40", cifar10.vgg(40, 2), "nn1", "nn05"),
)


@dataclass(frozen=True)
class Data:
    """Images and labels of both parts."""

    train: tuple[Any, Any]
    test: tuple[Any, Any]

    @classmethod
    def load(cls, name: str, images: int | None) -> Data:
        """Args: images: at most so many of each part; None: all."""
        parts = [load_images(name, "train"), load_images(name, "test")]
        every = [1 if images is None else max(1, len(labels) // images) for _, labels in parts]
        train, test = ((x[::step], y[::step]) for (x, y), step in zip(parts, every, strict=True))
        return cls(train, test)


def taught(teacher: Teacher, data: Data, device: str, kept: Path | None) -> torch.nn.Module:
    """The trained teacher. Args: kept: a .npz file of its weights, read where it is there and else written."""
    torch.manual_seed(teacher.schedule.seed)
    model = teacher.build()
    if kept is not None and kept.exists():
        with np.load(kept) as weights:
            model.load_state_dict({name: torch.as_tensor(weights[name]) for name in weights.files})
        return model.to(device).eval()
    began = time.monotonic()
    fit(model, *data.train, teacher.schedule, device)
    found = accuracy(model, *data.test, simulated=False)
    print(json.dumps({"teacher": found, "seconds": time.monotonic() - began}), flush=True)
    if kept is not None:
        with atomic_writer(kept) as stream:
            np.savez(stream, **{name: each.cpu().numpy() for name, each in model.state_dict().items()})
    return model


def measured(
    variant: Variant, data: Data, device: str, folder: Path, teacher: torch.nn.Module | None
) -> list[dict[str, Any]]:
    """A record for each set, appended to the results as soon as it is there."""
    began = time.monotonic()
    torch.manual_seed(variant.schedule.seed)
    model = variant.build()
    fit(model, *data.train, variant.schedule, device, teacher=teacher)
    shared = {
        "network": variant.name,
        "data": variant.data,
        "lookups": lookups(model, data.train[0].shape[1:]),
        "parameters": sum(each.numel() for each in model.parameters()),
        "epochs": variant.schedule.epochs,
        "clear_before": accuracy(model, *data.test, simulated=False),
        "noisy_before": accuracy(model, *data.test, simulated=True),
        "seconds": time.monotonic() - began,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
    }
    print(json.dumps(shared), flush=True)
    records = []
    for parameter_set in variant.sets:
        began = time.monotonic()
        torch.manual_seed(variant.tuning.seed)
        prepared = tuned(model, *data.train, parameter_set, variant.tuning, teacher=teacher, structured=True)
        path = folder / f"{variant.name}-{parameter_set}.onnx"
        x, y = data.test
        clear, noisy = (scores(prepared, x, simulated).argmax(axis=1) for simulated in (False, True))
        record = {
            **shared,
            "set": parameter_set,
            "tuning_epochs": variant.tuning.epochs,
            "clear": float((clear == y).mean()),
            "noisy": float((noisy == y).mean()),
            "agreement": float((noisy == clear).mean()),
            "tuning_seconds": time.monotonic() - began,
            "onnx": path.name,
        }
        prepared.export(path)
        with (folder / "results.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)
        records.append(record)
    return records


def table(records: list[dict[str, Any]]) -> str:
    """In Markdown, by look-ups."""
    lines = ["| network | look-ups | set | clear | noisy | agreement | seconds |", "|" + "---|" * 7]
    for each in sorted(records, key=lambda record: (record["data"], record["lookups"], record["set"])):
        shares = " | ".join(f"{100 * each[kind]:.2f} %" for kind in ("clear", "noisy", "agreement"))
        seconds = each["seconds"] + each["tuning_seconds"]
        lines.append(f"| {each['network']} | {each['lookups']:,} | `{each['set']}` | {shares} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="vision_tradeoff", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument(
        "names", nargs="*", metavar="NETWORK", help=f"of {', '.join(names)}; all without, in this order"
    )
    parser.add_argument("--set", action="append", help="parameter set, in place of the networks' own; may be repeated")
    parser.add_argument("--device", default="cpu", help="as PyTorch calls it")
    parser.add_argument("--epochs", type=int, help="of training, in place of the networks' own")
    parser.add_argument("--tuning-epochs", type=int, help="under the sets, in place of the networks' own")
    parser.add_argument("--tuning-rate", type=float, help="learning rate under the sets, in place of the networks' own")
    parser.add_argument(
        "--range-weight",
        type=float,
        help="of half ranges over deviations in the loss, in place of the networks' own",
    )
    parser.add_argument(
        "--erased",
        type=int,
        default=0,
        help="side, in pixels, of a square of every image that is blanked before the sets",
    )
    parser.add_argument("--alone", action="store_true", help="without a teacher")
    parser.add_argument("--teacher-epochs", type=int, help="in place of its own")
    parser.add_argument("--teacher", type=Path, help="a .npz file that keeps the teacher's weights from run to run")
    parser.add_argument("--images", type=int, help="of each part at most, evenly over all")
    parser.add_argument(
        "--budget", type=float, help="seconds after which no further network is begun that would not fit"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(names))
    if unknown:
        parser.error(f"expected names of {', '.join(names)}, got {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [v for v in VARIANTS if v.name in options.names] if options.names else list(VARIANTS)
    began, longest = time.monotonic(), 0.0
    data: dict[str, Data] = {}
    teachers: dict[str, torch.nn.Module] = {}
    records = []
    for variant in chosen:
        spent = time.monotonic() - began
        if options.budget and spent + longest + _SECONDS_KEPT > options.budget:
            print(f"{variant.name}: left out after {spent:.0f} s")
            continue
        if variant.data not in data:
            data[variant.data] = Data.load(variant.data, options.images)
        if variant.teacher is not None and not options.alone and variant.data not in teachers:
            lessons = variant.teacher.schedule
            epochs = options.teacher_epochs or lessons.epochs
            teacher = replace(variant.teacher, schedule=replace(lessons, epochs=epochs))
            teachers[variant.data] = taught(teacher, data[variant.data], options.device, options.teacher)
        start = time.monotonic()
        asked, helped = _as_asked(variant, options), teachers.get(variant.data)
        records += measured(asked, data[variant.data], options.device, options.out, helped)
        longest = max(longest, time.monotonic() - start)
    print(table(records))


def _as_asked(variant: Variant, options: argparse.Namespace) -> Variant:
    epochs = options.epochs or variant.schedule.epochs
    schedule = replace(variant.schedule, epochs=epochs, erased=options.erased)
    tuning = replace(
        variant.tuning,
        epochs=options.tuning_epochs or variant.tuning.epochs,
        learning_rate=options.tuning_rate or variant.tuning.learning_rate,
        range_weight=variant.tuning.range_weight if options.range_weight is None else options.range_weight,
    )
    sets = tuple(options.set or variant.sets)
    return replace(variant, schedule=schedule, tuning=tuning, sets=sets)


if __name__ == "__main__":
    main()
