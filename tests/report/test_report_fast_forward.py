"""Fast-forward in the report: on the page, in Markdown, on the timeline, in JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from replay_runs import analysed
from sample_summary import sample_summary

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.replay import checkpoints, fast_forward
from phasepoint.replay.compact.compact import Compact, PartEstimate
from phasepoint.replay.fast_forward import build_fast_forward
from phasepoint.report.export.short import summary_markdown
from phasepoint.report.html.page import summary_html
from phasepoint.report.words.wording import checkpoint_text, contents, replay_command, tell_checkpoints
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.timeline import build_timeline


def test_every_phase_has_its_plan_or_the_reason(opened, forward):
    _, summary, _ = opened
    html = summary_html(summary, fast_forward=forward).replace("\xa0", " ").replace("&nbsp;", " ")
    for row in forward.plans:
        if row.plan is None:
            assert f"<dt>{row.phase}</dt>" in html
            continue
        assert f'id="replay-{row.phase_id}"' in html
        after = row.plan.checkpoint_step
        assert f"from the checkpoint after step {after:,}: {row.plan.forward_steps:,} steps" in html
    unreached = sum(row.plan is None for row in forward.plans)
    assert unreached == 2, [row.phase for row in forward.plans if row.plan is None]
    assert "2 phases without a checkpoint to replay from" in html


def test_a_page_without_plans_says_why(opened):
    run, summary, _ = opened
    analysis = analyse_run(run)
    unseen = analysis.estimates.sampled.only(np.zeros(0, np.int64))
    empty = replace(analysis, estimates=replace(analysis.estimates, sampled=unseen))
    found = build_fast_forward(empty)
    assert found.plans == ()
    assert "No phase can be replayed: " in summary_html(summary, fast_forward=found)
    assert 'id="fast-forward"' not in summary_html(summary)


def test_the_run_from_a_few_steps_stands_beside_what_was_measured(opened, forward):
    part = PartEstimate("input", None, 2 * PS_PER_S, 1 * PS_PER_S, 4 * PS_PER_S, None)
    whole = PartEstimate("compute", None, 98 * PS_PER_S, 97 * PS_PER_S, 99 * PS_PER_S, 97 * PS_PER_S)
    compact = Compact(
        run="r",
        host=0,
        budget=0.05,
        seed=0,
        confidence=0.95,
        steps_used=50,
        steps_total=1000,
        estimate_ps=100 * PS_PER_S,
        low_ps=99_500 * PS_PER_MS,
        high_ps=100_500 * PS_PER_MS,
        actual_ps=100_250 * PS_PER_MS,
        outside_ps=0,
        by_category=(whole, part),
        by_phase=(),
        windows=(),
        notes=("a note",),
    )
    html = summary_html(opened[1], fast_forward=replace(forward, compact=compact)).replace("&nbsp;", " ")
    assert "50 of 1,000 steps (5.0 %) stand for all" in html
    for cell in ("100 s", "± 500 ms", "-0.25 %", "+1.00 %", "1.00 s – 4.00 s", "waiting for input", "a note"):
        assert f"{cell}</" in html
    page = summary_html(opened[1], fast_forward=replace(forward, compact=None, no_compact="too long"))
    assert "The run from a few steps: too long." in page


def test_markdown_has_a_line_for_each_plan_and_one_command(forward):
    text = summary_markdown(sample_summary(), None, forward)
    plan = forward.plans[0].plan
    assert "| phase again | from | steps | cost | of the run |" in text
    assert f"| {plan.phase} | step 100 | 50 | 3.82 s | 31.8 % |" in text
    assert f"    phasepoint replay run {plan.run} --phase {plan.phase} -- python train.py\n" in text
    assert "phase again" not in summary_markdown(sample_summary(), None, replace(forward, plans=()))


def test_a_command_is_quoted_and_one_without_its_job_says_so():
    words = ("python", "a b.py", "--x=$HOME")
    assert replay_command("runs/my job", "train 1", words) == (
        "phasepoint replay run 'runs/my job' --phase 'train 1' -- python 'a b.py' '--x=$HOME'"
    )
    assert replay_command("r", "p\n", ()) == "phasepoint replay run r --phase 'p\\x0a' -- COMMAND…"
    assert "--from-start" in replay_command("r", "p", (), from_start=True)


def test_the_marks_of_checkpoints_say_what_is_left_of_them(opened, forward):
    run, summary, _ = opened
    known = {"has_model": True, "has_optimizer": True, "has_prng": False, "has_iterator": False}
    first, second = forward.checkpoints
    whole = replace(first, state="whole", iterator_state="{}", path="a/99", size_bytes=1 << 21, **known)
    assert contents(whole) == "model, optimizer; no random state or data iterator; loader's state beside it"
    assert checkpoint_text(whole) == (
        "checkpoint after step 99, 2.00 MiB, the job waited 1.00 ms, whole "
        "(model, optimizer; no random state or data iterator; loader's state beside it): a/99"
    )
    index = [replace(first, state="whole"), replace(second, state="missing")]
    line = build_timeline(run, summary, tell_checkpoint=tell_checkpoints(index))
    assert [mark.is_gone for mark in line.checkpoints] == [False, True]
    assert ", missing" in line.checkpoints[1].text


def test_few_checkpoints_of_many_are_looked_at(tmp_path):
    """Of a run with more of them than may be looked at, those that plans lead to, and some before each."""
    paths = {step: tmp_path / f"c{step}" for step in range(4, 396, 5)}
    for step, path in paths.items():
        if step >= 200:
            path.write_bytes(b"state")
    rows = [{"step": step, "path": str(path)} for step, path in paths.items()]
    dur_ms = [25 if 150 <= step < 300 else 10 for step in range(400)]
    analysis = analysed(tmp_path / "run", dur_ms, windows=range(20, 390, 30), checkpoints=rows)
    found = build_fast_forward(analysis)
    strange = (checkpoints.NOT_LOOKED_AT, checkpoints.GONE)
    looked = [one for one in found.checkpoints if one.problem not in strange]
    gone = [one.step for one in found.checkpoints if one.problem == checkpoints.GONE]
    assert gone == [step for step in paths if step < 200]
    assert len(found.checkpoints) == len(rows)
    assert [one.step for one in found.checkpoints] == list(paths)
    assert 0 < len(looked) <= fast_forward.MOST_LOOKED_AT < len(rows)
    chosen = {row.plan.checkpoint for row in found.plans if row.plan is not None}
    assert chosen <= {one.path for one in looked}
    assert all(int(path.rpartition("c")[2]) >= 200 for path in chosen)


@pytest.mark.parametrize("form", ["html", "md"])
def test_the_document_holds_the_plans(phasepoint_report, form):
    document = phasepoint_report(form)
    forward = document["fast_forward"]
    assert forward["plans"][0]["phase"] == "train-1"
    assert forward["plans"][0]["plan"]["forward_steps"] == 50
    assert [one["step"] for one in forward["checkpoints"]] == [99, 170]
    assert forward["compact"] is None or "windows" not in forward["compact"]


@pytest.fixture
def phasepoint_report(opened, tmp_path, capsys):
    from phasepoint.cli.main import run

    def call(form):
        target = tmp_path / f"r.{form}"
        assert run(["report", opened[0].path, "--format", form, "-o", str(target), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call
