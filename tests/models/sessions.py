"""Keys and sessions of parameter sets, each made when a test of a module first asks for it, and dropped with the module."""

from __future__ import annotations

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

_ENTROPY = bytes(range(32))  # not of the test that asks first


class Sessions:
    """Call it with the name of a set, and a device."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[ClientKey, EvaluationKeys]] = {}
        self._sessions: dict[tuple[str, str], Session] = {}

    def __call__(self, name: str, device: str = "cpu") -> tuple[ClientKey, Session]:
        if name not in self._keys:
            secret = ClientKey._from_entropy(parameter_set(name), _ENTROPY)
            self._keys[name] = (
                secret,
                secret.evaluation_keys(),
            )  # the same for all devices, so that words can be compared
        key, evaluation_keys = self._keys[name]
        if (name, device) not in self._sessions:
            self._sessions[name, device] = Session(evaluation_keys, device)
        return key, self._sessions[name, device]
