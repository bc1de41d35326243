"""Connections to Ray: one that is started here for a run and ends with it, or a cluster that is there. Only this module and `actors.py` import it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Final

from cloakwork.app.batch.errors import BatchCallError, BatchError, one_line
from cloakwork.app.batch.options import BatchOptions
from cloakwork.fhe_core.errors import ParameterError

_CONNECT_SECONDS: Final = 10.0
_STORE_BYTES: Final = 128 << 20  # Ray's object store of a run on this machine, beside program and keys
_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_PROBE: Final = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)"


@contextlib.contextmanager
def ray_cluster(options: BatchOptions, object_bytes: int) -> Iterator[Any]:
    """Connects to Ray and yields the module `ray`.

    Args:
        object_bytes: of program and keys together.

    Raises:
        BatchError: no cluster answers.
    """
    with _environment(_QUIET):
        import ray

        if ray.is_initialized():
            yield ray
            return
        with _temporary_folder(options.address is None) as folder:
            try:
                with _quiet_signals():
                    _connect(ray, options, object_bytes, folder)
                yield ray
            finally:
                ray.shutdown()


def room(ray: Any, options: BatchOptions) -> int:
    """Returns workers that the cluster's machines have CPUs and GPUs for, whether others use them or not."""
    workers = 0
    for node in ray.nodes():
        if node["Alive"]:
            cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
            workers += min(cpus // options.threads, gpus) if options.device == "cuda" else cpus // options.threads
    return workers


def worker_count(options: BatchOptions, capacity: int) -> int:
    """Counts the workers of a cluster.

    Raises:
        ParameterError: more than there is room for.
    """
    each = f"{options.threads} CPU{'s' * (options.threads > 1)}" + (" and a GPU" if options.device == "cuda" else "")
    if capacity == 0:
        raise ParameterError(
            f"workers: no machine has room for one, which takes {each}; pass fewer --threads, or another --device"
        )
    if options.workers is not None and options.workers > capacity:
        raise ParameterError(
            f"workers: expected at most {capacity}, which is what there is room for with {each} each, got {options.workers}; pass fewer --workers or "
            "--threads"
        )
    return options.workers or capacity


def _connect(ray: Any, options: BatchOptions, object_bytes: int, folder: str | None) -> None:
    address = options.address
    quiet = {"configure_logging": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        if address is None:
            ray.init(
                address="local",
                num_cpus=len(os.sched_getaffinity(0)),
                include_dashboard=False,
                object_store_memory=_STORE_BYTES + 2 * object_bytes,
                _temp_dir=folder,
                **quiet,
            )
        else:
            _check_address(address)
            _probe(address, options.wait_seconds)
            ray.init(address=address, **quiet)
    except BatchError:
        raise
    except Exception as error:
        what = "Ray cannot be started here" if address is None else f"the cluster at {address} cannot be used"
        raise BatchError(f"{what}: {one_line(error)}") from None


def _check_address(address: str) -> None:
    """Ray itself waits for minutes where nobody answers."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise BatchCallError(
            f"--ray: expected HOST:PORT of a cluster's head (often port 6379), or auto, got '{address}'"
        )
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise BatchError(
            f"the cluster at {address} does not answer within {_CONNECT_SECONDS:.0f} s ({error}); check the address, and that Ray's head runs"
        ) from None


def _probe(address: str, seconds: float) -> None:
    """Connects in a process that can be ended: Ray goes on for minutes where something else answers at the address."""
    try:
        probe = subprocess.run([sys.executable, "-c", _PROBE, address], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise BatchError(
            f"the cluster at {address} does not answer within {seconds:.0f} s, though something does there; check that it is the port of Ray's head"
        ) from None
    if probe.returncode:
        last = (probe.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise BatchError(f"the cluster at {address} cannot be used: {last[:300]}")


@contextlib.contextmanager
def _temporary_folder(starts_cluster: bool) -> Iterator[str | None]:
    """Holds Ray's sockets and logs; below /tmp because names of sockets may have 107 bytes."""
    folder = tempfile.mkdtemp(prefix="cloakwork-ray-", dir="/tmp") if starts_cluster else None
    try:
        yield folder
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ray warns of what it will change some day, and takes SIGTERM for itself: neither is for this terminal."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if main else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    if handler is not None:
        signal.signal(signal.SIGTERM, handler)
