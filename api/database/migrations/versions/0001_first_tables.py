"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
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
    _create_jobs()
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


def _create_jobs() -> None:
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


def downgrade() -> None:
    for table in ("nodes", "usage", "jobs", "models", "evaluation_keys", "api_keys", "tenants"):
        op.drop_table(table)
