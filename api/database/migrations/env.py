"""Alembic's environment, called by `cloakwork.api.database.migrate`."""

from __future__ import annotations

from alembic import context

from cloakwork.api.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
