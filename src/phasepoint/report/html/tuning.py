"""Tuning on the page: the decision, the speed of the loop over time with its trials, what each promised and gave."""

from phasepoint.core.units import PS_PER_S, format_ps
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.markup import Content, Markup, element, join, section, swatch
from phasepoint.report.words.tuning import decision, gain_words, left_over, setting_words
from phasepoint.tune.outcome import TrialOutcome, TuneOutcome, TuningShown

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 1000, 170, 46, 18, 8  # of the drawing, and its margins
_TAKEN, _LEFT_ALONE = "#009e73", "#8a8f98"


def tuning_section(shown: TuningShown | None) -> Markup:
    """The section, empty where nothing was tuned."""
    if shown is None:
        return Markup("")
    several = len(shown.outcomes) > 1
    parts: list[Content] = []
    for outcome in shown.outcomes:
        parts.append(element("p", element("strong", decision(outcome, several=several))))
        parts += [element("p", line, class_="dim") for line in left_over(outcome)]
    if len(shown.point_ps) > 1:
        items = ((_TAKEN, "trial, taken up"), (_LEFT_ALONE, "trial, left"))
        legend = join(element("span", swatch(colour), " ", name) for colour, name in items)
        parts += [element("p", legend, class_="legend"), _curve(shown)]
    parts += [_trials(outcome) for outcome in shown.outcomes if outcome.trials]
    return section("Tuning", "steps a second, with the trials", *parts, anchor="tuning")


def _curve(shown: TuningShown) -> Markup:
    """Speed over time as a line; trials as stretches behind it."""
    first_ps, last_ps = shown.point_ps[0], shown.point_ps[-1]
    most = max(*shown.steps_per_s, 1e-9) * 1.05

    def x(time_ps: float) -> float:
        inside = min(max((time_ps - first_ps) / max(last_ps - first_ps, 1), 0.0), 1.0)
        return round(_LEFT + inside * (_WIDTH - _LEFT), 1)

    def y(speed: float) -> float:
        return round(_ABOVE + (1 - speed / most) * (_HEIGHT - _ABOVE - _BELOW), 1)

    trials = [
        element(
            "rect",
            element("title", f"{setting_words(trial.knobs, outcome.as_written)}: {trial.reason}"),
            x=x(trial.start_ps),
            y=_ABOVE,
            width=max(round(x(trial.start_ps + trial.dur_ps) - x(trial.start_ps), 1), 2),
            height=_HEIGHT - _ABOVE - _BELOW,
            fill=_TAKEN if trial.accepted else _LEFT_ALONE,
            fill_opacity=0.18,
        )
        for outcome in shown.outcomes
        for trial in outcome.trials
    ]
    grid: list[Markup] = []
    for part in (0.0, 0.5, 1.0):
        speed = part * most / 1.05
        grid.append(element("line", x1=_LEFT, x2=_WIDTH, y1=y(speed), y2=y(speed), class_="grid"))
        grid.append(element("text", f"{speed:.3g}", x=_LEFT - 6, y=y(speed) + 3, text_anchor="end"))
    for part, anchor in ((0.0, "start"), (1.0, "end")):
        time_ps = int(first_ps + part * (last_ps - first_ps))
        grid.append(element("text", format_ps(time_ps), x=x(time_ps), y=_HEIGHT - 4, text_anchor=anchor))
    line = " ".join(f"{x(at)},{y(speed)}" for at, speed in zip(shown.point_ps, shown.steps_per_s, strict=True))
    curve = element("polyline", points=line, fill="none", stroke="#0072b2", stroke_width=1.4)
    label = f"Steps a second over {(last_ps - first_ps) / PS_PER_S:.0f} s, with trials"
    drawing = element("svg", *grid, *trials, curve, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)
    return element("div", drawing, class_="chart")


def _trials(outcome: TuneOutcome) -> Markup:
    def said(trial: TrialOutcome) -> str:
        return "taken up" if trial.accepted else "left"

    columns = (
        TableColumn("steps", lambda trial: f"{trial.first_step:,}–{trial.last_step:,}", is_figure=True),
        TableColumn("tried", lambda trial: setting_words(trial.knobs, outcome.as_written)),
        TableColumn("expected", lambda trial: gain_words(trial.predicted_gain), is_figure=True),
        TableColumn("gave", lambda trial: gain_words(trial.gain, trial.low, trial.high), is_figure=True),
        TableColumn("decision", said),
        TableColumn("why", lambda trial: trial.reason),
    )
    return data_table(Table(columns, outcome.trials, f"Trials of {outcome.loader}"))
