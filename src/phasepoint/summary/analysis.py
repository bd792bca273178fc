"""`analyse_run`: what is found out about a run once, for everything that is said of it afterwards."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.estimates.anatomy import Anatomies, estimate_anatomy
from phasepoint.estimates.estimates import Estimates, estimate_totals
from phasepoint.phases.clock.accounting import StepAccount, account_time, split_steps
from phasepoint.phases.clock.breakdown import ClockAccount
from phasepoint.phases.clock.checkpoint_folders import join_folders
from phasepoint.phases.clock.edges import spared_ps
from phasepoint.phases.clock.machine import CrowdedTime, crowded_time, machine_loss
from phasepoint.phases.clock.marked_checkpoints import measure_marks
from phasepoint.phases.clock.steps import RunClock, StepSeries, is_imported, last_seen_ps, read_clock
from phasepoint.phases.detection.detect import detect_phases
from phasepoint.phases.detection.naming import LEAST_TELLING, KnownOfJob
from phasepoint.phases.detection.result import PhaseResult, Segments
from phasepoint.phases.detection.table import DEFAULT_METHOD
from phasepoint.store import Run
from phasepoint.summary.enough import find_shortfall, session_notes
from phasepoint.summary.types import Shortfall

TABLES_READ = (
    *("steps", "windows", "conversions", "ops", "breakdowns", "stages"),
    *("programs", "compilations", "hints", "checkpoints", "checkpoint_waits", "gaps", "counters", "machine"),
)

_UPDATES = re.compile(
    "optimizer |updates of parameters|global steps of Lightning|steps of Transformers|.*applies an optimizer's update$"
)
"""What the note `steps_from` says where each step updates the parameters: words of the recorder's `StepEvidence`."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """A run's tables, its step clock, its phases and its estimated totals.

    Attributes:
        run: the run.
        tables: the tables of `TABLES_READ`, by name; of `checkpoints`, files of one folder and step as one, and how
            long each held the job as `measure_marks` finds it.
        clock: the steps of every host and attempt.
        result: phases, and the phase of every row of the clock.
        names: phase id → name.
        estimates: whole-run totals by category and op, of the run and of every phase.
        crowded: as `crowded_time` gives it.
    """

    run: Run
    tables: Mapping[str, pa.Table]
    clock: RunClock
    result: PhaseResult
    names: Mapping[int, str]
    estimates: Estimates
    crowded: CrowdedTime | None

    def table(self, name: str) -> pa.Table:
        """A table of the run; those that `tables` does not hold (`spans`, `instructions`) are read when asked for."""
        known = self.tables.get(name)
        if known is None and name not in self._more:
            self._more[name] = self.run.table(name)
        return self._more[name] if known is None else known

    @cached_property
    def shortfall(self) -> Shortfall | None:
        """Why the run is no ground for a verdict; None where it is one."""
        return find_shortfall(self.run, self.clock, self.tables)

    @cached_property
    def anatomies(self) -> Anatomies:
        """What the steps' time served, of the run, of each phase and of each host."""
        return estimate_anatomy(self.estimates.sampled, self.tables["stages"])

    @cached_property
    def step_parts(self) -> StepAccount:
        """What each step's time went into: what the account says and what rules claim comes from here."""
        crowded = self.crowded
        loss = None if crowded is None else machine_loss(self.clock, self.result.lost, crowded)
        return split_steps(self.clock, self.tables, loss)

    @cached_property
    def account(self) -> ClockAccount:
        """Where the wall time went."""
        return account_time(self.clock, self.labels, self.names, self.tables, self.step_parts)

    @cached_property
    def _more(self) -> dict[str, pa.Table]:
        return {}

    @property
    def labels(self) -> Int64s:
        """`[n_steps]` phase id per row of the clock."""
        return self.result.labels


def analyse_run(run: Run, *, method: str = DEFAULT_METHOD) -> Analysis:
    """Read a run's tables, find its phases and estimate its totals.

    Raw captures that are not converted yet take no part; convert them first (`sources.convert.convert_windows`).

    Args:
        run: an opened run; it may still be written, or its writer may have been killed.
        method: of `detect_phases`.

    Raises:
        StoreError: the run's tables cannot be read.
        ValueError: no such method.
    """
    tables = {name: run.table(name) for name in TABLES_READ}
    clock = read_clock(tables["steps"], run.shards, last_seen_ps(tables))
    joined, read_spans = join_folders(tables["checkpoints"]), cache(lambda: run.table("spans"))
    tables["checkpoints"] = measure_marks(joined, clock, tables, read_spans)
    crowded = crowded_time(clock, tables["machine"], run.shards)
    result = _find_phases(run, clock, tables, method, crowded)
    names = {phase.id: phase.name for phase in result.phases}
    sampled = (tables["steps"], tables["windows"], tables["breakdowns"])
    more = {"ops": tables["ops"], "programs": tables["programs"], "names": names}
    estimates = estimate_totals(*sampled, result.labels, **more)
    return Analysis(run, tables, clock, result, names, estimates, crowded)


def _find_phases(
    run: Run, clock: RunClock, tables: Mapping[str, pa.Table], method: str, crowded: CrowdedTime | None
) -> PhaseResult:
    steps = tables["steps"]
    if not steps.num_rows:
        none = np.empty(0, np.int64)
        return PhaseResult(none, none, none, _no_segments(), (), method, np.empty(0, bool), np.empty(0))
    if crowded is not None:
        steps = steps.append_column("crowded_ps", pa.array(crowded.ps))
    steps = steps.append_column("saved_ps", pa.array(split_steps(clock, tables).checkpoint_ps))
    steps = steps.append_column("spared_ps", pa.array(spared_ps(clock, tables["gaps"])))
    sources = [part for text in session_notes(run, "steps_from") for part in text.split("; then ")]
    updates = bool(sources) and all(map(_UPDATES.match, sources))
    ops = ops_of_steps(clock, tables["ops"])
    imported = is_imported(tables["windows"])
    known = KnownOfJob(updates, imported, _goes_back(run) if imported else None)
    return detect_phases(steps, ops, method=method, known=known)


def _goes_back(run: Run) -> bool | None:
    """Whether an operation of the compiled programs belongs to a backward pass, by the names that JAX gives them."""
    names = [name for name in pc.unique(run.table("instructions").column("op_name")).to_pylist() if name]
    return any("transpose(" in name for name in names) if len(names) >= LEAST_TELLING else None


def ops_of_steps(series: StepSeries, ops: pa.Table) -> pa.Table:
    """The ops of no step, and of the steps that the series has: a step's row may have been lost."""
    of_step = (series.rows_of(ops) >= 0) | pc.is_null(ops.column("step")).to_numpy()
    return ops if of_step.all() else ops.filter(pa.array(of_step))


def _no_segments() -> Segments:
    empty = np.empty(0, np.int64)
    segments = Segments.__new__(Segments)
    for name in ("first_index", "last_index", "phase", "first_step", "last_step"):
        setattr(segments, name, empty)
    return segments
