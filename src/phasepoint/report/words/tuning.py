"""Tuning in words, the same wherever it is shown."""

from collections.abc import Mapping
from typing import Any

from phasepoint.core.units import format_ratio
from phasepoint.tune.knobs import describe_setting
from phasepoint.tune.offline.search import SearchOutcome
from phasepoint.tune.outcome import TuneOutcome

_LIMITED = {
    "input": "making batches",
    "loop": "the loop itself: the device, or what else its body waits for",
    "cpu": "the cores that the job may use",
}


def decision(outcome: TuneOutcome, *, several: bool) -> str:
    """What came of it, in one sentence."""
    name = f"{outcome.loader}: " if several else ""
    if outcome.verdict == "tuned":
        high = "" if outcome.gain_high is None else f" to {_percent(outcome.gain_high)}"
        proven = f"{_percent(outcome.gain_low)}{high}" if high else f"at least {_percent(outcome.gain_low)}"
        return (
            f"{name}tuned: {describe_setting(outcome.chosen)} in place of {describe_setting(outcome.as_written)} makes "
            f"{_percent(outcome.gain)} more steps a second ({proven} proven)."
        )
    return f"{name}{outcome.verdict}: {outcome.reason}."


def search_decision(outcome: SearchOutcome) -> list[str]:
    """What a search came to: the decision, what it cost, what it changes."""
    gain, chosen = outcome.gain, setting_words(outcome.chosen, outcome.as_written)
    if outcome.verdict == "tuned" and gain is not None:
        first = (
            f"tuned: {chosen} makes {_percent(gain.value)} more samples a second (at least {_percent(gain.low)} "
            f"proven, in {outcome.pairs} pairs of runs)."
        )
    else:
        first = f"{outcome.verdict}: {outcome.reason}."
    lines = [
        first,
        f"{len(outcome.trials)} of {outcome.settings} settings were run, in {outcome.spent_s:.0f} s in all.",
    ]
    if outcome.difference is not None:
        by = f"{100 * outcome.difference:.2g} %"
        lines.append(f"It changes numerics: what the job logs differs by up to {by} at the same steps.")
    return lines


def left_over(outcome: TuneOutcome) -> list[str]:
    """What trials cost and won, and what limits the loop now."""
    lines = []
    if outcome.trials:
        count = len(outcome.trials)
        lines.append(
            f"{count} {'trial' if count == 1 else 'trials'} cost {outcome.spent_s:.1f} s and won {outcome.won_s:.1f} s "
            "until the recording ended."
        )
    if outcome.steps_per_s is not None and outcome.ceiling_steps_per_s is not None:
        limited = _LIMITED.get(outcome.limited_by or "", "nothing that was seen")
        waiting = (
            "" if outcome.wait_ratio is None else f"; it waited for data {format_ratio(outcome.wait_ratio)} of the time"
        )
        lines.append(
            f"The loop made {outcome.steps_per_s:.1f} steps a second when last measured{waiting}. Without any wait it "
            f"could make {outcome.ceiling_steps_per_s:.1f}. What limits it: {limited}."
        )
    return lines


def setting_words(setting: Mapping[str, Any], as_written: Mapping[str, Any]) -> str:
    """What a setting changes against the one as written."""
    changed = {name: value for name, value in setting.items() if as_written.get(name) != value}
    return describe_setting(changed)


def gain_words(gain: float | None, low: float | None = None, high: float | None = None) -> str:
    """A gain with its interval: `+12 % (8 to 17)`."""
    if gain is None:
        return "–"
    if low is None or (low <= -1 and high is None):
        return _signed(gain)
    if low <= -1 or high is None:
        return (
            f"{_signed(gain)} ({_signed(low)} or more)" if high is None else f"{_signed(gain)} (up to {_signed(high)})"
        )
    return f"{_signed(gain)} ({_signed(low)} to {_signed(high)})"


def _percent(gain: float) -> str:
    return f"{100 * gain:.0f} %"


def _signed(gain: float) -> str:
    return f"{100 * gain:+.0f} %"
