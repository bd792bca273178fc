"""The analyses of the stack: the one table. A new one is a module and a row.

A module has `COLUMNS` (what its rows hold), `of_shard(shard) -> ShardRows`, and, where rows of several shards are not
simply put one after another, `merge(parts) -> pa.Table`, which is given the parts of all shards in the run's order, so
that shards may be analysed anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from phasepoint.core.errors import UsageError
from phasepoint.core.tables import Column
from phasepoint.stack.result import ShardRows, StackTable, schema_of
from phasepoint.stack.shard import StackShard, shards_of
from phasepoint.store import Run

Progress = Callable[[int, int], None]


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
        return import_module(f"phasepoint.stack.{self.module}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """What its rows hold."""
        return cast(tuple[Column, ...], self.home.COLUMNS)

    def of_shard(self, shard: StackShard) -> ShardRows:
        """Its rows of one shard."""
        return cast(ShardRows, self.home.of_shard(shard))

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Its rows of several shards."""
        merge = getattr(self.home, "merge", None)
        if merge is not None:
            return cast(pa.Table, merge(parts))
        return pa.concat_tables(parts) if parts else schema_of(self.columns).empty_table()


ANALYSES: tuple[Analysis, ...] = (
    Analysis("model-information", "A1", "Model information", "model_information"),
    Analysis("layer-information", "A2", "Layer information", "layer_information"),
    Analysis("layer-latency", "A3", "Layer latency", "layer_latency"),
    Analysis("layer-memory", "A4", "Layer memory allocation", "layer_memory"),
    Analysis("layer-types", "A5", "Layer type distribution", "layer_type_distribution"),
    Analysis("layer-latency-by-type", "A6", "Layer latency aggregated by type", "layer_latency_by_type"),
    Analysis("layer-memory-by-type", "A7", "Layer memory allocation aggregated by type", "layer_memory_by_type"),
    Analysis("kernel-information", "A8", "GPU kernel information", "kernel_information"),
    Analysis("kernel-roofline", "A9", "GPU kernel roofline", "kernel_roofline"),
    Analysis("kernels-by-name", "A10", "GPU kernel information aggregated by name", "kernels_by_name"),
    Analysis("layer-kernels", "A11", "GPU kernel information aggregated by layer", "layer_kernels"),
    Analysis("layer-metrics", "A12", "GPU metrics aggregated by layer", "layer_metrics"),
    Analysis("device-share", "A13", "GPU versus non-GPU latency per layer", "device_share"),
    Analysis("layer-roofline", "A14", "Layer roofline", "layer_roofline"),
    Analysis("kernels-by-model", "A15", "GPU kernel information aggregated by model", "kernels_by_model"),
    Analysis("device-time", None, "Device time: busy, compute, communication, memory, idle", "device_time"),
    Analysis("idle-causes", None, "Why devices were idle", "idle_causes"),
    Analysis("launch-statistics", None, "Launches: delay, queue, short executions, graphs", "launch_statistics"),
    Analysis("collective-skew", None, "Collectives: who came late, who waited", "collective_skew"),
    Analysis("memory-timeline", None, "Memory over time", "memory_timeline"),
    Analysis("memory-peak", None, "What held the memory at its peak", "memory_peak"),
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


def analyse(run: Run, name: str, *, progress: Progress | None = None) -> StackTable:
    """Do one analysis of a run.

    Args:
        run: an opened run whose captures are converted.
        name: name or code.
        progress: called with shards done and shards in all.

    Raises:
        UsageError: there is no such analysis.
        StoreError: the run's tables cannot be read.

    Example:
        `analyse(open_run("runs/my-job"), "device-time").rows.to_pylist()`
    """
    analysis = find_analysis(name)
    shards = shards_of(run)
    parts = []
    for done, shard in enumerate(shards):
        if progress is not None:
            progress(done, len(shards))
        parts.append(analysis.of_shard(shard))
    return table_of(analysis, parts)


def table_of(analysis: Analysis, parts: Sequence[ShardRows]) -> StackTable:
    """The analysis' table from its shards' rows."""
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    rows = analysis.merge([part.rows for part in parts])
    return StackTable(analysis.name, analysis.code, analysis.title, analysis.columns, rows, notes)
