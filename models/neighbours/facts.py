"""Facts of an index that a service needs: sizes, keys, the client's specification."""

from __future__ import annotations

from typing import Any

from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.neighbours.cell_products import cell_products_noise
from cloakwork.fhe_core.levelled.neighbours.inner_products import products_noise
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex


def index_facts(index: NeighbourIndex) -> dict[str, Any]:
    """Returns plain JSON, in the words that facts of programs use (`cloakwork.models.repository`)."""
    client, keys = index.client, index.client.key_shape
    cells, features = client.cells, len(client.centre)
    return {
        "parameter_set": client.parameters.set.name,
        "plaintext_modulus": client.parameters.plaintext_modulus,
        "parameter_digest": keys.digest.hex(),
        "security_bits": client.parameters.set.security_bits,
        "structured_secret": False,
        "samples_per_ciphertext": 1,
        "p_fail_log2_per_lookup": None,
        "p_fail_log2_per_program": FAILURE_LOG2,  # at most, of every ciphertext of an answer
        "input_shape": [features],
        "input_numbers": features,
        "output_shape": [client.rows],
        "output_numbers": client.rows,
        "level": client.level,
        "answer_level": client.answer_level,
        "answer_ciphertexts": client.answer_ciphertexts,
        "answer_variances": len(_answer_noise(client).variances),  # that an answer says of its noise
        "dropped_bits": [0, 0] if cells is None else [cells.levels.query_bits, cells.levels.answer_bits],
        # Numbers that a query is expanded into, each by a keyswitch, and products of polynomials.
        "expanded_numbers": features if cells is None else cells.layout.count,
        "products": features * (client.answer_ciphertexts if cells is None else cells.layout.blocks),
        "bootstraps": 0,
        "evaluation_key_bytes": keys.byte_count,
        "expanded_key_bytes": len(keys.numbers) * 2 * client.parameters.switch_key_bytes,
        "largest_batch": 1,
        "client": client.to_json(),
        "report": index.report(),
    }


def _answer_noise(client: NeighbourClient) -> Noise:
    """Returns the answer noise of a table of ones: how many variances there are does not depend on the numbers."""
    if client.cells is None:
        levels = (client.level, client.answer_level)
        return products_noise(client.parameters, levels, len(client.centre), 1.0, 1.0)
    return cell_products_noise(client.cells.layout, client.cells.levels, 1.0, 1.0)[1]
