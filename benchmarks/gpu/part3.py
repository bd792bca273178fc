"""Part 3, models and replay: peaks, predictions, a corpus, replays bit for bit, changes predicted and checked."""

from statistics import median
from typing import Any

from benchmarks.gpu import models, replays
from benchmarks.gpu.child import call
from benchmarks.gpu.machine import card_name
from benchmarks.gpu.suite import Figure, Measured, Row, Setting, figure_of

TITLE = "models and replay"

LEAST_PEAK, MOST_PEAK = 0.6, 1.02
"""Between which a measured rate lies of the published one: choices; power limits keep large products at some 0.8."""
COVERAGE = 0.85
"""Of intervals meant to hold 90 %: what is wanted of them on a card that nobody measured before."""
CHANGE_TOLERANCE = 0.05
"""By which a predicted change may be off."""

OPERATORS, MODELS = 330, 24
SMALL_OPERATORS, SMALL_MODELS = 6, 2
SEED = 19

ABSENT_CARD = "NVIDIA H100 80GB HBM3"
"""What a test predicts for: any card of the table."""


def _peaks(setting: Setting) -> Measured:
    found = call(setting, models.peaks)
    figures, said = [], []
    spec = None
    if setting.device == "cuda":
        from phasepoint.devices import device_spec, unknown_device_note

        spec = device_spec(card_name())
        said += [] if spec else [unknown_device_note(card_name())]
    for name, rates in found["flop_per_s"].items():
        figures.append(figure_of(f"{name} product", "Tflop/s", [rate / 1e12 for rate in rates]))
        peak = spec.flop_per_s.get(name) if spec else None
        if peak is not None:
            said += _told_ratio(figures, name, median(rates), peak.value)
    for name, rates in found["bytes_per_s"].items():
        figures.append(figure_of(f"copy, {name}", "GB/s", [rate / 1e9 for rate in rates]))
    if spec is not None:
        said += _told_ratio(figures, "memory", median(found["bytes_per_s"]["memory"]), spec.memory_bytes_per_s.value)
    return Measured(tuple(figures), not said if spec else None, "; ".join(said))


def _told_ratio(figures: list[Figure], name: str, rate: float, peak: float) -> list[str]:
    figures.append(Figure(f"{name} of its peak", "ratio", rate / peak))
    return [] if LEAST_PEAK <= rate / peak <= MOST_PEAK else [f"{name} at {rate / peak:.0%} of its published peak"]


def _operators(setting: Setting) -> Measured:
    count = SMALL_OPERATORS if setting.is_small else OPERATORS
    card = card_name() if setting.device == "cuda" else ABSENT_CARD
    found = call(setting, models.operators, count=count, seed=SEED, card=card)
    return _predicted(setting, found["rows"], "op", (Figure("could not be run", "", found["failed"]),))


def _models(setting: Setting) -> Measured:
    count = SMALL_MODELS if setting.is_small else MODELS
    found = call(setting, models.whole_models, count=count, card=card_name() if setting.device == "cuda" else "cpu")
    told = _predicted(setting, found["rows"], "", (Figure("could not be run", "", len(found["failed"])),))
    why = "; ".join(f"{name}: {reason}" for name, reason in found["failed"].items())
    return Measured(told.figures, told.holds, why or told.said)


def _predicted(setting: Setting, rows: list[dict[str, Any]], group: str, more: tuple[Figure, ...]) -> Measured:
    """Errors and coverage of predictions."""
    if not rows:
        return Measured(more, False, "nothing could be measured")
    errors = [abs(row["told_s"] / row["time_s"] - 1) for row in rows]
    held = [row["low_s"] <= row["time_s"] <= row["high_s"] for row in rows]
    figures = [
        Figure("measured", "", len(rows)),
        Figure("error, median", "ratio", median(errors)),
        Figure("error, mean", "ratio", sum(errors) / len(errors)),
        Figure("told / measured, median", "ratio", median(row["told_s"] / row["time_s"] for row in rows)),
        Figure("held by the 90 % interval", "ratio", sum(held) / len(held)),
    ]
    if group:
        for dtype in sorted({row["dtype"] for row in rows}):
            mine = [error for error, row in zip(errors, rows, strict=True) if row["dtype"] == dtype]
            figures.append(Figure(f"error in {dtype}, median", "ratio", median(mine)))
    coverage = sum(held) / len(held)
    said = "" if coverage >= COVERAGE else f"the 90 % interval holds {coverage:.0%}"
    return Measured((*figures, *more), None if setting.is_small else coverage >= COVERAGE, said)


def _corpus(setting: Setting) -> Measured:
    found = call(setting, models.collected, keep=str(setting.keep), limit_s=setting.limit_s)
    figures = (
        Figure("programs measured", "", found["measured"]),
        Figure("failed", "", len(found["failed"])),
        Figure("corpus", "MB", found["bytes"] / 1e6),
    )
    return Measured(figures, found["measured"] > 0 and not found["failed"], "; ".join(found["failed"][:5]))


def _replays(setting: Setting) -> Measured:
    found = call(setting, replays.from_each_checkpoint, folder=str(setting.folder))
    made = found["replays"]
    whole = [one for one in made if one["values"] and one["equal"] == one["values"]]
    figures = (
        Figure("checkpoints", "", found["checkpoints"]),
        Figure("replays", "", len(made)),
        Figure("equal bit for bit", "", len(whole)),
        Figure("losses compared", "", sum(one["values"] for one in made)),
        figure_of("a replay's share of the job", "ratio", [one["dur_s"] / found["full_s"] for one in made]),
    )
    told = [f"from step {one['first_step']}: {one['verdict']}" for one in made if one not in whole]
    return Measured(figures, len(whole) == len(made) > 0, "; ".join(told))


def _change(change: str, words: str, needs: tuple[str, ...] = ()) -> Row:
    def measure(setting: Setting) -> Measured:
        found = call(setting, replays.change_predicted, change=change, folder=str(setting.folder))
        error = found["told_s"] / found["after_s"] - 1
        figures = [
            Figure("before", "s", found["before_s"]),
            Figure("told", "s", found["told_s"]),
            Figure("measured", "s", found["after_s"]),
            Figure("error", "ratio", error),
        ]
        is_held = found["low_s"] is not None and found["low_s"] <= found["after_s"] <= found["high_s"]
        figures.append(Figure("held by its interval", "yes", float(is_held)))
        return Measured(tuple(figures), None if setting.is_small else abs(error) <= CHANGE_TOLERANCE or is_held)

    claim = "within 5 % or its interval"
    return Row(f"change: {words}", claim, measure, 65.0, ("torch", *needs))


ROWS: tuple[Row, ...] = (
    Row("peaks", "between 60 and 102 % of devices/specs.toml", _peaks, 25.0, ("torch",)),
    Row("predict: operators", "the 90 % interval holds 85 % or more", _operators, 50.0, ("torch",)),
    Row("predict: whole models", "the 90 % interval holds 85 % or more", _models, 100.0, ("jax", "optax")),
    Row("learn collect", "every program is measured", _corpus, 70.0, ("jax",)),
    Row("replay", "every loss from every checkpoint is equal bit for bit", _replays, 100.0, ("torch",)),
    _change("bf16", "bf16 instead of f32"),
    _change("batch", "a batch twice as large", ("cuda",)),
    _change("compile", "torch.compile", ("cuda",)),
)
