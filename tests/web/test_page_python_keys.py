"""Keys of the Python client in the page: files of its keyring's folder, put into the browser's database under their names, are the page's keys."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_visits import BROWSER, TREE, Opened, ask, choose, costs_of, overheard, with_passphrase
from scoring_server import Server

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring, server_name
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]

WORD = "violet tram counts nine owls"
NONE_SENT = "none: the server has them"
OPENED = """const opening = indexedDB.open("cloakwork", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    const opened = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));"""
PUT = f"""async ([name, text]) => {{
    {OPENED}
    const writing = opened.transaction("keys", "readwrite");
    writing.objectStore("keys").put(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)), name);
    await new Promise((resolve) => (writing.oncomplete = resolve));
    opened.close();
}}"""
DIGESTS = f"""async () => {{
    {OPENED}
    const keys = opened.transaction("keys").objectStore("keys");
    const answer = (request) => new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
    const [names, files] = await Promise.all([answer(keys.getAllKeys()), answer(keys.getAll())]);
    opened.close();
    const digests = await Promise.all(files.map((each) => crypto.subtle.digest("SHA-256", each)));
    const text = (digest) => [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return Object.fromEntries(names.map((name, i) => [name, text(digests[i])]));
}}"""
SENT = "btoa(String.fromCharCode(...window.answered.at(-1).sent))"


def made_for(server: Server, folder: Path, model: CompiledModel) -> ClientKey:
    """Python's key for the server's models, in the folder with its evaluation keys."""
    return Keyring(folder, WORD).key(model.client.parameters, server=server_name(server.url))


def keys_of(server: Server) -> dict[str, dict[str, Any]]:
    with server.client() as http:
        return {each["id"]: each for each in http.get("/v2/keys").json()["keys"]}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "whole",
    [pytest.param(True, marks=pytest.mark.tier("release")), False],
    ids=["the whole folder", "the secret key alone"],
)
def test_pythons_key_file_is_the_pages_key(whole: bool, opened: Opened, server: Server, tmp_path: Path):
    folder, model = tmp_path / "keys", zoo.load_model(TREE)
    key = made_for(server, folder, model)
    (secret,), (public,) = folder.glob("*.key"), folder.glob("*.evaluation.keys")
    before = keys_of(server)
    page = opened()
    overheard(page)
    page.reload()
    for path in (secret, public) if whole else (secret,):
        page.evaluate(PUT, [path.name, base64.b64encode(path.read_bytes()).decode()])
    choose(page, TREE)
    with_passphrase(page, WORD)
    for species in ("versicolor", "virginica", "setosa"):
        page.get_by_role("button", name=f"Example: {species}").click()
        assert ask(page) == species
        check_encrypted_under(key, model.client, page)
    assert NONE_SENT in costs_of(page)

    stored = page.evaluate(DIGESTS)
    assert stored.keys() == {secret.name, public.name}
    assert stored[secret.name] == digest_of(secret)  # opened, not made anew
    assert (stored[public.name] == digest_of(public)) is whole
    (sent,) = (each for identity, each in keys_of(server).items() if identity not in before)
    assert sent["sha256"] == stored[public.name]
    if whole:  # what the page has sent serves Python too: nothing is sent again
        with Client(server.url, keyring=Keyring(folder, WORD)) as client:
            held = zoo.held_out(TREE)
            np.testing.assert_array_equal(np.asarray(client.predict(TREE, held.x[:5])), held.clear[:5])
        assert keys_of(server).keys() - before.keys() == {sent["id"]}


def check_encrypted_under(key: Any, specification: Any, page: Any) -> None:
    """Python decrypts what the page sent, and finds the numbers that the page was asked about."""
    encrypted = SeededPackedCiphertexts.from_bytes(base64.b64decode(page.evaluate(SENT)))
    numbers = np.array([page.evaluate("window.asked.at(-1)")], np.float64)
    atol = 64 * key.parameters.glwe_sigma / key.parameters.modulus
    np.testing.assert_allclose(key.decrypt(encrypted), specification.phases(numbers), rtol=0, atol=atol)


def test_pythons_key_file_wants_its_passphrase(opened: Opened, server: Server, tmp_path: Path):
    made_for(server, tmp_path / "keys", zoo.load_model(TREE))
    (secret,) = (tmp_path / "keys").glob("*.key")
    page = opened()
    page.evaluate(PUT, [secret.name, base64.b64encode(secret.read_bytes()).decode()])
    choose(page, TREE)
    with_passphrase(page, "slate kite pours eleven maps")
    page.get_by_role("button", name="Encrypt and ask").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("The passphrase is wrong")
    assert page.evaluate(DIGESTS) == {secret.name: digest_of(secret)}
