"""Which tile of a kernel, on a device nobody tuned it for, from ten measurements.

What is known of a kernel are its sweeps on other devices: boosted trees of the time relative to the fastest, one
ensemble per kernel and device. They are the priors of the autotuner's model-guided search. A device's own sweep is
never a prior of itself, in the shipped model or in the folder.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.core.units import PS_PER_MS
from phasepoint.learn.choosing.autotuner import Config, Space, Tuning, tune
from phasepoint.learn.choosing.sweep_table import Sweep, config_features, read_sweeps
from phasepoint.learn.models.model_file import Progress, StoredModel, builtin_models, read_model
from phasepoint.learn.models.trees import PACKED, pack_trees, predict_trees
from phasepoint.learn.tasks import Evaluation, EvaluationRow, kendall_tau

KIND = "tile_sweeps"
TASK = "tile_sweeps"
BUILTIN_NAME = "tile-sweeps"
BUDGET = 10
"""Measurements of an evaluation; one that does not run counts."""
MOST_ROWS = 30_000
"""Configurations that trees are trained on at most; drawn at random beyond it."""
FAILED = 0.3
"""A configuration that does not run is taught as slower than the slowest by this, in logarithms."""


@dataclass(frozen=True)
class KnownSweep:
    """What is known of a kernel on a device.

    Attributes:
        kernel: its name.
        device: where it was measured.
        names: of the parameters, in the order of the trees' features.
        trees: packed: configuration → logarithm of the time relative to the fastest.
    """

    kernel: str
    device: str
    names: tuple[str, ...]
    trees: Mapping[str, NDArray[Any]]

    def fits(self, sweep: Sweep) -> bool:
        """Whether it says something of a sweep: the same kernel and parameters, on another device."""
        return self.kernel == sweep.kernel and self.device != sweep.device and set(self.names) == set(sweep.names)

    def predict(self, names: Sequence[str], configs: NDArray[np.int64]) -> Floats:
        """Logarithm of the time relative to the fastest, `[n]`."""
        order = [list(names).index(name) for name in self.names]
        return predict_trees(self.trees, config_features(self.names, configs[:, order])[0])


def train(
    folder: str | Path, *, seed: int, progress: Progress, leave_out: str | None = None, iterations: int = 100
) -> StoredModel:
    """Learn every sweep of a folder.

    Args:
        folder: one parquet file KERNEL_DEVICE each.
        seed: of the rows that are drawn where a sweep is large.
        progress: told of sweeps done.
        leave_out: a device whose files are not looked at.
        iterations: trees per sweep.

    Raises:
        ModelError: there is no such file, or one cannot be used.
    """
    sweeps = [sweep for sweep in read_sweeps(folder) if sweep.device != leave_out]
    if not sweeps:
        raise ModelError(f"{folder} holds only sweeps of {leave_out}, which are left out")
    arrays: dict[str, NDArray[Any]] = {}
    for number, sweep in enumerate(sweeps):
        known = learn_sweep(sweep, seed=seed, iterations=iterations)
        arrays |= {f"{number}.{name}": known.trees[name] for name in PACKED}
        progress(number + 1, len(sweeps))
    card = {
        "task": TASK,
        "corpus": f"{sum(len(sweep.configs) for sweep in sweeps)} configurations in {len(sweeps)} sweeps",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "device": sorted({sweep.device for sweep in sweeps}),
        "sweeps": [
            {"kernel": sweep.kernel, "device": sweep.device, "parameters": list(sweep.names), "n": len(sweep.configs)}
            for sweep in sweeps
        ],
        "seed": seed,
        "settings": {"iterations": iterations, "leave_out": leave_out},
        "notes": [note for sweep in sweeps for note in sweep.notes],
    }
    model = StoredModel(BUILTIN_NAME, KIND, arrays, card)
    return StoredModel(BUILTIN_NAME, KIND, arrays, {**card, "errors": _errors_left_out(model, sweeps)})


def learn_sweep(sweep: Sweep, *, seed: int = 0, iterations: int = 100) -> KnownSweep:
    """Trees of one sweep."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows = np.arange(len(sweep.configs))
    if len(rows) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
    log_time = np.log(sweep.time_ms[rows])
    log_time = np.where(np.isfinite(log_time), log_time, np.nanmax(log_time) + FAILED) - np.nanmin(log_time)
    features, _ = config_features(sweep.names, sweep.configs[rows])
    trees = HistGradientBoostingRegressor(
        max_iter=iterations, learning_rate=0.15, min_samples_leaf=5, early_stopping=False, random_state=seed
    )
    return KnownSweep(sweep.kernel, sweep.device, sweep.names, pack_trees(trees.fit(features, log_time)))


def known_sweeps(model: StoredModel) -> tuple[KnownSweep, ...]:
    """What a stored model knows.

    Raises:
        ModelError: it is a model of another kind, or incomplete.
    """
    if model.kind != KIND:
        raise ModelError(f"{model.name} is a model of kind {model.kind!r}; tiles are searched with one of {KIND!r}")
    try:
        return tuple(
            KnownSweep(
                str(row["kernel"]),
                str(row["device"]),
                tuple(row["parameters"]),
                {name: model.arrays[f"{number}.{name}"] for name in PACKED},
            )
            for number, row in enumerate(model.card["sweeps"])
        )
    except KeyError as error:
        raise ModelError(f"{model.name}: {error} is missing; train the model anew") from error


def evaluate(
    model: StoredModel | None, folder: str | Path, *, seed: int, progress: Progress, budget: int = BUDGET
) -> Evaluation:
    """Tune every sweep of a folder with a few measurements, looked up in the sweep itself.

    Priors of a sweep are the model's sweeps of the kernel on other devices, and the folder's own.

    Args:
        model: None takes the shipped one.
        folder: one parquet file KERNEL_DEVICE each.
        seed: of the rows that are drawn where a sweep is large; the search draws nothing.
        progress: told of sweeps done.
        budget: measurements per sweep.

    Raises:
        ModelError: the folder holds no sweep, or the model is of another kind.
    """
    asked = "builtin" if model is None else model.name
    sweeps = read_sweeps(folder)
    notes = [note for sweep in sweeps for note in sweep.notes]
    if model is None and BUILTIN_NAME not in builtin_models():
        notes.append("no model of tiles came with the package: only the folder's own sweeps are priors")
    elif model is None:
        model = read_model(f"builtin:{BUILTIN_NAME}", kind=KIND)
    stored = () if model is None else known_sweeps(model)
    shared = [one for one in sweeps if any(_alike(one, other) for other in sweeps)]
    learnt = tuple(learn_sweep(sweep, seed=seed) for sweep in shared)
    rows = []
    for done, sweep in enumerate(sweeps):
        row, note = evaluate_sweep(sweep, _sources(sweep, stored, learnt), budget=budget)
        rows.append(row)
        notes.append(note)
        progress(done + 1, len(sweeps))
    return Evaluation(asked, TASK, tuple(rows), tuple(notes))


def evaluate_sweep(sweep: Sweep, sources: Sequence[KnownSweep], *, budget: int = BUDGET) -> tuple[EvaluationRow, str]:
    """The row of one sweep, and what the search was begun from."""
    priors = [source.predict(sweep.names, sweep.configs) for source in sources]
    found = tune_sweep(sweep, budget=budget, priors=priors)
    least = float(np.nanmin(sweep.time_ms))
    best_ms = np.inf if found.best is None else float(sweep.time_ms[found.best.row])
    runs = np.isfinite(sweep.time_ms)
    mape = tau = None
    if priors:
        guess = np.min([prior - prior.min() for prior in priors], axis=0)
        tau = kendall_tau(guess[runs], sweep.time_ms[runs])
        mape = _error_of_level(guess, sweep, found)
    origin = ", ".join(source.device for source in sources)
    begun = f"priors from {origin}" if origin else "no other device is known, searched from nothing"
    regret = best_ms / least - 1 if np.isfinite(best_ms) else None
    row = EvaluationRow(sweep.group, len(sweep.configs), mape, tau, regret, float(best_ms <= least))
    failed = "" if regret is not None else f"; none of {len(found.trials)} measured configurations runs"
    return row, f"{sweep.group}: {begun}{failed}"


def tune_sweep(
    sweep: Sweep, *, method: str = "model", budget: int = BUDGET, seed: int = 0, priors: Sequence[Floats] = ()
) -> Tuning:
    """Search a sweep with any of the autotuner's methods; the sweep stands in for the hardware."""
    rows = {tuple(config): row for row, config in enumerate(sweep.configs.tolist())}

    def measure(config: Config) -> int | None:
        time_ms = sweep.time_ms[rows[tuple(config[name] for name in sweep.names)]]
        return round(float(time_ms) * PS_PER_MS) if np.isfinite(time_ms) else None

    space = Space(sweep.names, sweep.configs)
    return tune(space, measure, method=method, budget=budget, seed=seed, priors=priors)


def _alike(one: Sweep, other: Sweep) -> bool:
    """Whether each can be a prior of the other."""
    same = one.kernel == other.kernel and set(one.names) == set(other.names)
    return same and one.device != other.device


def _sources(sweep: Sweep, stored: Sequence[KnownSweep], learnt: Sequence[KnownSweep]) -> tuple[KnownSweep, ...]:
    """The sweeps that say something of this one; of a device in both the folder's own is taken."""
    own = [source for source in learnt if source.fits(sweep)]
    devices = {source.device for source in own}
    return (*own, *(source for source in stored if source.fits(sweep) and source.device not in devices))


def _error_of_level(guess: Floats, sweep: Sweep, found: Tuning) -> float | None:
    """Error of the priors' times over all that run, their level being the median of the measured ones."""
    rows = [trial.row for trial in found.trials if trial.time_ps is not None]
    if not rows:
        return None
    runs = np.isfinite(sweep.time_ms)
    level = float(np.median(np.log(sweep.time_ms[rows]) - guess[rows]))
    return float(np.mean(np.abs(np.expm1(guess[runs] + level - np.log(sweep.time_ms[runs])))))


def _errors_left_out(model: StoredModel, sweeps: Sequence[Sweep]) -> dict[str, dict[str, float | int | None]]:
    """Regret after ten measurements of each sweep, from the other devices alone."""
    known = known_sweeps(model)
    rows = [evaluate_sweep(sweep, _sources(sweep, known, ()))[0] for sweep in sweeps]
    return {row.group: {"n": row.n, "tau": row.tau, "regret": row.regret, "top1": row.top1} for row in rows}
