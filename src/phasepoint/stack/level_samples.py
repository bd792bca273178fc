"""One run of the work at one level: what the clock and that level's instrument say, as values and as JSON."""

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


class OpKey(NamedTuple):
    """What times of ops and kernels are added up by; `layer` is None outside every layer."""

    layer: LayerKey | None
    op: str
    level: str
    device: str


@dataclass(frozen=True)
class OpTime:
    """An op or kernel in one run: time less what is nested inside, and executions."""

    self_ps: int
    calls: int


@dataclass(frozen=True)
class Evidence:
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
    ops: Mapping[OpKey, OpTime] = field(default_factory=dict)
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
    evidence: Evidence = field(default_factory=Evidence)


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
    evidence = Evidence(
        layers={LayerKey(layer, way): LayerTime(**time) for layer, way, time in plain["layers"]},
        outside_cost_ps=plain["outside_cost_ps"],
        ops={
            OpKey(None if layer is None else LayerKey(*layer), op, level, device): OpTime(**time)
            for layer, op, level, device, time in plain["ops"]
        },
        counters=plain["counters"],
        notes=tuple(plain["notes"]),
    )
    return Sample(plain["level"], plain["wall_ps"], plain["cpu_ps"], plain["switches"], evidence)
