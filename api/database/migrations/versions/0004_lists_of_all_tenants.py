"""Jobs, keys and API keys of all tenants by time, and bytes of jobs by tenant: pages of long lists, and sums, are found without reading the rows."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_INDICES = {
    "job_bytes_by_tenant": ("jobs", ["tenant", "state", "input_bytes", "expected_bytes", "result_bytes"]),
    "jobs_by_time": ("jobs", ["created_at", "id"]),
    "jobs_by_state_and_time": ("jobs", ["state", "created_at", "id"]),
    "keys_by_time": ("evaluation_keys", ["created_at", "id"]),
    "api_keys_by_time": ("api_keys", ["created_at", "id"]),
}


def upgrade() -> None:
    for name, (table, columns) in _INDICES.items():
        op.create_index(name, table, columns)


def downgrade() -> None:
    for name, (table, _) in _INDICES.items():
        op.drop_index(name, table)
