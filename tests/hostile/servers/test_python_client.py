"""Whatever a server does, the Python client ends in ten seconds and 512 MB, with an error of ours or an answer (cases.py)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from servers.cases import CASES, FIRST
from servers.clients import MOST_MIB, Ahead, PythonClient, names_asked

pytestmark = [pytest.mark.os_entropy, pytest.mark.xdist_group("hostile servers")]

# What the two transports do in two ways.
_TRANSPORT = (
    "answer_endless", "answer_gzip_bomb", "error_drip", "honest_job", "job_events_drip", "job_events_without_end", "job_result_drip",
    "metadata_continue_for_ever", "metadata_headers_drip", "metadata_later_for_ever", "metadata_silent", "specification_redirect_elsewhere",
    "upload_always_at_zero",
)  # fmt: skip


@pytest.fixture(scope="module")
def asynchronous(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    with Ahead(partial(PythonClient, "--async"), names_asked(request, "test_asynchronous_clients_end_too")) as results:
        yield results


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    with Ahead(PythonClient, names_asked(request, "test_a_hostile_server_ends_in_an_error_of_ours")) as results:
        yield results


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 120 and set(CASES) > FIRST


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.tier("all")) for name in CASES]
)
def test_a_hostile_server_ends_in_an_error_of_ours(client: Ahead, name: str) -> None:
    check(client, name)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", _TRANSPORT)
def test_asynchronous_clients_end_too(asynchronous: Ahead, name: str) -> None:
    check(asynchronous, name)


def check(client: Ahead, name: str) -> None:
    result = client.result(name)
    expected = {"error": ("error",), "answer": ("answer",), "either": ("error", "answer")}[CASES[name].ends]
    assert result.ended in expected, result
    assert result.peak_mib < MOST_MIB, result  # that it took too long is another ending
    # Nothing in a message commands a terminal, or fills it.
    assert result.message.isprintable() and len(result.message) < 1000, result
