"""Options of a batch: everything but what is scored, with which key, and where results go."""

from __future__ import annotations

from dataclasses import dataclass

from cloakwork.fhe_core.errors import ParameterError

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class BatchOptions:
    """
    address: `HOST:PORT` of a Ray cluster's head, or `auto` for the cluster that runs on this machine; None starts Ray here, for this run.
    device: of every worker, `cpu` or `cuda` (one GPU each, which Ray chooses).
    threads: of the engine in each worker, and how many CPUs Ray reserves for it.
    workers: how many compute; None: as many as there is room for.
    column: of Parquet files, the one that holds the ciphertexts.
    deterministic: `Runtime.run` in place of `Runtime.answer`: the same bytes in every run, for audits and not for clients.
    force: take an output folder that holds another run's results, and replace them.
    wait_seconds: how long to wait for a cluster to answer, and for room for the first worker.
    """

    address: str | None = None
    device: str = "cpu"
    threads: int = 1
    workers: int | None = None
    column: str | None = None
    deterministic: bool = False
    force: bool = False
    wait_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ParameterError(f"device: expected cpu or cuda (Ray chooses which GPU), got '{self.device}'")
        if self.threads < 1:
            raise ParameterError(f"threads: expected at least 1, got {self.threads}")
        if self.workers is not None and self.workers < 1:
            raise ParameterError(f"workers: expected at least 1, got {self.workers}")

    @property
    def mode(self) -> str:
        """One of "deterministic" or "rerandomised", as the ledger says it."""
        return "deterministic" if self.deterministic else "rerandomised"
