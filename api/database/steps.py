"""Steps that make the tables, and bring those of every earlier release to this one's form. A database names the last step that it has had."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

if TYPE_CHECKING:  # a running service does not carry Alembic in memory
    from alembic.operations import Operations

_LIST_INDICES: Final = {
    "job_bytes_by_tenant": ("jobs", ["tenant", "state", "input_bytes", "expected_bytes", "result_bytes"]),
    "jobs_by_time": ("jobs", ["created_at", "id"]),
    "jobs_by_state_and_time": ("jobs", ["state", "created_at", "id"]),
    "keys_by_time": ("evaluation_keys", ["created_at", "id"]),
    "api_keys_by_time": ("api_keys", ["created_at", "id"]),
}
_WAITING_JOBS: Final = sa.text("state = 'queued' AND node = ''")
_WAITING_CALLS: Final = sa.text("state = 'queued'")
_NODE_COLUMNS: Final = (
    ("role", sa.String(8), "all"),
    ("started_at", sa.Float, "0"),
    ("release", sa.String(64), ""),
    ("devices", sa.Text, ""),
    ("workers", sa.Integer, "0"),
    ("running", sa.Integer, "0"),
    ("draining", sa.Boolean, sa.text("false")),
)
_TURN_COLUMNS: Final = (("calls", "turn_time"), ("jobs", "turn_time"), ("turns", "served"), ("turns", "sharers"))


def first_tables(op: Operations) -> None:
    """Makes the first tables."""
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("max_bytes", sa.BigInteger),
        sa.Column("max_bootstraps_per_day", sa.BigInteger),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False, index=True),
        sa.Column("token_sha256", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
    )
    op.create_table(
        "evaluation_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("parameter_set", sa.String(32), nullable=False),
        sa.Column("parameter_digest", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("secret_id", sa.String(32)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float, nullable=False),
        sa.UniqueConstraint("tenant", "parameter_digest", "sha256", name="one_key_per_tenant_and_content"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("program_digest", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
    )
    _create_jobs(op)
    op.create_table(
        "usage",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("bootstraps", sa.BigInteger, nullable=False),
        sa.Column("uploaded_bytes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("heartbeat_at", sa.Float, nullable=False),
    )


def _create_jobs(op: Operations) -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("program_digest", sa.String(64), nullable=False),
        sa.Column("evaluation_key", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("bootstraps", sa.BigInteger, nullable=False),
        sa.Column("input_bytes", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", sa.String(128)),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("node", sa.String(32), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("deadline_at", sa.Float),
        sa.Column("started_at", sa.Float),
        sa.Column("finished_at", sa.Float),
        sa.Column("run_seconds", sa.Float),
        sa.Column("result_name", sa.String(80)),
        sa.Column("result_bytes", sa.BigInteger),
        sa.Column("result_sha256", sa.String(64)),
        sa.Column("error_code", sa.String(64)),
        sa.Column("error_message", sa.Text),
        sa.UniqueConstraint("tenant", "idempotency_key", name="one_job_per_idempotency_key"),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "node"])
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "created_at"])


def models_and_queue_of_tenants(op: Operations) -> None:
    """Gives tenants models and a queue of their own, and jobs the size of their result. Who was there before keeps all models."""
    op.add_column("tenants", sa.Column("max_queue", sa.Integer))
    op.add_column("tenants", sa.Column("models", sa.Text))
    op.add_column("jobs", sa.Column("expected_bytes", sa.BigInteger, nullable=False, server_default="0"))


def uploads_without_sha256(op: Operations) -> None:
    """Lets an upload of evaluation keys begin before its SHA-256 is known."""
    with op.batch_alter_table("evaluation_keys") as table:
        table.alter_column("sha256", existing_type=sa.String(64), nullable=True)


def lists_of_all_tenants(op: Operations) -> None:
    """Indexes jobs, keys and API keys by time, and bytes of jobs by tenant: pages of long lists, and sums, are found without reading the rows."""
    for name, (table, columns) in _LIST_INDICES.items():
        op.create_index(name, table, columns)


def suspended_tenants(op: Operations) -> None:
    """Lets tenants be suspended: their API keys are refused, what they stored stays."""
    op.add_column("tenants", sa.Column("suspended", sa.Boolean, nullable=False, server_default=sa.false()))


def models_and_parts_for_every_service(op: Operations) -> None:
    """Adds what services on one database share: what the bytes of models are, and parts of uploads of evaluation keys."""
    op.add_column("models", sa.Column("artefact_sha256", sa.String(64)))
    op.add_column("models", sa.Column("kind", sa.String(16)))
    op.add_column("models", sa.Column("bytes", sa.BigInteger))
    op.add_column("models", sa.Column("facts_sha256", sa.String(64)))
    op.add_column("evaluation_keys", sa.Column("received_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "upload_parts",
        sa.Column("evaluation_key", sa.String(32), primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
    )


def work_of_a_fleet(op: Operations) -> None:
    """Adds work that waits for any of several workers: calls, clocks of tenants, resident keys, facts of processes."""
    for name, kind, default in _NODE_COLUMNS:
        op.add_column("nodes", sa.Column(name, kind, nullable=False, server_default=default))
    op.add_column("jobs", sa.Column("seconds", sa.Float, nullable=False, server_default="0"))
    op.create_index(
        "jobs_waiting",
        "jobs",
        ["tenant", sa.text("priority DESC"), "created_at"],
        postgresql_where=_WAITING_JOBS,
        sqlite_where=_WAITING_JOBS,
    )
    # Nothing here need survive a crash of the database: who waits for an answer asks again.
    unlogged = ["UNLOGGED"] if op.get_bind().dialect.name == "postgresql" else []
    op.create_table(
        "calls",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        *(sa.Column(name, sa.String(32), nullable=False) for name in ("web", "version", "evaluation_key", "worker")),
        *(sa.Column(name, sa.String(64), nullable=False) for name in ("model", "program_digest")),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("samples", "attempts")),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("seconds", "created_at")),
        sa.Column("state", sa.String(16), nullable=False),
        *(sa.Column(name, sa.LargeBinary) for name in ("input", "output")),
        sa.Column("outcome", sa.Text),
        prefixes=unlogged,
    )
    op.create_index(
        "calls_waiting",
        "calls",
        ["tenant", "created_at"],
        postgresql_where=_WAITING_CALLS,
        sqlite_where=_WAITING_CALLS,
    )
    op.create_index("calls_by_worker", "calls", ["worker"])
    op.create_index("calls_by_web", "calls", ["web"])
    op.create_table(
        "resident_keys",
        sa.Column("evaluation_key", sa.String(32), primary_key=True),
        sa.Column("node", sa.String(32), primary_key=True),
        prefixes=unlogged,
    )
    op.create_table(
        "turns",
        sa.Column("level", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("clock", sa.Float, nullable=False),
        prefixes=unlogged,
    )


def answers_of_models(op: Operations) -> None:
    """Limits and counts the answers of each model that a tenant gets on a day."""
    op.add_column("tenants", sa.Column("max_answers_per_day", sa.BigInteger))
    op.create_table(
        "answers",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("model", sa.String(64), primary_key=True),
        sa.Column("answers", sa.BigInteger, nullable=False),
    )


def identity(op: Operations) -> None:
    """Adds the identity of the storage that a database belongs to."""
    op.create_table(
        "identity",
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("value", sa.String(32), nullable=False),
    )


def turns_when_queued(op: Operations) -> None:
    """Adds the time of turns when work was queued, and how far it has to move yet."""
    for table, column in _TURN_COLUMNS:
        op.add_column(table, sa.Column(column, sa.Float, nullable=False, server_default="0"))


STEPS: Final[tuple[Callable[[Operations], None], ...]] = (
    first_tables,
    models_and_queue_of_tenants,
    uploads_without_sha256,
    lists_of_all_tenants,
    suspended_tenants,
    models_and_parts_for_every_service,
    work_of_a_fleet,
    answers_of_models,
    identity,
    turns_when_queued,
)


def revision(steps: int) -> str:
    """Names a number of steps, as the table `alembic_version` does."""
    return f"{steps:04}"


NEWEST: Final = revision(len(STEPS))
