"""Versions of models with what their bytes are, and parts of uploads of evaluation keys: what services on one database share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.execute("UPDATE models SET state = 'retired' WHERE state = 'removed'")
    op.drop_table("upload_parts")
    op.drop_column("evaluation_keys", "received_bytes")
    for name in ("facts_sha256", "bytes", "kind", "artefact_sha256"):
        op.drop_column("models", name)
