"""Columns for the time of turns when work was queued, and for how far it has to move yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_COLUMNS = (("calls", "turn_time"), ("jobs", "turn_time"), ("turns", "served"), ("turns", "sharers"))


def upgrade() -> None:
    for table, column in _COLUMNS:
        op.add_column(table, sa.Column(column, sa.Float, nullable=False, server_default="0"))


def downgrade() -> None:
    for table, column in reversed(_COLUMNS):
        op.drop_column(table, column)
