"""Bodies in JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorBody(BaseModel):
    """Body of every answer of 400 and above."""

    error: str = Field(description="What was expected, what came, what to do.")
    code: str = Field(description="Stable; one for each kind of error.")
    request_id: str = Field(description="As in the header X-Request-Id and the operator's log.")


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class Health(BaseModel):
    status: Literal["live", "ready"]


class ModelList(BaseModel):
    models: list[str]


class Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: dict[str, Any] = Field(
        description="`fhe`: parameter set, sizes, costs and risks of the program; `inputs` and `outputs` of it are what is encrypted."
    )


class ModelReady(BaseModel):
    name: str
    version: str
    ready: bool


class RepositoryQuery(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ready": True}]})

    ready: StrictBool = Field(False, description="Only versions in service.")


class RepositoryEntry(BaseModel):
    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class RepositoryAnswer(BaseModel):
    name: str
    versions: list[str]


class RepositoryUpload(RepositoryEntry):
    bytes: int
    sha256: str = Field(description="Of the artefact, in hexadecimal.")


class KeyAnnouncement(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"parameter_set_digest": "9f2c" * 16, "bytes": 35966880, "sha256": "9f2c" * 16}]
        },
    )

    parameter_set_digest: Sha256
    bytes: Annotated[StrictInt, Field(ge=1, le=1 << 40)]
    sha256: Sha256 | None = Field(
        None,
        description="Of the whole object. Without it: the keys are still being made, every announcement opens an upload of its own.",
    )


class KeyAnswer(BaseModel):
    id: str
    parameter_set: str
    parameter_set_digest: str
    sha256: str | None = Field(
        description="Of the whole object; null where it was not announced and bytes are missing."
    )
    bytes: int
    offset: int = Field(description="Bytes that are here.")
    state: Literal["open", "ready"]
    created_at: float
    used_at: float


class KeyList(BaseModel):
    keys: list[KeyAnswer]


class ProgressAnswer(BaseModel):
    done: int
    total: int
    eta_seconds: float | None


class JobError(BaseModel):
    code: str
    message: str


class JobAnswer(BaseModel):
    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    model: str
    version: str
    key: str
    samples: int
    bootstraps: int
    priority: int
    attempts: int
    created_at: float
    deadline_at: float | None
    started_at: float | None
    finished_at: float | None
    run_seconds: float | None
    progress: ProgressAnswer | None
    result_bytes: int | None
    result_sha256: str | None
    error: JobError | None


class JobList(BaseModel):
    jobs: list[JobAnswer]


class UsageDay(BaseModel):
    day: str
    requests: int
    samples: int
    bootstraps: int
    uploaded_bytes: int


class UsageLimits(BaseModel):
    bytes: int
    bootstraps_per_day: int
    answers_per_day: int = Field(description="Answers (samples) of each model.")
    queue: int = Field(description="Requests and jobs waiting.")


class UsageAnswer(BaseModel):
    tenant: str
    bytes_stored: dict[str, int]
    bootstraps_today: int
    answers_today: dict[str, int] = Field(description="Given or waiting, by model.")
    days: list[UsageDay]
    jobs: dict[str, int]
    limits: UsageLimits
