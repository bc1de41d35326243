"""`Client` and `AsyncClient`: encrypted predictions from a server in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cloakwork.app.client.audit import Recorder
from cloakwork.app.client.conversations import (
    Progress,
    Uploads,
    delete_keys,
    describe,
    json_of,
    score,
)
from cloakwork.app.client.exchange import Conversation, Request
from cloakwork.app.client.keyring import Keyring
from cloakwork.app.client.model_uploads import add_model
from cloakwork.app.client.remote_models import RemoteModel, require_samples
from cloakwork.app.client.scores import Scores
from cloakwork.app.client.transport import AsyncTransport, SyncTransport, checked_url
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.parameters import require_structured_keys

_log = logging.getLogger("cloakwork.client")


class _Settings:
    """What both clients are made with.

    Args:
        url: of the server, such as "https://fhe.example.org" or "http://127.0.0.1:8123".
        api_key: names and authenticates the tenant; None for a server of your own (`--insecure-local`).
        passphrase: of the secret keys at rest, or what asks for it; None: `CLOAKWORK_PASSPHRASE`.
        keyring: where keys are; None: a folder of the user (`CLOAKWORK_HOME`).
        timeout: seconds without a byte from the server.
        verify: as in httpx: False, a certificate bundle's path or an `ssl.SSLContext`.
        allow_plain_http: send an API key over http to other machines than this one.
        structured_keys: make keys for models whose set has a structured secret (`.._block`) too; without it such models are refused.

    Raises:
        ParameterError: a URL that is none, or an API key over plain http to another machine.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        passphrase: str | Callable[[], str] | None = None,
        keyring: Keyring | None = None,
        timeout: float = 300.0,
        verify: Any = True,
        allow_plain_http: bool = False,
        structured_keys: bool = False,
    ) -> None:
        self.url = checked_url(url, api_key is not None, allow_plain_http)
        self._keyring = keyring or Keyring(passphrase=passphrase)
        self._models: dict[tuple[str, str | None], RemoteModel] = {}
        self._uploads = Uploads()
        self._structured_keys = structured_keys
        self._options = (self.url, api_key, timeout, verify)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _score(
        self, name: str, version: str | None, x: Any, progress: Progress | None, recorder: Recorder | None
    ) -> Conversation[Scores]:
        require_samples(x)
        model = yield from self._model(name, version)
        if model.lookup_set is not None:
            require_structured_keys(model.lookup_set, self._structured_keys)
        rows = model.rows(x)
        if recorder is None:
            return (yield from score(self._keyring, self._uploads, model, rows, progress or _silent))
        program = model.program
        result = yield from score(self._keyring, self._uploads, model, rows, progress or _silent, recorder.take)
        recorder.write(name, model.version, program, self.url, self._keyring.evaluation_keys(model.keys))
        return result

    def _model(self, name: str, version: str | None) -> Conversation[RemoteModel]:
        """Asked for once: a version never changes. The newest version is looked up by every new client."""
        if (name, version) not in self._models:
            self._models[name, version] = yield from describe(name, version)
        return self._models[name, version]

    def _leaving(self) -> bool:
        """Whether this client has put keys on the server that nobody can use after it."""
        return not self._keyring.lasting and bool(self._uploads.digests)

    def _forgotten(self) -> Conversation[None]:
        yield from delete_keys(self._uploads.digests)
        self._uploads = Uploads()

    def _not_forgotten(self, error: FheError) -> None:
        _log.warning(
            "the evaluation keys of this run stay at %s until they expire there: %s; 'cloakwork keys list' and 'keys delete' remove them",
            self.url,
            error,
        )


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def _call(method: str, path: str) -> Conversation[dict[str, Any]]:
    response = yield Request(method, path, repeatable=method == "GET")
    return json_of(response) if response.content else {}


def _listing() -> Conversation[list[str]]:
    models = json_of((yield Request("GET", "/v2/models"))).get("models", [])
    return [str(name) for name in models]


class Client(_Settings):
    """Scores samples on a server that never sees them: `with Client(url) as client: client.predict("iris-tree", x)`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._transport = SyncTransport(*self._options)

    def models(self) -> list[str]:
        """The names of the server's models."""
        return self._transport.carry_out(_listing())

    def call(self, method: str, path: str) -> dict[str, Any]:
        """Any other route without a body (docs/service.md): its answer in JSON, {} when it has none."""
        return self._transport.carry_out(_call(method, path))

    def add_model(
        self,
        path: str | Path,
        name: str | None = None,
        *,
        version: str | None = None,
        load: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Sends a compiled model or an index to the server; the API key needs the scope `models`.

        Args:
            name: how the server calls it; the file's name without its ending where None.
            version: None: the next number.
            load: put it into service.
            progress: progress("upload", bytes, all bytes).

        Returns:
            name, version, state, reason, bytes and sha256 of the version.

        Raises:
            ServiceError: the server refused: no model of its release (422), a version with other bytes (409) or retired (410), too large (413).
        """
        return self._transport.carry_out(add_model(Path(path), name, version, load, progress or _silent))

    def model(self, name: str, version: str | None = None) -> RemoteModel:
        """Its client specification and its facts: parameter set, bytes, bootstraps, failure probability."""
        return self._transport.carry_out(self._model(name, version))

    def score(
        self,
        name: str,
        x: Any,
        *,
        version: str | None = None,
        progress: Progress | None = None,
        recorder: Recorder | None = None,
    ) -> Scores:
        """Predictions for samples [samples, ..] with what they cost.

        Args:
            x: an array or a table; for a model of several inputs a dict of arrays by name, or a tuple of arrays in the model's order.
            progress: progress(what, done, total) with `what` "keys", "upload" or "server".
            recorder: writes a file for an audit, of what is sent and what comes (docs/client.md).

        Raises:
            ShapeError: samples of another shape than the model's, or values that are not finite.
            ServiceError: the server refused or cannot be reached; OverQuotaError after retries.
        """
        return self._transport.carry_out(self._score(name, version, x, progress, recorder))

    def predict(self, name: str, x: Any, *, version: str | None = None) -> Any:
        """The predictions of `score`: an array; of a model of several outputs a dict of arrays by name."""
        return self.score(name, x, version=version).predictions

    def delete_uploaded_keys(self) -> None:
        """Deletes the evaluation keys that this client has uploaded from the server; the next request uploads them again."""
        self._transport.carry_out(self._forgotten())

    def close(self) -> None:
        """Ends the connection; keys that do not outlive this run (TemporaryKeyring) are deleted from the server first."""
        try:
            if self._leaving():
                self.delete_uploaded_keys()
        except FheError as error:
            self._not_forgotten(error)
        finally:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Settings):
    """`Client` for asyncio; encryption and decryption run in a thread, so that the event loop goes on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._transport = AsyncTransport(*self._options)

    async def models(self) -> list[str]:
        """Names of the models that the server offers."""
        return await self._transport.carry_out(_listing())

    async def add_model(
        self,
        path: str | Path,
        name: str | None = None,
        *,
        version: str | None = None,
        load: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """As `Client.add_model`."""
        return await self._transport.carry_out(add_model(Path(path), name, version, load, progress or _silent))

    async def model(self, name: str, version: str | None = None) -> RemoteModel:
        """As `Client.model`."""
        return await self._transport.carry_out(self._model(name, version))

    async def score(
        self,
        name: str,
        x: Any,
        *,
        version: str | None = None,
        progress: Progress | None = None,
        recorder: Recorder | None = None,
    ) -> Scores:
        """As `Client.score`."""
        return await self._transport.carry_out(self._score(name, version, x, progress, recorder))

    async def predict(self, name: str, x: Any, *, version: str | None = None) -> Any:
        """As `Client.predict`."""
        return (await self.score(name, x, version=version)).predictions

    async def delete_uploaded_keys(self) -> None:
        """As `Client.delete_uploaded_keys`."""
        await self._transport.carry_out(self._forgotten())

    async def close(self) -> None:
        """As `Client.close`."""
        try:
            if self._leaving():
                await self.delete_uploaded_keys()
        except FheError as error:
            self._not_forgotten(error)
        finally:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()
