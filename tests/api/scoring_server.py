"""A real server as a process, small models on toy parameters, and clients that hold their keys."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import onnx_models
import psutil
from warm_process import Forked, WarmPython

import cloakwork as cw
from cloakwork.api.database.connection import DATABASE_FILE, Database
from cloakwork.api.database.migrate import migrate_url
from cloakwork.api.service.tenants.tenants import Tenants, Terms
from cloakwork.api.start_checks import migrate
from cloakwork.fhe_core import noise, wire
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.repository import describe
from cloakwork.models.runtime import Runtime

START_SECONDS = 300.0  # a machine may be busy


@dataclass
class Server:
    """`python -m cloakwork.api` on a port of its own. `environment` holds settings without their prefix."""

    data: Path
    environment: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # of other names
    insecure: bool = True
    logs: Path | None = None  # a folder; the data folder without one
    umask: int = -1  # that of who starts it; without `variables`
    made_tables: bool = True  # False: the service makes them, in a process of two seconds
    port: int = 0
    process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return (self.logs or self.data) / "log.jsonl"

    def log_lines(self) -> list[dict[str, Any]]:
        whole = self.log.read_text(encoding="utf-8").split("\n")[:-1]  # a reader sees a long line in parts
        return [json.loads(line) for line in whole if line.startswith("{")]

    def settings(self) -> dict[str, str]:
        """Without their prefix."""
        return {
            "DATA_FOLDER": str(self.data),
            "PORT": str(self.port),
            "ZOO": "false",
            "DEVICES": "cpu",
            "ENGINE_MISSED_PINGS": "0",  # tests hold engines
            **self.environment,
            "INSECURE_LOCAL": str(self.insecure).lower(),
        }

    def start(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CLOAKWORK_")}
        environment = {
            **clean,
            **self.variables,
            "CLOAKWORK_ALLOW_TOY": "1",
            **{f"CLOAKWORK_{name}": value for name, value in self.settings().items()},
        }
        self.data.mkdir(parents=True, exist_ok=True)
        if self.made_tables and "DATABASE_URL" not in self.environment:
            with_tables(self.data)
        already = len(self.log_lines()) if self.log.exists() else 0
        with self.log.open("ab") as log:
            if self.variables:  # which what is imported may read
                self.process = subprocess.Popen([sys.executable, "-m", "cloakwork.api"], env=environment, stderr=log)
            else:
                self.process = warm_service().start("cloakwork.api", environment, log.fileno(), self.umask)
        self._wait(already)

    def _wait(self, already: int) -> None:
        process = self.process
        assert process is not None

        def is_ready() -> bool:
            urls = [line["url"] for line in self.log_lines()[already:] if line["message"] == "listening"]
            if not urls:
                return False
            self.port = int(urls[-1].rpartition(":")[2])
            if "TLS_KEY" in self.environment:
                return True
            with self.client() as http:
                return http.get("/v2/health/ready").status_code == 200

        started = eventually(lambda: process.poll() is not None or is_ready(), START_SECONDS) and process.poll() is None
        assert started, f"the server did not start:\n{self.log.read_text()[-3000:]}"

    def kill(self) -> None:
        """As the kernel would: nothing is tidied up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        os.truncate(self.log, self.log.read_bytes().rfind(b"\n") + 1)  # the line that it was writing

    def kill_engine(self, by: signal.Signals = signal.SIGKILL) -> None:
        ready = [line["pid"] for line in self.log_lines() if line["message"] == "engine ready"]
        os.kill(ready[-1], by)

    def engines(self) -> list[psutil.Process]:
        assert self.process is not None
        children = psutil.Process(self.process.pid).children()
        return [each for each in children if "cloakwork.api.engine" in each.cmdline()]

    @contextmanager
    def engine_held(self) -> Iterator[None]:
        """What is sent meanwhile waits for the engines, however fast the machine is."""
        engines = self.engines()
        assert engines
        for engine in engines:
            engine.suspend()
        try:
            yield
        finally:
            for engine in engines:
                with suppress(psutil.NoSuchProcess):
                    engine.resume()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)


@cache
def warm_service() -> WarmPython:
    python = WarmPython(["cloakwork.api.web_process"])
    atexit.register(python.folder.cleanup)
    return python


@contextmanager
def running(data: Path, **options: Any) -> Iterator[Server]:
    server = Server(data, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@cache
def empty_tables() -> bytes:
    """A database that has the newest tables and nothing in them, for which a service starts a process."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / DATABASE_FILE
        with ThreadPoolExecutor() as pool:  # in a browser's tests this thread has a loop already
            pool.submit(lambda: asyncio.run(migrate_url(f"sqlite:///{file}"))).result()
        return file.read_bytes()


def with_tables(data: Path) -> None:
    """In a data folder that has no database yet."""
    file = data / DATABASE_FILE
    if not file.exists():
        data.mkdir(parents=True, exist_ok=True)
        file.write_bytes(empty_tables())
        file.chmod(0o600)


def with_tenants(data: Path, work: Callable[[Tenants], Awaitable[Any]], database: str | None = None) -> Any:
    """On the database of a data folder, or on another."""
    url = database or f"sqlite:///{data / DATABASE_FILE}"
    if database is None:
        with_tables(data)

    async def run() -> Any:
        opened = Database(url)
        try:
            await migrate(opened, url)
            return await work(Tenants(opened))
        finally:
            await opened.close()

    return asyncio.run(run())


def new_tenant(data: Path, name: str, *scopes: str, database: str | None = None, **terms: Any) -> str:
    """`terms` as in `Terms`."""

    async def work(tenants: Tenants) -> str:
        await tenants.add(name, Terms(**terms), exist_ok=True)
        return await tenants.new_api_key(name, scopes or ("score",))

    token: str = with_tenants(data, work, database)
    return token


def toy_model(seed: int = 0, sizes: tuple[int, ...] = (4, 6, 3), set_name: str = "toy_two_limb") -> CompiledModel:
    """A small network, compiled for a secure set and then moved to insecure parameters, which have less noise."""
    rng = np.random.default_rng(seed)
    samples = rng.uniform(-1, 1, (512, sizes[0]))
    compiled = cw.compile(onnx_models.mlp(rng, sizes), samples, precision="fast", accuracy=0.9)
    return CompiledModel(replace(compiled.program, parameters=parameter_set(set_name)))


def with_model(data: Path, compiled: CompiledModel) -> Path:
    """A data folder that has the model as `toy`, and its facts."""
    folder = data / "models" / "toy"
    folder.mkdir(parents=True)
    compiled.save(folder / "1.clkm")
    describe(folder / "1.clkm")
    return data


@dataclass(frozen=True)
class User:
    """A client with a secret key: what app.client does, by hand."""

    http: httpx.Client
    model: str
    key: ClientKey
    keys: bytes
    specification: ClientSpecification
    facts: dict[str, Any]

    @classmethod
    def of(cls, http: httpx.Client, model: str = "toy") -> User:
        text = http.get(f"/v2/models/{model}/client").raise_for_status().text
        facts = http.get(f"/v2/models/{model}").raise_for_status().json()["parameters"]["fhe"]
        specification = ClientSpecification.from_json(text)
        key = ClientKey.generate(parameter_set(specification.parameters))
        return cls(http, model, key, key.evaluation_keys().to_bytes(), specification, facts)

    def announcement(self, **changes: Any) -> dict[str, Any]:
        content = {"bytes": len(self.keys), "sha256": hashlib.sha256(self.keys).hexdigest()}
        return {"parameter_set_digest": self.facts["parameter_digest"], **content, **changes}

    def upload(self) -> str:
        answer = self.http.post("/v2/keys", json=self.announcement())
        assert answer.status_code == 201, answer.text
        identity: str = answer.json()["id"]
        done = self.http.patch(f"/v2/keys/{identity}", content=self.keys, headers={"Upload-Offset": "0"})
        assert done.status_code == 200 and done.json()["state"] == "ready", done.text
        return identity

    def send(self, identity: str, start: int = 0, end: int | None = None) -> httpx.Response:
        """A part of the keys."""
        headers = {"Upload-Offset": str(start)}
        return self.http.patch(f"/v2/keys/{identity}", content=self.keys[start:end], headers=headers)

    def encrypt(self, samples: int = 1, seed: int = 0) -> tuple[np.ndarray, bytes]:
        x = np.random.default_rng(seed).uniform(-0.7, 0.7, (samples, *self.specification.input_shape))
        return x, self.specification.encrypt(self.key, x).to_bytes()

    def decrypt(self, body: bytes) -> np.ndarray:
        return np.asarray(self.specification.decrypt(self.key, load_results(body)))

    def same_answer(self, first: bytes, second: bytes) -> bool:
        """Whether two answers are the same words, under one re-randomisation or two: the difference is their noise, within eight standard
        deviations (beyond it once in 10^15), far below the noise of anything else that a program does."""
        phases = [self.key.phases(load_results(answer)).astype(np.int64) for answer in (first, second)]
        modulus = self.key.parameters.modulus
        difference = (phases[0] - phases[1] + modulus // 2) % modulus - modulus // 2
        variance, bits = noise.rerandomisation_variance(self.key.parameters), wire.peek(first).word_bits
        variance += noise.word_rounding_variance(self.key.parameters, bits) if bits else 0.0
        limit = 8 * math.sqrt(2 * variance) * modulus
        return bool((np.abs(difference) < limit).all())

    def made_again(self, compiled: CompiledModel, key: AuditKey, body: bytes) -> bytes:
        """What the service's owner computes for a request."""
        session = Session(EvaluationKeys.from_bytes(self.keys), threads=2)
        digests = [hashlib.sha256(each).digest() for each in (self.keys, body)]
        seed = partial(key.seed, Transcript(compiled.program.digest, *digests))
        x = SeededPackedCiphertexts.from_bytes(body)
        return Runtime(compiled.program, session).answer(x, seed=seed).to_bytes()

    def infer(self, body: bytes, **options: Any) -> httpx.Response:
        return self.http.post(f"/v2/models/{self.model}/infer", content=body, **options)

    def answer(self, body: bytes, **options: Any) -> bytes:
        """Returns the result of `infer`, which is a job's if other work of the test takes long on this machine."""
        answer = self.infer(body, **options).raise_for_status()
        if answer.status_code != 202:
            return answer.content
        return job_result(self.http, answer.json()["id"], 300)


def eventually(condition: Callable[[], Any], seconds: float = 60.0, every: float = 0.05) -> bool:
    """Whether the condition holds before the time is over; it is asked again and again. The time is generous: a loaded machine is slow."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)  # the only one of these tests
    return True


def becomes(ask: Callable[[], Any], expected: Any, seconds: float = 60.0) -> bool:
    """Whether the answer is the expected one before the time is over."""
    return eventually(lambda: ask() == expected, seconds)


def job_result(http: httpx.Client, job: str, seconds: float = 60.0) -> bytes:
    """Returns the result of a job when it is done."""
    assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done", seconds), job
    return http.get(f"/v2/jobs/{job}/result").raise_for_status().content


def metric(http: httpx.Client, name: str) -> float:
    """The sum of its lines, over all labels; there has to be one."""
    found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", http.get("/metrics").text, flags=re.MULTILINE)
    assert found, name
    return sum(map(float, found))


def resident(http: httpx.Client) -> list[float]:
    """Bytes of keys in the engine's memory and on its devices."""
    lines = http.get("/metrics").text.splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith("fhe_keys_resident_bytes{")]
