"""Attacks of fhe_core/tools/meet_in_the_middle.py: against lattice-estimator's numbers, against a published table of ours, against counting."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from test_parameter_sets import TOOLS, load_tool

attacks = load_tool("meet_in_the_middle")
ESTIMATES = json.loads((TOOLS / "security_estimates.json").read_text())["estimates"]


@pytest.mark.parametrize(
    ("block_size", "dimension", "delta_log2", "cost_log2"),
    [(100, 500, 0.0132961, 59.6675), (328, 722, 0.0065656, 122.6395), (428, 1031, 0.0054702, 150.8852)],
)
def test_lattice_reduction_costs_what_the_estimator_says(
    block_size: int, dimension: int, delta_log2: float, cost_log2: float
) -> None:
    """`delta(beta)` and `RC.MATZOV.short_vectors(beta, d, 300)` of lattice-estimator 27a581b."""
    assert attacks.root_hermite_log2(block_size) == pytest.approx(delta_log2, abs=1e-7)
    assert attacks.samples_log2(block_size, dimension) == pytest.approx(cost_log2, abs=1e-3)


@pytest.mark.parametrize(
    ("problem", "bits"),
    [
        ("block_8 784 65536 7.85", 123.9),
        ("block_8 824 65536 3.98", 124.5),
        ("block_8 880 16777216 390.91", 125.2),
        ("block_8 920 16777216 197.05", 125.6),
        ("block_8 960 16777216 98.59", 126.0),
        ("block_8 1024 16777216 32.39", 126.5),
        ("block_8 1152 16777216 3.44", 127.2),
        ("block_8 840 65536 7.85", 132.7),
    ],
)
def test_collisions_of_an_audit(problem: str, bits: float) -> None:
    """An audit of 0.2.0 came to the same numbers by a program of its own."""
    secret, dimension, modulus, sigma = problem.split()
    found = attacks.collisions(attacks.secret_of(secret), int(dimension), int(modulus), float(sigma))
    assert found.bits == pytest.approx(bits, abs=0.05)
    assert found.guessed % 8 == 0 and found.table_bits == pytest.approx(found.guessed / 16 * math.log2(9))


def test_a_binary_key_has_too_much_entropy_for_collisions() -> None:
    """The control: `gate_64`, 132.3 bits by other attacks."""
    found = attacks.collisions(attacks.secret_of("binary"), 640, 65536, 6.48)
    assert found.bits > 150


def test_intervals_keep_close_values_together() -> None:
    """p1 by integration; with the number of intervals it falls, with less noise it rises."""
    alpha, intervals, step = 0.087, 3, 1e-4
    grid = [step * (i + 0.5) for i in range(round(8 / step))]
    density = [math.exp(-(x**2) / 2) for x in grid]
    kept = (p * max(0.0, 1 - alpha * x * intervals) for x, p in zip(grid, density, strict=True))
    assert attacks.collision_probability(alpha, intervals) == pytest.approx(sum(kept) / sum(density), rel=1e-4)


@pytest.mark.parametrize("kind", [attacks.ZERO, attacks.PLUS, attacks.MINUS, attacks.DIFFERENCE, attacks.SUM])
def test_decompositions_are_counted(kind: tuple[int, int]) -> None:
    """Over all pairs of blocks of four."""
    kinds = (attacks.ZERO, attacks.PLUS, attacks.MINUS, attacks.DIFFERENCE, attacks.SUM, attacks.OPPOSITE)
    of_block = {block: each for each in kinds for block in attacks.blocks_of(each, 4)}
    assert len(of_block) == 1 + 4 + 4 + 12 + 6 + 6
    target = next(iter(attacks.blocks_of(kind, 4)))
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for first, second in itertools.product(of_block, repeat=2):
        if tuple(a + b for a, b in zip(first, second, strict=True)) == target:
            counts[tuple(sorted((of_block[first], of_block[second])))] += 1
    assert counts and all(attacks.ways(kind, pair, 4) == count for pair, count in counts.items())


def test_the_tree_of_representations() -> None:
    """Shares are of decompositions that exist; 1.28 bits a block where halves of the key take 1.58."""
    for level in attacks.TREE:
        for kind, shares in level.items():
            assert sum(shares.values()) == pytest.approx(1, abs=2e-4)
            assert all(attacks.ways(kind, pair, 8) for pair in shares)
    found = attacks.representations(784)
    assert (found.bits, found.memory_bits) == (pytest.approx(126.4, abs=0.1), pytest.approx(125.4, abs=0.1))
    assert found.memory_bits < 98 * math.log2(9) / 2


@pytest.mark.parametrize(
    ("problem", "bits"),
    [("block_8 784 65536 7.85", 120.6), ("block_8 1152 16777216 3.44", 124.1), ("binary 640 65536 6.48", 138.7)],
)
def test_nearest_planes(problem: str, bits: float) -> None:
    secret, dimension, modulus, sigma = problem.split()
    found = attacks.nearest_planes(attacks.secret_of(secret), int(dimension), int(modulus), float(sigma))
    assert found.bits == pytest.approx(bits, abs=0.05)


def test_the_line_of_a_reduced_basis() -> None:
    """The last planes are as wide as the shortest vector of the dual is short, which is what `dual_noise` says of one sample."""
    secret, growth = attacks.secret_of("block_8"), attacks.root_hermite_log2(320)
    alpha_log2, lattice = attacks.dual_noise(320, 344, secret.deviation, 65536, 7.85)
    volume = 16 - math.log2(7.85) - 344 * (16 + math.log2(secret.deviation / 7.85)) / lattice
    one_sample = alpha_log2 - math.log2(attacks.SAMPLES) / 320
    assert volume - growth * lattice == pytest.approx(-one_sample, abs=1e-9)


def test_close_points_share_a_cell_at_random_offsets() -> None:
    """Two points of a random lattice of eight dimensions, reduced by nearest planes, as often as the product over the planes says."""
    generator, size, trials = np.random.default_rng(38), 8, 20_000
    widths, cells = np.linspace(14.0, 9.0, size), 2
    basis = np.diag(widths) + np.tril(generator.uniform(-0.5, 0.5, (size, size)) * widths, -1)
    points = generator.uniform(-1000, 1000, (trials, size))
    noise = generator.normal(size=(trials, size))

    def cell_of(points: np.ndarray) -> np.ndarray:
        rest = points.copy()
        for plane in reversed(range(size)):
            rest -= np.floor(rest[:, plane] / widths[plane])[:, None] * basis[plane]
        return np.floor(rest / widths * cells)

    shared = (cell_of(points) == cell_of(points + noise)).all(axis=1).mean()
    expected = math.prod(attacks.collision_probability(1 / width, cells) for width in widths)
    assert shared == pytest.approx(expected, rel=0.1)


def _stored() -> list[object]:
    """A few in `make test`, all of them in `make test-release`."""
    first = ("binary 640 65536 6.48", "block_8 864 65536 7.33", "gaussian 592 16777216 1208.55")
    return [key if key in first else pytest.param(key, marks=pytest.mark.tier("release")) for key in ESTIMATES]


@pytest.mark.parametrize("problem", _stored())
def test_stored_estimates_are_these(problem: str) -> None:
    secret, dimension, modulus, sigma = problem.split()
    found = attacks.estimate(secret, int(dimension), int(modulus), float(sigma))
    stored = {name: math.inf if ESTIMATES[problem][name] is None else ESTIMATES[problem][name] for name in found}
    assert stored == pytest.approx(found, abs=0.006)
