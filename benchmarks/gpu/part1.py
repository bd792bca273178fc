"""Part 1, the recorder: what it costs on the device's timeline, and whether it changes anything."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.gpu import turns
from benchmarks.gpu.child import call
from benchmarks.gpu.suite import Figure, Measured, Row, Setting, figure_of

TITLE = "the recorder"

BUDGET = 0.01
"""What recording may cost at its default."""
CLOCK_TOLERANCE = 0.02
"""By which the sum of the step clock may differ from the device's own time of the same steps, a choice."""
GROWTH_BYTES = 16 << 20
"""That memory may grow by over all windows but the first fifth, a choice."""

PAIRS, TURN_S, WINDOWS = 3, 5.0, 300
SMALL_PAIRS, SMALL_TURN_S, SMALL_WINDOWS = 1, 0.2, 5


@dataclass(frozen=True)
class _Sort:
    """A job of `jobs.make_job`, and how long its six turns take, about."""

    framework: str
    net: str
    mode: str = "eager"
    seconds: float = 60.0

    @property
    def name(self) -> str:
        library = {"torch": "PyTorch", "jax": "JAX"}[self.framework]
        return f"{library} {self.net}" + (f", {self.mode}" if self.framework == "torch" else "")


def _turns(setting: Setting, sort: _Sort, tool: str, pairs: int) -> dict[str, Any]:
    few = (SMALL_PAIRS, SMALL_TURN_S) if setting.is_small else (pairs, TURN_S)
    job = {"framework": sort.framework, "net": sort.net, "mode": sort.mode}
    return call(setting, turns.overhead, **job, pairs=few[0], turn_s=few[1], tool=tool)


def _ratios(found: dict[str, Any], of: str = "loop_s") -> list[float]:
    return [on[of] / off[of] - 1 for off, on in zip(found["off"], found["on"], strict=True)]


def _overhead(sort: _Sort) -> Row:
    def measure(setting: Setting) -> Measured:
        found = _turns(setting, sort, "record", PAIRS)
        on, ratios = found["on"], _ratios(found)
        windows = [window for turn in on for window in turn["windows"]]
        figures = [
            figure_of("wall time", "ratio", ratios),
            figure_of("CPU time", "ratio", _ratios(found, "cpu_s")),
            figure_of("own account", "ratio", [turn["own_ratio"] for turn in on]),
            figure_of("step", "ms", [turn["loop_s"] / found["steps"] * 1e3 for turn in found["off"]]),
            figure_of("windows in a turn", "windows", [len(turn["windows"]) for turn in on]),
            figure_of("begin and end", "s", [turn["whole_s"] - turn["loop_s"] for turn in on]),
            Figure("first recording of the process", "s", found["first_s"]),
        ]
        for name in ("start", "slowdown", "stop"):
            costs = [window[f"{name}_cost_ps"] for window in windows if window[f"{name}_cost_ps"] is not None]
            if costs:
                figures.append(figure_of(f"window's {name}", "ms", [cost / 1e9 for cost in costs]))
        lost_ms = [lost for turn in on for lost in turn["lost_ms"]]
        if lost_ms:
            figures.append(figure_of("device time lost around a window", "ms", lost_ms))
        if on[0]["device_s"]:
            figures.append(figure_of("step clock / device", "ratio", [t["clock_s"] / t["device_s"] - 1 for t in on]))
        same = len({turn["digest"] for side in ("off", "on") for turn in found[side]}) == 1
        figures.append(Figure("results bit-identical", "yes", float(same)))
        agrees = all(abs(t["clock_s"] / t["device_s"] - 1) <= CLOCK_TOLERANCE for t in on if t["device_s"])
        said = "" if same else "results differ between turns"
        said += "" if agrees else "; the step clock's sum and the device's differ by more than 2 %"
        holds = None if setting.is_small else median(ratios) <= BUDGET and same and agrees
        return Measured(tuple(figures), holds, said.lstrip("; "))

    needs = (sort.framework, *(("cuda",) if sort.mode in ("compile", "graph") else ()))
    claim = "at most 1 % of wall time; results bit-identical"
    claim += "; step clock within 2 % of CUDA's events" if sort.framework == "torch" else ""
    return Row(f"overhead: {sort.name}", claim, measure, sort.seconds, needs)


def _peer(sort: _Sort, tool: str, name: str, needs: tuple[str, ...]) -> Row:
    def measure(setting: Setting) -> Measured:
        found = _turns(setting, sort, tool, 1)
        ratio = figure_of("wall time", "ratio", _ratios(found))
        whole = figure_of("begin and end", "s", [turn["whole_s"] - turn["loop_s"] for turn in found["on"]])
        return Measured((ratio, figure_of("CPU time", "ratio", _ratios(found, "cpu_s")), whole))

    return Row(f"peer: {name}, {sort.name}", "", measure, 22.0, needs)


def _memory(framework: str) -> Row:
    def measure(setting: Setting) -> Measured:
        windows = SMALL_WINDOWS if setting.is_small else WINDOWS
        found = call(setting, turns.memory, framework=framework, net="cnn", windows=windows)
        grown = {
            name: sizes[-1] - sizes[len(sizes) // 5]
            for name, sizes in (("host", found["resident_bytes"]), ("device", found["allocated_bytes"]))
        }
        figures = [Figure(f"{name} memory grew by", "MiB", size / 2**20) for name, size in grown.items()]
        holds = None if setting.is_small else max(grown.values()) <= GROWTH_BYTES
        return Measured((Figure("windows", "windows", found["windows"]), *figures), holds)

    library = {"torch": "PyTorch", "jax": "JAX"}[framework]
    return Row(f"memory: {library}", "at most 16 MiB more after 300 windows", measure, 32.0, (framework,))


_EAGER = _Sort("torch", "transformer")

ROWS: tuple[Row, ...] = (
    _overhead(_EAGER),
    _overhead(_Sort("jax", "transformer")),
    _overhead(_Sort("torch", "transformer", "compile", 100.0)),
    _overhead(_Sort("torch", "transformer", "graph", 45.0)),
    _overhead(_Sort("torch", "cnn", "eager", 45.0)),
    _overhead(_Sort("jax", "cnn", "eager", 45.0)),
    _overhead(_Sort("torch", "transformer", "ddp", 50.0)),
    _memory("torch"),
    _memory("jax"),
    _peer(_EAGER, "profiler", "torch.profiler", ("torch",)),
    _peer(_EAGER, "traceml", "TraceML", ("torch", "traceml")),
    _peer(_Sort("jax", "transformer"), "profiler", "jax.profiler", ("jax",)),
)
