"""`phasepoint findings` and `phasepoint explain`: the JSON contract, the gate, bad input."""

import json

import pytest


def test_json_keeps_the_contract_and_the_order(phasepoint, run_path):
    done = phasepoint("findings", run_path, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert (document["version"], document["kind"], document["run"]) == (1, "findings", run_path)
    fields = {"code", "title", "phase", "seconds", "seconds_low", "seconds_high", "share", "remedy", "evidence"}
    assert document["findings"], "the made run waits for its input"
    for finding in document["findings"]:
        assert fields <= set(finding)
        assert finding["seconds_low"] <= finding["seconds"] <= finding["seconds_high"]
        assert finding["seconds"] == finding["saved_ps"] / 1e12
        assert finding["share"] == pytest.approx(finding["saved_ps"] / document["wall_ps"])
    seconds = [finding["seconds"] for finding in document["findings"]]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(finding["saved_ps"] for finding in document["findings"]) <= document["wall_ps"]
    assert all(set(one) == {"code", "reason"} and one["reason"] for one in document["unavailable"])


def test_every_rule_answers_exactly_once(phasepoint, run_path):
    from phasepoint.findings.table import RULES

    document = json.loads(phasepoint("findings", run_path, "--json").out)
    found = {finding["code"] for finding in document["findings"]}
    other = [one["code"] for one in document["unavailable"]] + document["clear"]
    assert sorted([*found, *other]) == sorted(rule.code for rule in RULES)


def test_every_piece_of_evidence_can_be_asked_for(phasepoint, run_path):
    document = json.loads(phasepoint("findings", run_path, "--json").out)
    for finding in document["findings"]:
        for evidence in finding["evidence"]:
            done = phasepoint("sql", run_path, evidence["query"], "--json")
            assert done.code == 0, done.err
            assert json.loads(done.out)["rows"], evidence["query"]


def test_the_waiting_for_input_is_found(phasepoint, run_path):
    done = phasepoint("findings", run_path)
    assert done.code == 0
    assert "INPUT-STALL" in done.out
    assert 'phasepoint sql RUN "select step' in done.out


def test_a_gate_fails_on_what_is_found_and_passes_on_what_is_not(phasepoint, run_path):
    done = phasepoint("findings", run_path, "--fail-on", "input-stall")
    assert done.code == 14
    assert "INPUT-STALL found in" in done.err
    assert "INPUT-STALL" in done.out
    assert phasepoint("findings", run_path, "--fail-on", "any").code == 14


def test_a_misspelt_gate_is_refused(phasepoint, run_path):
    done = phasepoint("findings", run_path, "--fail-on", "INPUT-STAL")
    assert done.code == 2
    assert "no rule has the code 'INPUT-STAL'; the codes are INPUT-STALL" in done.err


def test_no_run_no_findings(phasepoint, tmp_path):
    assert phasepoint("findings", tmp_path).code == 4
    assert phasepoint("findings", tmp_path, "--method", "magic").code == 2


def test_explain_prints_a_page(phasepoint, tmp_path):
    done = phasepoint("explain", "input-stall")
    assert done.code == 0
    assert "Formula" in done.out
    assert phasepoint("explain", "NO-SUCH").code == 2
    pages = json.loads(phasepoint("explain", "--json").out)["rules"]
    assert pages[0]["code"] == "INPUT-STALL"
    assert pages[0]["page"].startswith("# INPUT-STALL")
    assert phasepoint("explain", "--output", tmp_path / "findings.md").code == 0
    assert phasepoint("explain", "--output", tmp_path / "findings.md").code == 12
