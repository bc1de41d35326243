"""Versions of models: rows with their states and what their bytes are, and the catalogue of those that are served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import jobs
from cloakwork.api.database.tables import models as table
from cloakwork.api.errors import GoneError, StructuredKeysError, UnavailableError, UnknownModelError
from cloakwork.api.service.clock import now
from cloakwork.api.service.models.folder import Fault, Place, ordered, version_order
from cloakwork.api.service.models.model import Model

LOADED, UNLOADED, RETIRED, REMOVED = "loaded", "unloaded", "retired", "removed"
ENDED: Final = (RETIRED, REMOVED)
"""States of a version that never comes back; of one that is removed the bytes go as well."""


_OF_BYTES: Final = ("program_digest", "artefact_sha256", "kind", "bytes", "facts_sha256")
REFUSED: Final = "structured_refused"  # a set with a structured secret where they are not allowed; never stored
MISSING: Final = "missing"  # a row without an artefact in the folder: on its way, or taken away by hand; never stored


@dataclass(frozen=True)
class ModelRecord:
    name: str
    version: str
    program_digest: str
    state: str
    changed_at: float
    artefact_sha256: str | None  # None: an earlier release wrote the row, or it is not published
    kind: str | None
    bytes: int | None  # 0: nothing is left of the artefact
    facts_sha256: str | None = None  # of the object that has its facts

    @classmethod
    def of(cls, model: Model, state: str, size: int) -> ModelRecord:
        return cls(model.name, model.version, model.digest, state, now(), model.artefact_sha256, model.kind, size)

    @property
    def place(self) -> Place:
        return self.name, self.version


class ModelRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[Place, ModelRecord]:
        async with self._database.read() as connection:
            rows = (await connection.execute(select(table))).all()
        return {(row.name, row.version): ModelRecord(**row._mapping) for row in rows}

    async def claim(self, record: ModelRecord) -> ModelRecord:
        """Claims the row of a version whose bytes are in the object storage: this very one, or that of the service that was first."""
        try:
            async with self._database.write() as connection:
                await connection.execute(insert(table).values(**record.__dict__))
            return record
        except IntegrityError:
            known = {name: getattr(record, name) for name in _OF_BYTES}
            unclaimed = _at(record.place) & table.c.artefact_sha256.is_(None) & table.c.state.not_in(ENDED)
            async with self._database.write() as connection:
                await connection.execute(update(table).where(unclaimed).values(**known))
                row = (await connection.execute(select(table).where(_at(record.place)))).one()
            return ModelRecord(**row._mapping)

    async def put(self, record: ModelRecord) -> bool:
        """Writes the row of a version whose file is in this service's folder alone; False where one that has ended is there."""
        values = dict(record.__dict__)
        try:
            async with self._database.write() as connection:
                done = await connection.execute(
                    update(table).where(_at(record.place), table.c.state.not_in(ENDED)).values(**values)
                )
                if not done.rowcount:
                    await connection.execute(insert(table).values(**values))
            return True
        except IntegrityError:
            return False

    async def change(self, name: str, state: str, known: Iterable[ModelRecord]) -> None:
        """Changes every version of a model that has not ended; of those that are known there may be no row yet."""
        values = {"state": state, "changed_at": now()}
        where = (table.c.name == name) & table.c.state.not_in(ENDED)
        async with self._database.write() as connection:
            await connection.execute(update(table).where(where).values(**values))
            rows = select(table.c.version).where(table.c.name == name)
            there = {str(version) for version in (await connection.execute(rows)).scalars()}
            for record in known:
                if record.version not in there:
                    await connection.execute(insert(table).values(**replace(record, state=state).__dict__))

    async def end(self, record: ModelRecord, state: str) -> None:
        """Ends a version for good."""
        values = {"state": state, "changed_at": now()}
        async with self._database.write() as connection:
            done = await connection.execute(update(table).where(_at(record.place)).values(**values))
            if not done.rowcount:
                await connection.execute(insert(table).values(**replace(record, state=state).__dict__))

    async def emptied(self, record: ModelRecord) -> None:
        """Records that nothing is left of its bytes in the storage that services share."""
        async with self._database.write() as connection:
            await connection.execute(update(table).where(_at(record.place)).values(bytes=0))

    async def needed(self) -> set[Place]:
        """Returns versions that are needed by jobs that have not ended."""
        query = select(jobs.c.model, jobs.c.version).where(jobs.c.state.in_(("queued", "running"))).distinct()
        async with self._database.read() as connection:
            return {(row.model, row.version) for row in (await connection.execute(query)).all()}


def _at(place: Place) -> ColumnElement[bool]:
    name, version = place
    return (table.c.name == name) & (table.c.version == version)


class Catalogue:
    """Models of sets with structured secrets are known and not in service unless they are allowed."""

    def __init__(self, structured: bool, is_shared: bool) -> None:
        self._structured = structured
        self._is_shared = is_shared
        self._versions: dict[str, dict[str, Model]] = {}
        self._rows: dict[Place, ModelRecord] = {}
        self._faults: dict[Place, Fault] = {}
        self._read = False

    def names(self) -> list[str]:
        return sorted(self._versions)

    def require_read(self) -> None:
        """Raises UnavailableError: they are not."""
        if not self._read:
            raise UnavailableError(
                "the service is starting: it reads its models; wait until GET /v2/health/ready answers 200",
                retry_after=1,
            )

    def versions(self, name: str) -> list[Model]:
        """Returns loaded versions, oldest first."""
        known = self._versions.get(name)
        self.require_read()
        if known is None:
            raise no_model(name)
        return [model for version, model in ordered(known.items()) if self._state(name, version) == LOADED]

    def find(self, name: str, version: str | None = None) -> Model:
        """Returns the newest loaded version, or a given one."""
        loaded = self.versions(name)
        if version is None:
            if not loaded:
                self._refuse_structured(name, self._versions[name].values())
                self._refuse_coming(name, None)
                self._refuse_faulty(name, None)
                raise GoneError(
                    f"model '{name}' has no version in service; POST /v2/repository/models/{name}/load loads it"
                )
            return loaded[-1]
        state = self._stored_state(name, version)
        if state in ENDED:
            raise GoneError(
                f"version '{version}' of model '{name}' is retired; use version {[m.version for m in loaded]}"
            )
        if version not in self._versions[name]:
            self._refuse_coming(name, version)
            self._refuse_faulty(name, version)
            raise UnknownModelError(f"model '{name}' has no version '{version}'; it has {[m.version for m in loaded]}")
        self._refuse_structured(name, [self._versions[name][version]])
        if state == UNLOADED:
            raise GoneError(
                f"version '{version}' of model '{name}' is not in service; use version {[m.version for m in loaded]}"
            )
        return self._versions[name][version]

    def accepted(self, name: str, version: str) -> Model:
        """Returns the model of an accepted job: a version that was unloaded or retired since still ends what was begun with it."""
        model = self._versions.get(name, {}).get(version)
        return model if model is not None else self.find(name, version)

    def index(self) -> list[dict[str, str]]:
        """Returns every version with its state, as the repository extension of the Open Inference Protocol has it; also those that are not in the
        folder, whose numbers are taken."""
        states = {(model.name, model.version): state for model, state in self.every()}
        states |= {place: fault.reason for place, fault in self.faults()}
        for place, row in self._rows.items():
            states.setdefault(place, row.state if row.state in ENDED else MISSING)
        return [
            {
                "name": name,
                "version": version,
                "state": "READY" if state == LOADED else "UNAVAILABLE",
                "reason": "" if state == LOADED else state,
            }
            for (name, version), state in sorted(
                states.items(), key=lambda each: (each[0][0], version_order(each[0][1]))
            )
        ]

    def every(self) -> list[tuple[Model, str]]:
        """Returns every version of the folder with its state, by name and version."""
        return [
            (model, self._state(name, version))
            for name in self.names()
            for version, model in ordered(self._versions[name].items())
        ]

    def _state(self, name: str, version: str) -> str:
        state = self._stored_state(name, version)
        return REFUSED if state == LOADED and self._is_refused(self._versions[name][version]) else state

    def _is_refused(self, model: Model) -> bool:
        return model.structured_secret and not self._structured

    def _refuse_structured(self, name: str, versions: Iterable[Model]) -> None:
        for model in versions:
            if self._is_refused(model) and self._state(name, model.version) == REFUSED:
                raise StructuredKeysError.of(f"model '{name}'", str(model.facts["parameter_set"]))

    def _stored_state(self, name: str, version: str) -> str:
        row = self._rows.get((name, version))
        return LOADED if row is None else row.state

    def faults(self) -> list[tuple[Place, Fault]]:
        """Returns versions that should be in service and cannot be."""
        return [(place, fault) for place, fault in sorted(self._faults.items()) if self._stored_state(*place) == LOADED]

    def fault(self, place: Place) -> Fault | None:
        return self._faults.get(place)

    def require_served(self) -> None:
        """Requires that every version that should be in service is.

        Raises:
            UnavailableError: a version that should be in service is not, of whatever model.
        """
        for (name, version), fault in self.faults():
            raise _faulty(name, version, fault)

    def _refuse_faulty(self, name: str, version: str | None) -> None:
        for place, fault in self.faults():
            if place[0] == name and version in (None, place[1]):
                raise _faulty(*place, fault)

    def row(self, place: Place) -> ModelRecord | None:
        return self._rows.get(place)

    def _refuse_coming(self, name: str, version: str | None) -> None:
        """Other services have it: its bytes are on the way."""
        for (of, which), row in self._rows.items():
            coming = row.state == LOADED and row.artefact_sha256 is not None and which not in self._versions[of]
            if self._is_shared and of == name and version in (None, which) and coming:
                raise UnavailableError(
                    f"version '{which}' of model '{name}' is on its way to this service", retry_after=2
                )


def _faulty(name: str, version: str, fault: Fault) -> UnavailableError:
    return UnavailableError(
        f"version '{version}' of model '{name}' cannot be served: {fault.reason}; its operator has to repair or remove it",
        retry_after=30,
    )


def no_model(name: str) -> UnknownModelError:
    return UnknownModelError(f"there is no model '{name}'; GET /v2/models lists them")
