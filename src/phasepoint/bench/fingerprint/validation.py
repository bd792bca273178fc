"""How far predictions from a fingerprint are off: each device of a file in turn is the new one, ten models measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.bench.fingerprint.prediction import (
    PROBES,
    KnownModels,
    choose_models,
    family_of,
    fit_widths,
    predict_times,
    scaled_sizes,
)
from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.errors import NoDataError, SourceError, UsageError
from phasepoint.core.tables import read_parquet

COLUMNS = ("device", "model", "samples_per_s")
SIZES = ("params_m", "gmacs", "macts_m", "image_size")
SETTINGS = ("precision", "compiled")

NEAR = 2.0
"""Pairs of models whose times are within this factor are near: those whose order a user asks about. A choice."""

LEAST_SIZE = 1e-3
"""Of what a file rounds to nothing, in millions and billions."""


@dataclass(frozen=True)
class DeviceAnswer:
    """Errors of one device's predictions.

    Attributes:
        device: with its settings where a file has several of one.
        models: that were predicted; the ten that were measured are not among them.
        probes: the ten.
        median_ape: median of |predicted / true - 1|.
        inversions: share of near pairs whose order is predicted wrong.
        coverage90: share of true times in the 90 % interval.
        baselines: median_ape of what is simpler: times by multiply-accumulates, the best single other device scaled,
            ridge regression on sizes; each fitted on the same ten.
    """

    device: str
    models: int
    probes: tuple[str, ...]
    median_ape: float
    inversions: float
    coverage90: float
    baselines: Mapping[str, float]


def validate_devices(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[DeviceAnswer]:
    """Answers for every device of every file of a folder that has the columns `device`, `model`, `samples_per_s`.

    Args:
        folder: with Parquet files; or one such file.
        progress: called with (devices done, devices in all).

    Raises:
        UsageError: there is no such folder or file.
        SourceError: a file cannot be read.
        NoDataError: no file has the columns, or one device alone, or fewer than twice the models that are measured.
    """
    if not folder.exists():
        raise UsageError(f"{folder}: no such folder or file; expected Parquet files with {', '.join(COLUMNS)}")
    names = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
    tables = [rows for rows in map(_read, names) if rows]
    if not tables:
        raise NoDataError(f"{folder}: no Parquet file with the columns {', '.join(COLUMNS)}")
    work = [(known, column, labels) for known, labels in map(known_models, tables) for column in range(len(labels))]
    answers = []
    for number, (known, column, labels) in enumerate(work, start=1):
        answers.append(_answer(known, column, labels[column]))
        if progress is not None:
            progress(number, len(work))
    return answers


def known_models(rows: Sequence[Mapping[str, Any]]) -> "tuple[Sheet, list[str]]":
    """Models that every device has, as a sheet of times; and what the devices are called."""
    times: dict[tuple[str, ...], dict[tuple[str, Any], list[float]]] = {}
    sizes: dict[tuple[str, Any], list[float]] = {}
    for row in rows:
        if not row["samples_per_s"] or row["samples_per_s"] <= 0:
            continue
        setting = (str(row["device"]), *(str(row[name]) for name in SETTINGS if row.get(name) is not None))
        model = (str(row["model"]), row.get("image_size"))
        times.setdefault(setting, {}).setdefault(model, []).append(1 / float(row["samples_per_s"]))
        sizes[model] = [float(row.get(name) or LEAST_SIZE) for name in SIZES]
    owners = [setting[0] for setting in times]
    if len(set(owners)) < 2:
        raise NoDataError(f"a fingerprint needs other devices; there is {', '.join(owners) or 'none'}")
    common = sorted(set.intersection(*(set(of_device) for of_device in times.values())), key=str)
    if len(common) < 2 * PROBES:
        raise NoDataError(f"{len(common)} models are on every device; expected {2 * PROBES} or more")
    log_times = np.log([[np.median(of_device[model]) for of_device in times.values()] for model in common])
    log_sizes = np.log(np.maximum([sizes[model] for model in common], LEAST_SIZE))
    known = KnownModels(log_times, scaled_sizes(log_sizes), [family_of(name) for name, _ in common], owners)
    labels = [
        ", ".join(part for part in setting if part not in ("False",)).replace("True", "compiled") for setting in times
    ]
    return Sheet(known, [name for name, _ in common], log_sizes), labels


@dataclass(frozen=True)
class Sheet:
    """Models, what is known of them, and their sizes as they are (ln)."""

    known: KnownModels
    models: list[str]
    log_sizes: Floats


def _answer(sheet: Sheet, column: int, label: str) -> DeviceAnswer:
    known = sheet.known
    true = known.log_times[:, column]
    rest = known.without(known.owners[column])
    widths = fit_widths(rest)
    probes = choose_models(rest, widths.values)
    said = predict_times(rest, widths, probes, true[probes])
    others = np.setdiff1d(np.arange(len(true)), probes)
    inside = (said.low <= true) & (true <= said.high)
    return DeviceAnswer(
        device=label,
        models=len(others),
        probes=tuple(sheet.models[int(place)] for place in probes),
        median_ape=_median_ape(said.log_time, true, others),
        inversions=inversions(said.log_time[others], true[others]),
        coverage90=float(inside[others].mean()),
        baselines={
            "macs": _median_ape(_by_macs(sheet, probes, true), true, others),
            "best other device": min(
                _median_ape(column_times + np.median(true[probes] - column_times[probes]), true, others)
                for column_times in rest.log_times.T
            ),
            "ridge": _median_ape(_by_ridge(sheet, probes, true), true, others),
        },
    )


def inversions(predicted: Floats, true: Floats) -> float:
    """Share of the pairs within a factor of `NEAR` whose order is predicted wrong.

    Example:
        >>> round(inversions(np.array([0.0, 0.2, 0.1]), np.array([0.0, 0.1, 0.2])), 3)
        0.333
    """
    first, second = np.triu_indices(len(true), 1)
    gaps = true[first] - true[second]
    near = (np.abs(gaps) <= np.log(NEAR)) & (gaps != 0)
    wrong = (predicted[first] - predicted[second]) * gaps <= 0
    return float(wrong[near].mean()) if near.any() else 0.0


def _median_ape(predicted: Floats, true: Floats, places: Int64s) -> float:
    return float(np.median(np.abs(np.expm1(predicted[places] - true[places]))))


def _by_macs(sheet: Sheet, probes: Int64s, true: Floats) -> Floats:
    """A line through ln of multiply-accumulates."""
    log_macs = sheet.log_sizes[:, SIZES.index("gmacs")]
    slope, level = np.polyfit(log_macs[probes], true[probes], 1)
    return np.asarray(level + slope * log_macs)


def _by_ridge(sheet: Sheet, probes: Int64s, true: Floats) -> Floats:
    """Ridge regression on all sizes, its penalty by leaving one out."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(alphas=np.logspace(-3, 2, 12)).fit(sheet.known.sizes[probes], true[probes])
    return np.asarray(model.predict(sheet.known.sizes))


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        table = read_parquet(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: no Parquet file that can be read: {error}") from error
    rows: list[dict[str, Any]] = table.to_pylist() if set(COLUMNS) <= set(table.column_names) else []
    return rows
