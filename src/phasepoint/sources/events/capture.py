"""What every source makes of one captured window: tables as declared in `core.tables`, whatever the format was."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.tables import TABLES


def _empty(name: str) -> pa.Table:
    return TABLES[name].empty


WINDOW_TABLES = (
    "ops",
    "breakdowns",
    "stages",
    "spans",
    "programs",
    "instructions",
    "launches",
    "metrics",
    "collectives",
    "allocations",
    "accounts",
    "counters",
)
"""Tables with rows of one window that a conversion writes, beside `gaps` and `conversions`."""


@dataclass(frozen=True)
class Capture:
    """One window, converted.

    Attributes:
        spans: rows of `spans`; empty where the caller asked for none.
        ops: rows of `ops`.
        breakdowns: rows of `breakdowns`; for each step and device they add up to the step's duration exactly.
        stages: rows of `stages`; for each step, device and category they add up to the row of `breakdowns`.
        programs: rows of `programs` for the programs that the capture describes.
        instructions: rows of `instructions` for the same programs.
        conversion: one row of `conversions`; events = spans + ignored + dropped.
        steps: rows of `steps` (step, start_ps, dur_ps) with the bounds that were used, from the session's epoch.
        launches, metrics, collectives, allocations, accounts, counters: rows of these tables, where there are any.
        start_unix_ns: Unix ns of time 0, where no epoch was given and the capture says it.
        devices: devices that the capture describes: `gpu:0 NVIDIA H100`.
        is_whole: whether it marks no steps and counts as one, as an empty table of steps asks for.
    """

    spans: pa.Table
    ops: pa.Table
    breakdowns: pa.Table
    stages: pa.Table
    programs: pa.Table
    instructions: pa.Table
    conversion: pa.Table
    steps: pa.Table
    launches: pa.Table = field(default_factory=partial(_empty, "launches"))
    metrics: pa.Table = field(default_factory=partial(_empty, "metrics"))
    collectives: pa.Table = field(default_factory=partial(_empty, "collectives"))
    allocations: pa.Table = field(default_factory=partial(_empty, "allocations"))
    accounts: pa.Table = field(default_factory=partial(_empty, "accounts"))
    counters: pa.Table = field(default_factory=partial(_empty, "counters"))
    start_unix_ns: int | None = None
    devices: tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def tables(self) -> dict[str, pa.Table]:
        """What a run keeps of the window, by table; `conversions` last: it says that the window is done."""
        return {name: getattr(self, name) for name in WINDOW_TABLES} | {"conversions": self.conversion}


@dataclass(frozen=True)
class CaptureRequest:
    """What a reader is told about the window besides its bytes.

    Attributes:
        window: the window's number.
        epoch_unix_ns: the session's epoch, Unix ns, from which all times count; None to count from the first event.
        steps: rows of `steps` (step, start_ps, dur_ps) that the step clock saw during the window, for captures that
            hold no marks of the recorder. A trace of another profiler that marks no steps is one step with an empty
            table, and holds none with None.
        keep_spans: whether to build `spans`, by far the largest table, and the rows of single events.
        read_hlo: reads the programs' HLO protos; a caller of many windows gives one that remembers. None for the
            reader's own.
        holds_steps: whether it holds any step in full, as far as the recorder knows; the readers of the recorder's own
            formats look for none where it does not.
    """

    window: int = 0
    epoch_unix_ns: int | None = None
    steps: pa.Table | None = None
    keep_spans: bool = True
    read_hlo: Callable[..., Any] | None = None
    holds_steps: bool = True


def find_steps(capture: Capture) -> pa.Table:
    """The steps that a capture shows, for a job that marked none itself.

    Returns:
        Rows of `steps` with step, start_ps and dur_ps: the recorder's marks where there are any, else the step marks of
        the framework, else the repeated executions of the program that took most time, numbered from 0. Empty where
        nothing repeats.
    """
    return capture.steps


NO_WORK = "no event in it is a stretch of work; nothing was imported from it"
"""Why a file that can be read makes no run."""


class ReadFile(ABC):
    """A file that has been read. Use as a context manager: it may hold a temporary file.

    Attributes:
        path: the file.
        size: its bytes, unpacked.
        devices: devices that it names.
        epoch_unix_ns: from when its times count, Unix ns.
        marked_steps: steps that it marks; 0 where the whole file is taken as one.
        steps: rows of `steps` (step, start_ps, dur_ps).
    """

    path: Path
    size: int
    devices: tuple[str, ...]
    epoch_unix_ns: int
    marked_steps: int
    steps: pa.Table

    @abstractmethod
    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        """Rows of all tables but `steps`, `windows` and `conversions`, in parts."""

    @abstractmethod
    def conversion(self) -> pa.Table:
        """The row of `conversions`, once all tables have been taken."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> "ReadFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
