"""Energy by step, from totals sampled once a second."""

import numpy as np
import pytest
from run_tables import MS

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import format_joules
from phasepoint.phases.clock.energy import energy_by_step
from phasepoint.report.words.wording import steps_line
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

S = 1000 * MS


def recorded(folder, totals):
    """100 steps of 100 ms; totals in joules by device, a sample a second from 0 on."""
    path = create_run(folder / "run", command=("train",))
    writer = open_shard(path, 0, epoch_unix_ns=1_700_000_000_000_000_000)
    steps = [{"step": n, "start_ps": n * 100 * MS, "dur_ps": 100 * MS} for n in range(100)]
    writer.append("steps", table_from_rows("steps", steps))
    rows = [
        {"name": "gpu.energy", "unit": "J", "device": device, "time_ps": at * S, "value": float(total)}
        for device, series in totals.items()
        for at, total in enumerate(series)
    ]
    writer.append("counters", table_from_rows("counters", sorted(rows, key=lambda row: row["time_ps"])))
    writer.close()
    analysis = analyse_run(open_run(path))
    return analysis, energy_by_step(analysis.clock, analysis.table("counters"))


def test_a_second_of_even_power_is_divided_evenly(tmp_path):
    _, found = recorded(tmp_path, {"gpu:0": 100 * np.arange(11), "gpu:1": 5000 + 300 * np.arange(11)})
    assert found == pytest.approx(np.full(100, 40.0))


def test_what_lies_beyond_the_samples_is_not_known(tmp_path):
    _, found = recorded(tmp_path, {"gpu:0": [0, 100, 300]})
    assert found == pytest.approx(np.repeat((10.0, 20.0, 0.0), (10, 10, 80)))


def test_a_driver_that_was_loaded_anew_counts_from_nothing(tmp_path):
    _, found = recorded(tmp_path, {"gpu:0": [900, 1000, 50, 150]})
    assert found == pytest.approx(np.repeat((10.0, 0.0, 10.0, 0.0), (10, 10, 10, 70)))


def test_without_totals_nothing_is_said(tmp_path):
    from phasepoint.findings.judge import summarize_analysis

    analysis, found = recorded(tmp_path / "none", {})
    assert found is None
    summary, _ = summarize_analysis(analysis)
    assert summary.energy_j is None
    assert {phase.energy_j for phase in summary.phases} == {None}
    analysis, found = recorded(tmp_path / "some", {"gpu:0": 720 * np.arange(11)})
    summary, _ = summarize_analysis(analysis)
    assert summary.energy_j == pytest.approx(7200)
    assert sum(phase.energy_j for phase in summary.phases) == pytest.approx(7200)
    assert "The GPUs took 2.00 Wh, 100 % of it in train steps." in steps_line(summary)


@pytest.mark.parametrize(("energy_j", "text"), [(0.5, "0.50 J"), (359, "359 J"), (360, "0.10 Wh"), (4.5e6, "1.25 kWh")])
def test_energy_in_words(energy_j, text):
    assert format_joules(energy_j) == text
