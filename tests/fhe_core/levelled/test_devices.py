"""Levelled arithmetic on a device: every word is the CPU's, of any number of primes, digits and ciphertexts; what is not this object's is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import DeviceError, ParameterError, ShapeError
from cloakwork.fhe_core.levelled.backends import CudaBackend, backend_of
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.large_ntt import transform_primes
from cloakwork.fhe_core.levelled.neighbours.cell_products import CellTable
from cloakwork.fhe_core.levelled.neighbours.cells import CellLayout, CellLevels
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import expansion_automorphisms
from cloakwork.fhe_core.levelled.neighbours.inner_products import InnerProductTable, packed_query, rows_of
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

gpu = pytest.mark.gpu
Words = NDArray[np.uint32]

# log_size, primes, special ones, primes of a digit: one digit, whole ones, a last digit of fewer, digits of one prime
RINGS = [(12, 1, 1, 1), (12, 4, 2, 2), (12, 5, 3, 2), (12, 3, 1, 1), (13, 2, 2, 2)]
LARGE = [
    (14, 8, 3, 3),
    (15, 17, 6, 6),
    (16, 40, 14, 14),
    (16, 40, 10, 7),
    (17, 9, 4, 4),
    (12, 70, 3, 1),
    (12, 60, 30, 30),
]


def engine_of(log_size: int, primes: int, special: int, digit: int) -> _engine.Levelled:
    chosen = transform_primes(log_size, primes + special)
    return _engine.Levelled(log_size, chosen[special:] + chosen[:special], special, digit, 65537)


def residues(engine: _engine.Levelled, level: int, *before: int, seed: int = 1) -> Words:
    """Random, the largest and zero among them."""
    rng, size = np.random.default_rng(seed), engine.key_bodies_shape[2]
    bounds = np.array(engine.primes[:level], np.uint32)[:, None]
    words = rng.integers(0, bounds, (*before, level, size), dtype=np.uint32)
    words[..., 3::7] = bounds - 1
    words[..., 5::11] = 0
    words[(0,) * len(before)] = bounds - 1
    return words


def check_ring(ring: tuple[int, int, int, int], batch: int) -> None:
    engine = engine_of(*ring)
    cpu, cuda = backend_of(engine, "cpu", 4), backend_of(engine, "cuda", 1)
    secret = _engine.LevelledKey.generate(engine, bytes(range(32)))
    expanded = {3: engine.expand_key(*secret.switch_key(3), 4)}
    keys = cuda.keys(expanded)
    whole = len(engine.primes) - ring[2]
    for level in sorted({1, min(2, whole), whole - 1, whole} - {0}):
        a, b = residues(engine, level, batch, 2), residues(engine, level, batch, 2, seed=2)
        x, y = cuda.here(a), cuda.here(b)

        def same(found: Any, expected: Words) -> None:
            np.testing.assert_array_equal(found.to_host(), expected)

        same(x, a)
        same(cuda.add(x, y, False), cpu.add(a, b, False))
        same(cuda.add(x, y, True), cpu.add(a, b, True))
        for factor in (0, -1, 65536, -(2**62)):
            same(cuda.scale(x, factor), cpu.scale(a, factor))
        same(cuda.multiply(x, y), cpu.multiply(a, b))
        weights = np.arange(-4, 3 * batch - 4).reshape(3, batch)
        same(cuda.combine(x, weights), cpu.combine(a, weights))
        for g in (3, 2 ** (ring[0] - 1) + 1, 2 ** (ring[0] + 1) - 1):
            same(cuda.automorphism(x, g), cpu.automorphism(a, g))
        same(cuda.part(x, 1), cpu.part(a, 1))
        same(cuda.from_parts([cuda.part(y, 0), cuda.part(x, 1)]), np.stack([b[:, 0], a[:, 1]], axis=1))
        same(cuda.concatenate([x, y]), np.concatenate([a, b]))
        same(cuda.take(x, batch - 1, batch), a[batch - 1 :])
        for keep in sorted({1, level // 2, level - 1} - {0, level}):
            same(cuda.modulus_switch(x, keep), cpu.modulus_switch(a, keep))
        rows = residues(engine, level, batch, seed=3)
        same(cuda.keyswitch(cuda.here(rows), keys[3]), cpu.keyswitch(rows, expanded[3]))
        same(cuda.transform(rows), cpu.transform(rows))


@gpu
@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_every_word_is_the_cpus(ring: tuple[int, int, int, int]) -> None:
    check_ring(ring, 1)


@gpu
@pytest.mark.parametrize("batch", [2, 5])
def test_batches(batch: int) -> None:
    check_ring((12, 3, 2, 2), batch)


@gpu
@pytest.mark.tier("release")
@pytest.mark.parametrize("ring", LARGE, ids=str)
def test_large_rings(ring: tuple[int, int, int, int]) -> None:
    check_ring(ring, 3)


@gpu
@pytest.mark.parametrize(("rows", "terms", "parts"), [(1, 1, 1), (3, 5, 2), (5, 2, 3), (4, 130, 2)])
def test_sums_of_products(rows: int, terms: int, parts: int) -> None:
    """Of more terms than are added before a reduction, and numbers of rows and parts that are no multiples of a thread's."""
    engine = engine_of(12, 1, 1, 1)
    words, table = residues(engine, 1, terms, parts), residues(engine, 1, rows, terms, seed=2)
    cuda = _engine.CudaLevelled(engine)
    found = cuda.products(cuda.upload(words), cuda.prepare(cuda.upload(table)))
    prepared = engine.prepare(table)
    expected = engine.products(words, prepared)
    np.testing.assert_array_equal(found.to_host(), expected)
    again = cuda.products(cuda.upload(words), cuda.upload_prepared(prepared))
    np.testing.assert_array_equal(again.to_host(), expected)


@gpu
@pytest.mark.parametrize("name", ["toy_bgv12", pytest.param("bgv14", marks=pytest.mark.tier("all"))])
def test_an_evaluator_there_is_one_here(name: str) -> None:
    """Products, rotations, divisions, sums: ciphertexts of either side go in, the same words come out and decrypt."""
    parameters = LevelledParameters.of(name, 65537)
    key = LevelledClientKey._from_entropy(parameters, bytes(range(32)))
    keys = key.evaluation_keys((3,))
    here, there = LevelledEvaluator(parameters, keys), LevelledEvaluator(parameters, keys, device="cuda")
    values = np.random.default_rng(1).integers(0, 65537, (2, parameters.polynomial_size))
    x, y = key.encrypt(values[:1]), key.encrypt(values[1:])

    def run(server: LevelledEvaluator) -> list[Any]:
        times = server.multiply(x, y)
        down = server.rescale(times)
        mixed = server.add(down, x)
        moved = server.automorphism(mixed, 3)
        plain = server.add_plain(server.multiply_plain(moved, values[0] % 5), values[1])
        both = server.concatenate([x, y])
        summed = server.multiply_sum(server.concatenate([both, both]), both)
        return [times, down, mixed, moved, plain, server.concatenate([mixed, moved]), server.scale(x, -5), summed]

    for on_cpu, on_device in zip(run(here), run(there), strict=True):
        np.testing.assert_array_equal(on_device.to_host().words, on_cpu.words)
        assert (on_device.scale, on_device.noise, len(on_device)) == (on_cpu.scale, on_cpu.noise, len(on_cpu))
        np.testing.assert_array_equal(key.decrypt(on_device), key.decrypt(on_cpu))
        assert on_device.to_bytes() == on_cpu.to_bytes()


@gpu
def test_inner_products() -> None:
    parameters = LevelledParameters.of("toy_bgv12", 65537)
    key = LevelledClientKey._from_entropy(parameters, bytes(range(32)))
    rng = np.random.default_rng(3)
    rows, vector, offsets = rng.integers(-20, 21, (4100, 6)), rng.integers(-20, 21, 6), rng.integers(-99, 100, 4100)
    keys = key.evaluation_keys(expansion_automorphisms(parameters, 6))
    vectors = [vector, -vector, vector + np.arange(6)]
    queries = [key.encrypt(packed_query(parameters, each)[None], 2) for each in vectors]
    answers = []
    for device in ("cpu", "cuda"):
        table = InnerProductTable(LevelledEvaluator(parameters, keys, device=device), rows, offsets)
        answers.append(
            [each.to_host() for each in table.products_of_all(queries)] + [table.products(queries[1]).to_host()]
        )
    for on_cpu, on_device in zip(*answers, strict=True):
        np.testing.assert_array_equal(on_cpu.words, on_device.words)
    for each, answer in zip(vectors, answers[1][:3], strict=True):
        np.testing.assert_array_equal(rows_of(key.decrypt(answer, signed=True), 4100), rows @ each + offsets)
    np.testing.assert_array_equal(answers[1][1].words, answers[1][3].words)  # alone or among others


@gpu
def test_chosen_cells() -> None:
    """Several queries together are each as alone on the host."""
    parameters = LevelledParameters.of("toy_bgv12", 30011)
    key = LevelledClientKey._from_entropy(parameters, bytes(range(32)))
    layout, levels = CellLayout(parameters, 5, 3, 4), CellLevels(4, 3, 2, 2, 0, 20)
    rng = np.random.default_rng(4)
    rows = 3 * parameters.polynomial_size
    table, offsets = rng.integers(-20, 21, (rows, 5)), rng.integers(-99, 100, rows)
    keys = key.evaluation_keys(layout.key_shape.automorphisms)
    packed = [layout.query(rng.integers(-20, 21, 5), layout.place(rng.permutation(12))) for _ in range(3)]
    queries = [key.encrypt(each[None]) for each in packed]
    here, there = (
        CellTable(LevelledEvaluator(parameters, keys, device=device), layout, levels, table, offsets)
        for device in ("cpu", "cuda")
    )
    for query, answer in zip(queries, there.products_of_all(queries), strict=True):
        np.testing.assert_array_equal(answer.words, here.products_of_all([query])[0].words)


@gpu
def test_what_is_refused() -> None:
    engine, other = engine_of(12, 3, 1, 1), engine_of(12, 3, 1, 1)
    cuda = _engine.CudaLevelled(engine)
    words = residues(engine, 3, 2)
    here, pair = cuda.upload(words), cuda.upload(residues(engine, 3, 2, 2))
    table = cuda.prepare(pair)
    key = cuda.upload_prepared(engine.expand_key(*_engine.LevelledKey.generate(engine).switch_key(0)))
    above = words.copy()
    above[1, 2, 7] = engine.primes[2]
    with pytest.raises(ShapeError, match="words"):
        cuda.upload(above)
    for shape in ((4096,), (3, 4096), (2, 4, 4096), (2, 3, 2048), (1, 2, 2, 3, 4096), (0, 3, 4096)):
        with pytest.raises(ShapeError):
            cuda.upload(np.zeros(shape, np.uint32))
    with pytest.raises(ShapeError, match="another's"):
        _engine.CudaLevelled(other).add(here, here)
    with pytest.raises(ShapeError, match="another's"):
        cuda.upload_prepared(other.prepare(residues(other, 3, 1, 1)))
    for call in (
        lambda: cuda.add(here, here.take(0, 1)),
        lambda: cuda.add(here, pair),
        lambda: cuda.add(table, table),
        lambda: cuda.products(pair, pair),
        lambda: cuda.products(pair, key),
        lambda: cuda.products(here, table),
        lambda: cuda.products(cuda.upload(residues(engine, 2, 2, 2)), table),
        lambda: cuda.keyswitch(here, table),
        lambda: cuda.keyswitch(pair, key),
        lambda: cuda.keyswitch(here, here),
        lambda: cuda.multiply(here, here),
        lambda: cuda.multiply(pair, pair.take(0, 1)),
        lambda: cuda.part(here, 0),
        lambda: cuda.part(pair, 2),
        lambda: cuda.part(pair, -1),
        lambda: cuda.joined([], False),
        lambda: cuda.joined([here, pair], False),
        lambda: cuda.joined([here, here.take(0, 1)], True),
        lambda: cuda.joined([key, key], False),
        lambda: here.take(1, 1),
        lambda: here.take(0, 3),
        lambda: here.take(-1, 1),
        lambda: here.reshape((3,)),
        lambda: here.reshape((-1, -2)),
        lambda: here.reshape(()),
        lambda: here.reshape((1, 1, 2)),
        lambda: here.reshape((1 << 62, 1 << 62)),
    ):
        with pytest.raises(ShapeError):
            call()
    for g in (0, 2, 8193):
        with pytest.raises(ParameterError, match="g:"):
            cuda.automorphism(here, g)
    for keep in (0, 3, -1):
        with pytest.raises(ParameterError, match="keep"):
            cuda.modulus_switch(here, keep)
    with pytest.raises(DeviceError, match="one device"):
        backend_of(engine, "cuda:0,1", 1)
    assert isinstance(backend_of(engine, "cuda", 1), CudaBackend)


def test_devices_that_are_not_there() -> None:
    engine = engine_of(12, 1, 1, 1)
    for device in ("gpu", "cpu:0", "cuda:99", "cuda:x"):
        with pytest.raises(DeviceError, match="device"):
            backend_of(engine, device, 1)
