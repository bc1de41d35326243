"""Configuration: flags, then environment variables CLOAKWORK_*, then a TOML file, then these defaults. docs/howto/service.md lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from cloakwork.fhe_core.errors import ParameterError

PREFIX = "CLOAKWORK_"
FILE_VARIABLE = "CLOAKWORK_CONFIG"
_URLS: Final = ("database_url", "storage_url")
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


@cache
def release() -> str:
    try:
        return version("cloakwork")
    except PackageNotFoundError:
        return "0"


class Settings(BaseSettings):
    """One running service. Every field is a key of the file and, in capitals with the prefix, an environment variable."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    # where it listens
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8123, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    insecure_local: bool = Field(
        False, description="No API keys: everyone who can connect is one tenant with all scopes. Loopback only."
    )
    tls_certificate: Path | None = Field(
        None, description="Certificate chain in PEM; without one, put a proxy with TLS in front."
    )
    tls_key: Path | None = Field(None, description="Private key of the certificate in PEM.")
    metrics_public: bool = Field(
        False, description="Serve /metrics without an API key (needs the scope `metrics` otherwise)."
    )

    # where things are kept
    data_folder: Path = Field(
        Path("cloakwork-data"), description="Folder of everything the service keeps; one running service at a time."
    )
    database_url: str | None = Field(
        None, description="`postgresql://user:password@host/name`; without one an SQLite file in the data folder."
    )
    storage_url: str | None = Field(
        None,
        description="Object storage of keys, inputs and results, for example `s3://bucket/prefix` (extra `s3`, credentials from the "
        "environment); without one, files in the data folder.",
    )
    audit_key: Path | None = Field(
        None,
        description="File of 32 secret bytes from which answers are re-randomised, the same for services that share a database; without one "
        "`audit.key` in the data folder, made at the first start.",
    )
    single_host: bool = Field(
        False,
        description="No other service uses `database_url`. Without this and without `storage_url` such a database is refused.",
    )
    adopt_storage: bool = Field(
        False,
        description="For one start: the storage becomes this database's although it belongs to another one, or most of its objects are unknown. "
        "Those are deleted in time.",
    )
    role: Literal["all", "web", "worker"] = Field(
        "all",
        description="What this process does of those that share `database_url` and `storage_url`: `web` takes requests and has no engine, `worker` "
        "runs them and serves only health and metrics, `all` does both.",
    )
    disk_reserve_bytes: int = Field(
        256 << 20,
        ge=0,
        description="Room that stays free where the data folder is: uploads and jobs that would leave less are refused with 507, deleting "
        "goes on.",
    )
    max_model_bytes: Positive = Field(
        2 << 30, description="A model that is uploaded over HTTP, bytes; files in the data folder may be larger."
    )
    structured: bool = Field(
        False,
        description="Serve models, and take evaluation keys, of parameter sets with structured secrets (`.._block`); they are refused otherwise.",
    )
    page: bool = Field(True, description="Serve the page at `/` and the description of the routes at `/docs`.")
    admin_page: bool = Field(
        True,
        description="Serve the administrator's page at `/admin`, where `page` is on; the routes under `/v2/admin` stay.",
    )
    zoo: bool = Field(True, description="Copy the models of the zoo into the repository when it does not have them.")

    strict_readiness: bool = Field(
        True,
        description="Ready is a service whose models are all ready, as the Open Inference Protocol has it; `false`: also one with a model that "
        "cannot be served.",
    )

    # the engine
    devices: str = Field(
        "auto",
        description="`auto` (every usable GPU, else the CPU), or devices separated by spaces, an engine process for each: `cpu`, "
        "`cuda:0 cuda:1`, `cuda:0,1` (two GPUs as one device).",
    )
    threads: int = Field(0, ge=0, description="CPU threads of the engine; 0: as many as the process may use.")
    memory_key_bytes: Positive = Field(
        1 << 30,
        description="Evaluation keys kept in memory as they travel, bytes. Not set: less where there is "
        "[little memory](operations.md#little-memory).",
    )
    device_key_bytes: Positive = Field(
        4 << 30,
        description="Expanded keys, and prepared tables of indices, kept on each device, bytes. Not set: all CPU engines together have no "
        "more, and less where there is [little memory](operations.md#little-memory).",
    )
    engine_ping_seconds: Seconds = Field(1.0, description="How often each engine is asked whether it answers.")
    engine_missed_pings: int = Field(
        10,
        ge=0,
        description="An engine that misses this many in a row hangs: it is killed and started again. Where services share a database, it has "
        "`takeover_seconds` at most. 0: engines are not watched.",
    )
    engine_stall_seconds: Seconds = Field(
        600.0,
        description="A run that neither ends nor reports progress for so long hangs, and its engine with it; before its first report it has "
        "three times its estimate, if that is longer.",
    )

    # requests
    synchronous_seconds: Seconds = Field(
        5.0,
        description="`infer` answers at once when queue and run are estimated below this; else 202 with a job.",
    )
    tensor_seconds: Seconds = Field(
        50.0,
        description="`infer` with a tensor, whose client cannot ask for a job, waits when queue and run are estimated below this; else 422 "
        "`too_long` or 429. Clients have time-outs of their own, often a minute.",
    )
    body_idle_seconds: Seconds = Field(20.0, description="A body that brings nothing for this long is given up: 408.")
    header_seconds: Seconds = Field(
        10.0, description="A connection without a complete request header for this long is closed."
    )
    max_samples: Positive = Field(
        4096, description="Samples in one request, at most; a model's memory may allow fewer."
    )
    max_queue: Positive = Field(1000, description="Requests and jobs waiting, all tenants together; beyond it 429.")
    max_tenant_queue: Positive = Field(200, description="The same for one tenant.")
    body_memory_bytes: Positive = Field(
        256 << 20,
        description="Bodies of inference requests and their answers in memory, all together; beyond it 429. Not set: less where "
        "there is [little memory](operations.md#little-memory).",
    )
    tenant_body_memory_bytes: Positive = Field(64 << 20, description="The same for one tenant.")
    max_connections: Positive = Field(
        512, description="Connections at a time; beyond it idle ones are closed, then 503. Health is asked beyond it."
    )
    max_address_connections: int = Field(
        256,
        ge=0,
        description="The same from one address (IPv6: one /64). 0, behind a proxy: no limit; the proxy must have one for its clients.",
    )
    max_tenant_connections: Positive = Field(
        128, description="The same of one tenant, the connections counted on which it asked last."
    )
    allowed_origins: str = Field(
        "",
        description="Origins, separated by spaces, whose pages may ask beside the service's own: `https://fhe.example`, as a proxy is called.",
    )

    trusted_proxies: str = Field(
        "",
        description="Addresses and networks, separated by spaces, of proxies whose `X-Forwarded-For` says for whom they ask: `10.0.0.0/8`. For the "
        "log alone.",
    )

    # time
    result_retention_seconds: Seconds = Field(
        86400.0, description="Finished jobs and their results are kept this long."
    )
    key_retention_seconds: Seconds = Field(
        90 * 86400.0, description="Evaluation keys expire this long after their last use."
    )
    upload_retention_seconds: Seconds = Field(
        86400.0, description="An upload without new bytes for this long is discarded."
    )
    retention_check_seconds: Seconds = Field(60.0, description="How often what has expired is looked for.")
    max_attempts: Positive = Field(3, description="Runs of one request whose engine process dies, at most.")

    takeover_seconds: Seconds = Field(
        30.0,
        description="A service on the same database that is silent for this long is dead: its jobs are run by another.",
    )

    drain_seconds: Seconds = Field(
        50.0,
        description="After SIGTERM a process finishes what it runs, for this long at most; give it a little more before it is killed.",
    )

    # limits of a tenant that has none of its own
    tenant_bytes: Positive = Field(4 << 30, description="Stored bytes: keys, waiting inputs, results.")
    tenant_bootstraps_per_day: Positive = Field(100_000_000, description="Bootstraps in one day (UTC).")
    tenant_answers_per_day: Positive = Field(
        1_000_000,
        description="Answers (samples) of one model in one day (UTC), all its versions together: what makes a model slow to copy.",
    )

    # observation
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="`debug`, `info`, `warning` or `error`."
    )
    telemetry: bool = Field(
        False, description="OpenTelemetry traces by OTLP over HTTP (extra `telemetry`; OTEL_* variables apply)."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(FILE_VARIABLE)
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file) if file else None)

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.insecure_local and not is_loopback(self.host):
            raise ValueError(
                f"--insecure-local serves loopback addresses only, not '{self.host}'; make API keys instead"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together; give both or none")
        for proxy in self.trusted_proxies.split():
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"trusted_proxies: '{proxy}' is neither an address nor a network such as 10.0.0.0/8"
                ) from None
        if self.role != "all" and not self.shared:
            raise ValueError(
                f"role '{self.role}' needs other processes to work with: set database_url to PostgreSQL and storage_url to storage that all "
                "of them share, without single_host"
            )
        return self

    def facts(self) -> dict[str, Any]:
        """Returns every setting as it is in force, for the log: URLs without who signs in and without what is after '?'."""
        facts = self.model_dump(mode="json")
        return facts | {name: without_credentials(facts[name]) for name in _URLS if facts[name]}

    @property
    def named_devices(self) -> tuple[str, ...]:
        """None: those that are there."""
        return () if self.devices == "auto" else tuple(self.devices.split())

    @property
    def shared(self) -> bool:
        """Whether work goes through the database, to whichever process is free."""
        several = self.storage_url is not None and not self.single_host
        return several and (self.database_url or "").startswith("postgres")

    @property
    def serves(self) -> bool:
        """Takes requests of clients."""
        return self.role != "worker"

    @property
    def computes(self) -> bool:
        """Has an engine."""
        return self.role != "web"


def load_settings(**flags: Any) -> Settings:
    """Loads the settings.

    Raises:
        ParameterError: a value out of its domain, or a file that cannot be used; one line for all of them.
    """
    file = os.environ.get(FILE_VARIABLE)
    if file and not Path(file).is_file():
        raise ParameterError(f"settings: there is no file '{file}'; correct --config, or {FILE_VARIABLE}")
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        problems = "; ".join(_in_words(each, flags, file) for each in error.errors())
        raise ParameterError(f"settings: {problems}") from None
    except ValueError as error:  # not TOML
        raise ParameterError(f"settings: {file}: {error}") from None
    except OSError as error:
        raise ParameterError(f"settings: {file}: {error.strerror}") from None


def _in_words(problem: Any, flags: Mapping[str, Any], file: str | None) -> str:
    """Says what is wrong with one setting, and where it comes from; never its value, which may be a password, but where a number is expected."""
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{name}: there is no such setting; docs/howto/service.md lists them"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected a value")
    message = message.replace("expected a value '", "expected '").replace("expected a value a ", "expected a ")
    if problem["type"] in ("int_parsing", "float_parsing", "bool_parsing"):
        message = f"{message.partition(',')[0]}, got {problem['input']!r}"
    return f"{_source(name, flags, file)}: {message}" if name else message


def _source(name: str, flags: Mapping[str, Any], file: str | None) -> str:
    """Names a setting as whoever has to correct it wrote it."""
    if flags.get(name) is not None:
        return f"--{name.replace('_', '-')}"
    variable = f"{PREFIX}{name.upper()}"
    if variable in os.environ:
        return variable
    return name if file is None else f"{file}: {name}"


def without_credentials(url: str) -> str:
    """Returns scheme, host and path, which may be logged; less where it is not clear which part is a password."""
    scheme, mark, rest = url.partition("://")
    before, _, after = rest.rpartition("@")
    if not mark or re.search("[?#]", before):
        return "(not shown)"
    return scheme + mark + re.split("[?#]", after, maxsplit=1)[0]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
