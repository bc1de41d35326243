"""Comparison bits from positions on a public grid: the client encrypts a few digits of a feature, and the server compares with its thresholds.

One blind rotation gives every comparison with a digit x in [0, 2^b): the table is +1/2 on one half of the circle and -1/2 on the other, and the
coefficient that stands for a shift by 2^b - 1 - e gives whether x is at most e. A feature of one digit is compared with that. Of several digits x_i,
with t_i those of a threshold, c_i = [x_i <= t_i] + [x_i <= t_i - 1] - 1 is 1, 0 or -1 as x_i is below, at or above t_i; c_0 = 2 [x_0 <= t_0] - 1. The
position is at most the threshold where sum 2^i c_i, an odd number, is positive: one look-up more for each threshold, of that sign. The factors 2^i
are the amplitudes of the digits' tables, so that the noise of k digits is that of 2k - 1 results, which no weight multiplies. Where positions have
more digits than one sign tells apart, the sign of the lowest digits stands for c_0 of those above them.

Every threshold reads as many results with as large weights, those at the ends of a digit too (what always or never holds is another coefficient of
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
from cloakwork.models.errors import CompileError, NoParameterSetError
from cloakwork.models.trees.comparison_bits import Bit
from cloakwork.models.trees.edges import Edges
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.graph_builder import Facts, GraphBuilder, Row
from cloakwork.models.trees.grid_bits import MOST_BITS, grid_points
from cloakwork.models.trees.index_weights import MOST_SLOTS
from cloakwork.models.trees.public_grid import FeatureGrid
from cloakwork.models.trees.tree_program import largest_slots

_MOST_TOGETHER: Final = 16
_Column: TypeAlias = tuple[int, int, bool]  # feature, digit, and whether a missing value flips its bits


@dataclass(frozen=True)
class DigitCode:
    """What the look-ups of one set make of positions."""

    bits: int  # of a digit, whose values one look-up tells apart
    together: int  # digits that one sign compares

    @property
    def radix(self) -> int:
        return 1 << self.bits


def digit_code(params: ParameterSet, p_fail_log2: float) -> DigitCode:
    """Of the set alone, whatever the trees. NoParameterSetError: its look-ups do not compare."""
    bits = min(largest_slots(params, p_fail_log2), MOST_SLOTS).bit_length() - 1
    together = 1
    while together < _MOST_TOGETHER and _sign_p_fail_log2(params, bits, together + 1) <= p_fail_log2:
        together += 1
    if bits < 1 or together < 2:
        raise NoParameterSetError("its look-ups compare no positions of several digits at this failure probability")
    return DigitCode(bits, together)


def _sign_p_fail_log2(params: ParameterSet, bits: int, together: int) -> float:
    """That the sign of a sum of so many digits is wrong: 2 and 1 results of rotations, those of one digit correlated, and half a turn from the
    client; the nearest sums are 2^-together away from the next, half of that from the edge."""
    pairs = 2 * (together - 1)
    norm = math.sqrt(pairs + 1 + pairs * noise.rotation_correlation_bound(params))
    flip = noise.linear_variance(noise.fresh_variance(params), 2.0 * (1 << bits))
    return noise.p_fail_log2(
        2.0 ** -(together + 1), noise.lookup_variance(params, norm) + flip, noise.lookup_offset(params)
    )


def position_step(ensemble: TreeEnsemble, grids: Sequence[FeatureGrid], code: DigitCode) -> Positions:
    """What the client sends, from the grids alone. CompileError: more numbers than a sample should have."""
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
            f"comparisons='server': the positions of {len(grids)} features are {total} numbers for a sample, at most {MOST_BITS} are sent; use "
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
        inputs = builder.input(int(self.step.widths.sum()), Facts(1 / (4 * radix), 0.0, radix - 1.0), "positions")
        if not self._points:
            return {}
        at_most = self._compared(builder, inputs)
        found = {}
        for edge, (feature, point) in self._points.items():
            if self._stages(feature) == 0:
                found[edge] = Bit((at_most[feature, 0, self._flips(edge)][point],), 0.5)
        signs: dict[int, int] = {}  # of the digits so far
        for stage in range(max(self._stages(feature) for feature, _ in self._points.values())):
            self._signs(builder, stage, inputs, at_most, signs)
        return found | {edge: Bit((wire,), 0.5) for edge, wire in signs.items()}

    # --- what there is to compare ------------------------------------------------------------------------------------------------

    @cached_property
    def _points(self) -> dict[int, tuple[int, int]]:
        return grid_points(self.edges, self.used, self.step)

    def _flips(self, edge: int) -> bool:
        """Whether a missing value, which is sent as position 0, where everything holds, has to fail."""
        return self.step.missing and not self.edges.missing[edge]

    @cached_property
    def _columns(self) -> list[_Column]:
        """One rotation each: of features of one digit for either direction of missing values, since no sign follows."""
        found = set()
        for edge, (feature, _) in self._points.items():
            if self._stages(feature) == 0:
                found.add((feature, 0, self._flips(edge)))
            else:
                found |= {(feature, digit, False) for digit in range(int(self.step.digits[feature]))}
        return sorted(found)

    def _stages(self, feature: int) -> int:
        """Signs, one after the other, that compare with a threshold: the first of `together` digits, each other of one less."""
        digits, together = int(self.step.digits[feature]), self.code.together
        return 0 if digits == 1 else 1 + max(0, -(-(digits - together) // (together - 1)))

    def _role(self, digit: int) -> tuple[int, int]:
        """The stage of a digit, and its place in the sum there."""
        together = self.code.together
        if digit < together:
            return 0, digit
        stage, place = divmod(digit - together, together - 1)
        return stage + 1, place + 1

    @cached_property
    def _turn(self) -> int:
        """Indices of a sign, whole turn: as many as the longest sum has, in all stages."""
        return 1 << min(self.code.together, int(self.step.digits.max()))

    # --- the graph ---------------------------------------------------------------------------------------------------------------

    def _compared(self, builder: GraphBuilder, inputs: Indices) -> dict[_Column, list[int]]:
        """The wires that say whether a digit is at most e, by e = 0 .. 2^b - 1; the last always does."""
        radix, rows, scales = self.code.radix, [], []
        for feature, digit, flips in self._columns:
            row = {int(inputs[self.step.starts[feature] + digit]): 2}
            if flips:
                row[self._missing(inputs, feature)] = 2 * radix
            rows.append(Row(row, 0.0))
            place = self._role(digit)[1]
            one_digit = self._stages(feature) == 0
            scales.append(1 / (2 * self.slots) if one_digit else 2.0 ** max(0, place - 1) / self._turn)
        circle = Facts(1 / (2 * radix), 0.0, 2.0 * radix - 1, (radix - 1) / 2)
        indices = builder.linear(rows, circle, "digits")
        table = np.tile(np.repeat([0.5, -0.5], radix), (len(rows), 1))
        facts = Facts(np.repeat(scales, radix), -0.5, 0.5)
        outputs = builder.lookup(indices, table, facts, "digits", list(range(radix)))  # shift 2^b - 1 - e
        return dict(zip(self._columns, outputs.reshape(len(rows), radix)[:, ::-1].tolist(), strict=True))

    def _signs(
        self, builder: GraphBuilder, stage: int, inputs: Indices, at_most: dict[_Column, list[int]], signs: dict[int, int]
    ) -> None:  # fmt: skip
        """Puts the comparison with every threshold, of the digits up to this stage, into `signs`."""
        rows, scales, edges = [], [], []
        for edge, (feature, point) in self._points.items():
            stages = self._stages(feature)
            if stage >= stages:
                continue
            row = {signs[edge]: 1} if stage else {}
            row |= self._sum(feature, point, stage, at_most)
            if stage == stages - 1 and self._flips(edge):
                row[self._missing(inputs, feature)] = -2 * self.code.radix
            rows.append(Row(row, (self._turn - 1) / 2))
            scales.append(1 / (2 * self.slots) if stage == stages - 1 else 1 / self._turn)
            edges.append(edge)
        name = f"comparisons {stage + 1}" if stage else "comparisons"
        half = self._turn // 2
        indices = builder.linear(rows, Facts(1 / self._turn, 0.0, self._turn - 1.0, (half - 1) / 2), name)
        table = np.tile(np.repeat([-0.5, 0.5], half), (len(rows), 1))
        outputs = builder.lookup(indices, table, Facts(np.array(scales), -0.5, 0.5), name)
        signs.update(zip(edges, outputs.tolist(), strict=True))

    def _sum(self, feature: int, point: int, stage: int, at_most: dict[_Column, list[int]]) -> dict[int, int]:
        """Weights of half of sum 2^i c_i."""
        row = {}
        for digit in range(int(self.step.digits[feature])):
            own, place = self._role(digit)
            if own != stage:
                continue
            wires, value = at_most[feature, digit, False], point >> self.code.bits * digit & (self.code.radix - 1)
            row[wires[value]] = 1
            if place > 0:
                row |= {wires[value - 1]: 1} if value else {wires[-1]: -1}
        return row

    def _missing(self, inputs: Indices, feature: int) -> int:
        return int(inputs[self.step.starts[feature] + self.step.digits[feature]])
