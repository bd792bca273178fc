"""What a part of the suite is made of: rows that measure, a limit on its time, one JSON document, one table.

A row is a function; what it needs (CUDA, a library) and how long it takes on a GPU stand beside it. A row that cannot
run here says so and is counted, one that fails too; the document is written anew after each, so that a machine that is
taken away leaves what was measured.
"""

import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

VERSION = 1
"""Of the document's layout."""

LIMIT_S = 540.0
"""Nine minutes a part: machines are lent for ten."""

LATE_FACTOR = 2.5
"""A row that takes so many times as long as planned is ended; its part must still end in time."""

MEASURED, NOT_HERE, FAILED, NO_TIME = STATUSES = ("measured", "not here", "failed", "no time")


@dataclass(frozen=True)
class Figure:
    """One measured quantity.

    Attributes:
        name: of what.
        unit: "ratio" for a share or a quotient; "yes" for a truth, 0 or 1.
        value: the median of the repeats where there are some.
        repeats: each measurement, in its order.
    """

    name: str
    unit: str
    value: float
    repeats: tuple[float, ...] = ()


def figure_of(name: str, unit: str, repeats: Sequence[float]) -> Figure:
    """The median of some measurements, with all of them.

    Example:
        >>> figure_of("step", "ms", [3.0, 1.0, 2.0]).value
        2.0
    """
    return Figure(name, unit, float(median(repeats)), tuple(float(value) for value in repeats))


@dataclass(frozen=True)
class Measured:
    """What a row found.

    Attributes:
        figures: in the order in which they are to be read.
        holds: whether what the row claims holds; None where it claims nothing.
        said: in one sentence, what was found, and why it falls short where it does.
    """

    figures: tuple[Figure, ...]
    holds: bool | None = None
    said: str = ""


@dataclass(frozen=True)
class Setting:
    """Where and how large a row measures.

    Attributes:
        device: "cuda" or "cpu".
        folder: of the part; what one row leaves there the next may use.
        limit_s: what is left for it.
        is_small: whether sizes are those of a test: seconds, figures of no worth.
        keep: folder for files that are to be brought back.
    """

    device: str
    folder: Path
    limit_s: float
    is_small: bool
    keep: Path


@dataclass(frozen=True)
class Row:
    """One thing to measure.

    Attributes:
        name: unique within the suite.
        claim: what should hold, in words; empty where the row only tells.
        measure: measures it.
        seconds: that it takes on a GPU, about.
        needs: what it cannot do without: keys of `machine.MISSING`.
    """

    name: str
    claim: str
    measure: Callable[[Setting], Measured]
    seconds: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a row.

    Attributes:
        name, claim: of the row.
        status: one of `STATUSES`.
        why: of those that were not measured.
        holds, said, figures: as `Measured`.
        seconds: that it took.
    """

    name: str
    claim: str
    status: str
    why: str = ""
    holds: bool | None = None
    said: str = ""
    figures: tuple[Figure, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Document:
    """One part's JSON.

    Attributes:
        version: of this layout.
        part: its number.
        title: what it is about.
        date: UTC, to the second.
        device: "cuda" or "cpu".
        is_small: whether sizes were those of a test.
        machine: what it ran on, by name: the card, its driver, memory, cores.
        versions: of Python, the frameworks and Phasepoint.
        seconds: that the part took.
        counts: rows by status; `holds` and `falls short` of those with a claim.
        rows: in the order in which they ran.
    """

    version: int
    part: int
    title: str
    date: str
    device: str
    is_small: bool
    machine: dict[str, str]
    versions: dict[str, str]
    seconds: float
    counts: dict[str, int]
    rows: tuple[Outcome, ...] = field(default=())


def run_rows(
    rows: Sequence[Row],
    settings: Callable[[Row, float], Setting],
    *,
    missing: Callable[[Sequence[str]], str],
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Measure row after row within a limit.

    Args:
        rows: in this order.
        settings: the setting of a row with so many seconds left.
        missing: why what a row needs is not here; empty where it is.
        limit_s: of all rows together; a row that is not planned to end within it does not begin.
        clock: seconds.
    """
    end_s = clock() + limit_s
    for row in rows:
        left_s, why = end_s - clock(), missing(row.needs)
        if why:
            yield Outcome(row.name, row.claim, NOT_HERE, why)
        elif left_s < row.seconds:
            why = f"{row.seconds:.0f} s planned, {max(left_s, 0):.0f} s left of the part's {limit_s:.0f}"
            yield Outcome(row.name, row.claim, NO_TIME, why)
        else:
            yield _measure(row, settings(row, min(left_s, LATE_FACTOR * row.seconds)), clock)


def _measure(row: Row, setting: Setting, clock: Callable[[], float]) -> Outcome:
    began_s = clock()
    try:
        found = row.measure(setting)
    except Exception as error:  # noqa: BLE001 - a row that fails must not take the others with it
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
        return Outcome(row.name, row.claim, FAILED, why, seconds=clock() - began_s)
    told = (found.holds, found.said, found.figures)
    return Outcome(row.name, row.claim, MEASURED, "", *told, seconds=clock() - began_s)


def counts_of(rows: Sequence[Outcome]) -> dict[str, int]:
    """Rows by status, and of those with a claim how many hold."""
    statuses = Counter(row.status for row in rows)
    claims = Counter(row.holds for row in rows)
    return {status: statuses[status] for status in STATUSES} | {"holds": claims[True], "falls short": claims[False]}


def write_document(document: Document, path: Path) -> None:
    """Replace the document in one move: whoever reads it while the part runs sees all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(asdict(document), indent=1) + "\n")
    beside.replace(path)


def table_of(document: Mapping[str, Any]) -> str:
    """A part's document as Markdown.

    Args:
        document: as read from JSON.
    """
    told = [f"{name} {text}" for name, text in (document["machine"] | document["versions"]).items()]
    counts = ", ".join(f"{count} {name}" for name, count in document["counts"].items() if count)
    small = " **Sizes of a test: the figures say nothing.**" if document["is_small"] else ""
    lines = [
        f"### Part {document['part']}: {document['title']}",
        "",
        f"{document['date']}, {', '.join(told)}. {document['seconds']:.0f} s; rows: {counts}.{small}",
        "",
        "| | claim | holds | figures | |",
        "|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        figures = "; ".join(_figure(figure) for figure in row["figures"])
        holds = {True: "yes", False: "**no**", None: ""}[row["holds"]] if row["status"] == MEASURED else row["status"]
        cells = (row["name"], row["claim"], holds, figures, row["said"] or row["why"])
        lines.append(f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _figure(figure: Mapping[str, Any]) -> str:
    value, unit = figure["value"], figure["unit"]
    if unit == "yes":
        return f"{figure['name']} {'yes' if value else 'no'}"
    repeats, spread = figure["repeats"], ""
    if len(repeats) > 1:
        spread = f" ({_number(min(repeats), unit)} to {_number(max(repeats), unit)}, {len(repeats)} ×)"
    return f"{figure['name']} {_number(value, unit)}{spread}"


def _number(value: float, unit: str) -> str:
    return f"{value:.2%}" if unit == "ratio" else f"{value:.4g} {unit}".strip()


@contextmanager
def told(name: str) -> Iterator[None]:
    """Say on stderr what begins and how long it took."""
    began_s = time.monotonic()
    sys.stderr.write(f"{name} …\n")
    try:
        yield
    finally:
        sys.stderr.write(f"{name}: {time.monotonic() - began_s:.1f} s\n")
