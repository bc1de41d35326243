"""The TFHE engine by itself: keys, ciphertexts, and bootstraps that evaluate any function of small integers.

- Look-ups: `ClientKey` encrypts and decrypts; `Session` computes with its `evaluation_keys()`, and has no secret. `eval_func`, `eval_sign`,
  `eval_floor` and `eval_decomp` take integers of many bits, `ModularIntegers`.
- What is sent: `to_bytes` of any object writes it, `from_bytes` reads it.
- Several owners of one key: `Party`, `joint_public_key`, `joint_evaluation_keys`, `combine`.
- Levelled arithmetic: `LevelledClientKey` and `LevelledEvaluator` for sums, products and rotations of encrypted vectors, `Slots` for numbers in
  slots, `ToLookups` and `FromLookups` for the way to look-ups and back.
"""

from __future__ import annotations

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.large.precision import eval_decomp, eval_floor, eval_func, eval_sign
from cloakwork.fhe_core.levelled.bridges.client import from_lookups_keys, to_lookups_key
from cloakwork.fhe_core.levelled.bridges.from_lookups import FromLookups
from cloakwork.fhe_core.levelled.bridges.to_lookups import ToLookups
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.slots import Slots
from cloakwork.fhe_core.modular_integers import ModularIntegers
from cloakwork.fhe_core.parameters import ParameterSet, offered_sets, parameter_set
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.sent_objects import from_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.fhe_core.threshold.party import Party, combine, joint_evaluation_keys, joint_public_key

__all__ = [
    "Ciphertexts",
    "ClientKey",
    "Encoding",
    "EvaluationKeys",
    "FromLookups",
    "LevelledCiphertexts",
    "LevelledClientKey",
    "LevelledEvaluator",
    "LevelledParameters",
    "LookupTables",
    "ModularIntegers",
    "ParameterSet",
    "Party",
    "PublicKey",
    "Session",
    "Slots",
    "ToLookups",
    "combine",
    "eval_decomp",
    "eval_floor",
    "eval_func",
    "eval_sign",
    "from_bytes",
    "from_lookups_keys",
    "joint_evaluation_keys",
    "joint_public_key",
    "offered_sets",
    "parameter_set",
    "to_lookups_key",
]
