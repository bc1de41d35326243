"""Facts of a model for batches that a service needs: sizes, keys, the client's specification."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.batches.plan import answer_noise
from cloakwork.models.client_steps import no_samples


def batch_facts(model: BatchModel) -> dict[str, Any]:
    """Returns plain JSON, in the words that facts of programs use (`cloakwork.models.repository`); of one by look-ups what its program's do not say.

    What a service counts is queries, each of up to `samples_per_ciphertext` samples.
    """
    facts = {"packing": "program", "client": model.client.to_json(), "report": model.report()}
    return facts if model.single is not None else _levelled_facts(model) | facts | {"packing": model.client.packing}


def _levelled_facts(model: BatchModel) -> dict[str, Any]:
    client, keys = model.client, model.client.key_shapes
    first, levels = client.parameters[0], (client.level, client.answer_level)
    key_count = sum(len(each.numbers) for each in keys.shapes)
    return {
        "parameter_set": first.set.name,
        "plaintext_moduli": [each.plaintext_modulus for each in client.parameters],
        "parameter_digest": keys.digest.hex(),
        "security_bits": first.set.security_bits,
        "structured_secret": False,
        "samples_per_ciphertext": client.samples_at_once,
        "p_fail_log2_per_lookup": None,
        "p_fail_log2_per_program": FAILURE_LOG2,  # at most, of every ciphertext of an answer
        "input_shape": list(np.shape(np.asarray(no_samples(client.input_steps)))[1:]),
        "input_numbers": client.features,
        "output_shape": [len(client.unit)],
        "output_numbers": len(client.unit),
        "level": client.level,
        "answer_level": client.answer_level,
        "query_ciphertexts": client.query_ciphertexts,  # for each plaintext modulus
        "answer_ciphertexts": client.answer_ciphertexts,
        "answer_variances": len(answer_noise(model.formula, first, client.packing, levels).variances),
        "forecast_seconds": _query_seconds(model),
        "bootstraps": 0,
        "evaluation_key_bytes": keys.byte_count,
        "expanded_key_bytes": key_count * 2 * first.switch_key_bytes,
        "largest_batch": 1,
    }


def _query_seconds(model: BatchModel) -> float:
    """Returns the query seconds of the server, as foreseen: costs are of a sample among `model.batch`."""
    queries = -(-model.batch // model.client.samples_at_once)
    return model.plan.cost.server_ms / 1000 * model.batch / queries
