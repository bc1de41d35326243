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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from cloakwork.training.layers import SeenByLookup, Simulating, Tensor
from cloakwork.training.noise import GUARD, LARGEST_WEIGHT, LOOKUP_LIMIT, OUTPUT_LIMIT, LookupNoise
from cloakwork.training.pytorch import torch

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


class RowsSeen(SeenByLookup):
    """`SeenByLookup` on values whose other noise is there already."""

    def __init__(self, channels: int, noise: LookupNoise, axis: int = 1, is_output: bool = False) -> None:
        """Args: axis: of the channels."""
        super().__init__(channels, noise, is_output)
        self.axis = axis

    def forward(self, x: Tensor, norms: Tensor | None = None, *, carried: bool = True) -> Tensor:
        moved = x if self.axis == 1 else x.movedim(self.axis, 1)
        if self.training and self.quiet:
            self.least_half_range.mul_(_EASE).clamp_min_(_SMALLEST)
        seen = super().forward(moved, norms, carried=carried)
        if self.adds_noise:
            seen = moved + (seen - moved) * _alive(moved, 1, self._deviation())
        return seen if self.axis == 1 else seen.movedim(1, self.axis)

    def _follow(self, low: Tensor, high: Tensor) -> None:
        """Ranges are those of values without noise, as the compiler sees them."""
        if self.quiet:
            self.low.lerp_(low, torch.where(low < self.low, _GROWTH, _DECAY).to(low))
            self.high.lerp_(high, torch.where(high > self.high, _GROWTH, _DECAY).to(high))

    def limit(self, norms: Tensor | None = None) -> float:
        """Returns the range with room for as much noise of what was read as switching brings."""
        if self.is_output:
            return OUTPUT_LIMIT
        assert self.noise is not None
        return LOOKUP_LIMIT - GUARD * math.sqrt(2 * self.noise.switching)

    def _deviation(self) -> Tensor:
        """Returns [channels]: of the noise that it adds."""
        return self._variance(torch.zeros_like(self.low)).sqrt() / self.limit() * self.half_range

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


class NoisyMaxPool(Simulating):
    """Maxima by max(a, b) = b + relu(a - b), in the compiler's order, with noise at each look-up."""

    def __init__(self, pool: torch.nn.Module, channels: int, noise: LookupNoise) -> None:
        super().__init__()
        self.plain = pool
        kernel = cast(Any, pool).kernel_size
        self._dimensions = int(type(pool).__name__[len("MaxPool")])
        count = math.prod(_tuple(kernel, self._dimensions))
        levels = max(0, math.ceil(math.log2(count)))
        self.seen = torch.nn.ModuleList(RowsSeen(channels, noise) for _ in range(levels))
        self.results = torch.nn.ModuleList(LookupResult(channels, noise) for _ in range(levels))
        self.ones = torch.nn.ModuleList(RoundedOnes(result) for result in self.level_results)
        for ones, result, after in zip(self.level_ones, self.level_results, self.level_seen[1:], strict=False):
            result.readers.append((after, Way(torch.ones(channels), 1.0)))
            ones.rows.append(after)

    @property
    def level_seen(self) -> list[RowsSeen]:
        return [cast(RowsSeen, part) for part in self.seen]

    @property
    def level_results(self) -> list[LookupResult]:
        return [cast(LookupResult, part) for part in self.results]

    @property
    def level_ones(self) -> list[RoundedOnes]:
        return [cast(RoundedOnes, part) for part in self.ones]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and not self.simulated:
            return cast(Tensor, self.plain(x))
        values = self._windows(x)
        for seen, result, ones in zip(self.level_seen, self.level_results, self.level_ones, strict=True):
            half = values.shape[-1] // 2
            a, b = values[..., :half], values[..., half : 2 * half]
            winners = b + ones(result(torch.relu(seen(a - b))))
            values = torch.cat([winners, values[..., 2 * half :]], dim=-1)
        return values[..., 0]

    def _windows(self, x: Tensor) -> Tensor:
        """Returns [batch, channels, .., numbers of a window]; padding repeats another number of its window."""
        places, shape = self._places(x.shape[2:], x.device)
        return x.flatten(2)[..., places.flatten()].view(*x.shape[:2], *shape, -1)

    def _places(self, extents: Sequence[int], device: torch.device) -> tuple[Tensor, list[int]]:
        pool = cast(Any, self.plain)
        settings = [pool.kernel_size, pool.stride, pool.padding, pool.dilation]
        kernel, stride, padding, dilation = (_tuple(value, self._dimensions) for value in settings)
        with torch.no_grad():
            counts = list(self.plain(torch.zeros(1, 1, *extents, device=device)).shape[2:])
        place, inside = (
            torch.zeros(1, 1, dtype=torch.int64, device=device),
            torch.ones(1, 1, dtype=torch.bool, device=device),
        )
        for axis, extent in enumerate(extents):
            start = torch.arange(counts[axis], device=device)[:, None] * stride[axis] - padding[axis]
            positions = start + torch.arange(kernel[axis], device=device) * dilation[axis]
            valid = (positions >= 0) & (positions < extent)
            grid = (len(place) * counts[axis], -1)
            place = (place[:, None, :, None] * extent + positions[None, :, None, :].clamp(0, extent - 1)).reshape(grid)
            inside = (inside[:, None, :, None] & valid[None, :, None, :]).reshape(grid)
        first = inside.to(torch.int64).argmax(dim=1, keepdim=True)
        return torch.where(inside, place, place.gather(1, first)), counts


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


def settle(model: torch.nn.Module) -> None:
    """Scales follow weights and ranges; between batches."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, LookupResult):
                part.settle()
        for part in model.modules():
            if isinstance(part, RoundedLayer):
                part.settle()


def _tuple(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)


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
