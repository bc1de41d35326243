"""Many threads and sessions on one key, the GIL, and Ctrl-C in a long call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.server import Session


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
        for words, wanted in zip(pool.map(work, range(8)), expected, strict=True):
            np.testing.assert_array_equal(words, wanted)


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
    """Another thread keeps running Python while a bootstrap works."""
    session = Session(keys)
    ciphertexts = key.encrypt(np.zeros(2000, dtype=int))
    running = threading.Event()
    counts: list[int] = []

    def tick() -> None:
        running.set()
        while running.is_set():
            counts.append(1)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    running.wait()
    before, start = len(counts), time.perf_counter()
    session.bootstrap(ciphertexts, lambda m: m)
    elapsed, ticks = time.perf_counter() - start, len(counts) - before
    running.clear()
    thread.join()
    assert elapsed > 0.02
    assert ticks >= 3


CHILD = """
import sys, numpy as np
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
key = ClientKey.generate("toy")
session = Session(key.evaluation_keys())
ciphertexts = key.encrypt(np.zeros(1000, dtype=int))
print("ready", flush=True)
try:
    while True:
        session.bootstrap(ciphertexts.reshape(1, -1)[[0] * 40], lambda m: m)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    result = key.decrypt(session.bootstrap(ciphertexts[:3], lambda m: 3))
    print(result.tolist(), flush=True)
"""


def test_control_c_stops_a_long_call() -> None:
    """40,000 bootstraps in one call take seconds; Ctrl-C ends it at once and the session stays usable."""
    environment = {**os.environ, "CLOAKWORK_ALLOW_TOY": "1"}
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)  # well inside the first call
        start = time.perf_counter()
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)
        elapsed = time.perf_counter() - start
    finally:
        child.kill()
    assert output == "interrupted\n[3, 3, 3]\n"
    assert elapsed < 1.5
