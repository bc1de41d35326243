"""Simulation of compiled layers, for networks that `prepare` took apart: noise of every look-up's result, rounding of weights, noise where
a look-up reads.

With s the scale at which a result x_k is encrypted, S that of a row that reads it, K the noise of switching and sigma that of a look-up's result,
the row's value is off by

    K / S^2  +  sum_k sigma^2 W_k^2 / s_k^2  +  sum_k (s_k^2 / S^2) Var(x_k) / 12

from noise behind the row, noise of what it reads, and the rounding of W S / s. S is as large as the row's range allows; s balances the other two, as
the compiler does (models/approximate/row_scales.py, equalise_lookups.py), with errors counted relative to ranges. Rounding is drawn anew for every
batch: the compiler chooses grid and integers from data afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol, cast

from cloakwork.fhe_core.noise import blind_rotation_variance, keyswitch_variance, modulus_switch_variance
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.approximate.integer_rows import LARGEST_WEIGHT
from cloakwork.models.approximate.row_scales import GUARD, LOOKUP_LIMIT, OUTPUT_LIMIT
from cloakwork.training.pytorch import Tensor, torch

# Of a batch without noise: its share in the running variance, and in a range that grows or shrinks.
_SHARE, _GROWTH, _DECAY = 0.1, 0.5, 0.03
_SMALLEST: Final = 1e-6
_NARROWEST: Final = 1 / 64  # of the usual deviation, that a channel counts as at least
_COMPENSATED: Final = (
    0.5  # of a step: later weights of a row make up for earlier ones (models/approximate/integer_rows.py)
)
_EASE: Final = 0.9  # by which a widened range falls back in a step


@dataclass(frozen=True, eq=False)
class Way:
    """The way from results of look-ups to their readers, through sums, moves and averages: what a unit becomes in each of the reader's channels
    [channels], and how many results are averaged to one number."""

    gain: Tensor
    spread: float

    def on(self, other: Tensor) -> Tensor:
        """Returns the gain where another tensor is."""
        return self.gain.to(other)


class Reader(Protocol):
    """A reader of look-ups' results: a layer, or a look-up of their sum."""

    def strength(self, channels: int, way: Way) -> tuple[Tensor, float]:
        """Returns [channels]: sum of squares of weights relative to the half range of their rows; and how many there are for each channel."""

    def floor(self, shape: Tensor, way: Way) -> Tensor:
        """Returns the least factor of a scale's shape [channels] with which most rows have weights of 8 bits."""


@dataclass(frozen=True)
class LookupNoise:
    """Variances as fractions of the torus, squared: of a look-up's result, and what switching adds where a look-up reads."""

    parameter_set: str
    blind_rotation: float
    switching: float

    @classmethod
    def of(cls, name: str) -> LookupNoise:
        """Returns the noise of a set by the noise model of the engine; ParameterError for a name that is none."""
        params = parameter_set(name)
        switching = keyswitch_variance(params) + modulus_switch_variance(params)
        return cls(name, blind_rotation_variance(params), switching)


class Simulating(torch.nn.Module):
    """A module that does in training what encryption does to values, and in evaluation while `simulated` is set."""

    simulated = False
    quiet = False  # learns in training, and does nothing to values

    @property
    def active(self) -> bool:
        return (self.training or self.simulated) and not self.quiet


class RowsSeen(Simulating):
    """Values as a look-up reads them, with the noise of switching, or as the client decrypts them. Learns the range of every channel."""

    low: Tensor
    high: Tensor
    least_half_range: Tensor

    def __init__(self, channels: int, noise: LookupNoise, axis: int = 1, is_output: bool = False) -> None:
        """Args: axis: of the channels."""
        super().__init__()
        self.noise, self.axis, self.is_output = noise, axis, is_output
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

    def forward(self, x: Tensor) -> Tensor:
        moved = x.movedim(self.axis, 1)
        if self.training:
            self._learn(moved)
        if self.is_output or not self.active:
            return x
        deviation = math.sqrt(self.noise.switching) / self.limit() * self.half_range
        noise = torch.randn_like(moved) * deviation.to(x.dtype).view(1, -1, *[1] * (x.ndim - 2))
        return (moved + noise * _alive(moved, 1, deviation)).movedim(1, self.axis)

    def _learn(self, x: Tensor) -> None:
        """Ranges are those of values without noise, as the compiler sees them."""
        axes = [axis for axis in range(x.ndim) if axis != 1]
        low, high = x.amin(dim=axes), x.amax(dim=axes)
        self.penalty = ((high - low) / 2 / (x.std(dim=axes) + _SMALLEST)).mean()
        low, high = low.detach().to(self.low), high.detach().to(self.low)
        if self.quiet:
            self.least_half_range.mul_(_EASE).clamp_min_(_SMALLEST)
            self.low.lerp_(low, torch.where(low < self.low, _GROWTH, _DECAY).to(low))
            self.high.lerp_(high, torch.where(high > self.high, _GROWTH, _DECAY).to(high))
        if not self.started:
            self.low.copy_(low)
            self.high.copy_(high)
            self.started = True

    def limit(self) -> float:
        """Returns the phase at the end of every range, with room for as much noise of what was read as switching brings."""
        return OUTPUT_LIMIT if self.is_output else LOOKUP_LIMIT - GUARD * math.sqrt(2 * self.noise.switching)

    def scales(self) -> Tensor:
        """Returns [channels]: phase for one unit of a value."""
        return self.limit() / self.half_range

    def strength(self, channels: int, way: Way) -> tuple[Tensor, float]:
        return _on_channels((way.on(self.low) / way.spread / self.half_range).square(), channels), 1.0

    def floor(self, shape: Tensor, way: Way) -> Tensor:
        return torch.zeros_like(shape[:1])


class LookupResult(Simulating):
    """Results of look-ups with their noise; or, without noise, the network's input. Learns the scale of every channel."""

    scale: Tensor
    variance: Tensor
    extent: Tensor

    def __init__(self, channels: int, noise: LookupNoise, axis: int = 1, is_input: bool = False) -> None:
        super().__init__()
        self.noise, self.axis, self.is_input = noise, axis, is_input
        self.readers: list[tuple[Reader, Way]] = []
        self.register_buffer("scale", torch.zeros(channels))
        self.register_buffer("variance", torch.zeros(channels))
        self.register_buffer("extent", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.quiet:
            self._learn(x.movedim(self.axis, 1))
        if not self.active or self.is_input or not bool((self.scale > 0).all()):
            return x
        deviation = math.sqrt(self.noise.blind_rotation) / self.scale
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return x + torch.randn_like(x) * deviation.view(shape) * _alive(x, self.axis, deviation)

    def _learn(self, x: Tensor) -> None:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        first = not bool((self.extent > 0).any())
        variance = x.var(dim=axes, correction=0) if x.numel() > x.shape[1] else torch.zeros_like(self.variance)
        self.variance.lerp_(variance, 1.0 if first else _SHARE)
        torch.maximum(self.extent, x.abs().amax(dim=axes), out=self.extent)

    def settle(self) -> None:
        """Chooses the scales anew, from what the readers are now."""
        if not self.readers or not bool((self.extent > 0).any()):
            return
        extent = self.extent
        if self.is_input:  # columns have a scale of their own where they differ
            shape = torch.where(extent > 0, extent, extent[extent > 0].median()).reciprocal() * _SMALLEST
        else:
            strengths = [reader.strength(len(extent), way) for reader, way in self.readers]
            gain = sum(strengths[i][0] for i in range(len(strengths))) / sum(count for _, count in strengths)
            variance = self.variance.clamp_min(float(self.variance.mean()) * _NARROWEST**2 + _SMALLEST**2)
            square = 12 * LOOKUP_LIMIT**2 * self.noise.blind_rotation * cast(Tensor, gain) / variance
            shape = square.clamp_min(_SMALLEST**4).pow(0.25)
            for reader, way in self.readers:
                if isinstance(reader, RowsSeen):  # in a sum as they are, with an integer of one at least
                    most = reader.scales() * way.on(shape).abs() / way.spread
                    shape = torch.minimum(shape, _on_channels(torch.where(most > 0, most, shape.max()), len(shape)))
        floors = torch.stack([reader.floor(shape, way).max() for reader, way in self.readers])
        factor = floors.max().clamp_min(_SMALLEST if self.is_input else 1.0)
        self.scale.copy_(shape * factor)


class RoundedOnes(Simulating):
    """Results of look-ups on their way into a sum: their integers are off by up to a half. The bias takes the mean."""

    def __init__(self, result: LookupResult) -> None:
        super().__init__()
        self.axis = result.axis
        self.rows: list[RowsSeen] = []
        self._result = [result]  # no submodule of this one

    def forward(self, x: Tensor) -> Tensor:
        scale = self._result[0].scale
        if not self.active or not self.rows or not bool((scale > 0).all()):
            return x
        scales = [_on_channels(seen.scales(), len(scale)) for seen in self.rows]
        with torch.no_grad():
            error = (torch.rand_like(scale) - 0.5) * scale / torch.stack(scales).amin(dim=0)
            shape = [1] * x.ndim
            shape[self.axis] = -1
            axes = [axis for axis in range(x.ndim) if axis != self.axis % x.ndim]
            off = error.view(shape) * (x - x.mean(dim=axes, keepdim=True))
        return x + off


class RoundedLayer(Simulating):
    """A linear layer or convolution whose weights are off as rounding leaves them: by up to half a step of their integers, drawn for each batch."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.sources: list[tuple[LookupResult, Way]] = []
        self.targets: list[RowsSeen] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.active or not self._is_ready():
            return cast(Tensor, self.inner(x))
        weight = cast(Tensor, self.inner.weight)
        with torch.no_grad():
            error = (torch.rand_like(weight) - 0.5) * (_COMPENSATED * self.steps())
        square = weight.flatten(1).square().sum(dim=1) + error.flatten(1).square().sum(dim=1) + _SMALLEST**2
        norm = square.sqrt()
        error = error * (norm / norm.detach()).view(-1, *[1] * (weight.ndim - 1))  # steps follow the weights
        return cast(Tensor, torch.func.functional_call(self.inner, {"weight": weight + error}, (x,)))

    def input_axis(self, dimensions: int) -> int:
        """Returns the axis of the channels that it reads."""
        return dimensions - 1 if isinstance(self.inner, torch.nn.Linear) else 1

    def settle(self) -> None:
        """Fits ranges as wide as weights of 8 bits ask for: rows whose weights are large for their range fill less of it."""
        if not self._is_ready():
            return
        weight = self._by_channel(self._weight())
        largest = (weight / self._columns()).abs().flatten(1).amax(dim=1)
        for seen in self.targets:
            if len(seen.low) == len(largest):
                least = seen.limit() * largest / LARGEST_WEIGHT
                torch.maximum(seen.least_half_range, least, out=seen.least_half_range)

    def steps(self) -> Tensor:
        """Returns steps like the weights: what one unit of their integers stands for."""
        spread = max(way.spread for _, way in self.sources)
        steps = self._columns() / self._row_scales().view(-1, 1, 1) * math.sqrt(spread)
        return steps.view(*steps.shape[:2], *[1] * (self._weight().ndim - 2))

    def strength(self, channels: int, way: Way) -> tuple[Tensor, float]:
        groups, rows = self._groups(), len(self._weight())
        square = (self._read(way) * self._row_scales().view(-1, 1, 1) / LOOKUP_LIMIT).square()
        taps = square.shape[2]
        square = square.sum(dim=2).view(groups, rows // groups, -1).sum(dim=1).flatten()
        return _on_channels(square, channels, total=True), rows / groups * taps * square.numel() / channels

    def floor(self, shape: Tensor, way: Way) -> Tensor:
        columns = self._grouped(_on_channels(shape, self._input_channels()))
        largest = (self._read(way) / columns).abs().flatten(1).amax(dim=1) * self._row_scales()
        return largest.median()[None] / LARGEST_WEIGHT

    def _read(self, way: Way) -> Tensor:
        """Returns [rows, channels of a group, taps]: weights on single results."""
        weight = self._by_channel(self._weight())
        return weight * self._grouped(way.on(weight) / way.spread)

    def _is_ready(self) -> bool:
        """Whether ranges and scales are known."""
        known = all(bool((source.scale > 0).all()) for source, _ in self.sources)
        return bool(self.sources) and bool(self.targets) and known and all(seen.started for seen in self.targets)

    def _weight(self) -> Tensor:
        return cast(Tensor, self.inner.weight).detach()

    def _groups(self) -> int:
        return cast(int, getattr(self.inner, "groups", 1))

    def _input_channels(self) -> int:
        return self._weight().shape[1] * self._groups()

    def _by_channel(self, weight: Tensor) -> Tensor:
        """Returns [rows, channels of a group, taps]"""
        return weight.flatten(2) if weight.ndim > 2 else weight[..., None]

    def _grouped(self, columns: Tensor) -> Tensor:
        """Returns [rows, channels of a group, 1], of what [channels] say."""
        groups, rows = self._groups(), len(self._weight())
        return columns.view(groups, 1, -1, 1).expand(groups, rows // groups, -1, 1).flatten(0, 1)

    def _columns(self) -> Tensor:
        """Returns [rows, channels of a group, 1]: scale of what is read, in the units in which it is read."""
        total, count = torch.zeros((2, self._input_channels()), device=self._weight().device)
        for source, way in self.sources:
            gain = way.on(total).abs()
            read = gain > 0
            total += torch.where(read, _on_channels(source.scale, len(total)) / gain, 0.0)
            count += read
        known = count > 0
        scales = total / count.clamp_min(1)
        return self._grouped(torch.where(known, scales, scales[known].median() if bool(known.any()) else 1.0))

    def _row_scales(self) -> Tensor:
        rows = len(self._weight())
        if not self.targets:
            return torch.ones(rows, device=self._weight().device)
        return torch.stack([_on_channels(seen.scales(), rows) for seen in self.targets]).amin(dim=0)


def _alive(x: Tensor, axis: int, deviation: Tensor) -> Tensor:
    """Returns 1 for each channel of x, with the gradient of its logarithmic deviation: noise that is relative to a range cannot be outgrown.

    Args: deviation: of the noise [channels]; channels that hardly vary beside it have little gradient.
    """
    if not x.requires_grad:
        return torch.ones_like(x[:1])
    axes = [each for each in range(x.ndim) if each != axis % x.ndim]
    shape = [1] * x.ndim
    shape[axis] = -1
    spread = (x.var(dim=axes, keepdim=True, correction=0) + deviation.square().view(shape) + _SMALLEST**2).sqrt()
    return spread / spread.detach()


def range_penalty(model: torch.nn.Module) -> Tensor:
    """Returns mean over what look-ups see of (half range / standard deviation): small when no outlier widens a range, which is noise for the
    others."""
    terms = [part.penalty for part in model.modules() if isinstance(part, RowsSeen) and part.penalty is not None]
    return torch.stack(terms).mean() if terms else torch.zeros(())


def set_simulated(model: torch.nn.Module, simulated: bool) -> None:
    """Switches noise in evaluation, too."""
    for part in model.modules():
        if isinstance(part, Simulating):
            part.simulated = simulated


def settle(model: torch.nn.Module) -> None:
    """Scales follow weights and ranges; between batches."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, LookupResult):
                part.settle()
        for part in model.modules():
            if isinstance(part, RoundedLayer):
                part.settle()


def _on_channels(values: Tensor, channels: int, total: bool = False) -> Tensor:
    """[channels] of what another number of channels says: numbers of a flattened channel follow each other; a mean where nothing fits.

    Args: total: sums over what becomes one.
    """
    have = len(values)
    if have == channels:
        return values
    if channels % have == 0:
        share = values / (channels // have) if total else values
        return share.repeat_interleave(channels // have)
    if have % channels == 0:
        parts = values.view(channels, -1)
        return parts.sum(dim=1) if total else parts.mean(dim=1)
    mean = values.sum() / channels if total else values.mean()
    return mean.expand(channels)
