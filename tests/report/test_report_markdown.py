from sample_findings import EVIL_TITLE, sample_findings
from sample_summary import sample_summary

from phasepoint.report.export.short import summary_markdown


def test_the_verdict_comes_first_and_the_cost_last():
    summary = sample_summary()
    blocks = summary_markdown(summary, sample_findings()).split("\n\n")
    assert blocks[0] == f"**{summary.verdict}**"
    assert blocks[-1].startswith("Recording cost 452 ms, 0.753 % of the job's time, within the budget of 1.0 %.")


def test_findings_stand_with_seconds_and_remedy():
    text = summary_markdown(sample_summary(), sample_findings())
    assert "| RECOMPILE | jit\\_step was compiled 3 times | 6.50 s | 6.5 % | num\\_workers=4 |" in text
    assert EVIL_TITLE not in text
    assert "\\<script\\>" in text


def test_without_findings_there_is_no_table_of_them():
    text = summary_markdown(sample_summary())
    assert "could be won" not in text
    none = {"version": 1, "findings": [], "unavailable": []}
    assert "No rule found time that could be won." in summary_markdown(sample_summary(), none)


def test_categories_and_phases_are_those_of_the_summary():
    text = summary_markdown(sample_summary())
    assert "| compute | 61.0 % | 34.8 s | ± 712 ms |" in text
    assert "| train | 80.7 % | 1,139 | 40.4 ms |" in text


def test_names_stay_on_one_line_and_mention_nobody():
    text = summary_markdown(sample_summary(verdict="a | b\n# @team `x` <img>"))
    assert text.splitlines()[0] == "**a \\| b \\# \\@team \\`x\\` \\<img\\>**"


def test_a_run_without_steps():
    text = summary_markdown(sample_summary(phases=(), inside_ps=0))
    assert "| phase |" not in text
