"""How much disk a run of a million steps takes, written as the recorder writes it.

A short JAX job is captured back to back; its steps and windows are then written over and over, under new numbers,
until a million steps are there: steps in the parts that a flush every three seconds makes, a part of every table for
each window, spans only of the windows whose spans are kept, and small parts merged whenever the recorder's converter
would merge them.

    python benchmarks/disk.py                      # 1,000,000 steps, 1 % of them captured, three step times
    python benchmarks/disk.py --quick              # 50,000 steps
    python benchmarks/disk.py --run RUN            # windows of a run recorded with budget=None
"""

import argparse
import itertools
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FLUSH_S = 3.0
WINDOW_STEPS = 5
CAPTURED = 0.01
STEP_MS = (3.0, 20.0, 100.0)
LIMIT_BYTES = 100_000_000
OF_WINDOWS = ("conversions", "breakdowns", "ops", "spans")
_SHARD = ("host", "attempt")


def record(folder: Path) -> str:
    """A JAX job of some seconds, captured back to back."""
    path = str(folder / "recorded")
    script = Path(__file__).with_name("estimates.py")
    subprocess.run([sys.executable, str(script), "--job", "jax", "--out", path, "--seconds", "6"], check=True)
    return path


def window_tables(path: str) -> tuple[pa.Table, list[dict[str, pa.Table]], dict[str, pa.Table]]:
    """Steps of a run, its windows cut to `WINDOW_STEPS` steps (all their tables), and what a run holds once."""
    from phasepoint.sources.ingest.convert import convert_windows
    from phasepoint.store import open_run

    convert_windows(path, keep_spans=None)
    run = open_run(path)
    tables = {
        name: run.table(name).drop(_SHARD) for name in (*OF_WINDOWS, "steps", "windows", "programs", "instructions")
    }
    found = []
    for row in tables["windows"].to_pylist():
        last = row["first_step"] + WINDOW_STEPS - 1
        if last > row["last_step"]:
            continue
        mine = {name: table.filter(pc.equal(table["window"], row["window"])) for name, table in tables.items()
                if name in (*OF_WINDOWS, "windows")}  # fmt: skip
        for name in ("breakdowns", "ops", "spans"):
            step = mine[name]["step"]
            mine[name] = mine[name].filter(pc.fill_null(pc.less_equal(step, last), False))
        found.append(mine)
    return tables["steps"], found, {name: tables[name] for name in ("programs", "instructions")}


def renumber(table: pa.Table, window: int, first_step: int) -> pa.Table:
    """The rows as those of another window; its first step is `first_step`."""
    index = table.column_names.index("window")
    table = table.set_column(index, "window", pa.array(np.full(table.num_rows, window), table.schema.field(index).type))
    for name in ("step", "first_step"):
        if name in table.column_names and table.num_rows:
            index, column = table.column_names.index(name), table[name]
            moved = pc.add(column, first_step - pc.min(column).as_py())
            table = table.set_column(index, name, moved.cast(table.schema.field(index).type))
    if "last_step" in table.column_names:
        index = table.column_names.index("last_step")
        last = pa.array([first_step + WINDOW_STEPS - 1] * table.num_rows, table.schema.field(index).type)
        table = table.set_column(index, "last_step", last)
    return table


def write(path: Path, source: tuple, n: int, step_ms: float) -> dict[str, object]:
    """Write `n` steps; gives bytes and files, as the recorder leaves them and merged."""
    from phasepoint.recorder.process.idle_converter import LEAST_PARTS
    from phasepoint.sources.ingest.convert import KEPT_WINDOWS, keeps_spans
    from phasepoint.store import compact_run, create_run, open_shard

    steps, windows, once = source
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10.2"}, devices=("cpu:0 cpu",))
    writer = open_shard(path, 0, epoch_unix_ns=1_700_000_000_000_000_000)
    for name, table in once.items():
        writer.append(name, table)
    per_flush, every = max(int(FLUSH_S * 1e3 / step_ms), 1), int(WINDOW_STEPS / CAPTURED)
    scale = step_ms * 1e9 / float(np.median(steps["dur_ps"].to_numpy()))
    turns, window, start_ps = itertools.cycle(windows), 0, 0
    for begin in range(0, n, per_flush):
        size = min(per_flush, n - begin)
        rows = steps.take(pa.array((np.arange(begin, begin + size)) % steps.num_rows))
        dur = (rows["dur_ps"].to_numpy() * scale).astype(np.int64)
        starts = start_ps + np.cumsum(dur) - dur
        start_ps = int(starts[-1] + dur[-1])
        for name, values in (("step", np.arange(begin, begin + size)), ("start_ps", starts), ("dur_ps", dur)):
            index = rows.column_names.index(name)
            rows = rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type))
        writer.append("steps", rows)
        writer.flush()
        while window * every < begin + size - WINDOW_STEPS:
            made = next(turns)
            for name, table in made.items():
                if name != "spans" or keeps_spans(window, KEPT_WINDOWS):
                    writer.append(name, renumber(table, window, window * every))
            writer.flush()
            window += 1
        if begin // per_flush % 20 == 19:
            compact_run(path, min_parts=LEAST_PARTS)
    writer.close()
    left, left_files = sizes(path)
    compact_run(path)
    merged, merged_files = sizes(path)
    return {
        "steps": n,
        "step_ms": step_ms,
        "windows": window,
        "left_bytes": left.total(),
        "left_files": left_files,
        "merged_bytes": merged.total(),
        "merged_files": merged_files,
        "merged_by_table": dict(merged.most_common()),
    }


def sizes(path: Path) -> tuple[Counter, int]:
    """Bytes of every table, and how many files there are."""
    files = [file for file in path.rglob("*") if file.is_file()]
    found: Counter = Counter()
    for file in files:
        found[file.parent.name] += file.stat().st_size
    return found, len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50,000 steps instead of a million")
    parser.add_argument("--run", help="a run recorded with budget=None")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    n = 50_000 if options.quick else 1_000_000
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {100 * CAPTURED:g} % of the steps captured"
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = window_tables(options.run or record(Path(folder)))
        for step_ms in STEP_MS:
            row = write(Path(folder) / f"{step_ms:g}", source, n, step_ms)
            rows.append(row)
            print(
                f"{n:,} steps of {step_ms:g} ms, {row['windows']:,} windows: {row['left_bytes'] / 1e6:.1f} MB in "
                f"{row['left_files']:,} files as the recorder leaves it, {row['merged_bytes'] / 1e6:.1f} MB in "
                f"{row['merged_files']:,} merged (at most {LIMIT_BYTES / 1e6:.0f} MB)"
            )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
