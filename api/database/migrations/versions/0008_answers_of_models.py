"""Limits and counts of the answers of each model that a tenant gets on a day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("max_answers_per_day", sa.BigInteger))
    op.create_table(
        "answers",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("model", sa.String(64), primary_key=True),
        sa.Column("answers", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("answers")
    op.drop_column("tenants", "max_answers_per_day")
