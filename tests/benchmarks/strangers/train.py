"""Trains by plain recipes, exports to ONNX as tutorials do, keeps the files in a folder that git ignores."""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from torch import nn

from .data import Data
from .networks import Rescaled
from .recipes import Stranger

CACHE = Path(__file__).resolve().parents[3] / "build" / "strangers"
_BATCH = 32
_QUANTISER_SAMPLES = 300
_OPSET = 17


def onnx_model(stranger: Stranger, data: Data, *, cache: Path = CACHE, again: bool = False) -> onnx.ModelProto:
    """The trained network, from the cache where it lies there."""
    path = cache / f"{stranger.name}.onnx"
    if again or not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        model = exported(_trained(stranger, data), data)
        if stranger.quantised:
            model = _quantised(model, data)
        onnx.save(model, path)
    return onnx.load(path)


def fitted(stranger: Stranger, data: Data) -> Any:
    """An estimator of scikit-learn."""
    assert stranger.estimator is not None
    estimator = stranger.estimator()
    targets = data.train_y[:, 0] if data.task == "values" else data.train_y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        return estimator.fit(data.train_x, targets)


def _trained(stranger: Stranger, data: Data) -> nn.Module:
    """Adam, mini-batches of 32, cross entropy or mean squares; the rate falls to zero along a cosine."""
    torch.set_num_threads(1)
    torch.manual_seed(zlib.crc32(stranger.name.encode()))
    assert stranger.network is not None
    network = stranger.network()
    x, y, loss, mean, deviation = _targets(data, network)
    optimiser = torch.optim.Adam(network.parameters(), lr=stranger.learning_rate)
    steps = stranger.epochs * (len(x) // _BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    network.train()
    for _ in range(stranger.epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - _BATCH + 1, _BATCH):
            batch = order[start : start + _BATCH]
            optimiser.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimiser.step()
            schedule.step()
    if data.task == "values":
        network = Rescaled(network, mean, deviation)
    return network.eval()


def _targets(
    data: Data, network: nn.Module
) -> tuple[torch.Tensor, torch.Tensor, nn.Module, torch.Tensor, torch.Tensor]:
    """Inputs, targets, the loss, and mean and deviation of real targets."""
    x = torch.tensor(data.train_x)
    none = torch.zeros(1)
    if data.task == "classes":
        return x, torch.tensor(data.train_y, dtype=torch.int64), nn.CrossEntropyLoss(), none, none
    y = torch.tensor(data.train_y, dtype=torch.float32).reshape(len(x), -1)
    if data.task == "binary":
        ends_in_sigmoid = isinstance(list(network.children())[-1], nn.Sigmoid)
        return x, y, nn.BCELoss() if ends_in_sigmoid else nn.BCEWithLogitsLoss(), none, none
    mean, deviation = y.mean(), y.std()
    return x, (y - mean) / deviation, nn.MSELoss(), mean, deviation


def exported(network: nn.Module, data: Data) -> onnx.ModelProto:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter says that it is the old one
        torch.onnx.export(
            network,
            (torch.tensor(data.train_x[:1]),),
            buffer,  # type: ignore[arg-type]  # a stream, which this exporter takes
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
            opset_version=_OPSET,
        )
    return onnx.load_from_string(buffer.getvalue())


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, x: np.ndarray) -> None:
        self._rest = iter(x)

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._rest, None)
        return None if sample is None else {"x": sample[None]}


def _quantised(model: onnx.ModelProto, data: Data) -> onnx.ModelProto:
    """ONNX Runtime's static quantisation with its defaults, in QDQ form."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # the tool recommends pre-processing
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
            onnx.save(model, source)
            samples = _Samples(data.train_x[:_QUANTISER_SAMPLES])
            quantize_static(
                source, target, samples, quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            )  # fmt: skip
            return onnx.load(target)
    finally:
        logging.getLogger().setLevel(level)
