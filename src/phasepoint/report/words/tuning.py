"""Tuning in words, the same wherever it is shown."""

from collections.abc import Mapping
from typing import Any

from phasepoint.core.units import format_ratio
from phasepoint.tune.knobs import describe_setting
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
    if low is None:
        return f"{gain:+.0%}"
    end = "" if high is None else f" to {high:+.0%}"
    return f"{gain:+.0%} ({low:+.0%}{end or ' or more'})"


def _percent(gain: float) -> str:
    return f"{gain:.0%}"
