"""`cloakwork params`: the shipped parameter sets, as a table or as JSON."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cloakwork.app.cli.shared.console import MIB, JsonOption, write_json
from cloakwork.app.cli.shared.parameter_sets import find_set, key_sizes
from cloakwork.app.cli.shared.tables import Column, Group, folded, number, print_rows
from cloakwork.fhe_core.parameters import (
    ParameterSet,
    has_fine_outputs,
    parameter_sets,
    upload_bytes,
)

MEANINGS = {
    "name": "",
    "kind": "what it is made for: exact integers, a gate or approximate reals",
    "message_bits": "bits of a message",
    "polynomial_size": "coefficients of a polynomial, N",
    "glwe_dimension": "polynomials of a mask, k",
    "lane_count": "messages that share a mask",
    "party_count": "parties that hold the key together",
    "extension_factor": "accumulators that are one table",
    "limb_count": "27-bit primes of the modulus Q",
    "mask_gadget": "[log2 of the base, digits]",
    "body_gadget": "[log2 of the base, digits]",
    "cmux": "how the rotation reads the small key",
    "glwe_secret": "distribution of the ring key",
    "glwe_sigma": "standard deviation of its noise, units of 1/Q",
    "lwe_dimension": "coefficients of the small key, n",
    "lwe_secret": "distribution of the small key",
    "lwe_sigma": "standard deviation of its noise, units of 2^-w",
    "keyswitch_modulus_log2": "bits of a word under the small key, w",
    "keyswitch_gadget": "[log2 of the base, digits]",
    "max_weight_norm": "L2 norm of weights before a look-up, at most",
    "p_fail_log2": "log2 of the probability that a look-up is wrong",
    "noise": "standard deviation before a look-up, of the torus",
    "security_bits": "estimated bits of security",
    "structured_secret": "whether security rests on more than LWE",
    "raised": "whether ciphertexts have fewer limbs than keys",
    "key_modulus": "modulus of the keys",
    "key_sigma": "standard deviation of their noise",
    "rounded_products": "whether products are in double precision",
}
_SIZES = {
    "bootstrap_key_bytes": "bytes in memory, masks included",
    "keyswitch_key_bytes": "bytes in memory, masks included",
    "upload_bytes": "bytes of all evaluation keys in a file",
}


def describe(parameters: ParameterSet) -> dict[str, Any]:
    """Returns the row and the sizes that follow from it, by the names of `bench keygen`. Gadgets are [base_log, level_count]."""
    record: dict[str, Any] = {field: getattr(parameters, field) for field in MEANINGS}
    return {**record, **key_sizes(parameters)}


def params(
    name: Annotated[str | None, typer.Argument(help="Show only this set, with every number.")] = None,
    json_path: JsonOption = None,
) -> None:
    """List the parameter sets, or show one."""
    if name is not None:
        record = describe(find_set(name))
        if json_path != "-":
            meanings = MEANINGS | _SIZES
            rows = [(field, each, meanings[field]) for field, each in record.items() if each is not None]
            print_rows(name, (Column("number"), Column(""), folded("meaning")), rows)
        if json_path is not None:
            write_json(record, json_path)
        return
    sets = parameter_sets()
    if json_path != "-":
        print_sets(sets)
    if json_path is not None:
        write_json({"sets": [describe(each) for each in sets]}, json_path)


_COLUMNS = (
    Column("set"),
    Column("holds"),
    *(number(each) for each in ("N.k.limbs", "n", "fails", "norm", "noise %", "bits", "MiB")),
)
_NOTES = (
    "holds: a bit (gates), integers of so many bits, or real numbers.",
    "N.k.limbs: the ring, its ciphertexts' masks and 27-bit primes. n: the small key.",
    "fails: log2 of the probability that a look-up is wrong; reals have no wrong.",
    "norm: of the weights that may act before a look-up. noise: what it sees then,",
    "  standard deviation in per cent of the half torus.",
    "bits: of security (*: of a structured secret). MiB: of evaluation keys, uploaded once.",
    "'cloakwork params SET' shows every number of one.",
)


def print_sets(sets: list[ParameterSet]) -> None:
    """Prints the columns that a choice needs, within 80 characters, by what has to be asked for."""
    groups = [
        Group(heading, [_row(each) for each in sets if _group_of(each) == heading])
        for heading in dict.fromkeys(map(_group_of, sets))
    ]
    print_rows("Parameter sets", _COLUMNS, groups, _NOTES)


def _row(each: ParameterSet) -> tuple[str, ...]:
    holds = {"exact": f"{each.message_bits} bit", "gate": "a bit", "approximate": "reals"}[each.kind]
    return (
        each.name,
        holds,
        f"{each.polynomial_size}.{each.glwe_dimension}.{each.limb_count}",
        str(each.lwe_dimension),
        f"{each.p_fail_log2:.0f}" if each.kind != "approximate" else "",
        f"{each.max_weight_norm:.4g}",
        f"{200 * each.noise:.2f}",
        f"{each.security_bits}{'*' if each.structured_secret else ''}",
        f"{upload_bytes(each) / MIB:.1f}",
    )


def _group_of(each: ParameterSet) -> str:
    """Why a set is taken, or what has to be named for it."""
    if each.party_count > 1:
        return "Keys that 2 or 3 parties make, and decrypt with, together: when named"
    if each.lane_count > 1:
        return "Two values to a ciphertext, for batches of one client: with --bodies 2"
    if each.structured_secret:
        return "A structured secret, which rests on more than LWE: with --structured"
    if each.raised:
        return "Ciphertexts of fewer limbs than their key: when named"
    if has_fine_outputs(each):
        return "Outputs of low noise, for large integers and requantised sums: when named"
    return "Ordinary sets"
