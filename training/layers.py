"""Layers that compute in training what encrypted layers compute: low-bit integer weights of bounded L2 norm, and noise at every look-up.

A look-up reads values in a range that fills part of the torus, so noise is relative to that range. Ranges are learned (a running mean of each
batch's extremes) and, through `range_penalty`, kept small.
"""

from __future__ import annotations

import math
from typing import cast

from cloakwork.training.noise import GUARD, LARGEST_WEIGHT, LOOKUP_LIMIT, OUTPUT_LIMIT, LookupNoise
from cloakwork.training.pytorch import torch

Tensor = torch.Tensor
functional = torch.nn.functional

# Ranges follow a batch's extremes: at once most of the way when they grow, slowly when they shrink.
_GROWTH, _DECAY = 0.2, 0.004
_STEP_GAIN = 0.1  # how fast the step of the weights follows their norm
_SMALLEST = 1e-6


class Simulating(torch.nn.Module):
    """A module that does in training what encryption does to values, and in evaluation while `simulated` is set."""

    simulated = False
    quiet = False  # learns in training, and does nothing to values

    @property
    def active(self) -> bool:
        return (self.training or self.simulated) and not self.quiet


class SeenByLookup(Simulating):
    """Values [batch, channels, ..] as a look-up (or the client) sees them, with noise. Learns each channel's range."""

    low: Tensor
    high: Tensor
    least_half_range: Tensor

    def __init__(self, channels: int, noise: LookupNoise | None, is_output: bool = False) -> None:
        """Args: noise: None adds none and learns ranges alone."""
        super().__init__()
        self.noise, self.is_output = noise, is_output
        self.register_buffer("low", torch.zeros(channels))
        self.register_buffer("high", torch.zeros(channels))
        self.register_buffer("least_half_range", torch.full((channels,), _SMALLEST))
        self.started = False
        self.penalty: Tensor | None = None

    def __getstate__(self) -> dict[str, object]:
        """Copies are made without the penalty of the last batch, which belongs to a graph of gradients."""
        return {**self.__dict__, "penalty": None}

    @property
    def half_range(self) -> Tensor:
        """[channels]: half of what was seen, or more where the weights ask for it."""
        return torch.maximum((self.high - self.low) / 2, self.least_half_range)

    @property
    def adds_noise(self) -> bool:
        return self.noise is not None and self.active

    def forward(self, x: Tensor, norms: Tensor | None = None, *, carried: bool = False) -> Tensor:
        """Applies the noise of a look-up.

        Args:
            norms: [channels], of the integer weights on look-ups that made x; None: there were none.
            carried: x already has the noise of those look-ups; what switching adds is missing.
        """
        if self.training:
            self._learn(x)
        if not self.adds_noise:
            return x
        variance = self._variance(torch.zeros_like(self.low) if carried or norms is None else norms)
        deviation = variance.sqrt() / self.limit(norms) * self.half_range
        return x + torch.randn_like(x) * deviation.to(x.dtype).view(1, -1, *[1] * (x.ndim - 2))

    def limit(self, norms: Tensor | None) -> Tensor | float:
        """Returns the phase, as a fraction of the torus, at which the compiler puts the end of every range."""
        largest = self._variance(torch.zeros_like(self.low) if norms is None else norms).max().sqrt()
        return OUTPUT_LIMIT if self.is_output else LOOKUP_LIMIT - GUARD * largest

    def start(self, x: Tensor) -> None:
        """Starts with the ranges ranges of a first batch."""
        axes = _all_but_channels(x)
        self.low.copy_(x.amin(dim=axes))
        self.high.copy_(x.amax(dim=axes))
        self.started = True

    def _learn(self, x: Tensor) -> None:
        if not self.started:
            self.start(x.detach())
        axes = _all_but_channels(x)
        low, high = x.amin(dim=axes), x.amax(dim=axes)
        self._follow(low.detach().to(self.low.dtype), high.detach().to(self.low.dtype))
        self.penalty = ((high - low) / 2 / (x.std(dim=axes) + _SMALLEST)).mean()

    def _follow(self, low: Tensor, high: Tensor) -> None:
        self.low.lerp_(low, torch.where(low < self.low, _GROWTH, _DECAY))
        self.high.lerp_(high, torch.where(high > self.high, _GROWTH, _DECAY))

    def _variance(self, norms: Tensor) -> Tensor:
        assert self.noise is not None
        return norms**2 * self.noise.blind_rotation + (0.0 if self.is_output else self.noise.switching)


def _all_but_channels(x: Tensor) -> list[int]:
    return [axis for axis in range(x.ndim) if axis != 1]


class _IntegerRows(torch.nn.Module):
    """Weights [rows, ..] = integers [rows, ..] * step * half range of each row, as the compiler makes them."""

    weight: Tensor
    step: Tensor
    seen: SeenByLookup | None
    largest_norm: float | None

    def _prepare(self, rows: int, seen: SeenByLookup | None, largest_norm: float | None) -> None:
        self.register_buffer("step", torch.zeros(()))
        self.seen, self.largest_norm, self._has_step = seen, largest_norm, False

    def integers(self) -> Tensor:
        """Returns the integer weights; no gradient."""
        ratio = self.weight.detach() / self._row_scales()
        return (ratio / self.step).round().clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT)

    def row_steps(self) -> Tensor:
        """Returns [rows]: what one unit of an integer weight stands for."""
        return self.step * self._row_scales().flatten()

    def norms(self, integers: Tensor) -> Tensor:
        """Returns [rows]"""
        return cast(Tensor, integers.flatten(1).norm(dim=1))

    def freeze(self) -> None:
        """Makes steps coarser until no row is above its norm; before export."""
        with torch.no_grad():
            self._follow()
            while self.largest_norm is not None and self.norms(self.integers()).max() > self.largest_norm:
                self.step *= 1.002

    def _run(self, x: Tensor, weight: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                if self.seen is not None and not self.seen.started:
                    self.seen.start(self._run(x, self.weight))
                self._follow()
        integers = self.integers()
        rounded = integers * (self.step * self._row_scales())
        weight = self.weight + (rounded - self.weight).detach()
        if self.seen is None:
            return self._run(x, weight)
        if self.largest_norm is None:
            return cast(Tensor, self.seen(self._run(x, weight)))
        norms = self.norms(integers)
        if self.seen.adds_noise:
            x = self._with_lookup_noise(x, norms)
        return cast(Tensor, self.seen(self._run(x, weight), norms, carried=True))

    def _with_lookup_noise(self, x: Tensor, norms: Tensor) -> Tensor:
        """Every look-up's result has noise of its own, which all rows that read it share.

        One unit of an integer weight is limit * step of the torus for a value of 1, so that is the scale of x.
        """
        assert self.seen is not None and self.seen.noise is not None
        scale = self.step * self.seen.limit(norms)
        return x + torch.randn_like(x) * (math.sqrt(self.seen.noise.blind_rotation) / scale)

    def _follow(self) -> None:
        """Moves the step so that the largest norm of the rounded rows stays at the bound; without one: 8 bits.

        Rows whose weights are large for their range would leave the others few bits: their ranges are widened to the median ratio.
        """
        if self.largest_norm is not None and self.seen is not None:
            norms = self.norms(self.weight)
            seen = (self.seen.high - self.seen.low) / 2
            usual = (seen / norms.clamp_min(_SMALLEST)).median()
            self.seen.least_half_range.copy_((usual * norms).clamp_min(_SMALLEST))
        ratio = self.weight / self._row_scales()
        if self.largest_norm is None:
            self.step.copy_(ratio.abs().max().clamp_min(_SMALLEST) / LARGEST_WEIGHT)
            return
        first, self._has_step = not self._has_step, True
        if first:
            self.step.copy_(ratio.flatten(1).norm(dim=1).max() / self.largest_norm)
        for _ in range(30 if first else 1):
            factor = (self.norms(self.integers()).max() / self.largest_norm).clamp(0.5, 2.0)
            self.step *= factor**_STEP_GAIN

    def _row_scales(self) -> Tensor:
        """Returns [rows, 1, ..]: half ranges; each row's largest weight when ranges are not known here."""
        largest = self.weight.detach().flatten(1).abs().amax(dim=1).clamp_min(_SMALLEST)
        scales = largest if self.seen is None else self.seen.half_range
        return scales.view(-1, *[1] * (self.weight.ndim - 1))


class QuantLinear(_IntegerRows, torch.nn.Linear):
    """y = W x + b [batch, rows], W integers times a step for each row."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        noise: LookupNoise | None = None,
        *,
        largest_norm: float | None = None,
        is_output: bool = False,
    ) -> None:
        """Args:
        noise: of the look-up that reads the result.
        largest_norm: bound of the L2 norm of integer rows; None for a layer on the input, whose noise does not count: 8 bits.
        is_output: the client reads the result.
        """
        super().__init__(inputs, outputs)
        self._prepare(outputs, SeenByLookup(outputs, noise, is_output), largest_norm)

    def _run(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight, self.bias)


class QuantConv2d(_IntegerRows, torch.nn.Conv2d):
    """A convolution [batch, channels, height, width] without padding; arguments as in `QuantLinear`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        noise: LookupNoise | None = None,
        *,
        stride: int = 1,
        largest_norm: float | None = None,
        before_pool: bool = False,
    ) -> None:
        """Args: before_pool: a `NoisyMaxPool2d` reads the result, which knows the ranges of what its look-ups see."""
        super().__init__(inputs, outputs, kernel_size, stride)
        self._prepare(outputs, None if before_pool else SeenByLookup(outputs, noise), largest_norm)

    def _run(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, self.bias, self.stride)


class NoisyReLU(torch.nn.Module):
    """max(x + noise, 0), after something that adds no noise of its own: a `NoisyMaxPool2d`."""

    def __init__(self, channels: int, noise: LookupNoise | None, weight_norm: float = 1.0) -> None:
        """Args:
        noise: None: an ordinary ReLU, which learns no range, so that `range_penalty` has no term of it.
        weight_norm: of the integer weights on look-ups that make x.
        """
        super().__init__()
        self.seen, self.weight_norm = SeenByLookup(channels, noise), weight_norm

    def forward(self, x: Tensor) -> Tensor:
        if self.seen.noise is None:
            return torch.relu(x)
        return torch.relu(self.seen(x, torch.full_like(self.seen.low, self.weight_norm)))


class NoisyMaxPool2d(torch.nn.Module):
    """2x2 maxima by max(a, b) = b + relu(a - b), noise at each of the three look-ups."""

    def __init__(self, channels: int, noise: LookupNoise | None, weight_norm: float = 1.5) -> None:
        """Args: weight_norm: of the integer weights on look-ups that make the second difference."""
        super().__init__()
        self.first, self.second = SeenByLookup(2 * channels, noise), SeenByLookup(channels, noise)
        self.weight_norm = weight_norm

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
        x = x[:, :, :height, :width]
        a, b, c, d = x[:, :, ::2, ::2], x[:, :, ::2, 1::2], x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2]
        # The compiler's tree: elements 0 and 2, 1 and 3, then the winners.
        left, right = torch.cat([a, b], dim=1), torch.cat([c, d], dim=1)
        winners = right + torch.relu(self.first(left - right))
        a, b = winners.chunk(2, dim=1)
        norms = torch.full_like(self.second.low, self.weight_norm)
        return b + torch.relu(self.second(a - b, norms))


def range_penalty(model: torch.nn.Module) -> Tensor:
    """Returns mean over what look-ups see of (half range / standard deviation): small when no outlier widens a range, which is noise for the
    others."""
    terms = [part.penalty for part in model.modules() if isinstance(part, SeenByLookup) and part.penalty is not None]
    return torch.stack(terms).mean() if terms else torch.zeros(())


def set_simulated(model: torch.nn.Module, simulated: bool) -> None:
    """Switches noise in evaluation, too."""
    for part in model.modules():
        if isinstance(part, Simulating):
            part.simulated = simulated


def freeze(model: torch.nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, _IntegerRows):
            part.freeze()
    model.eval()
