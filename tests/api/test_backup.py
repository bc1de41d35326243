"""The commands of docs/howto/operations.md: a service is backed up while it runs, lost, and restored into an empty place with all that it had."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from postgresql import needs_postgresql, postgresql
from requirements import needs
from scoring_server import Server, User, becomes, new_tenant, running
from two_services import object_store

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "operations.md"
WAITING = 6
SETTINGS = {"THREADS": "1"}
# `aws s3 sync` as far as the page uses it, for machines without the program: every object of one side is written to the other.
AWS = """\
import sys
from pathlib import Path
from urllib.parse import urlsplit
import boto3

assert sys.argv[1:4] == ["s3", "sync", "--only-show-errors"], sys.argv
source, target = sys.argv[4:]
if source.startswith("s3://"):
    bucket = boto3.resource("s3").Bucket(urlsplit(source).netloc)
    for each in bucket.objects.all():
        place = Path(target) / each.key
        place.parent.mkdir(parents=True, exist_ok=True)
        bucket.download_file(each.key, str(place))
else:
    bucket = boto3.resource("s3").Bucket(urlsplit(target).netloc)
    for place in Path(source).rglob("*"):
        if place.is_file():
            bucket.upload_file(str(place), str(place.relative_to(source)))
"""


def commands(heading: str) -> tuple[str, str]:
    """Those of a section: to back up, and to restore."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n### ")[0]
    backup, restore = re.findall(r"```sh[^\n]*\n(.*?)```", section, flags=re.DOTALL)
    return backup, restore


def shell(script: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@dataclass
class Before:
    """What a user left at a service."""

    user: User
    token: str
    body: bytes
    answer: bytes
    done: str
    waiting: list[str]


def leave(server: Server, token: str) -> Before:
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        user = User.of(http)
        user.upload()
        unfinished = User.of(http)
        identity = http.post("/v2/keys", json=unfinished.announcement()).json()["id"]
        assert unfinished.send(identity, 0, 5000).status_code == 200
        _, body = user.encrypt(samples=3)
        answer = user.infer(body).content
        done = submit(http, body)
        assert becomes(lambda: http.get(f"/v2/jobs/{done}").json()["state"], "done")
        # The engine computes the first for as long as it takes to back up the others.
        _, large = user.encrypt(samples=min(4000, user.facts["largest_batch"]))
        running_job = submit(http, large)
        return Before(user, token, body, answer, done, [running_job, *(submit(http, body) for _ in range(WAITING))])


def submit(http: httpx.Client, body: bytes) -> str:
    answer = http.post("/v2/models/toy/jobs", content=body)
    assert answer.status_code == 202, answer.text
    identity: str = answer.json()["id"]
    return identity


def find_again(server: Server, before: Before) -> None:
    with server.client(headers={"Authorization": f"Bearer {before.token}"}) as http:
        assert [each["state"] for each in http.get("/v2/keys").json()["keys"]].count("ready") == 1
        answer = replace(before.user, http=http).answer(before.body)  # without sending the keys again
        assert answer == before.answer, "the same audit key and program: the same bytes"
        assert http.get(f"/v2/jobs/{before.done}/result").content == before.answer
        for job in before.waiting:
            assert becomes(lambda job=job: http.get(f"/v2/jobs/{job}").json().get("state"), "done", 60), job
        for job in before.waiting[1:]:
            assert http.get(f"/v2/jobs/{job}/result").content == before.answer
        assert http.get("/v2/usage").json()["tenant"] == "alice"


def test_a_service_with_sqlite_and_files(tmp_path: Path, fill: Callable[[Path], Path]):
    backup, restore = commands("SQLite and files")
    data, kept, new = fill(tmp_path / "data"), tmp_path / "backup", tmp_path / "new"
    kept.mkdir()
    token = new_tenant(data, "alice")
    with running(data, insecure=False, environment=SETTINGS) as server:
        before = leave(server, token)
        shell(backup, {"DATA": str(data), "BACKUP": str(kept)})
        server.kill()
    shutil.rmtree(data)
    shell(restore, {"DATA": str(new), "BACKUP": str(kept)})
    (new / "log.jsonl").touch()
    with running(new, insecure=False, environment=SETTINGS) as server:
        find_again(server, before)
        with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
            (unfinished,) = [each["id"] for each in http.get("/v2/keys").json()["keys"] if each["state"] == "open"]
            assert http.head(f"/v2/keys/{unfinished}").headers["upload-offset"] == "0"


@pytest.mark.tier("release")
def test_services_with_postgresql_and_object_storage(tmp_path: Path, fill: Callable[[Path], Path]):
    needs_postgresql()
    needs(shutil.which("pg_dump"), "pg_dump is not installed here (Debian's package postgresql-client)")
    backup, restore = commands("PostgreSQL and object storage")
    kept, tools, key = tmp_path / "backup", tmp_path / "bin", tmp_path / "audit.key"
    for folder in (kept, tools):
        folder.mkdir()
    (tools / "aws.py").write_text(AWS)
    (tools / "aws").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tools / "aws.py"}" "$@"\n')
    (tools / "aws").chmod(0o755)
    key.write_bytes(os.urandom(32))

    def settings(database: str, storage: str) -> dict[str, str]:
        return {
            "DATABASE_URL": database,
            "STORAGE_URL": storage,
            "AUDIT_KEY": str(key),
            **SETTINGS,
            "TAKEOVER_SECONDS": "2",
        }

    def call(script: str, environment: dict[str, str], variables: dict[str, str]) -> None:
        named = {f"CLOAKWORK_{name}": value for name, value in environment.items()}
        aws = {**variables, "AWS_DEFAULT_REGION": variables["AWS_REGION"]}  # boto3's name for it
        shell(script, {**named, **aws, "BACKUP": str(kept), "PATH": f"{tools}:{os.environ['PATH']}"})

    with ExitStack() as old:
        database = old.enter_context(postgresql())
        storage, variables = old.enter_context(object_store())
        token = new_tenant(tmp_path, "alice", database=database)
        place: dict[str, Any] = {"environment": settings(database, storage), "variables": variables}
        with running(fill(tmp_path / "first"), insecure=False, **place) as server:
            before = leave(server, token)
            call(backup, place["environment"], variables)
            server.kill()
    shutil.rmtree(tmp_path / "first")
    key.unlink()
    with ExitStack() as new:
        database = new.enter_context(postgresql())
        storage, variables = new.enter_context(object_store())
        place = {"environment": settings(database, storage), "variables": variables}
        call(restore, place["environment"], variables)
        with running(tmp_path / "second", insecure=False, **place) as server:
            find_again(server, before)
