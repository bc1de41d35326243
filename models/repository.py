"""A folder of models that a service offers, and what it needs to know of each, `NAME/VERSION.json`.

A model is a compiled program, `NAME/VERSION.clkm`, an index of nearest neighbours, `NAME/VERSION.clkn`, or a model
for batches, `NAME/VERSION.clkb`.

`python -m cloakwork.models.repository FOLDER [--zoo]` writes the facts that are missing, or belong to another artefact or release.
`.. --file ARTEFACT` does it for one file that somebody has sent, with memory and time in proportion to its size.
A process of its own: reading programs, and compiling the zoo, takes memory that an idle service should not hold.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core import parameters
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.machine import memory_bytes
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models.batches.model import BatchModel, batch_facts
from cloakwork.models.neighbours.index import index_facts
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.program.artefact import load_program, save_program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.facts import AGREEMENT_FIELDS
from cloakwork.models.report import Report
from cloakwork.models.repository_files import (
    ARTEFACT,
    BATCH,
    FACTS,
    FAULT,
    INDEX,
    KINDS,
    ZOO,
    artefacts,
    by_model,
    described,
    keep_fault,
    next_version,
)
from cloakwork.models.runtime import samples_at_once

__all__ = ["ARTEFACT", "BATCH", "INDEX", "add_zoo", "artefacts", "describe", "facts_of", "main", "next_version"]

# Of the process that reads a file that somebody has sent. Measured 2026-11-26 (VmHWM): 50 MB before it reads; an index of 100 MB takes 2.6 bytes
# for each of its own, a program of 3 MB 20, because integers of one byte become eight.
_MEMORY_FOR_EACH_BYTE: Final = {ARTEFACT: 32, INDEX: 4, BATCH: 128}
_MEMORY_BYTES: Final = 1 << 30
_OTHERS_BYTES: Final = 512 << 20  # of the service's other processes
_SECONDS_FOR_EACH_MIB: Final = 1
_SECONDS: Final = 60
_LONGEST_LINE: Final = 500

_log = logging.getLogger("cloakwork.repository")


def facts_of(program: Program) -> dict[str, Any]:
    """Returns plain JSON: sizes in bytes, counts per sample (with several to a ciphertext: of a row of ciphertexts, which is what a service
    counts)."""
    params = program.parameters
    specification = ClientSpecification.of(program)
    costs = Report.of(program)
    return {
        "program_digest": program.digest.hex(),
        "parameter_set": params.name,
        "parameter_digest": parameters.parameter_digest(params).hex(),
        "security_bits": params.security_bits,
        "structured_secret": params.structured_secret,
        "samples_per_ciphertext": params.lane_count,
        "p_fail_log2_per_lookup": costs.p_fail_log2,  # None: approximate look-ups, which have noise instead
        "p_fail_log2_per_program": costs.program_p_fail_log2,
        "input_shape": list(specification.input_shape),
        "input_numbers": program.graph.input.size,
        "output_shape": list(program.graph.output.shape),
        "output_numbers": program.graph.output.size,
        "answer_word_bits": answer_bits(program) or 0,  # 0: full words
        "bootstraps": program.bootstraps,
        "evaluation_key_bytes": parameters.upload_bytes(params),
        "expanded_key_bytes": parameters.expanded_bootstrap_key_bytes(params)
        + parameters.expanded_keyswitch_key_bytes(params),
        "largest_batch": samples_at_once(program),
        "client": specification.to_json(),
        "report": _public(costs.to_fields()),
    }


def _public(report: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on thresholds that stay on the server: how the trees agree with themselves on the grid."""
    if "grid" not in report:
        return report
    return {**report, "grid": {name: value for name, value in report["grid"].items() if name not in AGREEMENT_FIELDS}}


def describe(artefact: Path) -> dict[str, Any]:
    """Returns the facts of one artefact, from its file when they are there and belong to it."""
    base_facts, known = described(artefact)
    if known is not None:
        return known
    facts = {**base_facts, "program_digest": base_facts["artefact_sha256"], **_made(artefact)}
    with atomic_writer(artefact.with_suffix(FACTS)) as stream:
        stream.write(json.dumps(facts, indent=1).encode())
    return facts


def _made(artefact: Path) -> dict[str, Any]:
    if artefact.suffix == INDEX:
        return index_facts(load_index(artefact))
    if artefact.suffix == ARTEFACT:
        return facts_of(load_program(artefact))
    batch = BatchModel.load(artefact)
    of_program = {} if batch.single is None else facts_of(batch.single.program)
    return of_program | batch_facts(batch)


def add_zoo(repository: Path) -> None:
    """Copies every model of the zoo that the repository does not have, or has from another file of the zoo."""
    from cloakwork.models import zoo  # and what loads programs

    for name in zoo.names():
        folder = repository / name
        mark = folder / ZOO
        digest = zoo.card(name).sha256
        known = mark.read_text(encoding="ascii").split() if mark.is_file() else []
        if digest in known or (not known and artefacts(folder)):
            continue  # copied before, or the operator's own model of that name
        try:
            program = zoo.load_model(name).program
        except FheError as error:
            _log.error("zoo: %s: %s", name, error)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        save_program(folder / f"{next_version(folder)}{ARTEFACT}", program)
        with atomic_writer(mark) as stream:
            stream.write("\n".join([*known, digest]).encode())


def describe_foreign(artefact: Path) -> str | None:
    """Describes a file that somebody has sent, within limits on this process; why it cannot be described, or None.

    The limit of seconds is the kernel's, which ends the process (SIGXCPU).
    """
    size = artefact.stat().st_size
    explained = _MEMORY_BYTES + _MEMORY_FOR_EACH_BYTE[artefact.suffix] * size
    memory = min(explained, _usable_memory())
    seconds = _SECONDS + _SECONDS_FOR_EACH_MIB * (size >> 20)
    _lower(resource.RLIMIT_DATA, memory)
    _lower(resource.RLIMIT_CPU, seconds)
    try:
        describe(artefact)
    except MemoryError:
        return (
            f"reading it takes more than {memory >> 20} MiB; it is not a valid model"
            if memory == explained
            else _too_large(size)
        )
    except FheError as error:
        return _reason(artefact, error)
    except OSError:
        raise
    except Exception:  # of a file that is made up with care: its reader has met something that no compiler writes
        return "it cannot be described; it is not a valid model"
    return None


def _usable_memory() -> int:
    """Returns the usable memory of a process that reads a model: what is here less what the service has for itself."""
    return max(_MEMORY_BYTES, memory_bytes() - _OTHERS_BYTES)


def _too_large(size: int) -> str:
    return (
        f"reading its {size >> 20} MiB takes more than {_usable_memory() >> 20} MiB of memory, all that there is for it here; "
        "give the service more memory, or compile a smaller model"
    )


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _foreign(artefact: Path) -> int:
    refusal = describe_foreign(artefact)
    if refusal is None:
        return 0
    print(refusal, file=sys.stderr)  # noqa: T201
    return 1


def _reason(artefact: Path, error: Exception) -> str:
    return " ".join(str(error).removeprefix(f"{artefact}: ").split())[:_LONGEST_LINE] or "no reason given"


def main() -> int:
    """Returns 0 when every artefact could be described; each one that could not is a line on standard error."""
    if sys.argv[1] == "--file":
        return _foreign(Path(sys.argv[2]))
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    repository, status = Path(sys.argv[1]), 0
    _lower(
        resource.RLIMIT_DATA, _usable_memory()
    )  # a model that is too large is told so, instead of a kernel that ends processes
    if "--zoo" in sys.argv[2:]:
        add_zoo(repository)
    for artefact in (each for model in by_model(repository) for each in model):
        place = f"{artefact.parent.name}/{artefact.name}"
        first = next(each for each in KINDS.values() if artefact.with_suffix(each).exists())
        if artefact.suffix != first:
            _log.error(
                "%s: there is %s%s too; a version is one file, so give one of them another number",
                place,
                artefact.stem,
                first,
            )
            status = 1
            continue
        try:
            describe(artefact)
            artefact.with_suffix(FAULT).unlink(missing_ok=True)
        except MemoryError:
            refusal = _too_large(artefact.stat().st_size)
            keep_fault(artefact, refusal[:_LONGEST_LINE])
            _log.error("%s: %s", place, refusal)
            status = 1
        except (FheError, OSError) as error:
            keep_fault(artefact, _reason(artefact, error))
            _log.error("%s: %s", place, error)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
