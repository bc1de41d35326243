"""What a few epochs with `cloakwork.training.prepare` bring: networks trained plainly, compiled, then trained on with and without the noise.

PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m fine_tuning
PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m fine_tuning digits-residual --set nn2 --json result.json

"on" is the control: as many further epochs without noise. All rows are simulated on test samples that the compiler did not see.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from strangers.data import Data, load
from strangers.networks import Residual, convolutions, mlp
from strangers.train import exported
from torch import nn

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.training import Prepared, prepare
from cloakwork.training.preparation import trained_options

_BATCH: Final = 32
_CALIBRATION: Final = 400
_SEEDS: Final = 4
_RANGE_WEIGHT: Final = 0.003


class SiluResidual(Residual):
    """silu(x + conv(silu(conv(x)))), with batch normalisation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.silu(self.first_norm(self.first(x)))
        y = x + self.second_norm(self.second(y))
        z: torch.Tensor = y * torch.sigmoid(y)
        return z


@dataclass(frozen=True)
class Case:
    name: str
    data: str
    network: Callable[[], nn.Module]
    cheap: str  # parameter set
    epochs: int
    further: int  # epochs of fine-tuning, and of the control
    rate: float = 3e-3  # of Adam, for both
    test: int = 1000


CASES: Final = (
    Case("cancer", "breast-cancer", lambda: mlp((30, 16, 8, 1), first_norm=True), "lut1_64", 60, 40),
    Case("digits-deep", "digits", lambda: mlp((64, 16, 16, 16, 16, 16, 16, 10)), "nn2", 60, 40, 1e-2),
    Case(
        "digits-max", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), head=(64, 10),
        ), "nn2", 30, 30,
    ),
    Case(
        "digits-residual", "digits",
        lambda: convolutions(nn.Conv2d(1, 6, 3, padding=1), nn.SiLU(), SiluResidual(6), nn.AvgPool2d(2), head=(96, 10)), "nn2",
        30, 30,
    ),
    Case(
        "mnist-max", "mnist",
        lambda: convolutions(
            nn.Conv2d(1, 4, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), head=(72, 10),
        ), "lut2", 6, 6,
    ),
)  # fmt: skip


def measured(case: Case, parameter_set: str, rate: float) -> dict[str, Any]:
    data = load(case.data)
    torch.manual_seed(1)
    network = case.network()
    trained(network, data, case.epochs, 2e-3)
    on = deepcopy(network)
    trained(on, data, case.further, rate)
    network.eval()
    prepared = prepare(network, torch.tensor(data.train_x[:_CALIBRATION]), parameter_set=parameter_set)
    began = time.monotonic()
    trained(prepared, data, case.further, rate)
    seconds = time.monotonic() - began
    only = trained_options(prepared)
    return {
        "name": case.name,
        "set": prepared.parameter_set,
        "fine_tuning_seconds": seconds,
        "as_it_is": _row(network, exported(network, data), data, case, {}),
        "as_it_is_on_the_set": _row(network, exported(network, data), data, case, only),
        "on": _row(on, exported(on, data), data, case, {}),
        "on_on_the_set": _row(on, exported(on, data), data, case, only),
        "fine_tuned": _row(prepared, prepared.to_onnx(), data, case, only),
    }


def trained(network: nn.Module, data: Data, epochs: int, rate: float) -> None:
    """Adam with a cosine; left in evaluation mode."""
    torch.set_num_threads(1)
    torch.manual_seed(2)
    x, y = torch.tensor(data.train_x), torch.tensor(data.train_y)
    classes = data.task == "classes"
    loss, y = (nn.CrossEntropyLoss(), y.long()) if classes else (nn.BCEWithLogitsLoss(), y.float().reshape(-1, 1))
    optimiser = torch.optim.Adam(network.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * (len(x) // _BATCH))
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - _BATCH + 1, _BATCH):
            chosen = order[start : start + _BATCH]
            total = loss(network(x[chosen]), y[chosen])
            if isinstance(network, Prepared):
                total = total + _RANGE_WEIGHT * network.range_penalty()
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            schedule.step()
    network.eval()


def _row(network: nn.Module, proto: onnx.ModelProto, data: Data, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """Accuracies in per cent, over several seeds of the noise, and what a sample costs."""
    x, y = data.test_x[: case.test], data.test_y[: case.test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cw.compile(proto, data.train_x[:_CALIBRATION], allow_loss=True, **options)
        with torch.no_grad():
            clear = _accuracy(network(torch.tensor(x)).numpy(), y)
        simulated = [_accuracy(model.predict(x, how="simulate", seed=seed), y) for seed in range(_SEEDS)]
    report = model.report()
    return {
        "clear": clear,
        "simulated": float(np.mean(simulated)),
        "agreement": report["check"]["value"],
        "set": report["parameter_set"],
        "lookups": report["bootstraps"],
        "seconds": _seconds(model),
    }


def _accuracy(scores: Any, y: Any) -> float:
    found = scores.argmax(axis=1) if scores.shape[-1] > 1 else scores.reshape(-1) > 0
    return 100 * float((found == y).mean())


def _seconds(model: CompiledModel) -> float:
    """One sample alone on a thread of the CPU, bootstraps alone, as the report estimates."""
    found = [
        each["seconds_one_sample"] for device, each in model.report()["estimated_seconds"].items() if "cpu" in device
    ]
    return float(found[0]) if found else float("nan")


def _cells(row: dict[str, Any]) -> str:
    return f"{row['clear']:.1f} / {row['simulated']:.1f} ({100 * row['agreement']:.1f}), `{row['set']}`, {row['seconds']:.2g} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="fine_tuning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[case.name for case in CASES], help="networks; all without")
    parser.add_argument("--set", help="parameter set to train for, in place of the networks' own")
    parser.add_argument("--rate", type=float, help="of Adam, fine-tuning and control, in place of the networks' own")
    parser.add_argument("--json", type=Path, help="write all numbers")
    options = parser.parse_args()
    records = []
    kinds = ("as_it_is", "as_it_is_on_the_set", "on", "on_on_the_set", "fine_tuned")
    print("clear / simulated (agreement) %, set, estimated seconds a sample\n")
    print(
        "| network | look-ups | compiled as it is | the same, on the cheap set | trained on | the same, cheap set | fine-tuned, cheap set | s |"
    )
    print("|" + "---|" * 8)
    for case in CASES:
        if case.name not in options.names:
            continue
        record = measured(case, options.set or case.cheap, options.rate or case.rate)
        records.append(record)
        cells = " | ".join(_cells(record[kind]) for kind in kinds)
        print(
            f"| {case.name} | {record['fine_tuned']['lookups']} | {cells} | {record['fine_tuning_seconds']:.0f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    if not records:
        sys.exit(f"no such network; expected some of {', '.join(case.name for case in CASES)}")


if __name__ == "__main__":
    main()
