"""Samples scored encrypted, for the demonstrations: keys and decryption here, evaluation in a process that has no key."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.demo.evaluator import Evaluator
from cloakwork.app.cli.shared.console import MIB, ProgressCallback, progress
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.artefact import program_to_bytes
from cloakwork.models.report import sample_p_fail_log2
from cloakwork.models.runtime import shifted_progress


@dataclass(frozen=True, eq=False)
class EncryptedRun:
    """Outputs of an encrypted run, and their cost. Seconds of a sample are the server's, from the bytes of its ciphertext to the bytes of the
    result."""

    outputs: NDArray[np.generic]
    seconds_per_sample: float  # in batches, the first sample left out; of the first one where there is no other
    seconds_first_sample: float  # alone, after the keys were expanded
    seconds_keygen: float
    seconds_expand: float
    seconds_encrypt: float  # of a sample
    seconds_decrypt: float
    upload_bytes: int  # evaluation keys, once
    ciphertext_bytes: int  # one sample on its way to the server
    result_bytes: int  # and its result on the way back
    words: NDArray[
        np.float64
    ]  # what the server sees in place of the numbers [samples, numbers]: words of the ciphertexts, in [0, 1)


def run_encrypted(model: CompiledModel, samples: NDArray[Any], device: str = "cpu", threads: int = 1) -> EncryptedRun:
    """Makes keys, starts a server, sends it the program, the evaluation keys and ciphertexts, decrypts. Samples [samples, ..], at least one."""
    start = time.perf_counter()
    key = ClientKey.generate(model.program.parameters)
    with progress("making keys") as update:
        evaluation_keys = key.evaluation_keys(progress=update).to_bytes()
    seconds_keygen = time.perf_counter() - start
    client = _Client(model, key)
    with Evaluator() as server, progress("encrypted inference") as update:
        loaded = server.load(program_to_bytes(model.program), evaluation_keys, device, threads)
        total = model.program.bootstraps * len(samples)
        output, seconds_first = client.score(server, samples[:1], _reported(update, 0, total))
        ciphertext_bytes, result_bytes = client.sent_bytes, client.received_bytes
        outputs, seconds = [output], 0.0
        for first in range(1, len(samples), loaded.samples):
            reported = _reported(update, model.program.bootstraps * first, total)
            output, taken = client.score(server, samples[first : first + loaded.samples], reported)
            outputs.append(output)
            seconds += taken
    return EncryptedRun(
        np.concatenate(outputs),
        seconds / (len(samples) - 1) if len(samples) > 1 else seconds_first,
        seconds_first,
        seconds_keygen,
        loaded.seconds,
        client.seconds_encrypt / len(samples),
        client.seconds_decrypt / len(samples),
        len(evaluation_keys),
        ciphertext_bytes,
        result_bytes,
        np.concatenate(client.words),
    )


def costs(model: CompiledModel, run: EncryptedRun, unit: str) -> dict[str, Any]:
    """Returns the costs of a run, by the names of docs/reference/command-line.md. Args: unit: what a sample is called."""
    params = model.program.parameters
    return {
        f"seconds_per_{unit}": run.seconds_per_sample,
        f"seconds_first_{unit}": run.seconds_first_sample,
        "seconds_keygen": run.seconds_keygen,
        "seconds_expand": run.seconds_expand,
        "seconds_encrypt": run.seconds_encrypt,
        "seconds_decrypt": run.seconds_decrypt,
        "upload_bytes": run.upload_bytes,
        "ciphertext_bytes": run.ciphertext_bytes,
        "result_bytes": run.result_bytes,
        f"bootstraps_per_{unit}": model.program.bootstraps,
        "parameter_set": params.name,
        "p_fail_log2": sample_p_fail_log2(model.program),
        "security_bits": params.security_bits,
        "structured_secret": params.structured_secret,
    }


def client_line(run: EncryptedRun, sample: str) -> str:
    """Says how long the client's part took, before the server's. Args: sample: what one is called, with its article."""
    return (
        f"client  keys made in {run.seconds_keygen:.2f} s, {run.upload_bytes / MIB:.1f} MiB of them go to the server once; {sample} encrypted in "
        f"{run.seconds_encrypt * 1e3:.1f} ms, {run.ciphertext_bytes} bytes"
    )


class _Client:
    """The owner of the data: encrypts, sends, decrypts, and times its own part."""

    def __init__(self, model: CompiledModel, key: ClientKey) -> None:
        self._specification = model.client
        self._key = key
        self.seconds_encrypt = self.seconds_decrypt = 0.0
        self.sent_bytes = self.received_bytes = 0  # of the last call
        self.words: list[NDArray[np.float64]] = []

    def score(
        self, server: Evaluator, samples: NDArray[Any], update: ProgressCallback
    ) -> tuple[NDArray[np.generic], float]:
        """Returns the outputs, and the server's seconds."""
        start = time.perf_counter()
        packed = self._specification.encrypt(self._key, samples)
        sent = packed.to_bytes()
        self.seconds_encrypt += time.perf_counter() - start
        result = server.run(sent, update)
        start = time.perf_counter()
        output = self._specification.decrypt(self._key, load_results(result.ciphertexts))
        self.seconds_decrypt += time.perf_counter() - start
        self.sent_bytes, self.received_bytes = len(sent), len(result.ciphertexts)
        self.words.append(packed.bodies.reshape(-1)[: packed.size].reshape(packed.shape) / packed.parameters.modulus)
        return output, result.seconds


def _reported(update: ProgressCallback, done: int, total: int) -> ProgressCallback:
    shifted = shifted_progress(update, done, total)
    return lambda part, whole: bool(shifted(part, whole)) if shifted is not None else True
