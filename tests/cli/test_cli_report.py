"""`phasepoint report`: formats, and the document that holds every number of the page."""

import json


def test_json_holds_what_the_page_is_drawn_from(phasepoint, run_path, tmp_path):
    target = tmp_path / "r.html"
    done = phasepoint("report", run_path, "-o", target, "--json")
    document = json.loads(done.out)
    assert document["kind"] == "report"
    assert document["written"] == [{"path": str(target), "bytes": target.stat().st_size}]
    assert document["summary"]["verdict"].split()[0] in target.read_text(encoding="utf-8")
    assert sum(one["n_steps"] for one in document["timeline"]["bins"]) == document["summary"]["steps"]
    assert [one["phase"] for one in document["details"]["phases"]] == [p["id"] for p in document["summary"]["phases"]]


def test_markdown_is_printed_or_written(phasepoint, run_path, tmp_path):
    printed = phasepoint("report", run_path, "--format", "md")
    assert printed.code == 0
    assert printed.out.startswith("**")
    target = tmp_path / "r.md"
    assert phasepoint("report", run_path, "--format", "md", "-o", target).code == 0
    assert target.read_text(encoding="utf-8") == printed.out


def test_all_methods_are_compared_when_asked(phasepoint, run_path, tmp_path):
    done = phasepoint("report", run_path, "-o", tmp_path / "r.html", "--all-methods", "--json")
    methods = json.loads(done.out)["details"]["methods"]
    assert [one["method"] for one in methods if one["phases"]] == ["recurrent", "ols", "kmeans", "dbscan"]


def test_a_wrong_format_is_refused_before_anything_is_done(phasepoint, run_path):
    done = phasepoint("report", run_path, "--format", "pdf")
    assert done.code == 2
    assert "html, md" in done.err
