"""Many threads and sessions on one key, the GIL, and Ctrl-C in a long call."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate("toy")


@pytest.fixture(scope="module")
def keys(key: ClientKey) -> EvaluationKeys:
    return key.evaluation_keys()


def test_sessions_share_the_expanded_key(keys: EvaluationKeys) -> None:
    expanded = keys.expand()
    sessions = [Session(expanded), Session(expanded, threads=2), Session(expanded).share()]
    assert all(session.expanded_key is expanded for session in sessions)
    assert sessions[1].share().threads == 2 and sessions[1].share(threads=1).threads == 1


@pytest.mark.parametrize("shared_session", [True, False])
def test_threads_compute_what_one_computes(key: ClientKey, keys: EvaluationKeys, shared_session: bool) -> None:
    first = Session(keys)
    ciphertexts = [key.encrypt(np.arange(20) * worker % 4) for worker in range(8)]
    expected = [first.bootstrap(batch, [1, 2, 3, 0]).words for batch in ciphertexts]

    def work(worker: int) -> np.ndarray:
        session = first if shared_session else first.share()
        for _ in range(5):
            words = session.bootstrap(ciphertexts[worker], [1, 2, 3, 0]).words
        return words

    with ThreadPoolExecutor(8) as pool:
        for words, alone in zip(pool.map(work, range(8)), expected, strict=True):
            np.testing.assert_array_equal(words, alone)


def test_client_threads_never_share_randomness(key: ClientKey) -> None:
    with ThreadPoolExecutor(8) as pool:
        seeds = list(pool.map(lambda _: key.encrypt([0], seeded=True).seed, range(200)))
    assert len(set(seeds)) == 200


def test_errors_in_threads_leave_the_session_usable(key: ClientKey, keys: EvaluationKeys) -> None:
    session = Session(keys)
    ciphertexts = key.encrypt(np.arange(64) % 4)

    def cancel(_: int) -> str:
        try:
            session.bootstrap(ciphertexts, lambda m: m, progress=lambda done, total: False)
        except Exception as error:
            return type(error).__name__
        return "none"

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(cancel, range(8))) == {"CancelledError"}
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(ciphertexts, lambda m: m)), np.arange(64) % 4)


def test_a_long_call_releases_the_gil(key: ClientKey, keys: EvaluationKeys) -> None:
    """Another thread runs Python while a bootstrap works.

    Threads take no turns of their own accord meanwhile, so that the other one runs before the end of the call only if the
    call lets it. On a busy machine it may come too late: then there is another call.
    """
    session = _engine.CpuSession(
        _engine.CpuKey(key.parameters, keys.seed, keys.bootstrap_bodies, keys.keyswitch_bodies), threads=1
    )
    words = key.encrypt(np.zeros(500, dtype=int)).words
    table = np.zeros((1, key.parameters.table_size), np.uint32)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        assert any(_runs_beside(lambda: session.bootstrap(words, table)) for _ in range(100))
    finally:
        sys.setswitchinterval(interval)


def _runs_beside(call: Callable[[], object]) -> bool:
    """Whether this thread runs before a call that another thread makes is over."""
    begins, over = threading.Event(), threading.Event()

    def work() -> None:
        begins.set()
        call()
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    begins.wait()
    beside = not over.is_set()
    thread.join()
    return beside


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="runs where a timer can count the time of this process: Linux, macOS"
)
def test_control_c_stops_a_long_call() -> None:
    """It ends a call of half a minute, and the session stays usable. A timer of this process's own time sends it, so well inside the call."""
    key = ClientKey.generate("lut4")
    session = Session(key.evaluation_keys(), threads=1)
    ciphertexts = key.encrypt(np.arange(4))
    many = Ciphertexts(key.parameters, np.repeat(ciphertexts.words, 750, axis=0), (3000,), key_id=key.key_id)
    previous = signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    before = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.bootstrap(many, lambda m: m)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    assert (
        time.process_time() - before < 8
    )  # of this process: the whole call takes more than a quarter of a minute of it on any processor
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(ciphertexts, lambda m: 15 - m)), [15, 14, 13, 12])
