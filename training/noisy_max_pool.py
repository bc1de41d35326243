"""Max-pools as they are encrypted, for networks that `prepare` took apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from cloakwork.training.pytorch import Tensor, torch
from cloakwork.training.simulation import LookupNoise, LookupResult, RoundedOnes, RowsSeen, Simulating, Way


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


def _tuple(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)
