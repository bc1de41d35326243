"""The client's side of the protocol (docs/howto/service.md): what is asked in which order."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from numpy.typing import NDArray

from cloakwork.app.client.errors import ConnectionLostError, MisbehavingServerError, ServiceError, one_line
from cloakwork.app.client.exchange import SHORT_ANSWER, ClientRequest, Conversation, Response
from cloakwork.app.client.key_kinds import KeyKind
from cloakwork.app.client.keyring import Keyring, sha256_of
from cloakwork.app.client.remote_models import RemoteBatch, RemoteBatchProgram, RemoteIndex, RemoteModel, RemoteProgram
from cloakwork.app.client.scores import Scores
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.client_steps import Stage
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.specification_limits import MOST_TEXT_BYTES, check_text

PART_BYTES: Final = 8 << 20  # of a key, in one request
_LOST_PARTS: Final = (
    8  # parts of one upload that were interrupted, or did not bring the server further, before giving up
)
_LEAST_PART: Final = 64 << 10  # bytes by which a part brings the server further that is not one of these
_WAIT_SECONDS: Final = 2.0  # between looks at a job whose events end early
JOB_SECONDS: Final = 24 * 3600.0  # that a job may take
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # of keys, jobs and versions
_MOST_STEPS: Final = 1 << 53  # of a job's progress
_FORGOTTEN_TIMES: Final = 3  # that keys are sent again for one call
_FORGOTTEN_KEY: Final = ("unknown_key", "key_required")

Progress = Callable[[str, int, int], None]
"""progress(what, done, total), `what` being "keys", "upload" or "server"."""

Witness = Callable[[bytes, bytes, Mapping[str, str]], None]
"""witness(request, answer, the answer's headers)."""


@dataclass(frozen=True)
class ServerKeys:
    """The keys of a ring that are for one server; "": those that servers share."""

    ring: Keyring
    server: str

    def key(self, kind: KeyKind[Any], progress: Progress) -> Any:
        return self.ring.key(kind, _keys_progress(progress), self.server)

    def evaluation_keys(self, kind: KeyKind[Any], progress: Progress) -> Path:
        return self.ring.evaluation_keys(kind, _keys_progress(progress), self.server)

    def have_to_be_made(self, kind: KeyKind[Any]) -> bool:
        """Whether a server cannot have had them."""
        return not self.ring.has_evaluation_keys(kind, self.server)


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


def checked_name(name: Any, what: str) -> str:
    """Checks a name that the server chose, which becomes part of a path. MisbehavingServerError: it is more than a name."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise MisbehavingServerError(
            f"{what}: expected a name of letters, digits, dots and dashes, got '{one_line(name, 40)}'"
        )
    return name


def json_of(response: Response) -> dict[str, Any]:
    try:
        fields = json.loads(response.content)
    except (ValueError, RecursionError) as error:
        raise ServiceError("expected JSON from the server, got something else; is it a cloakwork server?") from error
    if not isinstance(fields, dict):
        raise ServiceError("expected a JSON object from the server, got something else; is it a cloakwork server?")
    return fields


def describe(name: str, version: str | None) -> Conversation[RemoteModel]:
    metadata = json_of((yield ClientRequest("GET", model_path(name, version))))
    try:
        chosen = version or checked_name(metadata["versions"][-1], f"model '{name}': version")
        facts = dict(metadata["parameters"]["fhe"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ServiceError(f"model '{name}': the server's description lacks its versions or parameters.fhe") from error
    request = ClientRequest("GET", f"{model_path(name, chosen)}/client", most_bytes=MOST_TEXT_BYTES)
    text = (yield request).content.decode("utf-8", "replace")
    digest = hashlib.sha256(text.encode()).hexdigest()
    if facts.get("kind") == "index":
        return RemoteIndex(name, chosen, facts, digest, _index_client(text))
    if facts.get("kind") == "batch":
        return _batch(name, chosen, facts, digest, text)
    return RemoteProgram(name, chosen, facts, digest, ClientSpecification.from_json(text))


def _batch(name: str, version: str, facts: dict[str, Any], digest: str, text: str) -> RemoteModel:
    client = BatchClient.from_json(text)
    if client.program is None:
        return RemoteBatch(name, version, facts, digest, client)
    return RemoteBatchProgram(name, version, facts, digest, client.program, client)


def _index_client(text: str) -> NeighbourClient:
    try:
        check_text(text)
    except ValueError as error:
        raise CompileError(f"neighbours: {error}") from error
    return NeighbourClient.from_json(text)


# --- keys -------------------------------------------------------------------------------------------------------------------------


def upload_keys(
    path: Path, digest: str, progress: Progress, sha256: str | None = None
) -> Conversation[tuple[str, int]]:
    """Uploads evaluation keys: the server's name of the evaluation keys in a file, and the bytes sent for it: none when it has them, the rest when
    it has a part.

    Args:
        digest: of what they are of (`KeyKind`).
    """
    size = path.stat().st_size
    opening = {
        "parameter_set_digest": digest,
        "bytes": size,
        "sha256": sha256 or sha256_of(path),
    }
    response = yield ClientRequest("POST", "/v2/keys", json=opening)
    fields = json_of(response)
    name = checked_name(fields.get("id"), "keys: the server's name of an upload")
    if fields.get("state") == "ready":
        return name, 0
    sent = yield from _send_parts(path, f"/v2/keys/{quote(name, safe='')}", size, progress)
    return name, sent


def delete_keys(digests: Iterable[str]) -> Conversation[None]:
    """Deletes evaluation keys from the server by what is in them: also those whose announcement was not answered."""
    remaining = set(digests)
    listed = json_of((yield ClientRequest("GET", "/v2/keys"))).get("keys", []) if remaining else []
    for key in listed if isinstance(listed, list) else []:
        if isinstance(key, dict) and isinstance(key.get("sha256"), str) and key["sha256"] in remaining:
            remaining.discard(key["sha256"])  # one that is listed for ever is deleted once
            name = checked_name(key.get("id"), "keys: the server's name of one")
            yield ClientRequest("DELETE", f"/v2/keys/{quote(name, safe='')}", accepted=(404,))


def _send_parts(path: Path, location: str, size: int, progress: Progress) -> Conversation[int]:
    """From where the server stands to the end, one part after the other; after an interruption the server says how far it got.

    MisbehavingServerError: it says again and again that it got no further.
    """
    sent = lost = 0
    offset = furthest = yield from _offset(location, size)
    with path.open("rb") as stream:
        while offset < size:
            progress("upload", offset, size)
            stream.seek(offset)
            part = stream.read(min(PART_BYTES, size - offset))
            headers = {"Upload-Offset": str(offset)}
            try:
                response = yield ClientRequest("PATCH", location, repeatable=False, headers=headers, content=part)
            except ConnectionLostError:
                lost += 1
                if lost > _LOST_PARTS:
                    raise
                offset = yield from _offset(location, size)
                continue
            sent += len(part)
            offset = _stated_offset(response, offset + len(part), size)
            if offset < min(furthest + _LEAST_PART, size):
                lost += 1
            if lost > _LOST_PARTS:
                raise MisbehavingServerError(
                    f"keys: after {lost} parts the server has at most {furthest} of {size} bytes; the upload was stopped"
                )
            furthest = max(furthest, offset)
    progress("upload", size, size)
    return sent


def _offset(location: str, size: int) -> Conversation[int]:
    return _stated_offset((yield ClientRequest("HEAD", location)), 0, size)


def _stated_offset(response: Response, default: int, size: int) -> int:
    """Where the server says that it stands. MisbehavingServerError: nowhere in the file."""
    text = response.headers.get("upload-offset", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text) <= size):
        raise MisbehavingServerError(f"keys: expected an Upload-Offset of 0 to {size}, got '{one_line(text, 40)}'")
    return int(text)


# --- scoring ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scoring:
    """The scoring of samples.

    Args:
        uploads: what the server is known to have; kept up to date.
        job_seconds: that a job may take.
        witness: sees every request with its answer.
        output: of the answers.
    """

    keys: ServerKeys
    uploads: Uploads
    progress: Progress
    job_seconds: float = JOB_SECONDS
    witness: Witness | None = None
    output: Stage = "labels"


def score(scoring: Scoring, model: RemoteModel, rows: NDArray[Any]) -> Conversation[Scores]:
    """Yields the requests of encrypted predictions, in as many requests as the server's largest batch asks for.

    Args:
        rows: samples as `RemoteModel.rows` has them.
    """
    kind, names = model.keys, scoring.uploads.names
    key = scoring.keys.key(kind, scoring.progress)
    sent = forgotten = 0
    if kind.digest not in names:
        sent = yield from _upload(scoring, kind)
    parts: list[Scores] = []
    together = model.samples_together(len(rows))
    for start in range(0, len(rows), together):
        batch = rows[start : start + together]
        try:
            part = yield from _score_batch(scoring, key, model, names[kind.digest], batch)
        except ServiceError as error:
            forgotten += 1
            if error.service_code not in _FORGOTTEN_KEY or forgotten > _FORGOTTEN_TIMES:
                raise
            # The server forgot the key since the last request (expired, deleted): send it again, once.
            sent += yield from _upload(scoring, kind)
            part = yield from _score_batch(scoring, key, model, names[kind.digest], batch)
        parts.append(part)
    return replace(Scores.joined(parts), upload_bytes=sent)


def _upload(scoring: Scoring, kind: KeyKind[Any]) -> Conversation[int]:
    path, uploads = scoring.keys.evaluation_keys(kind, scoring.progress), scoring.uploads
    digest = sha256_of(path)
    uploads.digests.add(digest)
    uploads.names[kind.digest], sent = yield from upload_keys(path, kind.digest, scoring.progress, digest)
    return sent


def _score_batch(
    scoring: Scoring, key: Any, model: RemoteModel, key_name: str, rows: NDArray[Any]
) -> Conversation[Scores]:
    start = time.perf_counter()
    body = model.encrypt(key, rows)
    # The same name on every attempt: a job whose acceptance was lost is not run (and counted) twice.
    headers = {"Fhe-Key-Id": key_name, "Idempotency-Key": uuid.uuid4().hex}
    most = max(model.answer_bytes(len(rows)), SHORT_ANSWER)
    path = f"{model_path(model.name, model.version)}/infer"
    response = yield ClientRequest("POST", path, headers=headers, content=body, most_bytes=most)
    computed = _run_seconds(response.headers.get("fhe-compute-seconds"))
    if response.status == 202:
        name = checked_name(json_of(response).get("id"), "jobs: the server's name of one")
        response, computed = yield from _job_result(name, most, scoring.job_seconds, scoring.progress)
    if scoring.witness is not None:
        scoring.witness(body, response.content, response.headers)
    predictions = model.decrypt(key, response.content, rows, scoring.output)
    seconds = time.perf_counter() - start
    return Scores(predictions, seconds, computed, 0, len(body), len(response.content))


def _run_seconds(text: Any) -> float:
    """NaN where the server does not tell."""
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _job_result(name: str, most_bytes: int, seconds: float, progress: Progress) -> Conversation[tuple[Response, float]]:
    """Follows the job's events until it has ended, then takes its result, and the seconds that it ran.

    Args:
        most_bytes: of the result.
        seconds: that the job may take.
    """
    path, end = f"/v2/jobs/{quote(name, safe='')}", time.monotonic() + seconds

    def on_event(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and (steps := _steps(data)) is not None:
            progress("server", *steps)

    while True:
        yield ClientRequest("GET", f"{path}/events", on_event=on_event, until=end)
        job = json_of((yield ClientRequest("GET", path)))
        match job.get("state"):
            case "done":
                result = yield ClientRequest("GET", f"{path}/result", most_bytes=most_bytes)
                return result, _run_seconds(job.get("run_seconds"))
            case "failed" | "cancelled":
                detail = job.get("error") or {}
                reason = detail.get("message") if isinstance(detail, dict) else detail
                raise ServiceError(f"job {name}: {job['state']}: {one_line(reason or 'the server gives no reason')}")
        if time.monotonic() >= end:
            raise ServiceError(f"job {name}: it has not ended in {seconds:.0f} s; pass a larger job_timeout=")
        time.sleep(min(_WAIT_SECONDS, max(0.0, end - time.monotonic())))


def _steps(data: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns how many are done, of how many; None: the server says no such numbers."""
    done, total = data.get("done", 0), data.get("total", 1)
    if type(done) is not int or type(total) is not int or not 0 <= done <= _MOST_STEPS or not 0 <= total <= _MOST_STEPS:
        return None
    return done, max(1, total)


def _keys_progress(progress: Progress) -> Callable[[int, int], bool]:
    def report(done: int, total: int) -> bool:
        progress("keys", done, total)
        return True

    return report
