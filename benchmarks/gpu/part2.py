"""Part 2, the truth: device time, launches, layers, memory and findings against what is known of the job."""

import sys
import tempfile
from pathlib import Path

from benchmarks.gpu import plants, truth
from benchmarks.gpu.child import call, run_command
from benchmarks.gpu.suite import Figure, Measured, Row, Setting, figure_of

TITLE = "truth"

WANTED = {"launched": 0.99, "in a layer": 0.9}
"""Shares of executions linked to their launch, and of device time within a layer, that are wanted: choices."""
SAVING_TOLERANCE = 0.25
"""By which the seconds that a finding tells may differ from what removing the cause saved."""
ENERGY_TOLERANCE = 0.1
"""By which the energy in the run's counters may differ from the driver's total: a second at either end of ten."""


def _windows(framework: str, net: str, mode: str, needs: tuple[str, ...] = ()) -> Row:
    def measure(setting: Setting) -> Measured:
        found = call(setting, truth.windows_of, framework=framework, net=net, mode=mode, keep=str(setting.keep))
        ours, apart, all_ps = found["ours_ps"], found["apart_ps"], found["all_ps"]
        shares = {"launched": found["launched"] / max(found["executions"], 1)}
        shares["in a layer"] = found["in_layer_ps"] / max(all_ps, 1)
        figures = [Figure(f"busy {device}", "ms", busy_ps / 1e9) for device, busy_ps in ours.items()]
        figures.append(Figure("executions", "", found["executions"]))
        figures += [Figure(name, "ratio", share) for name, share in shares.items()]
        figures.append(Figure("events dropped", "", found["dropped"]))
        said = []
        if apart:
            off_ps = sum(abs(ours.get(device, 0) - apart.get(device, 0)) for device in {*ours, *apart})
            figures.append(Figure("differs from the profiler's bytes by", "ps", off_ps))
            said += [f"busy time differs by {off_ps} ps"] if off_ps else []
            said += [f"only {share:.1%} {name}" for name, share in shares.items() if share < WANTED[name]]
        if found["peak_bytes"] and found["told_bytes"]:
            figures.append(Figure("memory told / peak", "ratio", found["told_bytes"] / found["peak_bytes"]))
        said += ["no execution"] if not found["executions"] else []
        said += [f"{found['dropped']} events dropped"] if found["dropped"] else []
        return Measured(tuple(figures), None if setting.is_small else not said, "; ".join(said))

    library = {"torch": "PyTorch", "jax": "JAX"}[framework]
    name = f"device time: {library} {net}" + (f", {mode}" if framework == "torch" else "")
    claim = "busy time as in the profiler's bytes to the picosecond; 99 % linked to launches; 90 % in layers"
    return Row(name, claim, measure, 30.0, (framework, *needs))


def _planted(name: str, plant: plants.Plant) -> Row:
    def measure(setting: Setting) -> Measured:
        found = call(setting, plants.judged, name=name)
        saving_s = found["planted_s"] - found["own_s"] - found["clean_s"]
        told = [one for one in found["findings"] if one["code"] in plant.codes]
        winning = [one["code"] for one in found["findings"] if one["saved"] and one["low"]]
        is_first = bool(winning) and winning[0] in plant.codes
        figures = [
            Figure("found", "yes", float(bool(told))),
            Figure("first", "yes", float(is_first)),
            Figure("removing it saves", "s", saving_s),
            Figure("of", "s", found["planted_s"]),
            Figure("windows", "", found["windows"]),
        ]
        confirmed = False
        if told:
            figures.append(Figure("told", "s", told[0]["saved"]))
            near = abs(told[0]["saved"] - saving_s) <= SAVING_TOLERANCE * abs(saving_s)
            confirmed = near or told[0]["low"] <= saving_s <= told[0]["high"]
        holds = None if setting.is_small else is_first and confirmed
        return Measured(tuple(figures), holds, found["verdict"])

    claim = f"{plant.codes[0]} is the first finding, its seconds within 25 % or its interval"
    return Row(f"finding: {name}", claim, measure, 36.0, ("torch", *plant.needs))


def _report(setting: Setting) -> Measured:
    """Record a job, build its report, and look for what it must show."""
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        found = call(setting, recorded_for_report, out=f"{folder}/run")
        page = Path(folder) / "report.html"
        words = [sys.executable, "-m", "phasepoint", "report", f"{folder}/run", "--output", str(page)]
        run_command(words, setting.limit_s)
        text = page.read_text()
        shown = {"the device": found["device"] in text, "phases": "train" in text}
        missing = [name for name, is_there in shown.items() if not is_there]
        figures = (Figure("size", "MB", len(text) / 1e6), Figure("windows", "", found["windows"]))
        return Measured(figures, not missing, f"the report lacks {', '.join(missing)}" if missing else "")


def recorded_for_report(*, out: str, device: str, small: bool) -> dict[str, object]:
    """A recorded job with a few windows; the device's name as the session has it."""
    from benchmarks.gpu.jobs import make_job

    from phasepoint.recorder import record
    from phasepoint.store import open_run

    job = make_job("torch", "transformer", device=device, small=small)
    with record(out, budget=None if small else 0.05, framework="torch") as run:
        for index in run.steps(range(30 if small else 200)):
            job.step(index)
            if index % 10 == 9:
                job.wait()
    (shard,) = open_run(out).shards
    return {"device": shard.session.devices[0].partition(" ")[2] or "cpu", "windows": run.cost.windows}


def _power(setting: Setting) -> Measured:
    found = call(setting, truth.energy_of)
    ratio = found["told_j"] / found["driver_j"] - 1
    figures = (
        Figure("energy by the driver", "J", found["driver_j"]),
        Figure("in the run, against it", "ratio", ratio),
        Figure("in its phases", "J", found["phases_j"]),
        figure_of("power", "W", found["power_w"]),
        figure_of("clock", "MHz", found["clock_mhz"]),
        Figure("slowed", "ratio", found["slowed"]),
    )
    return Measured(figures, abs(ratio) <= ENERGY_TOLERANCE, found["verdict"])


ROWS: tuple[Row, ...] = (
    _windows("torch", "transformer", "eager"),
    _windows("torch", "transformer", "graph", ("cuda",)),
    _windows("torch", "transformer", "compile", ("cuda",)),
    _windows("torch", "cnn", "eager"),
    _windows("jax", "transformer", "eager"),
    *(_planted(name, plant) for name, plant in plants.PLANTS.items()),
    Row("energy", "within 10 % of the driver's own total", _power, 30.0, ("torch", "cuda", "nvml")),
    Row("report", "is built from such a run and names the device", _report, 25.0, ("torch",)),
)
