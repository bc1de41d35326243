"""What a service has to know of an index that it offers: sizes, keys, what its clients are told."""

from __future__ import annotations

from typing import Any

from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.models.neighbours.index import NeighbourIndex


def index_facts(index: NeighbourIndex) -> dict[str, Any]:
    """Plain JSON, in the words that facts of programs use (`cloakwork.models.repository`)."""
    client, keys = index.client, index.client.key_shape
    return {
        "parameter_set": client.parameters.set.name,
        "plaintext_modulus": client.parameters.plaintext_modulus,
        "parameter_digest": keys.digest.hex(),
        "security_bits": client.parameters.set.security_bits,
        "structured_secret": False,
        "samples_per_ciphertext": 1,
        "p_fail_log2_per_lookup": None,
        "p_fail_log2_per_program": FAILURE_LOG2,  # at most, of every ciphertext of an answer
        "input_shape": [len(client.centre)],
        "input_numbers": len(client.centre),
        "output_shape": [client.rows],
        "output_numbers": client.rows,
        "level": client.level,
        "answer_level": client.answer_level,
        "bootstraps": 0,
        "evaluation_key_bytes": keys.byte_count,
        "expanded_key_bytes": keys.rounds * 2 * client.parameters.switch_key_bytes,
        "largest_batch": 1,
        "client": client.to_json(),
        "report": index.report(),
    }
