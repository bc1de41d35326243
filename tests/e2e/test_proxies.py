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
from scoring_server import User, becomes, new_tenant, running, toy_model
from self_signed import certificate

from tests.deploy_files import tool

PROXIES = Path(__file__).resolve().parents[2] / "deploy" / "proxy"
START_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def nginx(folder: Path, service: int) -> tuple[list[str], str]:
    """Its command, and where it listens: with TLS."""
    plain, tls = free_port(), free_port()
    text = (PROXIES / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"listen \[::\].*;\n", "", text)
    text = text.replace("listen 80;", f"listen 127.0.0.1:{plain};").replace("listen 443 ", f"listen 127.0.0.1:{tls} ")
    text = re.sub(r"/etc/ssl/fhe.example/\w+\.pem", str(certificate(folder / "service.pem")), text)
    text = text.replace("127.0.0.1:8123", f"127.0.0.1:{service}")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths} {text} }}"
    )
    return ["nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")], f"https://127.0.0.1:{tls}"


def caddy(folder: Path, service: int) -> tuple[list[str], str]:
    """Without TLS: it would put an authority of its own among those that this machine trusts."""
    port = free_port()
    text = (PROXIES / "Caddyfile").read_text(encoding="utf-8")
    text = text.replace("{$SITE:localhost}", f"http://127.0.0.1:{port}")
    text = text.replace("{$UPSTREAMS:http://127.0.0.1:8123}", f"http://127.0.0.1:{service}")
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
def test_keys_answers_and_events_go_through(make: Callable[[Path, int], tuple[list[str], str]], tmp_path: Path):
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
