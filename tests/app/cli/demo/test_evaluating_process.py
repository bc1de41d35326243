"""The server process of the demonstrations: its frames, its order of requests, and what it does with nonsense."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cloakwork.app.cli.demo.evaluator import Evaluator
from cloakwork.app.cli.demo.frames import FrameError, read_frame, write_frame
from cloakwork.app.cli.shared.console import FailureError
from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models import zoo
from cloakwork.models.program.artefact import program_to_bytes


def test_frames_come_back_and_the_end_is_none():
    stream = io.BytesIO()
    write_frame(stream, {"a": 1}, b"bytes")
    write_frame(stream, {})
    stream.seek(0)
    assert read_frame(stream) == ({"a": 1}, b"bytes")
    assert read_frame(stream) == ({}, b"")
    assert read_frame(stream) is None


@pytest.mark.parametrize(
    "data", [b"\1", b"\xff\xff\xff\xff", b"\2\0\0\0{}\1", b"\2\0\0\0[]" + bytes(8), b"\1\0\0\0{" + bytes(8)]
)
def test_broken_frames_are_refused(data):
    with pytest.raises(FrameError):
        read_frame(io.BytesIO(data))


def test_every_cut_of_a_frame_is_noticed():
    stream = io.BytesIO()
    write_frame(stream, {"request": "run"}, b"12345")
    data = stream.getvalue()
    for length in range(1, len(data)):
        with pytest.raises(FrameError):
            read_frame(io.BytesIO(data[:length]))


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_refusals_leave_the_server_working():
    """Wrong order, garbage, keys of another set, another key's ciphertexts; then a right request."""
    model = zoo.load_model("mnist-mlp-1x30")
    key, other = (ClientKey.generate(model.program.parameters) for _ in range(2))
    wrong_set = ClientKey.generate("toy").evaluation_keys().to_bytes()
    image = sample_digits()[0][:1]
    with Evaluator() as server:
        with pytest.raises(FailureError, match="order"):
            server.run(b"")
        with pytest.raises(FailureError, match="truncated"):
            server.load(b"CLKM", b"", "cpu", 1)
        with pytest.raises(FailureError, match=model.program.parameters.name):
            server.load(program_to_bytes(model.program), wrong_set, "cpu", 1)
        loaded = server.load(program_to_bytes(model.program), key.evaluation_keys().to_bytes(), "cpu", 1)
        assert loaded.samples >= 1
        with pytest.raises(FailureError, match="server"):
            server.run(model.client.encrypt(other, image).to_bytes())
        seen: list[tuple[int, int]] = []
        result = server.run(
            model.client.encrypt(key, image).to_bytes(), lambda done, total: bool(seen.append((done, total))) or True
        )
        scores = model.client.decrypt(key, load_results(result.ciphertexts))
        clear = model.predict(image)
        assert np.abs(scores - clear).max() < 0.5 * np.abs(clear).max()
        assert all(done <= total == 30 for done, total in seen)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_server_that_dies_is_a_failure():
    import os
    import signal

    with Evaluator() as server:
        os.kill(server.process_id, signal.SIGKILL)
        with pytest.raises(FailureError, match="stopped"):
            server.run(b"")
