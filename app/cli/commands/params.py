"""`cloakwork params`: the shipped parameter sets, as a table or as JSON."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cloakwork.app.cli.shared.console import MIB, JsonOption, key_value_table, standard_output, write_json
from cloakwork.app.cli.shared.parameter_sets import find_set, key_sizes
from cloakwork.fhe_core.parameters import (
    ParameterSet,
    has_fine_outputs,
    parameter_sets,
    upload_bytes,
)

FIELDS = (
    "name",
    "kind",
    "message_bits",
    "polynomial_size",
    "glwe_dimension",
    "lane_count",
    "party_count",
    "extension_factor",
    "limb_count",
    "mask_gadget",
    "body_gadget",
    "cmux",
    "glwe_secret",
    "glwe_sigma",
    "lwe_dimension",
    "lwe_secret",
    "lwe_sigma",
    "keyswitch_modulus_log2",
    "keyswitch_gadget",
    "max_weight_norm",
    "p_fail_log2",
    "noise",
    "security_bits",
    "structured_secret",
    "raised",
    "key_modulus",
    "key_sigma",
    "rounded_products",
)


def describe(parameters: ParameterSet) -> dict[str, Any]:
    """The row and the sizes that follow from it, by the names of `bench keygen`. Gadgets are [base_log, level_count]."""
    record: dict[str, Any] = {field: getattr(parameters, field) for field in FIELDS}
    return {**record, **key_sizes(parameters)}


def params(
    name: Annotated[str | None, typer.Argument(help="Show this set alone, with every number.")] = None,
    json_path: JsonOption = None,
) -> None:
    """List the parameter sets, or show one."""
    if name is None:
        sets = parameter_sets()
        if json_path != "-":
            standard_output().print(sets_table(sets))
        if json_path is not None:
            write_json({"sets": [describe(each) for each in sets]}, json_path)
        return
    record = describe(find_set(name))
    if json_path != "-":
        standard_output().print(key_value_table(name, record))
    if json_path is not None:
        write_json(record, json_path)


def sets_table(sets: list[ParameterSet]) -> Table:
    """The columns that a choice needs, within 80 characters; `params NAME` shows the rest."""
    table = Table(title="Parameter sets", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("set", style="bold", no_wrap=True)
    for heading in ("kind", "N.k.limbs", "n", "log2 p", "W", "noise %", "bits", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in sets:
        table.add_row(
            each.name,
            f"{each.message_bits} bit" if each.kind == "exact" else each.kind,
            f"{each.polynomial_size}.{each.glwe_dimension}.{each.limb_count}",
            str(each.lwe_dimension),
            f"{each.p_fail_log2:.0f}" if each.kind != "approximate" else "",
            f"{each.max_weight_norm:.3g}",
            f"{200 * each.noise:.2f}",
            f"{each.security_bits}{'*' if each.structured_secret else ''}",
            f"{upload_bytes(each) / MIB:.1f}",
        )
    table.caption = (
        "N, k, limbs: the ring; n: the small key. p: that a look-up fails. W: norm of the weights that may act before it. "
        "Noise: sd that it sees at W, of the half torus. Bits: of security. MiB: of evaluation keys, uploaded once."
    )
    if any(each.raised for each in sets):
        table.caption += " .._raised: limbs of ciphertexts; the bootstrap key has two. Taken only when named."
    if any(has_fine_outputs(each) for each in sets):
        table.caption += " large16: outputs of low noise, for large integers. Taken when named, and to compare what no look-up resolves."
        table.caption += " fine4, fine5: of lower noise still, for sums of 20 bits. Taken likewise, and to requantise."
    if any(each.lane_count > 1 for each in sets):
        table.caption += " .._cm2: 2 values to a ciphertext, for batches of one client. Taken only when asked for."
    if any(each.party_count > 1 for each in sets):
        table.caption += (
            " .._2p, .._3p: keys that 2 or 3 parties make together, and decrypt together. Taken only when named."
        )
    if any(each.structured_secret for each in sets):
        table.caption += " *: a structured secret (.._block: block-binary, .._ntru: divides noise), more than LWE; taken only when asked for."
    return table
