"""The task `runtime`: training a model of kernels on a corpus, and what such a model is worth on one.

Times of whole programs out of their kernels': what a run takes beside them, for each start of a kernel and once.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.errors import ModelError
from phasepoint.learn.corpus.corpus import Corpus, CorpusProgram, Split, kernels_of_split, random_split, read_corpus
from phasepoint.learn.kernels.fit import LONG_PS, FitSettings, fit_kernel_model
from phasepoint.learn.kernels.model import KIND, KernelModel
from phasepoint.learn.models.analytic import predict_analytic
from phasepoint.learn.models.model_file import Progress, StoredModel, read_model
from phasepoint.learn.tasks import Evaluation, EvaluationRow, error_rows, kendall_tau, mean_absolute_relative_error

_ROUNDS = 20
"""Of reweighting, a choice."""


@dataclass(frozen=True)
class Overhead:
    """What lies between kernels on a device that runs them one after the other.

    Attributes:
        launch_ps: for each execution of a kernel; may be below 0, where the trace's own cost is in each label.
        program_ps: for each run of a program.
    """

    launch_ps: float
    program_ps: float

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def fit_overhead(programs: Sequence[CorpusProgram], time_ps: Floats) -> Overhead:
    """What brings the relative error of the programs' wall times down, given the times of their kernels.

    Args:
        programs: measured; those without a wall time are left out.
        time_ps: of one execution of each kernel of the corpus, [n].
    """
    walled = [program for program in programs if program.wall_min_ps is not None]
    if len(walled) < 2:
        return Overhead(0.0, 0.0)
    summed, walls, launches = _sums(walled, time_ps)
    columns = np.stack([launches, np.ones(len(walled))], axis=1) / walls[:, None]
    rest = 1.0 - summed / walls
    weight: npt.NDArray[Any] = np.ones(len(walled))
    answer: npt.NDArray[Any] = np.zeros(2)
    for _ in range(_ROUNDS):  # least squares, reweighted towards least absolute errors
        answer = np.linalg.lstsq(columns * weight[:, None], rest * weight, rcond=None)[0]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(columns @ answer - rest), 0.01))
    return Overhead(float(answer[0]), float(answer[1]))


def program_times(programs: Sequence[CorpusProgram], time_ps: Floats, overhead: Overhead) -> tuple[Floats, Floats]:
    """Predicted and measured wall times of programs that have one, ps.

    Args:
        programs: with wall times.
        time_ps: of one execution of each kernel of the corpus, [n].
        overhead: of the device.
    """
    summed, walls, launches = _sums(programs, time_ps)
    told = summed + overhead.launch_ps * launches + overhead.program_ps
    return np.maximum(told, 0.1 * summed), walls


def _sums(programs: Sequence[CorpusProgram], time_ps: Floats) -> tuple[Floats, Floats, Floats]:
    summed = [float((time_ps[program.kernels] * program.executions).sum()) for program in programs]
    walls = [float(program.wall_min_ps or 0) for program in programs]
    return np.array(summed), np.array(walls), np.array([float(program.executions.sum()) for program in programs])


BUILTIN = "builtin:kernels-cpu"
LONG, ANALYTIC = "kernels ≥ 5 µs", "analytic: "
SEEN_DIGITS = 12
"""Digits of a fingerprint by which a model knows its training kernels: two of 10,000 are alike once in 10⁷ corpora."""


@dataclass(frozen=True)
class SplitResult:
    """What a model trained on one part of a corpus is worth on the other.

    Attributes:
        model: trained on the split's training programs.
        rows: of the test programs.
        coverage: share of test kernels of at least 5 µs inside their 90 % interval; None where there are none.
    """

    model: StoredModel
    rows: tuple[EvaluationRow, ...]
    coverage: float | None


def train(
    folder: str | Path, *, seed: int = 0, progress: Progress | None = None, settings: FitSettings | None = None
) -> StoredModel:
    """A model of the kernels of a corpus; its card says how it did on the fifth of programs that was held out.

    Args:
        folder: the corpus.
        seed: of split, weights and batches.
        progress: told of epochs done and of all.
        settings: None: the defaults.

    Raises:
        ModelError: the folder holds no corpus, a damaged one, or one of another featuriser; or too few programs.
        MissingExtraError: JAX or optax is not installed.
    """
    corpus = read_corpus(folder, progress=progress)
    split = random_split(corpus, seed=seed)
    return evaluate_split(corpus, split, seed=seed, settings=settings, progress=progress).model


def evaluate_split(
    corpus: Corpus,
    split: Split,
    *,
    seed: int = 0,
    settings: FitSettings | None = None,
    progress: Progress | None = None,
) -> SplitResult:
    """Train on a split's training programs, calibrate on the next part, test on the last.

    Raises:
        ModelError: a part holds too few kernels.
    """
    learn, calibrate, test = kernels_of_split(corpus, split)
    time = corpus.kernels.time_min_ps
    fitted = fit_kernel_model(
        corpus.kernels.graphs,
        time,
        (learn, calibrate),
        seed=seed,
        exact=np.isnan(corpus.noise_floor_ratio),
        settings=settings,
        progress=progress,
    )
    known = [corpus.programs[row] for row in split.train]
    overhead = fit_overhead(known, time.astype(np.float64))
    fitted = replace(fitted, card={**fitted.card, "overhead": overhead.to_json()})
    rows = _rows(fitted, corpus, test, [corpus.programs[row] for row in split.test])
    model = StoredModel(
        corpus.path.name, KIND, _stored(fitted, corpus, learn), _card(fitted, corpus, split, rows, seed)
    )
    prediction = fitted.predict([corpus.kernels.graphs[row] for row in test])
    inside = (prediction.low_ps <= time[test]) & (time[test] <= prediction.high_ps)
    long = time[test] >= LONG_PS
    return SplitResult(model, rows, float(inside[long].mean()) if long.any() else None)


def evaluate(
    model: StoredModel | None, folder: str | Path, *, seed: int = 0, progress: Callable[..., Any] | None = None
) -> Evaluation:
    """A model on a corpus: its errors, those of the analytic model beside them, and times of whole programs.

    Kernels that the model was trained on are counted apart: the rows are about the others, wherever there are any.

    Args:
        model: None: the one that comes with the package.
        folder: the corpus.
        seed: not used: nothing is drawn.
        progress: told of programs read.

    Raises:
        ModelError: the folder holds no corpus, or corpus or model are of another featuriser.
    """
    del seed
    stored = read_model(BUILTIN, kind=KIND) if model is None else model
    kernels = KernelModel.from_model(stored)
    corpus = read_corpus(folder, progress=progress)
    seen = set(stored.arrays.get("seen", np.zeros(0, np.uint64)).tolist())
    trained = np.array([_mark(graph.fingerprint) in seen for graph in corpus.kernels.graphs], np.bool_)
    rows = np.flatnonzero(~trained) if not trained.all() else np.arange(len(trained))
    fresh = set(rows.tolist())
    programs = [one for one in corpus.programs if not fresh.isdisjoint(one.kernels.tolist())]
    notes = [*_evaluation_notes(kernels, corpus), *corpus.notes]
    if trained.any():
        said = "all of them, so these are errors of training" if trained.all() else "left out of the rows of kernels"
        notes.insert(0, f"the model was trained on {trained.sum()} of these {len(trained)} kernels: {said}")
    return Evaluation(stored.name, "runtime", _rows(kernels, corpus, rows, programs), tuple(notes))


def _evaluation_notes(kernels: KernelModel, corpus: Corpus) -> list[str]:
    floor = corpus.noise_floor_long_ratio
    measured = not np.isnan(floor)
    notes = [f"noise floor of the labels of kernels ≥ 5 µs: {floor:.1%}" if measured else "noise is not known"]
    theirs, ours = corpus.device.get("name"), kernels.device.get("name")
    if theirs != ours:
        notes.append(f"the corpus was measured on {theirs}, the model trained on {ours}")
    return notes


def _rows(
    kernels: KernelModel, corpus: Corpus, test: Int64s, programs: list[CorpusProgram]
) -> tuple[EvaluationRow, ...]:
    graphs, truth = corpus.kernels.graphs, corpus.kernels.time_min_ps.astype(np.float64)
    learned = kernels.predict(graphs).time_ps
    analytic = predict_analytic(kernels.analytic, graphs)[0]
    long = test[truth[test] >= LONG_PS]
    short = test[truth[test] < LONG_PS]
    kinds = [graphs[row].kind for row in long]
    rows: list[EvaluationRow] = []
    for name, guess in (("", learned), (ANALYTIC, analytic)):
        rows += [replace(row, group=name + LONG) for row in error_rows([LONG] * len(long), guess[long], truth[long])]
        rows += [replace(r, group=name + r.group) for r in error_rows(kinds, guess[long], truth[long])]
        rows += [
            replace(row, group=name + "kernels < 5 µs")
            for row in error_rows(["short"] * len(short), guess[short], truth[short])
        ]
        rows += [
            replace(row, group=f"{name}all kernels")
            for row in error_rows(["all"] * len(test), guess[test], truth[test])
        ]
        rows += _program_rows(name, kernels, guess, programs)
    rows.append(_within_programs(learned, truth, set(long.tolist()), programs))
    return tuple(rows)


def _program_rows(name: str, kernels: KernelModel, guess: Floats, programs: list[CorpusProgram]) -> list[EvaluationRow]:
    """Times of whole programs: kernels by executions, and what lies between them."""
    walled = [program for program in programs if program.wall_min_ps is not None]
    if not walled:
        return []
    overhead = Overhead(**kernels.card["overhead"]) if "overhead" in kernels.card else Overhead(0.0, 0.0)
    told, walls = program_times(walled, guess, overhead)
    return [
        EvaluationRow(
            f"{name}programs", len(walled), mean_absolute_relative_error(told, walls), kendall_tau(told, walls)
        )
    ]


def _within_programs(guess: Floats, truth: Floats, of: set[int], programs: list[CorpusProgram]) -> EvaluationRow:
    """Kendall's tau within each program of at least two such kernels, mean over programs."""
    taus = []
    for program in programs:
        rows = np.array(sorted(of.intersection(program.kernels.tolist())), np.int64)
        tau = kendall_tau(guess[rows], truth[rows]) if len(rows) > 1 else None
        if tau is not None:
            taus.append(tau)
    return EvaluationRow(f"{LONG}, order within a program", len(taus), tau=float(np.mean(taus)) if taus else None)


def _mark(fingerprint: str) -> int:
    return int(fingerprint[:SEEN_DIGITS], 16)


def _stored(fitted: KernelModel, corpus: Corpus, learn: Int64s) -> dict[str, npt.NDArray[Any]]:
    """Arrays as they go into the file: weights of networks in 16 bits, which is what was calibrated."""
    arrays = {
        name: array.astype(np.float16) if name.startswith("network") else array for name, array in fitted.arrays.items()
    }
    marks = sorted(_mark(corpus.kernels.graphs[row].fingerprint) for row in learn)
    return {**arrays, "seen": np.array(marks, np.uint64)}


def _card(
    fitted: KernelModel, corpus: Corpus, split: Split, rows: tuple[EvaluationRow, ...], seed: int
) -> dict[str, Any]:
    learn, calibrate, test = kernels_of_split(corpus, split)
    floor = corpus.noise_floor_long_ratio
    if np.isinf(floor):
        raise ModelError(f"a noise floor of {floor} is no number; collect the corpus anew")
    parts = {"train": (split.train, learn), "calibrate": (split.calibrate, calibrate), "test": (split.test, test)}
    return {
        "device": dict(corpus.device),
        "corpus": {
            "name": corpus.path.name,
            "programs": len(corpus.programs),
            "kernels": len(corpus.kernels.graphs),
            **{part: {"programs": len(programs), "kernels": len(k)} for part, (programs, k) in parts.items()},
        },
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "versions": dict(corpus.versions or {}),
        "noise_floor_ratio": None if np.isnan(floor) else floor,
        "errors": [{"group": row.group, "n": row.n, "mape": row.mape, "tau": row.tau} for row in rows],
        **fitted.card,
    }
