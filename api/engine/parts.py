"""Parts of a run: requests of one key to one model, computed as one and answered each by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloakwork.api.engine.messages import Message
from cloakwork.api.engine.requests import ModelPlace, RunRequest
from cloakwork.api.engine.residency import KeyPlace


@dataclass(frozen=True)
class RequestPart:
    """Ciphertexts came with the message or lie in a file; so does the answer go."""

    id: str
    model: ModelPlace
    key: KeyPlace
    samples: int
    body: bytes
    input: str | None
    output: str | None
    progress: bool  # wanted

    def request(self) -> RunRequest:
        """Reads the request of a part. Raises: FileNotFoundError: the input is gone."""
        body = self.body if self.input is None else Path(self.input).read_bytes()
        return RunRequest(self.model, self.key, self.samples, body)


def parts_of(message: Message, body: bytes) -> list[RequestPart]:
    """Reads the parts of a `run`; their bodies follow each other."""
    model = ModelPlace(message["model"]["kind"], message["model"]["digest"], Path(message["model"]["path"]))
    key = KeyPlace(message["key"]["name"], Path(message["key"]["path"]))
    parts: list[RequestPart] = []
    first = 0
    for each in message["parts"]:
        part_body = body[first : first + each["bytes"]]
        first += len(part_body)
        places = each.get("input"), each.get("output")
        parts.append(
            RequestPart(each["id"], model, key, each["samples"], part_body, *places, each.get("progress", False))
        )
    return parts
