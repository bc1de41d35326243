"""Mixins that extend scikit-learn's estimators: `compile`, and predictions on encrypted samples.

An estimator stays what it was: the same parameters, fitted attributes and methods. `compile(X)` makes a program of what was fitted; from then
on predictions come from the compiled model: quantised in clear (`how="clear"`), with the noise of encryption (`how="simulate"`), or really
encrypted (`how="encrypted"`). Fitting again, cloning and pickling drop the program; `save` keeps it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.server import Session
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.client_steps import Categories, Columns, LabelGroups, Labels, Pick, Stage
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, some
from cloakwork.models.modes import How, check_how
from cloakwork.models.options import Options, on_device
from cloakwork.models.program.facts import Facts
from cloakwork.training.batch_compiler import compile_estimator_batch
from cloakwork.training.estimators.batches import OWN, batched
from cloakwork.training.estimators.originals import adopted
from cloakwork.training.sklearn_compiler import compile_estimator

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.wire.files import PathLike
    from cloakwork.models.program.client_specification import ClientSpecification

_OWN = ("compiled_", "_encrypted_session", *OWN)  # what fitting, cloning and pickling drop


class EncryptedEstimator:
    """Mixin before the original class: `class Ridge(EncryptedEstimator, linear_model.Ridge)`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("fit", "partial_fit"):
            if name not in vars(cls) and hasattr(cls, name):
                setattr(cls, name, _forgetting(getattr(cls, name)))

    @classmethod
    def from_sklearn(cls, fitted: Any) -> Self:
        """Returns the same fitted estimator with the methods of this class; it shares what was fitted."""
        return adopted(cls, fitted, _OWN)

    # --- compiling ---

    def compile(
        self,
        X: Any,  # noqa: N803 (scikit-learn's name)
        options: Options | None = None,
        **named: Any,
    ) -> CompiledModel | BatchModel:
        """Makes a program of what was fitted.

        Args:
            X: typical samples, such as the training data: the ranges of the features of linear models and networks, the public grid of trees.
            options: of `cloakwork.compile`, or by name. With `batch`, linear models are compiled for so many samples at once.
        """
        forget(self)
        chosen = Options.of(options, named)
        if chosen.batch is not None:
            self.batch_ = on_device(compile_estimator_batch(self, X, chosen), chosen)
            return self.batch_
        compiled = on_device(compile_estimator(self, X, chosen), chosen)
        facts = self._with_own(replace(compiled.program.facts, estimator=type(self).__name__))
        self.compiled_ = replace(compiled, program=replace(compiled.program, facts=facts))
        return self.compiled_

    @property
    def client(self) -> ClientSpecification:
        """The specification for encrypting samples and reading results; `to_json()` is what a client needs beside its key."""
        return self._compiled("client").client

    def save(self, path: PathLike) -> None:
        """Saves the compiled program as one file; `load`, the command line and the service read it."""
        self._compiled("save").save(path)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Returns an estimator that predicts by a saved program; it holds nothing else of what was fitted."""
        compiled = CompiledModel.load(path)
        class_name = compiled.program.facts.estimator
        if class_name != cls.__name__:
            raise CompileError(
                f"{cls.__name__}.load: expected a program of a {cls.__name__}, got one of {class_name or 'another kind'}"
            )
        result = cls()
        result.compiled_ = compiled
        result._restore()
        return result

    # --- predicting ---

    def predict(
        self,
        X: Any,  # noqa: N803
        *args: Any,
        how: How = "clear",
        key: Any = None,
        session: Session | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> NDArray[Any]:
        """Returns labels of classifiers, values of regressors.

        Args:
            how: "clear" in clear, by the compiled model when there is one; "simulate" with the noise of encryption; "encrypted" encrypted.
            key, session: for "encrypted"; made on the first call and kept in this process when they are not given. Compiled for samples at once: the
                keys of `generate_keys` alone, with `threads` and `device` beside them.
            seed: of the simulated noise.
            args, options: of the original's method; not together with a compiled model.
        """
        if hasattr(self, "batch_"):
            return batched(self, X, "labels", how, key, args, options)
        if self._by_original(how, args, options):
            return super().predict(X, *args, **options)  # type: ignore[misc, no-any-return]
        return self._encrypted(X, "labels", how, key, session, seed)

    def _by_original(self, how: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether a call is for the original class: in clear and not compiled."""
        check_how(how)
        if how == "clear" and not hasattr(self, "compiled_"):
            return True
        self._compiled(f"how='{how}'")
        if args or any(value is not None and value is not False for value in options.values()):
            names = some(options) or f"{len(args)} more arguments"
            raise CompileError(
                f"{type(self).__name__}: a compiled model takes no options of the original's method, got {names}"
            )
        return False

    def _encrypted(
        self, samples: Any, output: Stage, how: How, key: ClientKey | None, session: Session | None, seed: int | None
    ) -> NDArray[Any]:
        if output != "labels" and self.compiled_.program.facts.tell == "labels":
            raise CompileError(
                f"{type(self).__name__}: compiled with tell='labels', so the client decrypts labels only; compile with tell='scores' for {output}"
            )
        if how == "encrypted" and key is None and session is None:
            key, session = self._kept_session()
        return np.asarray(self.compiled_.predict(samples, how, key=key, session=session, seed=seed, output=output))

    def _kept_session(self) -> tuple[ClientKey, Session]:
        kept: tuple[ClientKey, Session] | None = getattr(self, "_encrypted_session", None)
        if kept is None:
            from cloakwork.fhe_core.client import ClientKey  # the secret side, only where it is asked for

            key = ClientKey.generate(self.compiled_.program.parameters)
            kept = self._encrypted_session = key, Session(key.evaluation_keys(), self.compiled_.device)
        return kept

    def _compiled(self, what: str) -> CompiledModel:
        if not hasattr(self, "compiled_"):
            raise CompileError(
                f"{type(self).__name__}: {what} needs a compiled model; call compile(X) with typical samples after fit"
            )
        return self.compiled_

    # --- files and copies ---

    def _with_own(self, facts: Facts) -> Facts:
        """With what `load` needs beside the program."""
        return facts

    def _restore(self) -> None:
        """Fitted attributes that a program tells."""
        program = self.compiled_.program
        for step in program.input_steps:
            if isinstance(step, Columns | Categories):
                _set(self, "n_features_in_", step.count)
                if step.names is not None:
                    _set(self, "feature_names_in_", np.array(step.names, dtype=object))
        for last in program.output_steps:
            if isinstance(last, Labels | Pick):
                alone = len(set(last.labels.tolist())) == 1  # a class that is told twice
                _set(self, "classes_", last.labels[:1] if alone else last.labels)
            elif isinstance(last, LabelGroups):
                _set(self, "classes_", np.split(last.labels, np.cumsum(last.sizes)[:-1]))

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _OWN} if isinstance(state, dict) else state


class Probabilities(EncryptedEstimator):
    """Classifiers with `predict_proba`; `predict_log_proba`, where the original has it, calls it."""

    def predict_proba(
        self,
        X: Any,  # noqa: N803
        *args: Any,
        how: How = "clear",
        key: Any = None,
        session: Session | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> NDArray[Any]:
        """Returns [samples, classes], of several outputs a list of such; arguments as of `predict`."""
        if hasattr(self, "batch_"):
            return batched(self, X, "probabilities", how, key, args, options)
        if self._by_original(how, args, options):
            return super().predict_proba(X, *args, **options)  # type: ignore[misc, no-any-return]
        shares = self._encrypted(X, "probabilities", how, key, session, seed)
        groups = [step for step in self.compiled_.program.output_steps if isinstance(step, LabelGroups)]
        return np.split(shares, np.cumsum(groups[0].sizes)[:-1], axis=1) if groups else shares  # type: ignore[return-value]


class Decisions(EncryptedEstimator):
    """Classifiers with `decision_function`."""

    def decision_function(
        self,
        X: Any,  # noqa: N803
        *args: Any,
        how: How = "clear",
        key: Any = None,
        session: Session | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> NDArray[Any]:
        """Returns [samples] for two classes, else [samples, classes]; arguments as of `predict`."""
        if hasattr(self, "batch_"):
            return batched(self, X, "scores", how, key, args, options)
        if self._by_original(how, args, options):
            return super().decision_function(X, *args, **options)  # type: ignore[misc, no-any-return]
        scores = self._encrypted(X, "scores", how, key, session, seed)
        return scores[:, 0] if scores.shape[1] == 1 else scores


class ProbabilitiesAndDecisions(Probabilities, Decisions):
    """Both in one mixin: LightGBM and XGBoost look for their own class at the second place."""


def forget(estimator: Any) -> None:
    """Drops the program and the keys: they belong to what was fitted before."""
    for name in _OWN:
        vars(estimator).pop(name, None)


def _forgetting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the same method, which drops the program first; its signature stays visible."""

    @functools.wraps(method)
    def fitting(self: Any, *args: Any, **options: Any) -> Any:
        forget(self)
        return method(self, *args, **options)

    return fitting


def _set(estimator: Any, name: str, value: Any) -> None:
    """An attribute, unless the class computes it."""
    if not isinstance(getattr(type(estimator), name, None), property):
        setattr(estimator, name, value)
