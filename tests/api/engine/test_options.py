"""What the engine process is told, and which devices it takes."""

from __future__ import annotations

import pytest

from cloakwork.api.engine.devices import chosen_devices, worker_count
from cloakwork.api.engine.options import EngineOptions
from cloakwork.fhe_core.errors import DeviceError


def test_options_pass_to_the_engine():
    options = EngineOptions(("cuda:0", "cuda:1"), 4, 1, 2, "debug")
    assert EngineOptions.from_json(options.to_json()) == options
    assert worker_count(options.devices, 4) == 4 and worker_count(("cpu",), 3) == 3
    assert chosen_devices(("cpu",)) == ("cpu",) and chosen_devices(()) != ()
    with pytest.raises(DeviceError, match="tpu"):
        chosen_devices(("tpu",))
