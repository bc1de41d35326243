"""The TFHE engine by itself: keys, ciphertexts, and bootstraps that evaluate any function of small integers.

`ClientKey` encrypts and decrypts; `Session` computes with its `evaluation_keys()`, and has no secret.
"""

from __future__ import annotations

from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys, ExpandedKey
from cloakwork.fhe_core.parameters import ParameterSet, offered_sets, parameter_set
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.server import Session

__all__ = [
    "Ciphertexts",
    "ClientKey",
    "Encoding",
    "EvaluationKeys",
    "ExpandedKey",
    "ParameterSet",
    "PublicKey",
    "SeededCiphertexts",
    "SeededPackedCiphertexts",
    "Session",
    "has_cuda",
    "offered_sets",
    "parameter_set",
]
