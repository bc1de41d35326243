"""Every alert of deploy/monitoring fires when what it warns of happens, and none when all is well: promtool, over made-up series."""

from __future__ import annotations

from pathlib import Path

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
    f'fhe_requests_total{{{WEB},model="a",code="200"}}': growing(600),
    f'fhe_requests_total{{{WEB},model="a",code="500"}}': growing(6),
    f'fhe_requests_total{{{WEB},model="a",code="507"}}': steady(3),
    f"fhe_disk_free_bytes{{{WEB}}}": steady(50e9),
    f"fhe_disk_total_bytes{{{WEB}}}": steady(100e9),
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
    "CloakworkNoWorker": {f'fhe_build_info{{{WORKER},version="1",role="worker"}}': NOTHING},
    "CloakworkVersionsDiffer": {f'fhe_build_info{{{WORKER},version="2",role="worker"}}': steady(1)},
    "CloakworkServerErrors": {f'fhe_requests_total{{{WEB},model="a",code="500"}}': growing(60)},
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


def firing(series: dict[str, str], alert: str, expected: int, folder: Path) -> None:
    """At the end of the time."""
    samples = [{"labels": "{}", "value": expected}] if expected else []
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values != NOTHING],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{MINUTES - 5}m", "exp_samples": samples}],
    }
    file = folder / "alerts_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    run(tool("promtool"), "test", "rules", file)


def test_every_alert_is_tried():
    assert set(WHAT_HAPPENS) == names()


@pytest.mark.parametrize("alert", WHAT_HAPPENS)
def test_it_fires_then_and_not_before(alert: str, tmp_path: Path):
    firing(CALM, alert, 0, tmp_path)
    firing(CALM | WHAT_HAPPENS[alert], alert, 1, tmp_path)
