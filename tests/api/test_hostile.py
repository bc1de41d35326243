"""Bodies and requests that mean harm: a 4xx with a reason, nothing kept, nobody kept waiting."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from in_process import serving
from scoring_server import Server, User, eventually

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.fhe_core.wire.layout import HEADER_BYTES, Kind, Planes, section_layout


def refused(answer: httpx.Response, status: int, code: str | None = None) -> str:
    """The reason."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    found = answer.json()
    assert found["request_id"] == answer.headers["x-request-id"]
    assert code is None or found["code"] == code, found
    return str(found["error"])


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b"reset"


def raw(server: Server, head: str, body: bytes = b"", seconds: float = 20) -> bytes:
    """What comes back for these bytes; b"reset" when the server hangs up before it has read them all."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        answer = b""
        try:
            connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + body)
        except ConnectionError:
            return b"reset"
        while part := _received(connection):
            if part == b"reset":
                return answer or part
            answer += part
            head_end = answer.find(b"\r\n\r\n")
            if head_end >= 0 and b"content-length" in answer[:head_end].lower():
                length = int(answer[:head_end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
                if len(answer) >= head_end + 4 + length:
                    break
        return answer


# --- ciphertexts ---


def test_truncated_and_extended_ciphertexts(user: User):
    user.upload()
    _, body = user.encrypt()
    for wrong in (b"", body[:1], body[:100], body[:-1], body + b"\0", body * 2):
        refused(user.infer(wrong), 422)
    refused(user.infer(b"\0" * len(body)), 422)


def test_more_samples_than_fit(user: User):
    most = user.facts["largest_batch"]
    assert most >= 1
    refused(user.infer(b"\0" * (user.facts["input_bytes_one_sample"] * (most + 1))), 413, "too_large")


def test_every_flipped_bit_of_header_and_body_is_found(user: User):
    user.upload()
    _, body = user.encrypt()
    rng = np.random.default_rng(0)
    places = [*range(128), *rng.integers(128, len(body), 40)]
    for place in places:
        altered = bytearray(body)
        altered[place] ^= 1 << int(rng.integers(8))
        answer = user.infer(bytes(altered))
        assert 400 <= answer.status_code < 500, (place, answer.status_code, answer.text)


def test_ciphertexts_of_another_key(user: User, http: httpx.Client):
    key = user.upload()
    _, body = User.of(http).encrypt()
    refused(user.infer(body), 428, "key_required")
    refused(user.infer(body, headers={"Fhe-Key-Id": key}), 409, "wrong_parameters")


def test_ciphertexts_of_another_parameter_set(user: User):
    user.upload()
    other = ClientKey.generate(parameter_set("toy"))
    body = other.encrypt_packed(np.zeros((1, 4)), encoding=Encoding.TORUS).to_bytes()
    grown = body + b"\0" * (user.facts["input_bytes_one_sample"] - len(body))
    assert 400 <= user.infer(body).status_code < 500
    assert 400 <= user.infer(grown).status_code < 500


def test_ciphertexts_of_another_model(user: User):
    """Of the same set and shape; those of releases that did not say the model; and a model that is lied about."""
    user.upload()
    _, body = user.encrypt()
    encrypted = SeededPackedCiphertexts.from_bytes(body)
    other = encrypted.with_purpose(hashlib.sha256(b"another model").digest()).to_bytes()
    assert len(other) == len(body)
    for route in (user.infer, lambda content: user.http.post(f"/v2/models/{user.model}/jobs", content=content)):
        assert "another model" not in (reason := refused(route(other), 409, "wrong_model"))
        assert "client specification" in reason and user.specification.program.hex()[:16] in reason
        assert "earlier release" in refused(route(encrypted.with_purpose(None).to_bytes()), 409, "wrong_model")
    cleared = bytearray(body)
    cleared[7] &= ~2
    refused(user.infer(bytes(cleared)), 422)
    with pytest.raises(KeyMismatchError, match="another model"):
        replace(user.specification, program=bytes(32)).decrypt(user.key, load_results(user.infer(body).content))


def test_another_kind_of_object(user: User):
    user.upload()
    full = user.key.encrypt_packed(np.zeros((1, 4)), seeded=False, encoding=Encoding.TORUS).to_bytes()
    refused(user.infer(full), 422 if len(full) <= user.facts["input_bytes_one_sample"] * 100 else 413)
    wrong_shape = user.key.encrypt_packed(np.zeros((1, 3)), encoding=Encoding.TORUS)
    assert "shape" in refused(user.infer(wrong_shape.with_purpose(user.specification.program).to_bytes()), 422)


def test_a_made_up_shape_does_not_take_memory(user: User):
    user.upload()
    body = bytearray(user.encrypt()[1])
    body[112:120] = (1 << 40).to_bytes(8, "little")
    refused(user.infer(bytes(body)), 422)


# --- keys ---


def test_a_secret_key_is_refused_at_its_first_bytes(user: User, server: Server, http: httpx.Client, tmp_path: Path):
    user.key.save(tmp_path / "client.key", "passphrase")
    secret = (tmp_path / "client.key").read_bytes()
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    for part in (secret, secret[:7]):
        answer = http.patch(f"/v2/keys/{identity}", content=part, headers={"Upload-Offset": "0"})
        assert "secret key" in refused(answer, 422, "secret_key_refused")
        assert http.head(f"/v2/keys/{identity}").headers["upload-offset"] == "0"
    padded = (secret + b"\0" * user.facts["input_bytes_one_sample"])[: user.facts["input_bytes_one_sample"]]
    refused(user.infer(padded), 422, "secret_key_refused")
    kept = [path for path in server.data.rglob("*") if path.is_file() and secret[112:160] in path.read_bytes()]
    assert kept == []


def test_keys_that_are_not_what_was_announced(user: User, http: httpx.Client):
    identity = http.post("/v2/keys", json=user.announcement(sha256="0" * 64)).json()["id"]
    answer = http.patch(f"/v2/keys/{identity}", content=user.keys, headers={"Upload-Offset": "0"})
    refused(answer, 422, "checksum_mismatch")
    head = http.head(f"/v2/keys/{identity}")
    assert head.headers["upload-offset"] == "0"
    damaged = bytearray(user.keys)
    damaged[len(damaged) // 2] ^= 1
    announced = user.announcement(sha256=hashlib.sha256(damaged).hexdigest())
    identity = http.post("/v2/keys", json=announced).json()["id"]
    answer = http.patch(f"/v2/keys/{identity}", content=bytes(damaged), headers={"Upload-Offset": "0"})
    refused(answer, 422, "checksum_mismatch")
    refused(user.infer(user.encrypt()[1]), 428)


def test_keys_of_another_parameter_set(user: User, http: httpx.Client):
    other = ClientKey.generate(parameter_set("toy")).evaluation_keys().to_bytes()
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    answer = http.patch(f"/v2/keys/{identity}", content=other[:100_000], headers={"Upload-Offset": "0"})
    assert 400 <= answer.status_code < 500
    # A whole key of another set is a key, but not for this model.
    digest = parameter_digest(parameter_set("toy")).hex()
    content = {"bytes": len(other), "sha256": hashlib.sha256(other).hexdigest()}
    identity = http.post("/v2/keys", json={"parameter_set_digest": digest, **content}).json()["id"]
    http.patch(f"/v2/keys/{identity}", content=other, headers={"Upload-Offset": "0"}).raise_for_status()
    refused(user.infer(user.encrypt()[1], headers={"Fhe-Key-Id": identity}), 409, "wrong_parameters")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"parameter_set_digest": "0" * 64}, 409),
        ({"bytes": 5}, 422),
        ({"bytes": 10**10}, 413),
        ({"bytes": -1}, 422),
        ({"bytes": "many"}, 422),
        ({"sha256": "zz"}, 422),
        ({"surplus": 1}, 422),
    ],
)
def test_announcements_that_cannot_be(user: User, changes: dict[str, Any], status: int):
    refused(user.http.post("/v2/keys", json=user.announcement(**changes)), status)


@pytest.mark.parametrize("what", ["every-word", "one-word"])
def test_words_above_the_modulus_are_refused_with_their_upload(user: User, http: httpx.Client, what: str):
    """A key whose checksums are right and whose content is not."""
    made_up = bytearray(user.keys)
    begin = HEADER_BYTES
    for section in section_layout(Kind.EVALUATION_KEYS, user.key.parameters, True, ()):
        if isinstance(section, Planes):
            break
        begin += section.byte_count
    if what == "every-word":
        made_up[begin:-32] = b"\xff" * (len(made_up) - begin - 32)
    else:  # the most significant byte of the section's last word: planes of bytes, from the least significant one on
        made_up[begin + section.byte_count - 1] = 0xFF
    made_up[-32:] = hashlib.sha256(made_up[:-32]).digest()
    content = {"bytes": len(made_up), "sha256": hashlib.sha256(made_up).hexdigest()}
    identity = http.post("/v2/keys", json=user.announcement(**content)).json()["id"]
    answer = http.patch(f"/v2/keys/{identity}", content=bytes(made_up), headers={"Upload-Offset": "0"})
    assert "below" in refused(answer, 422, "malformed")
    assert http.head(f"/v2/keys/{identity}").headers["upload-offset"] == "0", "nothing of it is kept"
    refused(user.infer(user.encrypt()[1], headers={"Fhe-Key-Id": identity}), 409, "not_ready")


def test_more_than_was_announced(user: User, http: httpx.Client):
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    answer = http.patch(f"/v2/keys/{identity}", content=user.keys + b"\0", headers={"Upload-Offset": "0"})
    refused(answer, 413, "too_large")


# --- the way in ---


def test_ten_gigabytes_are_refused_before_they_are_read(server: Server, user: User, http: httpx.Client):
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    for line in ("POST /v2/models/toy/infer", "POST /v2/models/toy/jobs", f"PATCH /v2/keys/{identity}"):
        head = f"{line} HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 10000000000\nUpload-Offset: 0\n\n"
        answer = raw(server, head)
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
        assert b"connection: close" in answer.lower()


def test_a_body_without_length(server: Server):
    answer = raw(server, "POST /v2/models/toy/infer HTTP/1.1\nHost: 127.0.0.1\nTransfer-Encoding: chunked\n\n")
    assert answer.startswith(b"HTTP/1.1 411 ")


@pytest.mark.parametrize(
    "head",
    [
        "NONSENSE\n\n",
        "GET /v2 HTTP/1.1\nHost: 127.0.0.1\nContent-Length: -5\n\n",
        "GET /v2 HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 5\nContent-Length: 6\n\n",
        "POST /v2/models/toy/infer HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 5\nTransfer-Encoding: chunked\n\n",
        "GET /v2 HTTP/1.1\nHost: 127.0.0.1\nX-Long: " + "a" * 100_000,
        "GET /v2 HTTP/1.1\nHost: evil.example\n\n",
    ],
    ids=["no-http", "negative", "two-lengths", "length-and-chunks", "long-header", "rebinding"],
)
def test_requests_that_are_none(server: Server, head: str):
    answer = raw(server, head)
    # A head that is too long is refused while the rest of it is under way: the answer may be lost to a reset.
    assert answer.startswith(b"HTTP/1.1 4") or (len(head) > 65536 and answer == b"reset")


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/..%2f..%2fetc%2fpasswd",
        "/v2/models/%2e%2e/client",
        "/v2/models/toy/versions/..%2f1/client",
        "/v2/models/toy%00/client",
        "/v2/models/" + "a" * 5000,
        "/v2/keys/..%2f..%2fcloakwork.db",
        "/v2/jobs/../../cloakwork.db/result",
        "/v2/jobs/%2e%2e%2fcloakwork.db/result",
        "/v2/models/toy/versions/%EF%BC%91",
        "/docs/../../etc/passwd",
    ],
)
def test_tricks_in_paths(http: httpx.Client, path: str):
    answer = http.get(httpx.URL(http.base_url).copy_with(raw_path=path.encode()))
    assert answer.status_code in (404, 422), answer.text
    assert "root:" not in answer.text


def test_a_client_that_sends_too_slowly(tmp_path: Path, fill: Callable[[Path], Path]):
    limits = {"HEADER_SECONDS": "0.5", "BODY_IDLE_SECONDS": "0.5"}
    with serving(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        length = len(user.encrypt()[1])
        for start in ("", "GET /v2 HTTP/1.1\nHost: 127", "GET /v2 HTTP/1.1\nHost: 127.0.0.1\n\nGET /v2 HTTP/1.1\nHost"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(start.replace("\n", "\r\n").encode())
                while _received(connection):
                    pass
        started = raw(
            server, f"POST /v2/models/toy/infer HTTP/1.1\nHost: 127.0.0.1\nContent-Length: {length}\n\n", b"CLKW"
        )
        assert started.startswith(b"HTTP/1.1 408 ")
        identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
        head = f"PATCH /v2/keys/{identity} HTTP/1.1\nHost: 127.0.0.1\nUpload-Offset: 0\nContent-Length: {len(user.keys)}\n\n"
        assert raw(server, head, user.keys[:1000]).startswith(b"HTTP/1.1 408 ")
        assert http.head(f"/v2/keys/{identity}").headers["upload-offset"] == "1000"


def test_an_upload_that_breaks_off_is_kept_so_far(server: Server, user: User, http: httpx.Client):
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    place = f"/v2/keys/{identity}"
    head = f"PATCH {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpload-Offset: 0\r\nContent-Length: {len(user.keys)}\r\n\r\n"

    def offset() -> int:
        return int(http.head(place).headers["upload-offset"])

    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + user.keys[:50_000])
        assert eventually(lambda: offset() > 0)

    def goes_on() -> bool:
        answer = http.patch(place, content=user.keys[offset() :], headers={"Upload-Offset": str(offset())})
        return answer.status_code == 200 and answer.json()["state"] == "ready"

    assert eventually(goes_on), "when the broken request has ended"
    assert user.infer(user.encrypt()[1]).status_code == 200


def test_answers_carry_security_headers(http: httpx.Client):
    for answer in (http.get("/v2"), http.get("/nowhere"), http.post("/v2/models/toy/infer", content=b"x")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-request-id"]
    assert http.get("/v2", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert http.get("/v2", headers={"X-Request-Id": 'a"{}'}).headers["x-request-id"] != 'a"{}'
