"""Access to the parameter sets: names, toy sets, digests, sizes."""

from __future__ import annotations

import pytest

from cloakwork.fhe_core import parameters
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set, parameter_sets


def test_every_set_is_found_by_its_name() -> None:
    for params in parameter_sets():
        assert parameter_set(params.name) == params
        assert hash(parameter_set(params.name)) == hash(params)
    with pytest.raises(ParameterError, match="none called 'lut_4'; nearest: lut4"):
        parameter_set("lut_4")


@pytest.mark.parametrize("value", [None, "", "0", "yes"])
def test_toy_sets_are_refused_outside_tests(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    toy = parameter_set("toy")
    if value is None:
        monkeypatch.delenv("CLOAKWORK_ALLOW_TOY")
    else:
        monkeypatch.setenv("CLOAKWORK_ALLOW_TOY", value)
    assert all(params.security_bits >= 120 for params in parameter_sets())
    for name in ("toy", toy):
        with pytest.raises(ParameterError, match="'toy' is insecure .*choose another set"):
            ClientKey.generate(name)
    parameter_set("lut4")


def test_digests_are_32_bytes_and_stable_within_a_process() -> None:
    for params in parameter_sets():
        assert len(parameter_digest(params)) == 32
        assert parameter_digest(params) == parameter_digest(parameter_set(params.name))


def test_the_digest_depends_on_every_field_of_the_text() -> None:
    text = parameters.parameter_text(parameter_set("toy"))
    assert [line.split("=")[0] for line in text.splitlines()[1:]] == list(parameters._DIGEST_FIELDS)
    assert text.endswith("\n") and text.isascii()


def test_expanded_sizes_are_those_of_the_arrays() -> None:
    key = ClientKey.generate("toy")
    keys, params = key.evaluation_keys(), key.parameters
    masks = params.glwe_dimension + 1
    assert parameters.expanded_bootstrap_key_bytes(params) == keys.bootstrap_bodies.nbytes * masks
    assert parameters.expanded_keyswitch_key_bytes(params) == keys.keyswitch_bodies.nbytes * (params.lwe_dimension + 1)
    assert parameters.upload_bytes(params) == len(keys.to_bytes())
