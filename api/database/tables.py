"""The tables. Times are seconds since 1970 (UTC); `steps.py` makes them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata = MetaData()

TENANT_ROW: Final = 64  # characters of identifiers

tenants = Table(
    "tenants",
    metadata,
    Column("id", String(TENANT_ROW), primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("max_bytes", BigInteger),  # None: the service's default
    Column("max_bootstraps_per_day", BigInteger),
    Column("max_queue", Integer),
    Column("max_answers_per_day", BigInteger),
    Column("models", Text),  # names separated by spaces; None: all
    Column("suspended", Boolean, nullable=False, server_default=false()),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(16), primary_key=True),  # the public part of the token
    Column("tenant", String(TENANT_ROW), nullable=False, index=True),
    Column("token_sha256", String(64), nullable=False),  # of 256 random bits: a slow hash would add nothing
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Index("api_keys_by_time", "created_at", "id"),
)

evaluation_keys = Table(
    "evaluation_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(TENANT_ROW), nullable=False),
    Column("parameter_set", String(32), nullable=False),
    Column("parameter_digest", String(64), nullable=False),
    Column("sha256", String(64)),  # None: an upload that was opened before its content was known
    Column("bytes", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),  # open, ready, refused
    Column("secret_id", String(32)),  # the key id of the wire format, when ready
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("received_bytes", BigInteger, nullable=False, server_default="0"),  # of an upload whose parts are objects
    UniqueConstraint("tenant", "parameter_digest", "sha256", name="one_key_per_tenant_and_content"),
    Index("keys_by_time", "created_at", "id"),
)

upload_parts = Table(  # of uploads that every service on the database goes on with: adjacent, from 0 to received_bytes
    "upload_parts",
    metadata,
    Column("evaluation_key", String(32), primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("name", String(128), nullable=False),  # of the object
)

models = Table(
    "models",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("version", String(32), primary_key=True),
    Column("program_digest", String(64), nullable=False),
    Column("state", String(16), nullable=False),  # loaded, unloaded, retired, removed
    Column("changed_at", Float, nullable=False),
    Column("artefact_sha256", String(64)),  # None: of an earlier release, which knew the state alone
    Column("kind", String(16)),
    Column("bytes", BigInteger),  # of the artefact; 0: nothing is left of it
    Column("facts_sha256", String(64)),  # of the object that has its facts
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(TENANT_ROW), nullable=False),
    Column("model", String(64), nullable=False),
    Column("version", String(32), nullable=False),
    Column("program_digest", String(64), nullable=False),
    Column("evaluation_key", String(32), nullable=False),
    Column("state", String(16), nullable=False),  # queued, running, done, failed, cancelled
    Column("priority", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("bootstraps", BigInteger, nullable=False),
    Column("input_bytes", BigInteger, nullable=False),
    Column("expected_bytes", BigInteger, nullable=False, server_default="0"),  # of the result, while there is none
    Column("idempotency_key", String(128)),
    Column("request_sha256", String(64), nullable=False),
    Column("seconds", Float, nullable=False, server_default="0"),  # of the engine, estimated
    Column("turn_time", Float, nullable=False, server_default="0"),  # of its level in `turns`, when it was queued
    Column("node", String(32), nullable=False),  # which process has it; '': none yet
    Column("attempts", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("deadline_at", Float),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("run_seconds", Float),
    Column("result_name", String(80)),
    Column("result_bytes", BigInteger),
    Column("result_sha256", String(64)),
    Column("error_code", String(64)),
    Column("error_message", Text),
    UniqueConstraint("tenant", "idempotency_key", name="one_job_per_idempotency_key"),
    Index("jobs_by_state", "state", "node"),
    Index("jobs_by_tenant", "tenant", "created_at"),
    Index("job_bytes_by_tenant", "tenant", "state", "input_bytes", "expected_bytes", "result_bytes"),
    Index("jobs_by_time", "created_at", "id"),
    Index("jobs_by_state_and_time", "state", "created_at", "id"),
    Index(
        "jobs_waiting",
        "tenant",
        text("priority DESC"),
        "created_at",
        postgresql_where=text("state = 'queued' AND node = ''"),
        sqlite_where=text("state = 'queued' AND node = ''"),
    ),
)

usage = Table(
    "usage",
    metadata,
    Column("tenant", String(TENANT_ROW), primary_key=True),
    Column("day", String(10), primary_key=True),  # UTC, as 2026-11-21
    Column("requests", BigInteger, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("bootstraps", BigInteger, nullable=False),
    Column("uploaded_bytes", BigInteger, nullable=False),
)

answers = Table(  # that a tenant got of a model, all versions together: samples
    "answers",
    metadata,
    Column("tenant", String(TENANT_ROW), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("model", String(64), primary_key=True),
    Column("answers", BigInteger, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("heartbeat_at", Float, nullable=False),  # by the database's clock
    Column("role", String(8), nullable=False, server_default="all"),
    Column("started_at", Float, nullable=False, server_default="0"),
    Column("release", String(64), nullable=False, server_default=""),
    Column("devices", Text, nullable=False, server_default=""),  # separated by spaces
    Column("workers", Integer, nullable=False, server_default="0"),  # runs at a time
    Column("running", Integer, nullable=False, server_default="0"),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
)

identity = Table(  # one row: the storage of this database carries the same value
    "identity",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("value", String(32), nullable=False),
)

# The next three exist again after a crash of the database, empty: steps make them UNLOGGED on PostgreSQL.

calls = Table(
    "calls",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(TENANT_ROW), nullable=False),
    Column("web", String(32), nullable=False),  # the process whose client waits
    Column("model", String(64), nullable=False),
    Column("version", String(32), nullable=False),
    Column("program_digest", String(64), nullable=False),
    Column("evaluation_key", String(32), nullable=False),
    Column("samples", Integer, nullable=False),
    Column("seconds", Float, nullable=False),  # of the engine, estimated
    Column("state", String(16), nullable=False),  # queued, leased, done, failed
    Column("worker", String(32), nullable=False),  # '': none
    Column("attempts", Integer, nullable=False),
    Column("created_at", Float, nullable=False),  # by the database's clock
    Column("turn_time", Float, nullable=False, server_default="0"),  # in `turns`, when it was queued
    Column("input", LargeBinary),  # None: in the storage
    Column("output", LargeBinary),  # None: in the storage, or there is none
    Column("outcome", Text),  # the engine's last message, JSON
    Index(
        "calls_waiting",
        "tenant",
        "created_at",
        postgresql_where=text("state = 'queued'"),
        sqlite_where=text("state = 'queued'"),
    ),
    Index("calls_by_worker", "worker"),
    Index("calls_by_web", "web"),
)

resident_keys = Table(
    "resident_keys",
    metadata,
    Column("evaluation_key", String(32), primary_key=True),
    Column("node", String(32), primary_key=True),
)

turns = Table(  # clocks of start-time fair queueing; tenant '' is the time of all
    "turns",
    metadata,
    Column("level", Integer, primary_key=True),
    Column("tenant", String(TENANT_ROW), primary_key=True),
    Column("clock", Float, nullable=False),
    Column("served", Float, nullable=False, server_default="0"),  # of the time of all: by what the next run moves it
    Column("sharers", Float, nullable=False, server_default="0"),  # among whom those seconds were divided
)
