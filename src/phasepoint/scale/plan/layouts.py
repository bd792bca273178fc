"""Which layout of a transformer over many devices is fastest: every one is priced in closed form.

On TPUs the weights are divided within a slice (FSDP), matrices among `tensor` chips, and the batch among slices; the
forward pass is done again in part, in full or not at all. On GPUs matrices are divided among `tensor` devices, layers
among `pipeline` stages, experts among `expert` devices, and the rest are replicas that add up their gradients; the
forward pass is done again or not.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from phasepoint.core.errors import UsageError
from phasepoint.core.units import PS_PER_S
from phasepoint.devices.specs import DeviceSpec, device_spec, device_specs
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.plan.benchmark import CHIPS_A_HOST
from phasepoint.scale.plan.whole import RunAsked, RunParts
from phasepoint.scale.steps.constants import Part, Parts, shipped_constants, step_parts_s
from phasepoint.scale.steps.gpu import GPU_PARTS, gpu_parts, node_link
from phasepoint.scale.steps.memory import Memory, gpu_memory, tpu_memory
from phasepoint.scale.steps.tpu import TPU_PARTS, counted_flop, tpu_parts
from phasepoint.scale.steps.transformer import Layout, Transformer

USEFUL = frozenset({"products", "attention", "logits"})
"""Parts of a step that would be there on one device as well."""

WITHIN_90 = 1.645 * math.sqrt(math.pi / 2)
"""Half a 90 % interval of a normal error over the mean of its size."""

NOT_MEASURED_RATIO = 3.0
"""How far a step on GPUs may be off of which none was measured: its constants are those of eight B200. Llama 3 405B on
8,192 H100 took 12 s ("The Llama 3 Herd of Models", 2024, table 4: 430 TFLOP/s a GPU); this says 35 s, in the layout
that was used there. Stages that take turns in smaller parts, and what else is newer than the constants, are missing."""

MOST_TENSOR = 16
"""Chips of a TPU that share a matrix: no step with more of them was measured. A choice."""

AS_FAST = 0.01
"""A choice: of layouts within that of the fastest, the one that divides least comes first."""

MOST_IDLE = 0.15
"""A choice: of the layers that stages could hold, where their number does not divide the model's."""

_OF_FORWARD = frozenset({"products", "products, few rows", "products, few columns", "attention", "scores"}) | {
    "norms", "activations", "weights", "routing", "starts", "tensor links", "tensor hops", "tensor calls",
    "tensor network", "expert links",
}  # fmt: skip
"""Parts of a step on GPUs that a forward pass has, a third of them: what is done again where it is recomputed."""

_REMATS = ("none", "minimal", "full")
_MICRO_BATCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Machine:
    """The devices of a plan.

    Attributes:
        name: as it was asked for.
        device: each of them; of TPUs a core where the compiler sees cores.
        devices: chips of TPUs, GPUs.
        slices: of TPUs, joined by a network; 1 for GPUs.
        node: GPUs that fast links join; 0 for TPUs.
    """

    name: str
    device: DeviceSpec
    devices: int
    slices: int = 1
    node: int = 0

    @property
    def memory_bytes(self) -> float:
        """Of a GPU or a chip."""
        return self.device.memory_bytes.value * (1 if self.node else self.device.devices_per_chip)

    @property
    def flop_per_s(self) -> float:
        """Of a GPU or a chip, dense products in bf16.

        Raises:
            UsageError: that was not published.
        """
        rate = self.device.flop_per_s.get("bf16")
        if rate is None:
            raise UsageError(f"the bf16 rate of {self.device.name} is not known; see `phasepoint devices`")
        return rate.value * (1 if self.node else self.device.devices_per_chip)

    @property
    def hosts(self) -> int:
        """That carry the devices."""
        return -(-self.devices // CHIPS_A_HOST["" if self.node else "tpu"])


@dataclass(frozen=True)
class LayoutRow:
    """A step in one layout.

    Attributes:
        layout: what it is made of, by name: tensor, remat; tensor, pipeline, data, …
        batch: sequences of a step.
        parts_ps: of a step; they add up to it.
        low_ps, high_ps: of the step, 90 %.
        memory: bytes of a device, by part.
        limit_bytes: that it has.
        utilization: flop of the model over what all devices could do meanwhile.
        tokens_per_s: of all devices together.
        run: what a whole run takes; None where that was not asked for.
        cost: of it; None likewise.
    """

    layout: Mapping[str, int | str]
    batch: int
    parts_ps: Mapping[str, int]
    low_ps: int
    high_ps: int
    memory: Mapping[str, int]
    limit_bytes: int
    utilization: float
    tokens_per_s: float
    run: RunParts | None = None
    cost: float | None = None

    @property
    def step_ps(self) -> int:
        """Of a step."""
        return sum(self.parts_ps.values())

    @property
    def memory_bytes(self) -> int:
        """Of a device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether a device has the memory."""
        return self.memory_bytes <= self.limit_bytes

    @property
    def limited_by(self) -> str:
        """The largest part that one device alone would not have; its share is `parts_ps` over `step_ps`."""
        beside = {name: ps for name, ps in self.parts_ps.items() if name not in USEFUL}
        return max(beside, key=beside.__getitem__)


@dataclass(frozen=True)
class BatchPlan:
    """The best layouts for one batch.

    Attributes:
        batch: sequences of a step.
        priced: layouts that were priced.
        fitting: of them that fit.
        best: the fastest that fit, the first one first; empty where none does.
        faster: the fastest of all where memory forbids it; None where the best one fits.
        smallest: the one that needs the least memory, where none fits.
    """

    batch: int
    priced: int
    fitting: int
    best: tuple[LayoutRow, ...]
    faster: LayoutRow | None
    smallest: LayoutRow | None


def parse_machine(text: str) -> Machine:
    """Devices by name: `tpu-v5p:8x8x8`, `2*tpu-v5e:16x16` (two slices), `64*H100 SXM5`.

    Raises:
        UsageError: no such device or slice, or no number of them.

    Example:
        >>> machine = parse_machine("2*tpu-v5e:16x16")
        >>> machine.devices, machine.slices, parse_machine("64*NVIDIA B200").hosts
        (512, 2, 8)
    """
    count, star, name = text.partition("*")
    count, name = (count.strip(), name.strip()) if star else ("1", text.strip())
    if not count.isdecimal() or not 0 < int(count) <= 10**7:
        raise UsageError(
            f"--to {text!r}: {count!r} is no number of devices; expected something like 64*B200 or 2*tpu-v5e:16x16"
        )
    number = int(count)
    spec = device_spec(name)
    if spec is not None and node_link(spec) is not None:
        return Machine(text, spec, number, node=CHIPS_A_HOST[""])
    if spec is not None and spec.vendor != "Google":
        raise UsageError(
            f"--to {text!r}: layouts are priced on TPUs and on GPUs with NVLink; {spec.name} is neither, nor has it "
            f"Infinity Fabric"
        )
    alike = ", ".join(one.name for one in device_specs() if name and name.lower() in one.name.lower())
    try:
        topology = parse_topology(name)
    except UsageError as error:
        gpus = f"there are {alike}: say which" if alike else "GPUs as in '64*H100 SXM5', see `phasepoint devices`"
        raise UsageError(f"--to {text!r}: {error}; {gpus}") from error
    spec = device_spec(topology.generation.device)
    if spec is None or "ici" not in spec.link_bytes_per_s:
        raise UsageError(f"the links of {topology.generation.device} are not known; see `phasepoint devices`")
    return Machine(text, spec, topology.chips * number, slices=number)


def plan_layouts(
    model: Transformer, machine: Machine, batches: Sequence[int], *, top: int = 3, run: RunAsked | None = None
) -> list[BatchPlan]:
    """The fastest layouts for each batch.

    Args:
        model: the transformer, with the length of its sequences.
        machine: the devices.
        batches: sequences of a step.
        top: layouts to give for each.
        run: that the step is part of; its samples are sequences.

    Raises:
        UsageError: the devices cannot share any of the batches, or their peaks are not known.
    """
    price = _gpu_row if machine.node else _tpu_row
    layouts = gpu_layouts if machine.node else tpu_layouts
    plans = []
    for batch in batches:
        rows = [price(model, machine, batch, layout) for layout in layouts(model, machine, batch)]
        if not rows:
            continue
        rows.sort(key=lambda row: row.step_ps)
        fitting = _simplest_first([row for row in rows if row.fits])
        best = tuple(fitting[:top])
        if run is not None:
            whole = [run.with_steps(row.step_ps / PS_PER_S, batch, machine.hosts) for row in best]
            best = tuple(
                replace(row, run=parts, cost=run.cost(parts, machine.devices))
                for row, parts in zip(best, whole, strict=True)
            )
        faster = rows[0] if fitting and not rows[0].fits else None
        smallest = None if fitting else min(rows, key=lambda row: row.memory_bytes)
        plans.append(BatchPlan(batch, len(rows), len(fitting), best, faster, smallest))
    if not plans:
        asked = ", ".join(f"{batch:,}" for batch in batches)
        raise UsageError(
            f"no layout divides a batch of {asked} among {machine.devices:,} devices: with matrices shared by as many "
            f"as they can be ({model.heads} heads), each group of devices needs at least one sequence"
        )
    return plans


def _simplest_first(rows: list[LayoutRow]) -> list[LayoutRow]:
    """Of those that are as fast as the fastest, the one that divides matrices and layers least first."""
    if not rows:
        return rows

    def divided(row: LayoutRow) -> int:
        return math.prod(value for value in row.layout.values() if isinstance(value, int))

    as_fast = [row for row in rows if row.step_ps <= (1 + AS_FAST) * rows[0].step_ps]
    return [*sorted(as_fast, key=divided), *rows[len(as_fast) :]]


def plan_sizes(
    model: Transformer, machine: Machine, batch: int, *, run: RunAsked | None = None
) -> list[tuple[int, LayoutRow]]:
    """The best layout of one batch on all devices, on half of them, on a quarter, …: how a job scales.

    Args:
        model: the transformer.
        machine: the devices; slices are halved first, then the chips of the last one.
        batch: sequences of a step.
        run: that the step is part of.

    Returns:
        numbers of devices with their layouts, the fewest first; those on which no layout fits are left out.
    """
    found: list[tuple[int, LayoutRow]] = []
    while True:
        try:
            (plan,) = plan_layouts(model, machine, [batch], top=1, run=run)
        except UsageError:  # fewer sequences than groups of devices
            plan = None
        if plan is not None and plan.best:
            found.append((machine.devices, plan.best[0]))
        if machine.devices % 2 or (machine.slices > 1 and machine.slices % 2):
            return found[::-1]
        machine = replace(machine, devices=machine.devices // 2, slices=max(machine.slices // 2, 1))


def divisors(number: int, most: int) -> list[int]:
    """Its divisors up to a number.

    Example:
        >>> divisors(12, 6)
        [1, 2, 3, 4, 6]
    """
    return [part for part in range(1, min(number, most) + 1) if number % part == 0]


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


# TPUs: how many chips share a matrix, and what is done again


def tpu_layouts(model: Transformer, machine: Machine, batch: int) -> Iterable[dict[str, int | str]]:
    """Layouts that chips can have: each group of chips that share matrices has at least one whole sequence."""
    in_slice = machine.devices // machine.slices
    for tensor in _powers(min(model.heads, in_slice, MOST_TENSOR)):
        if in_slice % tensor or model.heads % tensor or batch * tensor % machine.devices:
            continue
        for remat in _REMATS:
            layout: dict[str, int | str] = {"tensor": tensor, "remat": remat}
            yield layout


def _tpu_row(model: Transformer, machine: Machine, batch: int, layout: Mapping[str, int | str]) -> LayoutRow:
    tensor, remat = int(layout["tensor"]), str(layout["remat"])
    each = batch / machine.devices
    parts = tpu_parts(
        model,
        machine.device,
        chips=machine.devices,
        slices=machine.slices,
        tensor=tensor,
        sequences_per_chip=each,
        remat=remat,
    )
    memory = tpu_memory(
        model,
        chips=machine.devices,
        slices=machine.slices,
        tensor=tensor,
        sequences_per_chip=each,
        remat=remat,
    )
    priced = _Priced(parts, memory, TPU_PARTS, *_constants("MaxText on TPU pods"))
    return _row(model, machine, batch, layout, priced)


# GPUs: matrices, layers, experts, replicas


def gpu_layouts(model: Transformer, machine: Machine, batch: int) -> Iterable[dict[str, int | str]]:
    """Layouts that GPUs can have; matrices are shared within a node."""
    experts = 1 if model.experts is None else model.experts.count
    for tensor in _powers(min(model.key_heads, machine.node, machine.devices)):
        for pipeline in divisors(machine.devices // tensor, model.layers):
            replicas, left = divmod(machine.devices, tensor * pipeline)
            idle = pipeline * -(-model.layers // pipeline) / model.layers - 1
            if left or model.heads % tensor or batch % replicas or idle > MOST_IDLE:
                continue
            for expert in _powers(min(experts, machine.devices // pipeline, machine.node)):
                if experts % expert or machine.devices // pipeline % expert:
                    continue
                for micro in _MICRO_BATCHES:
                    if batch // replicas % micro == 0:
                        spread: dict[str, int | str] = {"tensor": tensor, "pipeline": pipeline, "data": replicas}
                        spread |= ({"expert": expert} if experts > 1 else {}) | {"micro-batch": micro}
                        yield from (spread | {"recompute": again} for again in ("no", "full"))


def _gpu_row(model: Transformer, machine: Machine, batch: int, layout: Mapping[str, int | str]) -> LayoutRow:
    data, micro = int(layout["data"]), int(layout["micro-batch"])
    placed = Layout(
        devices=machine.devices,
        tensor=int(layout["tensor"]),
        pipeline=int(layout["pipeline"]),
        data=data,
        expert=int(layout.get("expert", 1)),
        micro_batch=micro,
        micro_batches=batch // (data * micro),
        node=machine.node,
    )
    constants, ratio = _constants("Megatron on 8 B200")
    is_measured = "B200" in machine.device.name and machine.devices <= machine.node
    # The slowest stage sets the pace: all stages are taken to have as many layers as it has.
    padded = replace(model, layers=placed.pipeline * -(-model.layers // placed.pipeline))
    recomputes = layout["recompute"] == "full"
    parts = gpu_parts(padded, placed, machine.device)
    if recomputes:
        parts = {name: seconds * (4 / 3 if name in _OF_FORWARD else 1) for name, seconds in parts.items()}
    priced = _Priced(
        parts,
        gpu_memory(padded, placed, recomputes=recomputes),
        GPU_PARTS,
        constants,
        ratio if is_measured else NOT_MEASURED_RATIO,
    )
    return _row(model, machine, batch, layout, priced)


# Both


@dataclass(frozen=True)
class _Priced:
    """Parts at the peak and memory, the table of the parts and its constants, and how far nine of ten steps are off."""

    parts: Parts
    memory: Memory
    table: tuple[Part, ...]
    constants: Mapping[str, float]
    error_ratio: float


def _constants(name: str) -> tuple[Mapping[str, float], float]:
    """A set of constants, and the ratio that nine of ten of its steps keep within when their model is left out."""
    found = shipped_constants()[name]
    constants, left_out = found["constants"], found["left_out"]
    assert isinstance(constants, dict)
    assert isinstance(left_out, dict)
    return constants, math.exp(WITHIN_90 * left_out["mape"])


def _row(
    model: Transformer, machine: Machine, batch: int, layout: Mapping[str, int | str], priced: _Priced
) -> LayoutRow:
    parts_ps = {
        name: round(seconds * PS_PER_S)
        for name, seconds in step_parts_s(priced.parts, priced.constants, priced.table).items()
    }
    step_ps = sum(parts_ps.values())
    tokens = batch * model.seq
    return LayoutRow(
        layout=layout,
        batch=batch,
        parts_ps=parts_ps,
        low_ps=round(step_ps / priced.error_ratio),
        high_ps=round(step_ps * priced.error_ratio),
        memory={name: round(size) for name, size in priced.memory.items()},
        limit_bytes=round(machine.memory_bytes),
        utilization=counted_flop(model, tokens) / (machine.flop_per_s * machine.devices * step_ps / PS_PER_S),
        tokens_per_s=tokens * PS_PER_S / step_ps,
    )


def notes_of(machine: Machine) -> list[str]:
    """What a reader has to know of the constants."""
    if not machine.node or ("B200" in machine.device.name and machine.devices <= machine.node):
        return []
    if "B200" in machine.device.name:
        return ["the constants are of eight B200; links between nodes are InfiniBand's: a factor of 3 either way"]
    return [f"no step was measured on {machine.device.name}: the constants are of eight B200, a factor of 3 either way"]
