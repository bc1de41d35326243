"""Commands without a passphrase leave no key on a real server, however they end; new passphrases are typed twice."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import WaitFor
from scoring_server import Server, running, toy_model

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring, TemporaryKeyring

pytestmark = pytest.mark.os_entropy
MODEL = "toy"
SECONDS = 300
LONG = 20_000  # samples that keep the server busy until it is told to stop


def stored(server: Server) -> list[dict[str, Any]]:
    with server.client() as http:
        keys: list[dict[str, Any]] = http.get("/v2/keys").raise_for_status().json()["keys"]
    return keys


@pytest.fixture
def server(server: Server) -> Server:
    """The shared one, without the keys that others left there."""
    with server.client() as http:
        for key in stored(server):
            http.delete(f"/v2/keys/{key['id']}").raise_for_status()
    return server


@pytest.fixture
def folder(tmp_path: Path, server: Server) -> Iterator[Path]:
    """With samples; what was on the server before is there afterwards, and nothing else."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "few.npy", rng.uniform(-0.7, 0.7, (3, 4)))
    np.save(tmp_path / "many.npy", rng.uniform(-0.7, 0.7, (LONG, 4)))
    np.save(tmp_path / "bad.npy", np.array([[0.1, 0.2, 0.3]]))
    toy_model().save(tmp_path / "toy.clkm")
    before = stored(server)
    yield tmp_path
    assert [key["id"] for key in stored(server)] == [key["id"] for key in before]


def environment(folder: Path, **changes: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name != "CLOAKWORK_PASSPHRASE"}
    return {**clean, "CLOAKWORK_HOME": str(folder / "home"), **changes}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cloakwork.app.cli", *arguments]


def score(server: Server, samples: str) -> list[str]:
    return command("score", samples, "--url", server.url, "--model", MODEL, "--json", "-")


def bench(server: Server, samples: str, requests: int) -> list[str]:
    load = ["--users", "2", "--requests", str(requests), "--artefact", "toy.clkm", "--json", "-"]
    return command("bench", "serve", samples, "--url", server.url, "--model", MODEL, *load)


def start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(arguments, cwd=folder, env=environment(folder), text=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.tier("all")
def test_a_run_that_ends_well(server: Server, folder: Path) -> None:
    process = start(score(server, "few.npy"), folder)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert json.loads(output)["key_uploaded"] and not (folder / "home").exists()
    assert stored(server) == []


@pytest.mark.tier("all")
def test_a_run_that_fails(server: Server, folder: Path) -> None:
    process = start(score(server, "bad.npy"), folder)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and "expected an array of shape" in errors
    assert stored(server) == []


def test_an_error_after_the_upload(server: Server, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), Client(server.url, keyring=TemporaryKeyring(folder)) as client:
        client.predict(MODEL, np.zeros((1, 4)))
        assert len(stored(server)) == 1
        raise RuntimeError("mine")
    assert stored(server) == []


@pytest.mark.tier("all")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("which", ["score", "bench"])
def test_a_run_that_is_stopped(
    server: Server, folder: Path, which: str, number: signal.Signals, wait_for: WaitFor
) -> None:
    """As soon as its key shows at the server, complete or not."""
    expected = 1 if which == "score" else 2
    process = start(score(server, "many.npy") if which == "score" else bench(server, "few.npy", 1_000_000), folder)
    wait_for(lambda: len(stored(server)) >= expected or process.poll() is not None, "its keys show")
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and "interrupted" in errors.splitlines()[-1], errors
    assert "Traceback" not in errors
    assert stored(server) == []


@pytest.mark.tier("all")
def test_a_load_that_ends_well(server: Server, folder: Path) -> None:
    process = start(bench(server, "few.npy", 4), folder)
    output, errors = process.communicate(timeout=SECONDS)
    assert json.loads(output)["requests"] == 4, errors
    assert stored(server) == []


def test_clients_delete_what_they_uploaded_and_nothing_else(server: Server, tmp_path: Path) -> None:
    x = np.random.default_rng(1).uniform(-0.7, 0.7, (1, 4))
    with Client(server.url, keyring=Keyring(tmp_path / "keys", "word")) as lasting:
        lasting.predict(MODEL, x)
        (kept,) = stored(server)
        (tmp_path / "temporary").mkdir()
        with Client(server.url, keyring=TemporaryKeyring(tmp_path / "temporary")) as temporary:
            temporary.predict(MODEL, x)
            assert len(stored(server)) == 2
        assert [key["id"] for key in stored(server)] == [kept["id"]]
        lasting.delete_uploaded_keys()
        assert stored(server) == []
        assert lasting.score(MODEL, x).key_uploaded  # and sends them again when they are needed
        lasting.delete_uploaded_keys()


@pytest.mark.tier("all")
def test_a_server_that_is_gone_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run's own outcome stays what it was."""
    (tmp_path / "data" / "models" / MODEL).mkdir(parents=True)
    toy_model().save(tmp_path / "data" / "models" / MODEL / "1.clkm")
    (tmp_path / "temporary").mkdir()
    x = np.zeros((1, 4))
    with (
        running(tmp_path / "data") as server,
        Client(server.url, keyring=TemporaryKeyring(tmp_path / "temporary")) as client,
    ):
        client.predict(MODEL, x)
        server.kill()
    (record,) = caplog.records
    assert "the evaluation keys of this run stay at" in record.getMessage() and server.url in record.getMessage()


def at_a_terminal(arguments: list[str], folder: Path, answers: list[str]) -> tuple[int, str]:
    """Runs a command with a terminal as its input and error output; types an answer at every prompt. Exit status, what the terminal showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment(folder, TERM="dumb"),
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown, waiting = "", list(answers)
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 4096).decode(errors="replace")
                except OSError:  # the other side is closed
                    break
            elif process.poll() is not None:
                break
            if waiting and shown.count("secret key: ") + shown.count("Once more: ") > len(answers) - len(waiting):
                os.write(ours, waiting.pop(0).encode() + b"\n")
        return process.wait(SECONDS), shown
    finally:
        os.close(ours)
        process.kill()


@pytest.mark.tier("all")
def test_a_new_passphrase_is_typed_twice_and_a_known_one_once(server: Server, folder: Path) -> None:
    status, shown = at_a_terminal(score(server, "few.npy"), folder, ["one", "another"])
    assert status == 2 and "the two passphrases differ" in shown
    assert not list((folder / "home").glob("*")) and stored(server) == []
    status, shown = at_a_terminal(score(server, "few.npy"), folder, ["word", "word"])
    assert status == 0, shown
    assert shown.count("Passphrase for a new secret key: ") == 1 and shown.count("Once more: ") == 1
    (kept,) = stored(server)  # the user's own key stays, here and there
    status, shown = at_a_terminal(score(server, "few.npy"), folder, ["word"])
    assert status == 0, shown
    assert shown.count("Passphrase of the secret key: ") == 1 and "Once more" not in shown
    assert [key["id"] for key in stored(server)] == [kept["id"]]
    with server.client() as http:
        http.delete(f"/v2/keys/{kept['id']}").raise_for_status()
