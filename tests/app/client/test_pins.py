"""What models were at first use, keys for each server, and what a client asks before it does it: against servers that change."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers.cases import Case
from servers.replies import Reply
from servers.server import CaseServer, serving

from cloakwork.app.client import agreement
from cloakwork.app.client.client import Client
from cloakwork.app.client.errors import ChangedModelError
from cloakwork.app.client.keyring import Keyring, TemporaryKeyring, server_name
from cloakwork.app.client.pins import FILE, Pin, PinFile
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, SerializationError
from cloakwork.fhe_core.wire import keystore

X = np.array([[0.3]])
KeyringOf = Callable[[], Keyring]


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring is opened again and again here."""
    monkeypatch.setattr(keystore.save_secret, "__defaults__", (keystore.ScryptCost(log2_n=10),))


class Changing:
    """A model whose specification a test changes."""

    def __init__(self) -> None:
        self.specification: dict[str, Any] = {}

    def case(self) -> Case:
        return Case(lambda: self.specification)


@pytest.fixture
def model() -> Changing:
    return Changing()


@pytest.fixture(params=["a ring", "a ring of this process"])
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> KeyringOf:
    """Makes one as a new run has it; that of one process stays the same."""
    temporary = Keyring.temporary(tmp_path)
    return (lambda: Keyring(tmp_path / "keys", "word")) if request.param == "a ring" else (lambda: temporary)


def predict(server: CaseServer, keyring: Keyring, **options: Any) -> Any:
    client = Client(server.url, keyring=keyring, timeout=10.0, **options)
    try:
        return client.predict("m", X)
    finally:
        client._transport.close()


# --- pins ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"program_digest": "cd" * 32}, {"output_offset": [1.0]}, {"input_range": [-2, 2]}])
def test_a_model_that_changed_is_refused_before_anything_is_encrypted(
    model: Changing, ring: KeyringOf, change: dict[str, Any]
) -> None:
    with serving(model.case()) as server:
        predict(server, ring())
        predict(server, ring())
        model.specification, before = change, server.counts["infer"]
        with pytest.raises(ChangedModelError, match=r"nothing was encrypted for it.*Client.accept\('m'\)"):
            predict(server, ring())
        assert server.counts["infer"] == before
        assert predict(server, ring(), accept_changes=True).shape == (1, 1)
        predict(server, ring())  # it is pinned as it is now
        model.specification = {}
        with pytest.raises(ChangedModelError):
            predict(server, ring())


def test_a_change_is_asked(model: Changing, ring: KeyringOf) -> None:
    asked: list[str] = []

    def answering(answer: bool) -> Callable[[str], bool]:
        return lambda question: asked.append(question) or answer  # type: ignore[func-returns-value]

    with serving(model.case()) as server:
        predict(server, ring(), confirm=answering(False))
        assert asked == []
        model.specification = {"output_offset": [1.0]}
        with pytest.raises(ChangedModelError):
            predict(server, ring(), confirm=answering(False))
        predict(server, ring(), confirm=answering(True))
        predict(server, ring())
    assert len(asked) == 2 and all("has another program or other steps" in question for question in asked)


def test_accept_takes_a_model_as_it_is(model: Changing, ring: KeyringOf) -> None:
    with serving(model.case()) as server, Client(server.url, keyring=ring()) as client:
        client.predict("m", X)
        model.specification = {"output_offset": [1.0]}
        client.predict("m", X)  # a client asks once
        client.accept("m")
        assert client.predict("m", X)[0, 0] == pytest.approx(1.3, abs=0.1)
        client.predict("m", X)


def test_a_new_version_is_a_change_unless_it_is_named(ring: KeyringOf) -> None:
    versions = ["1"]

    def metadata() -> bytes:
        return json.dumps({"versions": versions, "parameters": {"fhe": {}}}).encode()

    with serving(Case(replies={"metadata": Reply(body=metadata)})) as server:
        predict(server, ring())
        versions.append("2")
        with pytest.raises(ChangedModelError, match="newest version at .* is 2, before it was 1"):
            predict(server, ring())
        client = Client(server.url, keyring=ring())
        client.predict("m", X, version="2")
        client._transport.close()
        predict(server, ring())


def test_pins_are_of_a_server(model: Changing, ring: KeyringOf) -> None:
    with serving(model.case()) as server:
        predict(server, ring())
    with serving(Case({"output_offset": [1.0]})) as other:
        predict(other, ring())


def test_a_damaged_file_of_pins_is_named(model: Changing, tmp_path: Path) -> None:
    with serving(model.case()) as server:
        predict(server, Keyring(tmp_path, "word"))
        path = tmp_path / FILE
        whole = path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
        for damaged in (whole[:-20], b"", b"[]", b"[" * 10**5, whole.replace(b"ab", b"cd", 1)):
            path.write_bytes(damaged)
            with pytest.raises(SerializationError, match=f"{path}: .*damaged file; restore it, or remove it"):
                predict(server, Keyring(tmp_path, "word"))
        path.unlink()
        predict(server, Keyring(tmp_path, "word"))


def test_nobody_without_the_key_writes_a_pin(model: Changing, tmp_path: Path) -> None:
    with serving(model.case()) as server:
        predict(server, Keyring(tmp_path, "word"))
        model.specification = {"output_offset": [1.0]}
        (pin,) = PinFile(tmp_path).all()
        with pytest.raises(ChangedModelError):
            predict(server, Keyring(tmp_path, "word"))
        forged = Client(server.url, keyring=TemporaryKeyring(tmp_path))
        shown = forged.model("m").specification_digest
        PinFile(tmp_path).put(Pin(**{**asdict(pin), "specification": shown}).signed(ClientKey.generate("toy")))
        with pytest.raises(SerializationError, match="was not written with the model.s key"):
            predict(server, Keyring(tmp_path, "word"))
        forged.close()


# --- a key for each server -----------------------------------------------------------------------------------------------------------


def test_servers_do_not_see_the_same_key(tmp_path: Path) -> None:
    keyring, requests = Keyring(tmp_path, "word"), []
    for _ in range(2):
        with serving(Case()) as server:
            predict(server, keyring)
            requests.append(bytes(server.received))
    assert requests[0] != requests[1]
    assert len(list(tmp_path.glob("toy-*@127.0.0.1-*.key"))) == 2


def test_shared_keys_are_those_of_earlier_releases(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path, "word")
    keys = keyring.evaluation_keys("toy").read_bytes()
    for _ in range(2):
        with serving(Case()) as server:
            predict(server, keyring, share_keys=True)
            assert server.received == keys
            predict(server, keyring)  # sharing is no change of the model
            assert server.received != keys


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example", "https://A.example:443/", True),
        ("http://a.example", "http://a.example:80", True),
        ("https://a.example", "http://a.example", False),
        ("https://a.example", "https://a.example:8443", False),
        ("https://a.example/x", "https://a.example/y", False),
    ],
)
def test_what_a_server_is_called(one: str, other: str, same: bool) -> None:
    assert (server_name(one) == server_name(other)) is same


# --- large keys and toys -------------------------------------------------------------------------------------------------------------


def test_large_keys_are_asked(ring: KeyringOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LARGE_KEYS_BYTES", 1000)
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    with serving(Case()) as server:
        with pytest.raises(ParameterError, match=r"evaluation keys of 30\d,\d{3} bytes .* accept_large_keys=True"):
            predict(server, ring())
        with pytest.raises(ParameterError, match="nobody agreed"):
            predict(server, ring(), confirm=refuse)
        assert server.counts["opening"] == 0 and "to send over" in asked[0]
        predict(server, ring(), accept_large_keys=True)
        predict(server, ring())  # they are there


def test_no_server_names_an_insecure_set(ring: KeyringOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOAKWORK_ALLOW_TOY_SERVERS")
    with serving(Case()) as server, pytest.raises(ParameterError, match="no server may ask for one"):
        predict(server, ring())


def test_answers_have_a_largest_size(ring: KeyringOf) -> None:
    with serving(Case()) as server:
        with pytest.raises(ParameterError, match=r"largest_answer="):
            predict(server, ring(), largest_answer=1000)
        predict(server, ring(), largest_answer=100_000)
