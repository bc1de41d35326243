"""OpenTelemetry: requests become spans, without bodies or tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from scoring_server import User, eventually, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


def test_requests_are_exported_as_spans(tmp_path: Path, fill: Callable[[Path], Path]):
    pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="needs the extra 'telemetry'")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra 'telemetry'")
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    place = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    try:
        with running(fill(tmp_path / "data"), environment={"TELEMETRY": "true"}, variables=place) as server:
            with server.client() as http:
                user = User.of(http)
                user.upload()
                assert user.infer(user.encrypt()[1]).status_code == 200
            assert eventually(lambda: any(b"/infer" in part for part in received))
    finally:
        collector.shutdown()
        collector.server_close()
    spans = b"".join(received)
    assert b"/v2/models/{model}/infer" in spans
    assert user.keys[:64] not in spans
