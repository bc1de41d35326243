"""What processes of test_keyring.py do; a module by itself, as a process that is spawned finds no test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cloakwork.app.client.keyring import Keyring, sha256_of
from cloakwork.fhe_core.wire import keystore

ROUNDS: Final = 8


def make(folder: Path, barrier: Any, pairs: Any) -> None:
    """Makes or finds a key in each round, at the same moment as the others; what it holds goes to the queue."""
    keystore.save_secret.__defaults__ = (keystore.ScryptCost(log2_n=10),)
    for number in range(ROUNDS):
        barrier.wait()
        keyring = Keyring(folder / str(number), "word")
        key = keyring.key("toy")
        pairs.put((number, key.key_id, sha256_of(keyring.evaluation_keys("toy"))))
