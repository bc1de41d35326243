"""A compiled model under keys of two parties: samples are encrypted with the joint public key, and both decrypt the answer."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from cloakwork.estimators import DecisionTreeClassifier
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.threshold.party import Party, combine, joint_evaluation_keys, joint_public_key
from cloakwork.models.runtime import Runtime
from cloakwork.training.tabular_data import load_tabular


@pytest.mark.tier("all")
def test_a_tree_answers_two_parties() -> None:
    data = load_tabular("breast-cancer")
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(data.train_x, data.train_y)
    model = tree.compile(data.train_x, sets=["lut3_2p"], tell="labels")
    assert model.program.parameters.name == "lut3_2p"

    parties = [Party.generate("lut3_2p", index) for index in (0, 1)]
    contributions = [party.contribution for party in parties]
    shares = [party.public_share([party.commitment for party in parties], contributions) for party in parties]
    joint = joint_public_key(shares, [share.commitment for share in shares])
    keys = joint_evaluation_keys(joint, [party.evaluation_share(joint) for party in parties])

    client, samples = tree.client, data.test_x[:4]
    encrypted = joint.public_key.encrypt(client.phases(samples), encoding=Encoding.TORUS).with_purpose(client.program)
    answer = Runtime(model.program, Session(keys)).answer(encrypted)
    margin = client.output_unit / 2
    partials = [party.partial_decrypt(answer, margin=margin) for party in parties]
    assert parties[0].decryptions_left(answer, margin) > 500
    np.testing.assert_array_equal(client.output(combine(answer, partials)), tree.predict(samples))
    with pytest.raises(ParameterError, match="margin"):
        parties[0].partial_decrypt(answer)
