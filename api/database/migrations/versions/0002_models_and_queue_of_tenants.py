"""Tenants have models and a queue of their own; jobs say how large their result will be. Who was there before keeps all models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("max_queue", sa.Integer))
    op.add_column("tenants", sa.Column("models", sa.Text))
    op.add_column("jobs", sa.Column("expected_bytes", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("jobs", "expected_bytes")
    op.drop_column("tenants", "models")
    op.drop_column("tenants", "max_queue")
