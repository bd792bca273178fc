"""What a leveled measurement found: each level's latency from the run of that level.

One run of the work at one level: what the clock and that level's instrument say, as values and as JSON.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

Level = Literal["M", "L", "K", "C"]

LEVEL_NAMES: Mapping[Level, str] = {"M": "model", "L": "layers", "K": "kernels", "C": "counters"}
"""M runs with no profiler; L adds layers to M, K adds ops and kernels to L, C adds hardware counters to M."""

BELOW: Mapping[Level, Level] = {"L": "M", "K": "L", "C": "M"}
"""The level that each level adds its own overhead to."""


class LayerKey(NamedTuple):
    """What layer times are added up by.

    Attributes:
        layer: module path.
        direction: forward, backward or optimizer, None where unknown.
    """

    layer: str
    direction: str | None


@dataclass(frozen=True)
class LayerTime:
    """A layer in one run.

    Attributes:
        self_ps: time in the layer less its sub-layers, as seen.
        cost_ps: what of it the instrument itself took, as calibrated; 0 where that is not known.
        calls: how often it ran.
        kind: class of the module, None where unknown.
    """

    self_ps: int
    cost_ps: int
    calls: int
    kind: str | None = None


class LayerOpKey(NamedTuple):
    """What times of ops and kernels are added up by; `layer` is None outside every layer."""

    layer: LayerKey | None
    op: str
    level: str
    device: str


@dataclass(frozen=True)
class LayerOpTime:
    """An op or kernel in one run: time less what is nested inside, and executions."""

    self_ps: int
    calls: int


@dataclass(frozen=True)
class InstrumentReading:
    """What an instrument saw in one run.

    Attributes:
        layers: by layer; empty at M and C.
        outside_cost_ps: what the instrument took outside every layer, as calibrated.
        ops: by op; empty below K.
        counters: name → value; empty but at C.
        notes: what the reader must know, in sentences.
    """

    layers: Mapping[LayerKey, LayerTime] = field(default_factory=dict)
    outside_cost_ps: int = 0
    ops: Mapping[LayerOpKey, LayerOpTime] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One run of the work at one level.

    Attributes:
        level: the level.
        wall_ps: from the start until everything was ready.
        cpu_ps: processor time of the whole process meanwhile, all threads.
        switches: how often others took a processor from one of its threads meanwhile.
        evidence: what the instrument saw.
    """

    level: Level
    wall_ps: int
    cpu_ps: int
    switches: int = 0
    evidence: InstrumentReading = field(default_factory=InstrumentReading)


def sample_to_plain(sample: Sample) -> dict[str, Any]:
    """A sample as JSON knows it."""
    evidence = sample.evidence
    return {
        "level": sample.level,
        "wall_ps": sample.wall_ps,
        "cpu_ps": sample.cpu_ps,
        "switches": sample.switches,
        "layers": [[*key, asdict(time)] for key, time in evidence.layers.items()],
        "outside_cost_ps": evidence.outside_cost_ps,
        "ops": [[*key, asdict(time)] for key, time in evidence.ops.items()],
        "counters": dict(evidence.counters),
        "notes": list(evidence.notes),
    }


def sample_from_plain(plain: Mapping[str, Any]) -> Sample:
    """The sample that `sample_to_plain` made this of."""
    evidence = InstrumentReading(
        layers={LayerKey(layer, way): LayerTime(**time) for layer, way, time in plain["layers"]},
        outside_cost_ps=plain["outside_cost_ps"],
        ops={
            LayerOpKey(None if layer is None else LayerKey(*layer), op, level, device): LayerOpTime(**time)
            for layer, op, level, device, time in plain["ops"]
        },
        counters=plain["counters"],
        notes=tuple(plain["notes"]),
    )
    return Sample(plain["level"], plain["wall_ps"], plain["cpu_ps"], plain["switches"], evidence)


@dataclass(frozen=True)
class LevelResult:
    """The runs at one level. Times are the trimmed means of the repeats.

    Attributes:
        level: M, L, K or C.
        wall_ps: latency of the work at this level, from its start until everything was ready.
        low_ps: lower end of the 95 % interval of wall_ps, None for fewer than five repeats.
        high_ps: its upper end.
        cpu_ps: processor time of the process, all threads.
        overhead_ps: wall_ps less that of the level below; None for M. Below 0 where noise is larger.
        repeats_ps: `[n_repeats]` wall time of every repeat, in the order of the runs.
        trimmed: repeats dropped from each side.
    """

    level: Level
    wall_ps: int
    low_ps: int | None
    high_ps: int | None
    cpu_ps: int
    overhead_ps: int | None
    repeats_ps: tuple[int, ...]
    trimmed: int


@dataclass(frozen=True)
class LayerLatency:
    """One layer, without its sub-layers.

    Attributes:
        layer: module path.
        direction: forward, backward or optimizer, None where unknown.
        kind: class of the module, None where unknown.
        calls: how often it runs in one run of the work.
        latency_ps: its latency: as measured at L, less the instrument's own time, closed on the model's latency.
        low_ps: lower end of the 95 % interval of latency_ps from the repeats at L, None for fewer than five.
        high_ps: its upper end.
        measured_ps: as measured at L.
        profiled_ps: as measured at K, None where K was not run.
        inflation_ratio: profiled_ps / latency_ps − 1, None where either is not known or latency_ps is 0.
        ops_ps: what of latency_ps its ops and kernels take, None where K was not run.
    """

    layer: str
    direction: str | None
    kind: str | None
    calls: int
    latency_ps: int
    low_ps: int | None
    high_ps: int | None
    measured_ps: int
    profiled_ps: int | None
    inflation_ratio: float | None
    ops_ps: int | None


@dataclass(frozen=True)
class OpLatency:
    """One op or kernel of one layer.

    Attributes:
        layer: module path, None outside every layer.
        direction: of the layer.
        op: name as the profiler gave it.
        level: op or kernel.
        device: where it ran.
        calls: executions in one run of the work.
        latency_ps: its own time as measured at K, made to fit where a layer's ops exceed the layer's latency.
        measured_ps: as measured at K.
    """

    layer: str | None
    direction: str | None
    op: str
    level: str
    device: str
    calls: int
    latency_ps: int
    measured_ps: int


@dataclass(frozen=True)
class CounterValue:
    """A counter over one run of the work: the trimmed mean of the repeats, rounded."""

    name: str
    value: int


@dataclass(frozen=True)
class NotMeasured:
    """Something asked for that was not measured, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class LeveledMeasurement:
    """The same work at several levels.

    The latencies of the layers and `unattributed_ps` add up to `model_ps`; the ops of a layer do not exceed it.

    Attributes:
        framework: torch or jax.
        framework_version: as it says it.
        devices: the process's devices.
        levels: one result a level that was run, in the order M, L, K, C.
        model_ps: latency of the work with no profiler: the wall time of M.
        layers: largest latency first; empty without L.
        unattributed_ps: time of model_ps in no layer; all of it without L.
        unattributed_ops_ps: what of it ops and kernels take, None where K was not run.
        closure_ratio: wall time at L less the instrument's own time as calibrated, over model_ps, before layers are
            made to add up to model_ps. 1 where the correction explains the whole overhead; None without L.
        ops: largest latency first; empty without K.
        counters: hardware counters and the system's, by name; empty without C.
        unavailable: what was asked for and could not be measured.
        notes: what the reader must know, in sentences.
    """

    framework: str
    framework_version: str
    devices: tuple[str, ...]
    levels: tuple[LevelResult, ...]
    model_ps: int
    layers: tuple[LayerLatency, ...]
    unattributed_ps: int
    unattributed_ops_ps: int | None
    closure_ratio: float | None
    ops: tuple[OpLatency, ...]
    counters: tuple[CounterValue, ...]
    unavailable: tuple[NotMeasured, ...]
    notes: tuple[str, ...]

    def level(self, level: Level) -> LevelResult:
        """The result of one level.

        Raises:
            KeyError: it was not run.
        """
        for one in self.levels:
            if one.level == level:
                return one
        raise KeyError(f"level {level} was not run; run were {', '.join(one.level for one in self.levels)}")
