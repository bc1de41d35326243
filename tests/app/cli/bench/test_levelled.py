"""bench ntt and keyswitch: their keys, and that wrong outputs would be counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloakwork.app.cli.bench import keyswitch
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.levelled.large_ntt import transform_primes

COMMON = {
    "log_size",
    "primes",
    "device",
    "batch",
    "threads",
    "median_seconds",
    "least_seconds",
    "most_seconds",
    "wrong",
    "outputs",
    "repeats",
}


def record(call: Any, *arguments: str) -> dict[str, Any]:
    result = call(
        "bench", *arguments, "--log-size", "12", "--batch", "2", "--threads", "2", "--repeats", "2", "--json", "-"
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.keys() >= COMMON
    assert (found["log_size"], found["batch"], found["threads"], found["repeats"], found["wrong"]) == (12, 2, 2, 2, 0)
    return found


def test_ntt(call: Any) -> None:
    found = record(call, "ntt", "--primes", "3")
    assert (found["primes"], found["outputs"]) == (3, 2 * 3 * 4096 + 3 * 2 * 3)


def test_keyswitch(call: Any) -> None:
    found = record(call, "keyswitch", "--primes", "5", "--special", "2")
    assert (found["primes"], found["special_primes"], found["digit_primes"], found["outputs"]) == (5, 2, 2, 2 * 4096)
    assert found["key_bytes"] == 2 * found["upload_bytes"] == 3 * 2 * 7 * 4096 * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda:99"), "cuda"),
        (("--digit", "3", "--special", "2"), "digit_primes"),
        (("--primes", "200"), "primes"),
    ],
)
def test_what_cannot_be_measured(call: Any, options: tuple[str, ...], message: str) -> None:
    result = call("bench", "keyswitch", "--log-size", "17", *options)
    assert result.returncode != 0 and message in result.stderr.lower() and "Traceback" not in result.stderr


def test_wrong_outputs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for another automorphism leaves noise: hardly a coefficient is right."""
    primes = transform_primes(12, 3)
    engine = _engine.Levelled(12, primes[1:] + primes[:1], 1, 1, keyswitch.PLAINTEXT_MODULUS)
    generate = _engine.LevelledKey.generate

    class Other:
        def __init__(self, key: _engine.LevelledKey) -> None:
            self.encrypt, self.phase, self.messages = key.encrypt, key.phase, key.messages
            self.switch_key = lambda g: key.switch_key(g + 2)

    class Keys:
        generate = staticmethod(lambda engine: Other(generate(engine)))

    monkeypatch.setattr(_engine, "LevelledKey", Keys)
    found = keyswitch.bench_keyswitch(engine, 2, "cpu", 1, 1, 1, lambda done, total: None)
    assert found["wrong"] > 0.99 * found["outputs"]
