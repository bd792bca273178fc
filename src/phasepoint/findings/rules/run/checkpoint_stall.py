"""Saving checkpoints holds up the job for longer than necessary.

**Formula.** For every checkpoint, the time for which the job was held, beyond the time for which an asynchronous save
would hold it. An asynchronous save holds the job while the state is copied: the median of the asynchronous saves of the
same run; if there are none, the checkpoint's size at {COPY_TOLD}, at most {COPY_MOST:.0%} of the save. For saves that
are already asynchronous, the time beyond {SLOW_RATIO:g} times their own median counts: they waited for the previous
save. A wait for an asynchronous save counts in full. Saves and waits from the last step on do not count: the program
may not end before its checkpoint is written. A checkpoint that the job only marked (`run.checkpoint(path, step)`) held
it since the device's work in that step ended, or for what the step lasted beyond those around it: docs/recording.md.

**Thresholds.** Reported from {LEAST_SHARE:.1%} of the run's time on: losing a machine without a checkpoint costs more
than that. Where saves take what they need, from {OFTEN_SHARE:.0%} on: then half of it can be won, by saving half as
often. {COPY_TOLD}: the least that copying to host memory reaches on the machines in use (PCIe 3, or one core's
copy), so that the claim is too small rather than too large. {COPY_MOST:.0%}: writing to a disk is slower than copying
by at least that factor.

**Remedy.** Save in the background: Orbax `ocp.AsyncCheckpointer` or a `CheckpointManager` with
`CheckpointManagerOptions(enable_async_checkpointing=True)`; PyTorch `torch.distributed.checkpoint.async_save`, or
`torch.save` of a copied state in a thread. Save to a local disk first. Save less often: the best interval is about √(2
× save time × mean time between failures). If the job waits for saves that could continue in the background, call
`wait_until_finished()` only before the checkpoint is read and before the program ends, not after each save.

**Wrong when** host memory has no room for a second copy of the state, or the file system is so slow that a save has not
finished when the next one begins; on a CPU, writing in the background takes cores from the training step.

**Source.** The recorder's hooks around `torch.save`, Orbax's saves and its `wait_until_finished`, and the job's own
marks; the interval: Young, "A first order approximation to the optimum checkpoint interval" (1974).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import PS_PER_S, format_bytes, format_count, format_ps, format_ratio
from phasepoint.findings.evidence.held_time import HeldTime, held_time
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.accounting import checkpoint_stretches, recorder_work
from phasepoint.phases.clock.marked_checkpoints import UNKNOWN
from phasepoint.phases.clock.steps import RunClock, sum_ps

LEAST_SHARE = 0.015
OFTEN_SHARE = 0.05
COPY_BYTES_PER_S = 2_000_000_000
"""The least that copying to host memory reaches, as the page says."""
COPY_TOLD = f"{format_bytes(COPY_BYTES_PER_S)}/s"
COPY_MOST = 0.2
SLOW_RATIO = 3.0
"""Asynchronous saves differ by that much from noise alone."""


def find(view: FindingsView) -> list[Finding]:
    """Time held by saves beyond what asynchronous ones hold, and by waits for asynchronous ones."""
    saves, clock = view.table("checkpoints"), view.clock
    if not saves.num_rows:
        raise Unavailable(
            "no checkpoint was seen: torch.save and Orbax are noticed by themselves; tell of others with "
            "`run.checkpoint(path, step)`"
        )
    basis = saves.column("basis")
    if pc.all(pc.equal(basis, UNKNOWN)).as_py():
        raise Unavailable(
            f"{_told(saves)} marked with `run.checkpoint(path, step)`, but no steps without one show how long "
            "each held the job: put `with run.checkpoint(path, step):` around the save"
        )
    waits = _before_the_end(clock, view.table("checkpoint_waits"))
    stretches = checkpoint_stretches({"checkpoints": saves, "checkpoint_waits": waits})
    no_time = np.zeros(waits.num_rows, np.int64)
    room_ps, first = view.step_parts.checkpoint_ps, (recorder_work(view.table("gaps")),)

    def held_beyond(needed_ps: Int64s) -> HeldTime:
        return held_time(clock, stretches, room_ps, first, skip_ps=np.concatenate((needed_ps, no_time)))

    is_ended = ~_is_before_the_end(clock, saves)
    needed_ps = np.where(is_ended, _durations(saves), _needed_ps(saves))
    held, everything = held_beyond(needed_ps), held_beyond(np.zeros_like(needed_ps))
    if held.total_ps < LEAST_SHARE * clock.wall_ps:
        return _find_often(view, saves, everything, held_beyond(np.where(is_ended, _durations(saves), 0)))
    least = held_beyond(np.maximum(needed_ps, (COPY_MOST * _durations(saves)).astype(np.int64)))
    error_ps = _error_ps(saves)
    measured = waits.num_rows or not _asynchronous(saves).all()
    return [
        Finding(
            code="CHECKPOINT-STALL",
            title=f"{_told(saves)} held the job for {format_ps(everything.total_ps)}, "
            f"{format_ratio(everything.total_ps / clock.wall_ps)} of the run{_interval(saves)}{_waited(waits)}",
            claim=Claim("checkpoint", held.by_step, held.outside_ps),
            low_ps=max(min(least.total_ps, held.total_ps) - error_ps, 0),
            high_ps=max(everything.total_ps, held.total_ps) + error_ps,
            phase=view.phase_of_most(held.by_step),
            remedy=_remedy(saves, waits),
            evidence=(_evidence(saves), *_evidence_of_waits(waits)),
            confidence="high" if measured and not error_ps else "medium",
            wrong_if="there is no memory for a second copy of the state, or writing in the background takes the cores "
            "that the step needs",
        )
    ]


def _find_often(view: FindingsView, saves: pa.Table, everything: HeldTime, early: HeldTime) -> list[Finding]:
    """Saves that need what they take: half of it, where all of it is much."""
    wall_ps = view.clock.wall_ps
    share = format_ratio(everything.total_ps / max(wall_ps, 1))
    if everything.total_ps < OFTEN_SHARE * wall_ps:
        return []
    if early.total_ps < OFTEN_SHARE * wall_ps:
        raise Unavailable(
            f"{_told(saves)} held the job for {format_ps(everything.total_ps)}, {share} of the run, most of it when "
            "the job ended, where it must: a longer run would show what those within it cost"
        )
    half_ps, error_ps = early.by_step // 2, _error_ps(saves)
    claim = Claim("checkpoint", half_ps, early.outside_ps // 2)
    return [
        Finding(
            code="CHECKPOINT-STALL",
            title=f"{_told(saves)} held the job for {format_ps(early.total_ps)}, {share} of the run{_interval(saves)}: "
            "as long as each needs",
            claim=claim,
            low_ps=max(claim.total_ps - error_ps, 0),
            high_ps=early.total_ps + error_ps,
            phase=view.phase_of_most(half_ps),
            remedy="save half as often",
            evidence=(_evidence(saves),),
            confidence="medium",
            wrong_if="losing the steps since the last checkpoint costs more than saving it",
        )
    ]


def _error_ps(saves: pa.Table) -> int:
    """Half of the interval of 95 % of what was estimated of them."""
    errors = np.asarray(saves.column("error_ps").to_numpy(), np.float64)
    return round(1.96 * float(np.sqrt((errors**2).sum())))


def _before_the_end(clock: RunClock, rows: pa.Table) -> pa.Table:
    """Those after which the job went on."""
    return rows.filter(pa.array(_is_before_the_end(clock, rows)))


def _is_before_the_end(clock: RunClock, rows: pa.Table) -> Bools:
    """`[n]` which of some saves or waits began before the last step of their session did."""
    last_ps = [clock.start_ps[session.rows].max(initial=-1) for session in clock.sessions]
    begun_ps = {(session.host, session.attempt): ps for session, ps in zip(clock.sessions, last_ps, strict=True)}
    listed = rows.select(["host", "attempt", "start_ps"]).to_pylist()
    return np.array([row["start_ps"] < begun_ps.get((row["host"], row["attempt"]), -1) for row in listed], bool)


def _durations(saves: pa.Table) -> Int64s:
    return np.asarray(saves.column("dur_ps").to_numpy(), np.int64)


def _needed_ps(saves: pa.Table) -> Int64s:
    """`[n]` what each save has to hold the job for."""
    dur_ps, is_async = _durations(saves), _asynchronous(saves)
    size = np.asarray(pc.fill_null(saves.column("bytes"), 0).to_numpy(), np.int64)
    copy_ps = np.minimum(size * (PS_PER_S // COPY_BYTES_PER_S), (COPY_MOST * dur_ps).astype(np.int64))
    if not is_async.any():
        return np.asarray(copy_ps, np.int64)
    usual_ps = median_ps(dur_ps[is_async])
    needed = np.where(is_async, int(SLOW_RATIO * usual_ps), usual_ps)
    return np.asarray(np.minimum(needed, dur_ps), np.int64)


def _asynchronous(saves: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(pc.fill_null(saves.column("asynchronous"), False).to_numpy(zero_copy_only=False), bool)


def _told(saves: pa.Table) -> str:
    n, n_async = saves.num_rows, int(_asynchronous(saves).sum())
    is_told = not saves.column("asynchronous").null_count
    sort = "asynchronous " if n_async == n else "synchronous " if not n_async and is_told else ""
    return f"{format_count(n)} {sort}{'checkpoint' if n == 1 else 'checkpoints'}"


def _interval(saves: pa.Table) -> str:
    """`, one every 500 steps`: the median distance on one host; empty where it is not known."""
    host = saves.column("host")
    steps = saves.filter(pc.and_(pc.equal(host, host[0]), pc.is_valid(saves.column("step")))).column("step")
    at: Int64s = np.unique(np.asarray(steps.to_numpy(), np.int64))
    return f", one every {format_count(median_ps(at[1:] - at[:-1]))} steps" if len(at) > 1 else ""


def _waited(waits: pa.Table) -> str:
    """`; it waited for them 3 times, 2 s in all`; empty where it did not."""
    if not waits.num_rows:
        return ""
    held_ps = sum_ps(np.asarray(waits.column("dur_ps").to_numpy(), np.int64))
    return f"; it waited for them {format_count(waits.num_rows)} times, {format_ps(held_ps)} in all"


_OF_TRAINERS = {
    "lightning": "save in the background: Trainer(plugins=[AsyncCheckpointIO()]); or save less often",
    "transformers": "save less often (save_steps), or what is needed alone (save_only_model=True where none restarts)",
    "accelerate": "call save_state less often, or only save_model where nothing restarts from it",
    "keras": "save less often (save_freq), or the weights alone (save_weights_only=True)",
    "user": "copy the state to host memory and write it in a thread; or save less often",
}
"""By framework that saves for the job, or for a job that saves by itself, what makes that cheaper."""


def _remedy(saves: pa.Table, waits: pa.Table) -> str:
    if waits.num_rows and _asynchronous(saves).all():
        return (
            "do not wait after each save: call wait_until_finished() only before the checkpoint is read and before the "
            "program ends; a save waits by itself for the one before it"
        )
    if _asynchronous(saves).all():
        return (
            "save less often: each save waits for the one before it; or write to a local disk first and copy from there"
        )
    frameworks = pc.unique(saves.column("framework").cast(pa.string())).to_pylist()
    for framework, remedy in _OF_TRAINERS.items():
        if framework in frameworks:
            return remedy
    if "torch" in frameworks:
        return (
            "save in the background: torch.distributed.checkpoint.async_save(…), or torch.save of a copied state in a "
            "thread; or save less often"
        )
    return (
        "save in the background: Orbax ocp.AsyncCheckpointer, or "
        "CheckpointManagerOptions(enable_async_checkpointing=True); or save less often"
    )


def _evidence(saves: pa.Table) -> Evidence:
    longest_ps = pc.max(saves.column("dur_ps")).as_py()
    return Evidence(
        f"{_told(saves)}, the longest held the job for {format_ps(longest_ps)}",
        "checkpoints",
        "select host, step, path, dur_ps, bytes, asynchronous, framework from checkpoints order by dur_ps desc",
    )


def _evidence_of_waits(waits: pa.Table) -> list[Evidence]:
    if not waits.num_rows:
        return []
    longest_ps = pc.max(waits.column("dur_ps")).as_py()
    return [
        Evidence(
            f"the job waited for a checkpoint being written {format_count(waits.num_rows)} times, the longest "
            f"{format_ps(longest_ps)}",
            "checkpoint_waits",
            "select host, step, start_ps, dur_ps, framework from checkpoint_waits order by dur_ps desc",
        )
    ]
