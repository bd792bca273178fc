"""Results as JSON documents: one object with `version` and `kind` in front, the same for every command.

The layouts are documented in docs/cli.md; a field is added without a new version, never renamed or removed.
"""

import dataclasses
import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phasepoint.core.units import PS_PER_S
from phasepoint.report.tables import arrow_table
from phasepoint.report.tables.text import table_document

if TYPE_CHECKING:
    from phasepoint.findings.finding import Findings, RankedFinding
    from phasepoint.learn.models.model_file import StoredModel
    from phasepoint.learn.predict.tpu.topology import Topology
    from phasepoint.learn.tasks import Task
    from phasepoint.replay.compact.compact import Compact, PartEstimate
    from phasepoint.replay.fast_forward import FastForward
    from phasepoint.replay.plan.plan import CheckpointList
    from phasepoint.scale.plan.layouts import BatchPlan, LayoutRow, Machine
    from phasepoint.scale.plan.program import ProgramRow
    from phasepoint.scale.plan.recorded import Devices, RecordedRow, RecordedStep
    from phasepoint.scale.plan.what_if import TechniqueLeftOut
    from phasepoint.scale.plan.whole import RunParts
    from phasepoint.scale.validate.answer import Band, FileAnswer
    from phasepoint.stack.analyses.overview import StackOverview
    from phasepoint.stack.diff.result import RunDiff
    from phasepoint.stack.shard.shard import StackTable
    from phasepoint.summary.types import RunSummary
    from phasepoint.tune.offline.search import SearchOutcome
    from phasepoint.tune.outcome import TuneOutcome

DOCUMENT_VERSION = 1
"""Layout of every document whose content does not carry a version of its own."""


def to_json(kind: str, content: Any, *, indent: int | None = 2) -> str:
    """A JSON document: `{"version": 1, "kind": kind, …content's fields…}`.

    Args:
        kind: what the document holds: summary, phases, sql, export, …
        content: a mapping or a dataclass; its own `version`, if it has one, is the document's.
        indent: spaces per level, None for one line.

    Returns:
        ASCII text: names from traces cannot smuggle control characters into a terminal.
    """
    fields = plain(content)
    if not isinstance(fields, dict):
        raise TypeError(f"a document's content is a mapping or a dataclass, not {type(content).__name__}")
    version = fields.pop("version", DOCUMENT_VERSION)
    document = {"version": version, "kind": kind, **fields}
    return json.dumps(document, indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON knows it: integers stay exact, NaN and infinities are null, unknown types are text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    names: Sequence[str] = getattr(value, "__struct_fields__", ())
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
    if names and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    # DuckDB adds int64 up as 128-bit integers, which arrive as decimals without a fraction.
    if isinstance(value, decimal.Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else plain(float(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    item = getattr(value, "item", None)
    return plain(item()) if callable(item) else str(value)


def phases_document(summary: "RunSummary") -> dict[str, Any]:
    """The part of a summary that `phasepoint phases --json` prints."""
    fields = ("run", "verdict", "method", "notes", "steps", "inside_ps", "reference_host", "phases", "strip")
    return {"version": summary.version, **{name: getattr(summary, name) for name in fields}}


def findings_document(found: "Findings") -> dict[str, Any]:
    """The run's findings, ranked; `unavailable`, `clear`, and `not_enough`: why no gate passes on the run, or null."""
    from phasepoint.findings.finding import FINDINGS_VERSION

    return {
        "version": FINDINGS_VERSION,
        "run": found.run,
        "wall_ps": found.wall_ps,
        "verdict": found.verdict.text,
        "bounds": plain(found.verdict.bounds),
        "is_healthy": found.verdict.is_healthy,
        "findings": [_finding(finding) for finding in found.findings],
        "unavailable": [{"code": one.code, "reason": one.reason} for one in found.unavailable],
        "clear": list(found.clear),
        "not_enough": plain(found.not_enough),
    }


def _finding(finding: "RankedFinding") -> dict[str, Any]:
    return {
        "code": finding.code,
        "title": finding.title,
        "phase": finding.phase,
        "seconds": finding.saved_ps / PS_PER_S,
        "seconds_low": finding.low_ps / PS_PER_S,
        "seconds_high": finding.high_ps / PS_PER_S,
        "seconds_alone": finding.alone_ps / PS_PER_S,
        "share": finding.share,
        "remedy": finding.remedy,
        "evidence": [{"text": e.text, "table": e.table, "query": e.query} for e in finding.evidence],
        "confidence": finding.confidence,
        "wrong_if": finding.wrong_if,
        "layers": list(finding.layers),
        "saved_ps": finding.saved_ps,
        "low_ps": finding.low_ps,
        "high_ps": finding.high_ps,
        "alone_ps": finding.alone_ps,
    }


def stack_document(table: "StackTable") -> dict[str, Any]:
    """`analysis`, `code`, `title`, `columns` (name, unit, doc), `rows` and `notes`."""
    about = {"analysis": table.name, "code": table.code, "title": table.title}
    return {**about, **table_document(arrow_table(table.rows, table.columns)), "notes": table.notes}


def overview_document(overview: "StackOverview | None") -> dict[str, Any] | None:
    """What a report shows of the stack: `host`, `windows`, `windows_kept`, and `tables` with their first rows and
    `rows_in_all`."""
    if overview is None:
        return None
    tables = [{**stack_document(one.table), "rows_in_all": one.rows} for one in overview.tables]
    return {
        "host": overview.host,
        "windows": overview.windows,
        "windows_kept": overview.windows_kept,
        "tables": tables,
    }


def diff_document(diff: "RunDiff") -> dict[str, Any]:
    """`base`, `run`, `steps` (hint), `verdict`, `grown_ratio`, `named`, `columns`, `rows`, `notes` and `unrelated`."""
    from phasepoint.stack.diff.result import COLUMNS

    return {
        "base": diff.base,
        "run": diff.run,
        "steps": diff.kind,
        "verdict": diff.verdict,
        "grown_ratio": diff.grown_ratio,
        "named": [row.name for row in diff.named],
        **table_document(arrow_table(diff.table(), COLUMNS)),
        "notes": diff.notes,
        "unrelated": diff.unrelated,
    }


def tune_document(outcomes: "Sequence[TuneOutcome]") -> dict[str, Any]:
    """The fields of `phasepoint tune --json`: those of the loader with the most trials, and `loaders` with all."""
    loaders = [_tune_fields(outcome) for outcome in outcomes]
    return {**loaders[0], "loaders": loaders}


def validation_document(answers: "Sequence[FileAnswer]") -> dict[str, Any]:
    """The fields of `phasepoint scale validate --json`: of every file and of its parts, counted in pairs or points."""
    return {"files": [_counted(answer, answer.counted) for answer in answers]}


def _counted(answer: "FileAnswer | Band", counted: str) -> dict[str, Any]:
    fields = {counted if name == "count" else name: value for name, value in vars(answer).items() if name != "counted"}
    return fields | ({"by": [_counted(band, counted) for band in fields["by"]]} if "by" in fields else {})


def search_document(outcome: "SearchOutcome") -> dict[str, Any]:
    """The fields of `phasepoint tune search --json`."""
    gain = outcome.gain
    return {
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "as_written": outcome.as_written,
        "chosen": outcome.chosen,
        "gain": 0.0 if gain is None else gain.value,
        "gain_low": None if gain is None else gain.low,
        "gain_high": None if gain is None else gain.high,
        "pairs": outcome.pairs,
        "difference": outcome.difference,
        "spent_s": outcome.spent_s,
        "settings": outcome.settings,
        "trials": [
            {
                "knobs": trial.setting,
                "gain": trial.gain,
                "step_ns": trial.measured.step_ns,
                "steps": trial.measured.steps,
                "dur_s": trial.measured.dur_s,
                "problem": trial.measured.problem,
            }
            for trial in outcome.trials
        ],
    }


def _tune_fields(outcome: "TuneOutcome") -> dict[str, Any]:
    trials = (
        "knobs",
        "predicted_gain",
        "gain",
        "low",
        "high",
        "accepted",
        "reason",
        "first_step",
        "last_step",
        "pairs",
    )
    return {
        **{field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome) if field.name != "trials"},
        "trials": [{name: getattr(trial, name) for name in (*trials, "spent_s")} for trial in outcome.trials],
    }


def compact_document(found: "Compact") -> dict[str, Any]:
    """The fields of `phasepoint replay compact --json`."""
    times = ("estimate_ps", "low_ps", "high_ps", "actual_ps")
    return {
        **{name: getattr(found, name) for name in ("run", "host", "budget", "seed", "confidence")},
        "steps_used": found.steps_used,
        "steps_total": found.steps_total,
        **{name.replace("_ps", "_s"): _seconds(getattr(found, name)) for name in (*times, "outside_ps")},
        "by_category": [{"category": one.name, **_times(one)} for one in found.by_category],
        "by_phase": [{"phase": one.name, "steps": one.steps, **_times(one)} for one in found.by_phase],
        "windows": [{**plain(one), "dur_s": _seconds(one.dur_ps)} for one in found.windows],
        "notes": list(found.notes),
        **{name: getattr(found, name) for name in (*times, "outside_ps")},
    }


def _times(one: "PartEstimate") -> dict[str, Any]:
    names = ("estimate_ps", "low_ps", "high_ps", "actual_ps")
    seconds = {name.replace("_ps", "_s"): _seconds(getattr(one, name)) for name in names}
    return seconds | {name: getattr(one, name) for name in names}


def _seconds(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / PS_PER_S


def checkpoints_document(listed: "CheckpointList") -> dict[str, Any]:
    """What `phasepoint replay RUN --json` prints: the index, with `leads_to` in every checkpoint."""
    return {
        "run": listed.run,
        "checkpoints": [{**plain(one.checkpoint), "leads_to": list(one.leads_to)} for one in listed.checkpoints],
        "unreached": [{"phase": phase, "reason": reason} for phase, reason in listed.unreached],
        "notes": list(listed.notes),
    }


def fast_forward_document(found: "FastForward") -> dict[str, Any]:
    """The part `fast_forward` of `phasepoint report RUN --json`."""
    names = ("command", "checkpoints", "plans", "unavailable", "no_compact", "replays", "problems")
    compact = None if found.compact is None else compact_document(found.compact)
    if compact is not None:
        compact.pop("windows", None)
    return {**{name: getattr(found, name) for name in names}, "compact": compact}


def model_document(model: "StoredModel", folder: Path) -> Mapping[str, Any]:
    """What `phasepoint learn train --json` prints: where the model is, its kind and its card."""
    from phasepoint.learn.models.model_file import ARRAYS, CARD

    written = [{"path": str(folder / name), "bytes": (folder / name).stat().st_size} for name in (ARRAYS, CARD)]
    return {"model": str(folder), "model_kind": model.kind, "written": written, "card": dict(model.card)}


def models_document(models: "Sequence[StoredModel]", tasks: "Sequence[Task]") -> Mapping[str, Any]:
    """What `phasepoint learn --json` prints."""
    return {
        "models": [
            {"name": model.name, "kind": model.kind, "bytes": array_bytes(model), "card": dict(model.card)}
            for model in models
        ],
        "tasks": [{"name": task.name, "data": task.data} for task in tasks],
    }


def array_bytes(model: "StoredModel") -> int:
    """Size of a model's arrays in memory, bytes."""
    return sum(array.nbytes for array in model.arrays.values())


def program_plan_document(what: str, topology: "Topology", rows: "Sequence[ProgramRow]") -> dict[str, Any]:
    """Steps of a program on a slice, by batch; times in ps, null where the program does not fit."""
    return {
        "program": what,
        "slice": topology.name,
        "chips": topology.chips,
        "rows": [_plan_fields(row) for row in rows],
    }


def recorded_plan_document(
    what: str, devices: "Devices", step: "RecordedStep", rows: "Sequence[RecordedRow]"
) -> dict[str, Any]:
    """Steps of a recorded job on more devices; the recorded step without the list of its scatter."""
    recorded = {name: value for name, value in vars(step).items() if name != "ratios"}
    return {
        "run": what,
        "devices": devices.name,
        "step": recorded,
        "rows": [{**vars(row), "step_ps": row.step_ps} for row in rows],
    }


def what_if_document(
    what: str, topology: "Topology", whole: "ProgramRow", others: "Sequence[TechniqueLeftOut]"
) -> dict[str, Any]:
    """A step on a slice, and the same without each of its techniques."""
    return {
        "program": what,
        "slice": topology.name,
        "chips": topology.chips,
        "step": _plan_fields(whole),
        "without": [{**vars(other), "row": _plan_fields(other.row)} for other in others],
    }


def layouts_document(what: str, machine: "Machine", plans: "Sequence[BatchPlan]") -> dict[str, Any]:
    """Layouts of a transformer over devices, by batch; times in ps, memory in bytes of a device."""
    return {
        "model": what,
        "devices": machine.devices,
        "device": machine.device.name,
        "slices": machine.slices,
        "batches": [
            {
                "batch": plan.batch,
                "priced": plan.priced,
                "fitting": plan.fitting,
                "best": [_layout_fields(row) for row in plan.best],
                "faster": plan.faster and _layout_fields(plan.faster),
                "smallest": plan.smallest and _layout_fields(plan.smallest),
            }
            for plan in plans
        ],
    }


def _layout_fields(row: "LayoutRow") -> dict[str, Any]:
    return {
        **vars(row),
        "step_ps": row.step_ps,
        "memory_bytes": row.memory_bytes,
        "fits": row.fits,
        "limited_by": row.limited_by,
        "run": _run_fields(row.run),
    }


def _run_fields(run: "RunParts | None") -> dict[str, float] | None:
    return None if run is None else {**vars(run), "scored": run.scored, "wall": run.wall}


def _plan_fields(row: "ProgramRow") -> dict[str, Any]:
    fields = {name: value for name, value in vars(row).items() if name != "collectives"}
    sent = [
        {"opcode": one.opcode, "bytes": one.bytes, "group": one.group, "executions": one.executions}
        for one in row.collectives
    ]
    return {
        **fields,
        "step_ps": row.step_ps,
        "fits": row.fits,
        "samples_per_s": row.samples_per_s,
        "run": _run_fields(row.run),
        "collectives": sent,
    }
