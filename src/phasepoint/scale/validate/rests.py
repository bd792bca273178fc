"""What predictions of larger systems rest on: the sets of constants that came with the package.

Its own file: it is asked for without any folder to validate.
"""

from dataclasses import dataclass
from typing import Any

from phasepoint.scale.mlperf.records import RESULTS
from phasepoint.scale.steps.constants import shipped_constants
from phasepoint.scale.validate.mlperf import scaling_facts


@dataclass(frozen=True)
class ConstantSet:
    """Constants of one kind of system.

    Attributes:
        name: of the set.
        file: whose rows they were fitted on.
        count: of these rows.
        mape: mean error of models, or series, that were left out of the fit.
        fitted: date.
    """

    name: str
    file: str
    count: int
    mape: float
    fitted: str


def what_predictions_rest_on() -> list[ConstantSet]:
    """The sets that came with the package.

    Example:
        >>> what_predictions_rest_on()[0].file
        'mlperf_training_results.parquet'
    """
    facts = scaling_facts()
    found = [ConstantSet("MLPerf pairs", RESULTS, facts["pairs"], facts["left_out"]["mape"], facts["fitted"])]
    for name, held in shipped_constants().items():
        steps: Any = held
        left_out = steps["left_out"]["mape"]
        found.append(ConstantSet(name, steps["file"], steps["points"], left_out, steps["fitted"]))
    return found
