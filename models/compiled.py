"""A compiled model, and its `predict`: in clear, simulated, or really encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloakwork.fhe_core.arrays.lanes import ciphertexts_of
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import Stage, joined
from cloakwork.models.client_steps.running import check_stage
from cloakwork.models.criteria.choose_set import check_room
from cloakwork.models.errors import CompileError
from cloakwork.models.fresh_keys import fresh_keys
from cloakwork.models.graph.ir import Graph
from cloakwork.models.modes import How, check_how
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import load_program, save_program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.report import picture_svg, report, report_text, save_picture, short_report
from cloakwork.models.runtime import Progress, Runtime, samples_at_once, shifted_progress
from cloakwork.models.runtime.interpreter import clear_answers, simulate

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model ready for encrypted data, and the real-valued graph that it came from."""

    program: Program
    float_graph: Graph | None = None  # not kept in files
    device: str = "cpu"  # of predict(how="encrypted"); likewise

    @classmethod
    def checked(cls, program: Program, float_graph: Graph | None = None) -> CompiledModel:
        """Checks what a compiler has made. PrecisionOverflowError: a value of it would wrap for certain."""
        check_room(program.graph)
        return cls(program, float_graph)

    def __repr__(self) -> str:
        program = self.program
        return (
            f"<CompiledModel: {program.parameters.name}, {program.bootstraps} look-ups; print(model) shows the report>"
        )

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model is not pickled; use save(path) and cloakwork.load(path)")

    def save(self, path: PathLike) -> None:
        """Writes one file, see models/program/artefact.py."""
        save_program(path, self.program)

    @classmethod
    def load(cls, path: PathLike) -> CompiledModel:
        """Raises SerializationError or KeyMismatchError when it is damaged or its parameter set has changed."""
        return cls(load_program(path))

    @cached_property
    def client(self) -> ClientSpecification:
        """Returns what the client needs: its steps before encryption and after decryption, no weights."""
        return ClientSpecification.of(self.program)

    def report(self) -> dict[str, Any]:
        """Report what the program costs, risks and discloses, as plain values."""
        return report(self.program)

    @property
    def details(self) -> str:
        """The report as text: parameter set, look-ups, forecast, risks, and the noise of each layer. `str(model)` has four lines of it."""
        return report_text(self.program)

    def __str__(self) -> str:
        return short_report(self.program)

    def save_picture(self, path: PathLike) -> None:
        """Draws the program level by level, with what each part costs, as SVG."""
        save_picture(path, self.program)

    def _repr_svg_(self) -> str:
        """Returns what a notebook shows of a model."""
        return picture_svg(self.program)

    def predict(
        self,
        x: Any,
        how: How = "clear",
        *,
        key: ClientKey | None = None,
        session: Session | None = None,
        threads: int = 1,
        device: str | None = None,
        seed: int | None = None,
        progress: Progress = None,
        output: Stage = "labels",
    ) -> Any:
        """Returns the model's output for samples [samples, ..]: an array, of a model of several outputs a dict of arrays by name.

        Samples of a model of several inputs are a dict of arrays by name, or a tuple of arrays in the model's order.

        All modes start from the same numbers: the client's steps, values beyond the calibrated range as its end (CalibratedRangeWarning).

        Args:
            how: "clear" the encrypted program without its noise, in clear; "simulate" with the noise of encryption; "encrypted" really encrypted.
            key, session: for "encrypted"; a key is made when there is none, and a session from it. Pass both to make them once.
            threads, device: of a session that is made: "cpu", "cuda" or "cuda:N". None: the device that it was compiled for.
            seed: of the simulated noise.
            output: "labels" (of regressors and networks the values), or what the model tells beside them: "scores" or "probabilities".

        Raises:
            ParameterError: probabilities of a model that has none.
        """
        check_how(how)
        check_stage(output, self.client.output_steps)
        if how == "clear":
            return self.client.output(simulate(self.program, self.client.phases(x, refuse=True), noisy=False), output)
        if how == "simulate":
            return self.client.output(simulate(self.program, self.client.phases(x, refuse=True), seed), output)
        phases = self.client.phases(x, refuse=True)
        return self._encrypted(
            phases, *self._key_and_session(key, session, threads, device or self.device), progress, output
        )

    def predict_proba(self, x: Any, how: How = "clear", **options: Any) -> Any:
        """Predict the probabilities of a classifier, [samples, classes]. Args: as of `predict`. ParameterError: the model tells none."""
        return self.predict(x, how, output="probabilities", **options)

    def predict_float(self, x: Any) -> Any:
        """Returns the model before quantisation, in clear; samples and result as of `predict`."""
        if self.float_graph is None:
            raise CompileError(
                "predict_float: a loaded program has no real-valued model; compile it from its ONNX file"
            )
        return clear_answers(self.float_graph, x)

    def _key_and_session(
        self, key: Any, session: Session | None, threads: int, device: str
    ) -> tuple[ClientKey, Session]:
        if key is None:
            if session is not None:
                raise CompileError("predict: got a session without its key, which decrypts the result; pass key=")
            (key,) = fresh_keys([self.program.parameters])
        key = getattr(key, "only", key)  # of a `cloakwork.Key`
        if not hasattr(key, "evaluation_keys"):
            raise KeyMismatchError(f"key: expected the secret key, a cloakwork.Key, got {type(key).__name__}")
        return key, session or Session(key.evaluation_keys(), device, threads)

    def _encrypted(self, phases: Reals, key: ClientKey, session: Session, progress: Progress, output: Stage) -> Any:
        runtime = Runtime(self.program, session)
        params, bootstraps = self.program.parameters, self.program.bootstraps
        size = samples_at_once(self.program, session) * params.lane_count
        total = bootstraps * ciphertexts_of(params, len(phases))
        parts = []
        for start in range(0, len(phases), size):
            report = shifted_progress(progress, bootstraps * ciphertexts_of(params, start), total)
            batch = phases[start : start + size]
            answer = runtime.answer(self.client.encrypt_phases(key, batch), report)
            parts.append(self.client.decrypt(key, answer, output=output, samples=len(batch)))
        return joined(parts)
