"""The training loop: Adam with a one-cycle schedule, noise from the layers, images shifted at random; everything on one device, seed fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloakwork.training.layers import Tensor, freeze, functional, range_penalty, set_simulated
from cloakwork.training.pytorch import torch

Progress = Callable[[int, int, float], None] | None  # steps done, steps in all, loss

_EVALUATED_AT_ONCE = 5000
_SIDE = 28


@dataclass(frozen=True)
class Schedule:
    epochs: int
    batch: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    range_weight: float = 0.0  # of `range_penalty` in the loss
    shift: int = 0  # images move by at most this many pixels
    seed: int = 20261121


def fit(
    model: torch.nn.Module,
    images: NDArray[np.float64],
    labels: NDArray[np.int64],
    schedule: Schedule,
    device: str = "cpu",
    progress: Progress = None,
) -> None:
    """Trains, then freezes the integer weights. Args: images [samples, 784] in [0, 1]."""
    model.to(device).train()
    x, y = torch.as_tensor(images, dtype=torch.float32, device=device), torch.as_tensor(labels, device=device)
    steps_per_epoch = len(x) // schedule.batch
    steps = schedule.epochs * steps_per_epoch
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay, fused=device != "cpu"
    )
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, schedule.learning_rate, total_steps=steps, pct_start=0.15)
    random = torch.Generator(device).manual_seed(schedule.seed)
    step = 0
    for _ in range(schedule.epochs):
        order = torch.randperm(len(x), generator=random, device=device)
        for chosen in order[: steps_per_epoch * schedule.batch].view(steps_per_epoch, -1):
            batch = shifted(x[chosen], schedule.shift, random) if schedule.shift else x[chosen]
            loss = functional.cross_entropy(model(batch), y[chosen], label_smoothing=schedule.label_smoothing)
            if schedule.range_weight:
                loss = loss + schedule.range_weight * range_penalty(model)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rate.step()
            step += 1
            if progress is not None and (step % 50 == 0 or step == steps):
                progress(step, steps, float(loss.detach()))
    freeze(model)


def shifted(x: Tensor, most: int, random: torch.Generator) -> Tensor:
    """Every image [batch, 784] by its own offset of -most .. most pixels either way; what comes in is 0."""
    offsets = torch.randint(0, 2 * most + 1, (2, len(x), 1), generator=random, device=x.device)
    padded = functional.pad(x.view(-1, _SIDE, _SIDE), (most, most, most, most))
    line = torch.arange(_SIDE, device=x.device)
    sample = torch.arange(len(x), device=x.device)[:, None, None]
    moved: Tensor = padded[sample, (line + offsets[0])[:, :, None], (line + offsets[1])[:, None, :]]
    return moved.flatten(1)


def scores(model: torch.nn.Module, images: NDArray[np.float64], simulated: bool = False) -> NDArray[np.float32]:
    """[samples, classes] in evaluation mode, with the noise of encryption when asked for."""
    device = next(model.parameters()).device
    model.eval()
    set_simulated(model, simulated)
    with torch.no_grad():
        x = torch.as_tensor(images, dtype=torch.float32)
        starts = range(0, len(x), _EVALUATED_AT_ONCE)
        parts = [model(x[i : i + _EVALUATED_AT_ONCE].to(device)).cpu() for i in starts]
    set_simulated(model, False)
    result: NDArray[np.float32] = torch.cat(parts).numpy()
    return result
