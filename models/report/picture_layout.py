"""The layout of a picture: a band for each level, sums on its left, look-ups on its right, lines around the boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

BOX_WIDTH: Final = 300
BOX_HEIGHT: Final = 76
_BETWEEN: Final = 64  # the columns
_STACKED: Final = 16  # between boxes of a column
_PAD: Final = 18  # of a band, around its boxes
_HEAD: Final = 24  # of a band, for its name
_GAP: Final = 30  # between bands
_EDGE: Final = 22  # of the picture
_LANE: Final = 9  # between lines side by side
_CORNER: Final = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class BoxPlace:
    """The place of a box: its band, its column (0 or 1), and its number there."""

    band: int
    column: int
    row: int


@dataclass(frozen=True)
class Band:
    title: str
    columns: tuple[tuple[int, ...], tuple[int, ...]]  # numbers of boxes

    @property
    def height(self) -> float:
        rows = max(map(len, self.columns))
        return _HEAD + 2 * _PAD + rows * (BOX_HEIGHT + _STACKED) - _STACKED


@dataclass
class PictureLayout:
    """Sizes and places in pixels, of bands that follow each other below `top`."""

    bands: Sequence[Band]
    edges: Sequence[tuple[int, int]]
    top: float
    places: Mapping[int, BoxPlace] = field(init=False)
    width: float = field(init=False)
    height: float = field(init=False)
    _tops: list[float] = field(init=False)
    _gutter: tuple[float, float] = field(init=False)
    _lanes: dict[tuple[int, int], int] = field(
        init=False, default_factory=dict
    )  # by edge: which one of its gutter, from 1
    _in_gap: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {
            box: BoxPlace(band, column, row)
            for band, each in enumerate(self.bands)
            for column, boxes in enumerate(each.columns)
            for row, box in enumerate(boxes)
        }
        tops, y = [], self.top
        for band in self.bands:
            tops.append(y)
            y += band.height + _GAP
        self._tops, self.height = tops, y - _GAP + _EDGE
        self._gutter = (self._take_lanes(0), self._take_lanes(1))
        self.width = 2 * _EDGE + sum(self._gutter) + 2 * BOX_WIDTH + _BETWEEN

    @property
    def left(self) -> float:
        """Returns the left end of the boxes of sums."""
        return _EDGE + self._gutter[0]

    def corner(self, box: int) -> Point:
        place = self.places[box]
        x = self.left + place.column * (BOX_WIDTH + _BETWEEN)
        return x, self._tops[place.band] + _HEAD + _PAD + place.row * (BOX_HEIGHT + _STACKED)

    def band_rectangle(self, band: int) -> tuple[float, float, float, float]:
        """Returns x, y, width, height."""
        return _EDGE, self._tops[band], self.width - 2 * _EDGE, self.bands[band].height

    def line(self, source: int, target: int) -> str:
        """Returns the path's data, from one box to the other, past all others."""
        return _rounded(self._points(source, target))

    def _take_lanes(self, side: int) -> float:
        """Lines that pass the same bands on one side take lanes of their own; the width that all of them need."""
        ends: list[int] = []  # by lane: the last band that its last line passes
        inside = [edge for edge in self.edges if side in self._gutters(*edge)]
        for a, b in sorted(inside, key=lambda edge: (self.places[edge[0]].band, self.places[edge[1]].band)):
            first, last = self.places[a].band, self.places[b].band
            lane = next((i for i, end in enumerate(ends) if end < first), len(ends))
            ends[lane : lane + 1] = [last]
            self._lanes[a, b] = lane + 1
        return _PAD + _LANE * len(ends)

    def _gutters(self, source: int, target: int) -> list[int]:
        """On which side the line leaves the columns, if it does."""
        a, b = self.places[source], self.places[target]
        if a.band == b.band:
            return [] if a.column != b.column or b.row == a.row + 1 else [a.column]
        return [] if b.band == a.band + 1 and b.row == 0 else [b.column]

    def _points(self, source: int, target: int) -> list[Point]:
        a, b = self.places[source], self.places[target]
        (x0, y0), (x1, y1) = self.corner(source), self.corner(target)
        middle0, middle1 = y0 + BOX_HEIGHT / 2, y1 + BOX_HEIGHT / 2
        if a.band == b.band and a.column != b.column:
            between = x0 + BOX_WIDTH + _BETWEEN / 2
            return [(x0 + BOX_WIDTH, middle0), (between, middle0), (between, middle1), (x1, middle1)]
        if a.band == b.band and b.row == a.row + 1:
            return [(x0 + BOX_WIDTH / 2, y0 + BOX_HEIGHT), (x1 + BOX_WIDTH / 2, y1)]
        side = x1 if b.column == 0 else x1 + BOX_WIDTH
        if a.band == b.band:
            lane = self._lane(source, target)
            return [(side, middle0), (lane, middle0), (lane, middle1), (side, middle1)]
        points = self._way_out(source)
        if self._gutters(source, target):
            lane = self._lane(source, target)
            points.append((lane, points[-1][1]))
            if b.row > 0:
                return [*points, (lane, middle1), (side, middle1)]
            points.append((lane, self._gap(b.band - 1)))
        return [*points, (x1 + BOX_WIDTH / 2, points[-1][1]), (x1 + BOX_WIDTH / 2, y1)]

    def _way_out(self, source: int) -> list[Point]:
        """Into the gap below the band: straight down, or between the columns where another box stands below."""
        (x, y), place = self.corner(source), self.places[source]
        gap = self._gap(place.band)
        if self.bands[place.band].columns[place.column][-1] == source:
            return [(x + BOX_WIDTH / 2, y + BOX_HEIGHT), (x + BOX_WIDTH / 2, gap)]
        middle, between = y + BOX_HEIGHT / 2, self.left + BOX_WIDTH + _BETWEEN * (0.3 + 0.4 * place.column)
        return [(x + BOX_WIDTH if place.column == 0 else x, middle), (between, middle), (between, gap)]

    def _lane(self, source: int, target: int) -> float:
        away = _LANE * self._lanes[source, target]
        return self.left - away if self.places[target].column == 0 else self.left + 2 * BOX_WIDTH + _BETWEEN + away

    def _gap(self, band: int) -> float:
        """Lines in one gap run a little apart."""
        taken = self._in_gap.get(band, 0)
        self._in_gap[band] = taken + 1
        return self._tops[band] + self.bands[band].height + _GAP / 2 + 5 * ((taken % 3) - 1)


def _rounded(points: Sequence[Point]) -> str:
    """Straight lines with round corners."""
    kept = [points[0]]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        straight = before[0] == here[0] == after[0] or before[1] == here[1] == after[1]
        if not straight and here != kept[-1]:
            kept.append(here)
    kept.append(points[-1])
    path = f"M{kept[0][0]:g} {kept[0][1]:g}"
    for before, here, after in zip(kept, kept[1:], kept[2:], strict=False):
        (x0, y0), (x1, y1) = _toward(here, before), _toward(here, after)
        path += f"L{x0:g} {y0:g}Q{here[0]:g} {here[1]:g} {x1:g} {y1:g}"
    return f"{path}L{kept[-1][0]:g} {kept[-1][1]:g}"


def _toward(start: Point, end: Point) -> Point:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = abs(dx) + abs(dy)
    part = min(_CORNER, length / 2) / length if length else 0
    return round(start[0] + part * dx, 2), round(start[1] + part * dy, 2)
