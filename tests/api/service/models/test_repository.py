"""Models come, are unloaded, and retire; TLS; the idle service is small."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from in_process import Clock, Restarts, serving
from scoring_server import Server, User, becomes, running, toy_model

IDLE_BYTES = 200 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    with serving(fill(tmp_path_factory.mktemp("repository") / "data")) as started:
        yield started


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_an_idle_service_is_small(tmp_path: Path, fill: Callable[[Path], Path]):
    with running(fill(tmp_path / "data")) as server:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        processes = [process, *process.children(recursive=True)]
        assert len(processes) == 2, "the web process and the engine"
        assert sum(each.memory_info().rss for each in processes) < IDLE_BYTES


def test_a_model_comes_goes_and_retires(server: Server, http: httpx.Client):
    folder = server.data / "models" / "other"
    assert http.post("/v2/repository/models/other/load").status_code == 404
    folder.mkdir()
    toy_model(seed=1).save(folder / "1.clkm")
    toy_model(seed=2).save(folder / "2.clkm")
    assert http.post("/v2/repository/models/other/load").json() == {"name": "other", "versions": ["1", "2"]}
    user = User.of(http, "other")
    user.upload()
    _, body = user.encrypt()
    newest = user.infer(body)
    assert newest.headers["fhe-model-version"] == "2"
    assert user.same_answer(http.post("/v2/models/other/versions/2/infer", content=body).content, newest.content)
    older = http.post("/v2/models/other/versions/1/infer", content=body)
    assert (older.status_code, older.json()["code"]) == (409, "wrong_model")

    assert http.delete("/v2/repository/models/other/versions/2").status_code == 204
    retired = http.post("/v2/models/other/versions/2/infer", content=body)
    assert (retired.status_code, retired.json()["code"]) == (410, "gone")
    first = User.of(http, "other").specification.encrypt(user.key, np.zeros((1, 4))).to_bytes()
    assert user.infer(first).headers["fhe-model-version"] == "1"

    assert http.post("/v2/repository/models/other/unload").json() == {"name": "other", "versions": []}
    assert user.infer(first).status_code == 410
    assert "other" not in http.get("/v2/models").json()["models"]
    states = {(e["name"], e["version"]): (e["state"], e["reason"]) for e in http.post("/v2/repository/index").json()}
    assert states["other", "1"] == ("UNAVAILABLE", "unloaded")
    assert states["other", "2"] == ("UNAVAILABLE", "retired")
    ready = http.post("/v2/repository/index", json={"ready": True}).json()
    assert [entry["name"] for entry in ready] == ["toy"]
    assert http.post("/v2/repository/models/other/load").json() == {"name": "other", "versions": ["1"]}


def test_a_damaged_artefact_is_not_served_and_does_not_stop_the_others(server: Server, http: httpx.Client):
    folder = server.data / "models" / "damaged"
    folder.mkdir()
    (folder / "1.clkm").write_bytes((server.data / "models" / "toy" / "1.clkm").read_bytes()[:-1])
    assert http.post("/v2/repository/models/damaged/load").status_code == 422
    assert http.get("/v2/models/toy").status_code == 200
    assert any("damaged/1.clkm" in line["message"] for line in server.log_lines())


def test_states_outlive_the_service(tmp_path: Path, fill: Callable[[Path], Path], restart: Restarts):
    with restart.running(fill(tmp_path / "data")) as server, server.client() as http:
        http.post("/v2/repository/models/toy/unload").raise_for_status()
        restart.of(server)
        with server.client() as again:
            assert again.get("/v2/models/toy").status_code == 410
            again.post("/v2/repository/models/toy/load").raise_for_status()
            assert again.get("/v2/models/toy").status_code == 200


def test_finished_jobs_and_keys_expire(tmp_path: Path, fill: Callable[[Path], Path], clock: Clock):
    short = {"RESULT_RETENTION_SECONDS": "1e4", "KEY_RETENTION_SECONDS": "1e5", "RETENTION_CHECK_SECONDS": "0.1"}
    with serving(fill(tmp_path / "data"), environment=short) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        server.do(server.services.housekeeping._retention())
        assert http.get(f"/v2/jobs/{job}").status_code == 200
        clock.pass_seconds(2e4)
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").status_code, 404)
        assert len(http.get("/v2/keys").json()["keys"]) == 1
        clock.pass_seconds(1e5)
        assert becomes(lambda: http.get("/v2/keys").json(), {"keys": []})
        files = [path.name for path in (server.data / "objects").rglob("*") if path.is_file()]
        assert files == ["identity"]


@pytest.mark.os_entropy  # TLS
def test_tls(tmp_path: Path, fill: Callable[[Path], Path]):
    certificate, key = self_signed(tmp_path)
    paths = {"TLS_CERTIFICATE": str(certificate), "TLS_KEY": str(key), "HEADER_SECONDS": "2"}
    with serving(fill(tmp_path / "data"), environment=paths) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"https://127.0.0.1:{server.port}/v2", verify=context, trust_env=False)
        assert answer.status_code == 200 and "max-age" in answer.headers["strict-transport-security"]
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
            assert silent.recv(1) == b""  # no handshake, no connection


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    )
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return paths
