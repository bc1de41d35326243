"""Two services on one PostgreSQL and one object storage: files, or moto's S3."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from postgresql import postgresql, reason_without
from scoring_server import Server, running

START_SECONDS = 60.0
BUCKET = "cloakwork-test"


@dataclass
class Shared:
    """What services share; `environment` and `variables` as `Server` takes them."""

    environment: dict[str, str]
    variables: dict[str, str]


@contextmanager
def shared(folder: Path, s3: bool = False, **settings: str) -> Iterator[Shared]:
    if reason_without() is not None:
        pytest.skip(str(reason_without()))
    (folder / "objects").mkdir()
    files = nullcontext(((folder / "objects").as_uri(), dict[str, str]()))
    with postgresql() as database, object_store() if s3 else files as (url, variables):
        yield Shared({"DATABASE_URL": database, "STORAGE_URL": url, "THREADS": "1", **settings}, variables)


@contextmanager
def pair(first: Path, second: Path, both: Shared) -> Iterator[tuple[Server, Server]]:
    """On two data folders."""
    options = {"environment": both.environment, "variables": both.variables}
    with running(first, **options) as one, running(second, **options) as two:
        yield one, two


@contextmanager
def object_store() -> Iterator[tuple[str, dict[str, str]]]:
    """An empty bucket of moto's: its URL, and the variables with which it is found."""
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                headers = {"Authorization": "AWS test:test"}
                httpx.put(f"{url}/{BUCKET}", trust_env=False, headers=headers).raise_for_status()
                break
            except httpx.TransportError:
                assert time.monotonic() < end and process.poll() is None, "moto did not start"
                time.sleep(0.1)
        yield f"s3://{BUCKET}", variables
    finally:
        process.terminate()
        process.wait(30)
