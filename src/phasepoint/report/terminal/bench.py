"""Benchmarks of devices in the terminal: what a suite measured, and how far predictions from ten models are off.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from rich.console import Console
from rich.text import Text

from phasepoint.bench.bottleneck.proof import ToldChange
from phasepoint.bench.fingerprint.fingerprint import FingerprintRow
from phasepoint.bench.fingerprint.validation import DeviceAnswer
from phasepoint.bench.suite.compare import Comparison
from phasepoint.bench.suite.result import Pair
from phasepoint.bench.suite.summary import PairSummary
from phasepoint.core.units import format_count, format_counted, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.suites import change_columns, pair_note, pair_words, predicted_columns, suite_columns
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable


def render_suite(summaries: Sequence[PairSummary], changes: Sequence[ToldChange], console: Console) -> None:
    """Print the pairs that were measured, the fastest first, what would be faster, and what could not be measured."""
    measured = sorted((one for one in summaries if one.latency_ps), key=lambda one: one.latency_ps or 0)
    if measured:
        console.print(grid(Table(suite_columns(measured, is_short=True), measured)))
        _print_pairs(((pair_note(one), one.pair) for one in measured if pair_note(one)), console)
    if changes:
        console.print(grid(Table(change_columns(changes, is_short=True), changes)))
    predicted = [one for one in summaries if one.predicted is not None]
    if predicted:
        console.print(Text("Not measured: told from the compiled program"))
        console.print(grid(Table(predicted_columns(), predicted)))
    others = (one for one in summaries if one.status not in ("measured", "predicted"))
    _print_pairs(((f"{one.status}: {one.reason}", one.pair) for one in others), console)


def _print_pairs(said: Iterable[tuple[str, Pair]], console: Console) -> None:
    """What is said of pairs, a line for those of which the same is said."""
    for words, group in groupby(sorted(said), itemgetter(0)):
        pairs = [pair_words(pair) for _, pair in group]
        more = f" and {format_counted(len(pairs) - 1, 'other pair')}" if len(pairs) > 1 else ""
        console.print(Text(f"{pairs[0]}{more}: {printable(words)}"))


def render_comparison(first: str, second: str, comparison: Comparison, console: Console) -> None:
    """Print the models that differ between two suites, and what of their order does."""
    differ = [one for one in comparison.ratios if one.differs]
    said = f"{printable(second)} against {printable(first)}: {format_counted(len(comparison.ratios), 'pair')}, "
    said += f"{_times(comparison.overall)} in the median; "
    said += f"{len(differ)} differ beyond what scatters" if differ else "none differs beyond what scatters"
    console.print(Text(said))
    if differ:
        columns = (
            TableColumn("model", lambda one: printable(one.pair.model)),
            TableColumn("against the first", lambda one: _times(one.ratio), is_figure=True),
            TableColumn("95 % low", lambda one: f"{one.low:.3f}", is_figure=True),
            TableColumn("high", lambda one: f"{one.high:.3f}", is_figure=True),
        )
        console.print(grid(Table(columns, differ)))
    for faster, slower in comparison.swaps[:MOST_SWAPS]:
        console.print(Text(printable(f"{faster} is faster than {slower} in the first alone")))
    if len(comparison.swaps) > MOST_SWAPS:
        console.print(Text(f"… {len(comparison.swaps) - MOST_SWAPS} more such pairs; --json prints all", style="dim"))


MOST_SWAPS = 10
"""Pairs of models in another order that are printed: a choice, half a screen."""


def _times(ratio: float) -> str:
    """A ratio of latencies in words."""
    return f"{ratio:.3f} × as long" if ratio >= 1 else f"{1 / ratio:.3f} × as fast"


def render_fingerprint(rows: Sequence[FingerprintRow], console: Console) -> None:
    """Print what every model takes on a device, the fastest first."""
    columns = (
        TableColumn("model", lambda row: printable(row.model)),
        TableColumn("latency", lambda row: row.latency_ps, unit="ps"),
        TableColumn("low", lambda row: row.low_ps, unit="ps"),
        TableColumn("high", lambda row: row.high_ps, unit="ps"),
        TableColumn("", lambda row: "measured" if row.is_measured else "predicted"),
    )
    console.print(grid(Table(columns, rows)))


def render_devices(answers: Sequence[DeviceAnswer], console: Console) -> None:
    """Print the errors of every device, beside those of what is simpler."""
    columns = [
        TableColumn("device", lambda answer: printable(answer.device)),
        TableColumn("models", lambda answer: format_count(answer.models), is_figure=True),
        TableColumn("off by, median", lambda answer: format_ratio(answer.median_ape), is_figure=True),
        TableColumn("near pairs swapped", lambda answer: format_ratio(answer.inversions), is_figure=True),
        TableColumn("within 90 %", lambda answer: format_ratio(answer.coverage90), is_figure=True),
    ]
    columns += [TableColumn(f"by {name}", partial(_baseline, name), is_figure=True) for name in answers[0].baselines]
    console.print(grid(Table(tuple(columns), answers)))


def _baseline(name: str, answer: DeviceAnswer) -> str:
    return format_ratio(answer.baselines[name])
