"""What every source makes of one captured window: tables as declared in `core.tables`, whatever the format was."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Capture:
    """One window, converted.

    Attributes:
        spans: rows of `spans`; empty where the caller asked for none.
        ops: rows of `ops`.
        breakdowns: rows of `breakdowns`; for each step and device they add up to the step's duration exactly.
        programs: rows of `programs` for the programs that the capture describes.
        instructions: rows of `instructions` for the same programs.
        conversion: one row of `conversions`; events = spans + ignored + dropped.
        steps: rows of `steps` (step, start_ps, dur_ps) with the bounds that were used, from the session's epoch.
    """

    spans: pa.Table
    ops: pa.Table
    breakdowns: pa.Table
    programs: pa.Table
    instructions: pa.Table
    conversion: pa.Table
    steps: pa.Table


def find_steps(capture: Capture) -> pa.Table:
    """The steps that a capture shows, for a job that marked none itself.

    Returns:
        Rows of `steps` with step, start_ps and dur_ps: the recorder's marks where there are any, else the step marks of
        the framework, else the repeated executions of the program that took most time, numbered from 0. Empty where
        nothing repeats.
    """
    return capture.steps
