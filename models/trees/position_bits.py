"""Comparison bits from positions on a public grid: the client encrypts a few digits of a feature, and the server compares with its thresholds.

One blind rotation gives every comparison with a digit x in [0, 2^b): the table is +1/2 on one half of the circle and -1/2 on the other, and the
coefficient that stands for a shift by 2^b - 1 - e gives whether x is at most e. A feature of one digit is compared with that. Of several digits x_i,
with t_i those of a threshold, c_i = [x_i <= t_i] + [x_i <= t_i - 1] - 1 is 1, 0 or -1 as x_i is below, at or above t_i; c_0 = 2 [x_0 <= t_0] - 1. The
position is at most the threshold where sum 2^i c_i, an odd number, is positive: one look-up more for each threshold, of that sign. The factors 2^i
are the amplitudes of the digits' tables, so that the noise of k digits is that of 2k - 1 results, which no weight multiplies. Where positions have
more digits than one sign tells apart, the sign of the lowest digits stands for c_0 of those above them.

Every threshold reads as many results in one block of weights, those at the ends of a digit too (what always or never holds is another coefficient of
the same rotation), so that neither noise nor sizes depend on where thresholds are. Missing values: half a turn on an index flips its bit.

Source: [CIM19] several results of one rotation. Ours: shifts of one table, which are other coefficients of the accumulator, and digits by amplitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Positions
from cloakwork.models.criteria.choose_set import largest_slots
from cloakwork.models.errors import CompileError, NoParameterSetError
from cloakwork.models.graph.graph_builder import GraphBuilder, WireEncoding
from cloakwork.models.graph.ir import ZERO_WIRE
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble
from cloakwork.models.trees.grid_bits import MOST_BITS, Bit, grid_points
from cloakwork.models.trees.index_weights import MOST_SLOTS
from cloakwork.models.trees.public_grid import FeatureGrid

_MOST_TOGETHER: Final = 16
_Column: TypeAlias = tuple[int, int, bool]  # feature, digit, and whether a missing value flips its bits


@dataclass(frozen=True)
class DigitCode:
    """The code of positions that the look-ups of one set read."""

    bits: int  # of a digit, whose values one look-up tells apart
    together: int  # digits that one sign compares

    @property
    def radix(self) -> int:
        return 1 << self.bits


def digit_code(params: ParameterSet, p_fail_log2: float) -> DigitCode:
    """Returns the code of the set alone, whatever the trees. NoParameterSetError: its look-ups do not compare."""
    bits = min(largest_slots(params, p_fail_log2), MOST_SLOTS).bit_length() - 1
    together = 1
    while together < _MOST_TOGETHER and _sign_p_fail_log2(params, bits, together + 1) <= p_fail_log2:
        together += 1
    if bits < 1 or together < 2:
        raise NoParameterSetError("its look-ups compare no positions of several digits at this failure probability")
    return DigitCode(bits, together)


def _sign_p_fail_log2(params: ParameterSet, bits: int, together: int) -> float:
    """Returns log2 of the probability that the sign of a sum of digits is wrong: 2 and 1 results of rotations, those of one digit correlated, and
    half a turn from the client; the nearest sums are 2^-together away from the next, half of that from the edge."""
    pairs = 2 * (together - 1)
    norm = math.sqrt(pairs + 1 + pairs * noise.rotation_correlation_bound(params))
    flip = noise.linear_variance(noise.fresh_variance(params), 2.0 * (1 << bits))
    return noise.p_fail_log2(
        2.0 ** -(together + 1), noise.lookup_variance(params, norm) + flip, noise.lookup_offset(params)
    )


def position_step(ensemble: TreeEnsemble, grids: Sequence[FeatureGrid], code: DigitCode) -> Positions:
    """Makes what the client sends, from the grids alone. CompileError: more numbers than a sample should have."""
    step = Positions(
        np.arange(len(grids), dtype=np.int64),
        np.array([grid.count for grid in grids], dtype=np.int64),
        np.array([grid.low for grid in grids]),
        np.array([grid.step for grid in grids]),
        np.concatenate([np.zeros(0), *(grid.explicit for grid in grids)]),
        code.bits,
        ensemble.takes_missing,
        ensemble.strict,
        ensemble.single,
    )
    total = int(step.widths.sum())
    if total > MOST_BITS:
        raise CompileError(
            f"thresholds='server': the positions of {len(grids)} features are {total} numbers for a sample, at most {MOST_BITS} are sent; use "
            "fewer grid_bits, or leave out features before training"
        )
    return step


@dataclass(frozen=True, eq=False)
class PositionBits:
    """Edges on grid points. Bits are +-1/2 at 1 / 2 slots of the torus."""

    edges: Edges
    used: Indices
    step: Positions
    code: DigitCode
    slots: int

    @property
    def lookups(self) -> int:
        """Bootstraps of a sample, equal ones counted as often as they are."""
        return len(self._columns) + sum(self._stages(feature) for feature, _ in self._points.values())

    def build(self, builder: GraphBuilder) -> dict[int, Bit]:
        radix = self.code.radix
        # The client's phases stay within a quarter of the torus.
        inputs = builder.input(
            int(self.step.widths.sum()), WireEncoding(1 / (4 * radix), 0.0, radix - 1.0), "positions"
        )
        if not self._points:
            return {}
        at_most = self._compared(builder, inputs)
        bits = {}
        for edge, (feature, point) in self._points.items():
            if self._stages(feature) == 0:
                bits[edge] = Bit((at_most[feature, 0, self._flips(edge)][point],), 0.5)
        signs: dict[int, int] = {}  # of the digits so far
        for stage in range(max(self._stages(feature) for feature, _ in self._points.values())):
            self._signs(builder, stage, inputs, at_most, signs)
        return bits | {edge: Bit((wire,), 0.5) for edge, wire in signs.items()}

    # --- what there is to compare ------------------------------------------------------------------------------------------------

    @cached_property
    def _points(self) -> dict[int, tuple[int, int]]:
        return grid_points(self.edges, self.used, self.step)

    def _flips(self, edge: int) -> bool:
        """Whether a missing value, which is sent as position 0, where everything holds, has to fail."""
        return self.step.missing and not self.edges.missing[edge]

    @cached_property
    def _columns(self) -> list[_Column]:
        """Lists rotations: of features of one digit for either direction of missing values, since no sign follows."""
        columns = set()
        for edge, (feature, _) in self._points.items():
            if self._stages(feature) == 0:
                columns.add((feature, 0, self._flips(edge)))
            else:
                columns |= {(feature, digit, False) for digit in range(int(self.step.digits[feature]))}
        return sorted(columns)

    def _stages(self, feature: int) -> int:
        """Signs, one after the other, that compare with a threshold."""
        return -(-(int(self.step.digits[feature]) - 1) // (self.code.together - 1))

    @cached_property
    def _places(self) -> int:
        """Digits of the longest sum. In all sums they are at the same places, with 2^places indices to a turn."""
        return min(self.code.together, int(self.step.digits.max()))

    def _scale(self, feature: int, digit: int) -> float:
        """Returns the scale of the results for a digit: one index of a sum for the lowest digit, 2^(i - 1) for the two results of that at place i."""
        if self._stages(feature) == 0:
            return 1 / (2 * self.slots)
        place = (digit - 1) % (self.code.together - 1) + 1 if digit else 0
        return 2.0 ** (max(0, place - 1) - self._places)

    # --- the graph: nodes of one block, so that rows differ in nothing but what they read ------------------------------------------

    def _compared(self, builder: GraphBuilder, inputs: Indices) -> dict[_Column, list[int]]:
        """Returns the wires that say whether a digit is at most e, by e = 0 .. 2^b - 1; the last always does."""
        radix, columns = self.code.radix, self._columns
        gather = [
            [int(inputs[self.step.starts[feature] + digit]), *self._flip(inputs, feature, flips)]
            for feature, digit, flips in columns
        ]
        circle = WireEncoding(1 / (2 * radix), 0.0, 2.0 * radix - 1, (radix - 1) / 2)
        indices = builder.sums(gather, [2, *[2 * radix] * self.step.missing], 0.0, circle, "digits")
        table = np.tile(np.repeat([0.5, -0.5], radix), (len(columns), 1))
        scales = np.repeat([self._scale(feature, digit) for feature, digit, _ in columns], radix)
        outputs = builder.lookup(indices, table, WireEncoding(scales, -0.5, 0.5), "digits", list(range(radix)))
        return dict(zip(columns, outputs.reshape(len(columns), radix)[:, ::-1].tolist(), strict=True))

    def _signs(
        self, builder: GraphBuilder, stage: int, inputs: Indices, at_most: dict[_Column, list[int]], signs: dict[int, int]
    ) -> None:  # fmt: skip
        """Puts the comparison with every threshold, of the digits up to this stage, into `signs`."""
        gather, scales, edges = [], [], []
        for edge, (feature, point) in self._points.items():
            last = self._stages(feature) - 1
            if stage > last:
                continue
            lowest = signs[edge] if stage else at_most[feature, 0, False][self._digit(point, 0)]
            flip = self._flip(inputs, feature, stage == last and self._flips(edge))
            gather.append([lowest, *self._higher(feature, point, stage, at_most), *flip])
            scales.append(1 / (2 * self.slots) if stage == last else 2.0**-self._places)
            edges.append(edge)
        turn, half = 1 << self._places, 1 << (self._places - 1)
        weights = [1, *[1, 1, -1] * (self._places - 1), *[-2 * self.code.radix] * self.step.missing]
        name = f"comparisons {stage + 1}" if stage else "comparisons"
        indices = builder.sums(
            gather, weights, (turn - 1) / 2, WireEncoding(1 / turn, 0.0, turn - 1.0, (half - 1) / 2), name
        )
        table = np.tile(np.repeat([-0.5, 0.5], half), (len(edges), 1))
        outputs = builder.lookup(indices, table, WireEncoding(np.array(scales), -0.5, 0.5), name)
        signs.update(zip(edges, outputs.tolist(), strict=True))

    def _higher(self, feature: int, point: int, stage: int, at_most: dict[_Column, list[int]]) -> list[int]:
        """Returns three wires for each place of a sum but the lowest: [x <= t], [x <= t - 1], and for t = 0, in its place what always holds,
        subtracted."""
        place_wires = []
        for place in range(1, self._places):
            digit = stage * (self.code.together - 1) + place
            if digit >= self.step.digits[feature]:
                place_wires += [ZERO_WIRE] * 3
                continue
            wires, value = at_most[feature, digit, False], self._digit(point, digit)
            place_wires += [wires[value], *((wires[value - 1], ZERO_WIRE) if value else (ZERO_WIRE, wires[-1]))]
        return place_wires

    def _digit(self, point: int, digit: int) -> int:
        return point >> self.code.bits * digit & (self.code.radix - 1)

    def _flip(self, inputs: Indices, feature: int, flips: bool) -> list[int]:
        """Returns the wire that turns an index by half where the value is missing; none where no value can be."""
        if not self.step.missing:
            return []
        return [int(inputs[self.step.starts[feature] + self.step.digits[feature]]) if flips else ZERO_WIRE]
