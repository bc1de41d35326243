"""Models for batches and indices of nearest neighbours in files: samples cut into requests, requests answered, answers read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import FailureError, ProgressCallback
from cloakwork.app.cli.shared.failures import reading
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.several import split_bytes
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.decisions import Votes
from cloakwork.models.client_steps import Stage
from cloakwork.models.client_steps.running import FROM_SCORES
from cloakwork.models.key import Key
from cloakwork.models.messages import MessageKind, Messages, message_bytes, model_digest
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.server import Server

LevelledClient: TypeAlias = BatchClient | NeighbourClient


def levelled_of(client: Any) -> LevelledClient | None:
    """Returns the specification of a levelled model; None of a program of look-ups, also of one that is for batches."""
    if isinstance(client, NeighbourClient) or (isinstance(client, BatchClient) and client.program is None):
        return client
    return None


def lookups_of(client: Any) -> ClientSpecification | None:
    """Returns the specification of a program of look-ups, also of one that is for batches."""
    specification = client.program if isinstance(client, BatchClient) else client
    return specification if isinstance(specification, ClientSpecification) else None


def parameters_of(client: LevelledClient) -> list[Any]:
    """Returns the set, with each plaintext modulus."""
    return [client.parameters] if isinstance(client, NeighbourClient) else list(client.parameters)


def set_name(client: LevelledClient) -> str:
    return str(parameters_of(client)[0].set.name)


def is_classifier(client: LevelledClient | BatchClient) -> bool:
    if isinstance(client, NeighbourClient):
        return client.classes is not None
    return isinstance(client.after, Votes) or any(isinstance(step, FROM_SCORES) for step in client.after)


def requests(client: LevelledClient, key: Key, samples: Any, update: ProgressCallback) -> Messages:
    """Encrypt samples: as many together as a request has room for."""
    client.integers(samples)  # warns once of all
    parts = []
    with _silently():
        for done, part in _parts(client, samples):
            parts.append(message_bytes(client.encrypt(key, part[0] if isinstance(client, NeighbourClient) else part)))
            update(done, len(samples))
    return Messages(MessageKind.REQUESTS, model_digest(client), len(samples), tuple(parts))


def answers(client: LevelledClient, server: Server, requests: Messages, update: ProgressCallback) -> Messages:
    """Computes the answer to each request."""
    parts = []
    for each in requests.parts:
        parts.append(message_bytes(server.answer(each)))
        update(len(parts), len(requests.parts))
    return Messages(MessageKind.ANSWERS, requests.model, requests.samples, tuple(parts))


def decrypted(
    client: LevelledClient,
    key: Key,
    answered: Messages,
    samples: Any,
    update: ProgressCallback,
    until: Stage = "labels",
) -> NDArray[Any]:
    """Decrypts labels or values. Args: samples: that were encrypted; until: of models for batches, what to stop at."""
    predictions = []
    with _silently():
        for (done, part), answer in zip(_parts(client, samples), answered.parts, strict=True):
            if isinstance(client, NeighbourClient):
                predictions.append(np.asarray([client.decrypt(key, LevelledCiphertexts.from_bytes(answer), part[0])]))
            else:
                read = [LevelledCiphertexts.from_bytes(each) for each in split_bytes(answer, wire.Kind.CIPHERTEXTS)]
                predictions.append(client.decrypt(key, read, part, until))
            update(done, len(samples))
    return np.concatenate(predictions)


def read_messages(path: Path, kind: MessageKind, client: LevelledClient, expected: str) -> Messages:
    """Reads messages. FailureError, KeyMismatchError: another file, or messages for another model."""
    with reading(path, expected):
        messages = Messages.load(path, kind)
    remedy = (
        "name the model that they are for"
        if kind is MessageKind.ANSWERS
        else "encrypt with --model or --client of this model"
    )
    check_purpose(messages.model, model_digest(client), str(path), remedy)
    return messages


def check_samples(client: LevelledClient, answered: Messages, samples: Any, path: Path) -> None:
    """FailureError: not the samples whose answers these are."""
    count = sum(1 for _ in _parts(client, samples))
    if len(samples) != answered.samples or count != len(answered.parts):
        raise FailureError(f"{path}: expected the {answered.samples} samples that were encrypted, got {len(samples)}")


def _parts(client: LevelledClient, samples: Any) -> Iterator[tuple[int, Any]]:
    """Samples of each request, and how many there are up to its end."""
    size = client.samples_at_once if isinstance(client, BatchClient) else 1
    for first in range(0, len(samples), size):
        part = samples[first : first + size]
        yield first + len(part), part


@contextmanager
def _silently() -> Iterator[None]:
    """Of values beyond the range, which were said once of all samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
