"""How far predictions of large systems are off when the like of them was left out, and the constants of the package.

    python benchmarks/scale.py DIR                  # every model, or every series, predicted by the others; two minutes
    python benchmarks/scale.py DIR --write          # and write the constants, fitted on all of DIR, into the package

DIR holds the files that `phasepoint scale validate` reads, and `mlperf_convergence_points.parquet`.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import phasepoint.scale as scale
from phasepoint.scale.mlperf.pairs import (
    FOLDS,
    bands_of,
    fit_scaling,
    fit_spread,
    predict_left_out,
    scaling_document,
    with_spread,
)
from phasepoint.scale.mlperf.records import POINTS, RESULTS, pairs_of, read_points, read_results
from phasepoint.scale.steps.constants import fit_constants, step_s
from phasepoint.scale.validate.answer import FileAnswer, Held, answer_file
from phasepoint.scale.validate.steps import STEP_FILES, Step, StepFile, answer_predicted

PACKAGE = Path(scale.__file__).parent


def weights_of(steps: list[Step]) -> list[float]:
    """Each model counts alike, however often it was measured."""
    counts = {step.group: sum(other.group == step.group for other in steps) for step in steps}
    return [1 / counts[step.group] for step in steps]


def fit(row: StepFile, steps: list[Step]) -> dict[str, float]:
    weights = weights_of(steps)
    mean = sum(weights) / len(weights)
    return fit_constants(
        [step.parts for step in steps], [step.seconds for step in steps], row.table, weights=[w / mean for w in weights]
    )


def steps_left_out(row: StepFile, path: Path) -> tuple[FileAnswer, dict[str, float]]:
    """Every model predicted by constants of the others, and the constants of all."""
    steps, notes = row.read(path)
    seconds = np.zeros(len(steps))
    for group in sorted({step.group for step in steps}):
        constants = fit(row, [step for step in steps if step.group != group])
        for place, step in enumerate(steps):
            if step.group == group:
                seconds[place] = step_s(step.parts, constants, row.table)
    return answer_predicted(path.name, steps, seconds, notes), fit(row, steps)


def pairs_left_out(folder: Path) -> tuple[FileAnswer, dict[str, Any]]:
    """Every series predicted by constants of the others, with the interval that yet others gave; and all constants."""
    results, points = read_results(folder / RESULTS), read_points(folder / POINTS)
    pairs, minutes = predict_left_out(results, points)
    _, known = predict_left_out(results, points, true_samples=True)
    width = np.zeros(len(pairs))
    series = sorted({a.series for a, _ in pairs})
    fold = dict(zip(series, np.random.default_rng(1).integers(0, FOLDS, len(series)), strict=True))
    for left in range(FOLDS):
        rest = [place for place, pair in enumerate(pairs) if fold[pair[0].series] != left]
        spread = fit_spread([pairs[place] for place in rest], minutes[rest])
        for place, (a, b) in enumerate(pairs):
            if fold[a.series] == left:
                width[place] = spread.half_width(a.benchmark, float(np.log2(b.chips / a.chips)))
    compared = Held(
        minutes,
        np.array([b.time_min for _, b in pairs]),
        minutes * np.exp(-width),
        minutes * np.exp(width),
        {
            "perfect scaling": np.array([a.time_min * a.chips / b.chips for a, b in pairs]),
            "with true samples": known,
        },
    )
    groups = {"chips": bands_of(pairs), "benchmark": [a.benchmark for a, _ in pairs]}
    scaling = with_spread(fit_scaling(results, points, pairs_of(results)), fit_spread(pairs, minutes))
    return answer_file(RESULTS, "pairs", compared, groups), scaling_document(scaling)


def show(answer: FileAnswer) -> None:
    covered = "" if answer.coverage90 is None else f", {answer.coverage90:.1%} within 90 %"
    print(
        f"\n**{answer.file}**: {answer.count} {answer.counted}, mean {answer.mape:.1%}, "
        f"median {answer.median_ape:.1%}, worst {answer.worst_ape:.0%}{covered}\n\n"
        f"| | {answer.counted} | mean | median | within 90 % | beside |"
        "\n|---|---|---|---|---|---|"
    )
    for band in answer.by:
        inside = "" if band.coverage90 is None else f"{band.coverage90:.1%}"
        beside = ", ".join(f"{name} {error:.1%}" for name, error in band.beside.items())
        print(f"| {band.name} | {band.count} | {band.mape:.1%} | {band.median_ape:.1%} | {inside} | {beside} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the constants of all into the package")
    args = parser.parse_args()
    known = [*(row.file for row in STEP_FILES), RESULTS]
    if not any((args.folder / name).is_file() for name in known):
        parser.error(f"{args.folder} holds none of {', '.join(known)}")
    today, sets = f"{datetime.now(UTC):%Y-%m-%d}", {}
    for row in STEP_FILES:
        if (args.folder / row.file).is_file():
            answer, constants = steps_left_out(row, args.folder / row.file)
            show(answer)
            left_out = {"mape": round(answer.mape, 4), "worst_ape": round(answer.worst_ape, 4)}
            facts = {"file": row.file, "points": answer.count, "fitted": today, "left_out": left_out}
            sets[row.constants] = facts | {"constants": constants}
    if args.write:
        (PACKAGE / "steps" / "constants.json").write_text(json.dumps(sets, indent=1) + "\n")
    if (args.folder / RESULTS).is_file():
        answer, document = pairs_left_out(args.folder)
        show(answer)
        left_out = {"mape": round(answer.mape, 4), "median_ape": round(answer.median_ape, 4)}
        facts = {"file": RESULTS, "pairs": answer.count, "fitted": today, "left_out": left_out}
        if args.write:
            text = json.dumps(facts | {"scaling": document}, indent=1)
            (PACKAGE / "mlperf" / "scaling.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
