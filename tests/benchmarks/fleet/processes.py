"""A fleet on this machine: PostgreSQL, an S3 store, web processes and workers, each of them on a host of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fleet.hosts import NETWORK, STORES, Host, network
from postgresql import Server, server
from scoring_server import new_tenant

PORT = 8123
_START_SECONDS = 60.0
_STORE_PORT = 9000
STORE_SCRIPT = "faulty_store.py"
_STORE = {
    "AWS_ENDPOINT_URL": f"http://{STORES}:{_STORE_PORT}",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
}


@dataclass
class Node:
    """One service of the fleet; `cores` as in taskset."""

    host: Host
    role: str
    folder: Path
    settings: dict[str, str]
    cores: str | None = None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{PORT}"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CLOAKWORK_")}
        own = {"ROLE": self.role, "HOST": self.host.address, "PORT": str(PORT), "DATA_FOLDER": str(self.folder)}
        environment |= {f"CLOAKWORK_{name}": value for name, value in {**self.settings, **own}.items()} | _STORE
        pinned = ["taskset", "-c", self.cores] if self.cores else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*pinned, *self.host.command(sys.executable, "-m", "cloakwork.api")],
                env=environment,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/v2/health/ready", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """The whole host: the web process and its engine, with nothing tidied up."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = 60.0) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass
class Fleet:
    folder: Path
    database_server: Server
    hosts: list[Host]
    settings: dict[str, str]
    nodes: list[Node] = field(default_factory=list)

    @property
    def store_fault(self) -> Path:
        """The file that says how the object store answers (faulty_store.py)."""
        return self.folder / "store_fault"

    @property
    def database(self) -> str:
        return self.database_server.url

    @property
    def webs(self) -> list[Node]:
        return [node for node in self.nodes if node.role != "worker"]

    @property
    def workers(self) -> list[Node]:
        return [node for node in self.nodes if node.role != "web"]

    def tenant(self, name: str, *scopes: str) -> str:
        """Its API key."""
        return new_tenant(self.folder, name, *scopes, database=self.database)

    def add(self, role: str, cores: str | None = None, **settings: str) -> Node:
        host = self.hosts[len(self.nodes)]
        node = Node(host, role, self.folder / host.name, {**self.settings, **settings}, cores)
        self.nodes.append(node)
        node.start()
        return node

    def wait(self) -> None:
        """Until every node is ready."""
        end = time.monotonic() + _START_SECONDS
        for node in self.nodes:
            while not node.ready():
                assert node.process is not None
                if node.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{node.host.name} did not start:\n{node.log.read_text()[-3000:]}")
                time.sleep(0.1)

    def log_lines(self) -> list[dict[str, Any]]:
        lines = [line for node in self.nodes for line in node.log.read_text(encoding="utf-8").split("\n")[:-1]]
        return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def _store(fault: Path) -> Iterator[None]:
    """moto's S3 server; everything is in its memory. `fault`: the file that says how it answers (faulty_store.py)."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(STORE_SCRIPT)), STORES, str(_STORE_PORT), str(fault)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + _START_SECONDS
        bucket, authorisation = f"{_STORE['AWS_ENDPOINT_URL']}/fleet", {"Authorization": "AWS test:test"}
        while True:
            try:
                httpx.put(bucket, headers=authorisation, trust_env=False).raise_for_status()
                break
            except httpx.TransportError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def fleet(folder: Path, count: int, **settings: str) -> Iterator[Fleet]:
    """Database, store and so many hosts, with nothing on them yet. `settings` of all nodes, in capitals."""
    audit_key = folder / "audit.key"
    audit_key.write_bytes(secrets.token_bytes(32))
    audit_key.chmod(0o600)
    with ExitStack() as stack:
        hosts = stack.enter_context(network(count))
        database = stack.enter_context(server(listen=STORES, allowed=f"{NETWORK}.0/24"))
        shared = {
            "DATABASE_URL": database.url,
            "STORAGE_URL": "s3://fleet",
            "AUDIT_KEY": str(audit_key),
            "ZOO": "false",
            "DEVICES": "cpu",
            "DISK_RESERVE_BYTES": "0",
            "MAX_ADDRESS_CONNECTIONS": "0",
        }
        made = Fleet(folder, database, hosts, {**shared, **settings})
        stack.enter_context(_store(made.store_fault))
        try:
            yield made
        finally:
            for node in made.nodes:
                if node.process is not None and node.process.poll() is None:
                    node.kill()
