"""The process that measures one pair: `python -m phasepoint.bench.suite.child`, its task as JSON on stdin.

It says on stdout what it is about to do, so that whoever started it knows what a killed process was at.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from phasepoint.bench.bottleneck.explain import explain_network
from phasepoint.bench.bottleneck.explain_graph import explain_graph
from phasepoint.bench.runtimes.runtimes import RUNTIMES, NotHereError, Prepared, usual_runtime
from phasepoint.bench.suite.conditions import ConditionsBefore, read_energy_uj
from phasepoint.bench.suite.result import BatchSpeed, Energy, Pair, PairResult, PredictedLatency, SustainedWindow
from phasepoint.bench.suite.subject import Subject, drift_of, form_of, open_subject
from phasepoint.bench.suite.timing import BATCH_PART, MOST_WORDS, measure_latencies, measure_speed, peak_bytes, warm_up
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import PS_PER_NS, PS_PER_S
from phasepoint.learn.corpus.child import Say, serve


def main(task: Mapping[str, Any], say: Say) -> None:
    """Measure a pair and say its result."""
    pair = msgspec.convert(task["pair"], Pair)
    _end_first()
    began_s = time.time()
    result = PairResult(pair=pair, round=task["round"], status="failed", began_s=began_s)
    try:
        result = _measure(result, task, say)
    except NotHereError as error:
        result = msgspec.structs.replace(result, status="not here", reason=str(error))
    except ImportError as error:
        missing = f"{error.name or error} is not installed; pip install 'phasepoint[bench,runtimes]'"
        result = msgspec.structs.replace(result, status="not here", reason=missing)
    except Exception as error:  # noqa: BLE001 - whatever a network or a library raises is the pair's result
        words = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_WORDS]
        result = msgspec.structs.replace(result, reason=words)
    say(result=msgspec.to_builtins(result))


def _end_first() -> None:
    """Where memory runs out, the kernel ends this process and not the one that goes on with the suite."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def _measure(result: PairResult, task: Mapping[str, Any], say: Say) -> PairResult:
    pair, runtime = result.pair, RUNTIMES[result.pair.runtime]
    runtime.check(form_of(pair.model), pair.precision)
    if runtime.predicts:
        say(at="compiling")
        return _predict(result)
    threads = _set_threads(pair.device, pair.runtime)
    before_bytes = peak_bytes()
    say(at="building")
    subject = open_subject(pair.model, counts=task["counts"])
    is_other = pair.precision != "f32" or pair.runtime != usual_runtime(subject.form)
    reference = subject.reference() if is_other else None
    say(at="compiling" if runtime.compiles else "preparing")
    prepared = runtime.prepare(subject.network, pair.device, pair.precision)
    inputs = prepared.place(subject.inputs(1))
    began_ns = time.perf_counter_ns()
    prepared.run(inputs)
    first_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    say(at="measuring")
    warm_up(lambda: prepared.run(inputs))
    conditions = ConditionsBefore.take()
    energy_uj = read_energy_uj(pair.device)
    latencies_ps = measure_latencies(lambda: prepared.run(inputs), seconds=task["seconds"])
    energy = _energy(pair, energy_uj, len(latencies_ps), sum(latencies_ps))
    told = conditions.told(prepared.device, threads, prepared.versions)
    sizes = task["batches"] if subject.batches else [1]
    throughput = [_throughput(prepared, subject, size, BATCH_PART * task["seconds"]) for size in sizes]
    bottleneck, note = None, subject.note
    if task["explains"] and runtime.explains:
        say(at="looking for what holds it back")
        latency_ps = median_ps(np.array(latencies_ps))
        try:
            bottleneck = _EXPLAIN[subject.form](
                subject.network,
                lambda size: prepared.place(subject.inputs(size)),
                pair,
                latency_ps,
                [size for size in sizes if size > 1],
            )
        except Exception as error:  # noqa: BLE001 - whatever a network does under a timer, its latencies stand
            note = "; ".join(filter(None, (note, f"what holds it back is not known: {error}"[:MOST_WORDS])))
    return msgspec.structs.replace(
        result,
        status="measured",
        reason=note,
        model=subject.facts,
        build_ps=subject.build_ps,
        compile_ps=prepared.compile_ps,
        first_ps=first_ps,
        latencies_ps=tuple(latencies_ps),
        throughput=tuple(throughput),
        before_bytes=before_bytes,
        peak_bytes=peak_bytes(),
        device_bytes=prepared.device_bytes(),
        energy=energy,
        drift=drift_of(reference, prepared.run(inputs)) if is_other else None,
        conditions=told,
        bottleneck=bottleneck,
        sustained=tuple(measure_sustained(lambda: prepared.run(inputs), task["sustained_s"], say)),
    )


_EXPLAIN = {"module": explain_network, "graph": explain_graph}


def _predict(result: PairResult) -> PairResult:
    """Of a device that is not there."""
    pair = result.pair
    built: list[Subject] = []

    def build() -> Any:
        built.append(open_subject(pair.model, counts=False))
        return built[0].network

    predicted = msgspec.convert(RUNTIMES[pair.runtime].predict(build, pair.device), PredictedLatency)
    return msgspec.structs.replace(result, status="predicted", model=built[0].facts, predicted=predicted)


def _set_threads(device: str, runtime: str) -> int:
    """Threads of one operation, before a library is imported that makes its pools then."""
    kind, _, number = device.partition(":")
    cores = sorted(os.sched_getaffinity(0))
    threads = int(number) if kind == "cpu" and number else len(cores)
    if runtime == "jax":  # it has as many threads as it may use cores
        os.sched_setaffinity(0, cores[:threads])
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    return threads


WINDOW_PS = PS_PER_S
"""Of a run without a break: a choice; a core's clock changes within a second or two when it gets warm."""


def measure_sustained(run: Callable[[], Any], seconds: float, say: Say) -> Iterator[SustainedWindow]:
    """Run without a break for so many seconds; what was done in each second.

    Args:
        run: returns when its result is there.
        seconds: that it lasts; with 0 there is none.
        say: called once a second, so that a long run is not taken to hang.
    """
    began_ns = window_ns = time.perf_counter_ns()
    runs = 0
    while window_ns - began_ns < seconds * 1e9:
        run()
        runs += 1
        now_ns = time.perf_counter_ns()
        if (now_ns - window_ns) * PS_PER_NS >= WINDOW_PS:
            start_ps, dur_ps = (
                (end - begin) * PS_PER_NS for begin, end in ((began_ns, window_ns), (window_ns, now_ns))
            )
            yield SustainedWindow(start_ps, dur_ps, runs)
            say(at="measuring what it sustains")
            window_ns, runs = now_ns, 0


def _throughput(prepared: Prepared, subject: Subject, size: int, seconds: float) -> BatchSpeed:
    try:
        inputs = prepared.place(subject.inputs(size))
        speed = measure_speed(lambda: prepared.run(inputs), size, seconds)
    except Exception as error:  # noqa: BLE001 - whatever a library raises at this size, the others stand
        return BatchSpeed(size, None, " ".join(str(error).split())[:MOST_WORDS])
    return BatchSpeed(size, speed)


LEAST_ENERGY_S = {"cpu": 1.0, "cuda": 4.0}
"""A shorter window says nothing. Choices: RAPL's counters change about a thousand times a second, and not evenly;
NVML's some ten times, from power that is sampled in a quarter of the time (Z. Yang et al., "Part-time Power
Measurements: nvidia-smi's Lack of Attention", 2023: A100, H100)."""


def _energy(pair: Pair, before_uj: int | str, runs: int, dur_ps: int) -> Energy:
    if isinstance(before_uj, str):
        return Energy(None, before_uj)
    after_uj = read_energy_uj(pair.device)
    if isinstance(after_uj, str) or after_uj < before_uj:
        return Energy(None, "the counter of energy began anew while it was read")
    least_s = LEAST_ENERGY_S[pair.device.partition(":")[0]]
    if dur_ps < least_s * PS_PER_S:
        return Energy(None, f"measured for less than {least_s:.0f} s")
    return Energy((after_uj - before_uj) / 1e6 / runs)


if __name__ == "__main__":
    serve(main)
