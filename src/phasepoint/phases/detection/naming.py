"""From a phase's evidence to its name.

Rules are tried in order; the first that holds names the phase. Several phases of one sort are numbered in
order of appearance. The longest phase that nothing else explains is `train`: that is what the job is for, unless its
ops are known and say otherwise (`job_of`).

A name that says why a step lasts as it does needs evidence of its own: compiling that was measured, a checkpoint that
was written in it, ops that only go forward, a wait that was timed. Where there is none, the name says what was seen:
`slow 3.0 ×`, `short 0.6 ×`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import format_ps


class RanOps(NamedTuple):
    """What the captured steps of a phase ran.

    Attributes:
        names: of all ops; empty where nothing was captured.
        keys: of ops and their programs, None where programs are not known.
        trains: whether they hold an op of a backward pass or of an optimizer.
        tells: names of ops among which those of a backward pass or of an optimizer would show.
    """

    names: frozenset[str] = frozenset()
    keys: frozenset[int] | None = None
    trains: bool = False
    tells: int = 0


@dataclass(frozen=True, eq=False)
class PhaseEvidence:
    """What is known of one phase when it is named.

    Attributes:
        number: its id.
        role: what the method knows it to be, null where it does not.
        n_steps: its steps.
        n_run: steps of the run.
        first_index: position of its first step in the run.
        last_index: position of its last step in the run.
        starts: positions at which its segments begin, rising.
        total_ps: time of its steps, in ps.
        median_ps: median step duration, in ps.
        compile_share: part of its time spent compiling, null where unknown.
        input_share: part of its time spent waiting for data, null where unknown.
        hint: the user's name for more than half of its steps, null where there is none.
        ran: what its captured steps ran.
        saved_ps: median time for which checkpoints held its steps, in ps.
        updates: whether each of its steps is known to have updated the parameters.
        graph_nodes: operations that its steps noted for a backward pass, in the median; null where
            less than half of them are known.
        batch_elements: elements of their batches, likewise.
        period: steps from one return to the next, null where it does not return regularly.
    """

    number: int
    role: str | None
    n_steps: int
    n_run: int
    first_index: int
    last_index: int
    starts: Int64s
    total_ps: int
    median_ps: int
    compile_share: float | None = None
    input_share: float | None = None
    hint: str | None = None
    ran: RanOps = field(default_factory=RanOps)
    saved_ps: int = 0
    updates: bool = False
    graph_nodes: int | None = None
    batch_elements: int | None = None
    period: float | None = None

    @property
    def recurs(self) -> bool:
        """Whether it appears in three stretches or more."""
        return len(self.starts) >= 3

    @property
    def stretch(self) -> float:
        """Mean steps of a stretch."""
        return self.n_steps / len(self.starts)


class PhaseName(NamedTuple):
    """What a phase is, what it is called, and why.

    Attributes:
        kind: what this package takes it to be: compile, train, inference, main, drift, input stall, checkpoint, eval,
            warm-up, or slow or short where nothing says why; `named` where the job's own name says none of train and
            eval.
        name: for the reader; unique in the run. The job may have given it, so it says nothing of the kind.
        why: the evidence it rests on.
    """

    kind: str
    name: str
    why: str


LEAST_TELLING = 8
"""Distinct ops of a framework from which on none of a backward pass means that there is none: a single linear layer
trained in PyTorch shows 30 (MI250, trace of two steps), a matrix product that is timed by itself 2."""

TRAIN, INFERENCE, MAIN = "train", "inference", "main"
"""What a job does in its usual steps: train; only go forward; something that its ops do not tell."""


@dataclass(frozen=True)
class KnownOfJob:
    """What is known of a job as a whole when its phases are named.

    Attributes:
        updates: whether each of its steps is known to have updated the parameters.
        imported: whether its steps come from a trace of anything; the recorder follows jobs that train.
        goes_back: whether its programs' operations belong to a backward pass; None where their names do not tell.
    """

    updates: bool = False
    imported: bool = False
    goes_back: bool | None = None


def job_of(ran: Sequence[RanOps], known: KnownOfJob) -> str:
    """What the job does.

    It trains if an op of a backward pass or of an optimizer ran. It only goes forward if enough ops ran by which
    training would show and none of these did. Else a recorded job trains, and what an imported one does is not known.

    Args:
        ran: what the captured steps of each phase ran.
        known: of the job.
    """
    if known.updates or known.goes_back or any(one.trains for one in ran):
        return TRAIN
    if known.goes_back is False or max(one.tells for one in ran) >= LEAST_TELLING:
        return INFERENCE
    return MAIN if known.imported and any(one.names for one in ran) else TRAIN


NAMED = "named"
"""Kind of a phase that the job named, by words of its own."""

Rule = Callable[[PhaseEvidence, PhaseEvidence], tuple[str, str] | None]
"""A phase and the run's main phase → (kind, why), or null where the rule does not hold."""


def name_phases(evidence: Sequence[PhaseEvidence], known: KnownOfJob | None = None) -> tuple[PhaseName, ...]:
    """Kind, name and reason of every phase, in the order given; names are unique."""
    job = job_of([phase.ran for phase in evidence], known or KnownOfJob())
    main = max(evidence, key=_main_rank)
    # A job that names its evaluation itself leaves nothing to guess: what it did not name is no evaluation.
    names_eval = any(phase.hint is not None and phase.hint.startswith("eval") for phase in evidence)
    rules = [rule for rule in _RULES if not (names_eval and rule is _eval)]
    named = [_by_job(_name(phase, main, rules), phase, job) for phase in evidence]
    sorts = [phase.name for phase in named]
    seen: dict[str, int] = {}
    result = []
    for kind, name, why in named:
        seen[name] = seen.get(name, 0) + 1
        result.append(PhaseName(kind, f"{name}-{seen[name]}" if sorts.count(name) > 1 else name, why))
    return tuple(result)


def _by_job(named: PhaseName, phase: PhaseEvidence, job: str) -> PhaseName:
    """Usual steps of a job that does not train are called by what it does, unless the job named them."""
    if job == TRAIN or named.kind != TRAIN or phase.hint is not None:
        return named
    why = "no op of a backward pass or of an optimizer" if job == INFERENCE else "what it does cannot be known"
    return PhaseName(job, job, f"{named.why}; {why}")


def _main_rank(phase: PhaseEvidence) -> tuple[bool, int, int]:
    plain = phase.role is None and (phase.hint is None or phase.hint.startswith("train"))
    return (plain and not _compiles(phase), phase.total_ps, phase.n_steps)


def _name(phase: PhaseEvidence, main: PhaseEvidence, rules: Sequence[Rule]) -> PhaseName:
    for rule in rules:
        found = rule(phase, main)
        if found is not None:
            kind, why = found
            return PhaseName(kind, _name_of(phase, main, kind, is_hinted=rule is _hinted), why)
    return PhaseName("train", "train", "the same sort of step as the main phase")


def _name_of(phase: PhaseEvidence, main: PhaseEvidence, kind: str, *, is_hinted: bool) -> str:
    if is_hinted and phase.hint is not None:
        return phase.hint
    if kind not in ("slow", "short"):
        return kind
    times = _slowness(phase, main)
    return f"{kind} {times:.2g} ×" if times < 10 else f"{kind} {times:.0f} ×"


def _compiles(phase: PhaseEvidence) -> bool:
    return phase.compile_share is not None and phase.compile_share > 0.5


def _slowness(phase: PhaseEvidence, main: PhaseEvidence) -> float:
    return phase.median_ps / max(main.median_ps, 1)


def _hinted(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    if phase.hint is None or _compiles(phase) or phase.role == "compile":
        return None
    hint = phase.hint.lower()
    return "eval" if "eval" in hint else "train" if hint.startswith("train") else NAMED, "named by the job"


def _compile(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    if _compiles(phase):
        return "compile", f"{100 * (phase.compile_share or 0):.0f} % of its time went into compiling"
    return None


def _first(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    """What the method takes for compiling, by its length alone."""
    if phase.role != "compile":
        return None
    if (phase.compile_share or 0.0) >= 0.2:
        return "compile", f"{100 * (phase.compile_share or 0):.0f} % of its time went into compiling"
    if phase.compile_share is None and phase.n_steps > 1:
        return "compile", "long single steps where the run and a new level begin; how long they compiled is not known"
    if phase.last_index < max(0.1 * phase.n_run, 3):
        return "warm-up", f"the run's first step, {_slowness(phase, main):.1f} × as long; no compiling was seen"
    return "slow", f"single steps {_slowness(phase, main):.1f} × as long, one of them the first; none compiled"


def _main(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    if phase.number != main.number or phase.role is not None:
        return None
    if _waits(phase):
        return "input stall", f"{100 * (phase.input_share or 0):.0f} % of its time went into waiting for data"
    return "train", "most of the run's time"


def _drift(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    return ("drift", "its steps grow steadily slower or faster") if phase.role == "drift" else None


def _waits(phase: PhaseEvidence) -> bool:
    return phase.input_share is not None and phase.input_share > 0.3


def _input_stall(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    share, usual = phase.input_share, main.input_share or 0.0
    if share is None or not (_waits(phase) and share > usual + 0.15):
        return None
    return "input stall", f"{100 * share:.0f} % of its time went into waiting for data, {100 * usual:.0f} % elsewhere"


_OWES = 0.5
"""Part of what a phase's steps last longer than the main phase's for which checkpoints must have held them, both in the
median. With less, something else makes most of the difference (an evaluation that comes with the checkpoint), and its
steps are no checkpoints. As for the cause of a slow step (SLOW-STEPS), half of it is what tells a cause."""


def _checkpoint(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    excess_ps = phase.median_ps - main.median_ps
    if not 0 < excess_ps <= phase.saved_ps / _OWES:
        return None
    return "checkpoint", f"checkpoints held its steps for {format_ps(phase.saved_ps)} in the median"


def _eval(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    mine, its = phase.ran, main.ran
    if phase.updates or phase.n_steps >= main.n_steps:
        return None
    if phase.graph_nodes == 0 and main.graph_nodes:
        return "eval", "no operation was noted for a backward pass"
    if not mine.names or mine.names == its.names:
        return None
    if its.trains and not mine.trains:
        return "eval", "no op of a backward pass or of an optimizer"
    same_program = mine.keys is not None and its.keys is not None and bool(mine.keys & its.keys)
    if not its.trains and mine.names < its.names and not same_program and phase.recurs:
        return "eval", "stretches that return, with a part of the training step's ops"
    return None


def _warm_up(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    early = phase.last_index < max(0.1 * phase.n_run, 3) and phase.last_index < main.last_index
    if early and len(phase.starts) == 1 and _slowness(phase, main) > 1.05:
        return "warm-up", "slower steps at the start of the run"
    return None


def _slow(phase: PhaseEvidence, main: PhaseEvidence) -> tuple[str, str] | None:
    passing = main.first_index < phase.first_index and phase.last_index < main.last_index
    mine, its = phase.ran.names, main.ran.names
    same_ops = not (mine and its) or len(mine & its) * 2 > len(mine)
    times = _slowness(phase, main)
    if times > 1.05 and passing and same_ops and not phase.recurs:
        return "slow", f"steps {times:.2f} × as long, for a time"
    few = phase.recurs and phase.n_steps <= phase.n_run / 10
    given = ((phase.batch_elements, main.batch_elements), (phase.graph_nodes, main.graph_nodes))
    scattered = few and phase.period is None and all(mine == its or None in (mine, its) for mine, its in given)
    if (few and phase.stretch <= 2 and times >= 2) or (scattered and times > 1.05):
        sort = "single steps" if phase.stretch <= 2 else "stretches of steps"
        return "slow", f"{sort} {times:.2g} × as long, {_how_often(phase)}"
    if (phase.recurs and times < 0.8 and phase.n_steps < main.n_steps) or (scattered and times < 0.95):
        return "short", f"stretches of steps {times:.2f} × as long, {_how_often(phase)}"
    return None


def _how_often(phase: PhaseEvidence) -> str:
    return "at no regular distance" if phase.period is None else f"every {phase.period:.0f} steps"


_RULES: tuple[Rule, ...] = (
    *(_compile, _hinted, _main, _first, _drift, _input_stall, _checkpoint),
    *(_eval, _warm_up, _slow),
)
