"""Small tables, runs and shards for the store's tests."""

from pathlib import Path

import pyarrow as pa

from phasepoint.core.tables import table_from_rows
from phasepoint.store import create_run, open_shard
from phasepoint.store.session import SESSION_NAME

STEP_PS = 1_000_000_000


def steps(first: int, count: int, kind: str | None = "train") -> pa.Table:
    """Steps `first` … `first + count - 1`, one millisecond each, one after another."""
    return table_from_rows(
        "steps",
        [
            {"step": n, "start_ps": n * STEP_PS, "dur_ps": STEP_PS, "input_ps": n, "kind": kind}
            for n in range(first, first + count)
        ],
    )


def gap(start_ps: int, why: str = "outside-steps") -> pa.Table:
    return table_from_rows("gaps", [{"why": why, "start_ps": start_ps, "dur_ps": 5, "unknown": "what went on"}])


def new_run(folder: Path) -> str:
    return create_run(folder / "run", command=["python", "train.py"], created_unix_ns=1_000)


def run_with_steps(folder: Path, *, parts: int = 3, steps_per_part: int = 4) -> str:
    """A closed run of one host."""
    path = new_run(folder)
    writer = open_shard(path, 0, epoch_unix_ns=5_000)
    for part in range(parts):
        writer.append("steps", steps(part * steps_per_part, steps_per_part))
        writer.flush()
    writer.close()
    return path


def parts_of(path: str, table: str, shard: str = "host=00000") -> list[Path]:
    return sorted((Path(path) / shard / table).glob("*.parquet"))


def kill_writer(path: str, shard: str = "host=00000") -> None:
    """Make a shard look as if its writer had died: the owner's start time is nobody's."""
    file = Path(path) / shard / SESSION_NAME
    text = file.read_text()
    start = text.index('"start_ticks":')
    end = text.index(",", start)
    file.write_text(text[:start] + '"start_ticks": 1' + text[end:])
