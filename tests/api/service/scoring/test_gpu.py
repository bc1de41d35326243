"""The service on a GPU gives the words that its owner computes on a CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_models
import pytest
from scoring_server import User, running

import cloakwork as cw
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.audit.audit_key import load_audit_key

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


@pytest.mark.gpu
@pytest.mark.parametrize("devices", ["cuda", "auto"])
def test_answers_of_a_gpu_are_those_of_the_cpu(tmp_path: Path, devices: str):
    rng = np.random.default_rng(0)
    compiled = cw.compile(onnx_models.mlp(rng, (4, 6, 3)), rng.uniform(-1, 1, (512, 4)))
    folder = tmp_path / "data" / "models" / "toy"
    folder.mkdir(parents=True)
    compiled.save(folder / "1.clkm")
    with running(tmp_path / "data", environment={"DEVICES": devices}) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        _, body = user.encrypt(samples=5)
        answer = user.infer(body)
        assert answer.status_code == 200, answer.text
        assert all(
            name.startswith("cuda") for name in http.get("/v2/models/toy").json()["parameters"]["fhe"]["devices"]
        )
        assert 'fhe_bootstraps_total{device="cuda' in http.get("/metrics").text
        engine = http.get("/v2/admin/load").json()["engine"]
        assert [process["name"] for process in engine["processes"]] == engine["devices"], "one for each"
    expected = user.made_again(compiled, load_audit_key(tmp_path / "data" / "audit.key"), body)
    np.testing.assert_array_equal(load_results(answer.content).words, load_results(expected).words)
