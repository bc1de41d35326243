"""The client's side of the protocol (docs/service.md): what is asked in which order."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from numpy.typing import NDArray

from cloakwork.app.client.errors import ConnectionLostError, ServiceError
from cloakwork.app.client.exchange import Conversation, Request, Response
from cloakwork.app.client.key_kinds import KeyKind
from cloakwork.app.client.keyring import Keyring, sha256_of
from cloakwork.app.client.remote_models import RemoteIndex, RemoteModel, RemoteProgram
from cloakwork.app.client.scores import Scores
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.program.client_specification import ClientSpecification

PART_BYTES: Final = 8 << 20  # of a key, in one request
_LOST_PARTS: Final = 8  # interrupted parts of one upload before giving up
_WAIT_SECONDS: Final = 2.0  # between looks at a job whose events end early
_FORGOTTEN_KEY: Final = ("unknown_key", "key_required")

Progress = Callable[[str, int, int], None]
"""progress(what, done, total), `what` being "keys", "upload" or "server"."""

Witness = Callable[[bytes, bytes, Mapping[str, str]], None]
"""witness(request, answer, the answer's headers)."""


@dataclass
class Uploads:
    """Evaluation keys of a client on its server."""

    names: dict[str, str] = field(
        default_factory=dict
    )  # the server's, by the digest of what they are of, of those that are complete
    digests: set[str] = field(default_factory=set)  # SHA-256 of all that were announced, complete or not


def model_path(name: str, version: str | None = None) -> str:
    path = f"/v2/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(version, safe='')}"


def json_of(response: Response) -> dict[str, Any]:
    try:
        fields = json.loads(response.content)
    except (ValueError, RecursionError) as error:
        raise ServiceError("the server answered with something else than JSON; is it a cloakwork server?") from error
    if not isinstance(fields, dict):
        raise ServiceError("the server answered with something else than a JSON object; is it a cloakwork server?")
    return fields


def describe(name: str, version: str | None) -> Conversation[RemoteModel]:
    metadata = json_of((yield Request("GET", model_path(name, version))))
    try:
        chosen = version or str(metadata["versions"][-1])
        facts = dict(metadata["parameters"]["fhe"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ServiceError(f"model '{name}': the server's description lacks its versions or parameters.fhe") from error
    text = (yield Request("GET", f"{model_path(name, chosen)}/client")).content.decode("utf-8", "replace")
    if facts.get("kind") == "index":
        return RemoteIndex(name, chosen, facts, NeighbourClient.from_json(text))
    return RemoteProgram(name, chosen, facts, ClientSpecification.from_json(text))


# --- keys -------------------------------------------------------------------------------------------------------------------------


def upload_keys(
    path: Path, digest: str, progress: Progress, sha256: str | None = None
) -> Conversation[tuple[str, int]]:
    """The server's name of the evaluation keys in a file, and the bytes sent for it: none when it has them, the rest when it has a part.

    Args:
        digest: of what they are of (`KeyKind`).
    """
    size = path.stat().st_size
    opening = {
        "parameter_set_digest": digest,
        "bytes": size,
        "sha256": sha256 or sha256_of(path),
    }
    response = yield Request("POST", "/v2/keys", json=opening)
    fields = json_of(response)
    name = str(fields.get("id", ""))
    if not name:
        raise ServiceError("keys: the server opened an upload without naming it")
    if fields.get("state") == "ready":
        return name, 0
    sent = yield from _send_parts(path, f"/v2/keys/{quote(name, safe='')}", size, progress)
    return name, sent


def delete_keys(digests: Iterable[str]) -> Conversation[None]:
    """Deletes evaluation keys from the server by what is in them: also those whose announcement was not answered."""
    wanted = set(digests)
    listed = json_of((yield Request("GET", "/v2/keys"))).get("keys", []) if wanted else []
    for key in listed:
        if isinstance(key, dict) and key.get("sha256") in wanted:
            yield Request("DELETE", f"/v2/keys/{quote(str(key.get('id')), safe='')}", accepted=(404,))


def _send_parts(path: Path, location: str, size: int, progress: Progress) -> Conversation[int]:
    """From where the server stands to the end, one part after the other; after an interruption the server says how far it got."""
    sent = lost = 0
    offset = yield from _offset(location)
    with path.open("rb") as stream:
        while offset < size:
            progress("upload", offset, size)
            stream.seek(offset)
            part = stream.read(min(PART_BYTES, size - offset))
            headers = {"Upload-Offset": str(offset)}
            try:
                response = yield Request("PATCH", location, repeatable=False, headers=headers, content=part)
            except ConnectionLostError:
                lost += 1
                if lost > _LOST_PARTS:
                    raise
                offset = yield from _offset(location)
                continue
            sent += len(part)
            offset = _number(response, "upload-offset", offset + len(part))
    progress("upload", size, size)
    return sent


def _offset(location: str) -> Conversation[int]:
    response = yield Request("HEAD", location)
    return _number(response, "upload-offset", 0)


def _number(response: Response, header: str, default: int) -> int:
    try:
        return int(response.headers.get(header, default))
    except ValueError as error:
        raise ServiceError(f"the server's header {header} is not a number") from error


# --- scoring ----------------------------------------------------------------------------------------------------------------------


def score(
    keyring: Keyring,
    uploads: Uploads,
    model: RemoteModel,
    rows: NDArray[Any],
    progress: Progress,
    witness: Witness | None = None,
) -> Conversation[Scores]:
    """Encrypted predictions in as many requests as the server's largest batch asks for.

    Args:
        uploads: what the server is known to have; kept up to date.
        rows: samples as `RemoteModel.rows` has them.
        witness: sees every request with its answer.
    """
    kind = model.keys
    key = keyring.key(kind, _keys_progress(progress))
    sent = 0
    if kind.digest not in uploads.names:
        sent = yield from _upload(keyring, uploads, kind, progress)
    parts: list[Scores] = []
    together = model.samples_together(len(rows))
    for start in range(0, len(rows), together):
        batch = rows[start : start + together]
        try:
            part = yield from _score_batch(key, model, uploads.names[kind.digest], batch, progress, witness)
        except ServiceError as error:
            if error.service_code not in _FORGOTTEN_KEY:
                raise
            # The server forgot the key since the last request (expired, deleted): send it again, once.
            sent += yield from _upload(keyring, uploads, kind, progress)
            part = yield from _score_batch(key, model, uploads.names[kind.digest], batch, progress, witness)
        parts.append(part)
    return replace(Scores.joined(parts), upload_bytes=sent)


def _upload(keyring: Keyring, uploads: Uploads, kind: KeyKind[Any], progress: Progress) -> Conversation[int]:
    path = keyring.evaluation_keys(kind, _keys_progress(progress))
    digest = sha256_of(path)
    uploads.digests.add(digest)
    uploads.names[kind.digest], sent = yield from upload_keys(path, kind.digest, progress, digest)
    return sent


def _score_batch(
    key: Any,
    model: RemoteModel,
    key_name: str,
    rows: NDArray[Any],
    progress: Progress,
    witness: Witness | None,
) -> Conversation[Scores]:
    start = time.perf_counter()
    body = model.encrypt(key, rows)
    # The same name on every attempt: a job whose acceptance was lost is not run (and counted) twice.
    headers = {"Fhe-Key-Id": key_name, "Idempotency-Key": uuid.uuid4().hex}
    response = yield Request("POST", f"{model_path(model.name, model.version)}/infer", headers=headers, content=body)
    computed = _run_seconds(response)
    if response.status == 202:
        response, computed = yield from _job_result(str(json_of(response).get("id", "")), progress)
    if witness is not None:
        witness(body, response.content, response.headers)
    predictions = model.decrypt(key, response.content, rows)
    seconds = time.perf_counter() - start
    return Scores(predictions, seconds, computed, 0, len(body), len(response.content))


def _run_seconds(response: Response) -> float:
    """NaN where the server does not tell."""
    try:
        return float(response.headers.get("fhe-compute-seconds", "nan"))
    except ValueError:
        return math.nan


def _job_result(name: str, progress: Progress) -> Conversation[tuple[Response, float]]:
    """Follows the job's events until it has ended, then takes its result, and the seconds that it ran."""
    path = f"/v2/jobs/{quote(name, safe='')}"

    def on_event(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress":
            progress("server", int(data.get("done", 0)), max(1, int(data.get("total", 1))))

    while True:
        yield Request("GET", f"{path}/events", on_event=on_event)
        job = json_of((yield Request("GET", path)))
        match job.get("state"):
            case "done":
                result = yield Request("GET", f"{path}/result")
                return result, float(job.get("run_seconds") or math.nan)
            case "failed" | "cancelled":
                detail = job.get("error") or {}
                reason = detail.get("message") if isinstance(detail, dict) else detail
                raise ServiceError(f"job {name}: {job['state']}: {reason or 'the server gives no reason'}")
        time.sleep(_WAIT_SECONDS)


def _keys_progress(progress: Progress) -> Callable[[int, int], bool]:
    def report(done: int, total: int) -> bool:
        progress("keys", done, total)
        return True

    return report
