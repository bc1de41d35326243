"""Cells that a client chooses in secret: where they go, exact inner products of them, noise below its model, wrong input."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, ShapeError
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.neighbours import cell_products
from cloakwork.fhe_core.levelled.neighbours.cell_products import CellTable, cell_products_noise
from cloakwork.fhe_core.levelled.neighbours.cells import EMPTY, CellLayout, CellLevels
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

TOY = LevelledParameters.of("toy_bgv12", 30011)
LEVELS = CellLevels(4, 3, 2, 2, 10, 20)


class Case:
    """A table and a client's key."""

    def __init__(self, layout: CellLayout, levels: CellLevels = LEVELS, most: int = 20, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.layout, self.levels, self.parameters = layout, levels, layout.parameters
        rows = layout.blocks * self.parameters.polynomial_size
        self.rows = rng.integers(-most, most + 1, (rows, layout.features)).astype(np.int16)
        self.offsets = rng.integers(-50, 50, rows)
        self.key = LevelledClientKey._from_entropy(self.parameters, bytes(range(32)))
        self.keys = self.key.evaluation_keys(layout.key_shape.automorphisms)
        self.table = CellTable(
            LevelledEvaluator(self.parameters, self.keys, threads=2), layout, levels, self.rows, self.offsets
        )

    def query(self, vector: np.ndarray, places: np.ndarray) -> LevelledCiphertexts:
        """Through its bytes."""
        seeded = self.key.encrypt_seeded(self.layout.query(vector, places), self.levels.query)
        data = seeded.rounded(self.levels.query_bits).to_bytes()
        return SeededLevelledCiphertexts.from_bytes(data, self.parameters).expand()

    def check(self, answer: LevelledCiphertexts, vector: np.ndarray, places: np.ndarray) -> None:
        read = LevelledCiphertexts.from_bytes(answer.to_bytes(), self.parameters)
        found = self.layout.scores(self.key.decrypt(read, signed=True)[0], places)
        t = self.parameters.plaintext_modulus
        for cell, scores in zip(places, found, strict=True):
            if cell == EMPTY:
                np.testing.assert_array_equal(scores, 0)
                continue
            rows = self.layout.rows_of(int(cell), self.layout.cell_rows)
            expected = self.rows[rows].astype(int) @ vector + self.offsets[rows]
            np.testing.assert_array_equal((scores - expected) % t, 0)


@pytest.mark.parametrize(("features", "blocks", "probes"), [(5, 1, 1), (3, 3, 1), (6, 2, 2), (4, 3, 4), (9, 2, 8)])
def test_chosen_cells_are_exact(features: int, blocks: int, probes: int) -> None:
    """In every place, moved or not, and where a place has none."""
    case = Case(CellLayout(TOY, features, blocks, probes))
    rng = np.random.default_rng(2)
    wanted = [list(rng.permutation(case.layout.cells)) for _ in range(2)] + [[case.layout.cells - 1], []]
    if probes > 1:
        wanted.append([0, probes - 1])  # the first class in the last place
    for cells in wanted:
        vector, places = rng.integers(-15, 16, features), case.layout.place(cells)
        answer = case.table.products_of_all([case.query(vector, places)])[0]
        assert len(answer) == 1 and answer.level == LEVELS.answer and answer.dropped_bits == LEVELS.answer_bits
        case.check(answer, vector, places)


@pytest.mark.parametrize("term_bytes", [1 << 31, 1])
def test_several_queries_at_once(monkeypatch: pytest.MonkeyPatch, term_bytes: int) -> None:
    monkeypatch.setattr(cell_products, "_TERM_BYTES", term_bytes)
    case = Case(CellLayout(TOY, 5, 2, 4))
    rng = np.random.default_rng(3)
    asked = [(rng.integers(-15, 16, 5), case.layout.place(list(rng.permutation(8)))) for _ in range(3)]
    answers = case.table.products_of_all([case.query(*each) for each in asked])
    for answer, (vector, places) in zip(answers, asked, strict=True):
        case.check(answer, vector, places)
    assert case.table.products_of_all([]) == []


@pytest.mark.parametrize("probes", [1, 2, 4, 8])
def test_places(probes: int) -> None:
    """As many of the first cells as can have places of their own, compared with all ways to place them."""
    layout = CellLayout(TOY, 1, 3, probes)
    rng = np.random.default_rng(probes)
    for _ in range(60):
        wanted = [int(cell) for cell in rng.permutation(layout.cells)]
        places = layout.place(wanted)
        assert len(set(places)) == probes and (places != EMPTY).all()
        for place, cell in enumerate(places):
            assert (cell - place) % probes in range(layout.choices)
        kept: list[int] = []
        for cell in wanted:  # the first that can be added to those before
            choices = [{(each - choice) % probes for choice in range(layout.choices)} for each in [*kept, cell]]
            if all(
                len(set().union(*some)) >= k
                for k in range(len(choices) + 1)
                for some in itertools.combinations(choices, k)
            ):
                kept.append(cell)
        assert set(kept) == set(places)


def test_places_without_cells() -> None:
    layout = CellLayout(TOY, 1, 2, 4)
    assert (layout.place([]) == EMPTY).all()
    assert sorted(layout.place([6, 2, 7])) in ([EMPTY, 2, 6, 7], [EMPTY, EMPTY, 2, 6])
    with pytest.raises(ShapeError, match=r"shape \[1\]"):
        layout.query(np.arange(3), layout.place([1]))


def test_rows_of_cells_are_all_rows() -> None:
    layout = CellLayout(TOY, 1, 2, 8)
    rows = np.concatenate([layout.rows_of(cell, layout.cell_rows) for cell in range(layout.cells)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(2 * TOY.polynomial_size))
    assert len(layout.rows_of(3, 7)) == 7


@pytest.mark.parametrize(
    ("features", "blocks", "probes"), [(1, 1, 3), (1, 1, 0), (1, 1, 4096), (0, 1, 2), (1, 0, 2), (4090, 2, 2)]
)
def test_layouts_that_do_not_fit(features: int, blocks: int, probes: int) -> None:
    with pytest.raises(ParameterError, match="probes|cells"):
        CellLayout(TOY, features, blocks, probes)
    with pytest.raises(ParameterError, match="odd"):
        CellLayout(LevelledParameters.of("toy_bgv12", 65536), 1, 1, 2)


@pytest.mark.parametrize(
    "levels", [(4, 4, 2, 2), (4, 3, 2, 0), (3, 2, 2, 3), (4, 2, 3, 1), (4, 3, 2, 2, 28), (4, 3, 2, 2, 0, -1)]
)
def test_levels_that_do_not_fit(levels: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="levels"):
        CellLevels(*levels)


def test_noise_is_below_its_model_at_full_size() -> None:
    """A set for use: int8 rows and queries, the largest block, at most 100,000 bytes each way."""
    parameters = LevelledParameters.of("bgv13", (1 << 21) + 1)
    layout, levels = CellLayout(parameters, 16, 2, 8), CellLevels(4, 3, 2, 2, 15, 24)
    case = Case(layout, levels, most=127)
    blocks = case.rows.astype(float).reshape(2, -1)
    norm1, norm2 = float(np.abs(blocks).sum(axis=1).max()), float(np.linalg.norm(blocks, axis=1).max())
    products, foreseen = cell_products_noise(layout, levels, norm1, norm2)
    assert max(failure_log2(products, parameters, 3), failure_log2(foreseen, parameters, 2)) < -128
    vector, places = np.full(16, 127), layout.place([3, 9, 11, 0])
    query = case.query(vector, places)
    answer = case.table.products_of_all([query])[0]
    case.check(answer, vector, places)
    assert answer.noise.deviation == pytest.approx(foreseen.deviation, rel=0.02)
    assert levels.query_bytes(parameters) == 99328 and levels.answer_bytes(parameters) == 65536
    assert len(answer.to_bytes()) < levels.answer_bytes(parameters) + 200
    words, primes = case.key.phases(answer)[0].astype(object), parameters.set.primes[:2]
    modulus = math.prod(primes)
    phase = sum(words[i] * pow(modulus // q, -1, q) % q * (modulus // q) for i, q in enumerate(primes)) % modulus
    centred = np.where(phase > modulus // 2, phase - modulus, phase).astype(float)
    assert 2.0**-9 * answer.noise.deviation < np.std(centred) and np.abs(centred).max() < 6.5 * answer.noise.deviation


def test_wrong_input() -> None:
    case = Case(CellLayout(TOY, 3, 1, 2))
    places = case.layout.place([1])
    query = case.query(np.arange(3), places)
    server = LevelledEvaluator(TOY, case.keys)
    for wrong, message in (
        (server.modulus_switch(query, 3), "level 4"),
        (replace(query, scale=5), "fresh"),
        (server.concatenate([query, query]), "one ciphertext"),
    ):
        with pytest.raises(ShapeError, match=message):
            case.table.products_of_all([wrong])
    for keys in (None, case.key.evaluation_keys(case.layout.key_shape.automorphisms, products=False)):
        table = CellTable(LevelledEvaluator(TOY, keys), case.layout, LEVELS, case.rows, case.offsets)
        with pytest.raises(KeyMismatchError, match="no key for"):
            table.products_of_all([query])
    stranger = LevelledClientKey.generate(TOY)
    with pytest.raises(KeyMismatchError):
        case.table.products_of_all([stranger.encrypt(case.layout.query(np.arange(3), places))])
