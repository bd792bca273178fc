"""The analyses of the stack: the one table. A new one is a module and a row.

A module has `COLUMNS` (what its rows hold), `of_shard(shard) -> ShardRows`, and, where rows of several shards are not
simply put one after another, `merge(parts) -> pa.Table`, which is associative, so that shards may be analysed anywhere.
Where shards must be seen together, what is merged is not yet the result: `finish(rows) -> pa.Table` makes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from phasepoint.core.errors import UsageError
from phasepoint.core.tables import Column
from phasepoint.core.workers import default_workers, map_tasks
from phasepoint.stack.shard.shard import ShardRows, StackShard, StackTable, schema_of
from phasepoint.store import Run

Progress = Callable[[int, int], None]

_SPAN_BYTES = 64
"""What a span takes in memory, about: how much work an analysis is."""


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        name: as it is asked for; its Python name has underscores.
        code: its published code, None for those beyond the fifteen.
        title: heading, in words.
        module: its file in this folder.
    """

    name: str
    code: str | None
    title: str
    module: str

    @property
    def home(self) -> Any:
        """Its module."""
        return import_module(f"phasepoint.stack.analyses.{self.module}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """What its rows hold."""
        return cast(tuple[Column, ...], self.home.COLUMNS)

    def of_shard(self, shard: StackShard) -> ShardRows:
        """Its rows of one shard."""
        return cast(ShardRows, self.home.of_shard(shard))

    def finish(self, rows: pa.Table) -> pa.Table:
        """The result's rows from what was merged."""
        finish = getattr(self.home, "finish", None)
        return rows if finish is None else cast(pa.Table, finish(rows))

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Its rows of several shards."""
        merge = getattr(self.home, "merge", None)
        if merge is not None:
            return cast(pa.Table, merge(parts))
        return pa.concat_tables(parts) if parts else schema_of(self.columns).empty_table()


ANALYSES: tuple[Analysis, ...] = (
    Analysis("model-information", "A1", "Model information", "model_information"),
    Analysis("layer-information", "A2", "Layer information", "layers.information"),
    Analysis("layer-latency", "A3", "Layer latency", "layers.latency"),
    Analysis("layer-memory", "A4", "Layer memory allocation", "layers.memory"),
    Analysis("layer-types", "A5", "Layer type distribution", "layers.types"),
    Analysis("layer-latency-by-type", "A6", "Layer latency aggregated by type", "layers.latency_by_type"),
    Analysis("layer-memory-by-type", "A7", "Layer memory allocation aggregated by type", "layers.memory_by_type"),
    Analysis("kernel-information", "A8", "GPU kernel information", "kernels.information"),
    Analysis("kernel-roofline", "A9", "GPU kernel roofline", "kernels.roofline"),
    Analysis("kernels-by-name", "A10", "GPU kernel information aggregated by name", "kernels.by_name"),
    Analysis("layer-kernels", "A11", "GPU kernel information aggregated by layer", "kernels.by_layer"),
    Analysis("layer-metrics", "A12", "GPU metrics aggregated by layer", "layers.metrics"),
    Analysis("device-share", "A13", "GPU versus non-GPU latency per layer", "layers.device_share"),
    Analysis("layer-roofline", "A14", "Layer roofline", "layers.roofline"),
    Analysis("kernels-by-model", "A15", "GPU kernel information aggregated by model", "kernels.by_model"),
    Analysis("device-time", None, "Device time: busy, compute, communication, memory, idle", "timelines.device_time"),
    Analysis("idle-causes", None, "Why devices were idle", "timelines.idle_causes"),
    Analysis("critical-path", None, "The chain of work that each step hangs on", "timelines.critical_path"),
    Analysis(
        "launch-statistics", None, "Launches: delay, queue, short executions, graphs", "timelines.launch_statistics"
    ),
    Analysis("collective-skew", None, "Collectives: who came late, who waited", "timelines.collective_skew"),
    Analysis("memory-timeline", None, "Memory over time", "timelines.memory_timeline"),
    Analysis("memory-peak", None, "What held the memory at its peak", "timelines.memory_peak"),
)


def find_analysis(name: str) -> Analysis:
    """The analysis of a name or a code, whatever its case.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    wanted = name.lower().replace("_", "-")
    for analysis in ANALYSES:
        if wanted in (analysis.name, (analysis.code or "").lower()):
            return analysis
    names = [analysis.name for analysis in ANALYSES]
    near = get_close_matches(wanted, names, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(f"{a.code} {a.name}" if a.code else a.name for a in ANALYSES)
    raise UsageError(f"no analysis named {name!r}. {meant}The analyses are {listed}")


def analyse(
    run: Run, name: str, *, workers: int | None = None, ray_address: str | None = None, progress: Progress | None = None
) -> StackTable:
    """Do one analysis of a run.

    Args:
        run: an opened run whose captures are converted.
        name: name or code.
        workers: processes on this machine, a shard each at a time; None for one a core as far as there is work for
            them. See `map_tasks`.
        ray_address: a Ray cluster instead, whose machines see the run under the same name.
        progress: called with shards done and shards in all.

    Raises:
        UsageError: there is no such analysis.
        StoreError: the run's tables cannot be read.
        WorkerError: as `map_tasks`.

    Example:
        `analyse(open_run("runs/my-job"), "device-time").rows.to_pylist()`
    """
    analysis = find_analysis(name)
    tasks = [ShardTask(run.only(shard.name), analysis.name) for shard in run.shards]
    if workers is None:
        n_spans = sum(run.table("conversions", columns=["spans"])["spans"].to_pylist())
        workers = default_workers(len(tasks), n_spans * _SPAN_BYTES)
    parts = map_tasks(analyse_shard, tasks, workers=workers, ray_address=ray_address, progress=progress)
    return table_of(analysis, parts)


@dataclass(frozen=True)
class ShardTask:
    """One analysis of a run of one shard."""

    run: Run
    analysis: str


def analyse_shard(task: ShardTask) -> ShardRows:
    """Its rows; parts of its tables that cannot be read are notes.

    Raises:
        StoreError: the file system fails.
    """
    (shard,) = task.run.shards
    part = find_analysis(task.analysis).of_shard(StackShard(task.run, shard))
    return replace(part, notes=(*task.run.problems, *part.notes))


def table_of(analysis: Analysis, parts: Sequence[ShardRows]) -> StackTable:
    """The analysis' table from its shards' rows."""
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    rows = analysis.finish(analysis.merge([part.rows for part in parts]))
    return StackTable(analysis.name, analysis.code, analysis.title, analysis.columns, rows, notes)
