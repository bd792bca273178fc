"""What the commands ask of a run: each question is answered, or refused with an error that says why."""

import io
from contextlib import suppress

from rich.console import Console

from phasepoint.cli.answers.report import build_page
from phasepoint.core.errors import PhasepointError
from phasepoint.core.tables import TABLES
from phasepoint.findings.judge import judge_analysis, summarize_analysis
from phasepoint.replay.fast_forward import build_fast_forward
from phasepoint.report.documents import diff_document, findings_document, phases_document, stack_document, to_json
from phasepoint.report.export.chrome import chrome_trace
from phasepoint.report.export.csv_tables import csv_tables
from phasepoint.report.export.short import summary_markdown
from phasepoint.report.tables import arrow_table
from phasepoint.report.tables.text import csv_text
from phasepoint.report.terminal.diff import render_diff
from phasepoint.report.terminal.findings import render_findings
from phasepoint.report.terminal.stack import render_stack
from phasepoint.report.terminal.summary import render_phases, render_summary
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.stack.analyses.table import ANALYSES, analyse
from phasepoint.stack.diff.diff import compare_runs
from phasepoint.store import compact_run, open_run, run_sql
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.timeline import build_timeline


def ask_run(path, random):
    """Read all of a run, and ask it some of what the commands ask; returns whether any step of it was read.

    Raises:
        AssertionError: an answer does not hold.
    """
    try:
        run = open_run(path)
    except PhasepointError:
        return False
    with suppress(PhasepointError):
        run = convert_windows(path).over(open_run(path))
    n_steps = 0
    with suppress(PhasepointError):
        analysis = analyse_run(run)
        n_steps = analysis.clock.n_steps
        summary, _ = summarize_analysis(analysis)
        _check_sums(summary)
        random.choice((_phases, _summary, _findings, _report, _csv, _chrome))(analysis, summary)
    with suppress(PhasepointError):
        random.choice((_tables, _stack, _stack, _diff, _sql, _compact))(path, run, random)
    return n_steps > 0


def _check_sums(summary):
    assert summary.wall_ps == summary.inside_ps + summary.outside_ps, "wall time does not add up"
    for whole in (summary.account, summary.categories, *(phase.breakdown for phase in summary.phases)):
        assert sum(part.total_ps for part in whole.parts) == whole.total_ps, "a breakdown does not close"
        assert all(part.total_ps >= 0 for part in whole.parts), "a part takes less than no time"
    assert summary.account.total_ps == summary.wall_ps, "the account is not of the wall time"
    assert summary.categories.total_ps == summary.inside_ps, "the categories are not of the time in steps"
    assert sum(phase.steps for phase in summary.phases) == summary.steps, "the phases are not of all steps"


def _phases(analysis, summary):
    to_json("phases", phases_document(summary))
    render_phases(summary, _console())


def _summary(analysis, summary):
    to_json("summary", summary)
    render_summary(summary, _console(), judge_analysis(analysis))


def _findings(analysis, summary):
    found = judge_analysis(analysis)
    to_json("findings", findings_document(found))
    render_findings(found, _console())
    summary_markdown(summary, findings_document(found), build_fast_forward(analysis))


def _report(analysis, summary):
    _, document = build_page(analysis, summary, judge_analysis(analysis))
    to_json("report", document)


def _csv(analysis, summary):
    for table in csv_tables(analysis.run, summary).values():
        csv_text(arrow_table(table), for_spreadsheet=True)


def _chrome(analysis, summary):
    timeline = build_timeline(analysis.run, summary)
    for perfetto in (False, True):
        for _ in chrome_trace(analysis, summary, timeline, perfetto=perfetto):
            pass


def _tables(path, run, random):
    for name in TABLES:
        with suppress(PhasepointError):
            run.table(name).validate(full=True)


def _stack(path, run, random):
    for analysis in random.sample(ANALYSES, 3):
        with suppress(PhasepointError):
            table = analyse(run, analysis.name, workers=1)
            to_json("stack", stack_document(table))
            render_stack(table, _console())


def _diff(path, run, random):
    found = compare_runs([run], [run])
    to_json("diff", diff_document(found))
    render_diff(found, _console())


def _sql(path, run, random):
    run_sql(run, f"SELECT * FROM {random.choice(list(TABLES))}")


def _compact(path, run, random):
    """Merged parts hold the same rows."""
    before = _rows(path)
    with suppress(PhasepointError):
        compact_run(path)
    assert _rows(path) == before, "compaction changed the rows"


def _rows(path):
    run = open_run(path)
    return {name: run.table(name).num_rows for name in TABLES if name != "gaps"}


def _console():
    return Console(file=io.StringIO(), width=120, highlight=False, markup=False, emoji=False)
