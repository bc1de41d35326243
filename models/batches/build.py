"""`compile_batch` compiles a linear or kernel model for many encrypted samples, one a slot or one a ciphertext, whichever costs less."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.batches.batch_format import Alternative, SamplePacking
from cloakwork.models.batches.client import MOST_MODULI, BatchClient, Packing
from cloakwork.models.batches.costs import single_cost
from cloakwork.models.batches.decisions import Radial, Votes
from cloakwork.models.batches.kernels import Model, PowerModel, RadialModel, folded
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.batches.plan import COEFFICIENT_MODULI, BatchPlan, best_plan, slot_room
from cloakwork.models.batches.quantise import Quantised, quantised_linear, quantised_power
from cloakwork.models.client_steps import (
    Columns,
    InputStep,
    OutputStep,
    Rescale,
    Round,
    column_labels,
    known_ranges,
    run_input_steps,
    run_output_steps,
)
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyWarning, CompileError, NoParameterSetError, warn_user
from cloakwork.models.linear.compile_linear import DEFAULT_MARGIN, compile_linear
from cloakwork.models.linear.linear_model import LinearModel, client_ranges
from cloakwork.models.linear.linear_quantisation import Effects
from cloakwork.models.options import Options
from cloakwork.models.runtime.interpreter import interpret

After: TypeAlias = Votes | tuple[OutputStep, ...]
GOOD_AGREEMENT: Final = 0.99  # below it more plaintext moduli are looked at
LEAST_AGREEMENT: Final = 0.97  # below it a warning is given
MOST_MONOMIALS: Final = 4096
_JUDGED: Final = 2000  # given samples


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A way to compute the model with one sample a slot, or a ciphertext of a query."""

    kind: str
    quantised: Quantised
    plan: BatchPlan
    steps: tuple[InputStep, ...]
    radial: Radial | None
    agreement: float = 0.0

    def client(self, after: After) -> BatchClient:
        quantised, plan = self.quantised, self.plan
        return BatchClient(
            parameters=plan.parameters, packing=plan.packing, level=plan.level, answer_level=plan.answer_level,
            products=quantised.formula.degree > 1, limit=quantised.limit, features=quantised.formula.features, unit=quantised.unit,
            public_offset=quantised.public_offset, input_steps=self.steps, after=after, radial=self.radial,
        )  # fmt: skip

    @property
    def alternative(self) -> Alternative:
        packing: SamplePacking = "ciphertexts" if self.plan.packing == "query" else "slots"
        return Alternative(packing, f"{self.kind} ({self.plan})", self.plan.cost, self.agreement)


def compile_batch(
    model: Model,
    samples: Any,
    options: Options | None = None,
    *,
    after: After | None = None,
    preprocessing: Sequence[InputStep] | None = None,
    **named: Any,
) -> BatchModel:
    """Quantise a model, choose sets by foreseen noise, and how samples are packed by foreseen cost.

    Args:
        samples: typical samples [samples, columns]; they set the range of each feature, and the agreement is measured on them.
        options: of `cloakwork.compile`, or by name. `batch`: how many samples are scored at once (1). `input_bits`: of a feature of a linear model,
            sign included; by default as many as are best.
        after: what decides by the scores; None: what the linear model says.
        preprocessing: what the client does before, its first step checking the columns; None: that step only. Offsets, scales and projections at
            its end become part of the model where that does not make more features.

    Warns:
        AccuracyWarning: less than 97 % of the given samples are decided as by the model in clear.

    Raises:
        CompileError: no samples, options out of their range.
        NoParameterSetError: no set has room.
    """
    options = Options.of(options, named)
    options.check("batch")
    batch = 1 if options.batch is None else options.batch
    if batch < 1:
        raise CompileError(f"batch: expected 1 or more, got {batch}")
    decides = after if after is not None else model.output_steps if isinstance(model, LinearModel) else ()
    names = model.feature_names if isinstance(model, LinearModel) else None
    steps: tuple[InputStep, ...] = tuple(preprocessing) if preprocessing else (Columns(model.features, names),)
    steps, model = folded(steps, model)
    features = run_input_steps(steps, samples)
    labels = column_labels(steps, np.zeros((0, model.features)))
    assert labels is not None
    known = known_ranges(steps, samples, model.features)
    margin = DEFAULT_MARGIN if options.margin is None else options.margin
    lower, upper = client_ranges(features, labels, options.ranges, margin, known)
    seen = features[:: max(1, len(features) // _JUDGED)]
    scores = model.scores(seen)
    source = _Source(model, steps, seen, scores, lower, upper, batch, options.input_bits, decides)
    return _chosen(source, None if options.packing == "slots" else source.single(), options.packing)


@dataclass(frozen=True, eq=False)
class _Source:
    """A model of features that range from `lower` to `upper`; `seen` are those of given samples, `clear` their scores."""

    model: Model
    steps: tuple[InputStep, ...]
    seen: Reals
    clear: Reals
    lower: Reals
    upper: Reals
    batch: int
    input_bits: int | None
    after: After

    @property
    def centre(self) -> Reals:
        centre: Reals = self.lower / 2 + self.upper / 2
        return centre

    @property
    def half(self) -> Reals:
        half: Reals = self.upper / 2 - self.lower / 2
        return half

    def batches(self) -> Iterator[_Candidate]:
        """Yields candidates of one sample a slot."""
        if isinstance(self.model, LinearModel):
            yield from self._linear(self.model, self, "a weighted sum of features")
        elif isinstance(self.model, RadialModel):
            yield from self._radial(self.model, "coefficients")
        else:
            if (inner := self.expanded()) is not None:
                yield from inner._linear(
                    _linear_of(inner), inner, "a weighted sum of products of features, which the client makes"
                )
            rescaled = self.model.on_ranges(self.centre, self.half)
            yield from self._powers(rescaled, f"powers of {len(rescaled.inner)} sums of features")
            squares = rescaled.squares()
            if squares is not None and len(squares.inner) < len(rescaled.inner):
                unscaled = squares.on_ranges(np.zeros(rescaled.features), np.ones(rescaled.features))
                yield from self._powers(
                    unscaled, f"{len(squares.inner)} squares along the eigenvectors of the quadratic form"
                )

    def queries(self) -> Iterator[_Candidate]:
        """Yields candidates of one ciphertext a sample, of radial kernels."""
        if isinstance(self.model, RadialModel):
            yield from self._radial(self.model, "query")

    def expanded(self) -> _Source | None:
        """Returns a linear model of products of features; None of too many."""
        if not isinstance(self.model, PowerModel) or self.model.monomials > MOST_MONOMIALS:
            return None
        polynomials, linear = self.model.on_ranges(self.centre, self.half).expanded()
        steps = (Rescale(self.lower, self.upper, self.centre, 1 / self.half), polynomials)
        seen = run_input_steps(steps, self.seen)
        low = np.where((polynomials.powers % 2 == 0).all(axis=1), 0.0, -1.0)
        return replace(self, model=linear, steps=(*self.steps, *steps), seen=seen, lower=low, upper=np.ones(len(low)))

    def _linear(self, model: LinearModel, source: _Source, kind: str) -> Iterator[_Candidate]:
        effects = Effects(
            model.coefficients * source.half,
            model.intercept + model.coefficients @ source.centre,
            model.labels is not None,
        )
        effects.check()
        yield from source._sums(kind, effects, COEFFICIENT_MODULI[1:], "coefficients", None)

    def _radial(self, model: RadialModel, packing: Packing) -> Iterator[_Candidate]:
        about = model.vectors - self.centre
        effects = Effects(about * self.half, np.zeros(len(about)), compared=True)
        effects.check()
        radial = Radial(model.gamma, np.square(about).sum(axis=1), model.dual, model.intercept)
        kind = f"inner products with {len(about)} support vectors; the client makes kernels and scores of them"
        yield from self._sums(kind, effects, COEFFICIENT_MODULI, packing, radial)

    def _sums(
        self,
        kind: str,
        effects: Effects,
        moduli: Sequence[tuple[int, ...]],
        packing: Packing,
        radial: Radial | None,
    ) -> Iterator[_Candidate]:
        """Yields candidates of more and more plaintext moduli, until one agrees well."""
        for chosen in moduli:
            quantised = quantised_linear(effects, math.prod(chosen), self.input_bits)
            for candidate in [] if quantised is None else self._planned(kind, quantised, packing, radial):
                yield candidate
                if candidate.agreement >= GOOD_AGREEMENT:
                    return

    def _powers(self, model: PowerModel, kind: str) -> Iterator[_Candidate]:
        u = np.clip((self.seen - self.centre) / self.half, -1, 1)
        for moduli in range(1, MOST_MODULI + 1):
            quantised = quantised_power(model, u, slot_room(moduli))
            candidate = None if quantised is None else next(self._planned(kind, quantised, "slots", None), None)
            if candidate is not None:
                yield candidate
                if candidate.agreement >= GOOD_AGREEMENT:
                    return

    def _planned(
        self, kind: str, quantised: Quantised, packing: Packing, radial: Radial | None
    ) -> Iterator[_Candidate]:
        """Yields nothing where no set has room."""
        quantised = replace(quantised, formula=quantised.formula.without_zeros())
        plan = best_plan(quantised.formula, quantised.limit, packing, self.batch)
        if plan is None:
            return
        steps = (*self.steps, Rescale(self.lower, self.upper, self.centre, quantised.limit / self.half), Round())
        candidate = _Candidate(kind, quantised, plan, steps, radial)
        client = candidate.client(self.after)
        q = run_input_steps(steps[-2:], self.seen).astype(np.int64)
        scores = client.scores(quantised.formula.scores(q, quantised.limit), q)
        yield replace(candidate, agreement=agreement(self.after, scores, self.clear))

    def single(self) -> tuple[CompiledModel, Alternative] | None:
        """Returns a program of one ciphertext a sample, of linear models and of products that the client makes; None where there is none."""
        source = self if isinstance(self.model, LinearModel) else self.expanded()
        if source is None:
            return None
        model = _linear_of(source)
        linear = LinearModel(model.coefficients, model.intercept, after=())
        ranges = {i: (float(a), float(b)) for i, (a, b) in enumerate(zip(source.lower, source.upper, strict=True))}
        try:
            compiled = compile_linear(linear, preprocessing=source.steps, ranges=ranges, input_bits=self.input_bits)
        except CompileError:  # no room in the set
            return None
        program = compiled.program
        values = interpret(program.graph, run_input_steps(program.input_steps[-2:], source.seen))
        reached = agreement(self.after, run_output_steps(program.output_steps, values), self.clear)
        kind = "a weighted sum of a packed sample, by an exact linear program"
        return compiled, Alternative("ciphertexts", kind, single_cost(program, self.batch), reached)


def _linear_of(source: _Source) -> LinearModel:
    assert isinstance(source.model, LinearModel)
    return source.model


def agreement(after: After, scores: Reals, clear: Reals) -> float:
    """Returns the share of samples decided alike; of values 1 less the share of their deviation that is lost."""
    if isinstance(after, Votes):
        return float((after.decide(scores) == after.decide(clear)).mean())
    ours, theirs = (np.asarray(run_output_steps(after, each)) for each in (scores, clear))
    if theirs.dtype.kind != "f":
        return float((ours == theirs).mean())
    deviation, error = float(np.std(theirs)), float(np.sqrt(np.mean(np.square(ours - theirs))))
    if deviation > 0:
        return max(0.0, 1 - error / deviation)
    return 1.0 if np.allclose(ours, theirs) else 0.0


def _chosen(
    source: _Source, single: tuple[CompiledModel, Alternative] | None, packing: SamplePacking | None
) -> BatchModel:
    """Chooses the cheapest alternative of those that agree well, else the one that agrees most."""
    candidates = [*source.batches(), *source.queries()]
    if not candidates:
        raise NoParameterSetError(
            "batch: no set has room for this model; use fewer features (PCA), a lower degree or fewer support vectors"
        )
    programs = [] if single is None else [single[1]]
    alternatives = sorted([*(each.alternative for each in candidates), *programs], key=_preference)
    chosen = next((each for each in alternatives if packing in (None, each.packing)), None)
    if chosen is None:
        raise CompileError("packing: this model has no program of one ciphertext a sample; expected 'slots' or None")
    if chosen.agreement < LEAST_AGREEMENT:
        warn_user(
            f"the batch's integers decide as the model in clear on {100 * chosen.agreement:.1f} % of the given samples, less than "
            f"{100 * LEAST_AGREEMENT:.0f} %: scale features, take fewer of them (PCA), a lower degree or fewer support vectors",
            AccuracyWarning,
        )
    by_program = single is not None and chosen is single[1]
    candidate = next((each for each in candidates if each.alternative == chosen), candidates[0])
    others = sorted((each for each in alternatives if each is not chosen), key=lambda each: each.cost.total_ms)
    considered = (chosen, *others)
    compiled = single[0] if single and by_program else None
    client = replace(candidate.client(source.after), program=None if compiled is None else compiled.client)
    return BatchModel(
        client, candidate.quantised.formula, candidate.plan, compiled, source.batch, considered, _reason(considered, source.batch, packing),
    )  # fmt: skip


def _preference(each: Alternative) -> tuple[float, float]:
    return -min(each.agreement, GOOD_AGREEMENT), each.cost.total_ms


def _reason(considered: Sequence[Alternative], batch: int, packing: SamplePacking | None) -> str:
    chosen = considered[0]
    if packing is not None:
        return f"chosen by packing='{packing}'"
    other = min((each for each in considered[1:] if each.packing != chosen.packing), key=_preference, default=None)
    if other is None:
        return "this model has no other packing"
    if other.cost.total_ms >= chosen.cost.total_ms:
        return f"for {batch} samples it costs {chosen.cost.total_ms:.3g} ms a sample, the other packing {other.cost.total_ms:.3g}"
    return f"the other packing is cheaper but agrees with the clear model on only {100 * other.agreement:.1f} % of the given samples"
