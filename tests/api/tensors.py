"""Objects as tensors of the Open Inference Protocol, written by hand."""

from __future__ import annotations

import json
from typing import Any, Protocol

import httpx

from cloakwork.api.http.tensors import DATATYPE, HEADER, INPUT


class Asker(Protocol):
    """`User`, `NeighbourUser`."""

    @property
    def http(self) -> httpx.Client: ...
    @property
    def model(self) -> str: ...


def described(size: int, **changes: Any) -> dict[str, Any]:
    """What a client sends before an object of so many bytes."""
    tensor = {"name": INPUT, "datatype": DATATYPE, "shape": [size], "parameters": {"binary_data_size": size}}
    return {"inputs": [{**tensor, **changes}], "parameters": {"binary_data_output": True}}


def send_tensor(user: Asker, about: Any, body: bytes, route: str = "infer", **headers: str) -> httpx.Response:
    """`about`: the JSON header, or bytes in its place."""
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    headers = {HEADER: str(len(text)), **headers}
    return user.http.post(f"/v2/models/{user.model}/{route}", content=text + body, headers=headers)


def object_in(answer: httpx.Response) -> bytes:
    """What follows the JSON header of an answer."""
    assert answer.status_code == 200, answer.text
    return answer.content[int(answer.headers[HEADER]) :]
