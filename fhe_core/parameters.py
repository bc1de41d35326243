"""The shipped parameter sets, the digest that ties keys and ciphertexts to one of them, and the sizes that follow from it."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.errors import ParameterError

__all__ = [
    "ParameterSet",
    "bootstrap_key_bytes",
    "ciphertext_bytes",
    "expanded_bootstrap_key_bytes",
    "expanded_keyswitch_key_bytes",
    "has_fine_outputs",
    "is_insecure",
    "is_paper_set",
    "key_word_bytes",
    "key_word_dtype",
    "keyswitch_key_bytes",
    "keyswitch_word_bytes",
    "lanes_of",
    "measuring_papers",
    "offered_sets",
    "paper_set",
    "paper_sets",
    "parameter_digest",
    "parameter_set",
    "parameter_sets",
    "parameter_text",
    "parties_of",
    "products_of",
    "public_key_bytes",
    "require_common_mask",
    "require_structured",
    "seeded_ciphertext_bytes",
    "structure_of",
    "upload_bytes",
    "word_bytes",
    "word_dtype",
]

MINIMUM_SECURITY_BITS = 128
ALLOW_TOY_VARIABLE = "CLOAKWORK_ALLOW_TOY"
_MEASURE_PAPERS_VARIABLE = "CLOAKWORK_MEASURE_PAPERS"
_PAPER_PREFIX = "papers/"

_SEED_BYTES = 32
_SEEDED_FRAME_BYTES = 112 + _SEED_BYTES + 32  # header, seed, checksum (docs/reference/wire_format.md)

# The fields that keys and ciphertexts depend on, in the order of the digest's text.
_DIGEST_FIELDS = (
    "kind",
    "message_bits",
    "polynomial_size",
    "glwe_dimension",
    "modulus",
    "mask_gadget",
    "body_gadget",
    "cmux",
    "glwe_secret",
    "glwe_sigma",
    "lwe_secret",
    "lwe_dimension",
    "keyswitch_modulus_log2",
    "lwe_sigma",
    "keyswitch_gadget",
)
_RAISED_FIELDS = ("key_modulus", "key_sigma")  # more lines, of raised sets alone
_NTRU_FIELDS = ("key_sigma", "accumulator")  # of NTRU accumulators alone


def parameter_set(name: str) -> ParameterSet:
    """Returns the shipped set of this name.

    Raises:
        ParameterError: unknown name, a paper's set, or an insecure (toy) set without CLOAKWORK_ALLOW_TOY=1 in the environment.
    """
    if str(name) in _engine.paper_set_names():
        raise ParameterError(
            f"parameter set '{name}' has the parameters of a publication, most of which are insecure, and is there to be measured by "
            "'cloakwork bench methods' alone; 'cloakwork params' lists the sets to use"
        )
    if str(name) not in _engine.parameter_set_names():
        alike = difflib.get_close_matches(str(name), [params.name for params in parameter_sets()], n=4, cutoff=0.4)
        nearest = f"nearest: {', '.join(alike)}; " if alike else ""
        raise ParameterError(
            f"parameter set: there is none called {str(name)[:40]!r}; {nearest}'cloakwork params' lists all"
        )
    params = _engine.parameter_set(name)
    if is_insecure(params) and not _toy_allowed():
        raise ParameterError(
            f"parameter set '{name}' is insecure ({params.security_bits} bits, {MINIMUM_SECURITY_BITS} wanted) and only for tests; "
            f"choose another set, or set {ALLOW_TOY_VARIABLE}=1 if nothing secret is encrypted"
        )
    return params


def parameter_sets() -> list[ParameterSet]:
    """Returns every set that `parameter_set` gives, in the order of the table."""
    rows = (_engine.parameter_set(name) for name in _engine.parameter_set_names())
    return [row for row in rows if _toy_allowed() or not is_insecure(row)]


def paper_set(name: str) -> ParameterSet:
    """Returns a publication's own parameters, for measurements alone: `parameter_set`, which all else goes by, refuses them, and so does the wire
    format.

    Raises:
        ParameterError: unknown name.
    """
    if name not in _engine.paper_set_names():
        raise ParameterError(
            f"publication's parameter set: expected one of {', '.join(_engine.paper_set_names())}; got {name[:40]!r}"
        )
    return _engine.parameter_set(name)


def paper_sets() -> list[ParameterSet]:
    """Returns all of `paper_set`, in the order of their table."""
    return [_engine.parameter_set(name) for name in _engine.paper_set_names()]


@contextmanager
def measuring_papers() -> Iterator[None]:
    """Allows keys of a publication's parameters: only for measurements."""
    before = os.environ.get(_MEASURE_PAPERS_VARIABLE)
    os.environ[_MEASURE_PAPERS_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_MEASURE_PAPERS_VARIABLE]
        else:
            os.environ[_MEASURE_PAPERS_VARIABLE] = before


def is_paper_set(params: ParameterSet) -> bool:
    """Whether the set is a publication's own parameters, which are measured and used for nothing else."""
    return params.name.startswith(_PAPER_PREFIX)


def offered_sets(structured: bool = False, common_mask: bool = False) -> list[ParameterSet]:
    """Lists the sets that programs choose from if none are named: every secure one, those with a structured secret where they were asked for, and
    where they were asked for those with several values to a ciphertext alone.

    Raised sets are taken when named, those with rounded products among them: what they gain depends on model and machine
    (docs/decisions/modulus-raising.md). So are sets with fine outputs, which look-ups of a few bits do not gain from, sets whose keys are
    selected by digits, which are large, sets with NTRU accumulators, and sets of several parties, whatever is asked for.
    """
    unasked = [
        params
        for params in parameter_sets()
        if not (params.raised or params.digit_bits or params.accumulator == "ntru" or params.party_count > 1)
    ]
    secure = [params for params in unasked if not is_insecure(params)]
    coarse = [params for params in secure if not has_fine_outputs(params) and (params.lane_count > 1) == common_mask]
    return [params for params in coarse if structured or not params.structured_secret]


def has_fine_outputs(params: ParameterSet) -> bool:
    """Whether two limbs are cut into several digits: outputs of a thousandth of the noise that a look-up may see and less, at half as much
    work again (`large16`) and more. Joint keys need the digits for outputs as noisy as others."""
    return params.limb_count == 2 and params.mask_gadget[1] > 1 and params.party_count == 1


def structure_of(params: ParameterSet) -> str:
    """Says what a set's security assumes of its small key beside LWE with independent coefficients; empty for most sets."""
    if not params.structured_secret:
        return ""
    if params.accumulator == "ntru":
        return "structured secret: the ring key divides noise (NTRU), an assumption beside that of LWE"
    bits = params.lwe_dimension // params.step_count
    return f"structured secret: the small key is block-binary (at most one 1 in each {bits} bits)"


def lanes_of(params: ParameterSet) -> str:
    """Says how many samples a ciphertext holds if that is not one; empty for most sets."""
    if params.lane_count == 1:
        return ""
    return f"common mask: {params.lane_count} samples of one client to a ciphertext, a batch of one pays for {params.lane_count}"


def parties_of(params: ParameterSet) -> str:
    """Says whose a set's keys are if that is not one owner; empty for most sets."""
    if params.party_count == 1:
        return ""
    return f"joint keys: {params.party_count} parties make them together and only all of them decrypt"


def products_of(params: ParameterSet) -> str:
    """Says what a set's products are if they are not exact; empty for most sets."""
    if not params.rounded_products:
        return ""
    return "rounded products: double precision in one order of roundings, the same words on processors with AVX2 and FMA and on GPUs"


def require_structured(params: ParameterSet, structured: bool, how: str = "structured=True") -> None:
    """Raises ParameterError for a set with a structured secret that nobody asked for; `how` says how it is asked for."""
    if params.structured_secret and not structured:
        raise ParameterError(
            f"parameter set '{params.name}' has a {structure_of(params)}, which no estimator covers in full (docs/reference/parameters.md); it is "
            f"taken only when asked for: pass {how}, or choose another set"
        )


def require_common_mask(params: ParameterSet, common_mask: bool, how: str = "bodies=2") -> None:
    """Raises ParameterError for a set of several values to a ciphertext that nobody asked for, and for one of a single value where they were asked
    for."""
    if params.lane_count > 1 and not common_mask:
        raise ParameterError(
            f"parameter set '{params.name}' has {params.lane_count} values to a ciphertext (docs/reference/parameters.md), samples of one client's "
            f"batch, of which a batch of one wastes all but one; it is taken only when asked for: pass {how}, or choose another set"
        )
    if common_mask and params.lane_count == 1:
        raise ParameterError(
            f"parameter set '{params.name}' has one value to a ciphertext, and several were asked for: leave {how} out, or choose a set "
            "whose name ends in '_cm2'"
        )


def is_insecure(params: ParameterSet) -> bool:
    """Whether the set has fewer than 128 bits: refused outside of tests."""
    return params.security_bits < MINIMUM_SECURITY_BITS


def _toy_allowed() -> bool:
    return os.environ.get(ALLOW_TOY_VARIABLE) == "1"


def parameter_text(params: ParameterSet) -> str:
    """Returns the row as canonical text: a title line, then one `field=value` line each, every line ended by a line feed.

    Integers in decimal, gadgets as `base_log,level_count`, sigmas as the shortest decimal that reads back as the same double. Sets of rounded
    products say so in a line; the extension factor, the number of lanes and that of parties are the last lines, each where it is not 1.
    """
    fields: tuple[str, ...] = _DIGEST_FIELDS + _RAISED_FIELDS if params.raised else _DIGEST_FIELDS
    if params.accumulator == "ntru":
        fields += _NTRU_FIELDS
    if params.rounded_products:
        fields = (*fields, "rounded_products")
    fields += tuple(field for field in ("extension_factor", "lane_count", "party_count") if getattr(params, field) != 1)
    lines = ["cloakwork parameter set 1"]
    lines += [f"{field}={_value_text(getattr(params, field))}" for field in fields]
    return "\n".join(lines) + "\n"


def _value_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return repr(value) if isinstance(value, float) else str(value)


@cache
def parameter_digest(params: ParameterSet) -> bytes:
    """Returns SHA-256 of `parameter_text` in UTF-8: 32 bytes. Equal for rows that differ in name or in derived estimates only."""
    return hashlib.sha256(parameter_text(params).encode()).digest()


def word_dtype(params: ParameterSet) -> np.dtype[np.unsignedinteger]:
    """Returns type of a torus word in memory: uint32 for one limb, uint64 for two."""
    return np.dtype(np.uint32 if params.limb_count == 1 else np.uint64)


def word_bytes(params: ParameterSet) -> int:
    """Returns bytes of a torus word on the wire: ceil(log2 Q / 8)."""
    return (params.modulus.bit_length() + 7) // 8


def key_word_dtype(params: ParameterSet) -> np.dtype[np.unsignedinteger]:
    """Returns type of a word of the bootstrap key in memory: that of a torus word, but uint64 for raised sets."""
    return np.dtype(np.uint32 if params.key_limb_count == 1 else np.uint64)


def key_word_bytes(params: ParameterSet) -> int:
    """Returns bytes of a word of the bootstrap key on the wire: ceil(log2 of its modulus / 8)."""
    return (params.key_modulus.bit_length() + 7) // 8


def keyswitch_word_bytes(params: ParameterSet) -> int:
    """Returns bytes of a word modulo 2^w on the wire: ceil(w / 8)."""
    return (params.keyswitch_modulus_log2 + 7) // 8


def bootstrap_key_bytes(params: ParameterSet) -> int:
    """Returns bodies of the bootstrap key on the wire (seeded form); all of a joint one, of which nothing follows from a seed."""
    return params.bootstrap_key_body_words * key_word_bytes(params)


def keyswitch_key_bytes(params: ParameterSet) -> int:
    """Returns bodies of the keyswitch key on the wire (seeded form)."""
    return params.keyswitch_key_rows * params.lane_count * keyswitch_word_bytes(params)


def public_key_bytes(params: ParameterSet) -> int:
    """Returns the public key inside the evaluation keys on the wire: its seed and its bodies."""
    return _SEED_BYTES + params.large_dimension * params.lane_count * word_bytes(params)


def expanded_bootstrap_key_bytes(params: ParameterSet) -> int:
    """Returns the whole bootstrap key in memory, masks included, before a back end's own layout."""
    words = params.bootstrap_key_body_words // params.row_bodies * params.accumulator_components
    return words * key_word_dtype(params).itemsize


def expanded_keyswitch_key_bytes(params: ParameterSet) -> int:
    """Returns the whole keyswitch key in memory, masks included, before a back end's own layout."""
    return params.keyswitch_key_rows * params.small_words * np.dtype(np.uint32).itemsize


def upload_bytes(params: ParameterSet) -> int:
    """Returns the evaluation keys as one object of the wire format: what a client sends once."""
    return _SEEDED_FRAME_BYTES + bootstrap_key_bytes(params) + keyswitch_key_bytes(params) + public_key_bytes(params)


def ciphertext_bytes(params: ParameterSet) -> int:
    """Returns one LWE ciphertext (of all its lanes) on the wire, without the fixed part of its object."""
    return params.large_words * word_bytes(params)


def seeded_ciphertext_bytes(params: ParameterSet) -> int:
    """Returns one LWE ciphertext of a seeded batch on the wire, without the fixed part of its object (which holds the seed)."""
    return params.lane_count * word_bytes(params)
