"""Which solver of a convolution is the fastest: one model per device, from problems with measured solvers.

The choice is made among solvers that can do the problem; in an evaluation those are the ones that were measured.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import ModelError
from phasepoint.learn.choosing.convolutions import (
    ConvProblem,
    SolverTable,
    conv_features,
    read_solvers,
    shapes_seen,
    solver_files,
)
from phasepoint.learn.choosing.solver_network import (
    Layers,
    SolverTraining,
    apply_network,
    network_arrays,
    networks_of,
    train_networks,
)
from phasepoint.learn.models.model_file import Progress, StoredModel, builtin_models, read_model
from phasepoint.learn.tasks import Evaluation, EvaluationRow, choice_regret, share_best

KIND = "solvers"
TASK = "conv_solvers"
HELD_BACK = 0.05
"""Share of the problems that training never sees; the card's errors are theirs."""
_BLOCK = 8192
"""Problems predicted at a time, a choice: a layer's answers for them take 6 MB."""


@dataclass(frozen=True)
class SolverModel:
    """Times of a device's solvers.

    Attributes:
        device: what it was trained on.
        solvers: [s] names; the columns of a prediction.
        mean: [features] of the training data.
        scale: [features] standard deviation of the training data.
        offset: mean logarithm of ms per flop.
        networks: whose answers are averaged.
    """

    device: str
    solvers: tuple[str, ...]
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    offset: float
    networks: tuple[Layers, ...]

    @classmethod
    def from_model(cls, model: StoredModel) -> "SolverModel":
        """Take a stored model.

        Raises:
            ModelError: it is a model of another kind.
        """
        if model.kind != KIND:
            raise ModelError(f"{model.name} is a model of kind {model.kind!r}; solvers are chosen by one of {KIND!r}")
        arrays = model.arrays
        return cls(
            str(model.card.get("device", "")),
            tuple(str(name) for name in arrays["solvers"]),
            arrays["mean"],
            arrays["scale"],
            float(arrays["offset"][0]),
            tuple(networks_of(arrays)),
        )

    def predict(self, problems: Sequence[ConvProblem]) -> NDArray[np.float64]:
        """Natural logarithm of every solver's time in ms, `[n, s]`, whether or not it can do the problem."""
        features, flop = _features(problems)
        x = _standard(features, self.mean, self.scale)
        blocks = [
            sum(apply_network(np, layers, x[first : first + _BLOCK]) for layers in self.networks) / len(self.networks)
            for first in range(0, len(x), _BLOCK)
        ]
        out = np.concatenate(blocks) if blocks else np.zeros((0, len(self.solvers)))
        return np.asarray(out + self.offset + flop[:, None], np.float64)

    def choose(self, problem: ConvProblem, applicable: Sequence[str]) -> str | None:
        """The solver that is expected to be the fastest of those that can do the problem; None where it knows none."""
        columns = [column for column, name in enumerate(self.solvers) if name in applicable]
        if not columns:
            return None
        times = self.predict([problem])[0]
        return self.solvers[min(columns, key=lambda column: float(times[column]))]


def train(
    folder: str | Path,
    *,
    seed: int,
    progress: Progress,
    device: str | None = None,
    settings: SolverTraining | None = None,
) -> StoredModel:
    """Train the model of one device.

    Args:
        folder: the device's file, or a folder of such files.
        seed: the same seed gives the same arrays.
        progress: told of epochs done.
        device: which file of a folder that holds several.
        settings: of the networks; None takes those that the shipped models have.

    Raises:
        ModelError: there is no such file, several and no device is named, or it cannot be used.
        MissingExtraError: JAX is not installed.
    """
    table = read_solvers(_file_of(folder, device))
    used = settings or SolverTraining()
    held = np.random.default_rng(seed).random(len(table.problems)) < HELD_BACK
    if held.all() or not held.any():
        held = np.arange(len(table.problems)) == 0
    features, flop = _features(table.problems)
    mean, scale = features[~held].mean(axis=0), features[~held].std(axis=0) + np.float32(1e-6)
    work = table.log_time - flop[:, None]
    offset = float(np.nanmean(work[~held]))
    networks = train_networks(
        _standard(features, mean, scale)[~held],
        (work - offset)[~held].astype(np.float32),
        seed=seed,
        settings=used,
        progress=progress,
    )
    arrays = {"solvers": np.array(table.solvers), "mean": mean, "scale": scale, "offset": np.array([offset])}
    arrays |= network_arrays(networks)
    model = StoredModel(f"conv-solvers-{table.device}", KIND, arrays, {"device": table.device})
    return StoredModel(model.name, KIND, arrays, _card(model, table, held, seed, used))


def evaluate(model: StoredModel | None, folder: str | Path, *, seed: int, progress: Progress) -> Evaluation:
    """Choose a solver for every problem of a folder, and hold the choices against the best.

    Args:
        model: of one device; None takes the shipped model of each file's device.
        folder: one parquet file per device, named after it.
        seed: not used; nothing is drawn.
        progress: told of files done.

    Raises:
        ModelError: no file belongs to a device with a model, or a file cannot be used.
    """
    del seed
    rows, notes = [], []
    files = solver_files(folder)
    for done, path in enumerate(files):
        found, note = _model_of(model, path.stem)
        notes += note
        if found is not None:
            table = read_solvers(path)
            row, said = evaluate_table(SolverModel.from_model(found), table)
            rows.append(row)
            notes += [*table.notes, *said]
        progress(done + 1, len(files))
    if not rows:
        raise ModelError(f"{folder}: {'; '.join(notes)}")
    return Evaluation("builtin" if model is None else model.name, TASK, tuple(rows), tuple(notes))


def evaluate_table(model: SolverModel, table: SolverTable) -> tuple[EvaluationRow, tuple[str, ...]]:
    """The row of a device, and what must be said with it.

    Problems of which the model knows no measured solver are left out; a single one that it does not know is not chosen.
    """
    known = [table.solvers.index(name) if name in table.solvers else -1 for name in model.solvers]
    predicted = np.full(table.log_time.shape, np.nan)
    columns = [column for column in known if column >= 0]
    guess = model.predict(table.problems)[:, [place for place, column in enumerate(known) if column >= 0]]
    predicted[:, columns] = guess
    predicted[np.isnan(table.log_time)] = np.nan
    chosen_from = np.isfinite(predicted)
    usable = chosen_from.any(axis=1)
    notes = _unknown_notes(model, table, usable)
    if not usable.any():
        return EvaluationRow(table.device, 0), notes
    predicted, measured = predicted[usable], table.log_time[usable].astype(np.float64)
    pick = np.nanargmin(predicted, axis=1)
    chosen = np.exp(measured[np.arange(len(pick)), pick])
    best = np.exp(np.nanmin(measured, axis=1))
    both = np.isfinite(predicted)
    row = EvaluationRow(
        table.device,
        len(pick),
        mape=float(np.mean(np.abs(np.expm1(predicted[both] - measured[both])))),
        tau=mean_tau(predicted, np.where(both, measured, np.nan)),
        regret=choice_regret(chosen, best),
        top1=share_best(chosen, best),
    )
    return row, (*notes, _spread_note(table.device, chosen / best - 1))


def mean_tau(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float | None:
    """Mean over rows of Kendall's tau-b between two tables; rows that rank nothing on one side are left out.

    Args:
        predicted: [n, s], NaN where there is none.
        measured: [n, s], NaN in the same places.
    """
    order = np.argsort(np.isnan(measured), axis=1, kind="stable")
    most = int(np.isfinite(measured).sum(axis=1).max(initial=0))
    guess, truth = (np.take_along_axis(of, order, axis=1)[:, :most] for of in (predicted, measured))
    agree, left, right = np.zeros(len(guess)), np.zeros(len(guess)), np.zeros(len(guess))
    for i in range(most):
        for j in range(i + 1, most):
            a, b = np.sign(guess[:, i] - guess[:, j]), np.sign(truth[:, i] - truth[:, j])
            there = np.isfinite(a) & np.isfinite(b)
            agree[there] += (a * b)[there]
            left[there] += np.abs(a)[there]
            right[there] += np.abs(b)[there]
    ranked = (left > 0) & (right > 0)
    return float(np.mean(agree[ranked] / np.sqrt(left[ranked] * right[ranked]))) if ranked.any() else None


def _features(problems: Sequence[ConvProblem]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    features, names = conv_features(problems)
    return features, features[:, names.index("log_flop")].astype(np.float64) * np.log(2.0)


def _standard(
    features: NDArray[np.float32], mean: NDArray[np.float32], scale: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Beyond six standard deviations nothing is told apart: what was constant in training may not blow up."""
    standard: NDArray[np.float32] = np.clip((features - mean) / scale, -6, 6).astype(np.float32)
    return standard


def _file_of(folder: str | Path, device: str | None) -> Path:
    files = solver_files(folder)
    stems = [path.stem for path in files]
    if device is not None and device not in stems:
        raise ModelError(f"{folder} holds no file of {device!r}; there are {', '.join(stems)}")
    if device is None and len(files) > 1:
        raise ModelError(f"{folder} holds several devices ({', '.join(stems)}); a model is of one: name its file")
    return files[0 if device is None else stems.index(device)]


def _model_of(model: StoredModel | None, device: str) -> tuple[StoredModel | None, list[str]]:
    """The model for a device's file, or why there is none."""
    if model is not None:
        if model.card.get("device") == device:
            return model, []
        return None, [f"{device}: left out, the model is of {model.card.get('device')}"]
    name = f"conv-solvers-{device}"
    if name not in builtin_models():
        return None, [f"{device}: left out, no model of that device came with the package"]
    return read_model(f"builtin:{name}", kind=KIND), []


def _card(
    model: StoredModel, table: SolverTable, held: NDArray[np.bool_], seed: int, settings: SolverTraining
) -> dict[str, object]:
    rows = [("held back, by problem", held)]
    alone = held.copy()
    kept = [problem for problem, out in zip(table.problems, held, strict=True) if not out]
    alone[held] = ~shapes_seen([table.problems[row] for row in np.flatnonzero(held)], kept)
    rows.append(("held back, no training problem of the same shape", alone))
    errors = {}
    for name, of in rows:
        if of.any():
            row, _ = evaluate_table(SolverModel.from_model(model), _rows_of(table, of))
            errors[name] = {key: getattr(row, key) for key in ("n", "mape", "tau", "regret", "top1")}
    return {
        "task": TASK,
        "device": table.device,
        "corpus": f"{len(table.problems)} convolutions with {int(np.isfinite(table.log_time).sum())} measured solvers",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "split": f"by problem, {HELD_BACK:.0%} held back from training; others of the same shape may be in training",
        "errors": errors,
        "seed": seed,
        "settings": vars(settings),
        "notes": list(table.notes),
    }


def _rows_of(table: SolverTable, of: NDArray[np.bool_]) -> SolverTable:
    """Some of the problems, without the notes on all."""
    rows = np.flatnonzero(of)
    keys, problems = tuple(table.keys[row] for row in rows), tuple(table.problems[row] for row in rows)
    return SolverTable(table.device, keys, problems, table.solvers, table.log_time[rows])


def _unknown_notes(model: SolverModel, table: SolverTable, usable: NDArray[np.bool_]) -> tuple[str, ...]:
    notes = []
    unknown = sorted(set(table.solvers) - set(model.solvers))
    if unknown:
        notes.append(f"{table.device}: solvers that the model does not know are never chosen: {', '.join(unknown)}")
    if not usable.all():
        notes.append(f"{table.device}: {(~usable).sum()} problems of which it knows no measured solver are left out")
    return tuple(notes)


def _spread_note(device: str, regret: NDArray[np.float64]) -> str:
    """The mean is carried by few problems where a measurement was disturbed; say how far."""
    ordered = np.sort(regret)
    most = ordered[: len(ordered) - len(ordered) // 100]
    return (
        f"{device}: regret without the worst 1 % of problems {most.mean():.2%}; "
        f"{np.mean(regret <= 0.05):.1%} of the choices are within 5 % of the best"
    )
