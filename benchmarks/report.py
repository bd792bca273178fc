"""How long a report takes to build, how large it is, and how it moves: on a recorded run and on one of a million steps.

    python benchmarks/report.py                      a run of a million steps, generated
    python benchmarks/report.py --quick              of a hundred thousand
    python benchmarks/report.py --run runs/demo      and a recorded run, converted before
    python benchmarks/report.py --trace t.json.gz    and a trace of PyTorch's profiler, as a run of one window

`build` is the whole command `phasepoint report`, from the start of the interpreter to the written file, in a process of
its own, the least of several; the parts below it are of one process. First paint and frames are headless Chromium's
(software drawing, no GPU): first paint as the browser reports it, frames per second while every frame zooms the
timeline in or out, all lanes redrawn.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phase_runs import generate

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
START_NS = 1_700_000_000_000_000_000
LIMITS = {"build_s": 3.0, "mb": 5.0, "paint_ms": 1000.0, "fps": 30.0}


def write_run(path: Path, n: int) -> None:
    """A generated run with everything that a report draws."""
    from phasepoint.core.tables import table_from_columns
    from phasepoint.store import create_run, open_shard

    made = generate("everything", 1000, n=n, noise=0.1, outliers=0.01, fraction=0.005)
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10.2"}, devices=("gpu:0 NVIDIA H200",))
    ends = int(pc.max(pc.add(made.steps["start_ps"], made.steps["dur_ps"])).as_py()) // 1000 + 10**9
    now = iter(range(START_NS, START_NS + 10**18, ends))
    with_devices = {"devices": ("gpu:0 NVIDIA H200",)}
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: next(now), **with_devices)
    for name, columns in _tables(made).items():
        writer.append(name, table_from_columns(name, columns))
    writer.close()


def _tables(made) -> dict[str, dict]:
    steps = {name: made.steps[name].to_numpy() for name in ("step", "start_ps", "dur_ps", "input_ps")}
    n = len(steps["step"])
    memory = np.full(n, np.nan)
    memory[::100] = (8 << 30) + np.arange(0, n, 100) * 512
    rss = pa.array(memory, from_pandas=True).cast(pa.int64())
    captured = np.unique(made.ops["step"].to_numpy())
    window_of = np.cumsum(np.diff(captured, prepend=-2) > 1) - 1
    first = captured[np.flatnonzero(np.diff(window_of, prepend=-1))]
    last = captured[np.append(np.flatnonzero(np.diff(window_of)), len(captured) - 1)]
    rows = np.searchsorted(captured, made.ops["step"].to_numpy())
    ops = {name: made.ops[name] for name in ("step", "op", "count", "self_ps")}
    m, k = len(captured), len(first)
    starts, durs = steps["start_ps"][captured], steps["dur_ps"][captured]
    share = {"compute": 0.7, "data_movement": 0.1, "host": 0.05}
    walls = {category: (durs * part).astype(np.int64) for category, part in share.items()}
    walls["idle"] = durs - sum(walls.values())
    zero = np.zeros(k, np.int64)
    costs = ("start_cost_ps", "slowdown_cost_ps", "stop_cost_ps", "capture_cost_ps", "bytes")
    checkpoints = np.arange(n // 20, n, n // 20)
    return {
        "steps": {**steps, "host_rss_bytes": rss},
        "windows": {
            "window": np.arange(k), "first_step": first, "last_step": last, "start_ps": steps["start_ps"][first],
            "dur_ps": steps["start_ps"][last] + steps["dur_ps"][last] - steps["start_ps"][first],
            "reason": ["sample"] * k, "probability": np.full(k, 0.005), "format": ["xplane"] * k,
            **dict.fromkeys(costs, zero),
        },
        "conversions": {
            "window": np.arange(k),
            **dict.fromkeys(("events", "spans", "ignored_events", "dropped_events", "misnested_events",
                             "orphan_events", "convert_cost_ps"), zero),
        },
        "ops": {
            **ops, "window": window_of[rows], "device": ["gpu:0"] * len(rows), "level": ["kernel"] * len(rows),
            "category": ["compute"] * len(rows), "total_ps": ops["self_ps"], "program": np.zeros(len(rows), np.int64),
            "layer": [f"Net/block_{i % 12}/dense_{i % 3}" for i in rows.tolist()],
        },
        "programs": {"program": [0], "name": ["jit_step"], "first_window": [0], "instructions": [40]},
        "instructions": _instructions(sorted(set(ops["op"].to_pylist()))),
        "breakdowns": {
            "window": np.tile(window_of, 4), "step": np.tile(captured, 4), "device": ["gpu:0"] * (4 * m),
            "category": np.repeat(list(walls), m).tolist(), "wall_ps": np.concatenate(list(walls.values())),
        },
        "spans": _spans(captured, window_of, starts, durs),
        "checkpoints": {
            "step": checkpoints, "path": [f"ckpt/{step}" for step in checkpoints.tolist()],
            "start_ps": steps["start_ps"][checkpoints], "dur_ps": steps["dur_ps"][checkpoints] // 2,
            "framework": ["orbax"] * len(checkpoints),
        },
    }  # fmt: skip


def _instructions(names: list[str]) -> dict:
    n = len(names)
    return {
        "program": [0] * n, "computation": ["main"] * n, "op": names, "opcode": ["fusion"] * n,
        "category": ["compute"] * n, "shape": ["bf16[128,128]"] * n, "operands": [[]] * n, "calls": [[]] * n,
        "is_root": [False] * n, "is_entry": [True] * n, "flop": [10**9 * (i + 1) for i in range(n)],
        "bytes": [10**7 * (n - i) for i in range(n)],
    }  # fmt: skip


def _spans(captured, window_of, starts, durs, per_step: int = 200) -> dict:
    """Kernels back to back on one stream, `per_step` in each captured step."""
    n, total = len(captured), len(captured) * per_step
    place = np.tile(np.arange(per_step), n)
    dur = np.repeat(durs // (2 * per_step), per_step)
    return {
        "window": np.repeat(window_of, per_step), "span": np.arange(total), "level": ["kernel"] * total,
        "category": ["compute"] * total, "name": [f"kernel_{i}" for i in (place % 50).tolist()],
        "start_ps": np.repeat(starts, per_step) + place * dur, "dur_ps": dur, "self_ps": dur,
        "device": ["gpu:0"] * total, "track": ["stream 7"] * total, "step": np.repeat(captured, per_step),
    }  # fmt: skip


PARTS = """
import json, sys, time
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.summary import summarize
from phasepoint.summary.timeline import build_timeline
from phasepoint.summary.details import build_details
from phasepoint.report.html.page import summary_html
from phasepoint.findings.judge import judge_analysis
from phasepoint.report.documents import findings_document
laps, begin = {{}}, time.perf_counter()
def lap(name):
    global begin
    laps[name], begin = time.perf_counter() - begin, time.perf_counter()
run = open_run({path!r}); analysis = analyse_run(run); lap("analysis")
found = judge_analysis(analysis); findings = findings_document(found); lap("findings")
summary = summarize(analysis, found.verdict); lap("summary")
timeline = build_timeline(run, summary); lap("timeline")
details = build_details(analysis, summary); lap("details")
summary_html(summary, timeline, findings, details); lap("page")
print(json.dumps(laps))
"""


def build(run: str, target: Path, repeats: int) -> dict:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        command = [sys.executable, "-m", "phasepoint", "report", run, "-o", str(target), "--force"]
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    parts = subprocess.run([sys.executable, "-c", PARTS.format(path=run)], check=True, capture_output=True, text=True)
    return {"build_s": min(times), "mb": target.stat().st_size / 1e6, "parts_s": json.loads(parts.stdout)}


FRAMES = """() => new Promise((done) => {
    const click = (action) => document.querySelector(`button[data-zoom=${action}]`).click();
    const times = [];
    let i = 0;
    const frame = (now) => {
        times.push(now);
        if (times.length > 120) { done(times); return; }
        const turn = i++ % 24;
        click(turn < 10 ? "in" : turn < 14 ? "right" : "out");
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
})"""


def browse(page_path: Path) -> dict:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        paints, rates = [], []
        for _ in range(3):
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            page.goto(page_path.as_uri())
            page.wait_for_timeout(200)
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            times = np.array(page.evaluate(FRAMES))
            rates.append(1000 / np.diff(times).mean())
            page.close()
        chromium.close()
    return {"paint_ms": min(paints), "fps": max(rates)}


def measure(name: str, run: str, folder: Path, repeats: int) -> dict:
    target = folder / f"{name}.html"
    figures = {"run": name, **build(run, target, repeats)}
    if CHROMIUM is not None:
        figures |= browse(target)
    return figures


def show(rows: list[dict]) -> None:
    print(f"{'run':24}{'build':>9}{'size':>10}{'first paint':>13}{'zooming':>12}   parts of the build")
    for row in rows:
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in row["parts_s"].items())
        seen = f"{row['paint_ms']:>10.0f} ms{row['fps']:>8.0f} fps" if "fps" in row else f"{'–':>13}{'–':>12}"
        print(f"{row['run']:24}{row['build_s']:>7.2f} s{row['mb']:>7.2f} MB{seen}   {parts}")
    print(f"{'asked for':24}{'≤ 3 s':>9}{'≤ 5 MB':>10}{'≤ 1000 ms':>13}{'≥ 30 fps':>12}")


def main() -> None:
    from phasepoint.sources.ingest.import_run import import_traces

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundred thousand steps instead of a million, once")
    parser.add_argument("--run", action="append", default=[], help="a recorded run as well")
    parser.add_argument("--trace", action="append", default=[], help="a trace of PyTorch's profiler as well")
    parser.add_argument("--keep", help="folder for the generated run and the pages, kept")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{datetime.date.today()}")  # fmt: skip
    n = 100_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        generated = folder / f"{n}-steps"
        if not generated.exists():
            write_run(generated, n)
        runs = [(f"{n:,} steps", str(generated)), *((Path(run).name, run) for run in options.run)]
        for trace in map(Path, options.trace):
            target = folder / trace.name.partition(".")[0]
            if not target.exists():
                import_traces([trace], target)
            runs.append((target.name, str(target)))
        rows = [measure(name, run, folder, 1 if options.quick else 3) for name, run in runs]
    show(rows)
    if options.json:
        figures = {"date": str(datetime.date.today()), "cores": os.cpu_count(), "limits": LIMITS, "rows": rows}
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
