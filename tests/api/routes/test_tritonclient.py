"""Somebody else's client of the Open Inference Protocol, NVIDIA's tritonclient, against a service with API keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import serving
from scoring_server import Server, User, new_tenant

from cloakwork.models.compiled import CompiledModel

triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed here")


@dataclass
class Caller:
    """A client, with the API key in the header that every call takes."""

    stub: Any
    token: str

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.stub, name)
        return lambda *arguments, **options: method(*arguments, headers=self.headers, **options)

    @property
    def headers(self) -> dict[str, str]:
        """New ones for each call: the client adds to them."""
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[Server]:
    data = fill(tmp_path_factory.mktemp("triton") / "data")
    new_tenant(data, "first")
    with serving(data, insecure=False) as started:
        yield started


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return new_tenant(server.data, "owner", "score", "models")


@pytest.fixture
def caller(server: Server, token: str) -> Iterator[Caller]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as stub:
        yield Caller(stub, token)


@pytest.fixture
def user(server: Server, token: str) -> Iterator[User]:
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        yield User.of(http)


def tensor(body: bytes, name: str = "ciphertexts", binary: bool = True) -> Any:
    numbers = np.frombuffer(body, np.uint8)
    found = triton.InferInput(name, [numbers.size], "UINT8")
    found.set_data_from_numpy(numbers, binary_data=binary)
    return found


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    """The status and the reason, as its user sees them."""
    with pytest.raises(Exception) as caught:
        call()
    assert type(caught.value).__name__ == "InferenceServerException", caught.value
    return str(caught.value.status()), str(caught.value.message())


def test_health_and_metadata(server: Server, caller: Caller):
    assert caller.stub.is_server_live() and caller.stub.is_server_ready(), "nobody needs an API key to ask"
    assert caller.is_model_ready("toy") and caller.is_model_ready("toy", "1")
    assert not caller.is_model_ready("toy", "7") and not caller.is_model_ready("other")
    assert "binary_tensor_data" in caller.get_server_metadata()["extensions"]
    metadata = caller.get_model_metadata("toy")
    assert metadata["inputs"] == [{"name": "ciphertexts", "datatype": "UINT8", "shape": [-1]}]
    assert metadata["outputs"] == [{"name": "results", "datatype": "UINT8", "shape": [-1]}]
    assert metadata["parameters"]["fhe"]["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 4]}]
    assert metadata == caller.get_model_metadata("toy", "1")


def test_without_an_api_key(caller: Caller):
    assert not caller.stub.is_model_ready("toy")
    status, reason = refusal(lambda: caller.stub.get_model_metadata("toy"))
    assert status == "401" and "Bearer" in reason
    assert refusal(lambda: caller.stub.infer("toy", [tensor(b"x")]))[0] == "401"


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("version", ["", "1"])
def test_encrypted_inference(caller: Caller, user: User, compiled: CompiledModel, by_name: bool, version: str):
    user.upload()
    x, body = user.encrypt(samples=5)
    outputs = [triton.InferRequestedOutput("results")] if by_name else None
    answer = caller.infer("toy", [tensor(body)], outputs=outputs, model_version=version, request_id="one")
    assert answer.get_response()["id"] == "one"
    results = answer.as_numpy("results")
    assert (results.dtype, results.shape) == (
        np.uint8,
        (user.http.post("/v2/models/toy/infer", content=body).num_bytes_downloaded,),
    )
    assert np.allclose(user.decrypt(results.tobytes()), np.asarray(compiled.predict(x)), atol=0.05)


def test_its_asynchronous_client(server: Server, caller: Caller, user: User):
    """Which is another one, on aiohttp."""
    asynchronous = pytest.importorskip("tritonclient.http.aio", reason="aiohttp is not installed here")
    user.upload()
    bodies = [user.encrypt(samples=1 + i, seed=i)[1] for i in range(4)]

    async def ask() -> list[Any]:
        async with asynchronous.InferenceServerClient(f"127.0.0.1:{server.port}") as stub:
            assert await stub.is_server_ready() and await stub.is_model_ready("toy", headers=caller.headers)
            calls = [stub.infer("toy", [tensor(body)], headers=caller.headers) for body in bodies]
            return list(await asyncio.gather(*calls))

    for body, answer in zip(bodies, asyncio.run(ask()), strict=True):
        assert answer.as_numpy("results").tobytes() == user.infer(body).content


def test_refusals_are_its_exceptions_with_our_reasons(caller: Caller, user: User):
    user.upload()
    _, body = user.encrypt()

    def infer(*inputs: Any, **options: Any) -> tuple[str, str]:
        return refusal(lambda: caller.infer("toy", list(inputs) or [tensor(body)], **options))

    for found, status, words in (
        (infer(tensor(body, binary=False)), "422", "binary data"),
        (infer(tensor(body, name="input")), "422", "ciphertexts"),
        (infer(tensor(body), tensor(body, name="second")), "422", "bytes"),
        (infer(outputs=[triton.InferRequestedOutput("scores")]), "422", "results"),
        (infer(outputs=[triton.InferRequestedOutput("results", binary_data=False)]), "415", "binary_data"),
        (infer(request_compression_algorithm="gzip"), "415", "uncompressed"),
        (infer(request_compression_algorithm="deflate"), "415", "uncompressed"),
        (infer(sequence_id=1, sequence_start=True), "422", "sequence"),
        (infer(tensor(User.of(user.http).encrypt()[1])), "428", "evaluation keys"),
        (refusal(lambda: caller.infer("other", [tensor(body)])), "404", "other"),
    ):
        assert found[0] == status and words in found[1], found
    assert caller.infer("toy", [tensor(body)], response_compression_algorithm="gzip").as_numpy("results").size


def test_the_repository(server: Server, caller: Caller):
    assert caller.get_model_repository_index() == [{"name": "toy", "version": "1", "state": "READY", "reason": ""}]
    caller.unload_model("toy")
    (entry,) = caller.get_model_repository_index()
    assert entry["state"] == "UNAVAILABLE" and not caller.is_model_ready("toy")
    status, reason = refusal(lambda: caller.load_model("toy", config="{}"))
    assert status == "422" and "config" in reason
    assert refusal(lambda: caller.load_model("toy", config="{}", files={"file:1/model.clkm": b"x"}))[0] == "422"
    caller.load_model("toy")
    assert caller.is_model_ready("toy")
    assert refusal(lambda: caller.load_model("other"))[0] == "404"
    scoring = Caller(caller.stub, new_tenant(server.data, "alice"))
    for call in (
        scoring.get_model_repository_index,
        lambda: scoring.load_model("toy"),
        lambda: scoring.unload_model("toy"),
    ):
        assert refusal(call)[0] == "403", "an API key without the scope `models`"
