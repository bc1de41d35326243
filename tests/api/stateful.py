"""Sequences of requests that follow OpenAPI's links, with bodies of real clients: schemathesis draws the sequences, `Traffic` what they carry.

A fault does not end a run: it is kept once for each kind, with the requests before it.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx
import hypothesis
import schemathesis
from hypothesis.errors import Flaky
from schemathesis import Case, GenerationMode, Response
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.stateful import APIStateMachine
from schemathesis.specs.openapi.checks import (
    ensure_resource_availability,
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
    use_after_free,
)
from scoring_server import User

from cloakwork.models.compiler import CompiledModel
from cloakwork.models.program.artefact import program_to_bytes

KEPT: Final = "toy"  # the model that no request takes away
_NAMES: Final = ("m0", "m1", "m2")
_SAMPLES: Final = (1, 2, 2000)  # the last runs for a second or two, beside what follows
_BEFORE: Final = 12  # requests that are shown before a fault
_OF_SINGLE_REQUESTS: Final = (positive_data_acceptance, negative_data_rejection, unsupported_method)
_SETTINGS: Final = hypothesis.settings(
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
    stateful_step_count=60,
)


@dataclass(frozen=True)
class Job:
    """What was asked for, and by whom."""

    user: User
    body: bytes
    program: str
    tenant: str


@dataclass
class Traffic:
    """Clients of two tenants, `mine` with all scopes and `theirs` with `score`; tokens are empty if the service asks for none."""

    users: list[User]
    programs: list[CompiledModel]
    tokens: dict[str, str]
    seed: int
    spare: str = ""  # an API key that may be revoked: its public part
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=_BEFORE))
    scenarios: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._artefacts = [program_to_bytes(each.program) for each in self.programs]
        self._bodies = [[user.encrypt(samples)[1] for samples in _SAMPLES] for user in self.users]
        self._uploads: dict[str, tuple[User, str]] = {}  # and the tenant, by the key's identity
        self._versions = {(KEPT, "1"): "0"}  # the program of each
        self._jobs: dict[str, Job] = {}
        self._deleted: set[str] = set()  # keys
        self._answers: dict[tuple[int, bytes, str], bytes] = {}
        self._sent: Job | None = None

    def begin(self) -> None:
        """Upload the keys of a client, so that some are there from the beginning."""
        self.scenarios += 1
        user = self._random.choice(self.users)
        key = user.http.post("/v2/keys", json=user.announcement()).raise_for_status().json()
        self._uploads.setdefault(key["id"], (user, "mine"))
        self._send_rest(key)

    # --- before a request ---

    def prepare(self, case: Case) -> str:
        """Give the case what a client would send; the tenant that sends it."""
        tenant = "theirs" if self._random.random() < 0.1 else "mine"
        self._sent = None
        case.headers.pop("Authorization", None)  # the tenant's is sent
        self._aim(case)
        body = self._body(case, tenant)
        if body is not None:
            case.body = body
        for name, value in case.headers.items():  # a link may have given a number
            case.headers[name] = str(value)
        return tenant

    def _aim(self, case: Case) -> None:
        """At a model that is there; what takes a model, a tenant or an API key away, at others than all the rest needs."""
        path, method, values = case.operation.path, case.operation.method, case.path_parameters
        if "model" in values and values["model"] not in (KEPT, *_NAMES):
            values["model"] = KEPT
        if values.get("model") == KEPT and (path.endswith("/unload") or method in ("put", "delete")):
            values["model"] = self._random.choice(_NAMES)
        if "version" in values and method != "put" and self._random.random() < 0.9:
            known = [version for model, version in self._versions if model == values["model"]]
            values["version"] = values["version"] if values["version"] in known else self._random.choice(known or ["1"])
        if "tenant" in values:
            values["tenant"] = "theirs"
        if values.get("api_key") in [token.split("_")[1] for token in self.tokens.values()]:
            values["api_key"] = self.spare or "0" * 16
        if "idempotency-key" in case.headers:
            case.headers["idempotency-key"] = self._random.choice("abc")

    def _body(self, case: Case, tenant: str) -> Any:
        path, method = case.operation.path, case.operation.method
        if path == "/v2/keys" and method == "post":
            user = self._random.choice(self.users)
            return user.announcement(**({"sha256": None} if self._random.random() < 0.2 else {}))
        if method == "patch" and path == "/v2/keys/{key}":
            return self._part(case)
        if method == "put":
            return self._random.choice(self._artefacts)
        if path.endswith(("/infer", "/jobs")) and method == "post":
            return self._ciphertexts(case, tenant)
        return None

    def _part(self, case: Case) -> bytes:
        """The rest, or half of it."""
        user, _ = self._uploads.get(str(case.path_parameters["key"]), (self.users[0], ""))
        offset = case.headers.get("upload-offset", "0")
        left = user.keys[int(offset) :] if str(offset).isdigit() else b""
        return left[: len(left) // 2] if self._random.random() < 0.2 else left

    def _ciphertexts(self, case: Case, tenant: str) -> bytes:
        known = self._uploads.get(str(case.headers.get("fhe-key-id")))
        if known is None:
            case.headers.pop("fhe-key-id", None)
        user = known[0] if known and self._random.random() < 0.9 else self._user_with_keys(tenant)
        body = self._random.choices(self._bodies[self.users.index(user)], (10, 5, 1))[0]
        self._sent = Job(user, body, "", tenant)
        return body

    def _user_with_keys(self, tenant: str) -> User:
        """If there is one."""
        live = [each for identity, each in self._uploads.items() if identity not in self._deleted]
        return self._random.choice([user for user, owner in live if owner == tenant] or self.users)

    # --- after it ---

    def look(self, case: Case, response: Response, tenant: str) -> Iterator[str]:
        """What is wrong with an answer beside its form."""
        label = case.operation.label
        self.statuses[label, response.status_code] += 1
        self.latest.append(f"{tenant} {case.method} {case.formatted_path} -> {response.status_code}")
        if not 200 <= response.status_code < 300:
            return
        path, method = case.operation.path, case.operation.method
        if label == "POST /v2/keys":
            self._remember_key(response, tenant)
        elif method == "put":
            values = case.path_parameters
            self._versions[str(values["model"]), str(values["version"])] = str(self._artefacts.index(case.body))
        elif "{key}" in path and method == "delete":
            self._deleted.add(str(case.path_parameters["key"]))
        elif path == "/v2/keys/{key}":
            if self.is_deleted(case):
                yield "a key that was deleted is there"
            yield from self._whose(self._uploads.get(str(case.path_parameters["key"]), (None, tenant))[1], tenant)
            if method == "patch":
                self._became(str(case.path_parameters["key"]), response.json()["id"])
        elif path.startswith("/v2/jobs/{job}"):
            job = self._jobs.get(str(case.path_parameters["job"]))
            yield from self._whose(job.tenant if job else tenant, tenant)
            if job and path.endswith("/result") and method == "get" and response.status_code == 200:
                yield from self._is_right(job, response.content)
        elif self._sent is not None:
            yield from self._scored(case, response, self._sent)

    def _remember_key(self, response: Response, tenant: str) -> None:
        sent = json.loads(response.request.body or b"{}")
        for user in self.users:
            if sent.get("sha256") in (None, user.announcement()["sha256"]):
                self._uploads.setdefault(response.json()["id"], (user, tenant))
        if tenant == "mine" and self._random.random() < 0.7:  # or other requests send it, in parts
            self._send_rest(response.json())

    def _send_rest(self, key: dict[str, Any]) -> None:
        user, _ = self._uploads[key["id"]]
        if key["state"] == "open":
            done = user.send(key["id"], key["offset"]).raise_for_status().json()
            self._became(key["id"], done["id"])

    def _became(self, before: str, after: str) -> None:
        """Keys that are the same as those of another upload get its identity with their last part."""
        known = self._uploads.get(before)
        self._uploads |= {after: known} if known else {}
        self._deleted |= {before} - {after}

    def is_deleted(self, case: Case) -> bool:
        """Whether its key was, by its tenant or an administrator."""
        return case.path_parameters.get("key") in self._deleted

    def _whose(self, owner: str, tenant: str) -> Iterator[str]:
        if self.tokens and owner != tenant:
            yield f"{tenant} reads what {owner} owns"

    def _scored(self, case: Case, response: Response, sent: Job) -> Iterator[str]:
        if response.status_code == 202:
            job = response.json()
            sent = Job(sent.user, sent.body, self._versions.get((job["model"], job["version"]), ""), sent.tenant)
            first = self._jobs.setdefault(job["id"], sent)
            if first.body != sent.body or (self.tokens and first.tenant != sent.tenant):
                yield "another request got the job of an idempotency key"
            return
        version = response.headers["fhe-model-version"][0]
        program = self._versions.get((str(case.path_parameters["model"]), version), "")
        yield from self._is_right(Job(sent.user, sent.body, program, sent.tenant), response.content)

    def _is_right(self, job: Job, answer: bytes) -> Iterator[str]:
        """Every answer to one body is the same but for its re-randomisation."""
        if not job.program:
            return
        first = self._answers.setdefault((self.users.index(job.user), job.body, job.program), answer)
        if len(first) != len(answer) or not job.user.same_answer(first, answer):
            yield "another answer than the first one"

    def keep(self, kind: str, label: str, message: str) -> None:
        self.faults.setdefault((kind, label), f"{message}\n  " + "\n  ".join(self.latest))


def _machine(schema: Any, traffic: Traffic, end: float) -> type[APIStateMachine]:
    class Machine(schema.as_state_machine()):  # type: ignore[misc]
        tenant = "mine"

        def setup(self) -> None:
            traffic.begin()

        def before_call(self, case: Case) -> None:
            if time.monotonic() > end:
                raise TimeoutError
            self.tenant = traffic.prepare(case)

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            token = traffic.tokens.get(self.tenant)
            return {"timeout": 120.0, **({"headers": {"Authorization": f"Bearer {token}"}} if token else {})}

        def validate_response(self, response: Response, case: Case, *_: Any, **options: Any) -> None:
            for message in traffic.look(case, response, self.tenant):
                traffic.keep("Traffic", case.operation.label, message)
            left_out = list(_OF_SINGLE_REQUESTS)
            if self.tenant == "theirs" or traffic.is_deleted(case):
                left_out += [ensure_resource_availability, ignored_auth]
            if _was_cancelled(case, response):
                left_out.append(use_after_free)
            try:
                case.validate_response(
                    response, excluded_checks=left_out, transport_kwargs=options, recorder=self.recorder
                )
            except FailureGroup as group:
                for failure in group.exceptions:
                    traffic.keep(type(failure).__name__, case.operation.label, str(failure))

    return Machine


def _was_cancelled(case: Case, response: Response) -> bool:
    """A job that has not ended is cancelled by its deletion, and stays."""
    path = case.operation.path
    if path == "/v2/jobs/{job}/events":
        return True
    return path == "/v2/jobs/{job}" and response.status_code == 200 and response.json()["state"] == "cancelled"


def session(
    url: str, traffic: Traffic, *, seconds: float = float("inf"), rounds: int = 1 << 30, each: int = 20
) -> None:
    """Rounds of scenarios with seeds that follow from the traffic's, until the time is over. What is wrong is in `traffic.faults`."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.generation.update(modes=[GenerationMode.POSITIVE])
    end = time.monotonic() + seconds
    settings = hypothesis.settings(_SETTINGS, max_examples=each)
    for number in range(rounds):
        machine = hypothesis.seed(traffic.seed * 1000 + number)(_machine(schema, traffic, end))
        try:
            with suppress(Flaky):  # what a service answers depends on what it did before
                machine.run(settings=settings)
        except TimeoutError:
            return


def covered(http: httpx.Client, traffic: Traffic) -> tuple[set[str], int]:
    """The operations that were answered with 200 to 206, and how many there are."""
    paths = http.get("/openapi.json").json()["paths"]
    good = {label for label, status in traffic.statuses if 200 <= status < 300}
    return good, sum(len(operations) for operations in paths.values())
