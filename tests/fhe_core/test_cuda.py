"""The CUDA back end against the CPU back end, word for word: every stage, the fused whole, odd batch sizes, several tables, threads.

test_session.py runs its own tests on `cuda` too. A build with CLOAKWORK_CUDA=EMULATE runs all of this on the CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from emulation import batch_of
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import CancelledError, DeviceError, OutOfDeviceMemory, ParameterError, ShapeError

pytestmark = pytest.mark.gpu

OWNED_SETS = [
    name for name in _engine.parameter_set_names() if _engine.parameter_set(name).party_count == 1
]  # test_threshold.py has the others
TOY_SETS = [name for name in OWNED_SETS if name.startswith("toy")]
SHIPPED_SETS = [name for name in OWNED_SETS if not name.startswith("toy")]
PAPER_SETS = _engine.paper_set_names()
KERNELS = ["shaped", "plain"]
# The plain kernel is exact: sets of rounded products have one kernel.
TOY_KERNELS = [
    (name, kernel)
    for name in TOY_SETS
    for kernel in KERNELS
    if kernel == "shaped" or not _engine.parameter_set(name).rounded_products
]
ALL, RELEASE = pytest.mark.tier("all"), pytest.mark.tier("release")
# One of each way to rotate. Emulated devices run these, which are small, and the others once (`test_every_toy_set`).
FAMILIES = [
    *(
        (name, "shaped")
        for name in ("toy", "toy_two_limb", "toy_raised", "toy_extended", "toy_lanes", "toy_block", "toy_ap")
    ),
    ("toy", "plain"),
]

Words = NDArray[Any]


def is_slow(name: str, kernel: str) -> bool:
    """Whether an emulated device takes seconds for a ciphertext: the plain kernel of a large ring."""
    params = _engine.parameter_set(name)
    return kernel == "plain" and params.polynomial_size * params.extension_factor > 512


@dataclass(frozen=True)
class Sessions:
    """One secret key, the CPU session that specifies, the CUDA session under test."""

    params: _engine.ParameterSet
    secret: _engine.SecretKey
    keys: tuple[bytes, Words, Words]
    cpu: Any
    cuda_key: Any
    cuda: Any

    def words(self, *shape: int, seed: int = 0) -> Words:
        dtype = np.uint32 if self.params.limb_count == 1 else np.uint64
        words: Words = np.random.default_rng(seed).integers(0, self.params.modulus, shape, dtype=dtype)
        return words

    def lwe(self, batch: int, seed: int = 0) -> Words:
        return self.words(batch, self.params.large_words, seed=seed)

    def small(self, batch: int, bound: int, seed: int = 0) -> Words:
        small: Words = np.random.default_rng(seed).integers(0, bound, (batch, self.params.small_words), dtype=np.uint32)
        return small

    def tables(self, count: int, seed: int = 0) -> Words:
        return self.words(count, self.params.table_size, seed=seed)

    def index(self, batch: int, tables: int, seed: int = 0) -> Words:
        index: Words = np.random.default_rng(seed).integers(0, tables, batch, dtype=np.uint32)
        return index


def make_sessions(name: str, kernel: str) -> Sessions:
    params = _engine.parameter_set(name)
    secret = _engine.SecretKey.generate(params, bytes(range(32)))
    keys = secret.evaluation_keys()
    cpu = _engine.CpuSession(_engine.CpuKey(params, *keys), 2)
    cuda_key = _engine.CudaKey(params, *keys, kernel=kernel)
    return Sessions(params, secret, keys, cpu, cuda_key, _engine.CudaSession(cuda_key))


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=() if each in FAMILIES else ALL) for each in TOY_KERNELS],
    ids=["-".join(each) for each in TOY_KERNELS],
)
def sessions(request: pytest.FixtureRequest) -> Sessions:
    return make_sessions(*request.param)


@pytest.fixture(scope="module")
def toy() -> Sessions:
    return make_sessions("toy", "shaped")


def first(cases: list[Any], every: Iterable[Any]) -> list[Any]:
    """Every case, those that are not among the first ones in a later tier."""
    return [*cases, *(pytest.param(*case, marks=ALL) for case in every if case not in cases)]


# --- stages ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 1, 33, 300, *(pytest.param(batch, marks=ALL) for batch in (2, 31, 32))])
def test_keyswitch(sessions: Sessions, batch: int) -> None:
    lwe = sessions.lwe(batch, seed=batch)
    np.testing.assert_array_equal(sessions.cuda.keyswitch(lwe), sessions.cpu.keyswitch(lwe))


def test_keyswitch_of_extreme_words(sessions: Sessions) -> None:
    """Words at the edges of the rounding, of the digits' ties and of the modulus."""
    params = sessions.params
    kept = params.keyswitch_gadget[0] * params.keyswitch_gadget[1]
    edges = np.arange(params.large_words, dtype=np.uint64) * (params.modulus // (1 << min(kept, 24)))
    near = (edges[None, :] + np.arange(-2, 3, dtype=np.int64).astype(np.uint64)[:, None]) % np.uint64(params.modulus)
    constant = np.full((2, params.large_words), params.modulus - 1, np.uint64)
    constant[1] = (params.modulus + 1) // 2
    lwe = np.concatenate([near, constant]).astype(sessions.lwe(1).dtype)
    np.testing.assert_array_equal(sessions.cuda.keyswitch(lwe), sessions.cpu.keyswitch(lwe))


@pytest.mark.parametrize("batch", [0, 1, 33, 300])
def test_modulus_switch(sessions: Sessions, batch: int) -> None:
    small = sessions.small(batch, 1 << sessions.params.keyswitch_modulus_log2, seed=batch)
    np.testing.assert_array_equal(sessions.cuda.modulus_switch(small), sessions.cpu.modulus_switch(small))


@pytest.mark.parametrize(
    ("tables", "batch"), first([(1, 0), (1, 1), (3, 5), (3, 33)], itertools.product((1, 3), (0, 1, 5, 31, 32, 33, 150)))
)
def test_blind_rotate(sessions: Sessions, batch: int, tables: int) -> None:
    switched = sessions.small(batch, 2 * sessions.params.table_size, seed=batch)
    arguments = sessions.tables(tables, seed=batch), None if tables == 1 else sessions.index(batch, tables)
    np.testing.assert_array_equal(
        sessions.cuda.blind_rotate(switched, *arguments), sessions.cpu.blind_rotate(switched, *arguments)
    )


def test_blind_rotate_of_extreme_words(sessions: Sessions) -> None:
    """Exponents 0, nu N and 2 nu N - 1; tables of 0, 1, Q - 1 and the words around Q / 2."""
    params = sessions.params
    size, half = params.table_size, (params.modulus - 1) // 2
    switched = np.array([0, size, 2 * size - 1], np.uint32).repeat(params.small_words).reshape(3, -1)
    switched = np.concatenate([switched, np.arange(switched.shape[1], dtype=np.uint32)[None] % 2 * (2 * size - 1)])
    values = np.array([0, 1, params.modulus - 1, half, half + 1]).astype(sessions.lwe(1).dtype)
    tables = np.tile(values[:, None], (1, size))
    for index in range(len(values)):
        chosen = np.full(len(switched), index, np.uint32)
        np.testing.assert_array_equal(
            sessions.cuda.blind_rotate(switched, tables, chosen), sessions.cpu.blind_rotate(switched, tables, chosen)
        )


@pytest.mark.parametrize("batch", [0, 1, 33])
def test_sample_extract(sessions: Sessions, batch: int) -> None:
    size = sessions.params.polynomial_size
    glwe = sessions.words(batch, sessions.params.component_count, size, seed=batch)
    for coefficients in ([0], [size - 1, 0, 1, size // 2], list(range(size)) if batch == 1 else [3]):
        chosen = np.array(coefficients, np.uint32)
        np.testing.assert_array_equal(
            sessions.cuda.sample_extract(glwe, chosen), sessions.cpu.sample_extract(glwe, chosen)
        )


# --- the whole -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coefficients", "batch"),
    first(
        [(None, 0), (None, 1), ([7, 0, 255], 33)], itertools.product((None, [0], [7, 0, 255]), (0, 1, 31, 32, 33, 257))
    ),
)
def test_bootstrap(sessions: Sessions, batch: int, coefficients: list[int] | None) -> None:
    lwe, tables, index = sessions.lwe(batch, seed=batch), sessions.tables(4), sessions.index(batch, 4)
    chosen = None if coefficients is None else np.array(coefficients, np.uint32)
    expected = sessions.cpu.bootstrap(lwe, tables, index, chosen)
    np.testing.assert_array_equal(sessions.cuda.bootstrap(lwe, tables, index, chosen), expected)


def test_the_stages_make_the_bootstrap(sessions: Sessions) -> None:
    lwe, tables = sessions.lwe(batch_of(40, emulated=5)), sessions.tables(1)
    cuda, chosen = sessions.cuda, np.array([9, 200], np.uint32)
    glwe, nu = cuda.blind_rotate(cuda.modulus_switch(cuda.keyswitch(lwe)), tables), sessions.params.extension_factor
    parts = glwe.reshape(len(lwe), nu, *glwe.shape[-2:])
    entries = [cuda.sample_extract(np.ascontiguousarray(parts[:, c % nu]), np.uint32([c // nu])) for c in chosen]
    np.testing.assert_array_equal(np.concatenate(entries, axis=1), cuda.bootstrap(lwe, tables, None, chosen))


@ALL
@pytest.mark.parametrize("batch", np.random.default_rng(3).integers(1, 3000, 2).tolist())
def test_random_batch_sizes(sessions: Sessions, batch: int) -> None:
    lwe, tables = sessions.lwe(batch, seed=batch), sessions.tables(2)
    index = sessions.index(batch, 2)
    np.testing.assert_array_equal(
        sessions.cuda.bootstrap(lwe, tables, index),
        sessions.cpu.bootstrap(lwe, tables, index),
        err_msg=f"batch {batch}",
    )


# --- linear layer ----------------------------------------------------------------------------------------------------------------


LIMITS = [1, 127, 128, 129, 2**15, 2**23, 2**31 - 1]


@pytest.mark.parametrize(
    ("shape", "limit"),
    first(
        [((1, 1, 1), 2**31 - 1), ((3, 33, 70), 129), *(((2, 5, 7), limit) for limit in LIMITS)],
        itertools.product([(1, 1, 1), (2, 5, 7), (3, 33, 70)], LIMITS),
    ),
)
def test_linear(sessions: Sessions, limit: int, shape: tuple[int, int, int]) -> None:
    samples, rows, columns = shape
    generator = np.random.default_rng(limit)
    weights = generator.integers(-limit - (limit > 1), limit, (rows, columns), endpoint=True, dtype=np.int64).astype(
        np.int32
    )
    weights.flat[0], weights.flat[-1] = limit, -limit
    lwe = sessions.words(samples, columns, sessions.params.large_words, seed=columns)
    if np.abs(weights.astype(np.int64)).sum(axis=1).max() >= 2**35:
        for session in (sessions.cuda, sessions.cpu):
            with pytest.raises(ParameterError, match="2\\^35"):
                session.linear(weights, lwe)
        return
    np.testing.assert_array_equal(sessions.cuda.linear(weights, lwe), sessions.cpu.linear(weights, lwe))


def test_linear_with_other_weights_of_the_same_shape(sessions: Sessions) -> None:
    """Weights stay on the device between calls: a changed matrix must not meet the old one."""
    lwe = sessions.words(1, 4, sessions.params.large_words)
    for weights in (np.eye(4, dtype=np.int32), 2 * np.eye(4, dtype=np.int32), np.eye(4, dtype=np.int32)):
        np.testing.assert_array_equal(sessions.cuda.linear(weights, lwe), sessions.cpu.linear(weights, lwe))


def test_linear_at_the_largest_sums(sessions: Sessions) -> None:
    """Every weight -128 or 127, every word Q - 1 or made of bytes that are extreme once signed."""
    columns = 600
    word = min(int.from_bytes(b"\x80" * 7, "little"), sessions.params.modulus - 1)
    lwe = np.full((1, columns, sessions.params.large_words), word).astype(sessions.lwe(1).dtype)
    lwe[:, : columns // 2] = sessions.params.modulus - 1
    for weight in (-128, 127):
        weights = np.full((3, columns), weight, np.int32)
        np.testing.assert_array_equal(sessions.cuda.linear(weights, lwe), sessions.cpu.linear(weights, lwe))


@pytest.mark.parametrize("scales", [(1, 0, 0), (-1, 1, 5), (2**40, -(2**41) - 3, 2**60), (0, 0, 1)])
def test_combine(sessions: Sessions, scales: tuple[int, int, int]) -> None:
    x, y = sessions.lwe(33), sessions.lwe(33, seed=1)
    scale_x, scale_y, constant = scales
    for arguments in ((x, scale_x, y, scale_y, constant), (x, scale_x, None, 0, constant)):
        np.testing.assert_array_equal(sessions.cuda.combine(*arguments), sessions.cpu.combine(*arguments))


# --- sessions, errors ------------------------------------------------------------------------------------------------------------


def test_sessions_in_threads_share_a_key(sessions: Sessions) -> None:
    lwe, tables = sessions.lwe(batch_of(100, emulated=5)), sessions.tables(1)
    expected = sessions.cpu.bootstrap(lwe, tables)
    others = [
        sessions.cuda,
        sessions.cuda,
        _engine.CudaSession(sessions.cuda_key),
        _engine.CudaSession(sessions.cuda_key),
    ]
    with ThreadPoolExecutor(len(others)) as pool:
        for outputs in pool.map(lambda session: session.bootstrap(lwe, tables), others * 2):
            np.testing.assert_array_equal(outputs, expected)


def test_a_session_outlives_its_key_object() -> None:
    sessions = make_sessions("toy", "shaped")
    session = _engine.CudaSession(_engine.CudaKey(sessions.params, *sessions.keys))
    lwe, tables = sessions.lwe(3), sessions.tables(1)
    np.testing.assert_array_equal(session.bootstrap(lwe, tables), sessions.cpu.bootstrap(lwe, tables))


def test_cancelled_calls_leave_a_working_session(sessions: Sessions) -> None:
    lwe, tables = sessions.lwe(batch_of(50, emulated=5)), sessions.tables(1)
    with pytest.raises(CancelledError):
        sessions.cuda.bootstrap(lwe, tables, progress=lambda done, total: False)

    def fail(done: int, total: int) -> bool:
        raise ValueError("from the callback")

    with pytest.raises(ValueError, match="from the callback"):
        sessions.cuda.bootstrap(lwe, tables, progress=fail)
    np.testing.assert_array_equal(sessions.cuda.bootstrap(lwe, tables), sessions.cpu.bootstrap(lwe, tables))


@pytest.mark.parametrize("device", [-1, 4096])
def test_devices_that_do_not_exist(toy: Sessions, device: int) -> None:
    with pytest.raises(DeviceError, match="cloakwork devices"):
        _engine.CudaKey(toy.params, *toy.keys, device=device)


def test_unknown_kernel(toy: Sessions) -> None:
    with pytest.raises(ParameterError, match="'shaped' or 'plain'"):
        _engine.CudaKey(toy.params, *toy.keys, kernel="fast")


def test_cancelled_expansion(sessions: Sessions) -> None:
    with pytest.raises(CancelledError):
        _engine.CudaKey(sessions.params, *sessions.keys, progress=lambda done, total: False)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.cuda.keyswitch(s.lwe(1)[:, 1:]),
        lambda s: s.cuda.keyswitch(s.lwe(2).astype(np.float64)),
        lambda s: s.cuda.bootstrap(np.full_like(s.lwe(1), s.params.modulus), s.tables(1)),
        lambda s: s.cuda.bootstrap(s.lwe(2), s.tables(2)),
        lambda s: s.cuda.bootstrap(s.lwe(2), s.tables(2), np.array([0, 2], np.uint32)),
        lambda s: s.cuda.sample_extract(
            s.words(1, s.params.component_count, s.params.polynomial_size), np.array([4096], np.uint32)
        ),
        lambda s: s.cuda.linear(np.ones((2, 3), np.int32), s.words(1, 2, s.params.large_words)),
    ],
)
def test_wrong_arguments(sessions: Sessions, call: Callable[[Sessions], object]) -> None:
    with pytest.raises(ShapeError):
        call(sessions)


def test_batches_are_cut_to_the_memory_limit(sessions: Sessions) -> None:
    lwe, tables = sessions.lwe(60), sessions.tables(1)
    pieces: list[int] = []
    limit = max(1 << 17, 16 * lwe[0].nbytes)
    while not _fits(limited := _engine.CudaSession(sessions.cuda_key, memory_limit=limit), lwe[:1], tables):
        limit *= 2
    outputs = limited.bootstrap(lwe, tables, progress=lambda done, total: pieces.append(done))
    np.testing.assert_array_equal(outputs, sessions.cpu.bootstrap(lwe, tables))
    assert len(pieces) > 2 and pieces[-1] == 60 and pieces == sorted(pieces)


def _fits(session: _engine.CudaSession, lwe: Words, tables: Words) -> bool:
    try:
        session.bootstrap(lwe, tables)
    except OutOfDeviceMemory:
        return False
    return True


def test_memory_that_does_not_suffice(sessions: Sessions) -> None:
    """One item that does not fit is refused with numbers; the process and the device's other sessions go on."""
    limited = _engine.CudaSession(sessions.cuda_key, memory_limit=1000)
    lwe = sessions.lwe(2)
    for _ in range(2):
        with pytest.raises(OutOfDeviceMemory, match=r"one item needs \d+ MiB .* \d+ MiB are free"):
            limited.keyswitch(lwe)
    np.testing.assert_array_equal(sessions.cuda.keyswitch(lwe), sessions.cpu.keyswitch(lwe))


def test_device_list() -> None:
    devices = _engine.cuda_devices()
    assert len(devices) == _engine.cuda_device_count() >= 1
    assert devices[0]["device"] == "cuda:0"
    assert devices[0]["usable"], devices[0]["details"]


# --- every set -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel"),
    [pytest.param(*each, marks=ALL if is_slow(*each) else ()) for each in TOY_KERNELS if each not in FAMILIES],
)
def test_every_toy_set(name: str, kernel: str) -> None:
    """Whole bootstraps of two ciphertexts, which is one for each layout of few ciphertexts and a rest."""
    sessions = make_sessions(name, kernel)
    lwe, tables = sessions.lwe(2), sessions.tables(2)
    arguments = lwe, tables, np.array([1, 0], np.uint32), np.array([0, sessions.params.table_size - 1], np.uint32)
    np.testing.assert_array_equal(sessions.cuda.bootstrap(*arguments), sessions.cpu.bootstrap(*arguments))


@RELEASE
@pytest.mark.parametrize("name", [*SHIPPED_SETS, *PAPER_SETS])
def test_shipped_sets(name: str) -> None:
    """Both kernels and the CPU on a few ciphertexts of the full dimension; publications' sets too."""
    params = _engine.parameter_set(name)
    secret = _engine.SecretKey.generate(params, bytes(range(32)))
    keys = secret.evaluation_keys()
    cpu = _engine.CpuSession(_engine.CpuKey(params, *keys), 8)
    generator = np.random.default_rng(1)
    dtype = np.uint32 if params.limb_count == 1 else np.uint64
    lwe = generator.integers(0, params.modulus, (9, params.large_words), dtype=dtype)
    tables = generator.integers(0, params.modulus, (2, params.table_size), dtype=dtype)
    index = np.arange(9, dtype=np.uint32) % 2
    coefficients = np.array([0, params.table_size - 1], np.uint32)
    expected = cpu.bootstrap(lwe, tables, index, coefficients)
    for kernel in KERNELS:
        key = _engine.CudaKey(params, *keys, kernel=kernel)
        session = _engine.CudaSession(key)
        np.testing.assert_array_equal(session.bootstrap(lwe, tables, index, coefficients), expected, err_msg=kernel)
        if key.kernel != "plain":  # few ciphertexts and many have different layouts
            for times in (4, 7, 12, 60):
                many = session.bootstrap(np.tile(lwe, (times, 1)), tables, np.tile(index, times), coefficients)
                message = f"{kernel}, {9 * times} ciphertexts"
                np.testing.assert_array_equal(many, np.tile(expected, (times, 1, 1)), err_msg=message)
