"""Every alert of deploy/monitoring fires when what it warns of happens, and none when all is well: promtool, over made-up series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy_files import DEPLOY, read, run, tool

RULES = DEPLOY / "monitoring" / "alerts.yaml"
MINUTES = 90
WEB, WORKER = 'instance="web:8123",job="cloakwork"', 'instance="worker:8123",job="cloakwork"'


def steady(value: float) -> str:
    return f"{value:g}x{MINUTES}"


def growing(by: float) -> str:
    """A counter, so much more each minute."""
    return f"0+{by:g}x{MINUTES}"


CALM = {
    f"up{{{WEB}}}": steady(1),
    f"up{{{WORKER}}}": steady(1),
    f"process_start_time_seconds{{{WEB}}}": steady(1000),
    f"fhe_engine_restarts{{{WORKER}}}": steady(1),
    f"fhe_engine_hangs{{{WORKER}}}": steady(1),
    f"fhe_engines_silent{{{WORKER}}}": steady(0),
    f'fhe_requests_total{{{WEB},model="a",code="200"}}': growing(600),
    f'fhe_requests_total{{{WEB},model="a",code="500"}}': growing(6),
    f'fhe_requests_total{{{WEB},model="a",code="507"}}': steady(3),
    f"fhe_disk_free_bytes{{{WEB}}}": steady(50e9),
    f"fhe_disk_total_bytes{{{WEB}}}": steady(100e9),
    f"fhe_unknown_objects{{{WEB}}}": steady(0),
    f'fhe_damaged_objects_total{{{WEB},kind="results"}}': steady(3),
    f"fhe_models_unavailable{{{WEB}}}": steady(0),
    f'fhe_jobs{{{WEB},state="queued"}}': steady(20),
    f'fhe_jobs{{{WEB},state="running"}}': steady(2),
    f"fhe_requests_waiting{{{WEB}}}": steady(10),
    f'fhe_build_info{{{WEB},version="1",role="web"}}': steady(1),
    f'fhe_build_info{{{WORKER},version="1",role="worker"}}': steady(1),
    f'fhe_queue_seconds_bucket{{{WORKER},le="1"}}': growing(60),
    f'fhe_queue_seconds_bucket{{{WORKER},le="60"}}': growing(60),
    f'fhe_queue_seconds_bucket{{{WORKER},le="+Inf"}}': growing(60),
    f'fhe_rejected_total{{{WEB},reason="busy"}}': growing(1),
    f'fhe_rejected_total{{{WEB},reason="unauthorised"}}': growing(1),
    f'fhe_rejected_total{{{WEB},reason="secret_key_refused"}}': steady(1),
    f"fhe_key_cache_hits_total{{{WORKER}}}": growing(600),
    f"fhe_key_cache_misses_total{{{WORKER}}}": growing(60),
}
NOTHING = "_"
WHAT_HAPPENS = {
    "CloakworkDown": {f"up{{{WEB}}}": steady(0)},
    "CloakworkNowhere": {f"up{{{WEB}}}": NOTHING, f"up{{{WORKER}}}": NOTHING},
    "CloakworkRestarts": {f"process_start_time_seconds{{{WEB}}}": f"1000+600x{MINUTES}"},
    "CloakworkEngineRestarts": {f"fhe_engine_restarts{{{WORKER}}}": growing(0.2)},
    "CloakworkEngineHangs": {f"fhe_engines_silent{{{WORKER}}}": steady(1)},
    "CloakworkNoWorker": {f'fhe_build_info{{{WORKER},version="1",role="worker"}}': NOTHING},
    "CloakworkVersionsDiffer": {f'fhe_build_info{{{WORKER},version="2",role="worker"}}': steady(1)},
    "CloakworkServerErrors": {f'fhe_requests_total{{{WEB},model="a",code="500"}}': growing(60)},
    "CloakworkUnknownObjects": {f"fhe_unknown_objects{{{WEB}}}": steady(2)},
    "CloakworkDamagedObjects": {f'fhe_damaged_objects_total{{{WEB},kind="results"}}': growing(0.1)},
    "CloakworkModelUnavailable": {f"fhe_models_unavailable{{{WEB}}}": steady(1)},
    "CloakworkDiskLow": {f"fhe_disk_free_bytes{{{WEB}}}": steady(9e9)},
    "CloakworkStorageFull": {f'fhe_requests_total{{{WEB},model="a",code="507"}}': growing(1)},
    "CloakworkQueueLong": {f"fhe_requests_waiting{{{WEB}}}": steady(90)},
    "CloakworkQueueStands": {f'fhe_jobs{{{WEB},state="running"}}': steady(0)},
    "CloakworkSlowQueue": {f'fhe_queue_seconds_bucket{{{WORKER},le="1"}}': growing(6)},
    "CloakworkBusy": {f'fhe_rejected_total{{{WEB},reason="busy"}}': growing(90)},
    "CloakworkKeysDoNotFit": {f"fhe_key_cache_misses_total{{{WORKER}}}": growing(700)},
    "CloakworkUnauthorised": {f'fhe_rejected_total{{{WEB},reason="unauthorised"}}': growing(90)},
    "CloakworkSecretKeySent": {f'fhe_rejected_total{{{WEB},reason="secret_key_refused"}}': f"1x30 2x{MINUTES - 30}"},
}


def names() -> set[str]:
    return {rule["alert"] for rule in read(RULES)["groups"][0]["rules"]}


def expectation(series: dict[str, str], alerts: str, count: int) -> dict[str, Any]:
    """A test of promtool: that at the end of the time so many of the alerts whose labels match are firing."""
    samples = [{"labels": "{}", "value": count}] if count else []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values != NOTHING],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{{alerts}alertstate="firing"}})',
                "eval_time": f"{MINUTES - 5}m",
                "exp_samples": samples,
            }
        ],
    }


def test_every_alert_is_tried():
    assert set(WHAT_HAPPENS) == names()


@pytest.mark.tier("all")
def test_each_fires_when_that_happens_and_none_before(tmp_path: Path):
    tests = [expectation(CALM, "", 0)]
    tests += [expectation(CALM | what, f'alertname="{alert}",', 1) for alert, what in WHAT_HAPPENS.items()]
    file = tmp_path / "alerts_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    run(tool("promtool"), "test", "rules", file)
