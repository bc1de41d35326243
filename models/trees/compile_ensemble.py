"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import InputStep
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.trees.compile_labels import compile_labels
from cloakwork.models.trees.compile_scores import compile_scores
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.options import TreeOptions


def compile_ensemble(
    ensemble: TreeEnsemble,
    *,
    comparisons: Literal["auto", "client", "server"] = "auto",
    leaf_bits: int | None = None,
    bin_bits: int | None = None,
    p_fail_log2: float = -128.0,
    candidates: Sequence[str | ParameterSet] | None = None,
    preprocessing: Sequence[InputStep] | None = None,
    encrypted_argmax: bool = False,
) -> CompiledModel:
    """Compiles trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        comparisons: who compares features with thresholds. "client": it encrypts a bit for each threshold, which costs no bootstrap;
            "server": it encrypts bins, one or two numbers for a feature, and one bootstrap for each gives all comparisons on it, with one more
            for each threshold of features of several digits. "auto": the client, which is never more bootstraps.
        leaf_bits: of the leaf values' integers; None: 8 (6 where trees are averaged), fewer where the noise leaves no room, and fewer
            where an answer would have more than 1 MB: 5 at least, or 3 for an average of 1,000 trees, whose errors average out.
        bin_bits: at most 2^bin_bits thresholds per feature; None: all of them, so that every comparison is the model's own.
        p_fail_log2: log2 of the largest probability that a look-up, or the decoding of an output, is wrong.
        candidates: parameter sets to choose from; None: lut3, lut4, and lut5 for deep trees. One key serves all models of one set.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step alone.
        encrypted_argmax: of classifiers: the client decrypts the label and no score. A single tree gives it at no cost; several trees of two
            classes take one look-up more, and leaf values so coarse that their sum is the index of one look-up.

    Raises:
        NoParameterSetError: no candidate has room for the trees.
    """
    options = TreeOptions(comparisons, leaf_bits, bin_bits, p_fail_log2, candidates, preprocessing)
    return CompiledModel(compile_labels(ensemble, options) if encrypted_argmax else compile_scores(ensemble, options))
