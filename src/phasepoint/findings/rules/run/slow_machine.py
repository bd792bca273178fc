"""Other programs on the machine take cores that the job needs, or a limit on its CPU time holds it: all its steps
become slower together.

**Formula.** A step is crowded while the job's threads wait for cores and other programs have them (table `machine`:
the smaller of the threads' part spent waiting and of the machine's part that others ran). What such a step lasts longer
than the calm steps around it is lost, waiting for input, compiling and checkpoints left out. Ranks of the same job are
no others; other virtual machines are, to which the hypervisor gave the cores (`steal_ps`). Where a limit of the job's
container or control group holds threads for most of that (`throttled_ps`), what it held counts instead. The account has
the same part, `slower machine`.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: the machine's own work takes one percent.

**Remedy.** Give the job cores of its own: stop the other programs, reserve the machine (`--exclusive` in Slurm,
requests equal to limits in Kubernetes), or pin both sides (`taskset`, `numactl`, a cgroup). Start no more threads than
there are free cores (`OMP_NUM_THREADS`). Against a limit: raise it (`resources.limits.cpu` in Kubernetes, `--cpus` in
Docker, `CPUQuota` in systemd), and start no more threads than it has cores. Against other virtual machines: an instance
that has its cores for itself, without credits for bursts.

**Wrong when** the other programs are the job's own, started by other means than `multiprocessing`: loaders, servers,
evaluations. Then they compete with it, and need cores of their own. A limit that is set for a group above the job's own
is not seen.

**Source.** /proc/<pid>/task/<tid>/schedstat and /proc/stat (Documentation/scheduler/sched-stats.rst, proc_stat(5)).
The limit: cpu.stat (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
"""

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

LEAST_SHARE = 0.02


_HELD = (  # cause and remedy
    "a limit on the job's CPU time costs",
    "raise the limit (resources.limits.cpu in Kubernetes, --cpus in Docker, CPUQuota in systemd), or start no more "
    "threads than it has cores",
)
_STOLEN = (
    "other virtual machines on its hardware cost",
    "take an instance that has its cores for itself, without credits for bursts",
)
_OTHERS = (
    "other programs on the machine cost",
    "give the job cores of its own: stop what else runs there, reserve the machine, or pin both sides (taskset, "
    "numactl, a cgroup)",
)


def find(view: FindingsView) -> list[Finding]:
    """The time that crowded steps lasted longer than calm ones."""
    view.need_steps()
    clock = view.clock
    crowded = view.analysis.crowded
    if crowded is None:
        raise Unavailable("the run does not know what other programs did: it was recorded without looks at the machine")
    parts = view.step_parts
    lost_ps = parts.machine_ps
    total_ps = sum_ps(lost_ps)
    if total_ps < max(LEAST_SHARE * clock.wall_ps, 1):
        return []
    count, share = int((lost_ps > 0).sum()), total_ps / clock.wall_ps
    crowded_ps, held_ps, stolen_ps = (sum_ps(part) for part in (crowded.ps, crowded.held_ps, crowded.stolen_ps))
    is_held = 2 * held_ps > crowded_ps
    cause, remedy = _HELD if is_held else _STOLEN if 2 * stolen_ps > crowded_ps - held_ps else _OTHERS
    return [
        Finding(
            code="SLOW-MACHINE",
            title=f"{cause} {format_ps(total_ps)}, {format_ratio(share)} of the run: "
            f"{format_count(count)} of {format_count(clock.n_steps)} steps "
            + ("were held" if is_held else "waited for cores"),
            claim=Claim("excess", lost_ps),
            low_ps=sum_ps(parts.least_ps),
            high_ps=sum_ps(parts.most_ps),
            phase=view.phase_of_most(lost_ps),
            remedy=remedy,
            evidence=(
                Evidence(
                    f"a limit held its threads for {format_ps(held_ps)}"
                    if is_held
                    else f"its threads waited {format_ps(crowded_ps)} in all for cores that others had",
                    "machine",
                    "select host, start_ps, dur_ps, run_ps, wait_ps, others_ps, steal_ps, throttled_ps "
                    "from machine order by wait_ps desc",
                ),
            ),
            confidence="high",
            wrong_if="the other programs belong to the job: then they need cores of their own",
        )
    ]
