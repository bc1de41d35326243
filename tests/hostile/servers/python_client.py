"""A process that asks servers of cases with the Python client, one after the other, and says how each ended and what it took.

A line of standard input is {"name", "url", "samples", "toys"}, the line of its answer {"name", "ended", "error", "message", "seconds", "peak_mib"}.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

TOYS_VARIABLE = "CLOAKWORK_ALLOW_TOY_SERVERS"
_DATA_LIMIT = 2 << 30  # so that a client without limits ends before the machine does


def samples_of(kind: str) -> Any:
    match kind:
        case "many":
            return np.full((5000, 1), 0.3)
        case "texts":
            return np.array(["lorem ipsum dolor sit amet " * 400] * 5, dtype=object)
        case "pair":
            return np.array([[0.3, 0.4]])
    return np.array([[0.3]])


def predict_synchronously(url: str, folder: Path, x: Any, seconds: float) -> None:
    from cloakwork.app.client.client import Client
    from cloakwork.app.client.keyring import TemporaryKeyring

    patience = {"timeout": seconds, "job_timeout": seconds}  # of users they are minutes
    if "--old" in sys.argv:  # a release without these limits
        del patience["job_timeout"]
    with Client(url, keyring=TemporaryKeyring(folder), **patience) as client:
        client.predict("m", x)


def predict_asynchronously(url: str, folder: Path, x: Any, seconds: float) -> None:
    from cloakwork.app.client.client import AsyncClient
    from cloakwork.app.client.keyring import TemporaryKeyring

    async def predict() -> None:
        async with AsyncClient(url, keyring=TemporaryKeyring(folder), timeout=seconds, job_timeout=seconds) as client:
            await client.predict("m", x)

    asyncio.run(predict())


def ask(url: str, samples: str, patience: float) -> tuple[str, str, str]:
    """How it ended ("answer", "error" of ours, "bare" exception), the exception's name and its message."""
    from cloakwork.fhe_core.errors import FheError

    predict = predict_asynchronously if "--async" in sys.argv else predict_synchronously
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predict(url, Path(folder), samples_of(samples), patience)
    except FheError as error:
        return "error", type(error).__name__, str(error)
    except Exception as error:
        return "bare", type(error).__name__, str(error)
    return "answer", "", ""


def peak_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(fields["VmHWM"].split()[0]) / 1024


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_LIMIT, _DATA_LIMIT))
    for line in sys.stdin:
        case = json.loads(line)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        os.environ[TOYS_VARIABLE] = "1" if case["toys"] else "0"
        start = time.monotonic()
        ended, error, message = ask(case["url"], case["samples"], case["patience"])
        result = {
            "name": case["name"],
            "ended": ended,
            "error": error,
            "message": message[:2000],
            "seconds": time.monotonic() - start,
            "peak_mib": peak_mib(),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
