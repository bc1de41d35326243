"""Two services on one PostgreSQL and one object storage: files, or moto's S3."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from postgresql import needs_postgresql, postgresql
from requirements import needs
from scoring_server import START_SECONDS, Server, eventually, running

BUCKET = "cloakwork-test"


@dataclass
class Shared:
    """What services share; `environment` and `variables` as `Server` takes them."""

    environment: dict[str, str]
    variables: dict[str, str]


@contextmanager
def shared(folder: Path, s3: bool = False, **settings: str) -> Iterator[Shared]:
    needs_postgresql()
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
    needs(find_spec("moto") is not None, "moto is not installed here (extra 'test-all')")
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:

            def port() -> str | None:
                said = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8"))
                return None if said is None else said[1]

            assert eventually(lambda: port() or process.poll() is not None, START_SECONDS) and port(), log.read_text()
            url = f"http://127.0.0.1:{port()}"
            headers = {"Authorization": "AWS test:test"}
            httpx.put(f"{url}/{BUCKET}", trust_env=False, headers=headers).raise_for_status()
            yield (
                f"s3://{BUCKET}",
                {
                    "AWS_ENDPOINT_URL": url,
                    "AWS_ALLOW_HTTP": "true",
                    "AWS_ACCESS_KEY_ID": "test",
                    "AWS_SECRET_ACCESS_KEY": "test",
                    "AWS_REGION": "us-east-1",
                },
            )
        finally:
            process.terminate()
            process.wait(30)
