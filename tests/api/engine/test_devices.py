"""What the engine process is told, and which devices it takes."""

from __future__ import annotations

import pytest

from cloakwork.api.engine.devices import run_spread, usable_devices, worker_count
from cloakwork.api.engine.messages import EngineOptions
from cloakwork.api.engine.runner import Runner
from cloakwork.fhe_core.errors import DeviceError


def test_options_pass_to_the_engine():
    options = EngineOptions("cuda:0,1", 4, 1, 2, "debug")
    assert EngineOptions.from_json(options.to_json()) == options
    assert (worker_count(options.device, 4), run_spread(options.device, 4)) == (2, 1)
    assert (worker_count("cpu", 3), run_spread("cpu", 3)) == (3, 3)
    assert usable_devices() != ()
    with pytest.raises(DeviceError, match="tpu"):
        Runner(EngineOptions("tpu"))
