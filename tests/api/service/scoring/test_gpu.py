"""The service on a GPU gives the words that the CPU gives, re-randomised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_models
import pytest
from scoring_server import User, running

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiler import compile_onnx
from cloakwork.models.runtime import Runtime


@pytest.mark.gpu
@pytest.mark.parametrize("devices", ["cuda", "auto"])
def test_answers_of_a_gpu_are_those_of_the_cpu(tmp_path: Path, devices: str):
    rng = np.random.default_rng(0)
    compiled = compile_onnx(onnx_models.mlp(rng, (4, 6, 3)), rng.uniform(-1, 1, (512, 4)))
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
    session = Session(EvaluationKeys.from_bytes(user.keys))
    expected = Runtime(compiled.program, session).run(SeededPackedCiphertexts.from_bytes(body))
    assert user.same_answer(answer.content, expected.to_bytes())
