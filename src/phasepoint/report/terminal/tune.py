"""What tuning came to, in the terminal: the decision, what each trial promised and gave, what is left.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable
from phasepoint.report.words.tuning import decision, gain_words, left_over, search_decision, setting_words
from phasepoint.tune.offline.search import SearchOutcome
from phasepoint.tune.outcome import TuneOutcome


def render_tuning(outcomes: Sequence[TuneOutcome], console: Console, *, run: str) -> None:
    """Print what came of each loader."""
    for number, outcome in enumerate(outcomes):
        if number:
            console.print()
        console.print(Text(printable(decision(outcome, several=len(outcomes) > 1)), style="bold"))
        for line in left_over(outcome):
            console.print(Text(printable(line)))
        if outcome.trials:
            console.print()
            console.print(grid(_trials(outcome)))
    if any(outcome.verdict == "tuned" for outcome in outcomes):
        console.print()
        console.print(
            Text(printable(f"The next run with it: phasepoint tune --apply {run} -- python train.py"), style="dim")
        )


def render_search(outcome: SearchOutcome, console: Console) -> None:
    """Print what a search came to: the decision, and the settings that were run, fastest first."""
    for number, line in enumerate(search_decision(outcome)):
        console.print(Text(printable(line), style="" if number else "bold"))
    console.print()
    columns = (
        TableColumn("tried", lambda trial: printable(setting_words(trial.setting, outcome.as_written)), wraps=True),
        TableColumn("against the job as it is", lambda trial: gain_words(trial.gain), is_figure=True),
        TableColumn("steps timed", lambda trial: f"{trial.measured.steps}", is_figure=True),
        TableColumn("", lambda trial: printable(trial.measured.problem), wraps=True),
    )
    ranked = sorted(outcome.trials, key=lambda trial: -2.0 if trial.gain is None else trial.gain, reverse=True)
    console.print(grid(Table(columns, ranked)))


def _trials(outcome: TuneOutcome) -> Table:
    columns = (
        TableColumn("steps", lambda trial: f"{trial.first_step:,}–{trial.last_step:,}", is_figure=True),
        TableColumn("tried", lambda trial: printable(setting_words(trial.knobs, outcome.as_written)), wraps=True),
        TableColumn("expected", lambda trial: gain_words(trial.predicted_gain), is_figure=True),
        TableColumn("gave", lambda trial: gain_words(trial.gain, trial.low, trial.high), is_figure=True),
        TableColumn("", lambda trial: "taken up" if trial.accepted else "left"),
        TableColumn("why", lambda trial: printable(trial.reason), wraps=True),
    )
    return Table(columns, outcome.trials)
