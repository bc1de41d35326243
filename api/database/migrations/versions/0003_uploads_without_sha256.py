"""An upload of evaluation keys may begin before its SHA-256 is known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("evaluation_keys") as table:
        table.alter_column("sha256", existing_type=sa.String(64), nullable=True)


def downgrade() -> None:
    op.execute("DELETE FROM evaluation_keys WHERE sha256 IS NULL")  # half uploads
    with op.batch_alter_table("evaluation_keys") as table:
        table.alter_column("sha256", existing_type=sa.String(64), nullable=False)
