"""The analyses of the stack: the one table. A new one is a function of a shard, `@analysis(columns)`, and a row.

It is called as its row is named: `layer-roofline` is `layer_roofline` in its module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from phasepoint.core.errors import UsageError
from phasepoint.core.tables import Column
from phasepoint.core.workers import default_workers, map_tasks
from phasepoint.stack.shard.shard import Definition, ShardRows, StackShard, StackTable
from phasepoint.store import Run

Progress = Callable[[int, int], None]

_SPAN_BYTES = 64
"""What a span takes in memory, about: how much work an analysis is."""


@dataclass(frozen=True)
class StackAnalysis:
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
    def python_name(self) -> str:
        """Its name in `phasepoint.stack` and in its module."""
        return self.name.replace("-", "_")

    @property
    def definition(self) -> Definition:
        """How its rows are made."""
        home = import_module(f"phasepoint.stack.analyses.{self.module}")
        return cast(Definition, getattr(home, self.python_name))

    @property
    def columns(self) -> tuple[Column, ...]:
        """What its rows hold."""
        return self.definition.columns

    def of_shard(self, shard: StackShard) -> ShardRows:
        """Its rows of one shard."""
        return self.definition.of_shard(shard)


ANALYSES: tuple[StackAnalysis, ...] = (
    StackAnalysis("model-information", "A1", "Model information", "model_information"),
    StackAnalysis("layer-information", "A2", "Layer information", "layers.information"),
    StackAnalysis("layer-latency", "A3", "Layer latency", "layers.latency"),
    StackAnalysis("layer-memory", "A4", "Layer memory allocation", "layers.memory"),
    StackAnalysis("layer-types", "A5", "Layer type distribution", "layers.latency"),
    StackAnalysis("layer-latency-by-type", "A6", "Layer latency aggregated by type", "layers.latency"),
    StackAnalysis("layer-memory-by-type", "A7", "Layer memory allocation aggregated by type", "layers.memory"),
    StackAnalysis("kernel-information", "A8", "GPU kernel information", "kernels"),
    StackAnalysis("kernel-roofline", "A9", "GPU kernel roofline", "roofline"),
    StackAnalysis("kernels-by-name", "A10", "GPU kernel information aggregated by name", "kernels"),
    StackAnalysis("layer-kernels", "A11", "GPU kernel information aggregated by layer", "kernels"),
    StackAnalysis("layer-metrics", "A12", "GPU metrics aggregated by layer", "kernels"),
    StackAnalysis("device-share", "A13", "GPU versus non-GPU latency per layer", "layers.latency"),
    StackAnalysis("layer-roofline", "A14", "Layer roofline", "roofline"),
    StackAnalysis("kernels-by-model", "A15", "GPU kernel information aggregated by model", "kernels"),
    StackAnalysis(
        "device-time", None, "Device time: busy, compute, communication, memory, idle", "timelines.device_time"
    ),
    StackAnalysis("idle-causes", None, "Why devices were idle", "timelines.idle_causes"),
    StackAnalysis("critical-path", None, "The chain of work that each step hangs on", "timelines.critical_path"),
    StackAnalysis(
        "launch-statistics", None, "Launches: delay, queue, short executions, graphs", "timelines.launch_statistics"
    ),
    StackAnalysis("collective-skew", None, "Collectives: who came late, who waited", "timelines.collective_skew"),
    StackAnalysis("memory-timeline", None, "Memory over time", "timelines.memory"),
    StackAnalysis("memory-peak", None, "What held the memory at its peak", "timelines.memory"),
)


def find_analysis(name: str) -> StackAnalysis:
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
        >>> from phasepoint.store import open_run
        >>> analyse(open_run("runs/my-job"), "device-time").rows.select(["device", "busy_ps"]).to_pylist()
        [{'device': 'cpu:0', 'busy_ps': 140000000000}]
    """
    analysis = find_analysis(name)
    tasks = [AnalysisTask(run.only(shard.name), analysis.name) for shard in run.shards]
    if workers is None:
        n_spans = sum(run.table("conversions", columns=["spans"])["spans"].to_pylist())
        workers = default_workers(len(tasks), n_spans * _SPAN_BYTES)
    parts = map_tasks(analyse_shard, tasks, workers=workers, ray_address=ray_address, progress=progress)
    return table_of(analysis, parts)


@dataclass(frozen=True)
class AnalysisTask:
    """One analysis of a run of one shard."""

    run: Run
    analysis: str


def analyse_shard(task: AnalysisTask) -> ShardRows:
    """Its rows; parts of its tables that cannot be read are notes.

    Raises:
        StoreError: the file system fails.
    """
    (shard,) = task.run.shards
    part = find_analysis(task.analysis).of_shard(StackShard(task.run, shard))
    return replace(part, notes=(*task.run.problems, *part.notes))


def table_of(analysis: StackAnalysis, parts: Sequence[ShardRows]) -> StackTable:
    """The analysis' table from its shards' rows."""
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    rows = analysis.definition.of_shards([part.rows for part in parts])
    return StackTable(analysis.name, analysis.code, analysis.title, analysis.columns, rows, notes)
