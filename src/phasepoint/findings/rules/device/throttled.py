"""The GPU ran below its clock because something held it down: its limit on power, heat, or its hardware's own guard.

**Formula.** The driver says at each sample (once a second) at which clock the device runs and whether something holds
it down (table `counters`: `gpu.clock`, `gpu.slowed.power`, `.heat`, `.hardware`). A step goes with the sample nearest
to its middle. The clock without a brake is the median of the samples without one while the device was busy, else the
device's most. Of each slowed step the part 1 - clock / clock without a brake is claimed, of several devices the
largest, of the time that nothing else in the account has. The lower end is measured: by how much slowed steps are
longer than steps of the same phase that were not, where there are {LEAST_STEPS} of both; else nothing.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on. Samples at which the device is busy for less than
{LEAST_BUSY:.0%} say nothing of its clock without a brake: idle devices clock down.

**Remedy.** Power: raise the limit if the board allows it (`nvidia-smi --power-limit`), or do the same work with fewer
joules: bfloat16, fused kernels, structured batches. Heat: more air, fewer boards at full load in one case, another
machine; a device that is hotter than its neighbours wants to be looked at (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`).
Hardware: power supply or cooling fails; take the machine out of service.

**Wrong when** the device waits for its memory: then the clock of its cores costs little, and the lower end says so. The
driver samples; what holds for less than a second between two samples is not seen.

**Source.** NVML API reference, nvmlDeviceGetCurrentClocksEventReasons; see recorder/clock/gpus.py.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_ratio
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

LEAST_SHARE = 0.02
LEAST_STEPS = 20
LEAST_BUSY = 0.5

_SLOWED = "gpu.slowed."
_REMEDIES = {
    "power": "raise the board's limit on power where it allows it (nvidia-smi --power-limit), or do the work with "
    "fewer joules (bfloat16, fused kernels)",
    "heat": "cool the device: more air, fewer boards at full load in one case, another machine",
    "hardware": "look at the device's power supply and cooling (nvidia-smi -q -d PERFORMANCE), or take another machine",
}


@dataclass(frozen=True, eq=False)
class _Slowed:
    """Steps `[n_steps]` with their device's clock held down.

    Attributes:
        lost: part of the clock that is missing; 0 where nothing holds it down.
        reason: index into `_REMEDIES` of what holds it, -1 for nothing.
        clock_mhz: of the device; NaN where no sample tells.
        free_mhz: the clock without a brake.
    """

    lost: Floats
    reason: Int64s
    clock_mhz: Floats
    free_mhz: Floats


def find(view: FindingsView) -> list[Finding]:
    """The time that steps with a clock held down would not have taken."""
    view.need_steps()
    slowed = _slowed_steps(view)
    claimed_ps = np.asarray(slowed.lost * view.step_parts.rest_ps, np.int64)
    total_ps = sum_ps(claimed_ps)
    if total_ps < max(LEAST_SHARE * view.clock.wall_ps, 1):
        return []
    held = slowed.lost > 0
    by_reason = np.bincount(slowed.reason[held], claimed_ps[held], len(_REMEDIES))
    why = list(_REMEDIES)[int(by_reason.argmax())]
    clock_mhz, free_mhz = (float(np.median(of[held])) for of in (slowed.clock_mhz, slowed.free_mhz))
    share = sum_ps(view.clock.dur_ps[held]) / view.clock.wall_ps
    text = f"{clock_mhz:,.0f} instead of {free_mhz:,.0f} MHz"
    return [
        Finding(
            code="GPU-THROTTLED",
            title=f"{why} held the GPU's clock down in {format_ratio(share)} of the run: {text}",
            claim=Claim("compute", claimed_ps),
            low_ps=min(_measured_ps(view, held), total_ps),
            high_ps=total_ps,
            phase=view.phase_of_most(claimed_ps),
            remedy=_REMEDIES[why],
            evidence=(
                Evidence(
                    f"{text} in the median of {int(held.sum()):,} steps",
                    "counters",
                    "select host, device, name, time_ps, value from counters where name like 'gpu.%' order by time_ps",
                ),
            ),
            confidence="medium",
            wrong_if="the device waits for its memory, not for its cores: then their clock costs little",
        )
    ]


def _measured_ps(view: FindingsView, held: Bools) -> int:
    """By how much slowed steps are longer than others of their phase, where both are enough."""
    dur_ps, total_ps = view.clock.dur_ps, 0
    for phase in view.phases:
        mine = view.labels == phase
        slow, free = dur_ps[mine & held], dur_ps[mine & ~held]
        if min(len(slow), len(free)) >= LEAST_STEPS:
            total_ps += max(median_ps(slow) - median_ps(free), 0) * len(slow)
    return total_ps


def _slowed_steps(view: FindingsView) -> _Slowed:
    """The worst of each step's devices.

    Raises:
        Unavailable: no sample tells of a clock.
    """
    clock, counters = view.clock, view.table("counters")
    counters = counters.filter(pc.starts_with(counters["name"].cast(pa.string()), "gpu."))
    n = clock.n_steps
    found = _Slowed(np.zeros(n), np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan))
    is_known = False
    for session, rows in zip(clock.sessions, clock.split(counters), strict=True):
        middle_ps = clock.start_ps[session.rows] + clock.dur_ps[session.rows] // 2
        for device in sorted(set(rows["device"].cast(pa.string()).to_pylist())):
            samples = _Samples.of(rows.filter(pc.equal(rows["device"].cast(pa.string()), device)))
            if samples is None or not len(middle_ps):
                continue
            is_known = True
            at = samples.nearest(middle_ps)
            free_mhz = samples.free_mhz()
            lost = np.where(samples.reason[at] >= 0, np.clip(1 - samples.clock_mhz[at] / free_mhz, 0.0, 1.0), 0.0)
            mine = np.flatnonzero(lost >= found.lost[session.rows])
            worse = mine + session.first_row
            found.lost[worse], found.reason[worse] = lost[mine], samples.reason[at[mine]]
            found.clock_mhz[worse], found.free_mhz[worse] = samples.clock_mhz[at[mine]], free_mhz
    if not is_known:
        raise Unavailable(
            "the clock of no NVIDIA GPU was recorded: it is where the job runs on one and nvidia-ml-py is installed "
            "(pip install 'phasepoint[gpu]')"
        )
    return found


@dataclass(frozen=True, eq=False)
class _Samples:
    """A device's samples `[n]` in the order of time."""

    at_ps: Int64s
    clock_mhz: Floats
    most_mhz: float
    busy: Floats
    reason: Int64s

    @classmethod
    def of(cls, rows: pa.Table) -> "_Samples | None":
        """From a device's counters; None where its clock is in none."""
        names = np.asarray(rows["name"].cast(pa.string()).to_pylist(), object)
        time_ps, value = rows["time_ps"].to_numpy(), rows["value"].to_numpy()
        at_ps = np.unique(time_ps[names == "gpu.clock"])
        if not len(at_ps):
            return None

        def column(name: str, missing: float) -> Floats:
            mine, found = names == name, np.full(len(at_ps), missing)
            place = np.searchsorted(at_ps, time_ps[mine])
            fits = (place < len(at_ps)) & (at_ps[np.minimum(place, len(at_ps) - 1)] == time_ps[mine])
            found[place[fits]] = value[mine][fits]
            return found

        clock_mhz = column("gpu.clock", np.nan)
        reason = np.full(len(at_ps), -1)
        for number, why in reversed(list(enumerate(_REMEDIES))):  # the first of several stands
            reason[column(f"{_SLOWED}{why}", 0.0) > 0] = number
        most_mhz = float(np.nanmax(np.concatenate((column("gpu.clock.most", np.nan), clock_mhz))))
        return cls(at_ps, clock_mhz, most_mhz, column("gpu.busy", 1.0), reason)

    def nearest(self, at_ps: Int64s) -> Int64s:
        """Number of the sample nearest to each moment."""
        between = (self.at_ps[1:] + self.at_ps[:-1]) // 2
        return np.searchsorted(between, at_ps)

    def free_mhz(self) -> float:
        """The clock while the device was busy and nothing held it down."""
        free = self.clock_mhz[(self.reason < 0) & (self.busy >= LEAST_BUSY)]
        return float(np.median(free)) if len(free) else self.most_mhz
