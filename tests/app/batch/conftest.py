"""A model of the zoo, a key, and inputs of one to five samples, with their results in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime

COUNT = 6


@dataclass(frozen=True)
class DataSet:
    """inputs and results by name; a result as `cloakwork run --deterministic` writes it."""

    model: CompiledModel
    key: ClientKey
    keys: Path
    inputs: dict[str, bytes]
    results: dict[str, bytes]
    samples: dict[str, int]

    def write(self, folder: Path, names: list[str] | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or self.inputs:
            (folder / name).write_bytes(self.inputs[name])
        return folder

    def repeated(self, count: int) -> DataSet:
        """Every input so often, under names of its own: more work with the same results."""
        inputs, results, samples = (
            {f"{i:02d}-{name}": value for i in range(count) for name, value in values.items()}
            for values in (self.inputs, self.results, self.samples)
        )
        return replace(self, inputs=inputs, results=results, samples=samples)

    @property
    def names(self) -> list[str]:
        return sorted(self.inputs)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    model = zoo.load_model("iris-tree")
    key = ClientKey.generate(model.program.parameters)
    keys = key.evaluation_keys()
    path = tmp_path_factory.mktemp("batch") / "evaluation.keys"
    keys.save(path)
    runtime, random = Runtime(model.program, Session(keys)), np.random.default_rng(5)
    low, high = np.array([4.3, 2.0, 1.0, 0.1]), np.array([7.9, 4.4, 6.9, 2.5])
    counts = random.integers(1, 6, COUNT)
    rows = [low + (high - low) * random.random((count, 4)) for count in counts]
    encrypted = {f"{i:03d}.bin": model.client.encrypt(key, x) for i, x in enumerate(rows)}
    return DataSet(
        model,
        key,
        path,
        {name: x.to_bytes() for name, x in encrypted.items()},
        {name: runtime.run(x).to_bytes() for name, x in encrypted.items()},
        {name: x.shape[0] for name, x in encrypted.items()},
    )
