"""Large transforms: values of the polynomials, negacyclic products, the way back, every instruction set and device, wrong input."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_sets import INSTRUCTION_SETS, check_same_output

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import CancelledError, DeviceError, ParameterError, ShapeError
from cloakwork.fhe_core.levelled.large_ntt import LargeNtt, Residues, transform_primes

SIZES = range(12, 18)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def residues(ring: LargeNtt, batch: int, seed: int) -> Residues:
    """The largest residues among random ones: all of them in the first polynomial modulo the first prime."""
    rng = np.random.default_rng(seed)
    bounds = np.array(ring.primes, np.uint32)[:, None]
    words = rng.integers(0, bounds, (batch, len(bounds), 1 << ring.log_size), dtype=np.uint32)
    words[0, 0] = ring.primes[0] - 1
    words[..., 7::13] = (bounds - 1)[:, 0, None]
    return words


def value(coefficients: Residues, point: int, q: int) -> int:
    total = 0
    for coefficient in coefficients[::-1].tolist():
        total = (total * point + coefficient) % q
    return total


def reversed_bits(number: int, bits: int) -> int:
    return int(format(number, f"0{bits}b")[::-1], 2)


@pytest.mark.parametrize("log_size", SIZES)
def test_positions_are_values_at_odd_powers_of_the_root(log_size: int) -> None:
    ring = LargeNtt(
        log_size, [transform_primes(log_size, 1)[0], transform_primes(log_size, 70)[-1]]
    )  # the largest, and one of 27 bits
    words = residues(ring, 1, log_size)
    values = ring.forward(words)
    size = 1 << log_size
    for number, (q, psi) in enumerate(zip(ring.primes, ring.roots, strict=True)):
        assert pow(psi, size, q) == q - 1
        for position in (0, 1, size // 2 + 3, size - 1):
            point = pow(psi, 2 * reversed_bits(position, log_size) + 1, q)
            assert values[0, number, position] == value(words[0, number], point, q)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("log_size", SIZES)
def test_the_way_back(log_size: int, device: str) -> None:
    primes = transform_primes(log_size, 80)
    ring = LargeNtt(log_size, [primes[0], primes[79], primes[40]], device)
    words = residues(ring, 2, log_size)
    values = ring.forward(words)
    assert all((values[:, number] < q).all() for number, q in enumerate(ring.primes))
    assert (ring.inverse(values) == words).all()
    if device != "cpu":
        on_cpu = LargeNtt(log_size, ring.primes)
        assert (values == on_cpu.forward(words)).all()
        assert (ring.inverse(words) == on_cpu.inverse(words)).all()  # of any residues
        on_device = ring.to_device(words)
        assert (ring.inverse(ring.forward(on_device)).to_host() == words).all()
        assert (on_device.to_host() == words).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [1, 3, 31])
def test_batches_and_threads_change_nothing(batch: int, device: str) -> None:
    ring = LargeNtt(12, 5, device, threads=3)
    words = residues(ring, batch, batch)
    one = LargeNtt(12, 5)
    expected = np.concatenate([one.forward(words[i : i + 1]) for i in range(batch)])
    assert (ring.forward(words) == expected).all()


def test_results_go_where_they_are_wanted() -> None:
    ring = LargeNtt(13, 3)
    words = residues(ring, 2, 1)
    expected, kept, out = ring.forward(words), words.copy(), np.zeros_like(words)
    assert ring.forward(words, out=out) is out and (out == expected).all() and (words == kept).all()
    assert ring.forward(words, out=words) is words and (words == expected).all()
    assert (ring.inverse(words, out=words) == kept).all()
    read_only = np.zeros_like(words)
    read_only.flags.writeable = False
    for wrong in (out[:1], out.astype(np.uint64), out[..., ::-1], read_only, out.tolist()):
        with pytest.raises(ShapeError, match="out"):
            ring.forward(words, out=wrong)  # type: ignore[arg-type]


def test_products_are_negacyclic() -> None:
    ring = LargeNtt(13, 2)
    size = 1 << 13
    dense = residues(ring, 1, 3)
    sparse = np.zeros_like(dense)
    terms = [(0, 3), (1, 1), (size // 2, 2), (size - 1, 7)]
    for power, factor in terms:
        sparse[..., power] = factor
    bounds = np.array(ring.primes, np.uint64)[:, None]
    product = (ring.forward(dense).astype(np.uint64) * ring.forward(sparse) % bounds).astype(np.uint32)
    expected = np.zeros(dense.shape, np.int64)
    for power, factor in terms:
        rolled = np.roll(dense.astype(np.int64), power, axis=-1)
        rolled[..., :power] *= -1
        expected += factor * rolled
    assert (ring.inverse(product) == expected % bounds.astype(np.int64)).all()


@pytest.mark.os_entropy
@pytest.mark.parametrize("features", INSTRUCTION_SETS)
def test_instruction_sets_give_the_same_words(features: str) -> None:
    script = (
        "import hashlib, numpy as np; from cloakwork.fhe_core.levelled.large_ntt import LargeNtt\n"
        "digest = hashlib.sha256()\n"
        "for log_size in (12, 15, 17):\n"
        "    ring = LargeNtt(log_size, 3)\n"
        "    words = np.stack([np.random.default_rng(q).integers(0, q, (1, 1 << log_size), dtype=np.uint32) for q in ring.primes], 1)\n"
        "    digest.update(ring.forward(words).tobytes() + ring.inverse(words).tobytes())\n"
        "print(digest.hexdigest())\n"
    )
    check_same_output(script, features)


def test_words_are_pinned() -> None:
    """Roots and order are a format: a change of them makes stored polynomials others."""
    ring = LargeNtt(12, 2)
    assert ring.primes == [268369921, 268361729]
    words = (np.arange(2 * 4096, dtype=np.uint32) * 65537 % 268361729).reshape(1, 2, 4096)
    assert ring.roots == [262383721, 254305944]
    expected = [[151713485, 251289669, 165368228], [81038096, 139602974, 251547356]]
    assert ring.forward(words)[0, :, :3].tolist() == expected


def test_tables_are_small() -> None:
    assert max(LargeNtt(log_size, 1).table_bytes for log_size in SIZES) <= 64 << 10


def test_primes() -> None:
    for log_size in SIZES:
        primes = transform_primes(log_size, 93)
        assert primes == sorted(set(primes), reverse=True)
        assert all(1 << 26 < q < 1 << 28 and q % (2 << log_size) == 1 for q in primes)
    with pytest.raises(ParameterError, match="at most 93 for 2\\^17 points"):
        transform_primes(17, 94)


@pytest.mark.parametrize(
    ("log_size", "primes", "message"),
    [
        (11, 1, "log_size: expected 12 to 17"),
        (18, 1, "log_size: expected 12 to 17"),
        (12, [], "at least one"),
        (12, 0, "at least one"),
        (12, -1, "at least one"),
        (12, [-268369921], "between 2\\^26 and 2\\^28"),
        (12, [268369921 + (1 << 32)], "between 2\\^26 and 2\\^28"),
        (12, [268369921, 268369921], "each once"),
        (12, [268369923], "1 modulo 8192"),
        (17, [268369921], "1 modulo 262144"),
        (12, [8193 * 8193], "between 2\\^26 and 2\\^28"),
        (12, [40961], "between 2\\^26 and 2\\^28"),
        (12, [4293918721], "between 2\\^26 and 2\\^28"),
    ],
)
def test_wrong_rings(log_size: int, primes: int | list[int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LargeNtt(log_size, primes)


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_words(device: str) -> None:
    ring = LargeNtt(12, 2, device)
    words = residues(ring, 1, 1)
    for wrong in (words[0], words[:, :1], words[..., :-1], np.zeros((0, 2, 4096), np.uint32), words.astype(np.uint64)):
        with pytest.raises(ShapeError, match="words"):
            ring.forward(np.ascontiguousarray(wrong))
    for number, q in enumerate(ring.primes):
        outside = words.copy()
        outside[0, number, 4095] = q
        for transform in (ring.forward, ring.inverse):
            with pytest.raises(ShapeError, match="words"):
                transform(outside)
    assert (ring.inverse(ring.forward(words)) == words).all()


def test_wrong_threads_devices_and_arrays() -> None:
    ring = LargeNtt(12, 1, threads=0)
    with pytest.raises(ParameterError, match="threads: expected 1 to"):
        ring.forward(residues(ring, 1, 1))
    with pytest.raises(ShapeError, match="numpy array"):
        LargeNtt(12, 1).forward([[1]])  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="device"):
        LargeNtt(12, 1, "cuda:0,1")
    with pytest.raises(DeviceError, match="runs on the CPU"):
        LargeNtt(12, 1).to_device(np.zeros((1, 1, 4096), np.uint32))
    if not hasattr(_engine, "CudaLargeNtt"):
        with pytest.raises(DeviceError):
            LargeNtt(12, 1, "cuda")


def test_a_call_can_be_cancelled() -> None:
    ring = LargeNtt(12, 4)
    words = residues(ring, 50, 1)
    with pytest.raises(CancelledError):
        ring.forward(words, progress=lambda done, total: False)
