"""OpenFHE's gates in the same sitting: its wheel under a Python of its own, one process, one thread, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cloakwork.app.cli.shared.console import FailureError

GATES, QUICK_GATES = 16, 4
METHODS: Final = ("GINX", "AP", "LMKCDEY")
TIMEOUT_SECONDS = 900
_SCRIPT = Path(__file__).with_name("openfhe_gates.py")


def openfhe_rows(python: str, quick: bool, stage: Callable[[str, int, int], bool]) -> list[dict[str, Any]]:
    """Returns a row for each of its methods; one that fails says so in its place. Bits of security are none of ours to state."""
    rows = []
    for number, method in enumerate(METHODS):
        stage(f"OpenFHE {method}", number, len(METHODS))
        rows.append(_row(python, method, QUICK_GATES if quick else GATES))
    return rows


def _row(python: str, method: str, gates: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "method": f"OpenFHE {method}, on the CPU",
        "set": "STD128_LMKCDEY" if method == "LMKCDEY" else "STD128",
        "shape": "",
        "operation": "gate",
        "device": "cpu",
        "batch": 1,
        "threads": 1,
    }
    row |= dict.fromkeys(
        (
            "bits",
            "message_bits",
            "security_bits",
            "p_fail_log2",
            "key_bytes",
            "upload_bytes",
            "per_second",
            "seconds_one",
            "wrong",
            "outputs",
        ),
    )
    row |= {"rotations": 1, "share_of_ceiling": None, "published": None, "error": None}
    try:
        measurement = _run(python, method, gates)
    except FailureError as error:
        return row | {"error": str(error)}
    seconds = measurement["median_seconds"]
    return row | {
        "shape": f"N={measurement['ring_dimension']} k=1, n={measurement['lwe_dimension']}",
        "per_second": 1 / seconds,
        "seconds_one": seconds,
        "wrong": measurement["wrong"],
        "outputs": measurement["gates"],
    }


def _run(python: str, method: str, gates: int) -> dict[str, Any]:
    command = [python, str(_SCRIPT), method, str(gates)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FailureError(f"--openfhe: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise FailureError(f"--openfhe: {python} ended with status {done.returncode}: {last}")
    measurement: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measurement
