import re
from types import SimpleNamespace

from sample_summary import EVIL, sample_summary

import phasepoint
from phasepoint.report.export.short import register_display, run_card, summary_card


def test_the_card_says_what_the_summary_says():
    html = summary_card(sample_summary())
    text = re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " ")
    assert "INPUT-BOUND: the device waits 12.0 s for data, 20 % of the run. Next: give the loader" in text
    assert re.search(r"data movement\s+4\.0 %\s+2\.28 s", text)
    assert re.search(r"train\s+80\.7 %\s+1,139\s+40\.4 ms", text)


def test_the_card_is_static_and_names_are_text():
    html = summary_card(sample_summary(verdict=EVIL, notes=(EVIL,)))
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;img src=x") == 2


def test_a_shell_learns_to_show_a_run_and_a_summary(opened):
    run, summary, _ = opened
    learnt = {}
    formatter = SimpleNamespace(for_type=learnt.__setitem__)
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    phasepoint.load_ipython_extension(shell)
    assert set(learnt) == {type(run), type(summary)}
    assert learnt[type(run)](run) == run_card(run) == learnt[type(summary)](summary)
    register_display(shell)
