"""Work that waits in the database for any of several workers: calls, clocks of tenants, resident keys, facts of processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_WAITING_JOBS = sa.text("state = 'queued' AND node = ''")
_WAITING_CALLS = sa.text("state = 'queued'")
_NODE_COLUMNS = (
    ("role", sa.String(8), "all"),
    ("started_at", sa.Float, "0"),
    ("release", sa.String(64), ""),
    ("devices", sa.Text, ""),
    ("workers", sa.Integer, "0"),
    ("running", sa.Integer, "0"),
    ("draining", sa.Boolean, sa.text("false")),
)


def upgrade() -> None:
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


def downgrade() -> None:
    for table in ("turns", "resident_keys", "calls"):
        op.drop_table(table)
    op.drop_index("jobs_waiting", "jobs")
    op.drop_column("jobs", "seconds")
    for name, _, _ in _NODE_COLUMNS:
        op.drop_column("nodes", name)
