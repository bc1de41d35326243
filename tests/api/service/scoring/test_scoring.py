"""The way of a request: specification, key, ciphertexts, result."""

from __future__ import annotations

import hashlib

import httpx
import numpy as np
from scoring_server import User

from cloakwork.models.compiled import CompiledModel


def agrees(found: np.ndarray, compiled: CompiledModel, x: np.ndarray) -> bool:
    """Within the little noise of the toy set."""
    return bool(np.allclose(found, np.asarray(compiled.predict(x)), atol=0.05))


def test_a_sample_is_scored(user: User, compiled: CompiledModel):
    user.upload()
    x, body = user.encrypt()
    answer = user.infer(body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "run;dur=" in answer.headers["server-timing"]
    assert len(answer.content) == user.facts["output_bytes_one_sample"]
    assert agrees(user.decrypt(answer.content), compiled, x)


def test_many_samples_of_one_request(user: User, compiled: CompiledModel):
    user.upload()
    x, body = user.encrypt(samples=17)
    found = user.decrypt(user.infer(body).content)
    assert found.shape == (17, 3) and agrees(found, compiled, x)


def test_an_answer_is_the_same_under_another_mask(user: User):
    user.upload()
    _, body = user.encrypt()
    assert user.same_answer(user.infer(body).content, user.infer(body).content)


def test_a_key_is_sent_once_and_serves_by_name_or_by_secret_key(user: User, http: httpx.Client):
    identity = user.upload()
    again = http.post("/v2/keys", json=user.announcement())
    assert (again.status_code, again.json()["state"], again.json()["id"]) == (200, "ready", identity)
    _, body = user.encrypt()
    assert user.same_answer(user.infer(body).content, user.infer(body, headers={"Fhe-Key-Id": identity}).content)


def test_without_keys_they_are_asked_for(user: User):
    _, body = user.encrypt()
    answer = user.infer(body)
    assert (answer.status_code, answer.json()["code"]) == (428, "key_required")


def test_an_upload_resumes_where_it_stopped(user: User, http: httpx.Client):
    identity = http.post("/v2/keys", json=user.announcement()).json()["id"]
    place, third = f"/v2/keys/{identity}", len(user.keys) // 3
    http.patch(place, content=user.keys[:third], headers={"Upload-Offset": "0"}).raise_for_status()
    head = http.head(place)
    assert (head.headers["upload-offset"], head.headers["upload-length"]) == (str(third), str(len(user.keys)))
    wrong = http.patch(place, content=user.keys[:third], headers={"Upload-Offset": "0"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "wrong_offset")
    _, body = user.encrypt()
    early = user.infer(body, headers={"Fhe-Key-Id": identity})
    assert (early.status_code, early.json()["code"]) == (409, "not_ready")
    done = http.patch(place, content=user.keys[third:], headers={"Upload-Offset": str(third)})
    assert done.json()["state"] == "ready"
    assert user.infer(body).status_code == 200


def test_deleted_keys_are_gone(user: User, http: httpx.Client):
    identity = user.upload()
    _, body = user.encrypt()
    assert user.infer(body).status_code == 200
    assert http.delete(f"/v2/keys/{identity}").status_code == 204
    assert user.infer(body).status_code == 428
    assert user.infer(body, headers={"Fhe-Key-Id": identity}).status_code == 404
    assert identity not in [key["id"] for key in http.get("/v2/keys").json()["keys"]]


def test_the_client_specification_has_its_digest_as_etag(http: httpx.Client):
    first = http.get("/v2/models/toy/versions/1/client")
    assert first.headers["etag"] == f'"{hashlib.sha256(first.content).hexdigest()}"'
    again = http.get("/v2/models/toy/versions/1/client", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_metadata_says_sizes_and_costs(user: User, http: httpx.Client, compiled: CompiledModel):
    facts = user.facts
    assert facts["bootstraps"] == compiled.program.bootstraps
    assert facts["evaluation_key_bytes"] == len(user.keys)
    assert facts["input_bytes_one_sample"] == len(user.encrypt()[1])
    assert http.get("/v2/models").json() == {"models": ["toy"]}
    metadata = http.get("/v2/models/toy/versions/1").json()
    assert (metadata["versions"], metadata["parameters"]["fhe"]["inputs"][0]["shape"]) == (["1"], [-1, 4])


def test_health_and_server_metadata(http: httpx.Client):
    assert http.get("/v2/health/live").json() == {"status": "live"}
    assert http.get("/v2/health/ready").json() == {"status": "ready"}
    assert (http.get("/livez").status_code, http.get("/readyz").status_code) == (200, 200)
    assert http.get("/v2").json()["name"] == "cloakwork"


def test_usage_counts_bootstraps_and_bytes(user: User, http: httpx.Client):
    before = http.get("/v2/usage").json()
    user.upload()
    user.infer(user.encrypt(samples=5)[1]).raise_for_status()
    after = http.get("/v2/usage").json()
    assert after["bootstraps_today"] - before["bootstraps_today"] == 5 * user.facts["bootstraps"]
    assert after["bytes_stored"]["keys"] - before["bytes_stored"]["keys"] == len(user.keys)


def test_metrics(user: User, http: httpx.Client):
    user.upload()
    user.infer(user.encrypt()[1]).raise_for_status()
    text = http.get("/metrics").text
    for name in (
        'fhe_requests_total{code="200",model="toy"}',
        "fhe_queue_seconds_count",
        "fhe_run_seconds_count",
        'fhe_bootstraps_total{device="cpu",set="toy_two_limb"}',
        "fhe_answers_total",
        'fhe_keys_resident_bytes{tier="device"}',
        "fhe_key_cache_hits_total",
        "fhe_key_cache_misses_total",
        "fhe_upload_bytes_total",
        'fhe_jobs{state="done"}',
    ):
        assert name in text, name
