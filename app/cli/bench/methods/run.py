"""Measures one row of `cloakwork bench methods`: keys, a batch, one alone, every output decrypted and compared with the clear function."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloakwork.app.cli.bench import large
from cloakwork.app.cli.bench.measure import Operation, gate_operation, lookup_operation, measure, on_device
from cloakwork.app.cli.bench.methods.catalogue import Case
from cloakwork.app.cli.bench.methods.ceiling import ceiling_per_second
from cloakwork.app.cli.bench.methods.room import require_room
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import FheError, UnsupportedError
from cloakwork.fhe_core.parameters import ParameterSet, is_paper_set, measuring_papers, upload_bytes
from cloakwork.fhe_core.server import Session

GATE = "NAND"
SMALL_BATCH_ROTATIONS = (
    8  # on a CPU a row of large precision takes a batch of the eighth part, as many rotations as a look-up's
)
Stage = Callable[[str, int, int], bool]


@dataclass(frozen=True)
class Effort:
    """Work of each row. `batch`: values of gates and look-ups."""

    device: str
    threads: int
    batch: int
    repeats: int
    single_repeats: int

    def batch_of(self, case: Case) -> int:
        """Returns ciphertexts; large precision takes fewer on a CPU, where each of its values is several rotations."""
        few = self.device == "cpu" and case.bits > 0
        values = max(1, self.batch // SMALL_BATCH_ROTATIONS) if few else self.batch
        return max(1, values // case.parameters.lane_count)


@dataclass(frozen=True)
class PreparedBench:
    """A key, a session, and how a batch of that size is drawn, run and checked. `rotations`: of one value."""

    session: Session
    operation: Callable[[int], Operation]
    rotations: int
    p_fail_log2: float


class KeyHolder:
    """The keys of one set, for rows that follow each other; those of the set before go first, for some have a gigabyte."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._held: tuple[ClientKey, Session] | None = None

    def keys_of(self, case: Case, stage: Stage) -> tuple[ClientKey, Session]:
        if self._held is None or self._held[0].parameters != case.parameters:
            self.drop()
            require_room(case.parameters, self._effort.device)
            _require_kernel(case.parameters, self._effort.device)
            with measuring_papers():
                key = ClientKey.generate(case.parameters)
            keys = key.evaluation_keys(progress=lambda done, total: stage(f"{case.name}: keys", done, total))
            self._held = key, Session(keys, device=self._effort.device, threads=self._effort.threads)
        return self._held

    def drop(self) -> None:
        self._held = None
        gc.collect()


def _require_kernel(params: ParameterSet, device: str) -> None:
    if device != "cpu" and _engine.kernel_sets == "shipped" and is_paper_set(params):
        raise UnsupportedError(
            f"parameter set '{params.name}': wheels have no CUDA kernel for papers/ sets; build from source with CLOAKWORK_KERNEL_SETS=all"
        )


def measured(case: Case, effort: Effort, holder: KeyHolder, stage: Stage) -> dict[str, Any]:
    """Returns the row as JSON has it. What fails is said in `error`, with no figures beside it."""
    row = fixed_fields(case) | {"device": effort.device, "batch": effort.batch_of(case), "threads": effort.threads}
    try:
        return row | _figures(case, effort, holder, stage)
    except (FheError, MemoryError) as error:
        holder.drop()
        return row | {"error": " ".join(str(error).split()) or "no reason given"}


def fixed_fields(case: Case) -> dict[str, Any]:
    """Returns the fields of a row that are known without running it; the figures are null."""
    params, published = case.parameters, case.published
    return {
        "method": case.method,
        "set": params.name,
        "shape": shape_text(params),
        "operation": case.operation,
        "bits": case.bits or None,
        "message_bits": params.message_bits or None,
        "security_bits": params.security_bits or None,
        "p_fail_log2": params.p_fail_log2,
        "key_bytes": None,
        "upload_bytes": upload_bytes(params),
        "per_second": None,
        "seconds_one": None,
        "wrong": None,
        "outputs": None,
        "rotations": None,
        "share_of_ceiling": None,
        "published": None
        if published is None
        else {
            "source": published.source,
            "row": published.row,
            "device": published.device,
            "per_second": published.per_second,
            "ratio": None,
        },
        "error": None,
    }


def shape_text(params: ParameterSet) -> str:
    """Returns `N=1024 k=1, 4x2^6 / 3x2^5, n=744 ternary`, with what else the shape has."""
    gadgets = " / ".join(f"{levels}x2^{base_log}" for base_log, levels in (params.mask_gadget, params.body_gadget))
    parts = [
        f"N={params.polynomial_size} k={params.glwe_dimension}",
        gadgets,
        f"n={params.lwe_dimension} {params.cmux}",
    ]
    if params.key_limb_count == 2:
        parts.append("rounded" if params.rounded_products else "raised" if params.raised else "two limbs")
    if params.extension_factor > 1:
        parts.append(f"nu={params.extension_factor}")
    if params.lane_count > 1:
        parts.append(f"r={params.lane_count}")
    return ", ".join(parts)


def _figures(case: Case, effort: Effort, holder: KeyHolder, stage: Stage) -> dict[str, Any]:
    params, lanes = case.parameters, case.parameters.lane_count
    prepared = prepare(case, holder, stage)
    batch = effort.batch_of(case)
    batches, wrong = _timed(prepared, batch, effort.repeats, lambda *done: stage(f"{case.name}: batch", *done))
    outputs = lanes * batch * (effort.repeats + 1)
    singles = batches
    if batch > 1:
        singles, wrong_alone = _timed(
            prepared, 1, effort.single_repeats, lambda *done: stage(f"{case.name}: one", *done)
        )
        wrong += wrong_alone
        outputs += lanes * (effort.single_repeats + 1)
    per_second = batch * lanes / statistics.median(batches)
    ceiling = ceiling_per_second(params, _device_facts(effort.device))
    published = fixed_fields(case)["published"]
    if published is not None and published["per_second"] is not None:
        published["ratio"] = per_second / published["per_second"]
    return {
        "p_fail_log2": prepared.p_fail_log2,
        "key_bytes": prepared.session.expanded_key.nbytes,
        "per_second": per_second,
        "seconds_one": statistics.median(singles),
        "wrong": wrong,
        "outputs": outputs,
        "rotations": prepared.rotations,
        "share_of_ceiling": None if ceiling is None else per_second * prepared.rotations / ceiling,
        "published": published,
    }


def _timed(
    prepared: PreparedBench, batch: int, repeats: int, progress: Callable[[int, int], bool]
) -> tuple[list[float], int]:
    return measure(on_device(prepared.operation(batch), prepared.session), repeats, progress)


def prepare(case: Case, holder: KeyHolder, stage: Stage) -> PreparedBench:
    params = case.parameters
    work = large_work(case) if case.bits else None  # says what is impossible before keys are made
    key, session = holder.keys_of(case, stage)
    rng = np.random.default_rng()
    if work is not None:
        return PreparedBench(
            session, lambda batch: large.operation_of(work, key, session, batch, rng), work.rotations, work.p_fail_log2
        )
    if case.operation == "gate":
        return PreparedBench(
            session, lambda batch: gate_operation(key, session, GATE, batch, rng), 1, params.p_fail_log2
        )
    return PreparedBench(session, lambda batch: lookup_operation(key, session, batch, rng), 1, params.p_fail_log2)


def large_work(case: Case) -> large.Work:
    params, bits, p_fail = case.parameters, case.bits, case.p_fail_log2
    match case.operation:
        case "func":
            return large.func_work(params, bits, p_fail)
        case "floor":
            return large.floor_work(params, bits, min(params.message_bits, bits - 1), p_fail)
        case "sign":
            return large.sign_work(params, bits, p_fail)
        case _:
            return large.decomp_work(params, bits, params.message_bits, p_fail)


def _device_facts(device: str) -> dict[str, Any] | None:
    if not device.startswith("cuda") or not has_cuda():
        return None
    number = device.partition(":")[2] or "0"
    if "," in number:
        return None  # several cards
    facts: dict[str, Any] = _engine.cuda_devices()[int(number)]
    return facts
