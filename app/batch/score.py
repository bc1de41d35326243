"""`score_batch` scores a folder or bucket of ciphertexts into one of encrypted results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from cloakwork.app.batch.errors import require_batch
from cloakwork.app.batch.headers import check_result
from cloakwork.app.batch.ledger import Ledger
from cloakwork.app.batch.manifest import REPORT, Identity, open_output
from cloakwork.app.batch.options import BatchOptions
from cloakwork.app.batch.pieces import PARTS, Piece, is_table, result_name
from cloakwork.app.batch.plan import Planned, Planner, inputs_in
from cloakwork.app.batch.store import Store, absolute_place, overlap, shown
from cloakwork.fhe_core.errors import FheError, ParameterError
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.words import Progress
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_to_bytes


def score_batch(
    program: Program,
    keys: Path,
    source: str | Path,
    target: str | Path,
    options: BatchOptions | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Scores every input of `source` on Ray and writes a result for each to `target`; goes on where an earlier run was cut off.

    Args:
        keys: the file of evaluation keys.
        source, target: folders, or URLs of object storage (`s3://bucket/prefix`).
        progress: progress(samples done, samples of the batch); returning False cancels.

    Returns:
        The report (docs/howto/batch.md): samples, failed, seconds, per_second, workers, sha256 and more.

    Raises:
        BatchError: nothing to score, an output of another run, a store or cluster that does not answer; the extra is missing.
        ParameterError: options that do not fit the data or the cluster.
        KeyMismatchError, SerializationError: keys of another parameter set, or none.
    """
    require_batch()
    begun, options = time.perf_counter(), options or BatchOptions()
    batch = _Batch(program, keys.read_bytes(), source, target, options)
    batch.skip_what_is_there()
    batch.compute(begun, progress)
    record = batch.record()
    batch.target.write(REPORT, json.dumps(record, indent=1, allow_nan=False).encode())
    return record


class _Batch:
    def __init__(
        self, program: Program, keys: bytes, source: str | Path, target: str | Path, options: BatchOptions
    ) -> None:
        self._program, self._keys, self._options = program, keys, options
        # Before anything leaves this process: a secret key, or keys of another set, end here.
        self._key_id = EvaluationKeys.from_bytes(keys, parameters=program.parameters).key_id
        places = absolute_place(source), absolute_place(target)
        if overlap(*places):
            raise ParameterError(f"--out: expected a place apart from the input, got {shown(places[1])}")
        self.source = Store(places[0])
        entries = inputs_in(self.source, options.column)
        self.target = Store(places[1], make=True)
        self._planned = Planner(self.source, program, self._key_id, options.column).plan(entries)
        digest = hashlib.sha256(keys).hexdigest()
        tables = any(is_table(entry.name) for entry in entries)
        column = options.column if tables else None
        identity = Identity(program.digest.hex(), digest, options.mode, shown(places[0]), column)
        self._there = open_output(self.target, identity, entries, options.force)
        self.ledger = Ledger()
        self._facts: dict[str, Any] = {"seconds": 0.0, "seconds_start": 0.0, "seconds_engine": 0.0, "workers": 0}

    # --- what is there ---

    def skip_what_is_there(self) -> None:
        """Takes results results of an earlier run of the same batch are taken when they are whole; of tables parts too."""
        for planned in self._planned:
            if planned.reason is not None:
                self.ledger.failed(planned.name, planned.reason)
            elif result_name(planned.name) not in self._there or not self._taken(planned):
                planned.pieces = [piece for piece in planned.pieces if not self._part_is_there(piece)]
                continue
            planned.pieces, planned.rows_per_part = [], 0
        self.ledger.skipped = self.ledger.samples

    def _part_is_there(self, piece: Piece) -> bool:
        return is_table(piece.name) and piece.part in self._there

    def _taken(self, planned: Planned) -> bool:
        name = result_name(planned.name)
        try:
            if is_table(planned.name):
                from cloakwork.app.batch.tables import finished_table

                summary = finished_table(self.target, name)
                self._delete_parts(planned.name)
                self.ledger.done(planned.name, summary.samples, summary.digests, summary.failures)
            else:
                body = self.target.read(name)
                check_result(body, self._program, self._key_id, planned.samples)
                self.ledger.done(planned.name, planned.samples, [hashlib.sha256(body).digest()], [])
        except (FheError, OSError):
            return False  # damaged: scored again
        return True

    # --- what is computed ---

    def compute(self, begun: float, progress: Progress) -> None:
        """Computes all pieces; nothing is started when nothing is left."""
        waiting = [planned for planned in self._planned if planned.pieces or planned.rows_per_part]
        if not waiting:
            return
        from cloakwork.app.batch.actors import Actors
        from cloakwork.app.batch.cluster import ray_cluster, room, worker_count
        from cloakwork.app.batch.dispatch import Dispatcher

        options, program = self._options, program_to_bytes(self._program)
        settings = {name: getattr(options, name) for name in ("device", "threads", "deterministic", "column")}
        settings |= {"source": self.source.place, "target": self.target.place}
        with ray_cluster(options, len(program) + len(self._keys)) as ray, contextlib.ExitStack() as stack:
            pieces = sum(len(planned.pieces) for planned in waiting)
            workers = min(worker_count(options, room(ray, options)), max(1, pieces))
            actors = Actors(ray, options, program, self._keys, settings)
            stack.callback(actors.stop)
            dispatcher = Dispatcher(actors, workers, options.wait_seconds, self.ledger, progress)
            dispatcher.run(waiting, self.ledger.samples, self._delete_parts)
            ended = time.perf_counter()
        ready = dispatcher.ready_at or ended
        self._facts = {
            "seconds": ended - ready,
            "seconds_start": ready - begun,
            "seconds_engine": dispatcher.engine_seconds,
            "workers": len(dispatcher.computed),
        }

    def _delete_parts(self, table: str) -> None:
        self.target.delete([entry.name for entry in self.target.entries(f"{PARTS}/{table}")])

    # --- what is told ---

    def record(self) -> dict[str, Any]:
        totals, facts = self.ledger.record(), self._facts
        scored, seconds = totals["samples"] - totals["skipped"], facts["seconds"]
        return {
            **{name: totals[name] for name in ("samples", "failed")},
            "seconds": seconds,
            "per_second": scored / seconds if seconds else 0.0,
            "workers": facts["workers"],
            **{name: totals[name] for name in ("sha256", "skipped", "files")},
            "seconds_start": facts["seconds_start"],
            "seconds_engine": facts["seconds_engine"],
            "device": self._options.device,
            "threads": self._options.threads,
            "rerandomised": not self._options.deterministic,
            "output": shown(self.target.place),
            "failures": totals["failures"],
        }
