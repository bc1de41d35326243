"""Secret samplers: exact tables, and statistics of fixed streams.

The entropy is fixed, so the tests are deterministic; each bound is one that a fresh stream would break with probability
below 1e-6 (4.9 standard deviations, two-sided).
"""

from __future__ import annotations

import decimal
import hashlib
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, ShapeError

Z_LIMIT = 4.9
ENTROPY = hashlib.sha256(b"tests/fhe_core/test_random.py").digest()
SIGMAS = [1.0, 3.2, 5.91, 18.05, 150.0, 2000.0]


def half_gaussian_tails(sigma: float, count: int) -> list[decimal.Decimal]:
    """P(|x| > i) for i = 0 .. count - 1, x discrete Gaussian, with 60 digits."""
    with decimal.localcontext(prec=60):
        scale = -1 / (2 * decimal.Decimal(sigma) ** 2)
        weights = [(2 if x else 1) * (scale * x * x).exp() for x in range(count + math.ceil(8 * sigma) + 20)]
        total = sum(weights)
        tails, above = [], total
        for i in range(count):
            above -= weights[i]
            tails.append(above / total)
        return tails


def chi_square_z(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """Wilson-Hilferty normal score of the chi-square statistic."""
    expected = probabilities * observed.sum()
    statistic = float(((observed - expected) ** 2 / expected).sum())
    degrees = len(observed) - 1
    return ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))


# --- Gaussian ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1.0, 3.2, 5.91, 18.05, 150.0])
def test_thresholds_are_the_tail_probabilities_to_63_bits(sigma: float) -> None:
    thresholds = _engine.testing.gaussian_thresholds(sigma).tolist()
    exact = half_gaussian_tails(sigma, len(thresholds) + 1)
    # Long double carries 64 bits: a few units in the last of the 63 places.
    for threshold, probability in zip(thresholds, exact, strict=False):
        assert abs(decimal.Decimal(threshold) - probability * 2**63) < 16
    assert exact[-1] * 2**63 < 1, "the tail beyond the table is below 2^-63"


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian_mean_and_variance(sigma: float) -> None:
    count = 400_000
    samples = _engine.testing.sample_gaussian(sigma, ENTROPY, count).astype(np.float64)
    assert abs(samples.mean()) < Z_LIMIT * sigma / math.sqrt(count)
    assert abs(samples.var() / sigma**2 - 1) < Z_LIMIT * math.sqrt(2 / count)
    # Kurtosis: standard deviation sqrt(24 / count).
    assert abs((samples**4).mean() / samples.var() ** 2 - 3) < Z_LIMIT * math.sqrt(24 / count) + 0.01
    assert abs(np.corrcoef(samples[1:], samples[:-1])[0, 1]) < Z_LIMIT / math.sqrt(count)


@pytest.mark.parametrize("sigma", [1.0, 3.2, 5.91])
def test_gaussian_distribution(sigma: float) -> None:
    samples = _engine.testing.sample_gaussian(sigma, ENTROPY, 1_000_000)
    bound = int(3.5 * sigma)
    values = np.arange(-bound, bound + 1)
    weights = np.exp(-(np.arange(-200, 201).astype(float) ** 2) / (2 * sigma**2))
    probabilities = weights[200 - bound : 201 + bound] / weights.sum()
    counts = np.array([(samples == v).sum() for v in values])
    counts = np.append(counts, len(samples) - counts.sum())
    assert abs(chi_square_z(counts, np.append(probabilities, 1 - probabilities.sum()))) < Z_LIMIT


def test_gaussian_reaches_the_tail() -> None:
    """P(|x| > 4.5 sigma) is about 6.8e-6: 2,000,000 draws give 13.6 on average, none with probability 1.3e-6."""
    samples = _engine.testing.sample_gaussian(10.0, ENTROPY, 2_000_000)
    assert 0 < (np.abs(samples) > 45).sum() < 40


@pytest.mark.parametrize("sigma", [0.0, 0.49, -3.0, 2000.1, 1e18, math.inf, math.nan])
def test_gaussian_refuses_a_width_beyond_its_table(sigma: float) -> None:
    with pytest.raises(ParameterError, match=r"standard deviation in \[0.5, 2000\]"):
        _engine.testing.gaussian_thresholds(sigma)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
def test_gaussian_counts_share_a_prefix(count: int) -> None:
    longer = _engine.testing.sample_gaussian(3.2, ENTROPY, 128)
    assert np.array_equal(_engine.testing.sample_gaussian(3.2, ENTROPY, count), longer[:count])


def test_gaussian_secrets_are_the_gaussian_of_their_width() -> None:
    """Sigma 1: the same draws as noise of that width, and none beyond the bound of 9 that a key file is held to."""
    samples = _engine.testing.sample_secret("gaussian", ENTROPY, 600_000)
    assert samples.dtype == np.int8
    assert np.array_equal(samples, _engine.testing.sample_gaussian(1.0, ENTROPY, 600_000))
    assert len(_engine.testing.gaussian_thresholds(1.0)) == 9


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values"), [("binary", [0, 1]), ("ternary", [-1, 0, 1]), ("quinary", [-2, -1, 0, 1, 2])]
)
def test_secrets_are_uniform(kind: str, values: list[int]) -> None:
    samples = _engine.testing.sample_secret(kind, ENTROPY, 600_000)
    counts = np.array([(samples == v).sum() for v in values])
    assert counts.sum() == len(samples)
    base = len(values)
    assert abs(chi_square_z(counts, np.full(base, 1 / base))) < Z_LIMIT
    # Pairs of neighbours are uniform too.
    codes = samples - min(values)
    pairs = np.bincount(codes[0::2] * base + codes[1::2], minlength=base**2)
    assert abs(chi_square_z(pairs, np.full(base**2, 1 / base**2))) < Z_LIMIT


@pytest.mark.parametrize(("cmux", "size"), [("block_3", 3), ("block_4", 4), ("block_6", 6), ("block_8", 8)])
def test_blocks_are_uniform(cmux: str, size: int) -> None:
    """Zero or a single 1, all of them as likely, whatever the block before was."""
    samples = _engine.testing.sample_steps(cmux, ENTROPY, 200_000).astype(np.int64)
    assert samples.shape == (200_000, size)
    assert samples.min() == 0 and samples.sum(axis=1).max() == 1
    codes = samples @ np.arange(1, size + 1)
    counts = np.bincount(codes, minlength=size + 1)
    assert abs(chi_square_z(counts, np.full(size + 1, 1 / (size + 1)))) < Z_LIMIT
    pairs = np.bincount(codes[0::2] * (size + 1) + codes[1::2], minlength=(size + 1) ** 2)
    assert abs(chi_square_z(pairs, np.full((size + 1) ** 2, 1 / (size + 1) ** 2))) < Z_LIMIT


def test_different_entropy_gives_different_samples() -> None:
    draws = {_engine.testing.sample_gaussian(5.0, bytes([i]) * 32, 64).tobytes() for i in range(20)}
    assert len(draws) == 20


# --- what is left behind ---------------------------------------------------------------------------------------------------------


@pytest.mark.os_entropy
@pytest.mark.parametrize("variant", ["", "avx2", "baseline"])
def test_streams_leave_neither_key_nor_keystream_on_the_stack(variant: str) -> None:
    """The temporary seed, the lanes of the block function, and spilled registers of it."""
    code = "from cloakwork.fhe_core import _engine; print([_engine.testing.secret_stream_traces(n) for n in (0, 8, 16, 1024)])"
    environment = os.environ | {"CLOAKWORK_CPU": variant}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.strip() == "[0, 0, 0, 0]"


# --- entropy of the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture
def replaceable() -> Iterator[None]:
    """Gives the test's own fixed entropy back."""
    yield
    _engine.testing.replace_entropy(hashlib.sha256(b"after a test that replaced the entropy").digest())


def draws() -> list[bytes]:
    """Two keys and an encryption, each of which asks for entropy."""
    first, second = ClientKey.generate("toy"), ClientKey.generate("toy")
    return [first._secret_key.export(), second._secret_key.export(), first.encrypt([1, 2]).words.tobytes()]


@pytest.mark.usefixtures("replaceable")
def test_replaced_entropy_repeats_what_is_drawn() -> None:
    _engine.testing.replace_entropy(ENTROPY)
    before = draws()
    assert len(set(before)) == 3  # one request after the other has bytes of its own
    assert draws() != before
    _engine.testing.replace_entropy(ENTROPY)
    assert draws() == before
    _engine.testing.replace_entropy(bytes(32))
    assert not set(draws()) & set(before)


@pytest.mark.os_entropy
@pytest.mark.usefixtures("replaceable")
def test_only_requests_to_the_operating_system_are_counted() -> None:
    _engine.testing.replace_entropy(ENTROPY)
    count = _engine.testing.entropy_requests()
    fixed = draws()
    assert _engine.testing.entropy_requests() == count
    _engine.testing.replace_entropy(None)
    assert not set(draws()) & set(fixed)
    assert _engine.testing.entropy_requests() > count


@pytest.mark.parametrize("entropy", [b"", bytes(31), bytes(33)])
def test_replaced_entropy_of_another_length_is_refused(entropy: bytes) -> None:
    with pytest.raises(ShapeError, match="entropy"):
        _engine.testing.replace_entropy(entropy)


@pytest.mark.os_entropy
@pytest.mark.parametrize("allowed", [None, "0"])
def test_entropy_is_replaced_in_tests_only(allowed: str | None) -> None:
    code = """
        from cloakwork.fhe_core import _engine, client, errors
        try:
            _engine.testing.replace_entropy(bytes(32))
        except errors.ParameterError as error:
            print(error)
        keys = [client.ClientKey.generate("gate_64")._secret_key.export() for _ in range(2)]
        print(keys[0] != keys[1], _engine.testing.entropy_requests() >= 2)
    """
    environment = {name: value for name, value in os.environ.items() if name != "CLOAKWORK_ALLOW_TOY"}
    if allowed is not None:
        environment["CLOAKWORK_ALLOW_TOY"] = allowed
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    refusal, drawn = result.stdout.splitlines()
    assert "set CLOAKWORK_ALLOW_TOY=1 in tests" in refusal
    assert drawn == "True True"
