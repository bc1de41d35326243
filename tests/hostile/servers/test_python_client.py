"""Whatever a server does, the Python client ends in ten seconds and 512 MB, with an error of ours or an answer (cases.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.cases import CASES
from servers.clients import MOST_MIB, MOST_SECONDS, PythonClient, Result

pytestmark = pytest.mark.os_entropy

# One of each kind, for every run; all others in `make test-all`.
_FIRST = {
    "answer_endless",
    "append_doubles_twenty_times",
    "error_commands_the_terminal",
    "honest",
    "job_named_by_dots",
    "set_toy",
    "set_with_keys_of_430_MiB",
    "specification_gzip_bomb",
    "upload_always_at_zero",
    "upload_part_redirect",
}


@pytest.fixture(scope="module")
def client() -> Iterator[PythonClient]:
    with PythonClient() as process:
        yield process


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 120 and set(CASES) > _FIRST


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _FIRST else pytest.mark.tier("all")) for name in CASES]
)
def test_a_hostile_server_ends_in_an_error_of_ours(client: PythonClient, name: str) -> None:
    result = client.result(name)
    expected = {"error": ("error",), "answer": ("answer",), "either": ("error", "answer")}[CASES[name].ends]
    assert result.ended in expected, result
    assert result.peak_mib < MOST_MIB and result.seconds < MOST_SECONDS, result
    _check_message(result)


def _check_message(result: Result) -> None:
    """Nothing in it commands a terminal, or fills it."""
    assert result.message.isprintable() and len(result.message) < 1000, result
