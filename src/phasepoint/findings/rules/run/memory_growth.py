"""Memory grows from step to step and does not stop: the job will run out of it if it lasts long enough.

**Formula.** Resident memory is sampled once a second. The first {WARM_UP:.0%} of a session (compiling, filling caches)
is left out; the rest is cut into {PARTS} stretches of equal length. The growth is the median slope between the
stretches' medians (Theil and Sen), its interval comes from their scatter about that line and from {MODEL_ERROR:.0%} of
it. Memory runs out when the line reaches the limit that the recorder noted: the machine's memory, or the container's.
No time is claimed: growth itself costs none; if steps become slower with it, `DRIFT` reports that.

**Thresholds.** Growth of at least {LEAST_GROWTH:.0%} and {LEAST_MIB} MiB over these stretches: allocators alone grow by
less. It must rise in {LEAST_RISES} of the {RISES} steps from one stretch to the next, with no step more than
{MOST_JUMP:.0%} of it all: caches that fill grow in jumps and then stay constant. The second half must grow at least
{LEAST_LATER:.0%} as fast as the first: growth that levels off does not exhaust the memory.

**Remedy.** Find the references that are kept: losses and metrics that are appended as tensors or device arrays (append
`float(loss)` every so many steps, or `loss.detach()`), lists of batches, closures, caches keyed by shape.
`tracemalloc.start()` and two snapshots a few hundred steps apart name the line, for native memory `memray run`.
`jax.clear_caches()` removes programs compiled for ever new shapes.

**Wrong when** the job fills a cache of known size (a data set kept in memory, a replay buffer) and the recording ended
before it was full; or if memory is lost in other processes (loader workers), which are not seen.

**Source.** Theil (1950), Sen (1968): median of pairwise slopes. Sampled by recorder/clock/epoch.py.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.units import PS_PER_S, format_bytes, format_ps
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import SessionClock

WARM_UP = 0.25
PARTS = 6
RISES = PARTS - 1
LEAST_RISES = RISES - 1
LEAST_SAMPLES = PARTS + 2
"""Each stretch must have one, and two more, as samples do not fall evenly."""
LEAST_GROWTH = 0.05
LEAST_MIB = 32
MOST_JUMP = 0.4
LEAST_LATER = 0.5

MODEL_ERROR = 0.05
"""What is added to the interval's half width, as a ratio of the slope: an allocator's jumps hang together."""

LIMIT = "memory.limit"
"""Counter of the recorder: bytes that the process can have at most."""

_COLUMNS = {"host_rss_bytes": "host memory", "device_memory_bytes": "device memory"}


@dataclass(frozen=True)
class Growth:
    """Steady growth in one session.

    Attributes:
        session: whose.
        column: of the steps table.
        bytes_per_s: slope.
        half_bytes_per_s: half width of its 95 % interval.
        first_bytes: at the beginning, after the warm-up.
        last_bytes: at the end.
        span_s: seconds between the two.
        steps: steps between the two.
    """

    session: SessionClock
    column: str
    bytes_per_s: float
    half_bytes_per_s: float
    first_bytes: float
    last_bytes: float
    span_s: float
    steps: int


def find(view: FindingsView) -> list[Finding]:
    """The host's memory and the device's, each in the session in which it grows fastest."""
    view.need_steps()
    sampled = {name: _sampled(view, name) for name in _COLUMNS}
    most = max(len(rows) for of_session in sampled.values() for rows in of_session)
    if most < LEAST_SAMPLES:
        raise Unavailable(
            f"memory was sampled {most} times in a session after its warm-up (once a second, inside steps); at least "
            f"{LEAST_SAMPLES} samples are needed: record for longer"
        )
    found = []
    for column, of_session in sampled.items():
        grown = [_growth(view, *pair, column) for pair in zip(view.clock.sessions, of_session, strict=True)]
        known = [growth for growth in grown if growth is not None]
        if known:
            found.append(_finding(view, max(known, key=lambda growth: growth.bytes_per_s)))
    return found


def _sampled(view: FindingsView, column: str) -> list[Int64s]:
    """By session, the rows of the clock with a sample, without the warm-up."""
    clock = view.clock
    known = pc.is_valid(view.table("steps").column(column)).to_numpy()
    found = []
    for session in clock.sessions:
        rows = np.flatnonzero(known[session.rows]) + session.first_row
        if len(rows):
            first_ps, last_ps = clock.start_ps[rows[0]], clock.start_ps[rows[-1]]
            rows = rows[clock.start_ps[rows] >= first_ps + WARM_UP * (last_ps - first_ps)]
        found.append(rows)
    return found


def _growth(view: FindingsView, session: SessionClock, rows: Int64s, column: str) -> Growth | None:
    """The growth of a session's memory, None where it is not steady."""
    if len(rows) < LEAST_SAMPLES:
        return None
    values = view.table("steps").column(column).take(rows).to_numpy().astype(np.float64)
    at_s = view.clock.start_ps[rows] / PS_PER_S
    edges = np.linspace(at_s[0], at_s[-1], PARTS + 1)[1:-1]
    part = np.searchsorted(edges, at_s, side="right")
    if len(np.unique(part)) < PARTS:
        return None  # long stretches without a sample: nothing can be said of what lies between
    middle_s, middle = (np.array([np.median(of[part == i]) for i in range(PARTS)]) for of in (at_s, values))
    if not _is_steady(middle):
        return None
    slope, half = _slope(middle_s, middle)
    span_s = float(at_s[-1] - at_s[0])
    level = float(np.median(middle - slope * middle_s))
    first, last = (slope * float(at) + level for at in (at_s[0], at_s[-1]))
    steps = int(rows[-1] - rows[0])
    return Growth(session, column, slope, half, first, last, span_s, steps) if slope > half else None


def _is_steady(middle: Floats) -> bool:
    """Whether the stretches' medians grow enough, throughout, evenly, and up to the end."""
    rises = np.diff(middle)
    total = float(middle[-1] - middle[0])
    if total < max(LEAST_GROWTH * float(middle[0]), LEAST_MIB * 2**20):
        return False
    half = PARTS // 2
    earlier, later = float(middle[half - 1] - middle[0]), float(middle[-1] - middle[half])
    throughout = int((rises > 0).sum()) >= LEAST_RISES and float(rises.max()) <= MOST_JUMP * total
    return throughout and later >= LEAST_LATER * earlier


def _slope(at_s: Floats, values: Floats) -> tuple[float, float]:
    """Median of the pairwise slopes, and half the width of its 95 % interval, from the scatter about the line."""
    from phasepoint.core.statistics import t_quantile

    i, j = np.triu_indices(len(at_s), 1)
    slope = float(np.median((values[j] - values[i]) / (at_s[j] - at_s[i])))
    rest = values - slope * at_s
    freedom = len(at_s) - 2
    spread = float(np.sqrt(((rest - np.median(rest)) ** 2).sum() / freedom))
    standard_error = spread / float(np.sqrt(((at_s - at_s.mean()) ** 2).sum()))
    return slope, t_quantile(0.975, freedom) * standard_error + MODEL_ERROR * abs(slope)


def _finding(view: FindingsView, growth: Growth) -> Finding:
    name, session = _COLUMNS[growth.column], growth.session
    where = f" on host {session.host}" if len({s.host for s in view.clock.sessions}) > 1 else ""
    rate = f"{format_bytes(60 * growth.bytes_per_s)} a minute"
    until = _until(view, growth)
    return Finding(
        code="MEMORY-GROWTH",
        title=f"{name}{where} grows by {rate}, {format_bytes(growth.bytes_per_s * growth.span_s / growth.steps)} a step"
        f"{until}",
        claim=Claim("outside", np.zeros(view.clock.n_steps, np.int64)),
        low_ps=0,
        high_ps=0,
        remedy="find what keeps references: append float(loss), not the tensor; compare two tracemalloc snapshots a "
        "few hundred steps apart, or run memray; jax.clear_caches() where shapes keep changing",
        evidence=(
            Evidence(
                f"from {format_bytes(growth.first_bytes)} to {format_bytes(growth.last_bytes)} in "
                f"{format_ps(growth.span_s * PS_PER_S)}, {rate} ± {format_bytes(60 * growth.half_bytes_per_s)}",
                "steps",
                f"select step, start_ps, {growth.column} from steps where host = {session.host} and "
                f"attempt = {session.attempt} and {growth.column} is not null order by step",
            ),
        ),
        confidence="high" if growth.half_bytes_per_s < 0.25 * growth.bytes_per_s else "medium",
        wrong_if="the job fills a cache or a buffer of known size and then stops growing",
    )


def _until(view: FindingsView, growth: Growth) -> str:
    """When it runs out, after the recording's end; empty where the limit is not known."""
    if growth.column != "host_rss_bytes":
        return ""
    counters = view.table("counters")
    mine = pc.and_(
        pc.equal(counters.column("name").cast("string"), LIMIT),
        pc.equal(counters.column("host"), growth.session.host),
    )
    limits = counters.filter(mine).column("value").to_pylist()
    if not limits:
        return ""
    left = max(min(limits) - growth.last_bytes, 0.0)
    soon, late = (
        left / rate * PS_PER_S
        for rate in (growth.bytes_per_s + growth.half_bytes_per_s, growth.bytes_per_s - growth.half_bytes_per_s)
    )
    return f"; {format_bytes(min(limits))} are full {format_ps(soon)} to {format_ps(late)} after the recording's end"
