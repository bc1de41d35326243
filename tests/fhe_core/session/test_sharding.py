"""Sharded sessions: the words of one device, whatever the number of devices and the batch; errors and cancels end every share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import CancelledError, DeviceError, ShapeError
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys, device_ordinals
from cloakwork.fhe_core.session.sharding import ShardedSession, device_sessions, session_over

BATCHES = (1, 2, 3, 31, 64)


@pytest.fixture(scope="module")
def keys() -> tuple[ClientKey, EvaluationKeys]:
    key = ClientKey.generate("toy")
    return key, key.evaluation_keys()


@pytest.fixture(scope="module")
def sessions(keys: tuple[ClientKey, EvaluationKeys]) -> tuple[Any, ShardedSession]:
    (engine_key,) = keys[1].expand("cpu").engine_keys
    single = _engine.CpuSession(engine_key)
    return single, ShardedSession([_engine.CpuSession(engine_key) for _ in range(3)])


def inputs(params: _engine.ParameterSet, batch: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(batch)
    lwe = rng.integers(0, params.modulus, (batch, params.large_dimension + 1), dtype=np.uint32)
    tables = rng.integers(0, params.modulus, (4, params.polynomial_size), dtype=np.uint32)
    return lwe, tables, rng.integers(0, 4, batch, dtype=np.uint32)


@pytest.mark.parametrize("batch", BATCHES)
def test_every_operation_gives_the_words_of_one_device(sessions: tuple[Any, ShardedSession], batch: int) -> None:
    single, sharded = sessions
    lwe, tables, index = inputs(single.params, batch)
    coefficients = np.array([0, 5, 200], dtype=np.uint32)
    small = single.keyswitch(lwe)
    switched = single.modulus_switch(small)
    glwe = single.blind_rotate(switched, tables, index)
    weights = np.arange(-3, 3, dtype=np.int32).reshape(3, 2)
    pairs = np.stack([lwe, lwe[::-1]], axis=1)
    for one, several in (
        (small, sharded.keyswitch(lwe)),
        (switched, sharded.modulus_switch(small)),
        (glwe, sharded.blind_rotate(switched, tables, index)),
        (single.sample_extract(glwe, coefficients), sharded.sample_extract(glwe, coefficients)),
        (single.bootstrap(lwe, tables, index, coefficients), sharded.bootstrap(lwe, tables, index, coefficients)),
        (single.bootstrap(lwe, tables[:1]), sharded.bootstrap(lwe, tables[:1])),
        (single.linear(weights, pairs), sharded.linear(weights, pairs)),
        (single.combine(lwe, 3, lwe, -1, 7), sharded.combine(lwe, 3, lwe, -1, 7)),
        (single.combine(lwe, -2), sharded.combine(lwe, -2)),
    ):
        assert several.dtype == one.dtype
        assert np.array_equal(several, one)


def test_progress_is_gathered(sessions: tuple[Any, ShardedSession]) -> None:
    lwe, tables, index = inputs(sessions[0].params, 9)
    calls: list[tuple[int, int]] = []
    sessions[1].bootstrap(lwe, tables, index, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (9 * sessions[0].params.step_count,) * 2


def test_cancel_ends_every_share(sessions: tuple[Any, ShardedSession]) -> None:
    lwe, tables, index = inputs(sessions[0].params, 9)
    with pytest.raises(CancelledError):
        sessions[1].bootstrap(lwe, tables, index, progress=lambda done, total: False)


def test_error_of_one_share_is_raised(sessions: tuple[Any, ShardedSession]) -> None:
    lwe, tables, index = inputs(sessions[0].params, 9)
    index[-1] = 4
    with pytest.raises(ShapeError, match="table_index"):
        sessions[1].bootstrap(lwe, tables, index)


def test_out_is_checked(sessions: tuple[Any, ShardedSession]) -> None:
    lwe, tables, _ = inputs(sessions[0].params, 2)
    out = np.empty((2, 1, lwe.shape[1]), np.uint32)
    assert np.array_equal(sessions[0].bootstrap(lwe, tables[:1], out=out), sessions[0].bootstrap(lwe, tables[:1]))
    frozen = out.copy()
    frozen.flags.writeable = False
    for wrong in (out[:1], out.astype(np.uint64), frozen):
        with pytest.raises(ShapeError, match="out"):
            sessions[0].bootstrap(lwe, tables[:1], out=wrong)


def test_bytes_of_a_sharded_key_add_up(keys: tuple[ClientKey, EvaluationKeys]) -> None:
    one = keys[1].expand("cpu")
    assert replace(one, engine_keys=one.engine_keys * 2).nbytes == 2 * one.nbytes == 2 * one.engine_keys[0].nbytes


@pytest.mark.parametrize(
    ("device", "ordinals"),
    [("cpu", []), ("cuda", []), ("cuda:1", [1]), ("cuda:0,1", [0, 1]), ("cuda:3,0,2", [3, 0, 2])],
)
def test_device_names(device: str, ordinals: list[int]) -> None:
    assert device_ordinals(device) == ordinals


@pytest.mark.parametrize(
    "device", ["", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:0,", "cuda:0,0", "cuda:-1", "cuda:0;1"]
)
def test_wrong_device_names(device: str) -> None:
    with pytest.raises(DeviceError, match="device"):
        device_ordinals(device)


@pytest.mark.gpu
def test_two_gpus_equal_the_cpu(keys: tuple[ClientKey, EvaluationKeys], sessions: tuple[Any, ShardedSession]) -> None:
    count = getattr(_engine, "cuda_device_count", lambda: 0)()
    if count < 2:
        pytest.skip(f"needs two CUDA devices, found {count}")
    lwe, tables, index = inputs(sessions[0].params, 65)
    sharded = session_over(device_sessions(keys[1].expand("cuda:0,1").engine_keys, "cuda:0,1", None))
    assert np.array_equal(sharded.bootstrap(lwe, tables, index), sessions[0].bootstrap(lwe, tables, index))
