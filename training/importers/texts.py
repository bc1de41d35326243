"""Vectorizers of texts as the client's first step, and the weights of TF-IDF as steps after it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cloakwork.models.client_steps import TOKENS, Function, InputStep, Normalise, Standardise, Texts
from cloakwork.models.client_steps.column_flow import ColumnFlow, Recipe
from cloakwork.models.errors import some
from cloakwork.training.importers.nodes import unsupported_option

VECTORIZERS: Final = ("CountVectorizer", "HashingVectorizer", "TfidfVectorizer")


def vectorized(vectorizer: Any, kind: str) -> tuple[ColumnFlow, Recipe]:
    """Returns a flow of columns that starts with texts."""
    counts = _counts(vectorizer, kind)
    flow = ColumnFlow(counts.count, texts=counts)
    recipe = flow.start()
    if kind == "TfidfVectorizer":
        return flow, weighted(vectorizer._tfidf, flow, recipe)
    norm = vectorizer.norm if kind == "HashingVectorizer" else None
    return flow, recipe if norm is None else flow.normalise(recipe, str(norm))


def weighted(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Imports TfidfTransformer: frequencies, times the inverse document frequency, normalised."""
    steps: list[InputStep] = [Function("logarithm of counts")] if transformer.sublinear_tf else []
    if transformer.use_idf:
        if not np.isfinite(transformer.idf_).all():
            remedy = "use smooth_idf=True, or a vocabulary of words that the training texts have"
            raise unsupported_option(transformer, "idf_", "infinite", remedy)
        steps.append(Standardise(np.zeros(len(recipe)), np.asarray(transformer.idf_, dtype=np.float64)))
    if transformer.norm is not None:
        steps.append(Normalise(str(transformer.norm)))
    return flow.apply(recipe, steps, len(recipe)) if steps else recipe


def _counts(vectorizer: Any, kind: str) -> Texts:
    for option in ("preprocessor", "tokenizer"):
        if getattr(vectorizer, option) is not None:
            raise unsupported_option(vectorizer, option, getattr(vectorizer, option), "prepare the texts yourself")
    if vectorizer.input != "content":
        raise unsupported_option(vectorizer, "input", vectorizer.input, "pass the texts themselves")
    if not isinstance(vectorizer.analyzer, str):
        raise unsupported_option(vectorizer, "analyzer", vectorizer.analyzer, "use 'word', 'char' or 'char_wb'")
    if vectorizer.strip_accents not in (None, "ascii", "unicode"):
        raise unsupported_option(
            vectorizer, "strip_accents", vectorizer.strip_accents, "use 'ascii', 'unicode' or None"
        )
    if vectorizer.analyzer == "word" and vectorizer.token_pattern not in TOKENS:
        remedy = f"a client runs no pattern of others; use one of {some(map(repr, TOKENS))}"
        raise unsupported_option(vectorizer, "token_pattern", vectorizer.token_pattern, remedy)
    hashed = kind == "HashingVectorizer"
    stop = vectorizer.get_stop_words() if vectorizer.analyzer == "word" else None
    shortest, longest = vectorizer.ngram_range
    return Texts(
        vocabulary=() if hashed else tuple(sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)),
        hashed=int(vectorizer.n_features) if hashed else 0,
        signed=bool(hashed and vectorizer.alternate_sign),
        analyzer=vectorizer.analyzer,
        pattern=vectorizer.token_pattern if vectorizer.analyzer == "word" else next(iter(TOKENS)),
        lowercase=bool(vectorizer.lowercase),
        accents=vectorizer.strip_accents or "",
        stop=tuple(sorted(stop or ())),
        shortest=int(shortest),
        longest=int(longest),
        binary=bool(vectorizer.binary),
    )
