"""Keys, answers and events through the reverse proxies of deploy/proxy, where nginx or Caddy is installed."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fleet_servers import processes
from postgresql import postgresql, reason_without
from requirements import needs
from scoring_server import User, becomes, new_tenant, running, toy_model
from self_signed import certificate

from tests.deploy_files import tool

PROXIES = Path(__file__).resolve().parents[2] / "deploy" / "proxy"
pytestmark = [pytest.mark.os_entropy, pytest.mark.tier("all")]
START_SECONDS = 120.0
Make = Callable[..., tuple[list[str], str]]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def nginx(folder: Path, *services: int) -> tuple[list[str], str]:
    """Its command, and where it listens: with TLS."""
    plain, tls = free_port(), free_port()
    text = (PROXIES / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"listen \[::\].*;\n", "", text)
    text = text.replace("listen 80;", f"listen 127.0.0.1:{plain};").replace("listen 443 ", f"listen 127.0.0.1:{tls} ")
    text = re.sub(r"/etc/ssl/fhe.example/\w+\.pem", str(certificate(folder / "service.pem")), text)
    server = "server 127.0.0.1:8123 max_fails=0;"
    assert text.count(server) == 1
    text = text.replace(server, "".join(server.replace("8123", str(service)) for service in services))
    if len(services) > 1:  # as the file says for web processes
        text = text.replace("hash $http_authorization consistent;", "least_conn;")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths} {text} }}"
    )
    return ["nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")], f"https://127.0.0.1:{tls}"


def caddy(folder: Path, *services: int) -> tuple[list[str], str]:
    """Without TLS: it would put an authority of its own among those that this machine trusts."""
    port = free_port()
    text = (PROXIES / "Caddyfile").read_text(encoding="utf-8")
    text = text.replace("{$SITE:localhost}", f"http://127.0.0.1:{port}")
    upstreams = " ".join(f"http://127.0.0.1:{service}" for service in services)
    text = text.replace("{$UPSTREAMS:http://127.0.0.1:8123}", upstreams)
    if len(services) > 1:  # as the file says for web processes
        text = re.sub(r"lb_policy header Authorization \{.*?\}", "lb_policy round_robin", text, flags=re.DOTALL)
    (folder / "Caddyfile").write_text(text.replace("{\n\tservers", "{\n\tadmin off\n\tservers", 1))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")], f"http://127.0.0.1:{port}"


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v2/health/ready", verify=False, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def proxying(command: list[str], url: str, folder: Path) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder), "PATH": "/usr/bin"})
        try:
            assert becomes(lambda: process.poll() is not None or answers(url), True, START_SECONDS)
            assert process.poll() is None, (folder / "log").read_text()
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("make", [nginx, caddy], ids=lambda make: make.__name__)
def test_keys_answers_and_events_go_through(make: Make, tmp_path: Path):
    program = tool(make.__name__)
    data, folder = tmp_path / "data", tmp_path / "proxy"
    (data / "models" / "toy").mkdir(parents=True)
    folder.mkdir()
    # Keys of 30 MB: nginx takes 1 MB when nobody tells it more.
    toy_model(set_name="nn1").save(data / "models" / "toy" / "1.clkm")
    token = new_tenant(data, "alice")
    with running(data, insecure=False, environment={"MAX_ADDRESS_CONNECTIONS": "0"}) as server:
        command, url = make(folder, server.port)
        command[0] = program
        headers = {"Authorization": f"Bearer {token}"}
        with (
            proxying(command, url, folder),
            httpx.Client(base_url=url, verify=False, trust_env=False, timeout=60, headers=headers) as http,
        ):
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(3)
            answer = user.infer(body).raise_for_status()
            with server.client(headers=headers) as beside:
                assert beside.post("/v2/models/toy/infer", content=body).content == answer.content

            job = http.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"]
            with http.stream("GET", f"/v2/jobs/{job}/events") as events:
                names = [line.removeprefix("event: ") for line in events.iter_lines() if line.startswith("event: ")]
            assert names[-1] == "done"
            assert http.get(f"/v2/jobs/{job}/result").content == answer.content
            assert http.get("/metrics").status_code == 404
            assert http.get("/v2/models", headers={"Authorization": "Bearer nobody"}).status_code == 401


@pytest.mark.parametrize(
    "make", [nginx, pytest.param(caddy, marks=pytest.mark.tier("release"))], ids=lambda make: make.__name__
)
def test_web_processes_behind_it_are_replaced(make: Make, tmp_path: Path):
    """Parts of one upload go to either; when one ends, the other answers all, and the log knows the client."""
    reason = reason_without()
    needs(reason is None, str(reason))
    program = tool(make.__name__)
    folder = tmp_path / "proxy"
    folder.mkdir()

    def fill(data: Path) -> Path:
        (data / "models" / "toy").mkdir(parents=True)
        compiled.save(data / "models" / "toy" / "1.clkm")
        return data

    compiled = toy_model()
    with (
        postgresql() as database,
        processes(
            tmp_path, fill, database, insecure=False, MAX_ADDRESS_CONNECTIONS="0", TRUSTED_PROXIES="127.0.0.1"
        ) as group,
    ):
        (tmp_path / "audit.key").write_bytes(bytes(32))
        group.common["AUDIT_KEY"] = str(tmp_path / "audit.key")
        token = new_tenant(tmp_path, "alice", database=database)
        group.start("worker")
        webs = [group.start("web"), group.start("web")]
        command, url = make(folder, *(web.port for web in webs))
        command[0] = program
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "198.51.100.7"}
        with (
            proxying(command, url, folder),
            httpx.Client(base_url=url, verify=False, trust_env=False, timeout=60, headers=headers) as http,
        ):
            user = User.of(http)
            identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
            for start in range(0, len(user.keys), step := len(user.keys) // 6 + 1):
                assert user.send(identity, start, start + step).status_code == 200
            _, body = user.encrypt(2)
            expected = user.infer(body).raise_for_status().content
            lines = [
                [line for line in web.log_lines() if line["message"] == "request" and line["tenant"] == "alice"]
                for web in webs
            ]
            assert all(any(line["method"] == "PATCH" for line in each) for each in lines), "parts went to both"
            assert {line["client"] for each in lines for line in each} <= {"198.51.100.7", "127.0.0.1"}

            webs[0].stop()
            if make is caddy:  # which looks every five seconds
                assert becomes(lambda: {http.get("/v2/models").status_code for _ in range(8)}, {200})
            for _ in range(8):
                assert user.infer(body).content == expected
