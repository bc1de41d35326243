"""Folders of stored objects, and which objects are still needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.storage.objects import UPLOADS, Storage
from cloakwork.api.service.storage.sweeping import Folder

Ask: TypeAlias = Callable[[list[str]], Awaitable[set[str]]]
"""Which of these identities are still needed."""


def object_folders(storage: Storage, store: JobStore, keys: Keys, calls: Ask | None) -> list[Folder]:
    """Returns objects that are named after a job, a call or a key. `calls`: those that are rows, in a fleet."""
    needed: dict[str, Ask] = {
        "inputs": _either(store.unfinished, calls),
        "results": _either(store.known, calls),
        UPLOADS: keys.known,
        "keys": keys.known,
    }
    return [
        Folder(name, partial(storage.names, name), partial(_known, ask), storage.delete) for name, ask in needed.items()
    ]


def _either(ask: Ask, calls: Ask | None) -> Ask:
    if calls is None:
        return ask

    async def ask_both(identities: list[str]) -> set[str]:
        return await ask(identities) | await calls(identities)

    return ask_both


async def _known(ask: Ask, names: list[str]) -> set[str]:
    owners = await ask([owner(name) for name in names])
    return {name for name in names if owner(name) in owners}


def owner(name: str) -> str:
    """Returns the owner of an object: a job, a call or a key."""
    return name.partition("/")[2].partition("-")[0]
