"""The steps that make the tables: from every release's tables the same ones come, and a later release's are refused."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.pool import StaticPool

from cloakwork.api.database.migrate import migrate
from cloakwork.api.database.steps import NEWEST, STEPS, revision
from cloakwork.api.database.tables import metadata
from cloakwork.fhe_core.errors import ParameterError


def after(*steps: int) -> Engine:
    """A database that was brought so far, one release after the other."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    for each in steps:
        with engine.begin() as connection:
            migrate(connection, each)
            assert connection.execute(text("SELECT version_num FROM alembic_version")).all() == [(revision(each),)]
    return engine


def form(engine: Engine) -> dict[str, object]:
    inspector = inspect(engine)
    return {
        name: (
            {column["name"]: (str(column["type"]), column["nullable"]) for column in inspector.get_columns(name)},
            sorted(str(index["name"]) for index in inspector.get_indexes(name)),
        )
        for name in sorted(inspector.get_table_names())
    }


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_every_earlier_release_ends_at_the_same_tables(steps: int):
    newest = form(after(len(STEPS)))
    assert form(after(steps, len(STEPS), len(STEPS))) == newest
    assert set(newest) == {*metadata.tables, "alembic_version"} and revision(len(STEPS)) == NEWEST
    for name, table in metadata.tables.items():
        columns = newest[name][0]  # type: ignore[index]
        assert set(columns) == set(table.columns.keys())


def test_the_tables_of_a_later_release_are_refused():
    engine = after(len(STEPS))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    with engine.begin() as connection, pytest.raises(ParameterError, match="revision 0999, of a later release"):
        migrate(connection)
