"""What holds on a GPU: four parts of nine minutes each, one JSON document and one table a part.

    python -m benchmarks.gpu --part 1                      # the recorder
    python -m benchmarks.gpu --part 2                      # truth
    python -m benchmarks.gpu --part 3                      # models and replay
    python -m benchmarks.gpu --part 4                      # tuning and models of the zoo
    python -m benchmarks.gpu --part 1 --device cpu         # a test's sizes, without a GPU: does everything run?
    python -m benchmarks.gpu --table OUT/part-*.json       # the tables of documents that were brought back

Rows that cannot run here say why and are counted. The document is written anew after each row.
"""

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.machine import describe_machine, describe_versions, missing
from benchmarks.gpu.suite import (
    LIMIT_S,
    VERSION,
    Document,
    Outcome,
    Row,
    Setting,
    counts_of,
    run_rows,
    table_of,
    told,
    write_document,
)

PARTS = (1, 2, 3, 4)


def run_part(part: int, device: str, out: Path, *, only: str = "", limit_s: float = LIMIT_S) -> Document:
    """Measure a part's rows, writing its document after each.

    Args:
        part: its number, of `PARTS`.
        device: "cuda", or "cpu" at a test's sizes.
        out: folder of the document and of files that rows keep.
        only: rows whose name holds this.
        limit_s: of the part.
    """
    home = import_module(f"benchmarks.gpu.part{part}")
    rows = [row for row in home.ROWS if only in row.name]
    began_s, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    about = (describe_machine(device), describe_versions())
    out.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []

    def document() -> Document:
        made, seconds = tuple(outcomes), time.monotonic() - began_s
        of_part = (VERSION, part, home.TITLE, date, device, device == "cpu")
        return Document(*of_part, *about, seconds, counts_of(made), made)

    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:

        def setting(row: Row, left_s: float) -> Setting:
            return Setting(device, Path(folder), left_s, device == "cpu", out)

        measured = run_rows(rows, setting, missing=missing, limit_s=limit_s)
        for row in rows:
            with told(row.name):
                outcomes.append(next(measured))
            write_document(document(), out / f"part-{part}.json")
    return document()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, choices=PARTS, action="append", default=[], help="may be repeated")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the documents")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds this")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="of a part")
    parser.add_argument("--table", type=Path, nargs="+", metavar="JSON", help="print the tables of documents")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table_of(json.loads(path.read_text())) for path in args.table))
        return
    if args.device == "cuda" and (why := missing(["torch", "cuda"])):
        sys.exit(f"error: {why}; give --device cpu to see whether everything runs")
    for part in args.part or PARTS:
        run_part(part, args.device, args.out, only=args.only, limit_s=args.limit)
        print(table_of(json.loads((args.out / f"part-{part}.json").read_text())))


if __name__ == "__main__":
    main()
