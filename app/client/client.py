"""`Client` and `AsyncClient`: encrypted predictions from a server in one call."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cloakwork.app.client.agreement import Agreement, Confirm
from cloakwork.app.client.audit import Recorder
from cloakwork.app.client.conversations import (
    JOB_SECONDS,
    Progress,
    Scoring,
    ServerKeys,
    Uploads,
    delete_keys,
    describe,
    json_of,
    score,
)
from cloakwork.app.client.errors import MisbehavingServerError
from cloakwork.app.client.exchange import ClientRequest, Conversation
from cloakwork.app.client.key_kinds import SecretKey
from cloakwork.app.client.keyring import Keyring, key_name, server_name
from cloakwork.app.client.model_uploads import add_model, versions
from cloakwork.app.client.pins import Pin
from cloakwork.app.client.remote_models import RemoteModel, require_samples
from cloakwork.app.client.scores import Scores
from cloakwork.app.client.transport import AsyncTransport, SyncTransport, checked_url, is_local
from cloakwork.fhe_core.errors import FheError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import require_structured
from cloakwork.models.client_steps import Stage

_LONG_ANSWER: Final = 16 << 20  # bytes of lists of everything
_MOST_MODELS: Final = 10_000
_TOY_SERVERS_VARIABLE: Final = "CLOAKWORK_ALLOW_TOY_SERVERS"
_log = logging.getLogger("cloakwork.client")


class _Settings:
    """Settings of both clients.

    Args:
        url: of the server, such as "https://fhe.example.org" or "http://127.0.0.1:8123".
        api_key: names and authenticates the tenant; None for a server of your own (`--insecure-local`).
        passphrase: of the secret keys at rest, or what asks for it; None: `CLOAKWORK_PASSPHRASE`.
        keyring: where keys are; None: a folder of the user (`CLOAKWORK_HOME`).
        timeout: seconds without a byte from the server, beyond which answers have to come at a kilobyte a second.
        job_timeout: seconds that a job may take.
        verify: as in httpx: False, a certificate bundle's path or an `ssl.SSLContext`.
        allow_plain_http: send an API key over http to other machines than this one.
        structured: make keys for models whose set has a structured secret (`.._block`) too; without it such models are refused.
        share_keys: use one key for all servers that a parameter set's models are on; they recognise each other's clients by it.
        accept_large_keys: make and send evaluation keys of more than 100 MB.
        accept_changes: take a model that is not what it was at first use, and pin it anew.
        largest_answer: bytes of an answer to one sample; models that need more are refused.
        confirm: confirm(question) asks whether to do either, where it was not agreed to beforehand.

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
        structured: bool = False,
        job_timeout: float = JOB_SECONDS,
        share_keys: bool = False,
        accept_large_keys: bool = False,
        accept_changes: bool = False,
        largest_answer: int = 64 << 20,
        confirm: Confirm | None = None,
    ) -> None:
        self.url = checked_url(url, api_key is not None, allow_plain_http)
        self._server = server_name(self.url)
        self._keyring = keyring or Keyring(passphrase=passphrase)
        self._keys = ServerKeys(self._keyring, "" if share_keys else self._server)
        self._agreement = Agreement(confirm, accept_large_keys, accept_changes)
        self._models: dict[tuple[str, str | None], RemoteModel] = {}
        self._uploads = Uploads()
        self._job_seconds, self._largest_answer = job_timeout, largest_answer
        self._structured = structured
        self._options = (self.url, api_key, timeout, verify)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _score(
        self,
        name: str,
        version: str | None,
        x: Any,
        output: Stage,
        progress: Progress | None = None,
        recorder: Recorder | None = None,
    ) -> Conversation[Scores]:
        require_samples(x)
        model = yield from self._model(name, version)
        model.require_output(output)
        if model.lookup_set is not None:
            require_structured(model.lookup_set, self._structured)
        rows = model.rows(x)
        if self._keys.have_to_be_made(model.keys):
            self._agreement.require_keys(model.keys)
        shown = progress or _silent
        self._pin(model, self._keys.key(model.keys, shown))
        witness = None if recorder is None else recorder.take
        scoring = Scoring(self._keys, self._uploads, shown, self._job_seconds, witness, output)
        result = yield from score(scoring, model, rows)
        if recorder is not None:
            keys = self._keys.evaluation_keys(model.keys, shown)
            recorder.write(name, model.version, model.program, self.url, keys)
        return result

    def _model(self, name: str, version: str | None) -> Conversation[RemoteModel]:
        """Asked for once: a version never changes. The newest version is looked up by every new client."""
        if (name, version) not in self._models:
            model = yield from describe(name, version)
            if model.is_insecure:
                require_toys_of(self.url)
            model.require_answer(self._largest_answer)
            self._require_same(model, any_version=version is None)
            self._models[name, version] = model
        return self._models[name, version]

    # --- what models were at first use ---

    def _require_same(self, model: RemoteModel, any_version: bool) -> None:
        """Raises ChangedModelError for a model that is not what it was, or, where no version was named, is another version than before."""
        pins = self._keyring.pins.of(self._server, model.name)
        pinned = pins.get(model.version)
        if pinned is None and pins and any_version:
            known = ", ".join(sorted(pins))
            what = f"its newest version at {self.url} is {model.version}, before it was {known}"
        elif pinned is not None and not pinned.says_the_same(self._pin_of(model)):
            what = f"its version {model.version} at {self.url} has another program or other steps than at first use"
        else:
            return
        self._agreement.require_change(model.name, what)
        self._keyring.pins.forget(self._server, model.name)

    def _pin(self, model: RemoteModel, key: SecretKey) -> None:
        """Raises SerializationError: there is a pin that the key did not write."""
        pins = self._keyring.pins
        pinned, pin = pins.of(self._server, model.name).get(model.version), self._pin_of(model)
        if pinned is None or pinned.key != pin.key:
            pins.put(pin.signed(key))
        elif not pinned.is_of(key):
            raise SerializationError(
                f"keys: the pin of model '{model.name}' was not written with the model's key; the file of pins or the key was "
                f"changed; Client.accept('{model.name}') (--accept-change) accepts the model as it is now"
            )

    def _pin_of(self, model: RemoteModel) -> Pin:
        key = key_name(model.keys.name, self._keys.server)
        return Pin(self._server, model.name, model.version, model.program.hex(), model.specification_digest, key)

    def _accept(self, name: str) -> None:
        self._keyring.pins.forget(self._server, name)
        self._models = {requested: model for requested, model in self._models.items() if requested[0] != name}

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


def require_toys_of(url: str) -> None:
    """Raises ParameterError: a server names an insecure set, and is not one of this machine's that a test allows to."""
    if not (is_local(url) and os.environ.get(_TOY_SERVERS_VARIABLE) == "1"):
        raise ParameterError(
            f"the model at {url} has an insecure parameter set, which is for tests; no server may ask for one ({_TOY_SERVERS_VARIABLE}=1 lets those "
            "of this machine)"
        )


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def _call(method: str, path: str) -> Conversation[dict[str, Any]]:
    response = yield ClientRequest(method, path, repeatable=method == "GET", most_bytes=_LONG_ANSWER)
    return json_of(response) if response.content else {}


def _listing() -> Conversation[list[str]]:
    models = json_of((yield ClientRequest("GET", "/v2/models", most_bytes=_LONG_ANSWER))).get("models", [])
    if not isinstance(models, list) or len(models) > _MOST_MODELS or not all(isinstance(name, str) for name in models):
        raise MisbehavingServerError(f"models: expected a list of at most {_MOST_MODELS} names")
    return models


class Client(_Settings):
    """Scores samples on a server that never sees them: `with Client(url) as client: client.predict("iris-tree", x)`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._transport = SyncTransport(*self._options)

    def accept(self, name: str) -> None:
        """Takes a model that is not what it was: the next use pins it as it is then."""
        self._accept(name)

    def models(self) -> list[str]:
        """Returns the names of the server's models."""
        return self._transport.carry_out(_listing())

    def call(self, method: str, path: str) -> dict[str, Any]:
        """Calls any other route without a body (docs/howto/service.md): its answer in JSON, {} when it has none."""
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

    def versions(self) -> list[dict[str, Any]]:
        """Lists every version of every model with its "state", and the "reason" if it is not "READY". The API key needs the scope `models`."""
        return self._transport.carry_out(versions())

    def model(self, name: str, version: str | None = None) -> RemoteModel:
        """Returns its client specification and its facts: parameter set, bytes, bootstraps, failure probability."""
        return self._transport.carry_out(self._model(name, version))

    def score(
        self,
        name: str,
        x: Any,
        *,
        version: str | None = None,
        output: Stage = "labels",
        progress: Progress | None = None,
        recorder: Recorder | None = None,
    ) -> Scores:
        """Returns predictions for samples [samples, ..] with what they cost.

        Args:
            x: an array or a table; for a model of several inputs a dict of arrays by name, or a tuple of arrays in the model's order.
            output: "labels" (of regressors and networks the values), or what a classifier tells beside them: "scores" or "probabilities".
            progress: progress(what, done, total) with `what` "keys", "upload" or "server".
            recorder: writes a file for an audit, of what is sent and what comes (docs/howto/client.md).

        Raises:
            ShapeError: samples of another shape than the model's, or values that are not finite.
            ParameterError: an output that the model does not tell.
            ServiceError: the server refused or cannot be reached; OverQuotaError after retries.
        """
        return self._transport.carry_out(self._score(name, version, x, output, progress, recorder))

    def predict(self, name: str, x: Any, *, version: str | None = None, output: Stage = "labels") -> Any:
        """Returns the predictions of `score`: an array; of a model of several outputs a dict of arrays by name."""
        return self.score(name, x, version=version, output=output).predictions

    def predict_proba(self, name: str, x: Any, *, version: str | None = None) -> Any:
        """Predict the probabilities of a classifier, [samples, classes]. ParameterError: the model tells none."""
        return self.predict(name, x, version=version, output="probabilities")

    def delete_uploaded_keys(self) -> None:
        """Deletes the evaluation keys that this client has uploaded from the server; the next request uploads them again."""
        self._transport.carry_out(self._forgotten())

    def close(self) -> None:
        """Ends the connection; keys that do not outlive this run (`Keyring.temporary`) are deleted from the server first."""
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

    async def accept(self, name: str) -> None:
        """Works as `Client.accept`."""
        await asyncio.to_thread(self._accept, name)

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
        """Works as `Client.add_model`."""
        return await self._transport.carry_out(add_model(Path(path), name, version, load, progress or _silent))

    async def versions(self) -> list[dict[str, Any]]:
        """Works as `Client.versions`."""
        return await self._transport.carry_out(versions())

    async def model(self, name: str, version: str | None = None) -> RemoteModel:
        """Works as `Client.model`."""
        return await self._transport.carry_out(self._model(name, version))

    async def score(
        self,
        name: str,
        x: Any,
        *,
        version: str | None = None,
        output: Stage = "labels",
        progress: Progress | None = None,
        recorder: Recorder | None = None,
    ) -> Scores:
        """Works as `Client.score`."""
        return await self._transport.carry_out(self._score(name, version, x, output, progress, recorder))

    async def predict(self, name: str, x: Any, *, version: str | None = None, output: Stage = "labels") -> Any:
        """Works as `Client.predict`."""
        return (await self.score(name, x, version=version, output=output)).predictions

    async def predict_proba(self, name: str, x: Any, *, version: str | None = None) -> Any:
        """Works as `Client.predict_proba`."""
        return await self.predict(name, x, version=version, output="probabilities")

    async def delete_uploaded_keys(self) -> None:
        """Works as `Client.delete_uploaded_keys`."""
        await self._transport.carry_out(self._forgotten())

    async def close(self) -> None:
        """Works as `Client.close`."""
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
