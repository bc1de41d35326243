"""The training loop: Adam or stochastic gradients with a one-cycle schedule, noise from the layers, images shifted, mirrored and
blanked in part, a teacher's answers beside the labels; everything on one device, seed fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.training.image_data import Images
from cloakwork.training.pytorch import Tensor, functional, torch
from cloakwork.training.simulation import range_penalty, set_simulated

Progress = Callable[[int, int, float], None] | None  # steps done, steps in all, loss

_EVALUATED_AT_ONCE = 5000
_SIDE = 28  # of images that come as one line of 784
_OF_IMAGES = 4  # dimensions of [batch, channels, height, width]
_TAUGHT = 0.9  # share of the loss that compares with a teacher, where there is one
_TEMPERATURE = 4.0  # by which the scores of both are divided then


@dataclass(frozen=True)
class Schedule:
    epochs: int
    batch: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    range_weight: float = 0.0  # of `range_penalty` in the loss
    shift: int = 0  # images move by at most this many pixels
    mirrored: bool = False  # half of the images, left to right
    erased: int = 0  # side, in pixels, of a square of every image that is blanked
    momentum: float | None = None  # of stochastic gradients after Nesterov; None: AdamW
    bfloat16: bool = False  # on a GPU layers multiply in it
    seed: int = 20261121


def fit(
    model: torch.nn.Module,
    images: Images,
    labels: NDArray[np.int64],
    schedule: Schedule,
    device: str = "cpu",
    progress: Progress = None,
    teacher: torch.nn.Module | None = None,
) -> None:
    """Trains a network, and leaves it in evaluation mode.

    Args:
        images: [samples, 784] or [samples, channels, height, width] in [0, 1].
        teacher: a trained network of the same images and classes, whose scores count more than the labels; it stays as it is, on the device.

    Raises:
        ValueError: fewer images than a batch has.
    """
    model.to(device).train()
    x, y = torch.as_tensor(images, dtype=torch.float32, device=device), torch.as_tensor(labels, device=device)
    # Tensor cores take the channels last. Convolutions of such images crash with two threads of a CPU (PyTorch 2.13, oneDNN).
    layout = torch.channels_last if x.ndim == _OF_IMAGES and device != "cpu" else torch.contiguous_format
    model.to(memory_format=layout)  # type: ignore[call-overload]
    steps_per_epoch = len(x) // schedule.batch
    if not steps_per_epoch:
        raise ValueError(f"images: expected a batch of {schedule.batch} at least, got {len(x)}")
    steps = schedule.epochs * steps_per_epoch
    optimiser = _optimiser(model, schedule, device)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schedule.learning_rate, total_steps=max(1, steps), pct_start=0.15
    )
    random = torch.Generator(device).manual_seed(schedule.seed)
    if teacher is not None:
        teacher.to(device, memory_format=layout).eval()  # type: ignore[call-overload]
    step = 0
    for _ in range(schedule.epochs):
        order = torch.randperm(len(x), generator=random, device=device)
        for chosen in order[: steps_per_epoch * schedule.batch].view(steps_per_epoch, -1):
            batch = shifted(x[chosen], schedule.shift, random) if schedule.shift else x[chosen]
            if schedule.mirrored:
                batch = mirrored(batch, random)
            if schedule.erased:
                batch = erased(batch, schedule.erased, random)
            batch = batch.contiguous(memory_format=layout)
            with _in_bfloat16(device, schedule.bfloat16):
                answers = model(batch).float()
            loss = functional.cross_entropy(answers, y[chosen], label_smoothing=schedule.label_smoothing)
            if teacher is not None:
                with _in_bfloat16(device, True), torch.no_grad():
                    targets = teacher(batch).float()
                loss = (1 - _TAUGHT) * loss + _TAUGHT * distance(answers, targets)
            if schedule.range_weight:
                loss = loss + schedule.range_weight * range_penalty(model)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rate.step()
            step += 1
            if progress is not None and (step % 50 == 0 or step == steps):
                progress(step, steps, float(loss.detach()))
    model.eval()


def _in_bfloat16(device: str, enabled: bool) -> torch.autocast:
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=enabled and device != "cpu")


def distance(answers: Tensor, teacher_scores: Tensor) -> Tensor:
    """Returns Kullback-Leibler divergence of softened scores [batch, classes] from a teacher's, its gradients as large as those of labels.

    Source: [HVD15] section 2.
    """
    ours, theirs = (functional.log_softmax(scores / _TEMPERATURE, dim=1) for scores in (answers, teacher_scores))
    return _TEMPERATURE**2 * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def _optimiser(model: torch.nn.Module, schedule: Schedule, device: str) -> torch.optim.Optimizer:
    settings: dict[str, Any] = {
        "lr": schedule.learning_rate,
        "weight_decay": schedule.weight_decay,
        "fused": device != "cpu",
    }
    if schedule.momentum is None:
        return torch.optim.AdamW(model.parameters(), **settings)
    return torch.optim.SGD(model.parameters(), momentum=schedule.momentum, nesterov=True, **settings)


def shifted(x: Tensor, most: int, random: torch.Generator) -> Tensor:
    """Returns every image by its own offset of -most .. most pixels either way; what comes in is 0. Args: x [batch, 784] or [batch, channels, side,
    side]."""
    offsets = torch.randint(0, 2 * most + 1, (2, len(x), 1), generator=random, device=x.device)
    planes = x.view(-1, 1, _SIDE, _SIDE) if x.ndim != _OF_IMAGES else x
    padded = functional.pad(planes, (most, most, most, most)).permute(0, 2, 3, 1)
    line = torch.arange(planes.shape[-1], device=x.device)
    sample = torch.arange(len(x), device=x.device)[:, None, None]
    moved: Tensor = padded[sample, (line + offsets[0])[:, :, None], (line + offsets[1])[:, None, :]]
    return moved.permute(0, 3, 1, 2) if x.ndim == _OF_IMAGES else moved.flatten(1)


def mirrored(x: Tensor, random: torch.Generator) -> Tensor:
    """Returns half of the images [batch, .., width], chosen at random, left to right."""
    chosen = torch.rand(len(x), generator=random, device=x.device) < 0.5
    return torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), x.flip(-1), x)


def erased(x: Tensor, side: int, random: torch.Generator) -> Tensor:
    """Returns every image with a square of zeros around a point of its own, cut off at the borders.

    Args:
        x: [batch, 784] or [batch, channels, height, width].

    Source: [DT17] section 3.
    """
    planes = x.view(-1, 1, _SIDE, _SIDE) if x.ndim != _OF_IMAGES else x
    inside = []
    for size in planes.shape[-2:]:
        centre = torch.randint(0, size, (len(x), 1), generator=random, device=x.device)
        from_first = torch.arange(size, device=x.device) - centre + side // 2
        inside.append((from_first >= 0) & (from_first < side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return planes.masked_fill(square, 0.0).reshape(x.shape)


def scores(model: torch.nn.Module, images: Images, simulated: bool = False) -> NDArray[np.float32]:
    """Returns [samples, classes] in evaluation mode, with the noise of encryption when asked for."""
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
