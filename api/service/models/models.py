"""The models that are served: the folder of `cloakwork.models.repository`, read, with a state of each version in the database."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sqlalchemy import select

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import models
from cloakwork.api.errors import GoneError, StructuredKeysError, UnavailableError, UnknownModelError
from cloakwork.api.service.clock import now
from cloakwork.api.service.models.index_model import IndexModel
from cloakwork.api.service.models.key_parameters import KeyParameters
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.models.program_model import ProgramModel
from cloakwork.api.service.names import NAME_PATTERN, VERSION_PATTERN
from cloakwork.api.service.tenants.tenants import Tenant

LOADED, UNLOADED, RETIRED = "loaded", "unloaded", "retired"
REFUSED = "structured_keys_refused"  # a set with a structured secret where they are not allowed; never stored

_KINDS: Final[dict[str, tuple[type[Model], str]]] = {
    ProgramModel.kind: (ProgramModel, ".clkm"),
    IndexModel.kind: (IndexModel, ".clkn"),
}

_log = logging.getLogger("cloakwork.repository")


class Models:
    """Models of sets with structured secrets are known and not in service unless they are allowed."""

    def __init__(self, repository: Path, database: Database, zoo: bool, structured_keys: bool = False) -> None:
        self.repository = repository
        self._database = database
        self._zoo = zoo
        self._structured_keys = structured_keys
        self._versions: dict[str, dict[str, Model]] = {}
        self._states: dict[tuple[str, str], str] = {}
        self._scanning = asyncio.Lock()
        self._read = False
        repository.mkdir(parents=True, exist_ok=True)

    def of(self, tenant: Tenant) -> TenantModels:
        """What this tenant sees of them."""
        return TenantModels(self, tenant)

    # --- asking ---

    def names(self) -> list[str]:
        return sorted(self._versions)

    def require_read(self) -> None:
        """UnavailableError: they are not."""
        if not self._read:
            raise UnavailableError("the service is starting: it reads its models", retry_after=1)

    def versions(self, name: str) -> list[Model]:
        """Loaded versions, oldest first."""
        known = self._versions.get(name)
        self.require_read()
        if known is None:
            raise _no_model(name)
        return [model for version, model in _ordered(known.items()) if self._state(name, version) == LOADED]

    def find(self, name: str, version: str | None = None) -> Model:
        """The newest loaded version, or a given one."""
        loaded = self.versions(name)
        if version is None:
            if not loaded:
                self._refuse_structured(name, self._versions[name].values())
                raise GoneError(
                    f"model '{name}' has no version in service; POST /v2/repository/models/{name}/load loads it"
                )
            return loaded[-1]
        state = self._states.get((name, version))
        if state == RETIRED:
            raise GoneError(
                f"version '{version}' of model '{name}' is retired; use version {[m.version for m in loaded]}"
            )
        if version not in self._versions[name]:
            raise UnknownModelError(f"model '{name}' has no version '{version}'; it has {[m.version for m in loaded]}")
        self._refuse_structured(name, [self._versions[name][version]])
        if state == UNLOADED:
            raise GoneError(
                f"version '{version}' of model '{name}' is not in service; use version {[m.version for m in loaded]}"
            )
        return self._versions[name][version]

    def accepted(self, name: str, version: str) -> Model:
        """Of a job that was accepted: a version that was unloaded or retired since still ends what was begun with it."""
        found = self._versions.get(name, {}).get(version)
        return found if found is not None else self.find(name, version)

    def index(self) -> list[dict[str, str]]:
        """Every version with its state, as the repository extension of the Open Inference Protocol has it."""
        return [
            {
                "name": model.name,
                "version": model.version,
                "state": "READY" if state == LOADED else "UNAVAILABLE",
                "reason": "" if state == LOADED else state,
            }
            for model, state in self.every()
        ]

    def every(self) -> list[tuple[Model, str]]:
        """Every version of the folder with its state, by name and version."""
        return [
            (model, self._state(name, version))
            for name in self.names()
            for version, model in _ordered(self._versions[name].items())
        ]

    def _state(self, name: str, version: str) -> str:
        state = self._states.get((name, version), LOADED)
        return REFUSED if state == LOADED and self._is_refused(self._versions[name][version]) else state

    def _is_refused(self, model: Model) -> bool:
        return model.structured_secret and not self._structured_keys

    def _refuse_structured(self, name: str, versions: Iterable[Model]) -> None:
        for model in versions:
            if self._is_refused(model) and self._state(name, model.version) == REFUSED:
                raise StructuredKeysError.of(f"model '{name}'", str(model.facts["parameter_set"]))

    # --- changing ---

    async def scan(self) -> None:
        """Reads the folder again; facts that are missing are made by a process of its own."""
        await self.describe()
        await self.read()

    async def describe(self) -> None:
        async with self._scanning:
            options = ["--zoo"] if self._zoo else []
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cloakwork.models.repository",
                str(self.repository),
                *options,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            _, errors = await process.communicate()
            for line in errors.decode(errors="replace").splitlines():
                _log.warning(line)

    async def read(self) -> None:
        async with self._scanning:
            async with self._database.read() as connection:
                rows = (await connection.execute(select(models))).all()
            self._states = {(row.name, row.version): row.state for row in rows}
            self._versions = await asyncio.to_thread(_read_repository, self.repository)
            self._read = True
            for row in rows:  # a version that is gone for good is still known by name
                self._versions.setdefault(row.name, {})

    async def load(self, name: str) -> None:
        """Every version of the folder that is not retired; what was added to it since is found."""
        await self.scan()
        if not self._versions.get(name):
            raise _no_artefact(name)
        if all(map(self._is_refused, self._versions[name].values())):
            self._refuse_structured(name, self._versions[name].values())
        await self._set_state(name, LOADED)

    async def unload(self, name: str) -> None:
        self.versions(name)
        await self._set_state(name, UNLOADED)

    async def _set_state(self, name: str, state: str) -> None:
        for version, model in self._versions[name].items():
            if self._states.get((name, version)) != RETIRED:
                await self._record(model, state)

    async def _record(self, model: Model, state: str) -> None:
        row = {"program_digest": model.digest, "state": state, "changed_at": now()}
        async with self._database.write() as connection:
            place = (models.c.name == model.name) & (models.c.version == model.version)
            updated = await connection.execute(models.update().where(place).values(**row))
            if not updated.rowcount:
                await connection.execute(models.insert().values(name=model.name, version=model.version, **row))
        self._states[model.name, model.version] = state

    async def retire(self, name: str, version: str) -> None:
        """For good: its number is not given again."""
        self.versions(name)
        model = self._versions[name].get(version)
        if model is None or self._state(name, version) == RETIRED:
            raise UnknownModelError(f"model '{name}' has no version '{version}' in service or unloaded")
        await self._record(model, RETIRED)


class TenantModels:
    """The models that a tenant may use; about any other it is told what it would be told if there were none of that name."""

    def __init__(self, models: Models, tenant: Tenant) -> None:
        self._models = models
        self._tenant = tenant

    def names(self) -> list[str]:
        return [name for name in self._models.names() if self._tenant.sees(name)]

    def versions(self, name: str) -> list[Model]:
        self._require(name)
        return self._models.versions(name)

    def find(self, name: str, version: str | None = None) -> Model:
        self._require(name)
        return self._models.find(name, version)

    def levelled_keys(self, digest: str) -> KeyParameters | None:
        """Those of this digest that an index needs; what no model of the tenant's needs is not known."""
        self._models.require_read()
        for model, _ in self._models.every():
            if isinstance(model, IndexModel) and model.parameter_digest == digest and self._tenant.sees(model.name):
                return model.key_parameters
        return None

    def index(self) -> list[dict[str, str]]:
        return [entry for entry in self._models.index() if self._tenant.sees(entry["name"])]

    async def load(self, name: str) -> None:
        if not self._tenant.sees(name):
            raise _no_artefact(name)
        await self._models.load(name)

    async def unload(self, name: str) -> None:
        self._require(name)
        await self._models.unload(name)

    async def retire(self, name: str, version: str) -> None:
        self._require(name)
        await self._models.retire(name, version)

    def _require(self, name: str) -> None:
        if not self._tenant.sees(name):
            raise _no_model(name)


def _no_model(name: str) -> UnknownModelError:
    return UnknownModelError(f"there is no model '{name}'; GET /v2/models lists them")


def _no_artefact(name: str) -> UnknownModelError:
    return UnknownModelError(
        f"the repository has no model '{name}'; put its artefact at {name}/1.clkm (an index at {name}/1.clkn) first"
    )


def _read_repository(repository: Path) -> dict[str, dict[str, Model]]:
    found: dict[str, dict[str, Model]] = {}
    for file in sorted(repository.glob("*/*.json")):
        name, version = file.parent.name, file.stem
        if not re.match(NAME_PATTERN, name) or not re.match(VERSION_PATTERN, version):
            _log.warning("%s/%s: expected names of letters, digits, '.', '_' and '-'; it is not served", name, version)
            continue
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            kind, suffix = _KINDS[facts["kind"]]
            artefact = file.with_suffix(suffix)
            if artefact.is_file():
                found.setdefault(name, {})[version] = kind(name, version, artefact.resolve(), facts)
        except (ValueError, KeyError, TypeError):
            _log.warning("%s is damaged; it is not served", file)
    return found


def _ordered(versions: Iterable[tuple[str, Model]]) -> list[tuple[str, Model]]:
    return sorted(versions, key=lambda item: version_order(item[0]))


def version_order(version: str) -> tuple[bool, int, str]:
    """Numbers by value, other names after them."""
    return not version.isdecimal(), int(version) if version.isdecimal() else 0, version
