"""Whatever a server does, the client of web/dist ends in Node in ten seconds and 512 MB, with an error of ours or an answer (cases.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import needs
from servers.cases import CASES, FIRST
from servers.clients import MOST_MIB, Ahead, WebClient, names_asked

pytestmark = [pytest.mark.os_entropy, pytest.mark.xdist_group("hostile web servers")]

_FIRST = FIRST | {"specification_of_backslashes"}
# What this client takes from answers in JSON; it asks for no header of HEAD.
_NEVER_ASKED = {"upload_at_minus_5000", "upload_beyond_the_end", "upload_at_nan"}


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    needs(shutil.which("node"), "node is not installed: the client for browsers cannot be run")
    built = Path(__file__).parents[3] / "web" / "dist" / "client.wasm"
    needs(built.exists(), "web/dist is not built: run 'make web'")
    with Ahead(WebClient, names_asked(request, "test_a_hostile_server_ends_in_an_error_of_ours")) as results:
        yield results


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _FIRST else pytest.mark.tier("all")) for name in CASES]
)
def test_a_hostile_server_ends_in_an_error_of_ours(client: Ahead, name: str) -> None:
    result = client.result(name)
    ends = "either" if name in _NEVER_ASKED else CASES[name].ends
    expected = {"error": ("error",), "answer": ("answer",), "either": ("error", "answer")}[ends]
    assert result.ended in expected, result
    assert result.peak_mib < MOST_MIB, result  # that it took too long is another ending
    assert result.message.isprintable() and len(result.message) < 1000, result
