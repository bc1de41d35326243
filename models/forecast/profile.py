"""The rates of a machine as JSON. It is read strictly: a cache may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cloakwork.fhe_core.errors import ParameterError, SerializationError
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.models import fields
from cloakwork.models.forecast.machine import Machine
from cloakwork.models.forecast.rates import LINEAR, MOVED, SetRates, nearest_set
from cloakwork.models.forecast.work import Work

FORMAT: Final = 1
MOST_BYTES: Final = 1 << 20
_MOST_SETS, _MOST_POINTS, _MOST_TEXT = 256, 64, 500
_LARGEST_BATCH: Final = 1 << 24
_LONGEST: Final = 1e6  # seconds of anything


@dataclass(frozen=True)
class MachineProfile:
    """Measurements of a machine, by the names of parameter sets; at least one."""

    machine: Machine
    measured: str  # when, ISO 8601
    sets: Mapping[str, SetRates]
    source: str = ""  # of stored figures: where they come from

    def rates(self, params: ParameterSet) -> tuple[SetRates, str | None]:
        """Returns the rates of a set, and the set that they were scaled from, None for those that were measured."""
        known = {name: parameter_set(name) for name in self.sets}
        nearest = nearest_set(params, known)
        rates = self.sets[nearest]
        return (rates, None) if nearest == params.name else (rates.scaled(known[nearest], params), nearest)

    def seconds(self, params: ParameterSet, work: Work) -> float:
        return sum(self.rates(params)[0].parts(work).values())

    def to_fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "machine": self.machine.to_fields(),
            "measured": self.measured,
            "source": self.source,
            "sets": {name: _rates_to_fields(rates) for name, rates in self.sets.items()},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_fields(), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> MachineProfile:
        """Sets whose row of parameters has changed since are left out.

        Raises:
            SerializationError: anything is missing, of another type or out of range, or no set is left.
        """
        try:
            if len(text) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            return cls.from_fields(fields.parsed_object(text))
        except (ValueError, KeyError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SerializationError(
                f"measurement of a machine: {what}; run 'cloakwork calibrate-machine' again"
            ) from error

    @classmethod
    def from_fields(cls, profile_fields: dict[str, Any]) -> MachineProfile:
        """Raises ValueError or KeyError for what is not one."""
        if profile_fields["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, got {str(profile_fields['format'])[:20]}")
        datetime.fromisoformat(_text(profile_fields["measured"]))
        entries = _object(profile_fields["sets"], _MOST_SETS)
        sets = {name: rates for name, each in entries.items() if (rates := _rates(name, _object(each))) is not None}
        if not sets:
            raise ValueError("its parameter sets are none of this release's")
        machine = Machine.from_fields(_object(profile_fields["machine"]))
        return cls(machine, profile_fields["measured"], sets, _text(profile_fields.get("source", "")))


def _rates_to_fields(rates: SetRates) -> dict[str, Any]:
    return {
        "parameter_digest": parameter_digest(parameter_set(rates.parameter_set)).hex(),
        "run": rates.run,
        "call": rates.call,
        "seconds": dict(rates.seconds),
        "lookups": [[count, value] for count, value in sorted(rates.lookups.items())],
        "answers": [[count, value] for count, value in sorted(rates.answers.items())],
        "switched": [[count, value] for count, value in sorted(rates.switched.items())],
    }


def _rates(name: str, set_fields: dict[str, Any]) -> SetRates | None:
    """Returns None for a set that this release does not have, or has with other numbers."""
    seconds = _object(set_fields["seconds"])
    if not seconds.keys() <= {*LINEAR, *MOVED}:
        raise ValueError("expected the seconds of known kinds of work")
    lookups, answers, switched = (_curve(set_fields[key]) for key in ("lookups", "answers", "switched"))
    if not lookups or not max(lookups.values()) > 0:
        raise ValueError("expected look-ups that take time")
    rates = SetRates(
        name, _seconds(set_fields["run"]), _seconds(set_fields["call"]), {key: _seconds(value) for key, value in seconds.items()},
        lookups, answers, switched,
    )  # fmt: skip
    try:
        same = parameter_digest(parameter_set(name)).hex() == _text(set_fields["parameter_digest"])
    except ParameterError:
        return None
    return rates if same else None


def _curve(value: Any) -> dict[int, float]:
    points = {}
    for entry in fields.entries(value, _MOST_POINTS):
        pair = fields.entries(entry, 2)
        if len(pair) != 2:
            raise ValueError("expected pairs of a batch and its seconds")
        points[fields.integer(pair[0], 1, _LARGEST_BATCH)] = _seconds(pair[1])
    return points


def _seconds(value: Any) -> float:
    number = fields.real(value)
    if not 0 <= number <= _LONGEST:
        raise ValueError(f"expected seconds from 0 to {_LONGEST:g}")
    return number


def _text(value: Any) -> str:
    text = fields.text(value)
    if len(text) > _MOST_TEXT or not text.isprintable():
        raise ValueError(f"expected a printable text of at most {_MOST_TEXT} characters")
    return text


def _object(value: Any, most: int = 64) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > most:
        raise ValueError(f"expected an object of at most {most} entries")
    return value
