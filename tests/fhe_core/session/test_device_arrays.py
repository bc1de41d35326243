"""Ciphertexts on a CUDA device: the words of the host after every operation, DLPack, streams, memory. A build with CLOAKWORK_CUDA=EMULATE
runs all but torch on the CPU, with two devices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from emulation import batch_of
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.device_words import DeviceWords
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, concatenate
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import DeviceError, OutOfDeviceMemory, ParameterError, ShapeError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.session.lookup_tables import LookupTables

pytestmark = pytest.mark.gpu

ALL = pytest.mark.tier("all")
BATCHES = [1, 33, *(pytest.param(batch, marks=ALL) for batch in (31, 141, 369))]


@pytest.fixture(scope="module")
def cpu(keys: EvaluationKeys) -> Session:
    return Session(keys)


@pytest.fixture(scope="module")
def cuda(keys: EvaluationKeys) -> Session:
    return Session(keys, device="cuda")


def same(on_device: Ciphertexts, on_host: Ciphertexts) -> None:
    assert on_device.device == "cuda:0" and on_host.device == "cpu"
    assert on_device.shape == on_host.shape and on_device.encoding is on_host.encoding
    assert on_device.weight_norm == pytest.approx(on_host.weight_norm)
    np.testing.assert_array_equal(on_device.to_host().words, on_host.words)


# --- arrays ----------------------------------------------------------------------------------------------------------------------


def test_there_and_back(key: ClientKey) -> None:
    ciphertexts = key.encrypt(np.arange(12).reshape(3, 4) % 4)
    resident = ciphertexts.to_device("cuda")
    same(resident, ciphertexts)
    assert resident.to_device() is not ciphertexts and resident.to("cuda:0").device == "cuda:0"
    assert "on cuda:0" in repr(resident) and resident.nbytes == ciphertexts.nbytes and len(resident) == 3
    assert resident.to_bytes() == ciphertexts.to_bytes()
    for place in (resident, resident.to("cpu")):
        np.testing.assert_array_equal(key.decrypt(place), np.arange(12).reshape(3, 4) % 4)


INDICES = [
    0,
    -1,
    slice(1, 3),
    slice(None, None, -1),
    (slice(None), 2),
    (..., 1),
    (None, 1),
    [2, 0, 0],
    np.array([True, False, True]),
    (np.array([0, 1]), np.array([3, 0])),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_follows_numpy(key: ClientKey, index: Any) -> None:
    ciphertexts = key.encrypt(np.arange(12).reshape(3, 4) % 4)
    same(ciphertexts.to_device()[index], ciphertexts[index])


def test_shapes_and_joins(key: ClientKey) -> None:
    x = key.encrypt(np.arange(12).reshape(3, 4) % 4)
    y = x.to_device()
    same(y.reshape(-1, 2), x.reshape(-1, 2))
    same(y[:, 1:3].reshape(6), x[:, 1:3].reshape(6))
    same(y.copy(), x.copy())
    for axis in (0, 1, -1):
        same(concatenate([y, y[:, ::-1]], axis), concatenate([x, x[:, ::-1]], axis))
    same(concatenate([y[:1], y]), concatenate([x[:1], x]))
    with pytest.raises(ShapeError, match="do not fit"):
        concatenate([y, y[:, :2]])
    with pytest.raises(DeviceError, match="all on one device"):
        concatenate([x, y])


OPERATIONS: list[Callable[[Ciphertexts], Ciphertexts]] = [
    lambda x: -x,
    lambda x: x + x,
    lambda x: x + x[0],
    lambda x: x[:, :1] - x[::-1],
    lambda x: x[:, 1] + x[:, 1],
    lambda x: x + 3,
    lambda x: 1 - x,
    lambda x: x - np.arange(4),
    lambda x: x * 5,
    lambda x: x * np.array([[1], [-(2**31) + 1], [0]]),
    lambda x: 7 * x[:, 2:],
    lambda x: x.add_torus_constant(-1, 3),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_arithmetic(key: ClientKey, number: int) -> None:
    ciphertexts = key.encrypt(np.arange(12).reshape(3, 4) % 4)
    same(OPERATIONS[number](ciphertexts.to_device()), OPERATIONS[number](ciphertexts))


def test_arithmetic_that_does_not_fit(key: ClientKey) -> None:
    x = key.encrypt(np.arange(6).reshape(2, 3) % 4)
    with pytest.raises(DeviceError, match="both on the host or both on one device"):
        x + x.to_device()
    with pytest.raises(ShapeError, match="do not broadcast"):
        x.to_device() + x.to_device()[:, :2]
    with pytest.raises(IndexError):
        x.to_device()[2]


def test_seeded_ciphertexts_expand_on_the_device(key: ClientKey, cpu: Session, cuda: Session) -> None:
    seeded = key.encrypt(np.arange(40).reshape(2, 20) % 4, seeded=True)
    same(seeded.expand("cuda:0"), seeded.expand())
    size = key.parameters.polynomial_size
    packed = key.encrypt_packed(np.arange(3 * size // 2).reshape(2, -1) % 4)
    np.testing.assert_array_equal(packed.expand("cuda").to_host().words, packed.expand().words)
    expected = cpu.extract(packed)
    for form in (packed, packed.expand()):
        np.testing.assert_array_equal(cuda.extract(form).words, expected.words)
        same(cuda.extract(form, resident=True), expected)
    same(cuda.extract(packed.expand("cuda")), expected)
    same(cuda.extract(packed.expand().to_device()), expected)
    with pytest.raises(DeviceError, match="session on a GPU"):
        cpu.extract(packed, resident=True)
    with pytest.raises(DeviceError, match="to_host"):
        cpu.extract(packed.expand("cuda"))


# --- sessions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
def test_bootstraps(key: ClientKey, cpu: Session, cuda: Session, batch: int) -> None:
    generator = np.random.default_rng(batch)
    x = key.encrypt(generator.integers(0, 4, batch))
    tables, index = generator.integers(0, 4, (3, 4)), generator.integers(0, 3, batch)
    expected = cpu.bootstrap(x, tables, table_index=index)
    same(cuda.bootstrap(x.to_device(), tables, table_index=index), expected)
    pieces: list[int] = []
    reported = cuda.bootstrap(
        x.to_device(), tables, table_index=index, progress=lambda done, total: pieces.append(done)
    )
    same(reported, expected)
    assert pieces[-1] == batch
    same(
        cuda.bootstrap(x.to_device()[::-1].with_message_bound(0, 1), [0, 1, 2, 3], shifts=[0, 2]),
        cpu.bootstrap(x[::-1].with_message_bound(0, 1), [0, 1, 2, 3], shifts=[0, 2]),
    )
    full = x.with_encoding(Encoding.FULL_DOMAIN)
    same(cuda.bootstrap_full_domain(full.to_device(), [1, 0, 3, 2]), cpu.bootstrap_full_domain(full, [1, 0, 3, 2]))


def test_stages_on_the_device(key: ClientKey, cpu: Session, cuda: Session) -> None:
    x = key.encrypt(np.arange(10).reshape(2, 5) % 4)
    tables = LookupTables.of_messages(key.parameters, [1, 2, 3, 0])
    small = cuda.keyswitch(x.to_device())
    np.testing.assert_array_equal(small.to_host(), cpu.keyswitch(x))  # type: ignore[attr-defined]
    switched = cuda.modulus_switch(small)
    glwe = cuda.blind_rotate(switched, tables)
    same(
        cuda.sample_extract(glwe, (0, 7)),
        cpu.sample_extract(cpu.blind_rotate(cpu.modulus_switch(cpu.keyswitch(x)), tables), (0, 7)),
    )
    outside = _engine.DeviceArray.from_host(np.full((1, key.parameters.small_words), 2**31, np.uint32))
    with pytest.raises(ShapeError, match="found a value outside"):
        cuda.blind_rotate(outside, tables)


def test_linear_layers(key: ClientKey, cpu: Session, cuda: Session) -> None:
    generator = np.random.default_rng(5)
    x = key.encrypt(generator.integers(0, 4, (2, 3, 70)), encoding=Encoding.FULL_DOMAIN)
    for limit in (1, 127, 40000):
        matrix = generator.integers(-limit, limit + 1, (33, 70))
        expected = cpu.linear(matrix, x)
        same(cuda.linear(matrix, x.to_device()), expected)
        weights = cuda.weights(matrix)
        for _ in range(2):
            same(cuda.linear(weights, x.to_device()), expected)
        np.testing.assert_array_equal(cuda.linear(weights, x).words, expected.words)
        same(cuda.linear(weights, x.to_device()[:, 1]), cpu.linear(matrix, x[:, 1]))
    with pytest.raises(DeviceError, match="weights made for"):
        cpu.linear(weights, x)


def test_gates_on_the_device() -> None:
    key = ClientKey.generate("toy_gate")
    keys = key.evaluation_keys()
    cpu, cuda = Session(keys), Session(keys, device="cuda")
    generator = np.random.default_rng(6)
    a, b, c = (key.encrypt_bits(generator.integers(0, 2, 50).astype(bool)) for _ in range(3))
    on_device = [part.to_device() for part in (a, b, c)]
    for gate, count in (("NAND", 2), ("XOR", 2), ("NOT", 1), ("MUX", 3), ("AND3", 3)):
        same(cuda.gate(gate, *on_device[:count]), cpu.gate(gate, *(a, b, c)[:count]))
    names = np.where(np.arange(50) % 2, "OR", "XNOR")
    same(cuda.gate(names, *on_device[:2]), cpu.gate(names, a, b))


def test_rerandomised_results_are_on_the_host(key: ClientKey, cpu: Session, cuda: Session) -> None:
    ciphertexts = key.encrypt(np.arange(40).reshape(8, 5) % 4).to_device()
    resident = cuda.bootstrap(ciphertexts, [3, 0, 1, 2])[::2]
    answer = cuda.rerandomise(resident)
    assert answer.device == "cpu" and answer.shape == (4, 5)
    np.testing.assert_array_equal(key.decrypt(answer), np.arange(40).reshape(8, 5)[::2] % 4 - 1 & 3)
    assert (answer.words != resident.to_host().words).mean() > 0.99
    other = cpu.rerandomise(resident)  # a session's device does not matter, its public key does
    np.testing.assert_array_equal(key.decrypt(other), key.decrypt(answer))


def test_repeated_calls_upload_nothing(key: ClientKey, keys: EvaluationKeys) -> None:
    session, x = Session(keys, device="cuda"), key.encrypt(np.arange(8) % 4).to_device()
    engine = session.device_sessions[0]
    session.bootstrap(x, [0, 1, 2, 3])
    held = engine.cached_bytes
    assert held > 0
    for _ in range(3):
        session.bootstrap(x, [0, 1, 2, 3])
    assert engine.cached_bytes == held
    session.bootstrap(x, [3, 1, 2, 3])
    assert engine.cached_bytes > held


def test_two_sessions_at_once(key: ClientKey, cpu: Session, cuda: Session) -> None:
    x = key.encrypt(np.arange(batch_of(90, emulated=5)) % 4)
    expected = cpu.bootstrap(cpu.bootstrap(x, [1, 2, 3, 0]), [3, 2, 1, 0])
    resident, sessions = x.to_device(), [cuda, cuda.share(), cuda.share()]

    def chain(number: int) -> Ciphertexts:
        first, second = sessions[number % 3], sessions[(number + 1) % 3]  # what one session writes another reads
        return second.bootstrap(first.bootstrap(resident, [1, 2, 3, 0]), [3, 2, 1, 0])

    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(chain, range(9)):
            same(result, expected)


def test_operands_in_the_wrong_place(key: ClientKey, cpu: Session, cuda: Session) -> None:
    x = key.encrypt([0, 1])
    with pytest.raises(DeviceError, match=r"session's device 'cpu'.*move them"):
        cpu.bootstrap(x.to_device(), [0, 1, 2, 3])
    for wrong in ("cpu", "cuda:", "gpu", "cuda:4096"):
        with pytest.raises(DeviceError, match="device"):
            x.to_device(wrong)
    if _engine.cuda_device_count() > 1:
        elsewhere = x.to_device("cuda:1")
        with pytest.raises(DeviceError, match="move them with"):
            cuda.bootstrap(elsewhere, [0, 1, 2, 3])
        same(cuda.bootstrap(elsewhere.to_device("cuda:0"), [0, 1, 2, 3]), cpu.bootstrap(x, [0, 1, 2, 3]))
        with pytest.raises(DeviceError, match="one device"):
            elsewhere + x.to_device("cuda:0")


def test_large_words_are_checked_on_the_device(key: ClientKey, cpu: Session, cuda: Session) -> None:
    """A batch of the host that is large enough is checked behind its upload; a bad one leaves a working session."""
    params = key.parameters
    engine, width = cuda.device_sessions[0], params.large_words
    lwe = np.random.default_rng(1).integers(0, params.modulus, (400, width)).astype(key.encrypt([0]).words.dtype)
    expected = cpu._engine.keyswitch(lwe)
    lwe[-1, 5] = params.modulus
    for batch in (lwe, lwe[-1:]):
        with pytest.raises(ShapeError, match=rf"expected every value in \[0, {params.modulus}\)"):
            engine.keyswitch(batch)
    lwe[-1, 5] = 0
    np.testing.assert_array_equal(engine.keyswitch(lwe)[:-1], expected[:-1])


@ALL  # several hundred ciphertexts
def test_results_come_in_pinned_memory_that_is_reused(key: ClientKey, cpu: Session, cuda: Session) -> None:
    x = key.encrypt(np.arange(600) % 4)
    expected = cpu.bootstrap(x, [1, 2, 3, 0]).words
    first = cuda.bootstrap(x, [1, 2, 3, 0])
    np.testing.assert_array_equal(first.words, expected)
    again = cuda.bootstrap(first, [3, 0, 1, 2])  # its input is uploaded from where it lies
    np.testing.assert_array_equal(first.words, expected)
    address = again.words.ctypes.data
    del again
    np.testing.assert_array_equal(cuda.bootstrap(x, [1, 2, 3, 0]).words, expected)
    assert address


# --- several lanes under one mask ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lanes:
    """A client of a common-mask set: a ciphertext holds `count` values."""

    key: ClientKey
    cpu: Session
    cuda: Session

    def encrypt(self, *shape: int, **options: Any) -> Ciphertexts:
        ciphertexts: Any = self.key.encrypt(self.values(*shape), **options)
        return ciphertexts

    def values(self, *shape: int) -> NDArray[np.int64]:
        bound = 2 if self.key.parameters.kind == "gate" else 4
        return np.random.default_rng(shape).integers(0, bound, (*shape, self.key.parameters.lane_count))


@pytest.fixture(scope="module", params=["toy_lanes", "toy_lanes_block"])
def lanes(request: pytest.FixtureRequest) -> Lanes:
    key = ClientKey.generate(request.param)
    keys = key.evaluation_keys()
    return Lanes(key, Session(keys), Session(keys, device="cuda"))


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_arithmetic_of_lanes(number: int) -> None:
    """Constants are added to every body."""
    ciphertexts = ClientKey.generate("toy_lanes").encrypt(np.arange(24).reshape(3, 4, 2) % 4)
    same(OPERATIONS[number](ciphertexts.to_device()), OPERATIONS[number](ciphertexts))


def test_lanes_there_and_back(lanes: Lanes) -> None:
    x = lanes.encrypt(3, 4)
    np.testing.assert_array_equal(lanes.key.decrypt(x.to_device()), lanes.values(3, 4))
    same(concatenate([x.to_device(), x.to_device()[:, ::-1]], 1), concatenate([x, x[:, ::-1]], 1))
    seeded: Any = lanes.encrypt(2, 20, seeded=True)
    same(seeded.expand("cuda:0"), seeded.expand())


@pytest.mark.parametrize("batch", [1, 2, 3, 33, 70])
def test_bootstraps_of_lanes(lanes: Lanes, batch: int) -> None:
    """Each lane goes to its own entry of one table."""
    x = lanes.encrypt(batch)
    if lanes.key.parameters.kind == "gate":
        y = lanes.encrypt(batch)  # a fresh mask
        same(lanes.cuda.gate("NAND", x.to_device(), y.to_device()), lanes.cpu.gate("NAND", x, y))
        return
    index = np.arange(batch) % 2
    expected = lanes.cpu.bootstrap(x, [[1, 2, 3, 0], [3, 3, 0, 1]], table_index=index)
    result = lanes.cuda.bootstrap(x.to_device(), [[1, 2, 3, 0], [3, 3, 0, 1]], table_index=index)
    same(result, expected)
    tables = np.array([[1, 2, 3, 0], [3, 3, 0, 1]])
    np.testing.assert_array_equal(lanes.key.decrypt(result), tables[index[:, None], lanes.values(batch)])


def test_layers_of_lanes(lanes: Lanes) -> None:
    """Packed and seeded inputs, extraction, products, re-randomised answers."""
    values = lanes.values(70)
    packed = lanes.key.encrypt_packed(values)
    expected = lanes.cpu.extract(packed)
    for form in (packed, packed.expand(), packed.expand("cuda"), packed.expand().to_device()):
        same(lanes.cuda.extract(form, resident=True), expected)
    matrix = np.random.default_rng(1).integers(-3, 4, (5, 70))
    same(lanes.cuda.linear(matrix, expected.to_device()), lanes.cpu.linear(matrix, expected))
    np.testing.assert_array_equal(
        lanes.cuda.linear_packed(matrix, packed).words, lanes.cpu.linear_packed(matrix, packed).words
    )
    answer = lanes.cuda.rerandomise(expected.to_device())
    np.testing.assert_array_equal(lanes.key.decrypt(answer), values)


# --- memory ----------------------------------------------------------------------------------------------------------------------


def test_memory_that_does_not_suffice(key: ClientKey, cpu: Session, cuda: Session) -> None:
    """Refused with numbers before anything starts, or is taken from others; the process, and the session, go on."""
    free, total = _engine.device_memory(0)
    assert 0 < free <= total
    lowest, ended = [free], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            lowest.append(_engine.device_memory(0)[0])

    x = key.encrypt([0, 1])
    size = _engine.parameter_set(key.parameters.name).large_words
    rows = total // (size * x.words.dtype.itemsize) + 1
    resident = x.to_device()
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for _ in range(2):
            with pytest.raises(OutOfDeviceMemory, match=r"needed \d+ MiB, free \d+ MiB"):
                _engine.device_combine(key.parameters, rows, resident.words._base, np.zeros(rows, np.int32))  # type: ignore[attr-defined]
    finally:
        ended.set()
        watching.join()
    assert min(lowest) > free - total // 4
    same(cuda.bootstrap(resident, [0, 1, 2, 3]), cpu.bootstrap(x, [0, 1, 2, 3]))
    limited = _engine.CudaSession(cuda.expanded_key.engine_keys[0], memory_limit=1000)
    with pytest.raises(OutOfDeviceMemory, match=r"one item needs \d+ MiB .* are free"):
        limited.keyswitch(resident.words.contiguous())  # type: ignore[attr-defined]
    limited = _engine.CudaSession(cuda.expanded_key.engine_keys[0], memory_limit=1 << 17)
    tables = LookupTables.of_messages(key.parameters, [1, 2, 3, 0]).polynomials
    many = key.encrypt(np.arange(batch_of(200, emulated=40)) % 4)
    pieces = limited.bootstrap(many.to_device().words.contiguous(), tables)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(pieces.to_host()[:, 0], cpu.bootstrap(many, [1, 2, 3, 0]).words)


def test_arrays_outlive_their_session(key: ClientKey, keys: EvaluationKeys, cpu: Session) -> None:
    x = key.encrypt([0, 1, 2, 3])
    result = Session(keys, device="cuda").bootstrap(x.to_device(), [1, 2, 3, 0])
    same(result, cpu.bootstrap(x, [1, 2, 3, 0]))


@pytest.mark.measures_memory
def test_memory_returns(key: ClientKey) -> None:
    x = key.encrypt(np.arange(64) % 4)
    before = _engine.device_memory(0)[0]
    for _ in range(20):
        x.to_device() + x.to_device()
    held = before - _engine.device_memory(0)[0]
    assert held <= 8 << 20


# --- other libraries ---------------------------------------------------------------------------------------------------------------


class Interface:
    """A library that knows the CUDA array interface alone."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self._keep = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changes


def test_words_of_other_libraries(key: ClientKey, cpu: Session, cuda: Session) -> None:
    x = key.encrypt(np.arange(6).reshape(2, 3) % 4)
    resident = x.to_device()
    interface = resident.__cuda_array_interface__
    assert (
        interface["shape"] == x.words.shape and interface["typestr"] == x.words.dtype.str and interface["version"] == 3
    )
    assert resident.__dlpack_device__() == (2, 0) and x.__dlpack_device__()[0] == 1
    assert not hasattr(x, "__cuda_array_interface__")
    for theirs in (resident, Interface(resident), Interface(resident, stream=None)):
        imported = Ciphertexts.from_words(key.parameters, theirs, encoding=x.encoding, key_id=x.key_id)
        assert imported.__cuda_array_interface__["data"] == interface["data"]
        same(imported, x)
        same(cuda.bootstrap(imported, [1, 2, 3, 0]), cpu.bootstrap(x, [1, 2, 3, 0]))
    capsule = resident.__dlpack__(stream=None)
    assert "dltensor" in repr(capsule)
    with pytest.raises(BufferError):
        resident.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        resident.__dlpack__(dl_device=(1, 0))


def test_words_that_do_not_fit(key: ClientKey) -> None:
    params, array = key.parameters, key.encrypt([0, 1]).to_device()
    words, base = array.to_host().words, array.words.array()  # type: ignore[attr-defined]
    with pytest.raises(ShapeError, match=r"expected uint.* of shape \[\.\.,"):
        Ciphertexts.from_words(params, base.reshape((words.size,)))
    with pytest.raises(ShapeError, match="dtype"):
        Ciphertexts.from_words(params, Interface(base, typestr="<f4"))
    with pytest.raises(ShapeError, match="contiguous"):
        Ciphertexts.from_words(params, Interface(base, strides=(4, 8)))
    with pytest.raises(DeviceError, match="host memory"):
        Ciphertexts.from_words(params, Interface(base, data=(words.ctypes.data, False)))
    words = words.copy()
    words[1, 3] = params.modulus
    with pytest.raises(ParameterError, match="below Q"):
        Ciphertexts.from_words(params, _engine.DeviceArray.from_host(words))


class Stream:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def test_streams_of_the_caller(key: ClientKey, keys: EvaluationKeys, cpu: Session, cuda: Session) -> None:
    x = key.encrypt([0, 1, 2, 3])
    expected = cpu.bootstrap(x, [1, 2, 3, 0])
    other = cuda.share()
    own = other.device_sessions[0].stream
    for stream in (own, Stream(own), Stream(0), 1):
        session = cuda.share(stream=stream)
        same(session.bootstrap(x.to_device(), [1, 2, 3, 0]), expected)
        np.testing.assert_array_equal(session.bootstrap(x, [1, 2, 3, 0]).words, expected.words)
        session.synchronize()
    assert cuda.share(stream=own).device_sessions[0].stream == own
    for wrong in (2, "a stream", -3):
        with pytest.raises(ParameterError, match="stream"):
            cuda.share(stream=wrong)
    with pytest.raises(DeviceError, match="leave the stream out"):
        cpu.share(stream=own)


@ALL  # not of emulated devices
def test_torch(key: ClientKey, cpu: Session, cuda: Session) -> None:
    """torch reads results and gives inputs without a copy, on a stream of its own."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    x = key.encrypt(np.arange(300) % 4)
    expected = cpu.bootstrap(x, [1, 2, 3, 0])
    stream = torch.cuda.Stream()
    session = cuda.share(stream=stream)
    with torch.cuda.stream(stream):
        tensor = torch.from_dlpack(x.to_device())
        assert tensor.is_cuda and tuple(tensor.shape) == x.words.shape
        signed = torch.int32 if x.words.dtype.itemsize == 4 else torch.int64
        copied = tensor.view(signed).clone().view(tensor.dtype)  # work of torch on its stream
        y = Ciphertexts.from_words(key.parameters, copied, encoding=x.encoding, key_id=x.key_id)
        result = session.bootstrap(y, [1, 2, 3, 0])
        back = torch.from_dlpack(result).view(signed).cpu().numpy().view(x.words.dtype)
        interface = torch.as_tensor(result, device="cuda").view(signed).cpu().numpy().view(x.words.dtype)
    np.testing.assert_array_equal(back, expected.words)
    np.testing.assert_array_equal(interface, expected.words)


# --- several devices ---------------------------------------------------------------------------------------------------------------


def test_equal_words_are_found_on_the_device(key: ClientKey, cpu: Session, cuda: Session) -> None:
    """By four words of each ciphertext, whatever memory, order or device they are in."""
    x = key.encrypt(np.arange(6) % 4)
    table = [1, 2, 3, 0]
    y, twin = (cuda.bootstrap(x.to_device(), table) for _ in range(2))
    assert (y + twin).weight_norm == (y.to_host() + cpu.bootstrap(x, table)).weight_norm == 2
    assert (y - twin).weight_norm == 0
    assert (y[::-1] + twin).weight_norm == pytest.approx(np.sqrt(2))
    assert (y[[0, 0, 1, 1, 2, 2]] + twin).weight_norm == 2  # the first one
    assert (y[:, None] + twin[None, :]).weight_norm == 2
    assert cuda.linear([[1, 2, 3]], y.reshape(2, 3)[:, [0, 1, 0]]).weight_norm == pytest.approx(np.sqrt(20))
    assert (y * 0 + twin).weight_norm == 1
    zeros = Ciphertexts.from_words(key.parameters, (y * 0).to_host().words, encoding=y.encoding, key_id=y.key_id)
    assert (zeros.to_device() + twin).weight_norm == 1
    assert (x.to_device() + 1 - key.encrypt(np.ones(6, int)).to_device()).message_bound == (-2, 4)
    bits = key.encrypt_bits(np.arange(6) % 2)
    assert (bits.to_device() + bits.copy().to_device()).weight_norm == 2


def test_shards_stay_on_their_devices(key: ClientKey, keys: EvaluationKeys, cpu: Session) -> None:
    if _engine.cuda_device_count() < 2:
        pytest.skip("needs two CUDA devices")
    cuda = Session(keys, device="cuda:0,1")
    x = key.encrypt(np.arange(21).reshape(7, 3) % 4)
    spread = x.to_device("cuda:0,1")
    assert spread.device == "cuda:0,1" and isinstance(spread.words, DeviceWords)
    index = np.arange(21).reshape(7, 3) % 2
    tables = [[1, 2, 3, 0], [0, 1, 2, 3]]
    on_host, on_devices = (
        (session.linear([[1, 1, 0], [0, -1, 1], [1, 0, 0]], y) + 1).with_message_bound(
            0, 3
        )  # words are compared, not messages
        for session, y in ((cpu, x), (cuda, spread))
    )
    assert on_devices.weight_norm == on_host.weight_norm
    expected = cpu.bootstrap(on_host, tables, table_index=index, allow_noise=True)
    result = cuda.bootstrap(on_devices, tables, table_index=index, allow_noise=True)
    assert result.device == "cuda:0,1"
    np.testing.assert_array_equal(result.to_host().words, expected.words)
    np.testing.assert_array_equal(result.to_device("cuda:1").to_host().words, expected.words)
    np.testing.assert_array_equal(
        (result + result * 2 - result).to_host().words, (expected + expected * 2 - expected).words
    )
    np.testing.assert_array_equal(
        cuda.bootstrap(x, tables, table_index=index).words, cpu.bootstrap(x, tables, table_index=index).words
    )
    packed = key.encrypt_packed(np.arange(900).reshape(9, 100) % 4)
    resident = cuda.extract(packed, resident=True)
    assert resident.device == "cuda:0,1"
    np.testing.assert_array_equal(resident.to_host().words, cpu.extract(packed).words)
    with pytest.raises(ShapeError, match="gather them"):
        result[0]
    with pytest.raises(DeviceError, match="belongs to one device"):
        cuda.share(stream=1)
