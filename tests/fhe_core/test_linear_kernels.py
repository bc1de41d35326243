"""Both kernels of the CUDA back end for linear layers (CLOAKWORK_LINEAR), each forced, against the CPU's words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import DeviceError, ParameterError

pytestmark = pytest.mark.gpu

Words = NDArray[Any]
SETS = ["toy", "toy_two_limb", "toy_lanes"]  # one and two limbs, two lanes
WIDE = 2**31 - 1  # weights of five slices


class Layers:
    """Random layers on one set's CPU session and on CUDA sessions that share a key."""

    def __init__(self, name: str) -> None:
        self.params = _engine.parameter_set(name)
        keys = _engine.SecretKey.generate(self.params, bytes(range(32))).evaluation_keys()
        self.cpu = _engine.CpuSession(_engine.CpuKey(self.params, *keys), 2)
        self.key = _engine.CudaKey(self.params, *keys)
        self.dtype = np.uint32 if self.params.limb_count == 1 else np.uint64

    def words(self, *shape: int) -> Words:
        width = self.params.large_words
        words: Words = np.random.default_rng(shape).integers(0, self.params.modulus, (*shape, width), dtype=self.dtype)
        return words

    def cuda(self, kernel: str, monkeypatch: pytest.MonkeyPatch, memory_limit: int = 0) -> Any:
        monkeypatch.setenv("CLOAKWORK_LINEAR", kernel)
        try:
            return _engine.CudaSession(self.key, memory_limit)
        except DeviceError as error:
            assert kernel == "wgmma" and "9.0" in str(error)
            pytest.skip("this device has no wgmma")


@pytest.fixture(scope="module", params=SETS)
def layers(request: pytest.FixtureRequest) -> Layers:
    return Layers(request.param)


def random_weights(rows: int, columns: int, limit: int) -> NDArray[np.int32]:
    generator = np.random.default_rng(rows * columns)
    weights = generator.integers(-limit, limit, (rows, columns), endpoint=True, dtype=np.int64).astype(np.int32)
    if limit == WIDE:
        weights[:, 12:] = 0  # the absolute values of a row stay below 2^35
    return weights


CASES = [((1, 1, 1), 127), ((2, 30, 70), WIDE), ((3, 65, 17), 30000)]
SHAPES = [(1, 1, 1), (2, 30, 70), (1, 64, 128), (3, 65, 17), (1, 130, 200)]
OTHER_CASES = [case for case in itertools.product(SHAPES, [127, 30000, WIDE]) if case not in CASES]


@pytest.mark.parametrize("kernel", ["mma", "wgmma"])
@pytest.mark.parametrize(
    ("shape", "limit"), [*CASES, *(pytest.param(*case, marks=pytest.mark.tier("all")) for case in OTHER_CASES)]
)
def test_layers(
    layers: Layers, kernel: str, limit: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, rows, columns = shape
    weights, lwe = random_weights(rows, columns, limit), layers.words(samples, columns)
    np.testing.assert_array_equal(
        layers.cuda(kernel, monkeypatch).linear(weights, lwe), layers.cpu.linear(weights, lwe)
    )


@pytest.mark.parametrize("kernel", ["mma", "wgmma"])
@pytest.mark.parametrize("rows", [5, 70])
def test_gathers_bias_and_pieces(layers: Layers, kernel: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions read rows of a sample in any order, some none; scratch has room for one position at a time."""
    generator = np.random.default_rng(rows)
    samples, positions, columns, sample_rows = 2, 3, 66, 40
    weights, lwe = random_weights(rows, columns, 127), layers.words(samples, sample_rows)
    gather = generator.integers(-1, sample_rows, (positions, columns)).astype(np.int32)
    bias = generator.integers(0, layers.params.modulus, rows, dtype=np.uint64)
    session = layers.cuda(kernel, monkeypatch, memory_limit=1 << 24)
    found = session.gathered_linear(session.upload_weights(weights), lwe, gather, bias)
    padded = np.concatenate([lwe, np.zeros_like(lwe[:, :1])], axis=1)  # the row that -1 reads
    read = np.ascontiguousarray(padded[:, gather].reshape(samples * positions, columns, -1))
    expected = layers.cpu.linear(weights, read)
    bodies = expected[:, :, layers.params.large_dimension :]
    bodies[...] = (bodies + bias[:, None].astype(bodies.dtype)) % layers.params.modulus
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


@pytest.mark.parametrize("kernel", ["mma", "wgmma"])
def test_largest_sums(layers: Layers, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight -128 or 127, every word Q - 1."""
    columns = 700
    lwe: Words = np.full((1, columns, layers.params.large_words), layers.params.modulus - 1, layers.dtype)
    session = layers.cuda(kernel, monkeypatch)
    for weight in (-128, 127):
        weights = np.full((3, columns), weight, np.int32)
        np.testing.assert_array_equal(session.linear(weights, lwe), layers.cpu.linear(weights, lwe))


def test_more_columns_than_unsigned_sums_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 2^16 columns a layer takes the other kernel even when wgmma is asked for."""
    layers = Layers("toy")
    columns = (1 << 16) + 1
    weights = np.zeros((1, columns), np.int32)
    weights[0, :: 1 << 12] = -128
    lwe: Words = np.zeros((1, columns, layers.params.large_words), layers.dtype)
    lwe[0, :: 1 << 12] = layers.params.modulus - 1
    np.testing.assert_array_equal(
        layers.cuda("wgmma", monkeypatch).linear(weights, lwe), layers.cpu.linear(weights, lwe)
    )


def test_the_variable(layers: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOAKWORK_LINEAR", "cublas")
    with pytest.raises(ParameterError, match="CLOAKWORK_LINEAR: expected auto, mma or wgmma, got 'cublas'"):
        _engine.CudaSession(layers.key)
    weights, lwe = random_weights(70, 64, 127), layers.words(2, 64)
    for value in ("auto", None):
        if value is None:
            monkeypatch.delenv("CLOAKWORK_LINEAR")
        else:
            monkeypatch.setenv("CLOAKWORK_LINEAR", value)
        session = _engine.CudaSession(layers.key)
        np.testing.assert_array_equal(session.linear(weights, lwe), layers.cpu.linear(weights, lwe))
