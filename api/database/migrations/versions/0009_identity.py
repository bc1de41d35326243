"""Identity of the storage that a database belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identity",
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("value", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("identity")
