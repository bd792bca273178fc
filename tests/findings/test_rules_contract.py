"""What every rule keeps to, on every sort of run; a new one joins by its row in `RULES`."""

import ast
import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from contract_runs import RUNS
from planted_runs import check_finding

from phasepoint.findings import rules
from phasepoint.findings.finding import PARTS, Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.table import RULES, explain_rule, find_rule
from phasepoint.findings.view import FindingsView
from phasepoint.summary.analysis import analyse_run

DOCS = Path(__file__).parents[2] / "docs" / "findings.md"

CLOCK = ("step", "start_ps", "dur_ps", "input_ps", "compile_ps")
_NOT_A_WORD = re.compile(r"\bnan\b|\binf\b|(?<!=)\bNone\b")

of_every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


@pytest.fixture(scope="session", params=RUNS, ids=lambda write: write.__name__)
def analysis(request, tmp_path_factory):
    """One run of each sort, analysed once for all rules."""
    return analyse_run(request.param(tmp_path_factory.mktemp(request.param.__name__)))


@pytest.fixture(scope="session")
def view(analysis):
    return FindingsView(analysis)


@pytest.fixture(scope="session")
def second_view(analysis):
    """The same run, looked at afresh."""
    return FindingsView(analysis)


@pytest.fixture(scope="session")
def clock_as_read(analysis):
    return {name: getattr(analysis.clock, name).copy() for name in CLOCK}


def answer(rule, view):
    """The findings of a rule, or why it cannot judge."""
    try:
        return list(rule.find(view))
    except Unavailable as reason:
        return str(reason)


@of_every_rule
def test_the_first_clause_of_a_remedy_stands_alone(rule, view):
    """The verdict says it as the next step."""
    found = answer(rule, view)
    for finding in found if isinstance(found, list) else ():
        first = finding.remedy.split("; ", 1)[0]
        assert first.count("(") == first.count(")"), first
        assert first.count('"') % 2 == 0, first
        assert 10 < len(first) <= 170, first


@of_every_rule
def test_it_finds_something_or_nothing_or_says_what_it_lacks(rule, view, second_view, clock_as_read):
    found = answer(rule, view)
    assert told(found) == told(answer(rule, second_view))
    for name, values in clock_as_read.items():
        assert np.array_equal(getattr(view.clock, name), values), f"{rule.code} changed {name}"
    if isinstance(found, str):
        assert len(found.split()) >= 4
        assert not _NOT_A_WORD.search(found), found
        return
    outside_ps = max(view.clock.wall_ps - view.clock.inside_ps, 0)
    for finding in found:
        check_finding(view, finding)
        assert finding.code == rule.code
        assert finding.claim.part in PARTS
        assert 0 <= finding.claim.outside_ps <= outside_ps
        assert finding.confidence in ("high", "medium", "low")
        assert finding.phase is None or finding.phase in view.analysis.names.values()
        for text in (finding.title, finding.remedy, finding.wrong_if, *(one.text for one in finding.evidence)):
            assert len(text.split()) >= 2
            assert not _NOT_A_WORD.search(text), text
        assert all(isinstance(layer, str) and layer for layer in finding.layers)


def told(found):
    """An answer as plain values."""
    if isinstance(found, str):
        return found
    claims = [(one.claim.part, one.claim.by_step.tolist(), one.claim.outside_ps) for one in found]
    return claims, [{f.name: getattr(one, f.name) for f in fields(one) if f.name != "claim"} for one in found]


def test_together_they_win_no_more_than_the_run_and_each_answers_once(analysis):
    found = judge_analysis(analysis)
    assert sum(one.saved_ps for one in found.findings) <= found.wall_ps
    assert all(one.low_ps <= one.saved_ps <= one.high_ps and one.saved_ps <= one.alone_ps for one in found.findings)
    silent = [*found.clear, *(one.code for one in found.unavailable)]
    told_of = {one.code for one in found.findings}
    assert sorted(silent + sorted(told_of - set(silent))) == sorted(rule.code for rule in RULES)


@of_every_rule
def test_its_page_stands_in_the_docs_with_its_thresholds_as_they_are(rule):
    page = explain_rule(rule.code)
    assert page.replace("# ", "## ", 1) in DOCS.read_text(encoding="utf-8")
    assert find_rule(rule.code.lower()) is rule


@of_every_rule
def test_every_number_is_on_its_page_or_has_its_reason_beside_it(rule):
    module = import_module(f"phasepoint.findings.rules.{rule.module}")
    lines, body = inspect.getsource(module).splitlines(), ast.parse(inspect.getsource(module)).body
    for line, following in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant | ast.BinOp)):
            continue
        (name,) = (target.id for target in line.targets if isinstance(target, ast.Name))
        if not isinstance(getattr(module, name), int | float):
            continue
        reason = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        told_on_page = re.search(rf"\{{{name}\b", module.__doc__)
        assert told_on_page or reason or "#" in lines[line.lineno - 1], name


def test_every_file_is_a_rule():
    folder = Path(inspect.getfile(rules)).parent
    files = {path.relative_to(folder) for path in folder.rglob("*.py") if path.name != "__init__.py"}
    assert {".".join(file.with_suffix("").parts) for file in files} == {rule.module for rule in RULES}


@of_every_rule
def test_it_is_one_file_with_a_page_and_a_function(rule):
    module = import_module(f"phasepoint.findings.rules.{rule.module}")
    assert inspect.getdoc(module)
    assert inspect.getdoc(rule.find)
    assert inspect.getmodule(rule.find) is module
    assert f'"{rule.code}"' in inspect.getsource(module)
