"""Bodies of the administrator's routes in JSON. Times are seconds since 1970 (UTC)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from cloakwork.api.routes.schemas import Body, UsageLimits
from cloakwork.api.service.tenants.tenants import NAME_PATTERN

Next = Annotated[str | None, Field(description="`after` of the next page; null at the end.")]
State = Literal["queued", "running", "done", "failed", "cancelled"]


class EngineProcessLoad(BaseModel):
    name: str = Field(description="Its device; with a number where several processes are on it.")
    answers: bool = Field(description="Within a second.")
    process: int | None = Field(description="Its process id, while there is one.")
    restarts: int
    workers: int = Field(description="Runs at a time.")
    running: int = Field(description="Runs that it has, one ahead of its workers among them.")


class EngineLoad(BaseModel):
    """Load of all engine processes together, and of each."""

    answers: bool = Field(description="Any of them, within a second.")
    restarts: int
    devices: list[str]
    workers: int = Field(description="Runs at a time.")
    processes: list[EngineProcessLoad]


class QueueLoad(BaseModel):
    waiting: int = Field(description="Requests and jobs.")
    limit: int
    seconds: float = Field(description="Until the engine is free, about.")


class NodeLoad(BaseModel):
    """One of the processes that share the database and are alive."""

    id: str
    role: Literal["all", "web", "worker"]
    release: str
    devices: list[str]
    workers: int = Field(description="Runs at a time.")
    running: int
    draining: bool = Field(description="It finishes what it has and takes nothing new.")
    heartbeat_seconds: float = Field(description="Since it was heard of.")
    uptime_seconds: float


class RunLoad(BaseModel):
    """Runs of the engine: as many as workers, and one ahead."""

    id: str
    kind: Literal["request", "job"]
    tenant: str
    model: str
    version: str
    parameter_set: str
    samples: int
    priority: int = Field(description="10: somebody waits for the answer.")
    waited_seconds: float
    seconds: float | None = Field(description="On the device so far; null before that.")
    estimated_seconds: float
    device: str | None


class KeyLoad(BaseModel):
    resident: int = Field(description="Keys in memory or on a device.")
    memory_bytes: int
    memory_limit_bytes: int
    device_bytes: int = Field(description="Expanded, on all devices together.")
    device_limit_bytes: int
    hits: int = Field(description="Runs whose key was on the device, since the engine began.")
    misses: int


class ConnectionLoad(BaseModel):
    open: int
    busy: int
    limit: int


class BodyLoad(BaseModel):
    held_bytes: int
    limit_bytes: int


class DiskLoad(BaseModel):
    free_bytes: int
    room_bytes: int = Field(description="For uploads and jobs: beyond the reserve and what is promised to others.")
    reserve_bytes: int


class RequestLoad(BaseModel):
    """The last minutes without the administrator's routes, the oldest step first."""

    step_seconds: int
    requests: list[int]
    refused: list[int] = Field(description="Of these, answered with 4xx.")
    failed: list[int] = Field(description="Of these, answered with 5xx.")
    codes: dict[str, int] = Field(description="Errors by code, in all steps.")


class LoadAnswer(BaseModel):
    version: str
    service: str = Field(description="Which of the services on one database answers; all but `jobs` is of this one.")
    uptime_seconds: float
    engine: EngineLoad
    queue: QueueLoad
    nodes: list[NodeLoad] = Field(description="Empty where the service is alone.")
    runs: list[RunLoad]
    jobs: dict[State, int]
    keys: KeyLoad
    connections: ConnectionLoad | None
    bodies: BodyLoad
    disk: DiskLoad
    requests: RequestLoad


class ModelRow(BaseModel):
    name: str
    version: str
    state: Literal["loaded", "unloaded", "retired", "removed", "structured_refused", "unavailable"]
    reason: str = Field(description="Why a version that should be served is `unavailable`; empty otherwise.")
    parameter_set: str = Field(description="Empty if `unavailable`.")
    bootstraps: int = Field(description="Of one sample; 0 if `unavailable`.")
    runs: int = Field(description="Requests and jobs that succeeded since the service began.")
    samples: int
    run_seconds: float


class ModelRows(BaseModel):
    models: list[ModelRow]
    next: Next


class DayCounts(BaseModel):
    requests: int
    samples: int
    bootstraps: int
    uploaded_bytes: int


class TenantRow(BaseModel):
    tenant: str
    created_at: float
    models: list[str] | None = Field(description="null: every model.")
    max_bytes: int | None = Field(description="null: the service's own limit, as those that follow.")
    max_bootstraps_per_day: int | None
    max_queue: int | None
    max_answers_per_day: int | None
    suspended: bool
    limits: UsageLimits
    bytes_stored: dict[str, int]
    today: DayCounts = Field(description="UTC.")
    most_answers_today: int = Field(description="Of the model that it got the most answers of.")
    waiting: int = Field(description="Requests and jobs in the queue of this service.")
    api_keys: int = Field(description="Valid ones.")


class TenantRows(BaseModel):
    tenants: list[TenantRow]
    next: Next


class ApiKeyRow(BaseModel):
    id: str = Field(description="The public part, which authenticates nobody.")
    tenant: str
    scopes: list[str]
    state: Literal["valid", "expired", "revoked"]
    created_at: float
    expires_at: float | None
    revoked_at: float | None


class ApiKeyRows(BaseModel):
    api_keys: list[ApiKeyRow]
    next: Next


class KeyRow(BaseModel):
    id: str
    tenant: str
    parameter_set: str
    bytes: int
    state: Literal["open", "ready"]
    created_at: float
    used_at: float
    expires_at: float = Field(description="If nobody uses it until then.")
    resident: bool = Field(description="In the memory or on a device of this service.")


class KeyRows(BaseModel):
    keys: list[KeyRow]
    next: Next


class JobPart(BaseModel):
    done: int
    total: int


class JobRow(BaseModel):
    id: str
    tenant: str
    model: str
    version: str
    key: str
    state: State
    priority: int
    samples: int
    bootstraps: int
    attempts: int
    input_bytes: int
    result_bytes: int | None
    created_at: float
    deadline_at: float | None
    started_at: float | None
    finished_at: float | None
    run_seconds: float | None
    progress: JobPart | None
    error_code: str | None


class JobRows(BaseModel):
    jobs: list[JobRow]
    next: Next


Count = Annotated[StrictInt, Field(ge=0, le=1 << 62)]
QueueCount = Annotated[StrictInt, Field(ge=0, le=(1 << 31) - 1)]
ModelNames = Annotated[list[Annotated[str, Field(pattern=NAME_PATTERN)]], Field(max_length=200)]


class TenantChange(Body):
    """Changes of a tenant: fields that are missing stay; null is the service's limit, or every model."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"minProperties": 1, "examples": [{"max_bytes": 8589934592, "models": None}]}
    )

    max_bytes: Count | None = None
    max_bootstraps_per_day: Count | None = None
    max_queue: QueueCount | None = None
    max_answers_per_day: Count | None = None
    models: ModelNames | None = None
    suspended: StrictBool = Field(False, description="Its API keys are refused (403), what it stored is kept.")
