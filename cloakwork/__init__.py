"""Machine-learning inference on encrypted data.

    import cloakwork as cw

    model = cw.compile(anything, samples)  # a fitted estimator or pipeline, a PyTorch module, an ONNX file
    print(model)                           # what it costs, and what a client learns
    model.predict(x)                       # without encryption; how="simulate" with its noise; how="encrypted" really encrypted
    model.save("churn.clkm")
    model = cw.load("churn.clkm")          # or cw.load("zoo:iris-tree")

    key = cw.Key.generate(model)           # the client's secret; key.public() is all that a server gets
    request = model.client.encrypt(key, x)
    answer = cw.Server(model, key.public()).answer(request)
    model.client.decrypt(key, answer)      # cw.load_client(model.client.to_json()) is the same client, elsewhere

    with cw.Client("https://..") as client:  # the same with a service (`cloakwork serve`)
        client.predict("churn", x)

`cloakwork.estimators` has scikit-learn's estimators with `compile` and `predict(X, how=)`, `cloakwork.training` prepares PyTorch modules for
encryption, `cloakwork.client` scores with a service, `cloakwork.batch` on a cluster, `cloakwork.datasets` loads examples, `cloakwork.engine` has
keys, ciphertexts and bootstraps, `cloakwork.errors` what is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cloakwork.app.client import Client
    from cloakwork.models.key import Key
    from cloakwork.models.loading import load, load_client
    from cloakwork.models.model import Model, ModelClient
    from cloakwork.models.options import Options
    from cloakwork.models.server import Server
    from cloakwork.training.compiling import compile

__all__ = ["Client", "Key", "Model", "ModelClient", "Options", "Server", "compile", "load", "load_client"]

_PLACES: Final = {
    "Client": "app.client",
    "Key": "models.key",
    "Model": "models.model",
    "ModelClient": "models.model",
    "Options": "models.options",
    "Server": "models.server",
    "compile": "training.compiling",
    "load": "models.loading",
    "load_client": "models.loading",
}
_MODULES: Final = ("batch", "client", "datasets", "engine", "errors", "estimators", "training")


def __getattr__(name: str) -> Any:
    """Names and modules of the package, imported when they are asked for."""
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("cloakwork")
    if name in _PLACES:
        return getattr(import_module(f"cloakwork.{_PLACES[name]}"), name)
    if name in _MODULES:
        return import_module(f"cloakwork.{name}")
    raise AttributeError(f"module 'cloakwork' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_MODULES]
