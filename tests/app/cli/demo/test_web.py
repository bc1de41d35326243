"""`cloakwork demo web`: a service with the zoo and its page, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest


@pytest.mark.os_entropy
@pytest.mark.tier("all")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, ending: signal.Signals):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "CLOAKWORK_ZOO": "false"}
    command = [sys.executable, "-m", "cloakwork.app.cli", "demo", "web", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        url = demo.stdout.readline().split()[0]
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(url, trust_env=False).status_code == 200
        assert len(list(temporary.iterdir())) == 1
        demo.send_signal(ending)
        output, errors = demo.communicate(timeout=60)
    assert (demo.returncode, output, errors) == (0, "", "")
    assert list(temporary.iterdir()) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_a_port_that_is_taken_is_said(call):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = call("demo", "web", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert result.returncode == 1 and "the service cannot listen on port" in result.stderr, result
