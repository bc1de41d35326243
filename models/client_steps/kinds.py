"""The steps there are, by name."""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

from cloakwork.models.client_steps.answers import (
    Combine,
    Curves,
    Digits,
    Indicators,
    Integers,
    LabelGroups,
    Labels,
    Members,
    Outliers,
    Pick,
    Squeeze,
    Transform,
    Wrap,
)
from cloakwork.models.client_steps.columns import (
    Bins,
    Compare,
    Complete,
    Divide,
    Equal,
    Impute,
    Normalise,
    OneHot,
    Quantise,
    Rescale,
    Round,
    Saturate,
    Select,
    Standardise,
)
from cloakwork.models.client_steps.features import (
    Binarise,
    Function,
    Polynomials,
    Power,
    Present,
    Project,
    Quantiles,
    Splines,
)
from cloakwork.models.client_steps.first import Categories, Columns
from cloakwork.models.client_steps.grids import Positions, Thermometer
from cloakwork.models.client_steps.nested import Append
from cloakwork.models.client_steps.tensors import Named, Tensors
from cloakwork.models.client_steps.texts import Texts
from cloakwork.models.graph.last_steps import LastStep

FirstStep: TypeAlias = Columns | Categories | Texts
"""Checks what the user has and makes a table of numbers of it."""

InputStep: TypeAlias = (
    FirstStep
    | Tensors
    | Impute
    | Complete
    | Standardise
    | Divide
    | Normalise
    | OneHot
    | Equal
    | Select
    | Project
    | Polynomials
    | Power
    | Quantiles
    | Function
    | Splines
    | Binarise
    | Present
    | Append
    | Saturate
    | Rescale
    | Round
    | Quantise
    | Compare
    | Bins
    | Thermometer
    | Positions
)
AnswerStep: TypeAlias = (
    Quantise
    | Integers
    | Wrap
    | Digits
    | Combine
    | Members
    | Curves
    | Transform
    | Labels
    | LabelGroups
    | Indicators
    | Outliers
    | Pick
    | Squeeze
    | Named
)
OutputStep: TypeAlias = LastStep | AnswerStep
"""Last steps of the network come first."""

FIRST_STEPS: Final = (Columns, Categories, Texts)
INPUT_STEPS: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(InputStep)}
ANSWER_STEPS: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(AnswerStep)}
