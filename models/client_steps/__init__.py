"""Steps of the client before encryption and after decryption, named and stored as JSON.

Input steps turn the user's table [samples, columns], or texts [samples], into the numbers that are encrypted; output steps turn decrypted
numbers into scores, probabilities and labels; those that a network ends in (models/graph/last_steps.py) come first. A step is a frozen dataclass of
plain numbers, texts and arrays; its name in JSON is its class's.
"""

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
from cloakwork.models.client_steps.checks import STAGES, Stage
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
    FUNCTIONS,
    ZERO_IS_MISSING,
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
from cloakwork.models.client_steps.json_fields import (
    input_steps_from_fields,
    output_steps_from_fields,
    split_tail,
    steps_to_fields,
    tail_from_fields,
    tail_to_fields,
)
from cloakwork.models.client_steps.kinds import FirstStep, InputStep, OutputStep
from cloakwork.models.client_steps.known_ranges import known_ranges, widened
from cloakwork.models.client_steps.last_fields import last_step_from_record, last_step_to_record
from cloakwork.models.client_steps.nested import Append
from cloakwork.models.client_steps.positions import Positions
from cloakwork.models.client_steps.running import (
    checks_input,
    column_labels,
    final_steps,
    named_inputs,
    named_outputs,
    no_samples,
    run_input_steps,
    run_output_steps,
)
from cloakwork.models.client_steps.tensors import Named, Tensors, joined
from cloakwork.models.client_steps.texts import TOKENS, Texts
from cloakwork.models.client_steps.thermometer import Thermometer

__all__ = [
    "FUNCTIONS",
    "STAGES",
    "TOKENS",
    "ZERO_IS_MISSING",
    "Append",
    "Binarise",
    "Bins",
    "Categories",
    "Columns",
    "Combine",
    "Compare",
    "Complete",
    "Curves",
    "Digits",
    "Divide",
    "Equal",
    "FirstStep",
    "Function",
    "Impute",
    "Indicators",
    "InputStep",
    "Integers",
    "LabelGroups",
    "Labels",
    "Members",
    "Named",
    "Normalise",
    "OneHot",
    "Outliers",
    "OutputStep",
    "Pick",
    "Polynomials",
    "Positions",
    "Power",
    "Present",
    "Project",
    "Quantiles",
    "Quantise",
    "Rescale",
    "Round",
    "Saturate",
    "Select",
    "Splines",
    "Squeeze",
    "Stage",
    "Standardise",
    "Tensors",
    "Texts",
    "Thermometer",
    "Transform",
    "Wrap",
    "checks_input",
    "column_labels",
    "final_steps",
    "input_steps_from_fields",
    "joined",
    "known_ranges",
    "last_step_from_record",
    "last_step_to_record",
    "named_inputs",
    "named_outputs",
    "no_samples",
    "output_steps_from_fields",
    "run_input_steps",
    "run_output_steps",
    "split_tail",
    "steps_to_fields",
    "tail_from_fields",
    "tail_to_fields",
    "widened",
]
